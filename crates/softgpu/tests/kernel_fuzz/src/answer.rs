//! What drivers answer, and files of answers.
//!
//! A file is text, one line for each kernel, so that a change can be read: a hash of all that the kernel wrote, and a
//! check of the kernel's own text and inputs. It is a corpus as soon as the answers are a GPU's. Kernels themselves are
//! not in it: they are made anew from seed and number, which takes half a megabyte where the texts would take sixty,
//! compressed still more than ten. What makes that safe is the check: where the generator makes another kernel than
//! the one that was answered, the answer is `stale` and counts as an error, not as a difference between drivers.

use crate::generate::VERSION;
use crate::kernel::Kernel;
use crate::random::{hash_text, hash_words};
use anyhow::{Context, Result, bail, ensure};
use std::fmt::{self, Write};
use std::path::Path;

const TITLE: &str = "kernel_fuzz answers";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The hash of what the kernel wrote.
    Hash(u64),
    /// The driver lacks an instruction, which is named.
    NotSupported(String),
    /// The driver refused the kernel, or ended with it.
    Failed(String),
}

impl Answer {
    pub(crate) fn of(words: &[u32]) -> Self {
        Self::Hash(hash_words(words))
    }

    /// By the line that the software GPU logs: `…: k12: line 30: vadd.u32 … is not supported`.
    pub(crate) fn not_supported(line: &str) -> Self {
        let instruction = line.split_once(": line ").and_then(|(_, rest)| rest.split_once(": ")).map(|(_, text)| text);
        let instruction = instruction.unwrap_or(line).trim_end_matches(" is not supported");
        let opcode = instruction.split_whitespace().find(|word| !word.starts_with('@'));
        Self::NotSupported(opcode.unwrap_or("an instruction").trim_end_matches(';').into())
    }

    pub(crate) fn failed(reason: impl Into<String>) -> Self {
        Self::Failed(reason.into().replace('\n', " "))
    }

    pub(crate) fn parse(text: &str) -> Result<Self> {
        if let Some(instruction) = text.strip_prefix("not supported: ") {
            return Ok(Self::NotSupported(instruction.into()));
        }
        if let Some(reason) = text.strip_prefix("failed: ") {
            return Ok(Self::Failed(reason.into()));
        }
        Ok(Self::Hash(u64::from_str_radix(text, 16).with_context(|| format!("{text:?} is no answer"))?))
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hash(hash) => write!(formatter, "{hash:016x}"),
            Self::NotSupported(instruction) => write!(formatter, "not supported: {instruction}"),
            Self::Failed(reason) => write!(formatter, "failed: {reason}"),
        }
    }
}

/// Of a kernel's text and its inputs: two with the same are the same kernel.
pub(crate) fn check(kernel: &Kernel) -> u32 {
    let all = hash_text(&kernel.ptx()) ^ hash_words(&kernel.input()).rotate_left(1);
    u32::try_from(all >> 32).unwrap_or_default()
}

/// Answers to kernels `0` to `answers.len()` of a seed.
pub(crate) struct Answers {
    pub(crate) seed: u64,
    /// What answered.
    pub(crate) device: String,
    /// Each with its kernel's check.
    pub(crate) answers: Vec<(u32, Answer)>,
}

impl Answers {
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("in {}", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let mut lines = text.lines();
        ensure!(lines.next() == Some(TITLE), "not a file of answers");
        let mut header = |name: &str| {
            let line = lines.next().unwrap_or_default();
            line.strip_prefix(name).map(|value| value.trim().to_string()).with_context(|| format!("no line {name:?}"))
        };
        let version: u32 = header("generator")?.parse().context("no version")?;
        if version != VERSION {
            bail!(
                "the answers are to kernels of generator {version}, and this is generator {VERSION}: record them anew"
            );
        }
        let seed = header("seed")?.parse().context("no seed")?;
        let device = header("device")?;
        let answers: Result<Vec<_>> = lines.map(parse_line).collect();
        Ok(Self { seed, device, answers: answers? })
    }

    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let mut text = format!("{TITLE}\ngenerator {VERSION}\nseed {}\ndevice {}\n", self.seed, self.device);
        for (check, answer) in &self.answers {
            let _ = writeln!(text, "{check:08x} {answer}");
        }
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

fn parse_line(line: &str) -> Result<(u32, Answer)> {
    let (check, answer) = line.split_once(' ').with_context(|| format!("{line:?} is no answer"))?;
    let check = u32::from_str_radix(check, 16).with_context(|| format!("{line:?} has no check"))?;
    Ok((check, Answer::parse(answer)?))
}
