//! A process that runs launches.
//!
//! The [overseer](crate::overseer) writes requests, one a line; the worker answers each in a line of JSON, after lines that say
//! what it is about to do. A launch after which the device is of no more use, or that does not end, takes its worker with it; the
//! next request starts another.

use crate::call::Refused;
use crate::case::Case;
use crate::counting::counting;
use crate::fuzz::{self, Generated};
use crate::gpu::Gpu;
use crate::judge::{Effort, Report, judge, judge_counts};
use crate::launch::Launch;
use crate::mutation;
use crate::subject::Subject;
use anyhow::{Context, Result, bail};
use detshare_test_child::limit;
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write;
use std::os::fd::FromRawFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// What a line begins with that says what comes next.
pub(crate) const DOING: &str = "doing ";

/// Where a worker's answers go.
static OUT: OnceLock<File> = OnceLock::new();

/// Tells the overseer what comes next, so that it can say what did not end.
pub(crate) fn doing(what: &str) -> Result<()> {
    OUT.get().map_or(Ok(()), |mut out| writeln!(out, "{DOING}{what}")).context("nobody listens")
}

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
    /// How long it may take. Broken on purpose, many never end.
    pub(crate) fn limit_s(&self, patience_s: u32) -> u32 {
        if matches!(self, Self::Mutant { .. }) { patience_s.min(3) } else { patience_s }
    }

    /// What is loaded for it; the same for requests of one module.
    fn module(&self) -> String {
        match self {
            Self::Case { path, .. } => path.display().to_string(),
            Self::Generated { seed, first, count, .. } => format!("{seed} {first} {count}"),
            Self::Mutant { path, mutation } => format!("{} {mutation}", path.display()),
        }
    }

    pub(crate) fn to_json(&self) -> Value {
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

impl Outcome {
    /// What is wrong, if anything is.
    pub(crate) fn wrong(&self) -> Option<&str> {
        match self {
            Self::Same(_) => None,
            Self::Wrong(why) | Self::NotLoaded(why) => Some(why),
        }
    }

    fn to_json(&self) -> Value {
        match self {
            Self::Same(report) => json!({ "same": [report.ways, report.stops, report.sudden] }),
            Self::NotLoaded(why) => json!({ "not_loaded": why }),
            Self::Wrong(why) => json!({ "wrong": why }),
        }
    }

    pub(crate) fn from_json(value: &Value) -> Option<Self> {
        if let Some(why) = value["wrong"].as_str() {
            return Some(Self::Wrong(why.into()));
        }
        if let Some(why) = value["not_loaded"].as_str() {
            return Some(Self::NotLoaded(why.into()));
        }
        let number = |index: usize| value["same"][index].as_u64().and_then(|it| u32::try_from(it).ok());
        Some(Self::Same(Report { ways: number(0)?, stops: number(1)?, sudden: number(2)? }))
    }
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
        let key = request.module();
        if self.loaded.as_ref().is_none_or(|loaded| loaded.key != key) {
            if let Some(loaded) = self.loaded.take() {
                loaded.subject.unload(&self.gpu)?;
                loaded.counting.map_or(Ok(()), |counting| counting.unload(&self.gpu))?;
            }
            match self.load(request, key) {
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

impl Worker {
    fn load(&self, request: &Request, key: String) -> Result<Loaded> {
        match request {
            Request::Case { path, .. } => {
                let case = Case::read(path)?;
                Loaded::new(&self.gpu, key, &case.text, case.launches)
            }
            Request::Generated { seed, first, count, .. } => {
                let Generated { text, launches, .. } = fuzz::generated(*seed, *first, *count);
                Loaded::new(&self.gpu, key, &text, launches)
            }
            Request::Mutant { path, mutation } => {
                let case = Case::read(path)?;
                Loaded::mutant(&self.gpu, key, &case.text, case.launches, *mutation)
            }
        }
    }
}

/// Answers requests until there are no more.
pub(crate) fn work(driver: &Path, patience_s: u32) -> Result<()> {
    let own = own_output()?;
    let mut out = OUT.get_or_init(|| own);
    let mut worker = Worker { gpu: Gpu::open(driver)?, loaded: None };
    writeln!(out, "ready").context("nobody listens")?;
    for line in std::io::stdin().lines() {
        let line = line.context("no more requests")?;
        let request = Request::from_json(&serde_json::from_str(&line)?).with_context(|| format!("{line:?}"))?;
        limit(request.limit_s(patience_s));
        let answer = worker.answer(&request);
        limit(0);
        let broken = matches!(&answer, Err(error) if error.chain().any(|it| it.is::<Refused>()));
        let value = match answer {
            Ok(outcome) => outcome.to_json(),
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
