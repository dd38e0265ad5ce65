//! Every interleaving of threads that add to the list and one that goes through it, by the model checker:
//! `RUSTFLAGS="--cfg loom" cargo test -p detshare-shim --test unfinished --release`.

#![cfg(loom)]

#[path = "../src/unfinished.rs"]
mod unfinished;

use loom::sync::Mutex;
use loom::thread;
use unfinished::{Link, Linked, List};

/// As a stream: what it has to do is under its lock, and it is in the list whenever it has anything.
struct Thing {
    link: Link<Thing>,
    work: Mutex<u32>,
}

impl Linked for Thing {
    fn link(&self) -> &Link<Self> {
        &self.link
    }
}

fn thing() -> &'static Thing {
    Box::leak(Box::new(Thing { link: Link::new(), work: Mutex::new(0) }))
}

fn list() -> &'static List<Thing> {
    Box::leak(Box::new(List::new()))
}

fn give_work(list: &List<Thing>, thing: &'static Thing) {
    let mut work = thing.work.lock().expect("nobody panics");
    *work += 1;
    list.add(thing);
}

/// Takes all work that is there; says how much.
fn take_work(list: &List<Thing>) -> u32 {
    let mut taken = 0;
    list.retain(|thing| {
        let mut work = thing.work.lock().expect("nobody panics");
        taken += core::mem::take(&mut *work);
        thing.link().leave();
        false
    });
    taken
}

#[test]
fn whoever_has_work_is_in_the_list() {
    loom::model(|| {
        let (list, one, other) = (list(), thing(), thing());
        let threads = [one, other].map(|thing| {
            thread::spawn(move || {
                give_work(list, thing);
                give_work(list, one);
            })
        });
        let mut taken = take_work(list);
        for thread in threads {
            thread.join().expect("nobody panics");
        }
        taken += take_work(list);
        assert_eq!(taken, 4);
    });
}

#[test]
fn what_is_kept_stays_beside_what_comes() {
    loom::model(|| {
        let (list, kept, coming) = (list(), thing(), thing());
        give_work(list, kept);
        let adds = thread::spawn(move || give_work(list, coming));
        assert!(!list.retain(|_| true) || kept.work.lock().is_err(), "it was there");
        adds.join().expect("nobody panics");
        assert_eq!(take_work(list), 2);
        assert!(list.retain(|_| panic!("all were dropped")));
    });
}
