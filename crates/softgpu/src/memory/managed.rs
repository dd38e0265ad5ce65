//! What the program advised on managed memory, and where it last prefetched it to. Nothing moves: host and devices
//! share the memory.

use super::{Range, space::SYSTEM_PAGE};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

/// A place for memory, as the driver API names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Location {
    /// `CUmemLocationType`.
    pub(crate) kind: u32,
    pub(crate) id: i32,
}

/// What holds for a page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Advice {
    pub(crate) read_mostly: bool,
    pub(crate) preferred: Option<Location>,
    /// The numbers of devices, -1 for the host, in the order that they were named.
    pub(crate) accessed_by: Vec<i32>,
    pub(crate) prefetched: Option<Location>,
}

/// Where advice was given: the end and the advice, by the start.
static ADVICE: Mutex<BTreeMap<u64, (u64, Advice)>> = Mutex::new(BTreeMap::new());

fn advice() -> MutexGuard<'static, BTreeMap<u64, (u64, Advice)>> {
    ADVICE.lock().expect("no panic while it is held")
}

fn whole_pages(start: u64, bytes: u64) -> (u64, u64) {
    (start / SYSTEM_PAGE * SYSTEM_PAGE, (start + bytes).next_multiple_of(SYSTEM_PAGE))
}

/// Has a part end where `at` is, if one spans it.
fn cut(all: &mut BTreeMap<u64, (u64, Advice)>, at: u64) {
    let Some((_, (end, advice))) = all.range_mut(..at).next_back() else { return };
    if *end > at {
        let rest = (*end, advice.clone());
        *end = at;
        all.insert(at, rest);
    }
}

/// The parts of a range with what holds for them, also where no advice was given.
fn parts(all: &BTreeMap<u64, (u64, Advice)>, start: u64, end: u64) -> Vec<(u64, u64, Advice)> {
    let mut found = Vec::new();
    let mut next = start;
    let first = all.range(..=start).next_back().map_or(start, |(first, _)| *first);
    for (from, (to, advice)) in all.range(first..end).filter(|(_, (to, _))| *to > start) {
        let (from, to) = ((*from).max(start), (*to).min(end));
        if from > next {
            found.push((next, from, Advice::default()));
        }
        found.push((from, to, advice.clone()));
        next = to;
    }
    if next < end {
        found.push((next, end, Advice::default()));
    }
    found
}

/// Changes what holds for the pages that the bytes touch.
pub(crate) fn advise(start: u64, bytes: u64, change: impl Fn(&mut Advice)) {
    let (start, end) = whole_pages(start, bytes);
    let mut all = advice();
    cut(&mut all, start);
    cut(&mut all, end);
    for (from, to, mut advice) in parts(&all, start, end) {
        change(&mut advice);
        all.insert(from, (to, advice));
    }
}

/// What holds for the pages that the bytes touch, each advice once or more.
pub(crate) fn advice_on(start: u64, bytes: u64) -> Vec<Advice> {
    let (start, end) = whole_pages(start, bytes);
    parts(&advice(), start, end).into_iter().map(|(_, _, advice)| advice).collect()
}

/// The range is no more.
pub(super) fn forget(range: &Range) {
    let (start, end) = whole_pages(range.start, range.size);
    let mut all = advice();
    cut(&mut all, start);
    cut(&mut all, end);
    all.retain(|from, _| !(start..end).contains(from));
}

/// Gives the memory of whole pages back; what was in it is lost.
pub(crate) fn discard(start: u64, bytes: u64) {
    super::space::Space::discard(start, start + bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = SYSTEM_PAGE;
    /// Addresses that no memory has.
    const START: u64 = 1 << 20;

    fn read_mostly(start: u64, pages: u64) -> Vec<bool> {
        (0..pages).flat_map(|page| advice_on(start + page * PAGE, 1)).map(|advice| advice.read_mostly).collect()
    }

    #[test]
    fn advice_holds_for_the_pages_that_it_was_given_for() {
        advise(START + PAGE, 2 * PAGE, |advice| advice.read_mostly = true);
        assert_eq!(read_mostly(START, 5), [false, true, true, false, false]);
        advise(START + 2 * PAGE + 7, 1, |advice| advice.read_mostly = false);
        assert_eq!(read_mostly(START, 5), [false, true, false, false, false]);
        let over_all = advice_on(START, 5 * PAGE);
        assert!(over_all.iter().any(|it| it.read_mostly) && over_all.iter().any(|it| !it.read_mostly));
        assert!(advice_on(START + PAGE, PAGE).iter().all(|it| it.read_mostly));
        let at = Location { kind: 1, id: 0 };
        advise(START, 5 * PAGE, |advice| advice.prefetched = Some(at));
        assert!(advice_on(START, 5 * PAGE).iter().all(|it| it.prefetched == Some(at)));
        assert_eq!(read_mostly(START, 5), [false, true, false, false, false]);
    }
}
