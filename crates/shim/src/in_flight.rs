//! Until when each stream of this process has work, in one word each.
//!
//! A launch adds up the words of all streams and takes no lock but its own stream's. A word is written when its stream launches
//! or is asked, and when it is seen to have nothing left, so in between it goes by the clock.

use core::sync::atomic::{AtomicU64, Ordering};

/// Streams that are added up; of further ones only their own launches know.
const PLACES: usize = 64;

/// A word of its own line: each is written by the threads of another stream.
#[repr(align(64))]
struct Until(AtomicU64);

/// Until when each stream has work; 0 is none.
static UNTIL: [Until; PLACES] = [const { Until(AtomicU64::new(0)) }; PLACES];
/// The places that streams have, as bits.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// Whether several streams have work in flight, or have had.
pub(crate) fn is_spread() -> bool {
    TAKEN.load(Ordering::Relaxed).count_ones() > 1
}

/// A stream's place among those that are added up.
pub(crate) struct Place(Option<u8>);

impl Place {
    pub(crate) const fn none() -> Self {
        Self(None)
    }

    /// Whether the stream ever had work.
    pub(crate) const fn is_taken(&self) -> bool {
        self.0.is_some()
    }

    /// The stream has work for so long from now on.
    pub(crate) fn set(&mut self, now: u64, left_ns: u64) {
        if self.0.is_none() && left_ns != 0 {
            self.0 = take_place();
        }
        if let Some(until) = self.0.and_then(|place| UNTIL.get(usize::from(place))) {
            until.0.store(if left_ns == 0 { 0 } else { now.saturating_add(left_ns) }, Ordering::Relaxed);
        }
    }

    /// What all others have, as far as their words say.
    pub(crate) fn others_ns(&self, now: u64) -> u64 {
        let own = self.0.map_or(0, |place| 1_u64 << place);
        let (mut left, mut sum) = (TAKEN.load(Ordering::Relaxed) & !own, 0_u64);
        while left != 0 {
            let until = UNTIL.get(left.trailing_zeros() as usize).map_or(0, |until| until.0.load(Ordering::Relaxed));
            sum = sum.saturating_add(until.saturating_sub(now));
            left &= left - 1;
        }
        sum
    }
}

fn take_place() -> Option<u8> {
    let mut taken = TAKEN.load(Ordering::Relaxed);
    loop {
        let place = u8::try_from(taken.trailing_ones()).ok().filter(|place| usize::from(*place) < PLACES)?;
        match TAKEN.compare_exchange_weak(taken, taken | 1 << place, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return Some(place),
            Err(now) => taken = now,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            self.set(0, 0);
            // Whoever takes it next finds nothing in it: both words are written in this order by whoever has the place.
            TAKEN.fetch_and(!(1 << place), Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, because places are the process's.
    #[test]
    fn all_streams_are_added_up_and_leave_nothing_behind() {
        let (mut one, mut other) = (Place::none(), Place::none());
        one.set(1_000, 300);
        assert_eq!((one.others_ns(1_000), other.others_ns(1_000)), (0, 300));
        assert!(!is_spread());
        other.set(1_000, 50);
        assert!(is_spread());
        assert_eq!((one.others_ns(1_000), other.others_ns(1_100)), (50, 200));
        other.set(0, 0);
        assert_eq!(one.others_ns(1_000), 0);
        drop(one);
        assert_eq!(other.others_ns(1_000), 0, "what is gone has nothing in flight");
        // More streams than there are places: none of them is in the way of another.
        let mut many: Vec<Place> = (0..2 * PLACES).map(|_| Place::none()).collect();
        many.iter_mut().for_each(|place| place.set(1_000, 10));
        assert_eq!(Place::none().others_ns(1_000), 10 * (PLACES as u64 - 1), "one place is still the other's");
        drop(many);
        assert_eq!(Place::none().others_ns(0), 0);
        drop(other);
        assert_eq!(TAKEN.load(Ordering::Relaxed), 0);
    }
}
