//! Every interleaving of those who publish, read, wait and take slots, by the model checker:
//! `RUSTFLAGS="--cfg loom" cargo test -p detshare-board --test models --release`.

#![cfg(loom)]
#![allow(dead_code, unreachable_pub, reason = "each file is used as far as it is modelled")]

#[path = "../src/decisions.rs"]
mod decisions;
#[path = "../src/seqlock.rs"]
mod seqlock;
#[path = "../src/slot.rs"]
mod slot;
#[path = "../src/step.rs"]
mod step;
#[path = "../src/sync.rs"]
mod sync;
#[path = "../src/wait.rs"]
mod wait;

/// The ring of `../src/layout.rs` with fewer places, so that it comes round within a model.
mod layout {
    use crate::sync::AtomicU64;

    pub(crate) const DECISIONS: usize = 2;
    pub(crate) const DECISION_WORDS: usize = 6;

    pub(crate) struct Apart<T>(pub(crate) T);

    pub(crate) struct DecisionPage {
        pub(crate) written: Apart<AtomicU64>,
        pub(crate) ring: [DecisionRecord; DECISIONS],
    }

    pub(crate) struct DecisionRecord {
        pub(crate) stamp: AtomicU64,
        pub(crate) words: [AtomicU64; DECISION_WORDS],
    }

    impl DecisionPage {
        pub(crate) fn new() -> Self {
            let zero = || AtomicU64::new(0);
            let record = || DecisionRecord { stamp: zero(), words: core::array::from_fn(|_| zero()) };
            Self { written: Apart(zero()), ring: core::array::from_fn(|_| record()) }
        }
    }
}

use decisions::Noted;
use layout::{DECISIONS, DecisionPage};
use loom::sync::Arc;
use loom::thread;
use seqlock::Sequence;
use slot::SlotWord;
use step::StepWord;
use sync::{AtomicU32, AtomicU64, Ordering, Watch, acquired, wake};
use wait::{Waited, until_changed};

/// The model's futex knows no time.
const NO_DEADLINE: u64 = 0;

/// Looks once before it sleeps.
fn once() -> impl FnMut() -> bool {
    let mut looks = 0..1;
    move || looks.next().is_some()
}

/// Two words under a sequence number, equal in every state that may be read.
struct Pair {
    sequence: Sequence,
    first: AtomicU32,
    second: AtomicU32,
}

impl Pair {
    fn new() -> Self {
        Self { sequence: Sequence::new(), first: AtomicU32::new(0), second: AtomicU32::new(0) }
    }

    fn write(&self, value: u32) {
        self.sequence.write(|| self.store(value));
    }

    fn store(&self, value: u32) {
        self.first.store(value, Ordering::Relaxed);
        self.second.store(value, Ordering::Relaxed);
    }

    fn load(&self) -> (u32, u32) {
        // The other way round than they are written: a torn read would show.
        let second = self.second.load(Ordering::Relaxed);
        (self.first.load(Ordering::Relaxed), second)
    }

    fn read(&self) -> Option<u32> {
        self.sequence.read(|| self.load()).map(|(first, second)| {
            assert_eq!(first, second, "torn");
            first
        })
    }
}

#[test]
fn words_under_a_sequence_number_are_never_torn() {
    loom::model(|| {
        let pair = Arc::new(Pair::new());
        let writer = {
            let pair = Arc::clone(&pair);
            thread::spawn(move || {
                pair.write(1);
                pair.write(2);
            })
        };
        let seen = pair.read();
        assert!(matches!(seen, None | Some(0..=2)));
        writer.join().expect("no panic");
        assert_eq!(pair.read(), Some(2), "nobody writes any more");
    });
}

#[test]
fn threads_of_the_owner_write_one_after_the_other() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let pair = Arc::new(Pair::new());
        let writers = [1, 2].map(|value| {
            let pair = Arc::clone(&pair);
            thread::spawn(move || pair.write(value))
        });
        pair.read();
        _ = writers.map(|writer| writer.join().expect("no panic"));
        assert!(matches!(pair.read(), Some(1 | 2)));
    });
}

/// A lost wake-up would be a deadlock here: the model's futex wakes nobody by time.
#[test]
fn who_waits_for_a_step_to_end_is_woken() {
    loom::model(|| {
        let word = Arc::new(StepWord::new());
        let step = word.begin();
        let waiter = {
            let word = Arc::clone(&word);
            thread::spawn(move || {
                assert_eq!(until_changed(&[word.watch(step)], once(), NO_DEADLINE), Waited::Changed);
                assert_ne!(word.get(), step);
            })
        };
        assert!(word.end(step));
        waiter.join().expect("no panic");
    });
}

/// The next step begins before the waiter looks: it is woken all the same, since the word is another.
#[test]
fn the_next_step_does_not_put_the_waiter_back_to_sleep() {
    loom::model(|| {
        let word = Arc::new(StepWord::new());
        let step = word.begin();
        let waiter = {
            let word = Arc::clone(&word);
            thread::spawn(move || until_changed(&[word.watch(step)], || false, NO_DEADLINE))
        };
        assert!(word.end(step));
        assert_eq!(word.begin().number(), step.number() + 1);
        assert_eq!(waiter.join().expect("no panic"), Waited::Changed);
    });
}

/// A tenant that died ends no step; the epoch of the daemon that took its slot back wakes.
#[test]
fn who_waits_for_two_words_is_woken_by_either() {
    loom::model(|| {
        let word = Arc::new(StepWord::new());
        let epoch = Arc::new(AtomicU32::new(0));
        let step = word.begin();
        let waiter = {
            let (word, epoch) = (Arc::clone(&word), Arc::clone(&epoch));
            thread::spawn(move || {
                until_changed(&[word.watch(step), Watch { word: &epoch, seen: 0 }], || false, NO_DEADLINE);
                assert_eq!(acquired(epoch.load(Ordering::Relaxed)), 1);
            })
        };
        epoch.fetch_add(1, Ordering::Release);
        wake(&epoch);
        waiter.join().expect("no panic");
    });
}

/// One thread launches while another finds that all earlier launches are finished.
#[test]
fn a_tenant_with_a_launch_that_is_not_finished_is_busy() {
    loom::model(|| {
        let word = Arc::new(StepWord::new());
        let launched = Arc::new(AtomicU64::new(0));
        word.launch(&launched);
        let launcher = {
            let (word, launched) = (Arc::clone(&word), Arc::clone(&launched));
            thread::spawn(move || assert!(word.launch(&launched).is_busy()))
        };
        word.finish(1, &launched);
        launcher.join().expect("no panic");
        assert!(word.get().is_busy(), "the second launch is not finished");
        assert!(word.finish(2, &launched));
        assert!(!word.get().is_busy());
    });
}

/// Who waits for the first step is woken even if a launch comes in the middle of its end.
#[test]
fn a_launch_while_a_step_ends_loses_no_wake_up() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let word = Arc::new(StepWord::new());
        let launched = Arc::new(AtomicU64::new(0));
        let step = word.launch(&launched);
        let waiter = {
            let word = Arc::clone(&word);
            thread::spawn(move || until_changed(&[word.watch(step)], || false, NO_DEADLINE))
        };
        let launcher = {
            let (word, launched) = (Arc::clone(&word), Arc::clone(&launched));
            thread::spawn(move || _ = word.launch(&launched))
        };
        word.finish(1, &launched);
        launcher.join().expect("no panic");
        word.finish(2, &launched);
        assert_eq!(waiter.join().expect("no panic"), Waited::Changed);
        assert!(!word.get().is_busy());
    });
}

#[test]
fn two_threads_never_both_own_a_slot() {
    loom::model(|| {
        let slot = Arc::new(SlotWord::new());
        let owners = Arc::new(AtomicU32::new(0));
        let claimants = [(); 2].map(|()| {
            let (slot, owners) = (Arc::clone(&slot), Arc::clone(&owners));
            thread::spawn(move || {
                let Some(generation) = slot.claim() else { return false };
                assert_eq!(owners.fetch_add(1, Ordering::Relaxed), 0, "one owner at a time");
                slot.open(generation);
                owners.fetch_sub(1, Ordering::Relaxed);
                assert!(slot.release(generation));
                true
            })
        });
        let claimed = claimants.map(|claimant| claimant.join().expect("no panic"));
        assert!(claimed[0] || claimed[1], "a free slot can be had");
    });
}

/// Two threads find the first owner dead, and one of them gives the slot to a new one. Nobody takes it from that one.
#[test]
fn a_live_owners_slot_is_never_taken() {
    loom::model(|| {
        let slot = Arc::new(SlotWord::new());
        let dead = slot.claim().expect("free");
        slot.open(dead);
        let takers = [(); 2].map(|()| {
            let slot = Arc::clone(&slot);
            thread::spawn(move || {
                let taken = slot.take_back(dead, || true);
                let new = if taken { slot.claim() } else { None };
                if let Some(new) = new {
                    slot.open(new);
                    assert!(!slot.take_back(new, || false), "it lives");
                    assert_eq!(slot.live(), Some(new));
                }
                (taken, new)
            })
        });
        let taken = takers.map(|taker| taker.join().expect("no panic"));
        assert!(taken[0].0 != taken[1].0, "one of them took it back");
        let new = taken.iter().find_map(|taken| taken.1);
        assert!(new.is_some());
        assert_eq!(slot.live(), new);
    });
}

/// As `Daemon::claim`, `Daemon::configure` and `DaemonView::slot` do it.
#[test]
fn an_entry_belongs_to_the_generation_that_it_is_read_with() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let slot = Arc::new((SlotWord::new(), Pair::new()));
        let first = slot.0.claim().expect("free");
        slot.1.write(1);
        slot.0.open(first);
        let late = {
            let slot = Arc::clone(&slot);
            thread::spawn(move || {
                slot.1.sequence.write(|| {
                    if slot.0.live() == Some(first) {
                        slot.1.store(10);
                    }
                });
            })
        };
        let next = {
            let slot = Arc::clone(&slot);
            thread::spawn(move || {
                assert!(slot.0.take_back(first, || true));
                let second = slot.0.claim().expect("free");
                slot.1.write(2);
                slot.0.open(second);
            })
        };
        if let Some(Some((generation, (a, b)))) =
            slot.1.sequence.read(|| slot.0.live().map(|generation| (generation, slot.1.load())))
        {
            assert_eq!(a, b, "torn");
            assert_eq!(generation == first, a == 1 || a == 10, "another generation's entry");
        }
        late.join().expect("no panic");
        next.join().expect("no panic");
        assert_eq!(slot.1.read(), Some(2), "the new owner's entry stays");
    });
}

/// A decision of which each part says which one it is.
fn decision(which: u8) -> Noted {
    let number = u64::from(which);
    Noted {
        at_ns: number,
        kernel: number,
        predicted_ns: number,
        measured_ns: number,
        held_ns: number,
        lane: which,
        reason: which,
        held_for: which,
        because_of: which,
        doubts: which,
    }
}

/// Which ones were found; none of them mixed with another.
fn whole(found: &[Noted]) -> Vec<u8> {
    let which = |noted: &Noted| {
        assert_eq!(*noted, decision(noted.lane), "mixed");
        noted.lane
    };
    found.iter().map(which).collect()
}

/// A ring that is full, so that the next decisions take the places of these.
fn full_ring() -> Arc<DecisionPage> {
    let page = Arc::new(DecisionPage::new());
    (1..=DECISIONS).for_each(|which| _ = decisions::write(&page, &decision(which as u8)));
    page
}

/// The reader sees the place before, while and after it is written again.
#[test]
fn a_decision_that_is_read_is_whole() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let page = full_ring();
        let writer = {
            let page = Arc::clone(&page);
            thread::spawn(move || _ = decisions::write(&page, &decision(3)))
        };
        let found = whole(&decisions::read(&page));
        assert!([&[1, 2][..], &[2], &[2, 3]].contains(&&found[..]), "{found:?}");
        writer.join().expect("no panic");
        assert_eq!(whole(&decisions::read(&page)), [2, 3], "nobody writes any more");
    });
}

/// Two threads of a tenant decide at once, and one of them looks before the other is done: each has a place of its own.
#[test]
fn decisions_of_two_threads_are_not_mixed() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let page = full_ring();
        let other = {
            let page = Arc::clone(&page);
            thread::spawn(move || decisions::write(&page, &decision(3)))
        };
        let own_number = decisions::write(&page, &decision(4));
        assert!(whole(&decisions::read(&page)).contains(&4), "who has written finds it");
        assert_ne!(own_number, other.join().expect("no panic"), "each has a number of its own");
        let mut found = whole(&decisions::read(&page));
        found.sort_unstable();
        assert_eq!(found, [3, 4]);
    });
}

/// What a launch took is added later: to its own decision or, in the moment when another takes its place, to that one. Nothing else of
/// either changes.
#[test]
fn a_late_measurement_changes_nothing_else() {
    const TOOK: u64 = 100;
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let page = Arc::new(DecisionPage::new());
        let first = decisions::write(&page, &decision(1));
        decisions::write(&page, &decision(2));
        let writer = {
            let page = Arc::clone(&page);
            thread::spawn(move || _ = decisions::write(&page, &decision(3)))
        };
        decisions::measured(&page, first, TOOK);
        writer.join().expect("no panic");
        let found = decisions::read(&page);
        let but_its_time = |noted: &Noted| Noted { measured_ns: u64::from(noted.lane), ..*noted };
        assert_eq!(whole(&found.iter().map(but_its_time).collect::<Vec<_>>()), [2, 3]);
        assert_eq!(found[0].measured_ns, 2);
        assert!([3, TOOK].contains(&found[1].measured_ns), "{found:?}");
        // Its place is somebody else's for good.
        let before = found[1].measured_ns;
        decisions::measured(&page, first, TOOK + 1);
        assert_eq!(decisions::read(&page)[1].measured_ns, before);
    });
}
