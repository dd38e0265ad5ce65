//! What is decided where it can be said: one small situation after the other.

use crate::{LADDER, MS, SERVER, TRAINING, decisions, numbered, running, seen};
use detshare_policy::phase::Phase;
use detshare_policy::rhythm::Learner;
use detshare_policy::{
    Bound, Class, Decision, Dial, Lane, Launch, Member, POLICIES, Reason, Rhythm, Verdict, View, at_ease, decide,
    number,
};

/// Over some cycles everybody has the turn for a time that goes by its weight.
#[test]
fn turns_go_by_weight() {
    let member = |slot, weight| Member { slot, weight, busy: false, waiting: true, ..TRAINING };
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
    let member = |slot, weight| Member { slot, weight, ..TRAINING };
    let lanes = |members: &[Member]| running(&decisions("fair", 0, members, &LADDER));
    assert_eq!(
        lanes(&[member(0, 100), member(1, 100)]).iter().map(|(_, lane)| *lane).collect::<Vec<_>>(),
        [Lane::Front { split: 3 }, Lane::Rest { split: 3 }]
    );
    assert_eq!(lanes(&[member(0, 300), member(1, 100)])[0].1, Lane::Front { split: 4 });
}

/// What `slo-aware` says of a launch of 300 µs when a step is due in so many microseconds, at a dial in thousandths.
fn with_step_due(due_us: u64, dial: u16) -> Verdict {
    let rhythm = Rhythm {
        due_ns: Some(MS + due_us * 1_000),
        spread_ns: 20_000,
        gap_ns: 5 * MS,
        lasts_ns: MS,
        ..Rhythm::UNKNOWN
    };
    let server = [Member { busy: false, rhythm, ..SERVER }];
    let launch = Launch { lasts_ns: Some(300_000), bound: Some(Bound::Compute), ..Launch::UNKNOWN };
    decide(numbered("slo-aware"), &launch, &View { dial: Dial::new(dial), ..seen(MS, TRAINING, &server) })
}

#[test]
fn a_launch_runs_before_a_step_if_it_will_be_over() {
    let (well_before, in_the_way) = (800, 100);
    for dial in [0, 250, 500] {
        assert_eq!(with_step_due(well_before, dial).decision, Decision::Run(Lane::Full));
        assert_eq!(with_step_due(in_the_way, dial).reason, Reason::Due);
    }
    let Decision::Hold(until) = with_step_due(in_the_way, 250).decision else { panic!("it would be in the way") };
    let due_ns = MS + in_the_way * 1_000;
    assert!((due_ns..due_ns + MS).contains(&until.at_ns), "the step is waited for, and not for ever: {until:?}");
    // The closer it gets, the more is risked at a greater dial; nothing at the usual one.
    let closest = |dial| (0..2_000).find(|due_us| with_step_due(*due_us, dial).reason != Reason::Due);
    assert!(closest(0) == closest(250) && closest(250) > closest(500), "{:?} {:?}", closest(0), closest(250));
    assert_eq!(with_step_due(0, 1_000).reason, Reason::Unbounded);
}

#[test]
fn a_split_that_leaves_few_sms_is_for_latency_tenants_that_need_not_share() {
    const LADDER: &[u32] = &[16, 64, 128];
    let wide = Lane::Front { split: 2 };
    let lane = |policy: &str, me: Member, others: &[Member], dial| {
        let view = View { ladder: LADDER, width: 132, dial: Dial::new(dial), ..seen(0, me, others) };
        match decide(numbered(policy), &Launch::UNKNOWN, &view).decision {
            Decision::Run(lane) => Some(lane),
            Decision::Hold(_) => None,
        }
    };
    for policy in ["slo-aware", "tpot-first"] {
        assert_eq!(at_ease(numbered(policy), Class::Latency, LADDER, 132), wide);
        assert_eq!(at_ease(numbered(policy), Class::BestEffort, LADDER, 132), Lane::Full);
        assert_eq!(at_ease(numbered(policy), Class::Latency, &LADDER[..2], 132), Lane::Full);
        assert_eq!(lane(policy, SERVER, &[TRAINING], 250), Some(wide));
        // Its rest is no lane for anybody.
        assert_eq!(lane(policy, TRAINING, &[SERVER], 800), Some(Lane::Rest { split: 1 }));
    }
    assert_eq!(at_ease(numbered("exclusive"), Class::Latency, LADDER, 132), Lane::Full);
    assert!(matches!(lane("fair", SERVER, &[TRAINING], 250), Some(Lane::Front { split: 1 } | Lane::Rest { split: 1 })));
}

/// A server whose steps make use of so many thousandths of the GPU, and of what beside it a training decides.
fn with_needs(needs: u32, dial: u16) -> [Verdict; 2] {
    let rhythm = Rhythm { due_ns: None, spread_ns: 0, gap_ns: 5 * MS, lasts_ns: 10 * MS, needs, ..Rhythm::UNKNOWN };
    let server = Member { rhythm, ..SERVER };
    [(server, TRAINING), (TRAINING, server)].map(|(me, other)| {
        let others = [other];
        let view = View { dial: Dial::new(dial), ..seen(MS, me, &others) };
        decide(numbered("slo-aware"), &Launch { lasts_ns: Some(300_000), ..Launch::UNKNOWN }, &view)
    })
}

#[test]
fn beside_steps_that_leave_most_of_the_gpu_idle_others_have_the_rest() {
    for (needs, split) in [(1, 1), (120, 1), (242, 1), (243, 2), (250, 2)] {
        let [serve, train] = with_needs(needs, 250);
        assert_eq!((serve.decision, serve.reason), (Decision::Run(Lane::Front { split }), Reason::Apart), "{needs}");
        assert_eq!((train.decision, train.reason), (Decision::Run(Lane::Rest { split }), Reason::Beside), "{needs}");
    }
    for (needs, dial) in [(251, 250), (Rhythm::ALL, 250), (100, 99)] {
        let [serve, train] = with_needs(needs, dial);
        assert_eq!((serve.decision, train.reason), (Decision::Run(Lane::Full), Reason::Busy), "{needs} at {dial}");
    }
    let [serve, train] = with_needs(100, 1_000);
    assert_eq!((serve.decision, train.reason), (Decision::Run(Lane::Full), Reason::Unbounded));
}

/// A server that needs all of the GPU has it, whoever else is there.
#[test]
fn who_needs_all_of_the_gpu_is_made_way_for_beside_one_who_does_not() {
    let idle = Member { slot: 2, rhythm: Rhythm { needs: 100, ..Rhythm::UNKNOWN }, ..SERVER };
    let launch = Launch { lasts_ns: Some(300_000), ..Launch::UNKNOWN };
    let beside = |others: &[Member]| decide(numbered("slo-aware"), &launch, &seen(MS, TRAINING, others)).reason;
    assert_eq!((beside(&[idle, SERVER]), beside(&[idle])), (Reason::Busy, Reason::Beside));
}

/// Who makes way when objectives are missed: best-effort tenants first, then latency tenants by weight.
#[test]
fn who_misses_its_objectives_is_made_way_for_in_order() {
    let say = |policy: &str, me: Member, others: &[Member], bound| {
        let launch = Launch { lasts_ns: Some(300_000), bound, ..Launch::UNKNOWN };
        decide(numbered(policy), &launch, &View { dial: Dial::new(800), ..seen(100 * MS, me, others) })
    };
    let strained = Member { strained: true, weight: 200, ..SERVER };
    let few = Decision::Run(Lane::Rest { split: 4 });
    for policy in ["slo-aware", "tpot-first"] {
        assert_eq!(say(policy, TRAINING, &[SERVER], None).decision, few);
        assert_eq!(say(policy, TRAINING, &[strained], None).reason, Reason::Busy, "nothing is risked any more");
        let lighter = Member { slot: 3, weight: 100, ..SERVER };
        let verdict = say(policy, lighter, &[strained], None);
        assert_eq!((verdict.decision, verdict.reason), (Decision::Run(Lane::Rest { split: 3 }), Reason::Yields));
        for (heavier, other) in [(strained, lighter), (Member { weight: 200, ..lighter }, strained)] {
            assert_eq!(say(policy, heavier, &[other], None).decision, Decision::Run(Lane::Full));
        }
        let idle = Member { busy: false, ..strained };
        assert_eq!(say(policy, lighter, &[idle], None).decision, Decision::Run(Lane::Full));
    }
    // Tokens have time beside what SMs bind, not beside what memory binds as it does them.
    let rhythm = Rhythm { phase: Phase::Decode, pace_ns: 4 * MS, ..Rhythm::UNKNOWN };
    let decoding = Member { rhythm, tpot_ns: Some(20 * MS), ..SERVER };
    let beside = |bound| say("tpot-first", TRAINING, &[decoding], bound).decision;
    assert_eq!(beside(Some(Bound::Compute)), Decision::Run(Lane::Rest { split: 3 }));
    assert_eq!(beside(Some(Bound::Memory)), few);
}

#[test]
fn a_step_that_does_not_come_is_not_waited_for() {
    let rhythm = Rhythm { due_ns: Some(MS), spread_ns: 20_000, gap_ns: 5 * MS, lasts_ns: MS, ..Rhythm::UNKNOWN };
    let server = [Member { busy: false, rhythm, ..SERVER }];
    let launch = Launch { lasts_ns: Some(300_000), ..Launch::UNKNOWN };
    let at = |now_ns| decide(numbered("slo-aware"), &launch, &seen(now_ns, TRAINING, &server)).decision;
    assert!(matches!(at(MS + 10_000), Decision::Hold(_)), "it is a little late");
    assert_eq!(at(4 * MS), Decision::Run(Lane::Full));
}

/// A launch that is longer than all pauses, as far as anybody knows: where it has not run on all SMs for long it may run there
/// once, in the first half of a pause.
#[test]
fn what_never_fits_is_tried_again_now_and_then() {
    let said = |untried, due_ns, dial, ladder| {
        let rhythm = Rhythm { due_ns: Some(MS + due_ns), gap_ns: 5 * MS, lasts_ns: MS, ..Rhythm::UNKNOWN };
        let server = [Member { busy: false, rhythm, ..SERVER }];
        let launch = Launch { lasts_ns: Some(3_000 * MS), untried, ..Launch::UNKNOWN };
        decide(numbered("slo-aware"), &launch, &View { dial: Dial::new(dial), ladder, ..seen(MS, TRAINING, &server) })
    };
    let narrow = (Decision::Run(Lane::Rest { split: 4 }), Reason::Beside);
    let trial = (Decision::Run(Lane::Full), Reason::Trial);
    let of = |verdict: Verdict| (verdict.decision, verdict.reason);
    assert_eq!(of(said(false, 4 * MS, 250, &LADDER[..])), narrow);
    assert_eq!(of(said(true, 4 * MS, 250, &LADDER[..])), trial);
    assert_eq!(of(said(true, 4 * MS, 250, &[])), trial, "without lanes it would not run at all");
    assert_eq!(of(said(true, 2 * MS, 250, &LADDER[..])), narrow, "the step is too near");
    assert_eq!(of(said(true, 4 * MS, 99, &LADDER[..])), narrow, "nobody is disturbed at such a dial");
    assert_eq!(said(false, 4 * MS, 250, &[]).reason, Reason::Due);
}

/// Once the server had nothing to do for 10 s, and otherwise for 5 ms after each step.
#[test]
fn one_long_pause_makes_no_long_kernel_fit() {
    const PAUSES: u64 = 64;
    let (mut learner, mut at_ns) = (Learner::new(), MS);
    for pause in 0..=PAUSES {
        learner.began(at_ns);
        at_ns += MS;
        learner.ended(at_ns, None);
        at_ns += if pause == PAUSES / 2 { 10_000 * MS } else { 5 * MS };
    }
    let rhythm = learner.rhythm();
    let said = |untried| {
        let server = [Member { busy: false, rhythm, ..SERVER }];
        let launch = Launch { lasts_ns: Some(20 * MS), untried, ..Launch::UNKNOWN };
        decide(numbered("slo-aware"), &launch, &seen(rhythm.ended_ns + MS, TRAINING, &server))
    };
    let of = |verdict: Verdict| (verdict.decision, verdict.reason);
    assert_eq!(of(said(false)), (Decision::Run(Lane::Rest { split: 4 }), Reason::Beside), "{rhythm:?}");
    assert_eq!(of(said(true)), (Decision::Run(Lane::Full), Reason::Trial), "{rhythm:?}");
}

/// What few SMs mean to a kernel is found out where that is of use, and where it is in nobody's way.
#[test]
fn kernels_are_explored_where_it_is_of_use() {
    let said = |policy: &str, lasts_ns, due_ns: Option<u64>, dial| {
        let rhythm = Rhythm { due_ns, gap_ns: 5 * MS, lasts_ns: MS, ..Rhythm::UNKNOWN };
        let server = [Member { busy: false, rhythm, ..SERVER }];
        let launch = Launch { lasts_ns: Some(lasts_ns), unexplored: true, ..Launch::UNKNOWN };
        decide(numbered(policy), &launch, &View { dial: Dial::new(dial), ..seen(MS, TRAINING, &server) }).reason
    };
    let soon = Some(MS + 900_000);
    for (dial, explored) in [(0, false), (250, false), (499, false), (500, true), (749, true), (750, false)] {
        assert_eq!(said("slo-aware", 100_000, None, dial) == Reason::Explored, explored, "at {dial}");
        assert_eq!(said("tpot-first", 100_000, None, dial), Reason::Explored, "at {dial}");
    }
    assert_eq!(said("slo-aware", 100_000, soon, 600), Reason::Explored);
    assert_eq!(said("slo-aware", 300_000, soon, 600), Reason::Fits, "on few SMs it would be in the way");
    assert_eq!(said("slo-aware", MS, None, 600), Reason::Free, "it would take too long there");
}

#[test]
fn what_binds_a_kernel_is_told_by_what_it_takes_on_few_sms() {
    let on_36 = |ns| Bound::told_by((300_000, 132), (ns, 36));
    assert_eq!((on_36(1_100_000), on_36(820_000)), (Some(Bound::Compute), Some(Bound::Compute)));
    assert_eq!((on_36(310_000), on_36(700_000)), (Some(Bound::Memory), Some(Bound::Memory)));
    assert_eq!(on_36(250_000), Some(Bound::Memory), "measured badly");
    assert_eq!((on_36(0), Bound::told_by((300_000, 132), (300_000, 132))), (None, None));
    assert_eq!(Bound::told_by((0, 132), (5, 36)), None);
    assert_eq!(Bound::told_by((u64::MAX, u32::MAX), (u64::MAX, 1)), Some(Bound::Memory));
}

/// What somebody says of its next step is believed where it can be, and it is said where it is not.
#[test]
fn a_due_time_that_is_not_trusted_is_said_to_be() {
    let said = |busy, due_ns, spread_ns| {
        let rhythm = Rhythm { due_ns, spread_ns, gap_ns: 5 * MS, lasts_ns: MS, ..Rhythm::UNKNOWN };
        let server = [Member { busy, rhythm, ..SERVER }];
        decide(numbered("slo-aware"), &Launch::UNKNOWN, &seen(10 * MS, TRAINING, &server)).distrusts
    };
    assert!(said(false, Some(5 * MS), 0), "it should have begun long ago");
    assert!(said(false, Some(12 * MS), MS), "it may begin at any time around");
    assert!(!said(false, Some(12 * MS), 0) && !said(false, None, 0) && !said(true, Some(5 * MS), 0));
}

#[test]
fn beside_a_step_runs_what_the_dial_allows_and_on_few_sms() {
    let decided = |bound, dial, ladder| {
        let launch = Launch { lasts_ns: Some(300_000), bound, ..Launch::UNKNOWN };
        let view = View { dial: Dial::new(dial), ladder, ..seen(MS, TRAINING, &[SERVER]) };
        decide(numbered("slo-aware"), &launch, &view)
    };
    let beside = Decision::Run(Lane::Rest { split: 4 });
    for bound in [None, Some(Bound::Memory), Some(Bound::Compute)] {
        assert_eq!(decided(bound, 499, &LADDER[..]).reason, Reason::Busy);
        assert_eq!(decided(bound, 750, &LADDER[..]).decision, beside);
        assert_eq!(decided(bound, 999, &[]).reason, Reason::Busy, "without lanes there is no beside");
        assert_eq!(decided(bound, 1_000, &[]).decision, Decision::Run(Lane::Full));
    }
    assert_eq!(decided(Some(Bound::Compute), 500, &LADDER[..]).decision, beside);
    assert_eq!(decided(Some(Bound::Memory), 749, &LADDER[..]).reason, Reason::Busy);
    assert_eq!(decided(None, 749, &LADDER[..]).reason, Reason::Busy, "nobody knows what it needs");
}

/// What may be in flight is for all best-effort tenants together: with as many as want the GPU each has a part of it.
#[test]
fn what_may_be_in_flight_is_divided_among_those_that_want_the_gpu() {
    let others = |wanting: u8| {
        let rival = |slot| Member { slot, busy: slot < 2 + wanting, ..TRAINING };
        let idle = Member { busy: false, ..SERVER };
        [idle].into_iter().chain((2..6).map(rival)).collect::<Vec<_>>()
    };
    // The most that it may have in flight when it launches once more.
    let most = |wanting| {
        let others = others(wanting);
        let runs = |in_flight_ns: &u64| {
            let view = View { in_flight_ns: *in_flight_ns, ..seen(MS, TRAINING, &others) };
            matches!(decide(numbered("slo-aware"), &Launch::UNKNOWN, &view).decision, Decision::Run(_))
        };
        (0..200_000).step_by(1_000).take_while(runs).last().expect("nothing is not too much")
    };
    let alone = most(0);
    for (wanting, parts) in [(1, 2), (3, 4)] {
        assert!((alone / parts - 1_000..=alone / parts).contains(&most(wanting)), "{} of {alone}", most(wanting));
    }
}

/// What may be in flight so long after a random step, of one whose pauses are mostly as short and as long.
fn most_in_flight(since_ns: u64, [soon_ns, long_ns]: [u64; 2]) -> u64 {
    let rhythm = Rhythm { ended_ns: 10 * MS, soon_ns, long_ns, gap_ns: 8 * MS, lasts_ns: MS, ..Rhythm::UNKNOWN };
    let server = [Member { busy: false, rhythm, ..SERVER }];
    let runs = |in_flight_ns: &u64| {
        let view = View { in_flight_ns: *in_flight_ns, ..seen(10 * MS + since_ns, TRAINING, &server) };
        matches!(decide(numbered("slo-aware"), &Launch::UNKNOWN, &view).decision, Decision::Run(_))
    };
    (0..MS).step_by(10_000).take_while(runs).last().expect("nothing is not too much")
}

/// Beside a server that has been idle for far longer than between any two steps a training is not kept short.
#[test]
fn who_is_idle_for_long_is_not_waited_for() {
    const SECOND: u64 = 1_000 * MS;
    let expected = most_in_flight(0, [4 * MS, 0]);
    for pauses in [[0, 0], [MS, 40 * MS]] {
        assert_eq!(most_in_flight(5 * SECOND, pauses), 130_000);
        assert_eq!(most_in_flight(5 * SECOND + 1, pauses), expected);
    }
    let seldom = [SECOND, 4 * SECOND];
    assert_eq!(most_in_flight(64 * SECOND, seldom), 130_000, "it is idle as long as that now and then");
    assert_eq!(most_in_flight(65 * SECOND, seldom), expected);
}

/// Where steps come at random, more may be in flight for as long as hardly a pause was ever as short.
#[test]
fn random_steps_are_least_expected_right_after_the_last() {
    let most = |since_ns, soon_ns| most_in_flight(since_ns, [soon_ns, 0]);
    let at_any_time = most(0, 0);
    assert_eq!(at_any_time, 130_000);
    assert_eq!(most(0, 4 * MS), 400_000, "as much as where steps are expected");
    assert_eq!(most(3 * MS, 4 * MS), 250_000, "a quarter of what is left");
    assert_eq!((most(4 * MS, 4 * MS), most(9 * MS, 4 * MS)), (at_any_time, at_any_time));
    assert_eq!(most(0, 400_000), at_any_time, "so soon that it is no different");
}

/// A step that is due leaves time for what other best-effort tenants have in flight.
#[test]
fn what_others_may_have_in_flight_has_to_be_over_too() {
    let rhythm = Rhythm { due_ns: Some(2 * MS), gap_ns: 5 * MS, lasts_ns: MS, ..Rhythm::UNKNOWN };
    let server = Member { busy: false, rhythm, ..SERVER };
    let longest = |others: &[Member]| {
        let fits = |lasts_ns: &u64| {
            let launch = Launch { lasts_ns: Some(*lasts_ns), ..Launch::UNKNOWN };
            decide(numbered("slo-aware"), &launch, &seen(MS, TRAINING, others)).reason != Reason::Due
        };
        (0..MS).step_by(1_000).take_while(fits).last().expect("the shortest fits")
    };
    let rival = Member { slot: 2, ..TRAINING };
    assert!(longest(&[server]) > longest(&[server, rival]) + 50_000);
    assert_eq!(longest(&[server]), longest(&[server, Member { busy: false, ..rival }]));
}

/// A server that was stopped in the middle of a step, as others see it so many milliseconds after that began.
fn stopped(slot: u8, after_ms: u64, phase: Phase, lasts_ns: u64) -> (u64, Member) {
    const BEGUN: u64 = 1_000 * MS;
    let rhythm =
        Rhythm { begun_ns: BEGUN, ended_ns: BEGUN - 5 * MS, lasts_ns, phase, pace_ns: 4 * MS, ..Rhythm::UNKNOWN };
    (BEGUN + after_ms * MS, Member { slot, rhythm, tpot_ns: Some(20 * MS), weight: 200, strained: true, ..SERVER })
}

/// Nobody would have anything of the GPU but its least share, for as long as the process is not continued.
#[test]
fn a_step_that_stands_still_is_made_way_for_no_longer() {
    let say = |policy, me, (now_ns, stopped): (u64, Member)| {
        let verdict = decide(
            numbered(policy),
            &Launch { lasts_ns: Some(300_000), ..Launch::UNKNOWN },
            &seen(now_ns, me, &[stopped]),
        );
        (verdict.decision, verdict.reason)
    };
    let all = |reason| (Decision::Run(Lane::Full), reason);
    let other = Member { slot: 3, rhythm: Rhythm { phase: Phase::Prefill, ..Rhythm::UNKNOWN }, ..SERVER };
    for policy in ["slo-aware", "tpot-first"] {
        for phase in [Phase::Unknown, Phase::Decode, Phase::Prefill] {
            let [before, after] = [5_000, 5_001].map(|ms| stopped(1, ms, phase, 10 * MS));
            assert!(matches!(say(policy, TRAINING, before).0, Decision::Hold(_)), "{policy} {phase:?}");
            assert_eq!(say(policy, TRAINING, after), all(Reason::Stalled), "{policy} {phase:?}");
            assert_eq!(say(policy, other, before).1, Reason::Yields);
            assert_eq!(say(policy, other, after), all(Reason::Urgent), "{policy} {phase:?}");
            // It goes on launching, or its steps last for seconds.
            let launched = Rhythm { launched_ns: after.0 - 1_000 * MS, ..after.1.rhythm };
            let goes_on = (after.0, Member { rhythm: launched, ..after.1 });
            assert!(matches!(say(policy, TRAINING, goes_on).0, Decision::Hold(_)), "{policy} {phase:?}");
            let slow = stopped(1, 60_000, phase, 1_000 * MS);
            assert!(matches!(say(policy, TRAINING, slow).0, Decision::Hold(_)), "{policy} {phase:?}");
        }
    }
}

#[test]
fn an_unknown_policy_holds_nobody() {
    let me = Member { waiting: true, ..TRAINING };
    let others = [SERVER];
    let verdict = decide(u32::MAX, &Launch::UNKNOWN, &seen(5, me, &others));
    assert_eq!((verdict.decision, verdict.reason), (Decision::Run(Lane::Full), Reason::NoPolicy));
}

#[test]
fn reasons_have_numbers_and_policies_names_of_their_own() {
    for (place, reason) in Reason::ALL.into_iter().enumerate() {
        assert_eq!(usize::from(reason.number()), place + 1);
        assert_eq!(Reason::from_number(reason.number()), Some(reason));
    }
    assert_eq!((Reason::from_number(0), Reason::from_number(u8::MAX)), (None, None));
    for (place, policy) in POLICIES.iter().enumerate() {
        assert_eq!(number(policy.name), u32::try_from(place).ok());
    }
}
