//! Work in order.
//!
//! A [`Job`] is a piece of work with the completions that it waits for. When the last of them comes, it is
//! started: kernels by the compute threads, copies by the copy thread, host functions by a thread of their own,
//! waits for memory by the watching thread. Its own completion starts whatever waited for it. Streams, events
//! and graphs only differ in which completions they make a job wait for.

mod compute;
mod done;
mod watch;

/// What completions are made of; the model checker swaps it for its own.
mod sync {
    pub(super) use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    pub(super) use std::sync::{Arc, Condvar, Mutex};
}

pub(crate) use compute::Launch;
pub(crate) use done::Done;
pub(crate) use watch::complete_at;

use core::cell::Cell;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use detshare_cuda::types::CUresult;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, LazyLock, Mutex};

/// The sticky error of an address space, shared by all contexts in it.
#[derive(Debug, Default)]
pub(crate) struct Fate(AtomicU32);

impl Fate {
    /// The error after which nothing runs any more.
    pub(crate) fn check(&self) -> Result<(), CUresult> {
        match self.0.load(Ordering::Acquire) {
            0 => Ok(()),
            code => Err(CUresult(code)),
        }
    }

    /// The first error stays; whether this is it.
    pub(crate) fn poison(&self, code: CUresult) -> bool {
        // Pairs with the acquire in `check`.
        self.0.compare_exchange(0, code.0, Ordering::Release, Ordering::Relaxed).is_ok()
    }
}

/// More work: how things went so far, and what to complete when it is over.
type Expansion = dyn FnOnce(Result<(), CUresult>, Arc<Done>) + Send;

/// What a job does.
pub(crate) enum Work {
    /// Nothing: it is there for its completion.
    Nothing,
    /// Runs a kernel.
    Kernel(Box<Launch>),
    /// Moves bytes, or does something else that ends soon.
    Quick(Box<dyn FnOnce() + Send>),
    /// Calls the program; it is told whether the work before it went well.
    Host(Box<dyn FnOnce(Result<(), CUresult>) + Send>),
    /// Goes on with more work, and completes what it is given when that is over; it is told how things went so far.
    Expand(Box<Expansion>),
    /// Waits until this says so.
    Until(Box<dyn FnMut() -> bool + Send>),
}

/// A piece of work that waits for others.
pub(crate) struct Job {
    waits_for: AtomicUsize,
    work: Mutex<Work>,
    done: Arc<Done>,
    fate: Arc<Fate>,
}

/// Has the work done after all of `after`; returns its completion.
pub(crate) fn submit(work: Work, after: &[Arc<Done>], fate: &Arc<Fate>) -> Arc<Done> {
    let done = Arc::new(Done::default());
    let job = Arc::new(Job {
        // One more than there are, so that it does not start before all are seen.
        waits_for: AtomicUsize::new(after.len() + 1),
        work: Mutex::new(work),
        done: Arc::clone(&done),
        fate: Arc::clone(fate),
    });
    let complete = after.iter().filter(|other| !other.then(&job)).count();
    if job.waits_for.fetch_sub(complete + 1, Ordering::AcqRel) == complete + 1 {
        start(job);
    }
    done
}

/// Completes it and starts what waited for it.
pub(crate) fn finish(done: &Done) {
    for job in done.complete() {
        arrived(job);
    }
}

/// One of the completions that a job waits for has come.
fn arrived(job: Arc<Job>) {
    if job.waits_for.fetch_sub(1, Ordering::AcqRel) == 1 {
        start(job);
    }
}

/// Starts a job, and those behind it that have nothing to do.
fn start(first: Arc<Job>) {
    let mut ready = vec![first];
    while let Some(job) = ready.pop() {
        let work = std::mem::replace(&mut *job.work.lock().expect("no panic while it is held"), Work::Nothing);
        let healthy = job.fate.check();
        match work {
            Work::Host(function) => call_host(move || function(healthy), &job.done),
            Work::Expand(function) => expand(function, healthy, Arc::clone(&job.done)),
            Work::Kernel(launch) if healthy.is_ok() => {
                compute::start(*launch, Arc::clone(&job.done), Arc::clone(&job.fate))
            }
            Work::Quick(action) if healthy.is_ok() => copy(action, &job.done),
            Work::Until(condition) if healthy.is_ok() => {
                watch::until(condition, Arc::clone(&job.done), Arc::clone(&job.fate))
            }
            _ => {
                for next in job.done.complete() {
                    if next.waits_for.fetch_sub(1, Ordering::AcqRel) == 1 {
                        ready.push(next);
                    }
                }
            }
        }
    }
}

type Task = Box<dyn FnOnce() + Send>;

/// A thread that does one thing after the other.
fn worker(name: &str) -> Mutex<Sender<Task>> {
    let (sender, receiver) = channel::<Task>();
    std::thread::Builder::new()
        .name(format!("softgpu-{name}"))
        .spawn(move || receiver.into_iter().for_each(|task| task()))
        .expect("the system has room for a thread");
    Mutex::new(sender)
}

fn copy(action: Box<dyn FnOnce() + Send>, done: &Arc<Done>) {
    static COPIES: LazyLock<Mutex<Sender<Task>>> = LazyLock::new(|| worker("copy"));
    hand_over(&COPIES, action, done);
}

fn call_host(function: impl FnOnce() + Send + 'static, done: &Arc<Done>) {
    static HOST: LazyLock<Mutex<Sender<Task>>> = LazyLock::new(|| worker("host"));
    let function = move || {
        // What kernels before it have printed comes first.
        crate::system::flush();
        IN_HOST_FUNCTION.set(true);
        function();
        IN_HOST_FUNCTION.set(false);
    };
    hand_over(&HOST, Box::new(function), done);
}

/// On a thread of its own: what it starts may be over at once and start it again, without end.
fn expand(function: Box<Expansion>, healthy: Result<(), CUresult>, done: Arc<Done>) {
    static EXPANSIONS: LazyLock<Mutex<Sender<Task>>> = LazyLock::new(|| worker("graph"));
    let task: Task = Box::new(move || function(healthy, done));
    EXPANSIONS.lock().expect("no panic while it is held").send(task).expect("the thread never ends");
}

thread_local! {
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread runs a program's function for a stream: it must not call the driver then.
pub(crate) fn in_host_function() -> bool {
    IN_HOST_FUNCTION.get()
}

fn hand_over(worker: &Mutex<Sender<Task>>, action: Task, done: &Arc<Done>) {
    let done = Arc::clone(done);
    let task: Task = Box::new(move || {
        action();
        finish(&done);
    });
    worker.lock().expect("no panic while it is held").send(task).expect("the thread never ends");
}

/// Nanoseconds on the clock that all processes share.
pub(crate) fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place to write to; this clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}
