//! One test in one process.
//!
//! The child reports through a pipe, a JSON object a line: first its notes, as they come, then its verdict. A
//! child that ends without a verdict was killed, by the time limit or by what it tested.

use crate::Test;
use crate::call::Skipped;
use anyhow::{Context, Result};
use detshare_cuda::Driver;
use detshare_cuda::driver::Visibility;
use detshare_test_child::{ending, limit, wait_for};
use serde_json::{Value, json};
use std::fmt;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Far more than any test needs on a GPU, and enough for kernels that run on a CPU.
pub(crate) const TIME_LIMIT_S: u32 = 60;

/// Where the child reports to.
static REPORT: OnceLock<Mutex<PipeWriter>> = OnceLock::new();

/// How a test ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Ok,
    Failed,
    Skipped,
}

/// What came out of one test.
pub(crate) struct Report {
    name: &'static str,
    pub(crate) verdict: Verdict,
    detail: String,
    notes: Vec<String>,
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

impl Report {
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// It failed for a reason that the test itself could not know.
    pub(crate) fn fail(&mut self, why: String) {
        self.verdict = Verdict::Failed;
        self.detail = why;
    }

    pub(crate) fn as_json(&self) -> Value {
        json!({ "name": self.name, "verdict": self.verdict.name(), "detail": self.detail, "notes": self.notes })
    }
}

impl fmt::Display for Report {
    /// One line: name, verdict, why, notes.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ... {}", self.name, self.verdict.name())?;
        if !self.detail.is_empty() {
            write!(formatter, ": {}", self.detail)?;
        }
        if !self.notes.is_empty() {
            write!(formatter, " [{}]", self.notes.join("; "))?;
        }
        Ok(())
    }
}

/// A test that runs.
pub(crate) struct Running {
    name: &'static str,
    seconds: u32,
    process: libc::pid_t,
    reports: PipeReader,
}

/// Runs the test in a child, which gets that many seconds.
pub(crate) fn start(driver: &Path, test: &Test, seconds: u32) -> Result<Running> {
    let (reader, writer) = std::io::pipe().context("no pipe to a test")?;
    // SAFETY: this process has one thread, so the child may go on as if nothing had happened.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error()).context("no process for a test"),
        0 => {
            drop(reader);
            child(driver, test, writer, seconds)
        }
        process => {
            drop(writer);
            Ok(Running { name: test.0, seconds, process, reports: reader })
        }
    }
}

impl Running {
    /// Waits for it.
    pub(crate) fn finish(self) -> Result<Report> {
        let mut report = Report { name: self.name, verdict: Verdict::Failed, detail: String::new(), notes: vec![] };
        let reported = listen(BufReader::new(self.reports), &mut report)?;
        let status = wait_for(self.process).context("a test's process is lost")?;
        if !reported {
            report.detail = ending(status, self.seconds);
        } else if status != 0 && report.verdict != Verdict::Failed {
            // A checker that the suite runs under has found something.
            report.verdict = Verdict::Failed;
            report.detail = ending(status, self.seconds);
        }
        Ok(report)
    }
}

/// Writes down what a test saw.
pub(crate) fn note(text: &str) {
    tell(&json!({ "note": text }));
}

fn tell(line: &Value) {
    let Some(report) = REPORT.get() else { return };
    let mut writer = report.lock().unwrap_or_else(PoisonError::into_inner);
    // Where the parent is gone there is no one to tell.
    let _ = writeln!(writer, "{line}");
}

fn child(driver: &Path, (_, body): &Test, writer: PipeWriter, seconds: u32) -> ! {
    limit(seconds);
    let _ = REPORT.set(Mutex::new(writer));
    std::panic::set_hook(Box::new(|_| ()));
    let outcome = catch_unwind(AssertUnwindSafe(|| body(&Driver::open(driver, Visibility::Local)?)));
    let (verdict, detail) = match outcome {
        Ok(Ok(())) => (Verdict::Ok, String::new()),
        Ok(Err(error)) => match error.downcast_ref::<Skipped>() {
            Some(reason) => (Verdict::Skipped, reason.to_string()),
            None => (Verdict::Failed, format!("{error:#}")),
        },
        Err(panic) => (Verdict::Failed, format!("panicked: {}", panic_text(&*panic))),
    };
    tell(&json!({ "verdict": verdict.name(), "detail": detail }));
    // SAFETY: ends the process without the library's exit handlers, which could wait for a kernel that a failed
    // test left behind.
    unsafe { libc::_exit(0) }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// Reads to the end. Whether there was a verdict.
fn listen(lines: impl BufRead, report: &mut Report) -> Result<bool> {
    let mut reported = false;
    for line in lines.lines() {
        let line: Value = serde_json::from_str(&line.context("a test's report cannot be read")?)?;
        if let Some(note) = line["note"].as_str() {
            report.notes.push(note.into());
        }
        if let Some(verdict) = line["verdict"].as_str() {
            let verdicts = [Verdict::Ok, Verdict::Failed, Verdict::Skipped];
            report.verdict = verdicts.into_iter().find(|it| it.name() == verdict).context("no such verdict")?;
            report.detail = line["detail"].as_str().unwrap_or_default().into();
            reported = true;
        }
    }
    Ok(reported)
}
