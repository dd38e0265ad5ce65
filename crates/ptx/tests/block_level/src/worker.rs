//! A process that runs launches, and the one that oversees it.
//!
//! The overseer writes requests, one a line; the worker answers each in a line of JSON. A launch after which the device
//! is of no more use, or that does not end, takes its worker with it; the next request starts another.

use crate::call::Refused;
use crate::case::Case;
use crate::counting::counting;
use crate::fuzz;
use crate::gpu::Gpu;
use crate::judge::{Effort, Report, judge, judge_counts};
use crate::launch::Launch;
use crate::mutation;
use crate::subject::Subject;
use anyhow::{Context, Result, bail};
use detshare_test_child::{ending, limit};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::FromRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

/// What a worker is asked to judge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    /// A launch of a file.
    Case { path: PathBuf, launch: usize },
    /// A kernel of a batch of generated ones, which stand in one module.
    Generated { seed: u64, first: u64, count: u64, index: usize },
    /// All launches of a file, with one thing in the versions broken on purpose.
    Mutant { path: PathBuf, mutation: usize },
}

impl Request {
    /// Far more than is needed, also on a CPU and when a driver compiles. Broken on purpose, many never end.
    fn limit_s(&self) -> u32 {
        if matches!(self, Self::Mutant { .. }) { 3 } else { 60 }
    }

    fn to_json(&self) -> Value {
        match self {
            Self::Case { path, launch } => json!({ "path": path, "launch": launch }),
            Self::Generated { seed, first, count, index } => json!([seed, first, count, index]),
            Self::Mutant { path, mutation } => json!({ "path": path, "mutation": mutation }),
        }
    }

    fn from_json(value: &Value) -> Option<Self> {
        let number = |value: &Value| value.as_u64().and_then(|number| usize::try_from(number).ok());
        if let Some([seed, first, count, index]) = value.as_array().map(Vec::as_slice) {
            let index = number(index)?;
            return Some(Self::Generated {
                seed: seed.as_u64()?,
                first: first.as_u64()?,
                count: count.as_u64()?,
                index,
            });
        }
        let path = value["path"].as_str()?.into();
        match number(&value["mutation"]) {
            Some(mutation) => Some(Self::Mutant { path, mutation }),
            None => Some(Self::Case { path, launch: number(&value["launch"])? }),
        }
    }
}

/// What came of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All is as it should be.
    Same(Report),
    /// What is wrong.
    Wrong(String),
    /// The driver does not take the module; for a mutant that says nothing of the suite.
    NotLoaded(String),
}

/// A module, loaded as it is and as one that counts.
struct Loaded {
    key: String,
    launches: Vec<Launch>,
    subject: Subject,
    /// None where the module itself counts.
    counting: Option<Subject>,
}

impl Loaded {
    fn new(gpu: &Gpu, key: String, text: &str, launches: Vec<Launch>) -> Result<Self> {
        let subject = Subject::load(gpu, text, Ok)?;
        let counted = with_counters(text, &launches)?;
        let counting = Some(Subject::load(gpu, &counted, Ok).context("with counters")?);
        Ok(Self { key, launches, subject, counting })
    }

    fn mutant(gpu: &Gpu, key: String, text: &str, launches: Vec<Launch>, mutation: usize) -> Result<Self> {
        let counted = with_counters(text, &launches)?;
        let subject = Subject::load(gpu, &counted, |versions| mutation::apply(&counted, &versions, mutation))?;
        Ok(Self { key, launches, subject, counting: None })
    }

    fn judge(&self, gpu: &Gpu, launch: usize, seed: u64, effort: Effort) -> Result<Report> {
        let launch = self.launches.get(launch).context("no such launch")?;
        let report = judge(gpu, &self.subject, launch, seed, effort)?;
        judge_counts(gpu, self.counting.as_ref().unwrap_or(&self.subject), launch, seed)?;
        Ok(report)
    }
}

/// The module whose kernels count.
pub(crate) fn with_counters(text: &str, launches: &[Launch]) -> Result<String> {
    let most = launches.iter().map(Launch::blocks).max().unwrap_or_default();
    Ok(counting(&detshare_ptx::parse(text)?, most)?.to_string())
}

/// What a worker keeps from one request to the next.
struct Worker {
    gpu: Gpu,
    loaded: Option<Loaded>,
}

impl Worker {
    fn answer(&mut self, request: &Request) -> Result<Outcome> {
        let (key, text, launches, mutation) = match request {
            Request::Case { path, .. } => {
                let case = Case::read(path)?;
                (path.display().to_string(), case.text, case.launches, None)
            }
            Request::Generated { seed, first, count, .. } => {
                let (text, launches) = fuzz::module(*seed, *first, *count);
                (format!("{seed} {first} {count}"), text, launches, None)
            }
            Request::Mutant { path, mutation } => {
                let case = Case::read(path)?;
                (format!("{} {mutation}", path.display()), case.text, case.launches, Some(*mutation))
            }
        };
        if self.loaded.as_ref().is_none_or(|loaded| loaded.key != key) {
            if let Some(loaded) = self.loaded.take() {
                loaded.subject.unload(&self.gpu)?;
                loaded.counting.map_or(Ok(()), |counting| counting.unload(&self.gpu))?;
            }
            let loaded = match mutation {
                Some(mutation) => Loaded::mutant(&self.gpu, key, &text, launches, mutation),
                None => Loaded::new(&self.gpu, key, &text, launches),
            };
            match loaded {
                Ok(loaded) => self.loaded = Some(loaded),
                Err(error) if error.is::<Refused>() => return Err(error),
                Err(error) => return Ok(Outcome::NotLoaded(format!("{error:#}"))),
            }
        }
        let loaded = self.loaded.as_ref().context("nothing is loaded")?;
        match request {
            Request::Case { launch, .. } => loaded.judge(&self.gpu, *launch, 1, Effort::Full),
            Request::Generated { seed, index, .. } => loaded.judge(&self.gpu, *index, *seed, Effort::Sample),
            Request::Mutant { .. } => (0..loaded.launches.len())
                .try_fold(Report::default(), |_, launch| loaded.judge(&self.gpu, launch, 1, Effort::Full)),
        }
        .map(Outcome::Same)
    }
}

/// Answers requests until there are no more.
pub(crate) fn work(driver: &Path) -> Result<()> {
    let mut out = own_output()?;
    let mut worker = Worker { gpu: Gpu::open(driver)?, loaded: None };
    writeln!(out, "ready").context("nobody listens")?;
    for line in std::io::stdin().lines() {
        let line = line.context("no more requests")?;
        let request = Request::from_json(&serde_json::from_str(&line)?).with_context(|| format!("{line:?}"))?;
        limit(request.limit_s());
        let answer = worker.answer(&request);
        limit(0);
        let broken = matches!(&answer, Err(error) if error.chain().any(|it| it.is::<Refused>()));
        let value = match answer {
            Ok(Outcome::Same(report)) => json!({ "same": [report.ways, report.stops, report.sudden] }),
            Ok(Outcome::NotLoaded(why)) => json!({ "not_loaded": why }),
            Ok(Outcome::Wrong(why)) => json!({ "wrong": why }),
            Err(error) => json!({ "wrong": format!("{error:#}"), "last": broken }),
        };
        writeln!(out, "{value}").context("nobody listens")?;
        if broken {
            // SAFETY: ends the process without the library's exit handlers, which could wait for what failed.
            unsafe { libc::_exit(0) }
        }
    }
    Ok(())
}

/// What standard output was. From here on that is the kernels' own, who may print, and goes nowhere.
fn own_output() -> Result<File> {
    // SAFETY: takes a number.
    let copy = unsafe { libc::dup(1) };
    if copy < 0 {
        bail!("no standard output");
    }
    let nowhere = File::options().write(true).open("/dev/null").context("no /dev/null")?;
    // SAFETY: both are open.
    unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&nowhere), 1) };
    // SAFETY: just made, and nobody else's.
    Ok(unsafe { File::from_raw_fd(copy) })
}

/// A worker seen from outside, started when it is needed and again when it is gone.
pub(crate) struct Overseer<'d> {
    driver: &'d Path,
    worker: Option<Running>,
}

struct Running {
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Running {
    /// Waits for its end, which comes when there are no more requests.
    fn end(self) -> Result<ExitStatus> {
        let Self { mut process, requests, answers } = self;
        drop((requests, answers));
        process.wait().context("a worker is lost")
    }
}

impl<'d> Overseer<'d> {
    pub(crate) fn new(driver: &'d Path) -> Self {
        Self { driver, worker: None }
    }

    pub(crate) fn ask(&mut self, request: &Request) -> Result<Outcome> {
        let mut running = match self.worker.take() {
            Some(running) => running,
            None => self.start()?,
        };
        let mut line = String::new();
        let asked = writeln!(running.requests, "{}", request.to_json());
        if asked.is_err() || running.answers.read_line(&mut line).unwrap_or(0) == 0 {
            return Ok(Outcome::Wrong(ending(running.end()?.into_raw(), request.limit_s())));
        }
        let answer: Value = serde_json::from_str(&line).context("a worker's answer makes no sense")?;
        if answer["last"] == true {
            running.end()?;
        } else {
            self.worker = Some(running);
        }
        if let Some(why) = answer["wrong"].as_str() {
            return Ok(Outcome::Wrong(why.into()));
        }
        if let Some(why) = answer["not_loaded"].as_str() {
            return Ok(Outcome::NotLoaded(why.into()));
        }
        let number = |index: usize| answer["same"][index].as_u64().and_then(|it| u32::try_from(it).ok());
        let (Some(ways), Some(stops), Some(sudden)) = (number(0), number(1), number(2)) else { bail!("{line:?}") };
        Ok(Outcome::Same(Report { ways, stops, sudden }))
    }

    fn start(&self) -> Result<Running> {
        let mut command = Command::new(std::env::current_exe().context("who am I?")?);
        // No module comes twice, so a cache is of no use.
        command.arg("worker").arg("--driver").arg(self.driver).env("CUDA_CACHE_DISABLE", "1");
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("no worker")?;
        let requests = process.stdin.take().context("no way to a worker")?;
        let mut answers = BufReader::new(process.stdout.take().context("no way back from a worker")?);
        let mut greeting = String::new();
        answers.read_line(&mut greeting).context("a worker says nothing")?;
        if greeting.trim_end() != "ready" {
            bail!("{} cannot be used", self.driver.display());
        }
        Ok(Running { process, requests, answers })
    }
}

impl Drop for Overseer<'_> {
    fn drop(&mut self) {
        if let Some(running) = self.worker.take() {
            let _ = running.end();
        }
    }
}
