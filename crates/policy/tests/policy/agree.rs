//! Tenants that see the same board decide so that it fits together, whatever is on it; nobody who may not wait is held,
//! nobody starves, and no input is too absurd for an answer.

use crate::{LADDER, LONGEST_HOLD_NS, MS, SERVER, TRAINING, WIDTH, all_policies, decisions, numbered, running, seen};
use detshare_policy::phase::Phase;
use detshare_policy::rhythm::{Learner, Work};
use detshare_policy::{
    Bound, Class, Decision, Dial, Lane, Launch, Member, POLICIES, Reason, Rhythm, Until, Verdict, View, decide,
};
use proptest::prelude::*;

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
pub(crate) fn duration() -> impl Strategy<Value = u64> {
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
    let pauses = (duration(), duration(), duration(), option_of_duration());
    (known, phase, duration(), duration(), pauses).prop_map(
        move |(
            (due_ns, spread_ns, gap_ns, lasts_ns, needs),
            phase,
            pace_ns,
            begun,
            (ended, soon_ns, long_ns, prompt),
        )| {
            let (begun_ns, ended_ns) = (now_ns - begun, now_ns - ended);
            let prompt_since_ns = prompt.map(|ago| now_ns - ago);
            let wider = u8::try_from(needs % 4).unwrap_or(0);
            let pauses = Rhythm { ended_ns, soon_ns, long_ns, prompt_since_ns, wider, ..Rhythm::UNKNOWN };
            Rhythm { due_ns, spread_ns, gap_ns, lasts_ns, needs, phase, pace_ns, begun_ns, ..pauses }
        },
    )
}

pub(crate) fn launch() -> impl Strategy<Value = Launch> {
    let bound = prop_oneof![Just(None), Just(Some(Bound::Compute)), Just(Some(Bound::Memory))];
    (proptest::option::of(duration()), bound, any::<[bool; 2]>())
        .prop_map(|(lasts_ns, bound, [untried, unexplored])| Launch { lasts_ns, bound, untried, unexplored })
}

/// A moment: what a tenant may see, at any dial and whatever its share is.
#[derive(Debug, Clone)]
pub(crate) struct Moment {
    pub(crate) now_ns: u64,
    pub(crate) me: Member,
    pub(crate) others: Vec<Member>,
    pub(crate) lanes: bool,
    pub(crate) in_flight_ns: u64,
    share: u32,
    least_share: u32,
    pub(crate) quarantined: bool,
    pub(crate) dial: Dial,
}

impl Moment {
    pub(crate) fn view(&self) -> View<'_> {
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

pub(crate) fn moment() -> impl Strategy<Value = Moment> {
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
pub(crate) fn close_moment() -> impl Strategy<Value = (Moment, Launch)> {
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
                    (other.rhythm.gap_ns, other.rhythm.long_ns) = (launch.expected_ns() / 2, 0);
                }
            }
            (moment, launch)
        },
    )
}

/// Any dial; those at which policies change their ways, and their neighbours, more often than chance has them.
pub(crate) fn dial() -> impl Strategy<Value = u16> {
    prop_oneof![0..=1_000_u16, proptest::sample::select(vec![0, 249, 250, 499, 500, 501, 749, 750, 751, 999, 1_000])]
}

/// The SMs of a lane.
pub(crate) fn sms(lane: Lane) -> core::ops::Range<u32> {
    match lane {
        Lane::Full => 0..WIDTH,
        Lane::Front { split } => 0..LADDER[split],
        Lane::Rest { split } => LADDER[split]..WIDTH,
    }
}

/// Whether it is the same, whoever else may wake it.
fn is_as(one: Decision, other: Decision) -> bool {
    match (one, other) {
        (Decision::Hold(one), Decision::Hold(other)) => one.at_ns == other.at_ns,
        _ => one == other,
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
    fn slo_aware_lets_one_best_effort_tenant_go_on_where_they_are_time_sliced(now in 0..u64::MAX / 2, mut all in members()) {
        all.iter_mut().for_each(|member| member.class = Class::BestEffort);
        let decisions = decisions("slo-aware", now, &all, &[]);
        prop_assert!(running(&decisions).len() <= 1, "{:?}", decisions);
        let is_anybody_busy = all.iter().any(|member| member.busy);
        prop_assert!(decisions.is_empty() || is_anybody_busy || running(&decisions).len() == 1, "{:?}", decisions);
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
                let is_for_somebody =
                    matches!(verdict.reason, Reason::Busy | Reason::NotItsTurn | Reason::Prompt | Reason::Bandwidth);
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
            // Where tokens keep their pace, they and others' prompts have SMs of their own; who makes way has half of them.
            let may_have_fewer = match verdict.reason {
                Reason::Complement => policy == "tpot-first",
                reason => reason == Reason::Yields && has >= 64,
            };
            let is_enough = has >= usize::try_from(needed).unwrap();
            prop_assert!(may_have_fewer || is_enough, "{}: {} SMs of {}", policy, has, needed);
            let is_apart = verdict.reason == Reason::Apart || may_have_fewer;
            prop_assert!(is_apart || lane == Lane::Full, "{}: {:?}", policy, verdict);
        }
    }

    #[test]
    fn who_is_quarantined_never_has_sms_of_a_servers_own_side(mut moment in moment(), launch in launch()) {
        (moment.me.class, moment.me.busy) = (Class::BestEffort, true);
        (moment.lanes, moment.quarantined) = (true, true);
        // Such servers are rare among those that chance makes.
        if let Some(other) = moment.others.first_mut() {
            (other.class, other.rhythm.needs) = (Class::Latency, other.rhythm.needs % 250 + 1);
        }
        for policy in ["slo-aware", "tpot-first"] {
            let verdict = decide(numbered(policy), &launch, &moment.view());
            let Decision::Run(lane) = verdict.decision else { continue };
            for server in moment.others.iter().filter(|other| other.class == Class::Latency) {
                let others = moment.others.iter().filter(|other| other.slot != server.slot).chain([&moment.me]);
                let others: Vec<Member> = others.copied().collect();
                let view = View { me: *server, others: &others, quarantined: false, ..moment.view() };
                let own = decide(numbered(policy), &launch, &view);
                if let Decision::Run(front @ Lane::Front { .. }) = own.decision && verdict.reason != Reason::Unbounded {
                    prop_assert!(sms(front).end <= sms(lane).start, "{}: {:?} beside {:?}", policy, verdict, own);
                }
            }
        }
    }

    #[test]
    fn what_is_explored_is_in_nobodys_way((moment, launch) in close_moment()) {
        let launch = Launch { unexplored: true, ..launch };
        for policy in all_policies() {
            let verdict = decide(policy, &launch, &moment.view());
            if verdict.reason == Reason::Explored {
                prop_assert_eq!(verdict.decision, Decision::Run(Lane::Rest { split: LADDER.len() - 1 }));
                let servers = moment.others.iter().filter(|other| other.class == Class::Latency);
                prop_assert!(servers.clone().all(|other| !other.busy && !other.waiting));
                let foreseen = decide(policy, &Launch { unexplored: false, ..launch }, &moment.view());
                prop_assert_eq!(foreseen.decision, Decision::Run(Lane::Full), "it has the GPU for the asking");
                prop_assert!(policy == numbered("tpot-first") || (500..750).contains(&moment.dial.thousandths()));
            }
        }
    }

    #[test]
    fn a_greater_dial_lets_more_run_and_sooner(
        (moment, launch) in close_moment(), one in dial(), other in dial(),
    ) {
        for policy in ["slo-aware", "tpot-first"] {
            let at = |dial| decide(numbered(policy), &launch, &View { dial: Dial::new(dial), ..moment.view() }).decision;
            match (at(one.min(other)), at(one.max(other))) {
                (Decision::Run(_), at_more) => prop_assert!(matches!(at_more, Decision::Run(_)), "{}: {:?}", policy, at_more),
                // Beside whom nobody is held from some dial on, all that is waited for is something else.
                (Decision::Hold(less), Decision::Hold(more)) if moment.others.iter().all(|other| other.rhythm.needs > 250) => {
                    prop_assert!(more.at_ns <= less.at_ns, "{}: {:?} {:?}", policy, less, more);
                }
                (Decision::Hold(_), _) => {}
            }
        }
    }

    #[test]
    fn beside_a_step_that_stands_still_it_is_as_if_there_were_none(
        (mut moment, launch) in close_moment(), urgent in any::<bool>(), still_ns in 0..20_000 * MS,
    ) {
        moment.now_ns += 100_000 * MS;
        if urgent { moment.me.class = Class::Latency }
        let mut idle = moment.clone();
        for (stands, idle) in moment.others.iter_mut().zip(&mut idle.others).step_by(2) {
            let rhythm = &mut stands.rhythm;
            rhythm.begun_ns = moment.now_ns - 5_001 * MS - still_ns - rhythm.lasts_ns * 100;
            rhythm.ended_ns = rhythm.ended_ns.min(rhythm.begun_ns);
            idle.rhythm = *rhythm;
            (stands.class, stands.busy) = (Class::Latency, true);
            (idle.class, idle.busy, idle.waiting, idle.strained) = (Class::Latency, false, false, false);
        }
        for policy in ["slo-aware", "tpot-first"].map(numbered) {
            let verdict = decide(policy, &launch, &moment.view());
            let expected = decide(policy, &launch, &idle.view());
            prop_assert!(is_as(verdict.decision, expected.decision), "{:?} {:?}", verdict, expected);
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
    fn what_nobody_knows_is_taken_for_a_usual_kernel(
        // As what is handed on between processes is clamped to, and beyond.
        moment in moment(), absurd in prop_oneof![4_000_000_001..=u64::from(u32::MAX), 4_000_000_001..=u64::MAX],
    ) {
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
            let pauses = Rhythm { ended_ns: lasts_ns, soon_ns: spread_ns, long_ns: gap_ns, ..Rhythm::UNKNOWN };
            let wider = u8::try_from(needs % 256).unwrap_or(0);
            let pauses = Rhythm { prompt_since_ns: due_ns, launched_ns: spread_ns, wider, ..pauses };
            Rhythm { due_ns, spread_ns, gap_ns, lasts_ns, needs, phase, pace_ns: gap_ns, begun_ns: lasts_ns, ..pauses }
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
        (lasts_ns, launch) in (proptest::option::of(wild()), launch()),
    ) {
        let dial = Dial::new(dial);
        let (others, ladder) = (&others[..], &ladder[..]);
        let view = View { now_ns, me, others, ladder, width, in_flight_ns, share, least_share, quarantined, dial };
        for policy in all_policies() {
            check_sensible(&view, decide(policy, &Launch { lasts_ns, ..launch }, &view))?;
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
            let launch = Launch { lasts_ns: Some(300_000), bound: Some(Bound::Memory), ..Launch::UNKNOWN };
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
