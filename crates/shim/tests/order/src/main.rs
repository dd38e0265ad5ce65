//! Order, asked of any CUDA driver library: random programs of which the one allowed result is known.
//!
//! A program is what one to four host threads ask of a driver: kernels, copies, memsets and host functions that change
//! words so that their order shows, in streams of every kind, ordered by events, values in memory, synchronises,
//! graphs and the rules of default streams. [`model`] knows what CUDA promises to happen before what, and nothing
//! more; [`generate`] makes only programs in which that decides the result; [`reference`] computes it; [`execute`]
//! asks the driver and compares, at the end and wherever the host reads in between.
//!
//! Program `n` of seed `s` is always the same one. A difference is printed with the program and how to run it alone:
//!
//! `order --driver /usr/lib/x86_64-linux-gnu/libcuda.so.1 --programs 10000 --seed 1`
//!
//! That it finds what is wrong was checked, and can be checked again, by leaving out what orders: with each value of
//! the hidden option `--break` (`wait-event`, `legacy-order`, `blocking-flag`, `graph-edges` and so on, see
//! [`machine::Break`]) some of a thousand programs must be different. On the software GPU 50 to 700 were.
//!
//! Left out: what is ordered only by chance or by a driver's habits (see [`model`]), asynchronous copies of pageable
//! memory, threads that end while others go on, a legacy stream used beside another thread's capture of a blocking
//! one, graphs with allocations, events or graphs as nodes, other contexts and devices.

#[macro_use]
mod call;
mod execute;
mod generate;
mod kernels;
mod machine;
mod model;
mod program;
mod random;
mod reference;
mod worker;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use machine::Break;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use worker::News;

/// How many programs that went wrong are printed in full.
const PRINTED: usize = 5;
/// How often to say how far it is.
const PROGRESS: Duration = Duration::from_secs(3);

#[derive(Parser)]
#[command(about = "Random programs whose one allowed result is known, run on any driver library")]
struct Arguments {
    /// The driver library to ask
    #[arg(long, required_unless_present = "print")]
    driver: Option<PathBuf>,
    /// How many programs to run
    #[arg(long, default_value_t = 10_000)]
    programs: u64,
    /// What decides the programs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The first program's number
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// How many host threads a program may have
    #[arg(long, default_value_t = program::MAX_THREADS, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=4))]
    threads: usize,
    /// How many processes run programs at once
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..))]
    jobs: u64,
    /// Where to write what came out as JSON
    #[arg(long)]
    out: Option<PathBuf>,
    /// Only print the programs
    #[arg(long)]
    print: bool,
    /// Leave something out, to see that it shows
    #[arg(long = "break", hide = true)]
    broken: Option<Break>,
    /// Be a worker, from that program on
    #[arg(long, hide = true)]
    worker_from: Option<u64>,
}

/// What is to be run.
pub(crate) struct Settings {
    driver: PathBuf,
    programs: u64,
    seed: u64,
    first: u64,
    threads: usize,
    jobs: u64,
    broken: Option<Break>,
}

impl Settings {
    fn end(&self) -> u64 {
        self.first.saturating_add(self.programs)
    }

    /// As they are given to a worker.
    fn arguments(&self) -> Vec<String> {
        let numbers = [
            ("--programs", self.programs),
            ("--seed", self.seed),
            ("--first", self.first),
            ("--threads", self.threads as u64),
            ("--jobs", self.jobs),
        ];
        let mut arguments: Vec<_> = numbers.iter().flat_map(|(name, it)| [(*name).into(), it.to_string()]).collect();
        if let Some(broken) = self.broken {
            arguments.extend(["--break".into(), worker::name_of(broken)]);
        }
        arguments
    }

    fn text(&self, number: u64) -> String {
        generate::program(self.seed, number, self.threads).to_string()
    }

    /// How to run that program alone.
    fn again(&self, number: u64) -> String {
        let (driver, seed, threads) = (self.driver.display(), self.seed, self.threads);
        format!("order --driver {driver} --seed {seed} --threads {threads} --first {number} --programs 1")
    }
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let settings = Settings {
        driver: arguments.driver.unwrap_or_default(),
        programs: arguments.programs,
        seed: arguments.seed,
        first: arguments.first,
        threads: arguments.threads,
        jobs: arguments.jobs,
        broken: arguments.broken,
    };
    if arguments.print {
        (settings.first..settings.end()).for_each(|number| println!("program {number}\n{}", settings.text(number)));
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(from) = arguments.worker_from {
        return worker::work(&settings, from).map(|()| ExitCode::SUCCESS);
    }
    let start = Instant::now();
    let outcome = run(&settings)?;
    let different = outcome.wrong.len();
    if let Some(out) = arguments.out {
        write(&out, &settings, &outcome, start.elapsed())?;
    }
    println!("{} programs, {different} different", outcome.done);
    Ok(if different == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What came out of all programs.
#[derive(Default)]
struct Outcome {
    done: u64,
    wrong: BTreeMap<u64, String>,
    calls: BTreeMap<String, u64>,
}

fn run(settings: &Settings) -> Result<Outcome> {
    let (sender, news) = channel();
    std::thread::scope(|scope| {
        let jobs = settings.jobs.min(settings.programs);
        for job in 0..jobs {
            let sender = sender.clone();
            scope.spawn(move || worker::oversee(settings, settings.first + job, &sender));
        }
        drop(sender);
        collect(settings, &news)
    })
}

fn collect(settings: &Settings, news: &Receiver<News>) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let (start, mut said) = (Instant::now(), Instant::now());
    let mut broken = None;
    for news in news {
        match news {
            News::Program { number, wrong } => {
                outcome.done += 1;
                if let Some(wrong) = wrong {
                    report(settings, number, &wrong, outcome.wrong.len());
                    outcome.wrong.insert(number, wrong);
                }
            }
            News::Calls(calls) => {
                calls.into_iter().for_each(|(name, count)| *outcome.calls.entry(name).or_default() += count);
            }
            News::Broken(error) => broken = Some(error),
            News::Finished => (),
        }
        if std::io::stderr().is_terminal() && said.elapsed() >= PROGRESS {
            said = Instant::now();
            let (done, all, wrong) = (outcome.done, settings.programs, outcome.wrong.len());
            eprintln!("{done} of {all} programs after {} s, {wrong} different", start.elapsed().as_secs());
        }
    }
    if let Some(error) = broken {
        return Err(error);
    }
    ensure!(outcome.done == settings.programs, "{} of {} programs were run", outcome.done, settings.programs);
    Ok(outcome)
}

/// Prints what went wrong: the first ones in full.
fn report(settings: &Settings, number: u64, wrong: &str, before: usize) {
    if before < PRINTED {
        println!("program {number} of seed {} is different:\n{}", settings.seed, settings.text(number));
        wrong.lines().for_each(|line| println!("  => {line}"));
        println!("  again: {}\n", settings.again(number));
    } else {
        println!("program {number} is different: {}", wrong.lines().next().unwrap_or_default());
    }
}

fn write(path: &Path, settings: &Settings, outcome: &Outcome, took: Duration) -> Result<()> {
    let wrong: Vec<_> = outcome
        .wrong
        .iter()
        .map(|(number, wrong)| json!({ "program": number, "wrong": wrong, "again": settings.again(*number) }))
        .collect();
    let text: Value = json!({
        "driver": settings.driver,
        "seed": settings.seed,
        "first": settings.first,
        "programs": outcome.done,
        "different": wrong.len(),
        "seconds": took.as_secs_f64(),
        "wrong": wrong,
        "calls": outcome.calls,
    });
    std::fs::write(path, format!("{text:#}\n")).with_context(|| format!("cannot write {}", path.display()))
}
