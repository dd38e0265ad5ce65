//! A tenant: the program that computes in steps, how it is to wait for them, and what it says.

use crate::house::House;
use crate::process::Process;
use anyhow::{Context, Result, ensure};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use std::process::{ChildStdout, Stdio};
use std::time::Instant;

/// What a tenant does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) class: &'static str,
    pub(crate) wait: &'static str,
    pub(crate) kernels: u32,
    pub(crate) streams: u32,
    pub(crate) graph: bool,
    pub(crate) steps: u32,
    pub(crate) pause_us: u32,
}

const LATENCY: &str = "latency";
const BEST_EFFORT: &str = "best-effort";

const fn kind(name: &'static str, class: &'static str, wait: &'static str, shape: (u32, u32, bool)) -> Kind {
    let (kernels, streams, graph) = shape;
    Kind { name, class, wait, kernels, streams, graph, steps: 150, pause_us: 1_000 }
}

/// Both classes, every way of waiting, with graphs and without; some end soon, some later.
pub(crate) const KINDS: &[Kind] = &[
    kind("stream", LATENCY, "stream", (2, 1, false)),
    Kind { steps: 400, ..kind("event", BEST_EFFORT, "event", (2, 1, false)) },
    Kind { steps: 300, ..kind("context", BEST_EFFORT, "context", (1, 2, false)) },
    Kind { steps: 400, ..kind("query", LATENCY, "query", (1, 1, false)) },
    kind("event-query", BEST_EFFORT, "event-query", (1, 2, false)),
    Kind { steps: 300, ..kind("copy", BEST_EFFORT, "copy", (2, 1, false)) },
    Kind { steps: 60, ..kind("host-function", LATENCY, "host-function", (1, 1, false)) },
    Kind { steps: 250, pause_us: 3_000, ..kind("none", BEST_EFFORT, "none", (2, 1, false)) },
    kind("graph", LATENCY, "stream", (4, 1, true)),
    Kind { steps: 300, ..kind("graphs", BEST_EFFORT, "event", (3, 2, true)) },
    kind("graph-host-function", BEST_EFFORT, "host-function", (4, 1, true)),
    Kind { steps: 200, ..kind("graph-none", BEST_EFFORT, "none", (2, 2, true)) },
];

/// The same, but none ends before somebody ends it. Their results are never asked for.
pub(crate) fn endless() -> Vec<&'static Kind> {
    KINDS.iter().map(|kind| &*Box::leak(Box::new(Kind { steps: ENDLESS, ..*kind }))).collect()
}

/// More steps than anybody waits for.
const ENDLESS: u32 = u32::MAX;

impl Kind {
    pub(crate) const fn is_endless(&self) -> bool {
        self.steps == ENDLESS
    }

    /// All but the pause, which changes nothing of what is computed.
    fn arguments(&self) -> Vec<String> {
        let Self { wait, kernels, streams, steps, .. } = self;
        let line = format!("--wait {wait} --kernels {kernels} --streams {streams} --steps {steps} --work 20");
        let mut arguments: Vec<String> = line.split(' ').map(String::from).collect();
        if self.graph {
            arguments.push("--graph".to_string());
        }
        arguments
    }

    /// What it prints when nothing disturbs it and DetShare is not there.
    pub(crate) fn expected(&self, house: &House) -> Result<String> {
        if self.is_endless() {
            return Ok(String::new());
        }
        let output = house.alone_command().args(self.arguments()).stderr(Stdio::inherit()).output();
        let output = output.context("cannot start the program without DetShare")?;
        ensure!(output.status.success(), "{} without DetShare ended with {}", self.name, output.status);
        let text = String::from_utf8(output.stdout)?;
        Ok(text.trim().to_string())
    }
}

/// A running one.
pub(crate) struct Tenant {
    pub(crate) kind: &'static Kind,
    /// The last line of an undisturbed one.
    expected: String,
    process: Process,
    out: ChildStdout,
    partial: Vec<u8>,
    /// Steps that it has said to be over.
    pub(crate) steps: u64,
    /// What it said in the end.
    result: Option<String>,
    pub(crate) started: Instant,
}

impl Tenant {
    pub(crate) fn start(house: &House, kind: &'static Kind, expected: &str) -> Result<Self> {
        let mut command = house.tenant_command(kind.class, kind.name)?;
        command.args(kind.arguments()).args(["--pause-us", &kind.pause_us.to_string(), "--progress"]);
        let mut process = Process::start(command.stdout(Stdio::piped()))?;
        let out = process.child().stdout.take().context("a tenant without output")?;
        fcntl_setfl(&out, fcntl_getfl(&out)? | OFlags::NONBLOCK)?;
        let started = Instant::now();
        Ok(Self {
            kind,
            expected: expected.to_string(),
            process,
            out,
            partial: Vec::new(),
            steps: 0,
            result: None,
            started,
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub(crate) fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Readable when it has said something or has ended.
    pub(crate) fn output(&self) -> BorrowedFd<'_> {
        self.out.as_fd()
    }

    /// Hears all that it has said; says whether it has ended, with the right result.
    pub(crate) fn listen(&mut self) -> Result<bool> {
        let mut bytes = [0; 4096];
        loop {
            match rustix::io::read(&self.out, &mut bytes) {
                Ok(0) => return self.judge().map(|()| true),
                Ok(count) => {
                    self.partial.extend_from_slice(&bytes[..count]);
                    self.take_lines()?;
                }
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => (),
                Err(error) => return Err(error).context("a tenant's words cannot be read"),
            }
        }
    }

    fn take_lines(&mut self) -> Result<()> {
        while let Some(end) = self.partial.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.partial.drain(..=end).collect();
            let line = String::from_utf8(line)?;
            match line.trim_end().strip_prefix("step ") {
                Some(number) => {
                    self.steps += 1;
                    ensure!(number.parse() == Ok(self.steps), "{self} says step {number} after {}", self.steps - 1);
                }
                None => self.result = Some(line.trim_end().to_string()),
            }
        }
        Ok(())
    }

    /// It has closed its output: it must have ended well, and computed what it computes alone.
    fn judge(&mut self) -> Result<()> {
        let status = self.process.child().wait()?;
        ensure!(status.success(), "{self} ended with {status} after step {}", self.steps);
        let (result, expected) = (self.result.as_deref().unwrap_or("nothing"), &self.expected);
        ensure!(result == expected, "{self} computed {result:?} instead of {expected:?}");
        Ok(())
    }
}

impl std::fmt::Display for Tenant {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "tenant {} ({})", self.kind.name, self.pid())
    }
}
