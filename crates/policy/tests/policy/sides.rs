//! All SMs or halves, for best-effort tenants among themselves.

use crate::{MS, SERVER, TRAINING, numbered, seen};
use detshare_policy::side::{Comparison, Place, tells, tried};
use detshare_policy::{Decision, Lane, Launch, Member, Reason, View, decide};
use proptest::prelude::*;

const OTHER: Member = Member { slot: 5, ..TRAINING };
const HALF: usize = 3;

fn lane(now_ns: u64, me: Member, others: &[Member], is_half_faster: Option<bool>) -> Lane {
    let view = View { is_half_faster, ..seen(now_ns, me, others) };
    match decide(numbered("slo-aware"), &Launch::UNKNOWN, &view).decision {
        Decision::Run(lane) => lane,
        Decision::Hold(until) => panic!("nobody is held among equals: {until:?}"),
    }
}

/// A moment at which this is tried by those who know what is faster.
fn moment(wanted: Option<Place>) -> u64 {
    (0..10_000).map(|ms| ms * MS).find(|now| tried(*now, true) == wanted).expect("each is tried")
}

#[test]
fn both_places_are_tried_now_and_then_by_all_at_once() {
    let tried_in = |is_known: bool, wanted| (0..1_024).filter(|ms| tried(ms * MS, is_known) == wanted).count();
    for place in [Place::All, Place::Half] {
        assert_eq!(tried_in(true, Some(place)), 64);
        assert_eq!(tried_in(false, Some(place)), 256);
    }
    assert!((0..1_024).all(|ms| !tells(ms * MS, true) || tried(ms * MS, true).is_some()));
    // Who knows tries nothing that others do not try as well.
    assert!((0..1_024).all(|ms| tried(ms * MS, true).is_none() || tried(ms * MS, true) == tried(ms * MS, false)));
}

#[test]
fn two_that_try_halves_have_different_ones() {
    let now = moment(Some(Place::Half));
    assert_eq!(lane(now, TRAINING, &[OTHER], None), Lane::Front { split: HALF });
    assert_eq!(lane(now, OTHER, &[TRAINING], None), Lane::Rest { split: HALF });
}

#[test]
fn everybody_stays_where_it_is_faster() {
    let now = moment(None);
    for (faster, wanted) in [(None, Lane::Full), (Some(false), Lane::Full), (Some(true), Lane::Front { split: HALF })] {
        assert_eq!(lane(now, TRAINING, &[OTHER], faster), wanted);
    }
    assert_eq!(lane(moment(Some(Place::All)), TRAINING, &[OTHER], Some(true)), Lane::Full);
}

#[test]
fn who_is_alone_or_beside_one_that_wants_nothing_tries_no_half() {
    let idle = Member { busy: false, ..OTHER };
    for ms in 0..2_000 {
        assert_eq!(lane(ms * MS, TRAINING, &[], Some(true)), Lane::Full);
        assert_eq!(lane(ms * MS, TRAINING, &[idle], Some(false)), Lane::Full);
    }
}

#[test]
fn beside_a_latency_tenant_nobody_tries_anything() {
    let others = [OTHER, Member { busy: false, ..SERVER }];
    let view = View { is_half_faster: Some(true), ..seen(moment(Some(Place::Half)), TRAINING, &others) };
    let verdict = decide(numbered("slo-aware"), &Launch::UNKNOWN, &view);
    assert_ne!(verdict.reason, Reason::Turn);
}

/// What a tenant thinks after some seconds in which its work of 1 ms took so long in either place.
fn after_seconds(comparison: &mut Comparison, from_ms: u64, all_ns: u64, half_ns: u64) -> Option<bool> {
    for now in (from_ms..from_ms + 3_000).map(|ms| ms * MS) {
        match tried(now, comparison.is_half_faster().is_some()) {
            Some(Place::All) => comparison.note(now, Place::All, MS, all_ns),
            Some(Place::Half) => comparison.note(now, Place::Half, MS, half_ns),
            None => {}
        }
    }
    comparison.is_half_faster()
}

#[test]
fn what_is_faster_is_found_out_and_forgotten_when_it_changes() {
    let mut comparison = Comparison::NOTHING;
    assert_eq!(comparison.is_half_faster(), None);
    assert_eq!(after_seconds(&mut comparison, 0, 1_300_000, 1_050_000), Some(true));
    assert_eq!(after_seconds(&mut comparison, 3_000, 1_000_000, 1_900_000), Some(false));
    assert_eq!(after_seconds(&mut comparison, 6_000, 1_300_000, 1_050_000), Some(true));
}

/// Of two places that are about the same, all SMs is the one, and nobody goes to and fro.
#[test]
fn a_little_faster_is_not_worth_it() {
    assert_eq!(after_seconds(&mut { Comparison::NOTHING }, 0, 1_000_000, 990_000), Some(false));
    let mut comparison = Comparison::NOTHING;
    after_seconds(&mut comparison, 0, 1_300_000, 1_050_000);
    assert_eq!(after_seconds(&mut comparison, 3_000, 1_000_000, 990_000), Some(true));
}

proptest! {
    #[test]
    fn nothing_absurd_confuses_it(seen in proptest::collection::vec((any::<u64>(), any::<bool>(), any::<u64>(), any::<u64>()), 0..50)) {
        let mut comparison = Comparison::NOTHING;
        for (at_ns, half, usual_ns, took_ns) in seen {
            comparison.note(at_ns, if half { Place::Half } else { Place::All }, usual_ns, took_ns);
        }
        prop_assert!(after_seconds(&mut comparison, 0, 10_000_000, 1_000).is_some());
    }
}
