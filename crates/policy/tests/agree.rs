//! Tenants that see the same board decide so that it fits together, whatever is on it.

use detshare_policy::{Class, Decision, Lane, Member, POLICIES, View, decide, number};
use proptest::prelude::*;

const LADDER: [u32; 5] = [16, 32, 48, 64, 96];
const WIDTH: u32 = 132;

/// Members with different slots, in any state.
fn members() -> impl Strategy<Value = Vec<Member>> {
    let one = (any::<bool>(), 1_u32..=10_000, any::<bool>(), any::<bool>());
    proptest::collection::btree_map(0_u8..64, one, 1..12).prop_map(|members| {
        let member = |(slot, (urgent, weight, busy, waiting))| {
            let class = if urgent { Class::Latency } else { Class::BestEffort };
            Member { slot, class, weight, busy, waiting }
        };
        members.into_iter().map(member).collect()
    })
}

/// What each of those that want the GPU would be told if it launched now.
fn decisions(policy: &str, now_ns: u64, members: &[Member], ladder: &[u32]) -> Vec<(Member, Decision)> {
    let number = number(policy).expect("there is one of that name");
    let wanting = members.iter().filter(|member| member.busy || member.waiting);
    wanting
        .map(|me| {
            let others: Vec<Member> = members.iter().copied().filter(|other| other.slot != me.slot).collect();
            (*me, decide(number, &View { now_ns, me: *me, others: &others, ladder, width: WIDTH }))
        })
        .collect()
}

fn running(decisions: &[(Member, Decision)]) -> Vec<(Member, Lane)> {
    let lane = |decision| if let Decision::Run(lane) = decision { Some(lane) } else { None };
    decisions.iter().filter_map(|(member, decision)| Some((*member, lane(*decision)?))).collect()
}

/// The SMs of a lane.
fn sms(lane: Lane) -> core::ops::Range<u32> {
    match lane {
        Lane::Full => 0..WIDTH,
        Lane::Front { split } => 0..LADDER[split],
        Lane::Rest { split } => LADDER[split]..WIDTH,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whoever_is_alone_has_everything(now in any::<u64>(), mut all in members(), policy in 0..POLICIES.len()) {
        for member in &mut all[1..] {
            (member.busy, member.waiting) = (false, false);
        }
        let number = u32::try_from(policy).unwrap();
        let view = View { now_ns: now, me: all[0], others: &all[1..], ladder: &LADDER, width: WIDTH };
        prop_assert_eq!(decide(number, &view), Decision::Run(Lane::Full));
    }

    #[test]
    fn exclusive_lets_one_go_on(now in 0..u64::MAX / 2, all in members()) {
        let decisions = decisions("exclusive", now, &all, &LADDER);
        let running = running(&decisions);
        prop_assert!(running.len() <= 1);
        if let [(runs, _)] = running[..] {
            prop_assert!(all.iter().all(|other| !other.busy || other.slot == runs.slot));
            let urgent = decisions.iter().any(|(member, _)| member.class == Class::Latency);
            prop_assert!(!urgent || runs.class == Class::Latency);
        }
        // Nobody waits for something that will not come: at the latest when all have finished, somebody runs.
        let drained: Vec<Member> = all.iter().map(|member| Member { busy: false, ..*member }).collect();
        let decisions = self::decisions("exclusive", now, &drained, &LADDER);
        prop_assert_eq!(self::running(&decisions).len(), usize::from(!decisions.is_empty()));
    }

    #[test]
    fn fair_shares_do_not_overlap(now in 0..u64::MAX / 2, all in members(), partitions in any::<bool>()) {
        let ladder = if partitions { &LADDER[..] } else { &[] };
        let decisions = decisions("fair", now, &all, ladder);
        let running = running(&decisions);
        let expected = decisions.len().min(if partitions { 2 } else { 1 });
        prop_assert_eq!(running.len(), expected);
        if let [(_, one), (_, other)] = running[..] {
            prop_assert!(sms(one).end <= sms(other).start || sms(other).end <= sms(one).start);
        }
    }

    #[test]
    fn a_hold_ends(now in 0..u64::MAX / 2, all in members(), policy in 0..POLICIES.len()) {
        for (me, decision) in decisions(POLICIES[policy].name, now, &all, &LADDER) {
            if let Decision::Hold(until) = decision {
                prop_assert!(until.at_ns > now && until.at_ns <= now + 64_000_000);
                prop_assert_eq!(until.steps & 1 << me.slot, 0);
                let wanting = all.iter().filter(|other| other.busy || other.waiting);
                let wanting = wanting.fold(0_u64, |slots, other| slots | 1 << other.slot);
                prop_assert_eq!(until.steps & !wanting, 0, "who wants nothing is not waited for");
                prop_assert_ne!(until.steps, 0, "somebody is waited for");
            }
        }
    }
}

/// Over some cycles everybody has the turn for a time that goes by its weight.
#[test]
fn turns_go_by_weight() {
    let member = |slot, weight| Member { slot, class: Class::BestEffort, weight, busy: false, waiting: true };
    let members = [member(3, 100), member(9, 300), member(40, 100)];
    let mut turns = [0_u32; 64];
    for now in (0..160_000_000).step_by(10_000) {
        for (member, _) in running(&decisions("exclusive", now, &members, &[])) {
            turns[usize::from(member.slot)] += 1;
        }
    }
    assert_eq!((turns[3], turns[9], turns[40]), (3_200, 9_600, 3_200));
}

#[test]
fn equals_get_the_middle_split() {
    let member = |slot, weight| Member { slot, class: Class::BestEffort, weight, busy: true, waiting: false };
    let lanes = |members: &[Member]| running(&decisions("fair", 0, members, &LADDER));
    assert_eq!(
        lanes(&[member(0, 100), member(1, 100)]).iter().map(|(_, lane)| *lane).collect::<Vec<_>>(),
        [Lane::Front { split: 3 }, Lane::Rest { split: 3 }]
    );
    assert_eq!(lanes(&[member(0, 300), member(1, 100)])[0].1, Lane::Front { split: 4 });
}

#[test]
fn an_unknown_policy_holds_nobody() {
    let me = Member { slot: 0, class: Class::BestEffort, weight: 1, busy: true, waiting: true };
    let view = View { now_ns: 5, me, others: &[Member { slot: 1, ..me }], ladder: &LADDER, width: WIDTH };
    assert_eq!(decide(u32::MAX, &view), Decision::Run(Lane::Full));
}
