//! What `tpot-first` decides about tokens, prompts and what runs beside them.

use crate::agree::{Moment, duration, launch, moment, sms};
use crate::{MS, SERVER, TRAINING, numbered, seen};
use detshare_policy::phase::Phase;
use detshare_policy::{Bound, Class, Decision, Dial, Lane, Launch, Member, Reason, Rhythm, Verdict, View, decide};
use proptest::prelude::*;

const COMPUTE: Launch = Launch { lasts_ns: Some(300_000), bound: Some(Bound::Compute), ..Launch::UNKNOWN };

fn said(launch: &Launch, view: &View<'_>) -> Verdict {
    decide(numbered("tpot-first"), launch, view)
}

/// A server that decodes: a token takes 4 ms on all SMs.
const DECODING: Member = Member {
    rhythm: Rhythm { phase: Phase::Decode, pace_ns: 4 * MS, begun_ns: 98 * MS, ended_ns: 97 * MS, ..Rhythm::UNKNOWN },
    tpot_ns: Some(20 * MS),
    ..SERVER
};
/// When that is.
const NOW: u64 = 100 * MS;
/// From this dial on kernels that compute binds run beside any step.
const COMPUTE_BESIDE: Dial = Dial::new(500);
/// A step that makes use of no more of the GPU has others beside it, in thousandths.
const LITTLE: u32 = 250;

/// Two LLM servers and a training, and what `tpot-first` says to each: the first decodes, the second is in that phase.
fn beside_decoding(phase: Phase, tpot_ns: Option<u64>) -> [Verdict; 3] {
    let rhythm = Rhythm { phase: Phase::Decode, pace_ns: 4 * MS, begun_ns: 95 * MS, ..Rhythm::UNKNOWN };
    let decoding = Member { slot: 1, rhythm, tpot_ns, ..SERVER };
    let second = Member { slot: 2, rhythm: Rhythm { phase, ..rhythm }, ttft_ns: Some(100 * MS), ..decoding };
    let training = Member { busy: false, ..TRAINING };
    let all = [decoding, second, training];
    core::array::from_fn(|me| {
        let others: Vec<Member> = (0..3).filter(|other| *other != me).map(|other| all[other]).collect();
        decide(
            numbered("tpot-first"),
            &Launch { lasts_ns: Some(300_000), ..Launch::UNKNOWN },
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
    let prefill = Member { slot: 2, rhythm, ttft_ns: Some(100 * MS), ..SERVER };
    let decoding = [Member { rhythm: Rhythm { phase: Phase::Decode, ..Rhythm::UNKNOWN }, ..SERVER }];
    let at = |now_ns| decide(numbered("tpot-first"), &Launch::UNKNOWN, &seen(now_ns, prefill, &decoding)).decision;
    assert_eq!(at(107 * MS), Decision::Run(Lane::Rest { split: 3 }));
    assert_eq!(at(109 * MS), Decision::Run(Lane::Full));
    // And so have others' tokens, which would have few of them and share those too.
    let tokens = |now_ns| said(&Launch::UNKNOWN, &seen(now_ns, DECODING, &[prefill])).decision;
    assert_eq!(tokens(107 * MS), Decision::Run(Lane::Front { split: 1 }));
    assert_eq!(tokens(109 * MS), Decision::Run(Lane::Full));
    // Also where best-effort tenants wait, which have nothing beside a prompt.
    let waiting = Member { busy: false, waiting: true, ..TRAINING };
    let [in_time, late] =
        [107, 109].map(|ms| said(&Launch::UNKNOWN, &seen(ms * MS, DECODING, &[prefill, waiting])).decision);
    assert_eq!((in_time, late), (Decision::Run(Lane::Front { split: 1 }), Decision::Run(Lane::Full)));
}

/// A prompt comes in pieces, each of which is a step: what counts is when the first of them began.
#[test]
fn a_prompt_in_pieces_is_late_by_all_of_them() {
    let rhythm = Rhythm { phase: Phase::Prefill, begun_ns: NOW - MS, ended_ns: NOW - 2 * MS, ..Rhythm::UNKNOWN };
    let at = |prompt_since_ns| {
        let prefill =
            Member { slot: 2, rhythm: Rhythm { prompt_since_ns, ..rhythm }, ttft_ns: Some(100 * MS), ..SERVER };
        let verdict = said(&Launch::UNKNOWN, &seen(NOW, prefill, &[DECODING]));
        (verdict.decision == Decision::Run(Lane::Full), verdict.reason)
    };
    assert_eq!([at(None), at(Some(NOW - 5 * MS))], [(false, Reason::Complement); 2]);
    assert_eq!(at(Some(NOW - 39 * MS)), (true, Reason::Late));
}

/// At the first launch of a step its page still has the step before, and that may have been long ago.
#[test]
fn a_prompt_is_not_late_by_what_came_before_it() {
    let now_ns = NOW + 2_000 * MS;
    let [second_ago, since] = [now_ns - 1_000 * MS, now_ns - 900 * MS];
    let at = |busy, rhythm: Rhythm| {
        let rhythm = Rhythm { phase: Phase::Prefill, ..rhythm };
        let prefill = Member { slot: 2, busy, rhythm, ttft_ns: Some(300 * MS), ..SERVER };
        let verdict = said(&Launch::UNKNOWN, &seen(now_ns, prefill, &[DECODING]));
        (verdict.decision, verdict.reason)
    };
    let before = Rhythm { begun_ns: second_ago, ended_ns: since, ..Rhythm::UNKNOWN };
    let beside = (Decision::Run(Lane::Rest { split: 1 }), Reason::Complement);
    assert_eq!(at(false, before), beside, "it begins now");
    // That an answer of one token was the last piece of its prompt is known at the end of the next step only.
    let answered = Rhythm { prompt_since_ns: Some(second_ago), ..before };
    assert_eq!(at(false, answered), beside);
    assert_eq!(at(true, Rhythm { begun_ns: now_ns - MS, ..answered }), beside);
    // The next piece of one prompt, before and after its first launch.
    let pieces = Rhythm { ended_ns: now_ns - 2 * MS, ..answered };
    let late = (Decision::Run(Lane::Full), Reason::Late);
    assert_eq!(at(false, pieces), late);
    assert_eq!(at(true, Rhythm { begun_ns: now_ns - MS, ..pieces }), late);
}

/// Who looks whether a step is over says when it ended before it is known that nothing more was launched: if something was, the page
/// says so until the end of the step.
#[test]
fn a_step_that_goes_on_after_it_seemed_to_be_over_began_when_it_did() {
    let rhythm = Rhythm { begun_ns: NOW - 15 * MS, ended_ns: NOW - 8 * MS, ..Rhythm::UNKNOWN };
    let rhythm = Rhythm { phase: Phase::Prefill, ..rhythm };
    let prefill = Member { slot: 2, rhythm, ttft_ns: Some(100 * MS), ..SERVER };
    let verdict = said(&Launch::UNKNOWN, &seen(NOW, prefill, &[DECODING]));
    assert_eq!((verdict.decision, verdict.reason), (Decision::Run(Lane::Full), Reason::Late));
    assert_eq!(said(&Launch::UNKNOWN, &seen(NOW, DECODING, &[prefill])).decision, Decision::Run(Lane::Full));
    // Nor is the prompt over that it has pieces of to read.
    let rhythm = Rhythm { prompt_since_ns: Some(NOW - 20 * MS), pace_ns: 4 * MS, phase: Phase::Decode, ..rhythm };
    let pending = Member { rhythm, ..DECODING };
    assert_eq!(said(&COMPUTE, &seen(NOW, TRAINING, &[pending])).reason, Reason::Prompt);
}

/// Nor is it pending then for those that would run beside it.
#[test]
fn a_prompt_that_was_answered_long_ago_keeps_nobody_off() {
    let now_ns = NOW + 2_000 * MS;
    let rhythm = Rhythm { begun_ns: now_ns - MS, ended_ns: NOW, prompt_since_ns: Some(NOW - MS), ..DECODING.rhythm };
    let beside = said(&COMPUTE, &seen(now_ns, TRAINING, &[Member { rhythm, ..DECODING }]));
    assert_eq!((beside.decision, beside.reason), (Decision::Run(Lane::Rest { split: 3 }), Reason::Beside));
}

/// Tokens that miss their objective have half of the SMs at least, and whoever reads a prompt beside them the other half at most.
#[test]
fn tokens_that_are_late_too_often_are_not_on_the_narrowest_front_beside_a_prompt() {
    let rhythm = Rhythm { phase: Phase::Prefill, begun_ns: NOW - MS, ..Rhythm::UNKNOWN };
    let prefill = Member { slot: 2, rhythm, ttft_ns: Some(1_000 * MS), ..SERVER };
    for (strained, tpot_ns, split) in [(false, 20 * MS, 1), (true, 20 * MS, 3), (true, 7 * MS, 4), (true, MS, 3)] {
        let rhythm = Rhythm { wider: 1, ..DECODING.rhythm };
        let tokens = Member { rhythm, strained, tpot_ns: Some(tpot_ns), ..DECODING };
        let beside = said(&Launch::UNKNOWN, &seen(NOW, tokens, &[prefill])).decision;
        assert_eq!(beside, Decision::Run(Lane::Front { split }), "{strained} {tpot_ns}");
        let beside = said(&Launch::UNKNOWN, &seen(NOW, prefill, &[tokens])).decision;
        assert_eq!(beside, Decision::Run(Lane::Rest { split }), "{strained} {tpot_ns}");
    }
    // Both miss theirs: neither makes more way than before.
    let rhythm = Rhythm { wider: 1, ..DECODING.rhythm };
    let (tokens, prefill) = (Member { rhythm, strained: true, ..DECODING }, Member { strained: true, ..prefill });
    let lanes = [(tokens, prefill), (prefill, tokens)]
        .map(|(me, other)| said(&Launch::UNKNOWN, &seen(NOW, me, &[other])).decision);
    assert_eq!(lanes, [Lane::Front { split: 1 }, Lane::Rest { split: 1 }].map(Decision::Run));
}

/// Whoever has no objective for the first token has no prompt that is late by it, and may miss another one for being on the rest.
#[test]
fn who_misses_its_objectives_and_has_none_for_the_first_token_is_not_kept_on_the_rest() {
    let pending = Rhythm { prompt_since_ns: Some(NOW - 5 * MS), pace_ns: 4 * MS, ..DECODING.rhythm };
    let of = |phase, strained, ttft_ns| {
        let reads = Member { slot: 2, rhythm: Rhythm { phase, ..pending }, strained, ttft_ns, ..SERVER };
        [(reads, DECODING), (DECODING, reads)]
            .map(|(me, other)| said(&Launch::UNKNOWN, &seen(NOW, me, &[other])).decision)
    };
    let beside = [Decision::Run(Lane::Rest { split: 1 }), Decision::Run(Lane::Front { split: 1 })];
    for phase in [Phase::Prefill, Phase::Decode] {
        assert_eq!(of(phase, true, None), [Decision::Run(Lane::Full); 2], "{phase:?}");
        assert_eq!(of(phase, false, None)[0], beside[0], "{phase:?}");
        assert_eq!(
            of(phase, true, Some(1_000 * MS))[0],
            beside[0],
            "{phase:?}: its prompt is late when its time is over"
        );
    }
    assert_eq!(of(Phase::Prefill, false, None), beside);
}

/// A token that others make room for is no prompt, and never late as one.
#[test]
fn tokens_are_not_judged_by_the_time_to_the_first() {
    let rhythm = Rhythm { begun_ns: NOW - 98 * MS, ended_ns: NOW - 99 * MS, ..DECODING.rhythm };
    let tighter = Member { rhythm, ttft_ns: Some(100 * MS), tpot_ns: Some(5 * MS), ..DECODING };
    let verdict = said(&Launch::UNKNOWN, &seen(NOW, tighter, &[Member { slot: 2, ..DECODING }]));
    assert_eq!((verdict.decision, verdict.reason), (Decision::Run(Lane::Rest { split: 1 }), Reason::Complement));
}

#[test]
fn tokens_have_as_few_sms_as_they_can_do_with_and_training_the_rest() {
    let with = |tpot_ns| Member { tpot_ns, ..DECODING };
    let beside = |server: Member| said(&COMPUTE, &seen(NOW, TRAINING, &[server]));
    let decodes = |server: Member| said(&Launch::UNKNOWN, &seen(NOW, server, &[TRAINING])).decision;
    for (tpot_ns, split) in [(20 * MS, 3), (7_800_000, 3), (7 * MS, 4)] {
        assert_eq!(beside(with(Some(tpot_ns))).decision, Decision::Run(Lane::Rest { split }), "{tpot_ns}");
        assert_eq!(decodes(with(Some(tpot_ns))), Decision::Run(Lane::Front { split }), "{tpot_ns}");
    }
    // They have no time to lose, nobody says how much they have, or they are late already.
    for server in [with(Some(6 * MS)), with(None), Member { strained: true, ..DECODING }] {
        assert_eq!((beside(server).reason, decodes(server)), (Reason::Busy, Decision::Run(Lane::Full)));
    }
    // What the host takes between two tokens is not theirs.
    let slow_host = Member { rhythm: Rhythm { soon_ns: MS, ..DECODING.rhythm }, ..with(Some(7_800_000)) };
    assert_eq!(beside(slow_host).decision, Decision::Run(Lane::Rest { split: 4 }));
    let idle = Member { busy: false, ..TRAINING };
    assert_eq!(said(&Launch::UNKNOWN, &seen(NOW, DECODING, &[idle])).decision, Decision::Run(Lane::Full));
}

/// What was predicted of them was wrong: they have more SMs, and the training fewer, until none are left for it.
#[test]
fn tokens_that_were_late_on_their_front_have_a_wider_one() {
    let of = |wider| {
        let server = Member { rhythm: Rhythm { wider, ..DECODING.rhythm }, ..DECODING };
        [(TRAINING, server), (server, TRAINING)].map(|(me, other)| said(&COMPUTE, &seen(NOW, me, &[other])))
    };
    for (wider, split) in [(0, 3), (1, 4)] {
        let lanes = [Lane::Rest { split }, Lane::Front { split }].map(Decision::Run);
        assert_eq!(of(wider).map(|verdict| verdict.decision), lanes, "{wider}");
    }
    for wider in [2, u8::MAX] {
        let [training, tokens] = of(wider);
        assert_eq!((training.reason, tokens.decision), (Reason::Busy, Decision::Run(Lane::Full)), "{wider}");
    }
}

#[test]
fn of_two_that_decode_who_has_far_more_time_makes_room() {
    let of = |tpot_ns, other_ns| {
        let (one, other) = (Member { tpot_ns, ..DECODING }, Member { slot: 2, tpot_ns: other_ns, ..DECODING });
        [(one, other), (other, one)].map(|(me, beside)| said(&Launch::UNKNOWN, &seen(NOW, me, &[beside])).decision)
    };
    let apart = [Decision::Run(Lane::Rest { split: 1 }), Decision::Run(Lane::Front { split: 1 })];
    assert_eq!(of(Some(5 * MS), Some(20 * MS)), apart);
    // About as much, or nobody knows.
    for other_ns in [Some(9 * MS), None] {
        assert_eq!(of(Some(5 * MS), other_ns), [Decision::Run(Lane::Full); 2], "{other_ns:?}");
    }
    let [hardly, none] = [Some(63_000), Some(50_000)];
    assert_eq!(of(none, none), [Decision::Run(Lane::Full); 2], "neither has less than the other");
    assert_ne!(of(none, hardly), [Decision::Run(Lane::Full); 2]);
}

/// Where these servers' tokens are, seen by each of them, with these others beside.
fn tokens_of<const COUNT: usize>(servers: [Member; COUNT], beside: &[Member]) -> [Decision; COUNT] {
    servers.map(|me| {
        let others = servers.iter().filter(|other| other.slot != me.slot).chain(beside);
        said(&Launch::UNKNOWN, &seen(NOW, me, &others.copied().collect::<Vec<_>>())).decision
    })
}

/// Servers that decode, in slots of their own, with so much time for a token.
fn decoding<const COUNT: usize>(tpots_ns: [u64; COUNT]) -> [Member; COUNT] {
    core::array::from_fn(|place| Member {
        slot: u8::try_from(place + 1).expect("a few"),
        tpot_ns: Some(tpots_ns[place]),
        ..DECODING
    })
}

/// Who is made room for itself makes none: else both would have what the other leaves, and all else would be idle.
#[test]
fn of_several_that_decode_those_make_room_that_have_far_more_time_than_another() {
    let [front, rest] = [|split| Decision::Run(Lane::Front { split }), |split| Decision::Run(Lane::Rest { split })];
    assert_eq!(tokens_of(decoding([7 * MS, 40 * MS, 7 * MS]), &[]), [rest(1), front(1), rest(1)]);
    // The third makes room for the first, and not for the second, which keeps off its SMs all the same.
    assert_eq!(tokens_of(decoding([5 * MS, 8 * MS, 10 * MS, 40 * MS]), &[]), [rest(3), rest(3), front(3), front(1)]);
    // The second makes room for no server. For a training it would, but that has nothing beside the first.
    let in_between = decoding([7_500_000, 14 * MS, 15_500_000]);
    assert_eq!(tokens_of(in_between, &[TRAINING]), [rest(1), Decision::Run(Lane::Full), front(1)]);
    assert_eq!(tokens_of(in_between, &[TRAINING]), tokens_of(in_between, &[]));
}

/// Who is made room for has all that others leave, and whoever had a part of it would be on its SMs.
#[test]
fn nothing_best_effort_runs_beside_tokens_that_are_made_room_for() {
    let beside = |share, servers: &[Member]| {
        let verdict = said(&COMPUTE, &View { share, ..seen(NOW, TRAINING, servers) });
        (matches!(verdict.decision, Decision::Run(_)), verdict.reason)
    };
    let servers = decoding([7_500_000, 40 * MS]);
    assert_eq!(
        tokens_of(servers, &[TRAINING]),
        [Decision::Run(Lane::Rest { split: 1 }), Decision::Run(Lane::Front { split: 1 })]
    );
    assert_eq!(beside(1_000, &servers), (false, Reason::Busy));
    assert_eq!(beside(0, &servers), (true, Reason::LeastShare), "it does not starve");
    // Tokens of its own are best-effort, however much time they have.
    let me = Member { class: Class::BestEffort, slot: 0, tpot_ns: Some(40 * MS), ..DECODING };
    assert_eq!(said(&COMPUTE, &seen(NOW, me, &servers[..1])).reason, Reason::Beside);
    // One alone, and two that make none.
    for servers in [&servers[..1], &servers[1..], &decoding([7_500_000, 8 * MS])] {
        assert_eq!(beside(1_000, servers), (true, Reason::Beside), "{servers:?}");
    }
}

/// Who waits and would have nothing beside tokens takes no SMs from them.
#[test]
fn tokens_make_no_room_for_best_effort_work_that_has_nothing_beside_them() {
    let waiting = Member { busy: false, waiting: true, ..TRAINING };
    let decodes = |dial, other: Member| {
        said(&Launch::UNKNOWN, &View { dial: Dial::new(dial), ..seen(NOW, DECODING, &[other, waiting]) }).decision
    };
    let other = Member { slot: 2, ..DECODING };
    let nothing_to_do = Member { busy: false, rhythm: Rhythm { ended_ns: NOW - 50 * MS, ..other.rhythm }, ..other };
    for dial in [100, 250, 999] {
        assert_eq!(decodes(dial, nothing_to_do), Decision::Run(Lane::Front { split: 3 }), "{dial}");
    }
    // It is not to disturb anybody, or has all SMs anyway.
    for dial in [0, 99, 1_000] {
        assert_eq!(decodes(dial, nothing_to_do), Decision::Run(Lane::Full), "{dial}");
    }
    let unknown = Rhythm { phase: Phase::Unknown, ..other.rhythm };
    for other in [Member { tpot_ns: None, ..other }, Member { rhythm: unknown, ..other }] {
        assert_eq!(decodes(250, other), Decision::Run(Lane::Full), "{other:?}");
    }
}

/// Half a millisecond is nothing to a prompt, and much to a step that is no server's.
#[test]
fn while_servers_have_nothing_to_do_more_is_in_flight() {
    let resting = Member { busy: false, rhythm: Rhythm { ended_ns: NOW - 50 * MS, ..DECODING.rhythm }, ..DECODING };
    let beside = |others: &[Member], dial| {
        let view = View { in_flight_ns: 500_000, dial, ..seen(NOW, TRAINING, others) };
        said(&COMPUTE, &view).decision == Decision::Run(Lane::Full)
    };
    assert!(beside(&[resting], Dial::USUAL));
    assert!(!beside(&[resting], Dial::new(0)), "nobody is to be disturbed");
    assert!(!beside(&[resting], Dial::new(249)), "less than usual, which somebody wanted");
    let unknown = Member { slot: 2, rhythm: Rhythm { phase: Phase::Unknown, ..resting.rhythm }, ..resting };
    assert!(!beside(&[resting, unknown], Dial::USUAL), "it is not known what comes");
    let between = Member { slot: 2, rhythm: Rhythm { ended_ns: NOW - MS, ..resting.rhythm }, ..resting };
    assert!(!beside(&[resting, between], Dial::USUAL), "a token is to come");
    let slow = |ended_ns| {
        let rhythm = Rhythm { pace_ns: 12 * MS, ended_ns, ..resting.rhythm };
        beside(&[resting, Member { slot: 2, rhythm, ..resting }], Dial::USUAL)
    };
    assert!(!slow(NOW - 3 * MS), "a slow server's host takes its time, too");
    assert!(slow(NOW - 13 * MS));
}

#[test]
fn nothing_runs_beside_a_prompt_nor_before_it_is_known_that_none_is_left() {
    let pending = Rhythm { prompt_since_ns: Some(NOW - 20 * MS), ..DECODING.rhythm };
    for phase in [Phase::Prefill, Phase::Decode] {
        let server = Member { rhythm: Rhythm { phase, ..pending }, ..DECODING };
        assert_eq!(said(&COMPUTE, &seen(NOW, TRAINING, &[server])).reason, Reason::Prompt, "{phase:?}");
    }
    let two = [DECODING, Member { slot: 2, rhythm: Rhythm { phase: Phase::Prefill, ..pending }, ..SERVER }];
    assert!(matches!(said(&COMPUTE, &seen(NOW, TRAINING, &two)).decision, Decision::Hold(_)));
}

/// Between two tokens it need not be over when the next begins: that has SMs of its own.
#[test]
fn between_two_tokens_training_goes_on() {
    let rhythm = Rhythm { due_ns: Some(NOW + 100_000), ended_ns: NOW - 500_000, ..DECODING.rhythm };
    let between = Member { busy: false, rhythm, ..DECODING };
    let at = |now_ns| said(&COMPUTE, &seen(now_ns, TRAINING, &[between])).decision;
    assert_eq!(at(NOW), Decision::Run(Lane::Rest { split: 3 }));
    assert_eq!(at(NOW + 10 * MS), Decision::Run(Lane::Full), "it has nothing to do");
    let short = Launch { lasts_ns: Some(5_000), ..COMPUTE };
    let far = Member { rhythm: Rhythm { due_ns: Some(NOW + MS), ..rhythm }, ..between };
    assert_eq!(said(&short, &seen(NOW, TRAINING, &[far])).decision, Decision::Run(Lane::Full), "it fits");
}

#[test]
fn what_is_in_flight_beside_tokens_is_waited_for_and_not_their_end() {
    let view = View { in_flight_ns: 500_000, ..seen(NOW, TRAINING, &[DECODING]) };
    let verdict = said(&COMPUTE, &view);
    let Decision::Hold(until) = verdict.decision else { panic!("{verdict:?}") };
    assert!(verdict.reason == Reason::InFlight && until.at_ns < NOW + 500_000, "{verdict:?}");
}

/// A moment with servers that are told apart, more often than chance has them.
fn with_servers() -> impl Strategy<Value = Moment> {
    let server = (any::<bool>(), any::<bool>(), 1..8 * MS, duration());
    (moment(), proptest::collection::vec(server, 3)).prop_map(|(mut moment, servers)| {
        moment.lanes = true;
        let all = core::iter::once(&mut moment.me).chain(&mut moment.others);
        for (member, (decodes, has_prompt, pace_ns, since)) in all.skip(1).zip(servers) {
            member.class = Class::Latency;
            member.rhythm.phase = if decodes { Phase::Decode } else { Phase::Prefill };
            member.rhythm.pace_ns = pace_ns;
            member.rhythm.prompt_since_ns = has_prompt.then_some(moment.now_ns - since);
        }
        moment
    })
}

/// The same where all servers decode and have no prompt to read, and some have far more time than others.
fn with_tokens() -> impl Strategy<Value = Moment> {
    let times = proptest::collection::vec((4 * MS..40 * MS, any::<bool>()), 5);
    (with_servers(), times).prop_map(|(mut moment, times)| {
        let all = core::iter::once(&mut moment.me).chain(&mut moment.others);
        for (member, (tpot_ns, is_server)) in all.zip(times) {
            if is_server {
                (member.class, member.busy, member.strained) = (Class::Latency, true, false);
                (member.rhythm.phase, member.rhythm.pace_ns) = (Phase::Decode, 4 * MS);
                (member.rhythm.prompt_since_ns, member.rhythm.soon_ns) = (None, 0);
                member.tpot_ns = Some(tpot_ns);
            } else {
                (member.class, member.busy) = (Class::BestEffort, true);
            }
        }
        moment.others.truncate(4);
        moment
    })
}

/// No front that anybody is on has SMs of a rest that another is on. Nor do best-effort tenants run beside tokens or a prompt on SMs of
/// the rest that those are on, unless the dial says so, or these steps leave most of the GPU idle.
fn check_apart(moment: &Moment, launch: &Launch) -> Result<(), TestCaseError> {
    let all: Vec<Member> = core::iter::once(moment.me).chain(moment.others.iter().copied()).collect();
    let wanting = all.iter().filter(|member| member.busy || member.waiting);
    let lane_of = |me: &Member| {
        let others: Vec<Member> = all.iter().copied().filter(|other| other.slot != me.slot).collect();
        let verdict = said(launch, &View { me: *me, others: &others, ..moment.view() });
        if let Decision::Run(lane) = verdict.decision { Some((*me, lane, verdict.reason)) } else { None }
    };
    let lanes: Vec<(Member, Lane, Reason)> = wanting.filter_map(lane_of).collect();
    for one in &lanes {
        let (member, lane, reason) = one;
        let needs_its_own = moment.dial < COMPUTE_BESIDE && member.rhythm.needs > LITTLE;
        let is_complement = member.class == Class::Latency && *reason == Reason::Complement && needs_its_own;
        for other in &lanes {
            let (_, beside, why) = other;
            let is_rest = matches!(beside, Lane::Rest { .. });
            let is_apart = match lane {
                Lane::Front { .. } => is_rest && *why != Reason::Yields,
                Lane::Rest { .. } => is_rest && *why == Reason::Beside && is_complement,
                Lane::Full => false,
            };
            let overlaps = sms(*lane).start < sms(*beside).end && sms(*beside).start < sms(*lane).end;
            prop_assert!(!(is_apart && overlaps), "{one:?} beside {other:?}");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn tokens_and_what_runs_beside_them_have_sms_of_their_own(moment in with_servers(), launch in launch()) {
        check_apart(&moment, &launch)?;
    }

    #[test]
    fn tokens_of_several_have_sms_of_their_own_where_some_make_room(moment in with_tokens(), launch in launch()) {
        check_apart(&moment, &launch)?;
    }

    #[test]
    fn a_late_prompt_has_all_sms(
        mut moment in with_servers(), ttft_ns in 0..1_000 * MS, over in 0..1_000 * MS, pause_ns in 0..2 * MS,
    ) {
        moment.me.class = Class::Latency;
        moment.me.ttft_ns = Some(ttft_ns);
        moment.me.rhythm.phase = Phase::Prefill;
        moment.me.rhythm.prompt_since_ns = Some(moment.now_ns.saturating_sub(ttft_ns + over + 1));
        moment.me.rhythm.ended_ns = moment.now_ns - pause_ns;
        moment.me.rhythm.begun_ns = if moment.me.busy { moment.now_ns } else { moment.now_ns - pause_ns - MS };
        let verdict = said(&Launch::UNKNOWN, &moment.view());
        prop_assert!(verdict.decision == Decision::Run(Lane::Full) || verdict.reason == Reason::Yields, "{:?}", verdict);
    }

    #[test]
    fn fronts_are_for_tokens(mut moment in with_servers(), launch in launch(), dial in 0..=1_000_u16) {
        (moment.me.class, moment.dial) = (Class::BestEffort, Dial::new(dial));
        let verdict = said(&launch, &moment.view());
        prop_assert!(!matches!(verdict.decision, Decision::Run(Lane::Front { .. })), "{:?}", verdict);
    }

    #[test]
    fn nothing_is_launched_beside_a_prompt_unless_the_dial_or_the_least_share_says_so(
        mut moment in with_servers(), launch in launch(),
    ) {
        (moment.me.class, moment.dial) = (Class::BestEffort, Dial::USUAL);
        moment.others.iter_mut().for_each(|other| other.rhythm.needs = Rhythm::ALL);
        let reads = |other: &Member| other.class == Class::Latency && other.busy && other.rhythm.phase == Phase::Prefill;
        if moment.others.iter().any(reads) {
            let verdict = said(&launch, &moment.view());
            let is_held = matches!(verdict.decision, Decision::Hold(_));
            prop_assert!(is_held || verdict.reason == Reason::LeastShare, "{:?}", verdict);
        }
    }
}
