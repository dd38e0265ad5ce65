//! One file: PTX below a few lines that say how to run it and what comes out.
//!
//! ```text
//! // add.s32 wraps around.
//! // threads: 32                       how many in a block, 32 unless told
//! // blocks: 2                         how many, 1 unless told; the first block's threads come first below
//! // words: 2                          each thread writes so many, at out + 4 * words * thread
//! // stride: 3                         each thread reads so many, at in + 4 * stride * thread
//! // in: 0x7fffffff 1 0xffffffff …     threads * stride of them; without a stride all threads see them all
//! // expect: 0x80000000 …              threads * words of them
//! .version 7.0
//! ```
//!
//! Instead of the words a file may have `// code: CUDA_ERROR_ILLEGAL_ADDRESS`, with which the kernel ends, and
//! beside them `// tolerance: ulp 2`: the words are `f32`, and that close is close enough.

use anyhow::{Context, Result, anyhow, bail, ensure};
use std::fmt::Write;
use std::path::{Path, PathBuf};

const USUAL_THREADS: u32 = 32;
const MOST_THREADS: u32 = 1024;
/// What a header may be called.
const KEYS: [&str; 8] = ["threads", "blocks", "words", "stride", "in", "expect", "code", "tolerance"];
/// So that a file stays readable.
const MOST_WORDS: u32 = 256;
/// How many expected words stand in a line.
const WORDS_A_LINE: usize = 8;

/// What a file wants to see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Expectation {
    /// The words that all threads write.
    Words(Vec<u32>),
    /// The code with which the kernel ends.
    Code(String),
}

/// A file.
pub(crate) struct Case {
    /// The file's name without its ending.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    pub(crate) threads: u32,
    pub(crate) blocks: u32,
    pub(crate) words: u32,
    pub(crate) stride: u32,
    pub(crate) input: Vec<u32>,
    pub(crate) tolerance_ulp: u32,
    pub(crate) expectation: Expectation,
}

/// The lines of a header, sorted by what they say.
#[derive(Default)]
struct Header {
    threads: Option<u32>,
    blocks: Option<u32>,
    words: Option<u32>,
    stride: Option<u32>,
    input: Vec<u32>,
    expect: Vec<u32>,
    tolerance_ulp: Option<u32>,
    code: Option<String>,
}

impl Case {
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(path, text).with_context(|| format!("in {}", path.display()))
    }

    fn parse(path: &Path, text: String) -> Result<Self> {
        let mut header = Header::default();
        let lines = header_lines(&text);
        let title = lines.first().and_then(|line| line.strip_prefix("// ")).context("the first line has no title")?;
        ensure!(!KEYS.iter().any(|key| title.starts_with(&format!("{key}:"))), "the first line is no title");
        for (number, line) in (2..).zip(&lines[1..]) {
            if let Some((key, value)) = key_of(line) {
                header.take(key, value).with_context(|| format!("line {number}"))?;
            }
        }
        let threads = header.threads.unwrap_or(USUAL_THREADS);
        ensure!((1..=MOST_THREADS).contains(&threads), "{threads} threads are no block");
        let blocks = header.blocks.unwrap_or(1);
        let all = threads.saturating_mul(blocks);
        let words = header.words.unwrap_or(0);
        ensure!(all.saturating_mul(words) <= MOST_WORDS, "more than {MOST_WORDS} output words");
        let stride = header.stride.unwrap_or(0);
        let read = all as usize * stride as usize;
        ensure!(stride == 0 || header.input.len() == read, "{} input words instead of {read}", header.input.len());
        let expectation = match header.code {
            Some(code) => {
                ensure!(header.expect.is_empty() && words == 0, "both a code and words");
                Expectation::Code(code)
            }
            None => {
                let written = all as usize * words as usize;
                ensure!(words > 0, "neither words nor a code");
                let expected = header.expect.len();
                ensure!(expected == written, "{expected} expected words instead of {written}");
                Expectation::Words(header.expect)
            }
        };
        let name = path.file_stem().context("no name")?.to_string_lossy().into_owned();
        let (path, input, tolerance_ulp) = (path.into(), header.input, header.tolerance_ulp.unwrap_or(0));
        Ok(Self { name, path, text, threads, blocks, words, stride, input, tolerance_ulp, expectation })
    }

    /// How many words all threads write.
    pub(crate) fn output_words(&self) -> usize {
        self.blocks as usize * self.threads as usize * self.words as usize
    }

    pub(crate) fn file_name(&self) -> String {
        format!("{}.ptx", self.name)
    }

    /// The file's text with another expectation.
    pub(crate) fn with_expectation(&self, expectation: &Expectation) -> String {
        let mut text = String::new();
        let mut pending = Some(expectation);
        let header = header_lines(&self.text);
        for (number, line) in header.iter().enumerate() {
            if number == 0 || !matches!(key_of(line), Some(("expect" | "code", _))) {
                let _ = writeln!(text, "{line}");
            } else if let Some(expectation) = pending.take() {
                render(&mut text, expectation);
            }
        }
        if let Some(expectation) = pending {
            render(&mut text, expectation);
        }
        for line in self.text.lines().skip(header.len()) {
            let _ = writeln!(text, "{line}");
        }
        text
    }
}

impl Header {
    fn take(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "threads" => once(&mut self.threads, value.parse().context("no number of threads")?),
            "blocks" => once(&mut self.blocks, value.parse().context("no number of blocks")?),
            "words" => once(&mut self.words, value.parse().context("no number of words")?),
            "stride" => once(&mut self.stride, value.parse().context("no number of words")?),
            "code" => once(&mut self.code, value.to_string()),
            "tolerance" => {
                let steps = value.strip_prefix("ulp ").context("a tolerance is `ulp` and a number")?;
                once(&mut self.tolerance_ulp, steps.parse().context("no number of ulps")?)
            }
            "in" => append(&mut self.input, value),
            "expect" => append(&mut self.expect, value),
            _ => bail!("no header is called {key:?}"),
        }
    }
}

/// A word as files have it: `0x…` or a decimal number.
pub(crate) fn word(text: &str) -> Result<u32> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| anyhow!("{text:?} is no word"))
}

fn once<T>(place: &mut Option<T>, value: T) -> Result<()> {
    ensure!(place.replace(value).is_none(), "this header is there twice");
    Ok(())
}

fn append(words: &mut Vec<u32>, line: &str) -> Result<()> {
    let before = words.len();
    for text in line.split_whitespace() {
        words.push(word(text)?);
    }
    ensure!(words.len() > before, "no words");
    Ok(())
}

/// The comments above the PTX.
fn header_lines(text: &str) -> Vec<&str> {
    text.lines().take_while(|line| line.starts_with("//")).collect()
}

/// `// key: value`. A line of prose has a blank before its first colon, or none at all; the title is prose.
fn key_of(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.strip_prefix("//")?.trim_start().split_once(':')?;
    (!key.contains(char::is_whitespace)).then(|| (key, value.trim()))
}

fn render(text: &mut String, expectation: &Expectation) {
    match expectation {
        Expectation::Code(code) => {
            let _ = writeln!(text, "// code: {code}");
        }
        Expectation::Words(words) => {
            for line in words.chunks(WORDS_A_LINE) {
                let line: Vec<_> = line.iter().map(|word| format!("{word:#010x}")).collect();
                let _ = writeln!(text, "// expect: {}", line.join(" "));
            }
        }
    }
}
