//! A process that runs kernels, and the one that oversees it.
//!
//! The overseer writes requests, one a line: `batch FIRST COUNT`, or `alone NUMBER EDITS` for one kernel, in parts. The
//! worker answers each kernel by `CHECK ANSWER` and, where whole outputs are wanted, the words. A kernel that faults
//! ends its worker; the rest of its batch is then asked for one by one.

use crate::answer::{Answer, check};
use crate::generate;
use crate::gpu::{Gpu, Outcome};
use crate::kernel::Kernel;
use crate::reference;
use crate::shrink::{Edit, apply};
use anyhow::{Context, Result, bail};
use detshare_test_child::{ending, limit, patience};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Far more than a batch needs, also on a CPU and when its driver compiles it.
const BATCH_LIMIT_S: u32 = 120;
const ALONE_LIMIT_S: u32 = 20;

/// In place of a driver's path: what instructions are defined to do, computed here.
pub(crate) const REFERENCE: &str = "reference";

/// What came of one kernel.
#[derive(Debug, Clone)]
pub(crate) struct Answered {
    pub(crate) check: u32,
    pub(crate) answer: Answer,
    /// All that it wrote, where that was asked for.
    pub(crate) words: Option<Vec<u32>>,
}

/// Who runs kernels.
enum Runner {
    Driver(Box<Gpu>),
    Reference,
}

impl Runner {
    fn open(driver: &Path) -> Result<Self> {
        if driver == Path::new(REFERENCE) {
            return Ok(Self::Reference);
        }
        Ok(Self::Driver(Box::new(Gpu::open(driver)?)))
    }

    /// What the device is called.
    fn name(&self) -> Result<String> {
        match self {
            Self::Driver(gpu) => gpu.name(),
            Self::Reference => Ok(REFERENCE.into()),
        }
    }

    fn run(&mut self, kernels: &[Kernel]) -> Result<Vec<Outcome>> {
        match self {
            Self::Driver(gpu) => gpu.run(kernels),
            Self::Reference => Ok(kernels.iter().map(reference::run).collect()),
        }
    }
}

/// Answers requests until there are no more.
pub(crate) fn work(driver: &Path, seed: u64, whole: bool) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let mut runner = match Runner::open(driver) {
        Ok(runner) => runner,
        Err(error) => {
            // Standard error may be caught by now.
            let _ = writeln!(out, "broken {}", format!("{error:#}").replace('\n', " "));
            return Err(error);
        }
    };
    writeln!(out, "{}", runner.name()?).and_then(|()| out.flush()).context("nobody listens")?;
    for line in std::io::stdin().lines() {
        let line = line.context("no more requests")?;
        let (kernels, seconds) = requested(seed, &line)?;
        limit(seconds);
        let outcomes = runner.run(&kernels);
        limit(0);
        let mut text = String::new();
        match outcomes {
            Ok(outcomes) => {
                for (kernel, outcome) in kernels.iter().zip(outcomes) {
                    report(&mut text, kernel, outcome, whole);
                }
            }
            Err(error) => {
                let told =
                    writeln!(out, "broken {}", format!("{error:#}").replace('\n', " ")).and_then(|()| out.flush());
                // SAFETY: ends the process without the library's exit handlers, which could wait for what failed.
                unsafe { libc::_exit(i32::from(told.is_err())) }
            }
        }
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("nobody listens")?;
    }
    Ok(())
}

fn report(text: &mut String, kernel: &Kernel, outcome: Outcome, whole: bool) {
    let (answer, words) = match outcome {
        Ok(words) => (Answer::of(&words), words),
        Err(answer) => (answer, Vec::new()),
    };
    let _ = write!(text, "{:08x} {answer}", check(kernel));
    if whole {
        let _ = write!(text, "\t");
        words.iter().for_each(|word| {
            let _ = write!(text, "{word:08x}");
        });
    }
    text.push('\n');
}

fn requested(seed: u64, line: &str) -> Result<(Vec<Kernel>, u32)> {
    let mut words = line.split(' ');
    let verb = words.next();
    let number: u64 = words.next().context("no number")?.parse().context("no number")?;
    match verb {
        Some("batch") => {
            let count: u64 = words.next().context("no count")?.parse().context("no count")?;
            Ok((
                (number..number + count).map(|number| generate::kernel(seed, number)).collect(),
                patience(BATCH_LIMIT_S),
            ))
        }
        Some("alone") => {
            let edits: Result<Vec<Edit>> = words.map(str::parse).collect();
            Ok((vec![apply(generate::kernel(seed, number), &edits?)], patience(ALONE_LIMIT_S)))
        }
        _ => bail!("{line:?} is no request"),
    }
}

/// A worker seen from outside, started when it is needed and again when it is gone.
pub(crate) struct Overseer {
    driver: PathBuf,
    seed: u64,
    whole: bool,
    worker: Option<Running>,
}

struct Running {
    device: String,
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Overseer {
    pub(crate) fn new(driver: &Path, seed: u64, whole: bool) -> Self {
        // A file of that name in this folder is meant before one that the system finds.
        let driver =
            if driver.exists() { driver.canonicalize().unwrap_or_else(|_| driver.into()) } else { driver.into() };
        Self { driver, seed, whole, worker: None }
    }

    /// What the driver's device is called.
    pub(crate) fn device(&mut self) -> Result<String> {
        Ok(self.running()?.device.clone())
    }

    fn running(&mut self) -> Result<&mut Running> {
        let worker = match self.worker.take() {
            Some(worker) => worker,
            None => self.start()?,
        };
        Ok(self.worker.insert(worker))
    }

    /// The answers to so many kernels from that one on.
    pub(crate) fn batch(&mut self, first: u64, count: u64) -> Result<Vec<Answered>> {
        match self.ask(&format!("batch {first} {count}"), count)? {
            Ok(answered) => Ok(answered),
            Err(_) => (first..first + count).map(|number| self.alone(number, &[])).collect(),
        }
    }

    /// The answer to one kernel, less what the edits take out.
    pub(crate) fn alone(&mut self, number: u64, edits: &[Edit]) -> Result<Answered> {
        let edits: String = edits.iter().map(|edit| format!(" {edit}")).collect();
        match self.ask(&format!("alone {number}{edits}"), 1)? {
            Ok(mut answered) => Ok(answered.remove(0)),
            Err(reason) => {
                let kernel = generate::kernel(self.seed, number);
                Ok(Answered { check: check(&kernel), answer: Answer::failed(reason), words: None })
            }
        }
    }

    /// Asks; the reason, where the worker did not get through.
    fn ask(&mut self, request: &str, count: u64) -> Result<Result<Vec<Answered>, String>> {
        let worker = self.running()?;
        let mut answered = Vec::new();
        let mut broken = writeln!(worker.requests, "{request}").is_err().then(String::new);
        while broken.is_none() && (answered.len() as u64) < count {
            let mut line = String::new();
            match worker.answers.read_line(&mut line) {
                Ok(length) if length > 0 => match line.trim_end_matches('\n').strip_prefix("broken ") {
                    Some(reason) => broken = Some(reason.into()),
                    None => answered.push(parse(line.trim_end_matches('\n'))?),
                },
                _ => broken = Some(String::new()),
            }
        }
        let Some(reason) = broken else { return Ok(Ok(answered)) };
        let ended = self.end()?;
        Ok(Err(if reason.is_empty() { ended } else { reason }))
    }

    fn start(&self) -> Result<Running> {
        let mut command = Command::new(std::env::current_exe().context("who am I?")?);
        command.arg("worker").arg("--driver").arg(&self.driver).args(["--seed", &self.seed.to_string()]);
        if self.whole {
            command.arg("--whole");
        }
        // The software GPU then names what it does not support. No kernel comes twice, so a cache is of no use.
        command.env("DETSHARE_LOG", "1").env("CUDA_CACHE_DISABLE", "1").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().context("no worker")?;
        let requests = process.stdin.take().context("no way to a worker")?;
        let mut answers = BufReader::new(process.stdout.take().context("no way back from a worker")?);
        let mut device = String::new();
        answers.read_line(&mut device).context("a worker says nothing")?;
        let device = device.trim_end().to_string();
        if device.is_empty() || device.starts_with("broken ") {
            let status = process.wait().context("a worker is lost")?;
            bail!("{} cannot be used: {device} ({})", self.driver.display(), ending(status.into_raw(), 0));
        }
        Ok(Running { device, process, requests, answers })
    }

    /// Waits for a worker that has stopped answering; how it ended.
    fn end(&mut self) -> Result<String> {
        let Some(Running { mut process, requests, answers, .. }) = self.worker.take() else { bail!("no worker") };
        drop((requests, answers));
        let status = process.wait().context("a worker is lost")?;
        Ok(ending(status.into_raw(), patience(BATCH_LIMIT_S)))
    }
}

impl Drop for Overseer {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

fn parse(line: &str) -> Result<Answered> {
    let (line, words) = match line.split_once('\t') {
        Some((line, words)) => (line, Some(words)),
        None => (line, None),
    };
    let (check, answer) = line.split_once(' ').with_context(|| format!("{line:?} is no answer"))?;
    let check = u32::from_str_radix(check, 16).with_context(|| format!("{line:?} is no answer"))?;
    let word = |at: usize, words: &str| u32::from_str_radix(&words[at * 8..at * 8 + 8], 16);
    let words: Option<Result<Vec<u32>, _>> =
        words.map(|words| (0..words.len() / 8).map(|at| word(at, words)).collect());
    let words = words.transpose().context("a worker's words are none")?;
    Ok(Answered { check, answer: Answer::parse(answer)?, words })
}
