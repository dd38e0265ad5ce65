//! Running cases in other processes.
//!
//! A child opens the driver and runs one case after the other, until one of them is answered with a code: a
//! context in which a kernel has failed is of no more use. The next child goes on behind it. A child that dies
//! takes only the case with it that it was running. This process never touches the driver.

use crate::call::Refused;
use crate::case::Case;
use crate::gpu::Gpu;
use anyhow::{Context, Result};
use detshare_cuda::types::CUresult;
use detshare_test_child::{ending, limit, patience, wait_for};
use serde_json::{Value, json};
use std::fmt;
use std::io::{BufRead, BufReader, PipeWriter, Write};
use std::path::Path;

/// Far more than any case needs, also on a CPU.
const TIME_LIMIT_S: u32 = 30;

/// What came out of one case.
pub(crate) enum Observed {
    /// What the threads wrote.
    Words(Vec<u32>),
    /// The driver would not go on.
    Refused(Refused),
    /// There is no answer.
    Lost(String),
}

impl fmt::Display for Observed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Words(words) => write!(formatter, "{} words", words.len()),
            Self::Refused(refused) => refused.fmt(formatter),
            Self::Lost(reason) => reason.fmt(formatter),
        }
    }
}

/// Runs all cases in their order and tells what came out of each.
pub(crate) fn run(driver: &Path, cases: &[Case], mut tell: impl FnMut(&Case, &Observed)) -> Result<()> {
    let mut left = cases;
    while !left.is_empty() {
        let mut done = 0;
        let ending = in_child(driver, left, |observed| {
            tell(&left[done], &observed);
            done += 1;
        })?;
        if let Some(ending) = ending {
            tell(&left[done], &Observed::Lost(ending));
            done += 1;
        }
        left = &left[done..];
    }
    Ok(())
}

/// Runs cases up to the first that fails. How the child ended, where the next case has no answer because of it.
fn in_child(driver: &Path, cases: &[Case], mut tell: impl FnMut(Observed)) -> Result<Option<String>> {
    let (reader, writer) = std::io::pipe().context("no pipe to a child")?;
    // SAFETY: this process has one thread, so the child may go on as if nothing had happened.
    let process = match unsafe { libc::fork() } {
        -1 => return Err(std::io::Error::last_os_error()).context("no process for the cases"),
        0 => {
            drop(reader);
            child(driver, cases, writer)
        }
        process => process,
    };
    drop(writer);
    let (mut answers, mut stopped) = (0, false);
    for line in BufReader::new(reader).lines() {
        let observed = parse(&line.context("a child's report cannot be read")?)?;
        stopped = !matches!(observed, Observed::Words(_));
        answers += 1;
        tell(observed);
    }
    let status = wait_for(process).context("a child is lost")?;
    let complete = stopped || answers == cases.len();
    Ok(if complete { None } else { Some(ending(status, patience(TIME_LIMIT_S))) })
}

fn child(driver: &Path, cases: &[Case], mut writer: PipeWriter) -> ! {
    let mut gpu = None;
    for case in cases {
        limit(patience(TIME_LIMIT_S));
        let outcome = match &gpu {
            Some(gpu) => Gpu::run(gpu, case),
            None => Gpu::open(driver).and_then(|opened| gpu.insert(opened).run(case)),
        };
        let answer = match &outcome {
            Ok(words) => json!({ "words": words }),
            Err(error) => match error.downcast_ref::<Refused>() {
                Some(Refused { call, code }) => json!({ "call": call, "code": code.0 }),
                None => json!({ "lost": format!("{error:#}") }),
            },
        };
        // Where the parent is gone there is no one to tell.
        if writeln!(writer, "{answer}").is_err() || outcome.is_err() {
            break;
        }
    }
    // SAFETY: ends the process without the library's exit handlers, which could wait for a kernel that failed.
    unsafe { libc::_exit(0) }
}

fn parse(line: &str) -> Result<Observed> {
    let answer: Value = serde_json::from_str(line).context("a child's report makes no sense")?;
    let number = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
    if let Some(words) = answer["words"].as_array() {
        let words: Option<Vec<u32>> = words.iter().map(number).collect();
        return Ok(Observed::Words(words.context("a child's words are none")?));
    }
    if let (Some(call), Some(code)) = (answer["call"].as_str(), number(&answer["code"])) {
        return Ok(Observed::Refused(Refused { call: call.into(), code: CUresult(code) }));
    }
    Ok(Observed::Lost(answer["lost"].as_str().unwrap_or_default().into()))
}
