//! Every interleaving of two threads that publish at once, by the model checker:
//! `RUSTFLAGS="--cfg loom" cargo test -p detshare-shim --test published --release`.

#![cfg(loom)]

#[path = "../src/published.rs"]
mod published;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use published::Published;

/// Counts how many exist.
struct Counted {
    value: usize,
    alive: Arc<AtomicUsize>,
}

impl Counted {
    fn new(value: usize, alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, Ordering::Relaxed);
        Self { value, alive: Arc::clone(alive) }
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
            thread::spawn(move || place.get_or_make(|| Counted::new(value, &alive)).value)
        });
        let seen = threads.map(|thread| thread.join().expect("no panic"));
        assert_eq!(seen[0], seen[1], "one value for all");
        assert_eq!(place.get().map(|it| it.value), Some(seen[0]), "and for good");
        assert_eq!(alive.load(Ordering::Relaxed), 1, "the other was dropped");
    });
}
