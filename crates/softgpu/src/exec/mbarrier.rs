//! Barriers in shared memory (`mbarrier`): they count arrivals and bytes, and go from phase to phase.
//!
//! A GPU's layout of the 64 bits is nobody's business, so this is ours: from the top the phase (1 bit), the bytes that
//! are still to come (23, signed), the arrivals that are (20), and how many each phase waits for (20).
#![allow(clippy::cast_possible_truncation, reason = "fields are cut out of a word by their widths")]

const COUNT_BITS: u32 = 20;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
const BYTES_SHIFT: u32 = 2 * COUNT_BITS;
const BYTES_BITS: u32 = 23;
const PHASE_SHIFT: u32 = 63;

/// A barrier as its bits say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State {
    /// Odd or even.
    pub(super) odd: bool,
    /// Bytes that are still expected. More than were expected may have come: then it is below zero.
    bytes: i32,
    pub(super) pending: u32,
    expected: u32,
}

impl State {
    pub(super) fn new(count: u32) -> Self {
        let count = count & COUNT_MASK as u32;
        Self { odd: false, bytes: 0, pending: count, expected: count }
    }

    pub(super) fn from_bits(bits: u64) -> Self {
        let unused = 64 - BYTES_BITS;
        let bytes = (bits >> BYTES_SHIFT << unused).cast_signed() >> unused;
        Self {
            odd: bits >> PHASE_SHIFT != 0,
            bytes: bytes as i32,
            pending: (bits >> COUNT_BITS & COUNT_MASK) as u32,
            expected: (bits & COUNT_MASK) as u32,
        }
    }

    pub(super) fn to_bits(self) -> u64 {
        let bytes = i64::from(self.bytes).cast_unsigned() & ((1 << BYTES_BITS) - 1);
        u64::from(self.odd) << PHASE_SHIFT
            | bytes << BYTES_SHIFT
            | u64::from(self.pending) << COUNT_BITS
            | u64::from(self.expected)
    }

    pub(super) fn expect(&mut self, bytes: u32) {
        self.bytes = self.bytes.wrapping_add_unsigned(bytes);
    }

    /// Bytes have come.
    pub(super) fn complete(&mut self, bytes: u32) {
        self.bytes = self.bytes.wrapping_sub_unsigned(bytes);
        self.settle();
    }

    pub(super) fn arrive(&mut self, count: u32) {
        self.pending = self.pending.saturating_sub(count);
        self.settle();
    }

    /// Arrives for the last time.
    pub(super) fn drop(&mut self, count: u32) {
        self.expected = self.expected.saturating_sub(count);
        self.arrive(count);
    }

    /// The next phase, where nobody and no byte is missing.
    fn settle(&mut self) {
        if self.pending == 0 && self.bytes == 0 {
            self.odd = !self.odd;
            self.pending = self.expected;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_hold_everything() {
        for state in [
            State { odd: true, bytes: -1, pending: 7, expected: 9 },
            State { odd: false, bytes: (1 << 20) - 1, pending: 0, expected: (1 << 20) - 1 },
            State { odd: true, bytes: -((1 << 20) - 1), pending: (1 << 20) - 1, expected: 1 },
        ] {
            assert_eq!(State::from_bits(state.to_bits()), state);
        }
    }

    #[test]
    fn a_phase_ends_with_the_last_arrival() {
        let mut barrier = State::new(2);
        barrier.arrive(1);
        assert!(!barrier.odd);
        barrier.arrive(1);
        assert!(barrier.odd && barrier.pending == 2);
    }

    #[test]
    fn a_phase_waits_for_bytes_whatever_comes_first() {
        let mut barrier = State::new(1);
        barrier.complete(16);
        barrier.expect(16);
        barrier.arrive(1);
        assert!(barrier.odd, "bytes that came before they were expected");
        barrier.expect(32);
        barrier.arrive(1);
        assert!(barrier.odd, "bytes are missing");
        barrier.complete(32);
        assert!(!barrier.odd);
    }

    #[test]
    fn who_drops_out_is_not_waited_for_again() {
        let mut barrier = State::new(2);
        barrier.drop(1);
        barrier.arrive(1);
        assert!(barrier.odd && barrier.pending == 1);
        barrier.arrive(1);
        assert!(!barrier.odd);
    }
}
