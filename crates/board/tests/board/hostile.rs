//! Pages full of anything, changing all the time.

use crate::{DAEMON_BYTES, Forged, TENANT_BYTES};
use detshare_board::{
    DaemonView, HOLDS_NS, HORIZON_NS, KernelNote, LANES, MOST_SHARE, MOST_SMS, MOST_WEIGHT, Occupant, SLOTS, SlotState,
    TenantState, TenantView, clock, wait,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SEEDS: u64 = 64;
const READS: usize = 300;
/// Records of random words that may lie by chance where a kernel of that identity would.
const MOST_MISTAKEN: usize = 100;

/// Random numbers, many of them small or at an edge, so that some are valid.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        match self.0 % 8 {
            0 => 0,
            1 => u64::MAX,
            2 => self.0 >> 60,
            3 => (self.0 >> 60) << 32 | self.0 >> 61,
            4 => clock::now(),
            _ => self.0,
        }
    }
}

/// Writes anything into all words, header and all, while somebody reads.
fn while_it_changes(forged: &Forged, seed: u64, read: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
            while !stop.load(Ordering::Relaxed) {
                for word in forged.words {
                    word.store(numbers.next(), Ordering::Relaxed);
                }
            }
        });
        read();
        stop.store(true, Ordering::Relaxed);
    });
}

fn is_in_range(state: &TenantState, now: u64) {
    let near = now.saturating_sub(HORIZON_NS)..=now + HORIZON_NS;
    assert!(state.lane < LANES);
    assert!(state.lane_width <= MOST_SMS);
    assert!(state.due.is_none_or(|due| near.contains(&due)));
    assert!(state.holding_since.is_none_or(|since| since <= now && near.contains(&since)));
    assert!(state.finished <= state.launched);
    assert!(state.step.number() < 1 << 31);
}

fn are_widths(kernel: &KernelNote) -> bool {
    kernel.widths.iter().all(|(width, ..)| (1..=MOST_SMS).contains(width))
}

fn is_sound(occupant: &Occupant) {
    let entry = &occupant.entry;
    assert!((1..=MOST_WEIGHT).contains(&entry.weight));
    assert!(entry.limits.least_share <= MOST_SHARE);
    assert!(HOLDS_NS.contains(&entry.limits.longest_hold_ns));
    assert!(entry.ladder.widths().iter().all(|width| (1..=MOST_SMS).contains(width)));
    assert!(entry.ladder.widths().is_sorted());
}

#[test]
fn a_tenants_pages_may_hold_anything() {
    let mut doubted = 0;
    for seed in 0..SEEDS {
        let forged = Forged::new(TENANT_BYTES, 1);
        let view = TenantView::map(&forged.file).expect("as it should be");
        while_it_changes(&forged, seed, || {
            for _ in 0..READS {
                let now = clock::now();
                let state = view.read(now);
                is_in_range(&state, now);
                doubted += usize::from(state.doubts.any());
                let times = view.step_times();
                assert_eq!(times.quantile(0.99).is_some(), times.count() != 0);
                _ = (view.is_holding(), view.gpu());
                assert!(view.due(now).is_none_or(|due| due <= now + HORIZON_NS));
            }
            let kernels = view.kernels();
            assert!(kernels.iter().all(are_widths));
            assert!(kernels.len() < MOST_MISTAKEN, "{} records were taken for kernels", kernels.len());
            // It returns, whatever the word does meanwhile.
            _ = wait(&[view.watch(view.step())], Duration::from_micros(100));
        });
    }
    assert!(doubted > 0, "nothing of it was noticed");
}

#[test]
fn a_table_may_hold_anything() {
    let mut taken = 0;
    for seed in 0..SEEDS {
        let forged = Forged::new(DAEMON_BYTES, 2);
        let view = DaemonView::map(&forged.file).expect("as it should be");
        let look = || {
            for slot in 0..=SLOTS {
                if let SlotState::Taken(occupant) = view.slot(slot) {
                    is_sound(&occupant);
                    taken += 1;
                }
            }
            let now = clock::now();
            assert!(view.heartbeat(now).is_none_or(|beat| beat <= now));
            _ = view.policy();
            assert!(!view.is_asked(SLOTS, now), "there is no such slot");
            (0..SLOTS).for_each(|slot| _ = view.is_asked(slot, now));
            assert!((0..READS as u64).filter_map(|identity| view.kernel(identity)).all(|kernel| are_widths(&kernel)));
            _ = wait(&[view.watch(view.epoch())], Duration::from_micros(100));
        };
        while_it_changes(&forged, seed, look);
        // And when nobody writes any more: what is there by now can be read whole.
        view.occupants().for_each(|(_, occupant)| {
            is_sound(&occupant);
            taken += 1;
        });
    }
    assert!(taken > 0, "no slot was ever taken for one with a tenant");
}

/// An owner that died in the middle of writing leaves an odd number behind.
#[test]
fn words_that_are_being_written_for_ever_are_given_up() {
    let forged = Forged::new(TENANT_BYTES, 1);
    let view = TenantView::map(&forged.file).expect("as it should be");
    const SEQUENCE: usize = 256 / 8;
    forged.words[SEQUENCE].store(1, Ordering::Relaxed);
    assert!(view.read(clock::now()).doubts.contains(detshare_board::Doubts::TORN));
}
