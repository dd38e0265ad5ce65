//! MPS, looked after: the control daemon runs in a folder of ours, is started again if it ends, and ends with us.
//!
//! With MPS the tenants' kernels run side by side; without it the driver gives the GPU to one process at a time, and no
//! split of the SMs would do any good. The control daemon is a child in the foreground, so that its end is seen at once;
//! its pipes are in our own runtime folder, so that it is nobody else's.
//!
//! It is not tied to our life: were it killed with a daemon that is, every tenant would lose the GPU. A daemon that finds
//! one answering in its folder takes it over. When we end in an orderly way we tell it to quit. It then waits for its
//! clients by itself; only if there are none it is made to.
//!
//! If it ends while tenants are there, those have lost the GPU's state anyway. A new one would be no good to them, and they
//! would be strangers to it; so it is started again when the last of them has gone.

mod client;
mod control;

pub use client::Client;
pub use control::{AskError, Control, PROGRAM, find_on_path};

use client::Known;
use control::Process;
use detshare_api::{Mps as MpsStatus, MpsState};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

/// How long a new control daemon may take until it answers.
const START_LIMIT: Duration = Duration::from_secs(10);
/// How often it is asked until it does.
const START_BEAT: Duration = Duration::from_millis(50);
/// The pauses before it is started again; the first time there is none.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// One that ran so long has not failed to start.
const LONG_ENOUGH: Duration = Duration::from_secs(60);
/// How long it may take to quit, and how long we wait for one that has clients to wait for itself.
const QUIT_LIMIT: Duration = Duration::from_secs(5);
const QUIT_LIMIT_IN_USE: Duration = Duration::from_secs(1);
/// How often it is asked for its clients while somebody wants to know, and how many times for each.
const LOOK_BEAT: Duration = Duration::from_millis(500);
const MOST_LOOKS: u32 = 6;
/// How often one is asked whether it is still there that we have no handle of.
const HEALTH_BEAT: Duration = Duration::from_secs(5);
/// Questions that wait; more than tenants that there can be.
const MOST_WAITING: usize = 256;

/// What is seen of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    state: MpsState,
    pid: Option<u32>,
    restarts: u64,
}

/// Whether a process is a client; answered once.
#[derive(Debug)]
struct Question {
    process: Known,
    answer: oneshot::Sender<bool>,
    looks: u32,
}

/// The control daemon as others see it.
#[derive(Debug)]
pub struct Mps {
    control: Control,
    seen: watch::Sender<Seen>,
    questions: mpsc::Sender<Question>,
}

/// What [`supervise`] needs beside it.
#[derive(Debug)]
pub struct Errands(mpsc::Receiver<Question>);

/// How it is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Nobody uses it: made to, if it does not by itself.
    Now,
    /// Tenants do: it quits when the last has gone.
    WhenUnused,
}

impl Mps {
    /// Not started yet.
    #[must_use]
    pub fn new(control: Control) -> (Arc<Self>, Errands) {
        let seen = watch::Sender::new(Seen { state: MpsState::Starting, pid: None, restarts: 0 });
        let (questions, errands) = mpsc::channel(MOST_WAITING);
        (Arc::new(Self { control, seen, questions }), Errands(errands))
    }

    /// How it does.
    #[must_use]
    pub fn status(&self) -> MpsStatus {
        let Seen { state, pid, restarts } = *self.seen.borrow();
        MpsStatus { state, pid, pipe_directory: self.control.pipe_directory().to_path_buf(), restarts }
    }

    /// What its clients have to have in their environment; nothing while it does not run.
    #[must_use]
    pub fn environment(&self) -> BTreeMap<String, String> {
        match self.seen.borrow().state {
            MpsState::Running => self.control.environment().into_iter().collect(),
            MpsState::Starting | MpsState::Down | MpsState::Stopped => BTreeMap::new(),
        }
    }

    /// Returns when it answers, or has failed to for the first time.
    pub async fn settled(&self) {
        // The sender is ours: it cannot be gone.
        _ = self.seen.subscribe().wait_for(|seen| seen.state != MpsState::Starting).await;
    }

    /// Whether the process is a client, looked at for a few seconds; nothing if that could not be found out.
    pub async fn has_client(&self, pid: u32) -> Option<bool> {
        let (answer, answered) = oneshot::channel();
        self.questions.try_send(Question { process: Known::of(pid), answer, looks: 0 }).ok()?;
        answered.await.ok()
    }

    fn set(&self, state: MpsState, pid: Option<u32>) {
        self.seen.send_modify(|seen| (seen.state, seen.pid) = (state, pid));
    }
}

/// Keeps it running until told to stop. `tenants` says how many there are.
pub async fn supervise(
    mps: Arc<Mps>,
    Errands(mut questions): Errands,
    mut tenants: watch::Receiver<usize>,
    mut stop: oneshot::Receiver<Stop>,
) {
    let mut pause = Duration::ZERO;
    loop {
        let begun = Instant::now();
        let started = match start(&mps, &mut stop).await {
            Started::Runs(process) => Some(process),
            Started::Failed => None,
            Started::Stopped => break,
        };
        if let Some(mut process) = started {
            tracing::info!(pid = process.pid(), "MPS runs");
            mps.set(MpsState::Running, process.pid());
            tokio::select! {
                () = attend(&mps, &mut process, &mut questions) => {}
                asked = &mut stop => {
                    end(&mps, process, asked.unwrap_or(Stop::WhenUnused)).await;
                    break;
                }
            }
        }
        mps.set(MpsState::Down, None);
        if begun.elapsed() > LONG_ENOUGH {
            pause = Duration::ZERO;
        }
        tracing::warn!(
            tenants = *tenants.borrow(),
            "MPS is down; it is started again when no tenant is left: end those that hang"
        );
        tokio::select! {
            () = async {
                // The sender lives as long as the daemon.
                _ = tenants.wait_for(|tenants| *tenants == 0).await;
                sleep(pause).await;
            } => {}
            _ = &mut stop => break,
        }
        pause = (pause * 2).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
        mps.seen.send_modify(|seen| seen.restarts += 1);
    }
    mps.set(MpsState::Stopped, None);
}

/// What came of starting it.
enum Started {
    Runs(Process),
    Failed,
    Stopped,
}

/// Starts it, or takes over one that answers already.
async fn start(mps: &Mps, stop: &mut oneshot::Receiver<Stop>) -> Started {
    if mps.control.servers().await.is_ok() {
        let process = Process::adopted(&mps.control);
        tracing::info!(pid = process.pid(), "MPS of an earlier daemon is taken over");
        return Started::Runs(process);
    }
    let mut process = match mps.control.start() {
        Ok(process) => process,
        Err(error) => {
            tracing::error!(%error, "MPS was not started");
            return Started::Failed;
        }
    };
    let answers = async {
        while mps.control.servers().await.is_err() {
            sleep(START_BEAT).await;
        }
    };
    let output = mps.control.output();
    let not_started = tokio::select! {
        answered = timeout(START_LIMIT, answers) => match answered {
            Ok(()) => return Started::Runs(process),
            Err(_) => {
                tracing::error!("MPS has not answered within {START_LIMIT:?} and is ended; see {}", output.display());
                Started::Failed
            }
        },
        () = process.ended() => {
            tracing::error!("MPS has ended before it answered; see {}", output.display());
            Started::Failed
        }
        _ = stop => Started::Stopped,
    };
    process.kill().await;
    not_started
}

/// Returns when it has ended; answers questions until then.
async fn attend(mps: &Mps, process: &mut Process, questions: &mut mpsc::Receiver<Question>) {
    let mut waiting: Vec<Question> = Vec::new();
    let mut look = interval(LOOK_BEAT);
    let mut health = interval(HEALTH_BEAT);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    health.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let has_handle = process.has_handle();
    loop {
        tokio::select! {
            () = process.ended() => return,
            Some(question) = questions.recv() => {
                if waiting.is_empty() {
                    look.reset_immediately();
                }
                waiting.push(question);
            }
            _ = look.tick(), if !waiting.is_empty() => waiting = answer(&mps.control, waiting).await,
            _ = health.tick(), if !has_handle => {
                if mps.control.servers().await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Answers what can be; returns what is to be looked at again.
async fn answer(control: &Control, waiting: Vec<Question>) -> Vec<Question> {
    let clients = control.clients().await.unwrap_or_default();
    let mut again = Vec::new();
    for mut question in waiting {
        question.looks += 1;
        if question.process.is_among(&clients) {
            _ = question.answer.send(true);
        } else if question.looks >= MOST_LOOKS {
            _ = question.answer.send(false);
        } else if !question.answer.is_closed() {
            again.push(question);
        }
    }
    again
}

async fn end(mps: &Mps, mut process: Process, stop: Stop) {
    let quit = async {
        if let Err(error) = mps.control.ask("quit").await {
            tracing::warn!(%error, "MPS does not quit");
        }
        process.ended().await;
    };
    let limit = match stop {
        Stop::Now => QUIT_LIMIT,
        Stop::WhenUnused => QUIT_LIMIT_IN_USE,
    };
    if timeout(limit, quit).await.is_ok() {
        tracing::info!("MPS has ended");
        return;
    }
    match stop {
        Stop::Now => {
            process.kill().await;
            tracing::warn!("MPS was ended by force");
        }
        Stop::WhenUnused => tracing::info!(pid = process.pid(), "MPS ends when its last client has gone"),
    }
}
