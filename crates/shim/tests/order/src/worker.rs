//! A process that runs programs, one after the other, and the parent's side of it.
//!
//! The worker says on its standard output, a JSON object a line, which program it starts and what came out. One that
//! dies has left its last program without an outcome; the parent starts another one behind it. So the parent never
//! touches the driver, and a crash or a hang costs one program.

use crate::generate;
use crate::machine::{Break, Machine};
use crate::{Settings, call, execute, reference};
use anyhow::{Context, Result, ensure};
use detshare_cuda::Driver;
use detshare_cuda::driver::Visibility;
use detshare_test_child::{ending, limit, patience};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Sender;

/// What one program may take: far more than any does, on a CPU too.
const TIME_LIMIT_S: u32 = 60;

/// How many programs a worker runs before another takes its place. What a driver keeps of each thread that ever was
/// then stays small, and does not slow the next programs down.
const PROGRAMS_PER_WORKER: usize = 1000;

/// Scales the software GPU's modelled time so that it does not count. Other drivers do not know it.
const SPEED: (&str, &str) = ("DETSHARE_SOFTGPU_SPEED", "1000");

/// What a worker tells.
pub(crate) enum News {
    /// A program is over: nothing, or what is wrong.
    Program { number: u64, wrong: Option<String> },
    /// How often each function of the driver was called.
    Calls(BTreeMap<String, u64>),
    /// The worker could not be run at all.
    Broken(anyhow::Error),
    /// All programs of this worker are done.
    Finished,
}

/// Runs every `jobs`-th program from that one on, as many as one worker does, telling on standard output.
pub(crate) fn work(settings: &Settings, from: u64) -> Result<()> {
    limit(patience(TIME_LIMIT_S));
    let driver = Driver::open(&settings.driver, Visibility::Local)?;
    let machine = Machine::new(&driver, settings.broken)?;
    let mut number = from;
    for _ in 0..PROGRAMS_PER_WORKER {
        if number >= settings.end() {
            break;
        }
        tell(&json!({ "start": number }))?;
        limit(patience(TIME_LIMIT_S));
        let program = generate::program(settings.seed, number, settings.threads);
        let expected = reference::expected(&program);
        match execute::run(&machine, &program, &expected) {
            Ok(differences) if differences.is_empty() => tell(&json!({ "end": number }))?,
            Ok(differences) => {
                let lines: Vec<_> = differences.iter().map(ToString::to_string).collect();
                tell(&json!({ "end": number, "wrong": lines.join("\n") }))?;
            }
            Err(error) => {
                tell(&json!({ "end": number, "wrong": format!("{error:#}") }))?;
                // What a failed program left behind would spoil the next one.
                break;
            }
        }
        number += settings.jobs;
    }
    let calls: BTreeMap<_, _> = call::counts().collect();
    tell(&json!({ "calls": calls }))?;
    // SAFETY: ends the process without the library's exit handlers, which could wait for what is left behind.
    unsafe { libc::_exit(0) }
}

fn tell(line: &Value) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("no one listens to the worker")
}

/// Has every `jobs`-th program from that one on run by workers, one after the other where one ends early.
pub(crate) fn oversee(settings: &Settings, from: u64, news: &Sender<News>) {
    let mut next = from;
    while next < settings.end() {
        match start(settings, next).and_then(|child| listen(child, news)) {
            Ok(last) => next = last + settings.jobs,
            Err(error) => {
                let _ = news.send(News::Broken(error));
                break;
            }
        }
    }
    let _ = news.send(News::Finished);
}

fn start(settings: &Settings, from: u64) -> Result<Child> {
    let mut command = Command::new(std::env::current_exe().context("where is this program?")?);
    command.arg("--driver").arg(&settings.driver).args(settings.arguments()).arg("--worker-from").arg(from.to_string());
    if std::env::var_os(SPEED.0).is_none() {
        command.env(SPEED.0, SPEED.1);
    }
    command.stdout(Stdio::piped()).spawn().context("no process for a worker")
}

/// Passes on what the worker says, to its end. Gives the last program that it dealt with.
fn listen(mut child: Child, news: &Sender<News>) -> Result<u64> {
    let out = child.stdout.take().context("a worker without output")?;
    let (mut last, mut open) = (None, false);
    for line in BufReader::new(out).lines() {
        let line = line.context("a worker's words cannot be read")?;
        let Ok(told) = serde_json::from_str::<Value>(&line) else {
            // The driver's own words.
            eprintln!("{line}");
            continue;
        };
        if let Some(number) = told["start"].as_u64() {
            (last, open) = (Some(number), true);
        } else if let Some(number) = told["end"].as_u64() {
            open = false;
            let wrong = told["wrong"].as_str().map(Into::into);
            let _ = news.send(News::Program { number, wrong });
        } else if let Some(calls) = told["calls"].as_object() {
            let calls = calls.iter().map(|(name, count)| (name.clone(), count.as_u64().unwrap_or_default()));
            let _ = news.send(News::Calls(calls.collect()));
        }
    }
    let status = child.wait().context("a worker is lost")?;
    let last = last.with_context(|| {
        format!("a worker {} before its first program", ending(status.into_raw(), patience(TIME_LIMIT_S)))
    })?;
    if open {
        let wrong = format!("the worker {}", ending(status.into_raw(), patience(TIME_LIMIT_S)));
        let _ = news.send(News::Program { number: last, wrong: Some(wrong) });
    } else {
        // A checker that the workers run under has found something.
        ensure!(
            status.success(),
            "a worker {} after its last program",
            ending(status.into_raw(), patience(TIME_LIMIT_S))
        );
    }
    Ok(last)
}

/// As it is named on the command line.
pub(crate) fn name_of(broken: Break) -> String {
    clap::ValueEnum::to_possible_value(&broken).map_or_else(String::new, |value| value.get_name().into())
}
