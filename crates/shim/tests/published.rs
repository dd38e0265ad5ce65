//! Every interleaving of two threads that publish at once, by the model checker:
//! `RUSTFLAGS="--cfg loom" cargo test -p detshare-shim --test published --release`.

#![cfg(loom)]

#[path = "../src/published.rs"]
mod published;

use loom::cell::UnsafeCell;
use loom::thread;
use published::Published;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A value whose every access the model checker sees; `alive` counts how many there are.
struct Counted {
    value: UnsafeCell<usize>,
    alive: Arc<AtomicUsize>,
}

// SAFETY: the value is written before it is published and only read afterwards; the model checker verifies it.
unsafe impl Sync for Counted {}

impl Counted {
    fn new(value: usize, alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, Ordering::Relaxed);
        let counted = Self { value: UnsafeCell::new(0), alive: Arc::clone(alive) };
        // SAFETY: nobody else has it yet.
        counted.value.with_mut(|place| unsafe { *place = value });
        counted
    }

    fn value(&self) -> usize {
        // SAFETY: not written after it was published.
        self.value.with(|place| unsafe { *place })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn all_threads_see_the_one_that_came_first() {
    loom::model(|| {
        let alive = Arc::new(AtomicUsize::new(0));
        // Published values live for the rest of the process, and so does this place.
        let place: &'static Published<Counted> = Box::leak(Box::new(Published::nothing()));
        let threads = [1, 2].map(|value| {
            let alive = Arc::clone(&alive);
            thread::spawn(move || place.get_or_make(|| Counted::new(value, &alive)).value())
        });
        let seen = threads.map(|thread| thread.join().expect("no panic"));
        assert_eq!(seen[0], seen[1], "one value for all");
        assert_eq!(place.get().map(Counted::value), Some(seen[0]), "and for good");
        assert_eq!(alive.load(Ordering::Relaxed), 1, "the other was dropped");
    });
}

/// One thread makes the value, another only looks.
#[test]
fn who_sees_it_sees_all_of_it() {
    loom::model(|| {
        let alive = Arc::new(AtomicUsize::new(0));
        let place: &'static Published<Counted> = Box::leak(Box::new(Published::nothing()));
        let maker = thread::spawn(move || place.get_or_make(|| Counted::new(7, &alive)).value());
        if let Some(counted) = place.get() {
            assert_eq!(counted.value(), 7);
        }
        assert_eq!(maker.join().expect("no panic"), 7);
    });
}
