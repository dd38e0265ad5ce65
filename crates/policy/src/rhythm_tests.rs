//! Steps with habits and without, and what is learned of them.

use super::*;
use core::time::Duration;

const MS: u64 = 1_000_000;

/// Steps that begin at these times and last so long; how far each was from when it was due.
fn errors(learner: &mut Learner, steps: impl IntoIterator<Item = (u64, u64)>) -> Vec<Option<u64>> {
    let mut errors = Vec::new();
    for (began, lasts) in steps {
        errors.push(learner.rhythm().due_ns.map(|due| due.abs_diff(began)));
        learner.began(began);
        learner.ended(began + lasts, None);
    }
    errors
}

/// A number that looks random, below `below`.
fn noise(i: u64, below: u64) -> u64 {
    let mixed = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9) % below
}

#[test]
fn a_beat_is_known_to_a_tenth_of_a_millisecond() {
    let steps = (0..200).map(|i| (10 * MS + i * 6 * MS + noise(i, 40_000), MS + noise(i + 7, 400_000)));
    let errors = errors(&mut Learner::new(), steps);
    assert!(errors[8..].iter().all(|error| error.is_some_and(|ns| ns < 100_000)), "{errors:?}");
}

/// A host that begins one step late does not move the clock that requests come by; one that moves it is followed.
#[test]
fn a_late_step_does_not_move_the_beat_and_two_in_a_row_do() {
    let mut learner = Learner::new();
    let late = |i: u64| if i == 50 { 2 * MS } else { 0 };
    errors(&mut learner, (0..51).map(|i| (10 * MS + i * 6 * MS + late(i), MS)));
    assert_eq!(learner.rhythm().due_ns, Some(10 * MS + 51 * 6 * MS), "the one behind the late one is on the clock");
    let moved = 2 * MS;
    let after = errors(&mut learner, (51..80).map(|i| (10 * MS + i * 6 * MS + moved, MS)));
    assert!(after[..2].iter().flatten().all(|ns| *ns <= moved), "{after:?}");
    assert!(after[2..].iter().all(|error| error.is_some_and(|ns| ns < 100_000)), "{after:?}");
}

#[test]
fn even_pauses_are_known_too() {
    let mut at = MS;
    let steps = (0..200).map(|i| {
        let lasts = MS + noise(i, 3 * MS);
        let began = at;
        at += lasts + 5 * MS + noise(i + 3, 60_000);
        (began, lasts)
    });
    let errors = errors(&mut Learner::new(), steps);
    assert!(errors[8..].iter().all(|error| error.is_some_and(|ns| ns < 100_000)), "{errors:?}");
}

#[test]
fn random_arrivals_are_not_predicted_but_their_mean_is_known() {
    let mut at = MS;
    let mut learner = Learner::new();
    let mut predicted = 0;
    for i in 0..400 {
        predicted += u32::from(learner.rhythm().due_ns.is_some());
        learner.began(at);
        learner.ended(at + MS, None);
        at += MS + noise(i, 10 * MS);
    }
    assert!(predicted < 20, "{predicted} of 400");
    assert!((3 * MS..7 * MS).contains(&learner.rhythm().gap_ns), "{:?}", learner.rhythm());
}

/// Pauses between 4 and 10 ms, in no order: hardly one is shorter than 4 ms, or longer than 10.
#[test]
fn how_short_and_how_long_random_pauses_are_is_known() {
    let (mut at, mut shorter, mut longer) = (MS, 0, 0);
    let mut learner = Learner::new();
    for i in 0..400 {
        let pause = 4 * MS + noise(i, 6 * MS);
        let rhythm = learner.rhythm();
        shorter += u32::from(pause < rhythm.soon_ns);
        longer += u32::from(rhythm.long_ns != 0 && pause > rhythm.long_ns);
        at += pause;
        learner.began(at);
        at += MS;
        learner.ended(at, None);
        assert_eq!(learner.rhythm().ended_ns, at);
    }
    let rhythm = learner.rhythm();
    assert!((4 * MS..6 * MS).contains(&rhythm.soon_ns) && (8 * MS..10 * MS).contains(&rhythm.long_ns), "{rhythm:?}");
    assert!((10..80).contains(&shorter) && (10..80).contains(&longer), "{shorter} and {longer} of 400");
}

/// Arrivals of a Poisson process: what is said of pauses is what they are like, whatever the seed, to a fifth in the middle.
#[test]
fn the_distribution_of_exponential_pauses_is_known() {
    const MEAN_S: f64 = 0.005;
    let of_seed = |seed: u64| {
        let (mut learner, mut at) = (Learner::new(), MS);
        for i in 0..200 {
            let millionths = u32::try_from(noise(seed * 1_000 + i, 1_000_000)).expect("it is below");
            let unit = (f64::from(millionths) + 0.5) / 1e6;
            let pause = Duration::from_secs_f64(-MEAN_S * unit.ln());
            at += u64::try_from(pause.as_nanos()).expect("it is short");
            learner.began(at);
            at += MS;
            learner.ended(at, None);
        }
        let rhythm = learner.rhythm();
        [rhythm.soon_ns, rhythm.gap_ns, rhythm.long_ns]
    };
    let mut said: [Vec<u64>; 3] = Default::default();
    for seed in 0..99 {
        of_seed(seed).into_iter().zip(&mut said).for_each(|(ns, all)| all.push(ns));
    }
    // One in ten is shorter, their mean, one in ten is longer.
    let are = [-MEAN_S * 0.9_f64.ln(), MEAN_S, -MEAN_S * 0.1_f64.ln()];
    for (all, is) in said.iter_mut().zip(are) {
        all.sort_unstable();
        let [few, middle, many] = [9, 49, 89].map(|place| Duration::from_nanos(all[place]).as_secs_f64() / is);
        assert!((0.8..1.2).contains(&middle) && few > 0.5 && many < 2.0, "{few} {middle} {many} of {is}");
    }
}

#[test]
fn new_habits_replace_old_ones() {
    let mut learner = Learner::new();
    errors(&mut learner, (0..100).map(|i| (i * 6 * MS, MS)));
    let after = errors(&mut learner, (0..40).map(|i| (600 * MS + i * 10 * MS, 5 * MS)));
    assert!(after[12..].iter().all(|error| *error == Some(0)), "{after:?}");
    assert_eq!(learner.lengths().on_all_ns, 5 * MS);
    assert!(learner.rhythm().lasts_ns.abs_diff(5 * MS) < 100, "{:?}", learner.rhythm());
}

/// A server whose tokens are on a front beside a training, and that had all SMs for a prompt now and then.
#[test]
fn how_long_steps_last_lately_does_not_wait_for_all_sms() {
    let mut learner = Learner::new();
    for i in 0..60 {
        let (part, ms) = if i % 12 == 0 { (Rhythm::ALL, 100) } else { (484, 18) };
        learner.began(i * 200 * MS);
        learner.ran_on(part);
        learner.ended((i * 200 + ms) * MS, None);
    }
    let lasts_ns = learner.rhythm().lasts_ns;
    assert!((18 * MS..25 * MS).contains(&lasts_ns), "{lasts_ns}");
    assert_eq!(learner.lengths().on_all_ns, 100 * MS);
}

/// Steps of 10 ms with so much work, in thousandths of what the GPU could do, and where it ran.
fn needs(learner: &mut Learner, steps: u64, all: u64, ran: u64) -> u32 {
    for i in 0..steps {
        learner.began(i * 20 * MS);
        learner.ended(i * 20 * MS + 10 * MS, Some(Work { all_ns: all * 10_000, ran_ns: ran * 10_000 }));
    }
    learner.rhythm().needs
}

#[test]
fn what_part_of_the_gpu_a_step_needs_is_known_after_a_few() {
    assert_eq!(needs(&mut Learner::new(), 3, 200, 200), Rhythm::ALL);
    assert_eq!(needs(&mut Learner::new(), 20, 200, 200), 200);
    assert_eq!(needs(&mut Learner::new(), 20, 5_000, 5_000), Rhythm::ALL);
    let mut learner = Learner::new();
    errors(&mut learner, (0..20).map(|i| (i * 6 * MS, MS)));
    assert_eq!(learner.rhythm().needs, Rhythm::ALL, "nobody kept account of the work");
}

#[test]
fn who_was_cramped_on_few_sms_gets_all() {
    let mut learner = Learner::new();
    assert_eq!(needs(&mut learner, 20, 200, 600), 200, "there was room");
    assert_eq!(needs(&mut learner, 20, 200, 800), Rhythm::ALL);
    assert_eq!(needs(&mut learner, 20, 200, 200), Rhythm::ALL, "it would be cramped again");
}

/// What a step needs is what its work says, until steps are seen to last far longer on as much.
#[test]
fn what_was_seen_on_few_sms_counts_more_than_what_was_worked_out() {
    const QUARTER: u32 = 242;
    let after = |on_few_ms: u64, on_all_ms: u64| {
        let mut learner = Learner::new();
        let mut at = 0;
        let mut steps = |learner: &mut Learner, part, count: u64, ms: u64| {
            for _ in 0..count {
                learner.began(at);
                learner.ran_on(part);
                at += ms * MS;
                learner.ended(at, Some(Work { all_ns: MS, ran_ns: MS }));
                at += 7 * MS + noise(at, 5 * MS);
            }
        };
        steps(&mut learner, Rhythm::ALL, 20, 10);
        assert_eq!(learner.rhythm().needs, 100);
        steps(&mut learner, QUARTER, 20, on_few_ms);
        // Another part that is enough does not make one forget.
        steps(&mut learner, 2 * QUARTER, 8, 10);
        steps(&mut learner, Rhythm::ALL, 20, on_all_ms);
        learner.rhythm().needs
    };
    assert_eq!(after(12, 10), 100, "a little longer, as beside others");
    assert_eq!(after(14, 10), QUARTER + 1);
    assert_eq!(after(14, 14), 71, "it lasts as long on all SMs: the program has changed its ways");
}

/// Beside others from the first step on: what steps need is told by what they had, and how long they would last on more SMs by nothing.
#[test]
fn steps_that_never_had_all_sms_are_known_where_they_ran() {
    const SMS: u32 = 100;
    let mut learner = Learner::new();
    for step in 0..20 {
        learner.began(step * 20 * MS);
        learner.ran_on(500);
        learner.ended(step * 20 * MS + 12 * MS, Some(Work { all_ns: 3 * MS, ran_ns: 3 * MS }));
    }
    let lengths = learner.lengths();
    assert_eq!((lengths.on_all_ns, lengths.narrow, lengths.needs), (0, Some((500, 12 * MS)), 250));
    assert_eq!([100, 75, 50, 20].map(|width| lengths.on(width, SMS)), [0, 0, 12 * MS, 0]);
}

/// What was seen on all SMs and on a part of them says what to expect on others.
#[test]
fn how_long_a_step_lasts_at_each_width_is_learned() {
    const SMS: u32 = 100;
    let mut learner = Learner::new();
    let mut at = 0;
    for (part, ms) in [(Rhythm::ALL, 10), (500, 12)] {
        for _ in 0..20 {
            learner.began(at);
            learner.ran_on(part);
            at += ms * MS;
            learner.ended(at, Some(Work { all_ns: 2 * MS, ran_ns: 2 * MS }));
            at += 7 * MS + noise(at, 5 * MS);
        }
        assert!(learner.rhythm().lasts_ns.abs_diff(ms * MS) < MS / 20, "lately: {:?}", learner.rhythm());
        let lengths = learner.lengths();
        assert_eq!(lengths.on_all_ns, 10 * MS);
        let on = |width| lengths.on(width, SMS);
        if part == Rhythm::ALL {
            // Two of ten milliseconds are the GPU's.
            assert_eq!([100, 50, 20, 10].map(on), [10, 10, 10, 20].map(|ms| ms * MS));
        } else {
            assert_eq!([100, 50].map(on), [10, 12].map(|ms| ms * MS), "as was seen");
            assert!((10 * MS..12 * MS).contains(&on(75)), "in between: {}", on(75));
            assert_eq!([20, 10].map(on), [12, 20].map(|ms| ms * MS), "no less, and at most in proportion");
        }
    }
    for width in [0, 1, SMS, u32::MAX] {
        assert_eq!(Learner::new().lengths().on(width, 0), 0);
    }
}

#[test]
fn how_long_steps_lasted_on_few_sms_is_forgotten_with_what_they_were() {
    let mut learner = Learner::new();
    let mut at = 0;
    let mut steps = |learner: &mut Learner, part: u32, ms: u64| {
        for _ in 0..20 {
            learner.began(at);
            learner.ran_on(part);
            at += ms * MS;
            learner.ended(at, None);
            at += 7 * MS;
        }
    };
    steps(&mut learner, Rhythm::ALL, 10);
    steps(&mut learner, 500, 12);
    steps(&mut learner, Rhythm::ALL, 10);
    assert_eq!(learner.lengths().narrow, Some((500, 12 * MS)), "nothing has changed");
    steps(&mut learner, Rhythm::ALL, 3);
    assert_eq!((learner.lengths().on_all_ns, learner.lengths().narrow), (3 * MS, None), "other steps");
    steps(&mut learner, 500, 4);
    assert_eq!(learner.lengths().narrow, Some((500, 4 * MS)));
    let mut narrow_alone = Learner::new();
    steps(&mut narrow_alone, 500, 12);
    assert_eq!(narrow_alone.lengths().narrow, Some((500, 12 * MS)), "all that is known");
}

#[test]
fn who_foresees_the_end_learns_the_same() {
    let (mut one, mut other) = (Learner::new(), Learner::new());
    for i in 0..200 {
        let began = i * 6 * MS + noise(i, 300_000);
        let ended = began + MS + noise(i + 3, 200_000);
        one.began(began);
        other.began(began);
        other.foresee();
        assert_eq!(one.if_ended(ended), other.if_ended(ended));
        one.ended(ended, None);
        other.ended(ended, None);
        assert_eq!(one.rhythm(), other.rhythm());
    }
}

#[test]
fn clocks_that_jump_do_no_harm() {
    let mut learner = Learner::new();
    for at in [u64::MAX, 0, 5, u64::MAX - 1, 3 * MS, 3 * MS, 0] {
        learner.began(at);
        learner.ended(at.wrapping_add(MS), None);
        let rhythm = learner.rhythm();
        assert!(rhythm.due_ns.is_none() || rhythm.spread_ns < u64::MAX);
    }
}

/// In the middle of a step: its beginning is then to come, and says nothing of the next one's.
#[test]
fn a_clock_that_goes_back_puts_no_step_off() {
    const HOUR: u64 = 3_600_000 * MS;
    let mut learner = Learner::new();
    errors(&mut learner, (0..32).map(|i| (HOUR + i * 6 * MS, MS + noise(i, 2 * MS))));
    learner.began(HOUR + 32 * 6 * MS);
    learner.ended(5 * MS, None);
    let due_ns = learner.rhythm().due_ns;
    assert!(due_ns.is_none_or(|due_ns| due_ns < 12 * MS), "{due_ns:?}");
    let errors = errors(&mut learner, (2..64).map(|i| (i * 6 * MS, MS + noise(i, 2 * MS))));
    assert!(errors[20..].iter().all(|error| error.is_some_and(|ns| ns < 100_000)), "{errors:?}");
}
