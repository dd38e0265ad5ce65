//! Every interleaving of a thread that finds itself alone and of one that lets somebody in, by the model checker:
//! `RUSTFLAGS="--cfg loom" cargo test -p detshare-shim --test freedom --release`.

#![cfg(loom)]

#[path = "../src/freedom.rs"]
mod freedom;

use freedom::Freedom;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

/// What there is, as the shim has it.
struct Place {
    freedom: Freedom,
    epoch: &'static AtomicU32,
    /// Counts who comes and goes.
    roster: AtomicU32,
    others: AtomicU32,
}

impl Place {
    fn new() -> Arc<Self> {
        let epoch: &'static AtomicU32 = Box::leak(Box::new(AtomicU32::new(0)));
        Arc::new(Self { freedom: Freedom::none(), epoch, roster: AtomicU32::new(0), others: AtomicU32::new(0) })
    }

    /// As the gate reads the table.
    fn read(&self) {
        let (epoch, roster) = (self.epoch.load(Ordering::Acquire), self.roster.load(Ordering::Acquire));
        if self.others.load(Ordering::Relaxed) == 0 {
            self.freedom.begin(self.epoch, epoch, || self.roster.load(Ordering::Acquire) == roster);
        }
    }

    /// As the thread does it that holds the connection.
    fn let_in(&self) {
        self.others.store(1, Ordering::Relaxed);
        self.roster.fetch_add(1, Ordering::AcqRel);
        self.freedom.end();
    }
}

#[test]
fn nobody_is_free_when_somebody_has_come() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let place = Place::new();
        let readers = [0; 2].map(|_| {
            let place = Arc::clone(&place);
            thread::spawn(move || place.read())
        });
        place.let_in();
        _ = readers.map(|reader| reader.join().expect("no panic"));
        assert!(!place.freedom.holds(), "somebody is here");
    });
}

/// What the daemon changes itself, it counts in the epoch.
#[test]
fn a_change_of_the_table_ends_it() {
    loom::model(|| {
        let place = Place::new();
        let reader = {
            let place = Arc::clone(&place);
            thread::spawn(move || place.read())
        };
        place.others.store(1, Ordering::Relaxed);
        place.epoch.fetch_add(1, Ordering::Release);
        reader.join().expect("no panic");
        assert!(!place.freedom.holds(), "somebody is here");
    });
}
