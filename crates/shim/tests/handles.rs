//! Every interleaving of threads that insert, find and remove handles, by the model checker:
//! `RUSTFLAGS="--cfg loom" cargo test -p detshare-shim --test handles --release`.

#![cfg(loom)]

#[path = "../src/handles.rs"]
mod handles;

use handles::Handles;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

const HANDLE: usize = 0x10;
const OTHER: usize = 0x20;

/// What was prepared for a handle, in two parts: one half of it is never seen.
#[derive(Default)]
struct Value {
    first: AtomicUsize,
    second: AtomicUsize,
}

impl Value {
    fn prepare(&self, value: usize) {
        self.first.store(value, Ordering::Relaxed);
        self.second.store(value, Ordering::Relaxed);
    }
}

fn table() -> &'static Handles<Value> {
    Box::leak(Box::new(Handles::new()))
}

#[test]
fn who_finds_a_handle_finds_what_was_prepared() {
    loom::model(|| {
        let table = table();
        let writer = thread::spawn(move || _ = table.insert(HANDLE, |value| value.prepare(7)));
        if let Some(value) = table.find(HANDLE) {
            assert_eq!(value.second.load(Ordering::Relaxed), 7);
            assert_eq!(value.first.load(Ordering::Relaxed), 7);
        }
        writer.join().expect("no panic");
        assert!(table.find(HANDLE).is_some());
    });
}

#[test]
fn two_handles_at_once_get_two_places() {
    loom::model(|| {
        let table = table();
        let writer = thread::spawn(move || _ = table.insert(HANDLE, |value| value.prepare(1)));
        table.insert(OTHER, |value| value.prepare(2));
        writer.join().expect("no panic");
        let seen = [HANDLE, OTHER].map(|handle| table.find(handle).map(|value| value.first.load(Ordering::Relaxed)));
        assert_eq!(seen, [Some(1), Some(2)]);
    });
}

#[test]
fn a_place_that_is_free_again_serves_another_handle() {
    loom::model(|| {
        let table = table();
        table.insert(HANDLE, |value| value.prepare(1));
        let writer = thread::spawn(move || {
            assert!(table.remove(HANDLE).is_some());
            table.insert(OTHER, |value| value.prepare(2));
        });
        // It may come late and find what is there by now; it never finds a handle that nobody inserted.
        if let Some(value) = table.find(OTHER) {
            assert_eq!(value.second.load(Ordering::Relaxed), 2);
        }
        writer.join().expect("no panic");
        assert!(table.find(HANDLE).is_none());
        assert!(table.find(OTHER).is_some());
    });
}
