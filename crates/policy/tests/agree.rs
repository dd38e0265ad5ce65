//! Tenants that see the same board decide so that it fits together, whatever is on it; nobody who may not wait is held,
//! nobody starves, and no input is too absurd for an answer.

use detshare_policy::phase::Phase;
use detshare_policy::rhythm::{Learner, Work};
use detshare_policy::{
    Bound, Class, Decision, Dial, Lane, Launch, Member, POLICIES, Reason, Rhythm, Until, Verdict, View, at_ease,
    decide, number,
};
use proptest::prelude::*;

const LADDER: [u32; 5] = [16, 32, 48, 64, 96];
const WIDTH: u32 = 132;
const MS: u64 = 1_000_000;
/// No hold is asked for that lasts longer.
const LONGEST_HOLD_NS: u64 = 64 * MS;

/// A best-effort tenant that has work on the GPU.
const TRAINING: Member = Member {
    slot: 0,
    class: Class::BestEffort,
    weight: 100,
    busy: true,
    waiting: false,
    rhythm: Rhythm::UNKNOWN,
    ttft_ns: None,
    tpot_ns: None,
    strained: false,
};
/// A latency tenant in the middle of a step.
const SERVER: Member = Member { slot: 1, class: Class::Latency, ..TRAINING };

/// What a launch sees with all lanes there, as it mostly is.
fn seen<'a>(now_ns: u64, me: Member, others: &'a [Member]) -> View<'a> {
    View { now_ns, others, ladder: &LADDER, width: WIDTH, least_share: 100, ..View::alone(me) }
}

fn all_policies() -> impl Iterator<Item = u32> {
    POLICIES.iter().map(|policy| numbered(policy.name))
}

fn numbered(name: &str) -> u32 {
    number(name).expect("there is one of that name")
}

/// Members with different slots, in any state, of whose steps nothing is known.
fn members() -> impl Strategy<Value = Vec<Member>> {
    let one = (any::<bool>(), 1_u32..=10_000, any::<bool>(), any::<bool>(), any::<bool>());
    proptest::collection::btree_map(0_u8..64, one, 1..12).prop_map(|members| {
        let member = |(slot, (urgent, weight, busy, waiting, strained))| {
            let class = if urgent { Class::Latency } else { Class::BestEffort };
            Member { slot, class, weight, busy, waiting, strained, ..TRAINING }
        };
        members.into_iter().map(member).collect()
    })
}

/// Times in the milliseconds in which things happen, and short ones as often as long ones.
fn duration() -> impl Strategy<Value = u64> {
    prop_oneof![0..300_000_u64, 0..5 * MS, 0..300 * MS]
}

fn option_of_duration() -> impl Strategy<Value = Option<u64>> {
    proptest::option::of(duration())
}

/// What can be known of a tenant's steps around a time.
fn rhythm(now_ns: u64) -> impl Strategy<Value = Rhythm> {
    let due = prop_oneof![
        Just(None),
        (duration(), any::<bool>()).prop_map(move |(ns, late)| Some(if late { now_ns - ns } else { now_ns + ns })),
    ];
    let needs = prop_oneof![Just(Rhythm::ALL), 1..=Rhythm::ALL];
    let phase = (0..3_u8).prop_map(Phase::from_number);
    let known = (due, 0..700_000_u64, duration(), duration(), needs);
    (known, phase, duration(), duration()).prop_map(
        move |((due_ns, spread_ns, gap_ns, lasts_ns, needs), phase, pace_ns, begun)| {
            let begun_ns = now_ns - begun;
            Rhythm { due_ns, spread_ns, gap_ns, lasts_ns, needs, phase, pace_ns, begun_ns }
        },
    )
}

fn launch() -> impl Strategy<Value = Launch> {
    let bound = prop_oneof![Just(None), Just(Some(Bound::Compute)), Just(Some(Bound::Memory))];
    (proptest::option::of(duration()), bound).prop_map(|(lasts_ns, bound)| Launch { lasts_ns, bound })
}

/// A moment: what a tenant may see, at any dial and whatever its share is.
#[derive(Debug, Clone)]
struct Moment {
    now_ns: u64,
    me: Member,
    others: Vec<Member>,
    lanes: bool,
    in_flight_ns: u64,
    share: u32,
    least_share: u32,
    quarantined: bool,
    dial: Dial,
}

impl Moment {
    fn view(&self) -> View<'_> {
        View {
            now_ns: self.now_ns,
            me: self.me,
            others: &self.others,
            ladder: if self.lanes { &LADDER } else { &[] },
            width: WIDTH,
            in_flight_ns: self.in_flight_ns,
            share: self.share,
            least_share: self.least_share,
            quarantined: self.quarantined,
            dial: self.dial,
        }
    }

    /// The others that want the GPU, as bits.
    fn wanting(&self) -> u64 {
        let wanting = self.others.iter().filter(|other| other.busy || other.waiting);
        wanting.fold(0, |slots, other| slots | 1 << other.slot)
    }
}

fn moment() -> impl Strategy<Value = Moment> {
    let started = 1_000 * MS;
    (members(), started..2 * started).prop_flat_map(|(members, now_ns)| {
        let rhythms = proptest::collection::vec(rhythm(now_ns), members.len());
        let flags = (any::<bool>(), any::<bool>());
        let objectives = proptest::collection::vec((option_of_duration(), option_of_duration()), members.len());
        let known = (rhythms, objectives);
        (known, flags, duration(), 0..=1_000_u32, 0..=300_u32, 0..=1_000_u16).prop_map(
            move |((rhythms, objectives), (lanes, quarantined), in_flight_ns, share, least_share, dial)| {
                let known = members.iter().zip(rhythms.into_iter().zip(objectives));
                let known =
                    known.map(|(member, (rhythm, (ttft_ns, tpot_ns)))| Member { rhythm, ttft_ns, tpot_ns, ..*member });
                let mut others: Vec<Member> = known.collect();
                let me = others.remove(0);
                let dial = Dial::new(dial);
                Moment { now_ns, me, others, lanes, in_flight_ns, share, least_share, quarantined, dial }
            },
        )
    })
}

/// The same for a best-effort tenant, with a launch. Often the GPU is free of steps, so that prediction decides, and often
/// by little: a step is due about when the launch would be over, as much is in flight as may be, or the launch is longer than
/// the pauses between steps.
fn close_moment() -> impl Strategy<Value = (Moment, Launch)> {
    let near = -2_000_000_i64..2_000_000;
    let in_flight = prop_oneof![duration(), 0..600_000_u64];
    (moment(), launch(), any::<[bool; 3]>(), near, in_flight).prop_map(
        |(mut moment, launch, [calm, close, long], near, in_flight_ns)| {
            moment.me.class = Class::BestEffort;
            moment.in_flight_ns = in_flight_ns;
            if calm {
                moment.others.iter_mut().for_each(|other| (other.busy, other.waiting) = (false, false));
            }
            if close && let Some(other) = moment.others.first_mut() {
                let over_ns = moment.now_ns + in_flight_ns + launch.expected_ns();
                other.class = Class::Latency;
                other.rhythm.due_ns = Some(over_ns.saturating_add_signed(near));
                if long {
                    other.rhythm.gap_ns = launch.expected_ns() / 2;
                }
            }
            (moment, launch)
        },
    )
}

/// Any dial; those at which policies change their ways, and their neighbours, more often than chance has them.
fn dial() -> impl Strategy<Value = u16> {
    prop_oneof![0..=1_000_u16, proptest::sample::select(vec![0, 249, 250, 499, 500, 501, 749, 750, 751, 999, 1_000])]
}

/// What each of those that want the GPU would be told if it launched now.
fn decisions(policy: &str, now_ns: u64, members: &[Member], ladder: &[u32]) -> Vec<(Member, Decision)> {
    let wanting = members.iter().filter(|member| member.busy || member.waiting);
    wanting
        .map(|me| {
            let others: Vec<Member> = members.iter().copied().filter(|other| other.slot != me.slot).collect();
            let view = View { ladder, ..seen(now_ns, *me, &others) };
            (*me, decide(numbered(policy), &Launch::UNKNOWN, &view).decision)
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

/// A decision that somebody can act upon: a lane that there is, or a hold that ends, and soon.
fn check_sensible(view: &View<'_>, verdict: Verdict) -> Result<(), TestCaseError> {
    match verdict.decision {
        Decision::Run(Lane::Full) => {}
        Decision::Run(Lane::Front { split } | Lane::Rest { split }) => prop_assert!(split < view.ladder.len()),
        Decision::Hold(Until { at_ns, .. }) => {
            // The clock cannot go further than its end.
            prop_assert!(at_ns > view.now_ns || view.now_ns == u64::MAX, "{verdict:?}");
            // More tenants than there are slots have longer to wait for a turn.
            let longest_ns = LONGEST_HOLD_NS.max(u64::try_from(view.others.len() + 1).unwrap() * MS);
            prop_assert!(at_ns <= view.now_ns.saturating_add(longest_ns), "{verdict:?}");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn whoever_is_alone_has_everything(now in any::<u64>(), mut all in members()) {
        for member in &mut all[1..] {
            (member.busy, member.waiting) = (false, false);
        }
        for policy in all_policies() {
            let verdict = decide(policy, &Launch::UNKNOWN, &seen(now, all[0], &all[1..]));
            prop_assert_eq!(verdict.decision, Decision::Run(Lane::Full));
        }
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
    fn a_hold_ends_and_waits_for_those_that_want_the_gpu(moment in moment(), launch in launch()) {
        for policy in all_policies() {
            let verdict = decide(policy, &launch, &moment.view());
            check_sensible(&moment.view(), verdict)?;
            if let Decision::Hold(until) = verdict.decision {
                prop_assert_eq!(until.steps & 1 << moment.me.slot, 0, "nobody waits for itself");
                prop_assert_eq!(until.steps & !moment.wanting(), 0, "who wants nothing is not waited for");
                let is_for_somebody = matches!(verdict.reason, Reason::Busy | Reason::NotItsTurn);
                prop_assert_eq!(until.steps != 0, is_for_somebody, "{:?}", verdict);
                let because_of = verdict.because_of.filter(|slot| *slot != moment.me.slot);
                let is_there = moment.others.iter().any(|other| Some(other.slot) == because_of);
                prop_assert!(is_there || verdict.reason == Reason::InFlight, "{:?}", verdict);
            }
        }
    }

    #[test]
    fn latency_tenants_are_not_held(mut moment in moment(), launch in launch()) {
        moment.me.class = Class::Latency;
        for policy in ["slo-aware", "throughput", "tpot-first"] {
            let verdict = decide(numbered(policy), &launch, &moment.view());
            let Decision::Run(lane) = verdict.decision else { panic!("{policy}: {verdict:?}") };
            let has = sms(lane).len();
            let needed = (WIDTH * moment.me.rhythm.needs).div_ceil(Rhythm::ALL);
            // Where tokens keep their pace, others' prompts and theirs have half of the SMs each; so has who makes way.
            let may_have_half = match verdict.reason {
                Reason::Complement => policy == "tpot-first",
                reason => reason == Reason::Yields,
            };
            let has_half = may_have_half && has >= 64;
            prop_assert!(has_half || has >= usize::try_from(needed).unwrap(), "{}: {} SMs of {}", policy, has, needed);
            let is_apart = verdict.reason == Reason::Apart || has_half;
            prop_assert!(is_apart || lane == Lane::Full, "{}: {:?}", policy, verdict);
        }
    }

    #[test]
    fn a_greater_dial_lets_more_run_and_sooner(
        (moment, launch) in close_moment(), one in dial(), other in dial(),
    ) {
        let at = |dial| decide(numbered("slo-aware"), &launch, &View { dial: Dial::new(dial), ..moment.view() }).decision;
        match (at(one.min(other)), at(one.max(other))) {
            (Decision::Run(_), at_more) => prop_assert!(matches!(at_more, Decision::Run(_)), "{:?}", at_more),
            // Beside whom nobody is held from some dial on, all that is waited for is something else.
            (Decision::Hold(less), Decision::Hold(more)) if moment.others.iter().all(|other| other.rhythm.needs > 250) => {
                prop_assert!(more.at_ns <= less.at_ns);
            }
            (Decision::Hold(_), _) => {}
        }
    }

    #[test]
    fn whoever_is_below_its_least_share_runs(mut moment in moment(), launch in launch()) {
        moment.share = moment.share.min(299);
        moment.least_share = moment.share + 1;
        for policy in ["slo-aware", "throughput", "tpot-first"] {
            let verdict = decide(numbered(policy), &launch, &moment.view());
            let runs = matches!(verdict.decision, Decision::Run(_));
            prop_assert!(runs || verdict.reason == Reason::InFlight, "{}: {:?}", policy, verdict);
            let verdict = decide(numbered(policy), &launch, &View { in_flight_ns: 0, ..moment.view() });
            prop_assert!(matches!(verdict.decision, Decision::Run(_)), "{}: {:?}", policy, verdict);
        }
    }

    #[test]
    fn what_nobody_knows_is_taken_for_a_usual_kernel(moment in moment(), absurd in 10_000_000_001..=u64::MAX) {
        let unknown = Launch::UNKNOWN;
        let usual = Launch { lasts_ns: Some(Launch::USUAL_NS), ..unknown };
        let not_believed = Launch { lasts_ns: Some(absurd), ..unknown };
        prop_assert_eq!((unknown.expected_ns(), not_believed.expected_ns()), (Launch::USUAL_NS, Launch::USUAL_NS));
        for policy in all_policies() {
            let expected = decide(policy, &usual, &moment.view());
            prop_assert_eq!(decide(policy, &unknown, &moment.view()), expected);
            prop_assert_eq!(decide(policy, &not_believed, &moment.view()), expected);
        }
    }

    #[test]
    fn the_same_is_decided_alike_in_whatever_order_others_come(moment in moment(), launch in launch(), by in 0..12_usize) {
        let mut turned = moment.clone();
        let by = by % turned.others.len().max(1);
        turned.others.rotate_left(by);
        for policy in all_policies() {
            let verdict = decide(policy, &launch, &moment.view());
            prop_assert_eq!(decide(policy, &launch, &moment.view()), verdict);
            prop_assert_eq!(decide(policy, &launch, &turned.view()).decision, verdict.decision);
        }
    }
}

/// Any number, the ends of its range more often than chance has them.
fn wild() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), 0..3_u64, (0..3_u64).prop_map(|n| u64::MAX - n), duration()]
}

fn wild_u32() -> impl Strategy<Value = u32> {
    prop_oneof![any::<u32>(), 0..3_u32, (0..3_u32).prop_map(|n| u32::MAX - n)]
}

fn wild_member() -> impl Strategy<Value = Member> {
    let rhythm = (proptest::option::of(wild()), wild(), wild(), wild(), wild_u32()).prop_map(
        |(due_ns, spread_ns, gap_ns, lasts_ns, needs)| {
            let phase = Phase::from_number(u8::try_from(needs % 3).unwrap_or(0));
            Rhythm { due_ns, spread_ns, gap_ns, lasts_ns, needs, phase, pace_ns: gap_ns, begun_ns: lasts_ns }
        },
    );
    (any::<u8>(), any::<bool>(), wild_u32(), any::<bool>(), any::<bool>(), rhythm).prop_map(
        |(slot, urgent, weight, busy, waiting, rhythm)| {
            let class = if urgent { Class::Latency } else { Class::BestEffort };
            Member {
                slot,
                class,
                weight,
                busy,
                waiting,
                rhythm,
                ttft_ns: rhythm.due_ns,
                tpot_ns: Some(rhythm.spread_ns),
                strained: rhythm.needs.is_multiple_of(2),
            }
        },
    )
}

/// A few mostly, and now and then more than there are slots.
fn wild_members() -> impl Strategy<Value = Vec<Member>> {
    let of = |count: core::ops::Range<usize>| proptest::collection::vec(wild_member(), count);
    prop_oneof![30 => of(0..6), 1 => of(60..80)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5_000, failure_persistence: None, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn absurd_input_gets_a_sensible_answer(
        (me, others) in (wild_member(), wild_members()),
        (now_ns, in_flight_ns) in (wild(), wild()),
        (ladder, width) in (proptest::collection::vec(wild_u32(), 0..20), wild_u32()),
        (share, least_share, dial, quarantined) in (wild_u32(), wild_u32(), any::<u16>(), any::<bool>()),
        (lasts_ns, bound) in (proptest::option::of(wild()), launch().prop_map(|launch| launch.bound)),
    ) {
        let dial = Dial::new(dial);
        let (others, ladder) = (&others[..], &ladder[..]);
        let view = View { now_ns, me, others, ladder, width, in_flight_ns, share, least_share, quarantined, dial };
        for policy in all_policies() {
            check_sensible(&view, decide(policy, &Launch { lasts_ns, bound }, &view))?;
        }
    }

    #[test]
    fn what_is_learned_from_a_clock_that_jumps_does_no_harm(
        steps in proptest::collection::vec((wild(), wild()), 1..40), now_ns in wild(), launch in launch(),
    ) {
        let mut learner = Learner::new();
        for (began, ended) in steps {
            learner.began(began);
            learner.ended(ended, Some(Work { all_ns: began, ran_ns: ended }));
        }
        let server = Member { busy: false, rhythm: learner.rhythm(), ..SERVER };
        for policy in all_policies() {
            let view = seen(now_ns, TRAINING, core::slice::from_ref(&server));
            check_sensible(&view, decide(policy, &launch, &view))?;
        }
    }
}

/// Launches that a best-effort tenant makes in a time beside a latency tenant that never gives way. Its share is counted as
/// a tenant counts it: the part of the last 100 ms in which it was not held. No launch is held for longer than
/// `longest_hold_ns`.
fn launches_beside(server: impl Fn(u64) -> Member, policy: &str, dial: Dial, longest_hold_ns: u64) -> u32 {
    const LAUNCH_NS: u64 = 10_000;
    const RUN_NS: u64 = 2_000 * MS;
    const WINDOW_NS: u64 = 100 * MS;
    let mut held = Vec::new();
    let (mut now_ns, mut launches) = (1_000 * MS, 0);
    let ends_ns = now_ns + RUN_NS;
    while now_ns < ends_ns {
        let asked_ns = now_ns;
        while now_ns < ends_ns {
            let from_ns = now_ns - WINDOW_NS;
            let waiting = (asked_ns, now_ns);
            let overlap = |(begun, over): &(u64, u64)| over.saturating_sub(*begun.max(&from_ns));
            let held_ns: u64 = held.iter().rev().take_while(|(_, over)| *over > from_ns).map(overlap).sum();
            let share = 1_000 - (held_ns + overlap(&waiting)) * 1_000 / WINDOW_NS;
            let server = [server(now_ns)];
            let view = View {
                share: u32::try_from(share).unwrap(),
                dial,
                ..seen(now_ns, Member { busy: false, ..TRAINING }, &server)
            };
            let launch = Launch { lasts_ns: Some(300_000), bound: Some(Bound::Memory) };
            let Decision::Hold(until) = decide(numbered(policy), &launch, &view).decision else { break };
            assert!(until.at_ns > now_ns, "{policy}: {until:?} at {now_ns}");
            now_ns = until.at_ns.min(asked_ns + longest_hold_ns);
            if now_ns == asked_ns + longest_hold_ns {
                break;
            }
        }
        if now_ns > asked_ns {
            held.push((asked_ns, now_ns));
        }
        launches += 1;
        now_ns += LAUNCH_NS;
    }
    launches
}

#[test]
fn nobody_starves() {
    let always_busy = |_| SERVER;
    let always_due = |now_ns| {
        let rhythm = Rhythm { due_ns: Some(now_ns + 1), spread_ns: 0, gap_ns: MS, lasts_ns: MS, ..Rhythm::UNKNOWN };
        Member { busy: false, rhythm, ..SERVER }
    };
    let always_late = |now_ns| {
        let rhythm = Rhythm { due_ns: Some(now_ns), spread_ns: 500_000, gap_ns: MS, lasts_ns: MS, ..Rhythm::UNKNOWN };
        Member { busy: false, rhythm, ..SERVER }
    };
    let servers: [&dyn Fn(u64) -> Member; 3] = [&always_busy, &always_due, &always_late];
    for server in servers {
        for dial in [0, 250, 1_000].map(Dial::new) {
            // By what the policies say alone. `exclusive` means what it says; there, only the longest hold helps.
            for policy in ["slo-aware", "fair", "throughput", "tpot-first"] {
                let launches = launches_beside(server, policy, dial, u64::MAX / 2);
                assert!(launches >= 2_000, "{policy} at {dial:?}: {launches} launches in 2 s");
            }
            for policy in POLICIES {
                let launches = launches_beside(server, policy.name, dial, 20 * MS);
                assert!(launches >= 99, "{} at {dial:?}: {launches} launches in 2 s", policy.name);
            }
        }
    }
}

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
    let launch = Launch { lasts_ns: Some(300_000), bound: Some(Bound::Compute) };
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
    // The closer it gets, the more is risked at a greater dial.
    let closest = |dial| (0..2_000).find(|due_us| with_step_due(*due_us, dial).reason != Reason::Due);
    assert!(closest(0) > closest(250) && closest(250) > closest(500), "{:?} {:?}", closest(0), closest(250));
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
        decide(numbered("slo-aware"), &Launch { lasts_ns: Some(300_000), bound: None }, &view)
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
    let launch = Launch { lasts_ns: Some(300_000), bound: None };
    let beside = |others: &[Member]| decide(numbered("slo-aware"), &launch, &seen(MS, TRAINING, others)).reason;
    assert_eq!((beside(&[idle, SERVER]), beside(&[idle])), (Reason::Busy, Reason::Beside));
}

/// Two LLM servers and a training, and what `tpot-first` says to each: the first decodes, the second is in that phase.
fn beside_decoding(phase: Phase, tpot_ns: Option<u64>) -> [Verdict; 3] {
    let rhythm = Rhythm { phase: Phase::Decode, pace_ns: 4 * MS, begun_ns: 90 * MS, ..Rhythm::UNKNOWN };
    let decoding = Member { slot: 1, rhythm, tpot_ns, ..SERVER };
    let second = Member { slot: 2, rhythm: Rhythm { phase, ..rhythm }, ttft_ns: Some(40 * MS), ..decoding };
    let training = Member { busy: false, ..TRAINING };
    let all = [decoding, second, training];
    core::array::from_fn(|me| {
        let others: Vec<Member> = (0..3).filter(|other| *other != me).map(|other| all[other]).collect();
        decide(
            numbered("tpot-first"),
            &Launch { lasts_ns: Some(300_000), bound: None },
            &seen(100 * MS, all[me], &others),
        )
    })
}

#[test]
fn tokens_and_others_prompts_have_half_of_the_sms_each() {
    let [decoding, prefill, training] = beside_decoding(Phase::Prefill, None);
    assert_eq!(decoding.decision, Decision::Run(Lane::Front { split: 3 }));
    assert_eq!(prefill.decision, Decision::Run(Lane::Rest { split: 3 }));
    assert_eq!(training.reason, Reason::Busy, "it waits for both");
    // Two that decode take what they need of the bandwidth, each on all SMs.
    let [one, other, _] = beside_decoding(Phase::Decode, None);
    assert_eq!((one.decision, other.decision), (Decision::Run(Lane::Full), Decision::Run(Lane::Full)));
    let [one, other, _] = beside_decoding(Phase::Unknown, None);
    assert_eq!((one.decision, other.decision), (Decision::Run(Lane::Full), Decision::Run(Lane::Full)));
}

#[test]
fn a_prompt_whose_first_token_is_late_has_all_sms() {
    let rhythm = Rhythm { phase: Phase::Prefill, begun_ns: 100 * MS, ..Rhythm::UNKNOWN };
    let prefill = Member { slot: 2, rhythm, ttft_ns: Some(40 * MS), ..SERVER };
    let decoding = [Member { rhythm: Rhythm { phase: Phase::Decode, ..Rhythm::UNKNOWN }, ..SERVER }];
    let at = |now_ns| decide(numbered("tpot-first"), &Launch::UNKNOWN, &seen(now_ns, prefill, &decoding)).decision;
    assert_eq!(at(119 * MS), Decision::Run(Lane::Rest { split: 3 }));
    assert_eq!(at(121 * MS), Decision::Run(Lane::Full));
}

/// Who makes way when objectives are missed: best-effort tenants first, then latency tenants by weight.
#[test]
fn who_misses_its_objectives_is_made_way_for_in_order() {
    let say = |policy: &str, me: Member, others: &[Member], bound| {
        let launch = Launch { lasts_ns: Some(300_000), bound };
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
fn where_tokens_have_time_training_has_half_of_the_sms() {
    let [decoding, other, training] = beside_decoding(Phase::Decode, Some(8 * MS));
    assert_eq!(training.decision, Decision::Run(Lane::Rest { split: 3 }));
    assert_eq!(
        (decoding.decision, other.decision),
        (Decision::Run(Lane::Full), Decision::Run(Lane::Full)),
        "it is idle now"
    );
    let [_, _, training] = beside_decoding(Phase::Decode, Some(8 * MS - 1));
    assert_eq!(training.reason, Reason::Busy, "they need more than half of what they have");
    let [_, _, training] = beside_decoding(Phase::Prefill, Some(8 * MS));
    assert_eq!(training.reason, Reason::Busy, "a prompt waits for nobody");
}

#[test]
fn a_step_that_does_not_come_is_not_waited_for() {
    let rhythm = Rhythm { due_ns: Some(MS), spread_ns: 20_000, gap_ns: 5 * MS, lasts_ns: MS, ..Rhythm::UNKNOWN };
    let server = [Member { busy: false, rhythm, ..SERVER }];
    let launch = Launch { lasts_ns: Some(300_000), bound: None };
    let at = |now_ns| decide(numbered("slo-aware"), &launch, &seen(now_ns, TRAINING, &server)).decision;
    assert!(matches!(at(MS + 10_000), Decision::Hold(_)), "it is a little late");
    assert_eq!(at(4 * MS), Decision::Run(Lane::Full));
}

#[test]
fn beside_a_step_runs_what_the_dial_allows_and_on_few_sms() {
    let decided = |bound, dial, ladder| {
        let launch = Launch { lasts_ns: Some(300_000), bound };
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
