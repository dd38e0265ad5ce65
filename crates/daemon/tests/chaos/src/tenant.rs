//! A tenant: the program that computes in steps, how it is to wait for them, and what it says.

use crate::house::House;
use crate::process::Process;
use crate::undisturbed::{Said, Undisturbed, WORK};
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

/// The same, but none ends before somebody ends it.
pub(crate) fn endless() -> Vec<&'static Kind> {
    KINDS.iter().map(|kind| &*Box::leak(Box::new(Kind { steps: ENDLESS, ..*kind }))).collect()
}

/// More steps than anybody waits for.
const ENDLESS: u32 = u32::MAX;

impl Kind {
    pub(crate) const fn is_endless(&self) -> bool {
        self.steps == ENDLESS
    }

    /// All but the pause, which changes nothing of what is computed, with so many steps.
    pub(crate) fn arguments(&self, steps: u32) -> Vec<String> {
        let Self { wait, kernels, streams, .. } = self;
        let line = format!("--wait {wait} --kernels {kernels} --streams {streams} --steps {steps} --work {WORK}");
        let mut arguments: Vec<String> = line.split(' ').map(String::from).collect();
        if self.graph {
            arguments.push("--graph".to_string());
        }
        arguments
    }
}

/// A running one.
pub(crate) struct Tenant {
    pub(crate) kind: &'static Kind,
    /// Which of the crew's kinds that is.
    pub(crate) number: usize,
    process: Process,
    out: ChildStdout,
    partial: Vec<u8>,
    /// Steps that it has said to be over.
    pub(crate) steps: u64,
    /// The last of them whose results were what they are undisturbed.
    pub(crate) judged: u64,
    /// How often it has shown results.
    pub(crate) results: u64,
    /// Whether it has said its last word.
    is_complete: bool,
    pub(crate) started: Instant,
}

impl Tenant {
    pub(crate) fn start(house: &House, kind: &'static Kind, number: usize) -> Result<Self> {
        let mut command = house.tenant_command(kind.class, kind.name)?;
        command.args(kind.arguments(kind.steps)).args(["--pause-us", &kind.pause_us.to_string()]);
        command.args(["--progress", "--checksums"]);
        let mut process = Process::start(command.stdout(Stdio::piped()))?;
        let out = process.child().stdout.take().context("a tenant without output")?;
        fcntl_setfl(&out, fcntl_getfl(&out)? | OFlags::NONBLOCK)?;
        let started = Instant::now();
        Ok(Self {
            kind,
            number,
            process,
            out,
            partial: Vec::new(),
            steps: 0,
            judged: 0,
            results: 0,
            is_complete: false,
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

    /// Hears all that it has said and judges it; says whether it has ended, with the right result.
    pub(crate) fn listen(&mut self, undisturbed: &mut Undisturbed) -> Result<bool> {
        let has_ended = self.hear(undisturbed)?;
        if has_ended {
            self.judge_end()?;
        }
        Ok(has_ended)
    }

    /// Hears all that it has said and judges it; says whether nothing more comes.
    fn hear(&mut self, undisturbed: &mut Undisturbed) -> Result<bool> {
        let mut bytes = [0; 4096];
        loop {
            match rustix::io::read(&self.out, &mut bytes) {
                Ok(0) => return Ok(true),
                Ok(count) => {
                    self.partial.extend_from_slice(&bytes[..count]);
                    self.take_lines(undisturbed)?;
                }
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => (),
                Err(error) => return Err(error).context("a tenant's words cannot be read"),
            }
        }
    }

    /// Ends it at once, and judges what it had said until then.
    pub(crate) fn kill(&mut self, undisturbed: &mut Undisturbed) -> Result<()> {
        self.process.kill()?;
        self.hear(undisturbed).map(drop)
    }

    fn take_lines(&mut self, undisturbed: &mut Undisturbed) -> Result<()> {
        while let Some(end) = self.partial.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.partial.drain(..=end).collect();
            let said = Said::parse(std::str::from_utf8(&line)?)?;
            if let Some(number) = said.step {
                self.steps += 1;
                ensure!(number == self.steps, "{self} says step {number} after {}", self.steps - 1);
            }
            undisturbed.judge(&said, self.steps).with_context(|| self.to_string())?;
            if let Some((of, _)) = said.result {
                self.judged = of.unwrap_or(self.steps);
                self.results += 1;
            }
            self.is_complete = said.step.is_none();
        }
        Ok(())
    }

    /// It has closed its output: it must have ended well, and said everything.
    fn judge_end(&mut self) -> Result<()> {
        let status = self.process.child().wait()?;
        ensure!(status.success(), "{self} ended with {status} after step {}", self.steps);
        ensure!(
            self.is_complete && self.steps == u64::from(self.kind.steps),
            "{self} ended after step {} without its result",
            self.steps
        );
        Ok(())
    }
}

impl std::fmt::Display for Tenant {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "tenant {} ({})", self.kind.name, self.pid())
    }
}
