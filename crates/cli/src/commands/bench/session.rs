//! Programs that run at the same time, from their start to what they did.
//!
//! They are started, waited for until all are set up, and told to begin together. When the latency programs have answered
//! all their requests, the others are told to stop; where there are none, all are when the time is over.

use super::clock;
use super::figures::Window;
use super::measured::{Measured, MeasuredError};
use super::mps::MpsError;
use super::output::Output;
use super::own_daemon::OwnDaemonError;
use super::process::PAUSE;
use super::records::RecordsError;
use super::schedule::Schedule;
use super::unrest::{Seen, Watch};
use crate::program::Signals;
use crate::{part, shim};
use detshare_api::Class;
use signal_hook::consts::SIGCHLD;
use std::time::{Duration, Instant};

/// How long programs may take to set themselves up: a framework is loaded, and a model is made.
const LONGEST_SET_UP: Duration = Duration::from_secs(120);
/// How long they may take to end when they are told to: results are digested then.
const LONGEST_STOP: Duration = Duration::from_secs(40);
/// Times the measured seconds after which requests that are still not answered are given up.
pub(crate) const PATIENCE: u32 = 2;
/// The same, where all requests are to be answered in every arm, also in those that slow the server down to half its speed
/// and less.
pub(crate) const PATIENCE_FOR_ALL: u32 = 5;

/// Why an arm has no figures.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    #[error(transparent)]
    Part(#[from] part::FindError),
    #[error(transparent)]
    Shim(#[from] shim::FindError),
    #[error(transparent)]
    Mps(#[from] MpsError),
    #[error(transparent)]
    Daemon(#[from] OwnDaemonError),
    #[error(transparent)]
    Program(#[from] MeasuredError),
    #[error("cannot prepare a folder for it: {0}; set TMPDIR to a folder that can be written to")]
    Folder(#[from] std::io::Error),
    #[error("{program} was not set up within {} s: try it by itself", LONGEST_SET_UP.as_secs())]
    NotReady { program: &'static str },
    #[error("{program} did not end in time: try it by itself, or raise --seconds")]
    NotEnding { program: &'static str },
    #[error("{program} did not run on {lane}: this GPU may have too few SMs for the arm, leave it out with --arms")]
    NoLane { program: &'static str, lane: String },
    #[error("the programs were never at work at the same time: raise --seconds")]
    NoWindow,
    #[error("{program} left no record of what it launched: see what DETSHARE_LOG=1 says of it under `detshare run`")]
    NoRecord { program: &'static str },
    #[error(transparent)]
    Records(#[from] RecordsError),
    #[error("a record was full before the programs were at work at the same time: launches come too fast for it")]
    ShortRecord,
    #[error("cut short by --limit: raise it, or lower --seconds")]
    Limit,
    /// We were asked to end.
    #[error("ended by signal {signal}")]
    Interrupted { signal: i32 },
}

/// How long it lasts, and what happens meanwhile.
pub(crate) struct Session<'a> {
    pub(crate) signals: &'a Signals,
    /// Not beyond this, whatever happens.
    pub(crate) deadline: Instant,
    pub(crate) schedule: &'a Schedule,
    /// Times its length after which requests that are still not answered are given up.
    pub(crate) patience: u32,
}

/// What programs did that ran at the same time.
#[derive(Debug)]
pub(crate) struct Done {
    /// In the order in which they were started.
    pub(crate) outputs: Vec<Output>,
    /// One for each stretch.
    pub(crate) windows: Vec<Window>,
    /// Of the machine meanwhile.
    pub(crate) seen: Seen,
}

impl Session<'_> {
    /// Runs the programs, which were started. `missing` is asked when all are set up, until it names no program that does not share
    /// the GPU yet as it should; `turn` is called to turn the dial to a level.
    pub(crate) fn run(
        &self,
        mut programs: Vec<Measured>,
        missing: impl FnMut(&[Measured]) -> Result<Vec<&'static str>, SessionError>,
        turn: impl FnMut(f64) -> Result<(), SessionError>,
    ) -> Result<Done, SessionError> {
        self.set_up(&mut programs)?;
        self.gather(&mut programs, missing)?;
        let watch = Watch::start()?;
        programs.iter().try_for_each(Measured::begin)?;
        let windows = self.work(&mut programs, turn)?;
        let seen = watch.stop();
        programs.iter().try_for_each(Measured::stop)?;
        self.wait_for_the_end(&mut programs)?;
        let outputs = programs.iter_mut().map(Measured::output).collect::<Result<_, _>>()?;
        Ok(Done { outputs, windows, seen })
    }

    fn set_up(&self, programs: &mut [Measured]) -> Result<(), SessionError> {
        let until = Instant::now() + LONGEST_SET_UP;
        while !programs.iter().all(Measured::is_ready) {
            for program in programs.iter_mut() {
                let has_ended = program.has_ended()?;
                if !program.is_ready() && (has_ended || Instant::now() >= until) {
                    return Err(SessionError::NotReady { program: program.program.name });
                }
            }
            self.pause()?;
        }
        Ok(())
    }

    /// Until no program is missing.
    fn gather(
        &self,
        programs: &mut [Measured],
        mut missing: impl FnMut(&[Measured]) -> Result<Vec<&'static str>, SessionError>,
    ) -> Result<(), SessionError> {
        loop {
            let missing = missing(programs)?;
            if missing.is_empty() {
                return Ok(());
            }
            for program in programs.iter_mut() {
                let name = program.program.name;
                if program.has_ended()? && missing.contains(&name) {
                    return Err(OwnDaemonError::NoTenant { program: name.to_string() }.into());
                }
            }
            self.pause()?;
        }
    }

    /// Until there is nothing to measure any more; returns when each stretch was.
    fn work(
        &self,
        programs: &mut [Measured],
        mut turn: impl FnMut(f64) -> Result<(), SessionError>,
    ) -> Result<Vec<Window>, SessionError> {
        let (begun, begun_at) = (Instant::now(), clock::now());
        let schedule = self.schedule;
        let has_latency = programs.iter().any(|program| program.program.class == Class::Latency);
        let longest = schedule.end() * if has_latency { self.patience } else { 1 };
        let mut windows: Vec<Window> = Vec::new();
        loop {
            let mut at_work = 0;
            for program in programs.iter_mut() {
                let counts = program.program.class == Class::Latency || !has_latency;
                at_work += usize::from(!program.has_ended()? && counts);
            }
            if at_work == 0 || begun.elapsed() >= longest {
                return Ok(windows);
            }
            let number = windows.len();
            if number < schedule.levels.len() && begun.elapsed() >= schedule.begin(number) {
                if let Some(last) = windows.last_mut() {
                    last.to = clock::now();
                }
                let from = match schedule.levels[number] {
                    // Where all counts, that is also what was done before we were here.
                    None if schedule.begin(number) == Duration::ZERO => f64::NEG_INFINITY,
                    None => begun_at + schedule.begin(number).as_secs_f64(),
                    Some(level) => {
                        turn(level)?;
                        clock::now() + schedule.settling(number).as_secs_f64()
                    }
                };
                windows.push(Window { from, to: f64::INFINITY });
            }
            self.pause()?;
        }
    }

    fn wait_for_the_end(&self, programs: &mut [Measured]) -> Result<(), SessionError> {
        // Those that cannot be told to stop have as much left to do as was measured, or a few times that.
        let until = Instant::now() + LONGEST_STOP + self.schedule.end() * PATIENCE * PATIENCE;
        for program in programs {
            while !program.has_ended()? {
                if Instant::now() >= until {
                    return Err(SessionError::NotEnding { program: program.program.name });
                }
                self.pause()?;
            }
        }
        Ok(())
    }

    /// Until a program ends, or a moment has passed.
    fn pause(&self) -> Result<(), SessionError> {
        if Instant::now() >= self.deadline {
            return Err(SessionError::Limit);
        }
        match self.signals.next(Some(Instant::now() + PAUSE)) {
            None | Some(SIGCHLD) => Ok(()),
            Some(signal) => Err(SessionError::Interrupted { signal }),
        }
    }
}
