//! An LLM server in small: prompts are read kernel by kernel, tokens come from a CUDA graph for each number of rows, and
//! requests join and leave the batch between steps.
//!
//! Requests come from a seed and arrive after so many steps, so what is computed and in which order is decided by the options
//! alone. The tokens are printed, a line for each request: `llm_probe --requests 20 --seed 3 --rows 4 --log steps.json`.
//! With `--ahead` each step is launched before the tokens of the last one are there, as servers do whose GPU is never to wait for
//! the host; the tokens are the same.

mod model;
mod requests;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use model::{Model, Place, SLOTS};
use requests::{Request, Shape};
use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

#[derive(Parser)]
#[command(about = "An LLM server in small, whose tokens are decided by its options")]
struct Arguments {
    /// How many requests
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    requests: u32,
    /// What the requests are made of
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The most requests that get tokens at once
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    rows: u32,
    /// Prompts have up to so many tokens
    #[arg(long, default_value_t = 48, value_parser = clap::value_parser!(u32).range(1..=1024))]
    longest_prompt: u32,
    /// Answers have up to so many tokens
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=1024))]
    longest_output: u32,
    /// File for a line of JSON for each step: its kind, and when it began and ended by the monotonic clock, in nanoseconds
    #[arg(long)]
    log: Option<PathBuf>,
    /// Launches each step before the last one is over
    #[arg(long)]
    ahead: bool,
    /// Begins when that file is there, with everything set up
    #[arg(long)]
    begin_when: Option<PathBuf>,
    /// Stops itself (SIGSTOP) in the middle of the first decode step after so many steps
    #[arg(long, conflicts_with = "crash_after")]
    stall_after: Option<u64>,
    /// Aborts in the middle of the first decode step after so many steps
    #[arg(long)]
    crash_after: Option<u64>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("llm_probe: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let shape = Shape { longest_prompt: arguments.longest_prompt, longest_output: arguments.longest_output };
    let log = arguments.log.as_deref().map(Log::new).transpose()?;
    let model = Model::new(arguments.rows, &shape)?;
    let requests = requests::synthetic(arguments.requests, arguments.seed, &shape);
    let mut server = Server::new(arguments, model, &requests, log);
    while arguments.begin_when.as_ref().is_some_and(|file| !file.exists()) {
        std::thread::sleep(Duration::from_millis(1));
    }
    server.serve()?;
    let answers = std::mem::take(&mut server.answers);
    server.model.end()?;
    let mut out = std::io::stdout().lock();
    for (number, answer) in answers.iter().enumerate() {
        let tokens: Vec<String> = answer.iter().map(ToString::to_string).collect();
        writeln!(out, "request {number}: {}", tokens.join(" "))?;
    }
    Ok(())
}

/// What a step is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Prefill,
    Decode,
}

/// One line for each step.
struct Log(File);

impl Log {
    fn new(file: &Path) -> Result<Self> {
        Ok(Self(File::create(file).with_context(|| format!("cannot write {}", file.display()))?))
    }

    fn add(&mut self, kind: Kind, begin: u64, end: u64) -> Result<()> {
        let kind = match kind {
            Kind::Prefill => "prefill",
            Kind::Decode => "decode",
        };
        writeln!(self.0, "{{\"kind\":\"{kind}\",\"begin\":{begin},\"end\":{end}}}").context("cannot write the log")
    }
}

/// A step that was launched: what it was, since when, and whose tokens it makes in which rows.
struct Launched {
    kind: Kind,
    begin: u64,
    slot: usize,
    tokens: Vec<(usize, u32)>,
}

/// A request that has a row.
struct Running {
    request: usize,
    row: u32,
    /// The tokens of its prompt and of its answer that the row knows.
    length: u32,
    /// Those of its answer.
    tokens: u32,
}

struct Server<'a> {
    arguments: &'a Arguments,
    model: Model,
    requests: &'a [Request],
    waiting: VecDeque<usize>,
    running: Vec<Running>,
    free: Vec<u32>,
    /// The tokens so far of each request.
    answers: Vec<Vec<u32>>,
    steps: u64,
    /// The step before, where its tokens are not there yet.
    launched: Option<Launched>,
    has_stalled: bool,
    log: Option<Log>,
}

impl<'a> Server<'a> {
    fn new(arguments: &'a Arguments, model: Model, requests: &'a [Request], log: Option<Log>) -> Self {
        Self {
            arguments,
            model,
            requests,
            waiting: (0..requests.len()).collect(),
            running: Vec::new(),
            free: (0..arguments.rows).rev().collect(),
            answers: vec![Vec::new(); requests.len()],
            steps: 0,
            launched: None,
            has_stalled: false,
            log,
        }
    }

    /// Prompts before tokens, as long as there is a row for them.
    fn serve(&mut self) -> Result<()> {
        while !self.waiting.is_empty() || !self.running.is_empty() {
            let begin = now()?;
            let slot = usize::try_from(self.steps)? % SLOTS;
            let (kind, tokens) = match self.next_with_a_row() {
                Some((request, row)) => (Kind::Prefill, self.prefill(slot, request, row)?),
                None if self.running.is_empty() => {
                    self.finish()?;
                    self.steps = self.requests[self.waiting[0]].arrives_after;
                    continue;
                }
                None => (Kind::Decode, self.decode(slot)?),
            };
            self.model.bring(slot)?;
            let launched = Launched { kind, begin, slot, tokens };
            if self.arguments.ahead {
                self.finish()?;
            }
            self.launched = Some(launched);
            if !self.arguments.ahead {
                self.finish()?;
            }
            self.steps += 1;
            self.let_go();
        }
        self.finish()
    }

    /// Waits for the step that was launched last but for the one that is being launched, and takes its tokens.
    fn finish(&mut self) -> Result<()> {
        let Some(Launched { kind, begin, slot, tokens }) = self.launched.take() else { return Ok(()) };
        if self.arguments.ahead {
            self.model.wait_for(slot)?
        } else {
            self.model.wait()?
        }
        let all = self.model.tokens(slot);
        for (request, row) in tokens {
            self.answers[request].push(all[row as usize]);
        }
        if let Some(log) = &mut self.log {
            log.add(kind, begin, now()?)?;
        }
        Ok(())
    }

    /// The request that has waited longest, if there is a row for it.
    fn next_with_a_row(&mut self) -> Option<(usize, u32)> {
        let first = *self.waiting.front()?;
        if self.requests[first].arrives_after > self.steps {
            return None;
        }
        let row = self.free.pop()?;
        self.waiting.pop_front();
        Some((first, row))
    }

    fn prefill(&mut self, slot: usize, request: usize, row: u32) -> Result<Vec<(usize, u32)>> {
        let prompt = &self.requests[request].prompt;
        let places: Vec<Place> =
            (0..).zip(prompt).map(|(position, token)| Place { row, position, token: *token, unused: 0 }).collect();
        self.model.place(slot, &places)?;
        self.model.launch_prefill(places.len())?;
        self.running.push(Running { request, row, length: u32::try_from(places.len())?, tokens: 1 });
        Ok(vec![(request, row)])
    }

    fn decode(&mut self, slot: usize) -> Result<Vec<(usize, u32)>> {
        // Where the last tokens are not there yet, the device knows them.
        let token = |running: &Running| self.answers[running.request].last().copied().unwrap_or(0);
        let place = |running: &Running| {
            let (row, position, token) = (running.row, running.length, token(running));
            Place { row, position, token, unused: 0 }
        };
        let places: Vec<Place> = self.running.iter().map(place).collect();
        self.model.place(slot, &places)?;
        if self.arguments.ahead {
            self.model.feed(places.len())?;
        }
        self.model.launch_decode(places.len())?;
        self.misbehave()?;
        for running in &mut self.running {
            (running.length, running.tokens) = (running.length + 1, running.tokens + 1);
        }
        Ok(self.running.iter().map(|running| (running.request, running.row)).collect())
    }

    /// Stalls or crashes if it was told to, with a step under way.
    fn misbehave(&mut self) -> Result<()> {
        let is_after = |steps: Option<u64>| steps.is_some_and(|steps| self.steps >= steps);
        if is_after(self.arguments.crash_after) {
            std::process::abort();
        }
        if is_after(self.arguments.stall_after) && !self.has_stalled {
            self.has_stalled = true;
            // SAFETY: a signal to this process, which it does not handle.
            ensure!(unsafe { libc::raise(libc::SIGSTOP) } == 0, "it cannot stop itself");
        }
        Ok(())
    }

    /// Those that have all their tokens give their rows back.
    fn let_go(&mut self) {
        let Self { running, free, requests, .. } = self;
        running.retain(|running| {
            let is_over = running.tokens >= requests[running.request].output;
            if is_over {
                free.push(running.row);
            }
            !is_over
        });
    }
}

/// By the clock that all processes share.
fn now() -> Result<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: room for a time.
    ensure!(unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) } == 0, "there is no monotonic clock");
    Ok(u64::try_from(time.tv_sec)? * 1_000_000_000 + u64::try_from(time.tv_nsec)?)
}
