//! What a tenant computes, step by step, when nothing disturbs it.
//!
//! A tenant that is killed in the end has computed a part of it, and one that never ends a part that nobody knows beforehand. So
//! each step is worked out here as the program's kernel does it, when a tenant is heard that has got so far; a run of the program
//! without DetShare says first that this is what the program computes.

use crate::house::House;
use crate::tenant::Kind;
use anyhow::{Context, Result, ensure};
use std::process::Stdio;

/// Words of a stream's data, as `steps` has them.
const WORDS: usize = 128;
/// Rounds of each thread of a kernel: `--work`.
pub(crate) const WORK: u32 = 20;
/// `--seed`, which nobody sets.
const SEED: u32 = 1;

/// The checksums after the steps of one kind of tenant, as far as somebody has asked.
#[derive(Debug)]
pub(crate) struct Undisturbed {
    kernels: u32,
    streams: Vec<[u32; WORDS]>,
    checksums: Vec<u64>,
}

impl Undisturbed {
    pub(crate) fn new(kind: &Kind) -> Self {
        Self { kernels: kind.kernels, streams: (0..kind.streams).map(first).collect(), checksums: Vec::new() }
    }

    /// After so many steps, of which there must have been one.
    pub(crate) fn checksum(&mut self, step: u64) -> Result<u64> {
        let place = usize::try_from(step)?.checked_sub(1).context("no step was over")?;
        while self.checksums.len() <= place {
            for number in 0..self.kernels {
                self.streams.iter_mut().flatten().for_each(|word| *word = through_kernel(*word, number));
            }
            let take_in = |sum: u64, word: &u32| sum.rotate_left(7).wrapping_mul(3) ^ u64::from(*word);
            self.checksums.push(self.streams.iter().flatten().fold(0, take_in));
        }
        Ok(self.checksums[place])
    }

    /// The program without DetShare computes this, in each step and in the end; one that never ends, as far as others do.
    pub(crate) fn confirm(&mut self, kind: &Kind, house: &House) -> Result<()> {
        let steps = if kind.is_endless() { ENOUGH } else { kind.steps };
        let mut command = house.alone_command();
        command.args(kind.arguments(steps)).args(["--progress", "--checksums"]);
        let output = command.stderr(Stdio::inherit()).output().context("cannot start the program without DetShare")?;
        ensure!(output.status.success(), "{} without DetShare ended with {}", kind.name, output.status);
        let (mut done, mut confirmed) = (0, 0);
        for line in String::from_utf8(output.stdout)?.lines() {
            let said = Said::parse(line)?;
            done = said.step.unwrap_or(done);
            confirmed += u64::from(said.result.is_some());
            self.judge(&said, done).with_context(|| format!("{} without DetShare", kind.name))?;
        }
        // One that never waits may be far ahead of its results all the time, but for the last.
        let shown = if kind.wait == "none" { 1 } else { u64::from(steps) + 1 };
        ensure!(confirmed >= shown, "{} without DetShare shows {confirmed} of {shown} results", kind.name);
        Ok(())
    }

    /// That what a tenant says after so many steps is what it would say undisturbed.
    pub(crate) fn judge(&mut self, said: &Said, steps: u64) -> Result<()> {
        let Some((of, checksum)) = said.result else { return Ok(()) };
        let of = of.unwrap_or(steps);
        ensure!(of <= steps, "the results of step {of} are there after step {steps}");
        let expected = self.checksum(of)?;
        ensure!(checksum == expected, "computed {checksum:016x} in step {of} instead of {expected:016x}");
        Ok(())
    }
}

/// Steps of one that never ends that a run without DetShare confirms.
const ENOUGH: u32 = 400;

/// A line of the program.
#[derive(Debug)]
pub(crate) struct Said {
    /// The step that is over; nothing for the last line.
    pub(crate) step: Option<u64>,
    /// Of which step results are there, if not of all, and their checksum.
    pub(crate) result: Option<(Option<u64>, u64)>,
}

impl Said {
    /// `step N`, `step N OF CHECKSUM`, or `checksum CHECKSUM` at the end.
    pub(crate) fn parse(line: &str) -> Result<Self> {
        let checksum = |text: &str| u64::from_str_radix(text, 16).with_context(|| format!("no checksum: {line:?}"));
        let number = |text: &str| text.parse().with_context(|| format!("no number: {line:?}"));
        match line.split_ascii_whitespace().collect::<Vec<_>>()[..] {
            ["step", step] => Ok(Self { step: Some(number(step)?), result: None }),
            ["step", step, of, sum] => {
                Ok(Self { step: Some(number(step)?), result: Some((Some(number(of)?), checksum(sum)?)) })
            }
            ["checksum", sum] => Ok(Self { step: None, result: Some((None, checksum(sum)?)) }),
            _ => anyhow::bail!("the program says {line:?}"),
        }
    }
}

/// A stream's data at first.
fn first(stream: u32) -> [u32; WORDS] {
    let mut word = SEED.wrapping_mul(0x9e37_79b9) ^ stream;
    [(); WORDS].map(|()| {
        word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        word
    })
}

/// What a step's kernel of that number makes of a word.
fn through_kernel(mut word: u32, number: u32) -> u32 {
    let salt = 2 * number + 1;
    for _ in 0..WORK {
        word = word.wrapping_mul(1_664_525).wrapping_add(salt);
        word ^= word >> 15;
    }
    word
}
