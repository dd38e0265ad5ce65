//! Steps of servers and of other programs, and what they are taken for.

use super::*;

const US: u64 = 1_000;

/// What a server launches in a step, each with what it takes.
type Step = Vec<(u64, u64)>;

/// A decode step by a graph of its own for each number of rows, after a small copy.
fn decode(rows: u64) -> Step {
    vec![(100 + rows, 3 * US), (200 + rows, 4_000 * US + rows * 20 * US)]
}

/// A prefill, kernel by kernel; shapes go by the length of the prompt.
fn prefill(tokens: u64) -> Step {
    (0..200).map(|kernel| (1_000 + kernel * 10_000 + tokens, 20 * US + tokens * US / 10)).collect()
}

/// What was said before the last launch, and at the end.
fn run(phases: &mut Phases, step: &Step) -> (Vec<Phase>, Phase) {
    let during = step.iter().map(|(identity, ns)| phases.launched(*identity, *ns)).collect();
    (during, phases.ended(0, u32::try_from(step.len()).unwrap()))
}

#[test]
fn decoding_and_prefill_are_told_apart() {
    let mut phases = Phases::new();
    let mut wrong = 0;
    for i in 0..2_000_u64 {
        let is_prefill = i % 23 == 5;
        let step = if is_prefill { prefill(64 + i * 37 % 2_000) } else { decode(1 + i / 40 % 32) };
        let (_, said) = run(&mut phases, &step);
        let expected = if is_prefill { Phase::Prefill } else { Phase::Decode };
        wrong += u32::from(said != expected && i >= u64::from(FEWEST));
    }
    assert!(wrong <= 5, "{wrong} of 2000");
    assert!(phases.has_both());
}

#[test]
fn what_a_step_will_be_is_known_when_it_begins() {
    let mut phases = Phases::new();
    for i in 0..100 {
        run(&mut phases, &if i % 10 == 9 { prefill(512) } else { decode(32) });
    }
    let (during, _) = run(&mut phases, &decode(32));
    assert_eq!(during, [Phase::Decode; 2]);
    let (during, _) = run(&mut phases, &prefill(512));
    assert_eq!((during[0], during[199]), (Phase::Prefill, Phase::Prefill));
    // One of a length that was never seen is known by its work, at the latest.
    let (during, said) = run(&mut phases, &prefill(700));
    assert_eq!((during[0], during[199], said), (Phase::Unknown, Phase::Prefill, Phase::Prefill));
}

/// A decode step by graph is one launch, so the decision about it is the only one: what it is has to be known before.
#[test]
fn what_a_launch_will_make_of_its_step_is_foreseen() {
    let mut phases = Phases::new();
    let decode: Step = vec![(100, 4_000 * US)];
    for i in 0..100 {
        run(&mut phases, &if i % 10 == 9 { prefill(512) } else { decode.clone() });
    }
    let both = [(prefill(512), Phase::Prefill), (decode, Phase::Decode)];
    for (step, expected) in both.iter().cycle().take(4).cloned() {
        assert_eq!(phases.foresee(step[0].0, step[0].1), expected, "at the step's first launch");
        for (identity, ns) in &step {
            let foreseen = phases.foresee(*identity, *ns);
            assert_eq!(phases.foresee(*identity, *ns), foreseen, "a look changes nothing");
            assert_eq!(phases.launched(*identity, *ns), foreseen);
        }
        assert_eq!(phases.ended(0, u32::try_from(step.len()).unwrap()), expected);
    }
}

#[test]
fn steps_that_begin_alike_are_not_guessed() {
    let mut phases = Phases::new();
    let with_same_beginning = |rest: Step| [vec![(7, US); 10], rest].concat();
    for i in 0..100 {
        run(&mut phases, &with_same_beginning(if i % 3 == 0 { prefill(512) } else { decode(32) }));
    }
    let (during, said) = run(&mut phases, &with_same_beginning(decode(32)));
    assert_eq!((during[9], said), (Phase::Unknown, Phase::Decode));
}

#[test]
fn a_long_prompt_in_many_steps_does_not_change_the_pace() {
    let mut phases = Phases::new();
    for _ in 0..20 {
        run(&mut phases, &decode(8));
    }
    for _ in 0..100 {
        assert_eq!(run(&mut phases, &prefill(512)).1, Phase::Prefill);
    }
    assert_eq!(run(&mut phases, &decode(8)).1, Phase::Decode);
}

#[test]
fn another_model_has_another_pace() {
    let mut phases = Phases::new();
    for _ in 0..50 {
        run(&mut phases, &decode(8));
    }
    let small: Step = vec![(5, 500 * US)];
    let said: Vec<Phase> = (0..60).map(|_| run(&mut phases, &small).1).collect();
    assert_eq!(said[59], Phase::Decode);
    assert!((400 * US..600 * US).contains(&phases.pace_ns()), "{}", phases.pace_ns());
    for _ in 0..400 {
        run(&mut phases, &decode(8));
    }
    assert_eq!(run(&mut phases, &decode(8)).1, Phase::Decode, "and back");
}

#[test]
fn a_graph_whose_time_was_learned_in_company_is_no_prefill() {
    let mut phases = Phases::new();
    for i in 0..100 {
        run(&mut phases, &if i % 10 == 9 { prefill(512) } else { decode(8) });
    }
    let slow: Step = vec![(100, 3 * US), (999, 13_000 * US)];
    assert_eq!(run(&mut phases, &slow).1, Phase::Decode);
    assert_eq!(run(&mut phases, &prefill(1_000)).1, Phase::Prefill);
    // After a prefill much has to be put in its place first, by kernels that nobody knows.
    let prepared: Step = [(0..60).map(|kernel| (5_000 + kernel, 100 * US)).collect(), decode(9)].concat();
    let (during, said) = run(&mut phases, &prepared);
    assert_eq!((during.last(), said), (Some(&Phase::Decode), Phase::Decode));
    // Far more is one, whatever it takes to launch; a server that has such ones alone is believed after some.
    let far_more: Step = vec![(7, 80_000 * US)];
    assert_eq!(run(&mut phases, &far_more).1, Phase::Prefill);
    for i in 0..400 {
        run(&mut phases, &if i % 10 == 9 { far_more.clone() } else { decode(8) });
    }
    assert_eq!(run(&mut phases, &vec![(7, 20_000 * US)]).1, Phase::Prefill);
}

#[test]
fn a_short_prompt_makes_no_long_one_usual() {
    let mut phases = Phases::new();
    let of = |launches: u64, each: u64| -> Step { (0..launches).map(|kernel| (3_000 + kernel, each * US)).collect() };
    for i in 0..100 {
        run(&mut phases, &if i % 10 == 9 { prefill(512) } else { decode(8) });
    }
    for _ in 0..10 {
        // One that has no more to do than a decode step cannot be told from it.
        run(&mut phases, &of(40, 100));
        run(&mut phases, &decode(8));
        assert_eq!(run(&mut phases, &of(60, 200)).1, Phase::Prefill);
    }
}

#[test]
fn what_nobody_has_measured_yet_sets_no_pace() {
    let mut phases = Phases::new();
    for i in 0..40 {
        let expected = if i < FEWEST { 100 * US } else { 4_000 * US };
        phases.launched(1, expected);
        let said = phases.ended(4_500 * US, 1);
        assert!(said == Phase::Decode || i + 1 < FEWEST, "{i}: {said:?}");
    }
}

#[test]
fn a_first_step_that_was_shorter_than_all_others_sets_no_pace_for_long() {
    let mut phases = Phases::new();
    run(&mut phases, &vec![(1, 1_000 * US)]);
    let said: Vec<Phase> = (0..60).map(|_| run(&mut phases, &decode(8)).1).collect();
    assert_eq!(said[20..], [Phase::Decode; 40]);
    // Prompts in a row that take many launches are what they seem to be.
    for _ in 0..100 {
        assert_eq!(run(&mut phases, &prefill(512)).1, Phase::Prefill);
    }
}

#[test]
fn alone_the_length_of_a_step_tells() {
    let mut phases = Phases::new();
    for i in 0..50_u64 {
        let is_prefill = i % 10 == 9;
        let said = if is_prefill { phases.ended(25_000 * US, 300) } else { phases.ended(4_100 * US + i, 2) };
        let expected = if is_prefill { Phase::Prefill } else { Phase::Decode };
        assert!(said == expected || i < u64::from(FEWEST), "{i}: {said:?}");
    }
    // In company, with what its launches take.
    assert_eq!(run(&mut phases, &decode(8)).1, Phase::Decode);
}

#[test]
fn a_step_that_is_late_now_and_then_makes_no_llm_server() {
    let mut phases = Phases::new();
    for i in 0..5_000 {
        phases.ended(if i % 100 == 77 { 9_000 * US } else { 1_200 * US }, 3);
    }
    assert!(!phases.has_both());
    // Nor does one that begins kernel by kernel and goes on with a graph.
    let mut phases = Phases::new();
    for i in 0..1_000 {
        if i < 10 {
            phases.ended(9_000 * US, 400)
        } else {
            phases.ended(1_200 * US, 3)
        };
    }
    assert!(!phases.has_both());
    // An eager server has as many launches in each step: what they have to do tells, in company.
    for i in 0..100 {
        let takes = if i % 8 == 0 { 9_000 * US } else { 1_200 * US };
        run(&mut phases, &vec![(1, takes / 3), (2, takes / 3), (3, takes / 3)]);
    }
    assert!(phases.has_both());
}

#[test]
fn absurd_times_do_no_harm() {
    let mut phases = Phases::new();
    for i in 0..200_u64 {
        run(&mut phases, &vec![(i, u64::MAX), (i, 0), (0, u64::MAX / 3)]);
        run(&mut phases, &vec![(i, i)]);
        run(&mut phases, &Vec::new());
    }
    assert!(phases.pace_ns() < u64::MAX);
}

#[test]
fn numbers_and_names() {
    for phase in [Phase::Unknown, Phase::Decode, Phase::Prefill] {
        assert_eq!(Phase::from_number(phase.number()), phase);
    }
    assert_eq!((Phase::from_number(77), Phase::Prefill.name()), (Phase::Unknown, "prefill"));
}

/// As many launches that take so long each.
fn of(first: u64, launches: u64, each_ns: u64) -> Step {
    (first..first + launches).map(|kernel| (kernel, each_ns)).collect()
}

/// A program with tiny steps among its others: how many of the last half of its decode steps are told wrongly, of how many.
fn told_wrongly(steps: u64, step: impl Fn(u64) -> (Phase, Step)) -> (u64, u64, Phases) {
    let mut phases = Phases::new();
    let (mut wrong, mut of) = (0, 0);
    for number in 0..steps {
        let (is, step) = step(number);
        let (_, said) = run(&mut phases, &step);
        if number >= steps / 2 && is != Phase::Unknown {
            (wrong, of) = (wrong + u64::from(said != is), of + 1);
        }
    }
    (wrong, of, phases)
}

/// As programs do that look at each token before they hand it on: what they launch for that is a step of its own.
#[test]
fn tiny_steps_after_each_token_set_no_pace() {
    // Whatever comes first, and of a small model too, whose tokens are short.
    for (starts_tiny, each_ns) in [(0, 12 * US), (30, 12 * US), (0, 2_500)] {
        let (wrong, of, phases) = told_wrongly(4_000, |number| match number {
            _ if number < starts_tiny => (Phase::Unknown, of(7, 1, 4 * US)),
            _ if number % 400 == 30 => (Phase::Prefill, of(9_000, 400, 100 * US)),
            _ if number % 2 == 1 => (Phase::Unknown, of(50, 6, 3 * US)),
            _ => (Phase::Decode, of(3_000, 400, each_ns)),
        });
        assert!(wrong <= of / 100, "{wrong} of {of} with {each_ns} ns");
        assert!(phases.pace_ns().abs_diff(400 * each_ns) < 40 * each_ns, "{}", phases.pace_ns());
    }
}

/// Something that a program does now and then, in a step of its own, as it did when it started.
#[test]
fn a_tiny_step_now_and_then_sets_no_pace() {
    let of_each = |often: u64, decode: fn() -> Step| {
        told_wrongly(6_000, |number| {
            if number < 20 || number.is_multiple_of(often) {
                (Phase::Unknown, of(7, 1, 4 * US))
            } else if number % 50 == 49 {
                (Phase::Prefill, of(9_000, 300, 100 * US))
            } else {
                (Phase::Decode, decode())
            }
        })
    };
    for (often, decode) in [(150, (|| of(3_000, 400, 12 * US)) as fn() -> Step), (12, || decode(8)), (2, || decode(8))]
    {
        let (wrong, of, phases) = of_each(often, decode);
        assert!(wrong <= of / 100, "{wrong} of {of}, one in {often}");
        assert!((4_000 * US..6_000 * US).contains(&phases.pace_ns()), "{}", phases.pace_ns());
    }
}

/// Long prompts with hardly a token between them, which take nearly all of the time, and vary.
#[test]
fn long_prompts_that_vary_set_no_pace_beside_few_tokens() {
    let (wrong, of, phases) = told_wrongly(4_000, |number| match number {
        _ if number < 20 || number % 2 == 0 => (Phase::Decode, decode(8)),
        _ => (Phase::Prefill, of(9_000, 300, (500 + number * 7_919 % 3_000) * US)),
    });
    assert!(wrong <= of / 100, "{wrong} of {of}");
    assert!((4_000 * US..5_000 * US).contains(&phases.pace_ns()), "{}", phases.pace_ns());
}

/// What is short, beside steps that are alike and do all the work, makes no server of two kinds.
#[test]
fn tiny_steps_make_no_llm_server() {
    let (_, _, phases) = told_wrongly(4_000, |number| match number {
        _ if number % 12 == 3 => (Phase::Unknown, of(7, 1, 4 * US)),
        _ => (Phase::Decode, of(3_000, 150, 12 * US)),
    });
    assert!(!phases.has_both());
}
