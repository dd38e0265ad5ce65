//! Every interleaving of a completion with those that wait for it, by the model checker:
//! `RUSTFLAGS="--cfg loom" cargo test -p detshare-softgpu --test done --release`.

#![cfg(loom)]

#[allow(dead_code, reason = "the engine uses the rest")]
#[path = "../src/engine/done.rs"]
mod done;

/// The model checker's own, in place of the engine's.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    pub(crate) use loom::sync::{Arc, Condvar, Mutex};
}

use done::Done;
use loom::sync::Arc;
use loom::thread;

/// What waits; here only counted.
struct Job;

/// Stands in for the engine's clock.
fn now() -> u64 {
    1
}

#[test]
fn a_waiting_thread_always_wakes() {
    loom::model(|| {
        let done = Arc::new(Done::default());
        let waiter = {
            let done = Arc::clone(&done);
            thread::spawn(move || {
                done.wait();
                assert!(done.is_complete() && done.time() == 1, "complete, with its time");
            })
        };
        done.complete();
        waiter.join().expect("no panic");
    });
}

#[test]
fn a_job_is_told_or_sees_that_it_is_over() {
    loom::model(|| {
        let done = Arc::new(Done::default());
        let ender = {
            let done = Arc::clone(&done);
            thread::spawn(move || done.complete().len())
        };
        let registered = done.then(&Arc::new(Job));
        let told = ender.join().expect("no panic");
        assert_eq!(told, usize::from(registered), "told exactly if it was registered");
    });
}
