//! Uses one driver library hard for a long time and looks whether anything grows.
//!
//! Threads make and destroy streams, events and graphs, launch, copy, call back and wait, all at random; short-lived
//! threads come and go. From time to time all of them destroy what they have and come to a rest; the process is
//! measured then. What the kernels and the host functions counted must be exact, and after the first quarter of the
//! time neither memory, nor files, nor threads, nor device memory may grow. Through the shim it is run with
//! `DETSHARE_SCHEDULE=random:1`.

mod area;
mod graph;
mod random;
mod sample;
mod worker;

use anyhow::{Context, Result, ensure};
use area::Areas;
use clap::Parser;
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use detshare_bench::machine;
use detshare_bench::program::Program;
use detshare_cuda::Driver;
use detshare_cuda::driver::Visibility;
use random::Random;
use sample::Sample;
use serde_json::json;
use std::path::PathBuf;
use std::sync::{Barrier, Condvar, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

#[derive(Parser)]
#[command(about = "Whether anything grows when a driver library is used for long")]
struct Arguments {
    /// The driver library: the shim's, or a driver's
    #[arg(long)]
    driver: PathBuf,
    /// How long
    #[arg(long, default_value_t = 600)]
    seconds: u32,
    /// Threads that stay; each has a short-lived one beside it now and then
    #[arg(long, default_value_t = 4)]
    threads: u64,
    /// What is random begins with this
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where to write the figures as JSON
    #[arg(long)]
    out: Option<PathBuf>,
    /// Leave these out
    #[arg(long, value_enum, value_delimiter = ',')]
    without: Vec<worker::Part>,
}

/// What all threads share.
pub(crate) struct Soak {
    pub(crate) driver: Driver,
    pub(crate) program: Program,
    pub(crate) areas: Areas,
    pub(crate) without: Vec<worker::Part>,
    /// A context must not be waited for while a stream of it is captured.
    pub(crate) captures: RwLock<()>,
    /// What the kernels should have counted, and the host functions.
    pub(crate) expected: AtomicU64,
    pub(crate) expected_calls: AtomicU64,
    pub(crate) calls: AtomicU64,
    /// Handles that the program holds.
    pub(crate) live: AtomicI64,
    pub(crate) operations: AtomicU64,
    pub(crate) threads_ended: AtomicU64,
    /// Whether to come to a rest.
    rest: AtomicBool,
    /// Whether this is the last time.
    over: AtomicBool,
    all: Barrier,
    failure: Mutex<Option<anyhow::Error>>,
    failed: Condvar,
}

impl Soak {
    pub(crate) fn is_resting(&self) -> bool {
        self.rest.load(Ordering::Relaxed)
    }

    /// Keeps the first failure; everything ends at the next rest.
    fn fail(&self, error: anyhow::Error) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.rest.store(true, Ordering::Relaxed);
        self.failed.notify_all();
    }

    fn has_failed(&self) -> bool {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let driver = Driver::open(&arguments.driver, Visibility::Local)?;
    let program = Program::open(&driver)?;
    let areas = Areas::new(&driver, arguments.threads)?;
    let soak = Soak {
        driver,
        program,
        areas,
        without: arguments.without.clone(),
        captures: RwLock::new(()),
        expected: AtomicU64::new(0),
        expected_calls: AtomicU64::new(0),
        calls: AtomicU64::new(0),
        live: AtomicI64::new(0),
        operations: AtomicU64::new(0),
        threads_ended: AtomicU64::new(0),
        rest: AtomicBool::new(false),
        over: AtomicBool::new(false),
        all: Barrier::new(usize::try_from(arguments.threads)? + 1),
        failure: Mutex::new(None),
        failed: Condvar::new(),
    };
    let samples = std::thread::scope(|threads| {
        for number in 0..arguments.threads {
            let random = Random::new(arguments.seed.wrapping_add(number));
            let soak = &soak;
            threads.spawn(move || stay(soak, number, random));
        }
        conduct(&soak, Duration::from_secs(arguments.seconds.into()))
    })?;
    if let Some(error) = soak.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
        return Err(error);
    }
    let grown = sample::judge(&samples);
    sample::print(&samples, &grown);
    let last = samples.last().context("nothing was measured")?;
    let verdict = if grown.iter().any(|growth| growth.too_much) { "grows" } else { "flat" };
    let summary = format!(
        "{verdict} after {} operations in {:.0} s by {} threads that stayed and {} that ended; {} counted",
        last.operations,
        last.seconds,
        arguments.threads,
        soak.threads_ended.load(Ordering::Relaxed),
        soak.expected.load(Ordering::Relaxed),
    );
    println!("{summary}");
    if let Some(out) = &arguments.out {
        let report = json!({
            "summary": summary,
            "verdict": verdict,
            "growth": grown.iter().map(sample::Growth::json).collect::<Vec<_>>(),
            "samples": samples.iter().map(Sample::json).collect::<Vec<_>>(),
            "schedule": std::env::var("DETSHARE_SCHEDULE").ok(),
            "on": machine::facts(&soak.driver, soak.program.device)?,
        });
        std::fs::write(out, format!("{report:#}\n"))?;
    }
    ensure!(verdict == "flat", "something grows");
    Ok(())
}

/// A thread that stays: works until it is to rest, destroys what it has, and meets the others.
fn stay(soak: &Soak, number: u64, mut random: Random) {
    loop {
        if let Err(error) = worker::round(soak, number, &mut random) {
            soak.fail(error);
        }
        soak.all.wait();
        // Here the process is measured.
        soak.all.wait();
        if soak.over.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// Lets the threads work, brings them to a rest and measures, until the time is over.
fn conduct(soak: &Soak, time: Duration) -> Result<Vec<Sample>> {
    const LONGEST_ROUND: Duration = Duration::from_secs(5);
    /// So many samples at least.
    const ROUNDS: u32 = 20;
    let round = LONGEST_ROUND.min(time / ROUNDS);
    let start = Instant::now();
    let (mut samples, mut outcome) = (Vec::new(), Ok(()));
    loop {
        work_for(soak, round);
        soak.rest.store(true, Ordering::Relaxed);
        soak.all.wait();
        if !soak.has_failed() {
            match measure(soak, start) {
                Ok(sample) => samples.push(sample),
                Err(error) => outcome = Err(error),
            }
        }
        let over = start.elapsed() >= time || outcome.is_err() || soak.has_failed();
        soak.over.store(over, Ordering::Relaxed);
        soak.rest.store(false, Ordering::Relaxed);
        soak.all.wait();
        if over {
            return outcome.map(|()| samples);
        }
    }
}

/// Lets time pass, unless a thread has failed.
fn work_for(soak: &Soak, time: Duration) {
    let failure = soak.failure.lock().unwrap_or_else(PoisonError::into_inner);
    drop(soak.failed.wait_timeout_while(failure, time, |failure| failure.is_none()));
}

/// At rest: checks the counts and measures the process.
fn measure(soak: &Soak, start: Instant) -> Result<Sample> {
    let counted = soak.program.counted(&soak.driver)?;
    let expected = soak.expected.load(Ordering::Relaxed);
    ensure!(counted == expected, "the kernels should have counted {expected} and counted {counted}");
    let (calls, expected) = (soak.calls.load(Ordering::Relaxed), soak.expected_calls.load(Ordering::Relaxed));
    ensure!(calls == expected, "{expected} host functions should have run and {calls} did");
    let live = soak.live.load(Ordering::Relaxed);
    ensure!(live == 0, "{live} handles are alive at rest");
    let sample = Sample::take(&soak.driver, soak.operations.load(Ordering::Relaxed), start.elapsed())?;
    eprintln!("{}", sample.line());
    Ok(sample)
}
