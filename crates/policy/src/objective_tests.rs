//! Steps that keep to objectives and such that do not.

use super::*;

const MS: u64 = 1_000_000;
const BOTH: Objectives = Objectives { p99_ns: None, ttft_ns: Some(100 * MS), tpot_ns: Some(10 * MS) };

#[test]
fn tokens_are_late_by_what_comes_between_them() {
    let mut keeper = Keeper::new();
    let mut ended = |span: (u64, u64), phase| keeper.ended((span.0 * MS, span.1 * MS), phase, 5 * MS, &BOTH);
    assert_eq!(ended((1_000, 1_005), Phase::Decode), [None, None, Some(true)]);
    assert_eq!(ended((1_006, 1_011), Phase::Decode), [None, None, Some(true)]);
    assert_eq!(ended((1_011, 1_018), Phase::Prefill), [None; 3]);
    // It took no longer than others, and its token came 12 ms after the one before: who has waited since then does not care
    // that a prompt was read meanwhile. Counted from the prefill's end, as once, nobody would ever be late beside prompts.
    assert_eq!(ended((1_018, 1_023), Phase::Decode), [None, None, Some(false)], "since the last token");
    // The second in a row, which says that the prompt was over.
    assert_eq!(ended((1_024, 1_036), Phase::Decode), [None, Some(true), Some(false)]);
    // Nobody waited for anything here.
    assert_eq!(ended((2_000, 2_005), Phase::Decode), [None, None, Some(true)]);
    assert_eq!(ended((2_006, 2_060), Phase::Unknown), [None; 3]);
    // The first token of all comes with the prompt.
    assert_eq!(ended((3_000, 3_018), Phase::Prefill), [None; 3]);
    assert_eq!(ended((3_019, 3_024), Phase::Decode), [None, None, Some(true)]);
}

/// Of a server that takes a prompt piece by piece, with a token for the others after each piece.
#[test]
fn a_prompt_with_tokens_in_between_is_one_prompt() {
    let mut keeper = Keeper::new();
    let mut ended = |at: u64, phase| {
        let lasts = if phase == Phase::Prefill { 18 } else { 6 };
        let judgement = keeper.ended((at * MS, (at + lasts) * MS), phase, 6 * MS, &BOTH);
        (judgement[1], judgement[2], keeper.prompt_since_ns().map(|ns| ns / MS))
    };
    assert_eq!(ended(100, Phase::Decode), (None, Some(true), None));
    let piece = |n: u64, ended: &mut dyn FnMut(u64, Phase) -> (Option<bool>, Option<bool>, Option<u64>)| {
        (ended(107 + n * 26, Phase::Prefill), ended(126 + n * 26, Phase::Decode))
    };
    let pieces: Vec<_> = (0..6).map(|n| piece(n, &mut ended)).collect();
    let first_tokens: Vec<_> = pieces.iter().map(|(piece, _)| piece.0).collect();
    assert_eq!(first_tokens, [None, None, None, None, Some(false), None], "it is late, and that is said once");
    assert!(pieces.iter().all(|(piece, token)| piece.2 == Some(107) && token.1 == Some(false)), "{pieces:?}");
    assert_eq!(pieces[5].1.2, Some(107), "a token alone does not say that it was the last piece");
    assert_eq!(ended(263, Phase::Decode), (None, Some(true), None), "two do");
    assert_eq!(ended(270, Phase::Prefill), (None, None, Some(270)), "another one");
    assert_eq!(ended(289, Phase::Decode), (None, Some(false), Some(270)));
    assert_eq!(ended(296, Phase::Decode), (Some(true), Some(true), None), "in time");
}

#[test]
fn a_prompt_in_pieces_is_one_prompt() {
    let mut keeper = Keeper::new();
    let mut ended = |span: (u64, u64)| keeper.ended((span.0 * MS, span.1 * MS), Phase::Prefill, 5 * MS, &BOTH)[1];
    assert_eq!([(1, 60), (61, 99), (99, 120), (121, 150)].map(&mut ended), [None, None, Some(false), None]);
    assert_eq!(ended((500, 560)), None, "another one, after a pause");
    assert_eq!(ended((900, 1_010)), Some(false), "and one, which is late; the one before was in time");
    assert_eq!(ended((2_000, 2_010)), None);
    assert_eq!(ended((3_000, 3_010)), Some(true));
}

#[test]
fn strained_is_who_misses_more_than_one_in_a_hundred_lately() {
    let steps = Objectives { p99_ns: Some(5 * MS), ..Objectives::default() };
    let mut keeper = Keeper::new();
    let mut now = 0;
    let mut run = |keeper: &mut Keeper, ms| {
        now += 20 * MS;
        keeper.ended((now - ms * MS, now), Phase::Unknown, 0, &steps);
        keeper.is_strained(now)
    };
    assert!(
        !(0..2_000).any(|step| run(&mut keeper, if step % 100 == 50 { 9 } else { 4 })),
        "one in a hundred is allowed"
    );
    assert!((0..20).any(|_| run(&mut keeper, 9)));
    for _ in 0..256 {
        run(&mut keeper, 4);
    }
    assert!(!run(&mut keeper, 4));
    (0..20).for_each(|_| _ = run(&mut keeper, 9));
    let last = now;
    assert!(keeper.is_strained(last) && !keeper.is_strained(last + Recent::FORGOTTEN_NS));
    assert_eq!(keeper.ended((u64::MAX, 0), Phase::Decode, u64::MAX, &BOTH)[2], Some(true), "a clock that jumps");
}

#[test]
fn a_clock_that_goes_back_makes_nobody_strained_until_it_has_caught_up() {
    let steps = Objectives { p99_ns: Some(5 * MS), ..Objectives::default() };
    let mut keeper = Keeper::new();
    const HOUR: u64 = 3_600_000 * MS;
    for step in 0..4 {
        keeper.ended((HOUR + step * 20 * MS, HOUR + (step * 20 + 9) * MS), Phase::Unknown, 0, &steps);
    }
    assert!(keeper.is_strained(HOUR + 100 * MS));
    keeper.ended((MS, 3 * MS), Phase::Unknown, 0, &steps);
    assert!(keeper.is_strained(3 * MS));
    assert!(!keeper.is_strained(3 * MS + Recent::FORGOTTEN_NS));
}

#[test]
fn a_clock_that_goes_back_leaves_a_prompt_to_be_judged() {
    let mut keeper = Keeper::new();
    const HOUR: u64 = 3_600_000 * MS;
    let mut ended = |span: (u64, u64)| keeper.ended(span, Phase::Prefill, 5 * MS, &BOTH)[1];
    assert_eq!(ended((HOUR, HOUR + 20 * MS)), None);
    assert_eq!(ended((MS, 60 * MS)), None, "it is as if it had begun with this piece");
    assert_eq!(ended((61 * MS, 120 * MS)), Some(false), "119 ms, of 100 ms that there are");
}

/// What a server's steps are judged as, one after the other: a pause, how long, and what it is; all in microseconds. Says of how many
/// first tokens and tokens something was said, and how many of them were late.
fn judged(steps: impl IntoIterator<Item = (u64, u64, Phase)>, pace_us: u64, [ttft, tpot]: [u64; 2]) -> [(u32, u32); 2] {
    let objectives = Objectives { p99_ns: None, ttft_ns: Some(ttft * MS), tpot_ns: Some(tpot * MS) };
    let mut keeper = Keeper::new();
    let mut now_ns = 1_000 * MS;
    let mut counts = [(0, 0); 2];
    for (pause_us, lasts_us, phase) in steps {
        let begun_ns = now_ns + pause_us * 1_000;
        now_ns = begun_ns + lasts_us * 1_000;
        let [_, first_token, token] = keeper.ended((begun_ns, now_ns), phase, pace_us * 1_000, &objectives);
        for (count, kept) in counts.iter_mut().zip([first_token, token]) {
            *count = (count.0 + u32::from(kept.is_some()), count.1 + u32::from(kept == Some(false)));
        }
    }
    counts
}

fn repeated<const COUNT: usize>(steps: [&[(u64, u64, Phase)]; COUNT], times: usize) -> Vec<(u64, u64, Phase)> {
    core::iter::repeat_n(steps.concat(), times).flatten().collect()
}

const PROMPT: (u64, u64, Phase) = (3_000, 300_000, Phase::Prefill);
const TOKEN: (u64, u64, Phase) = (500, 12_000, Phase::Decode);

/// One client that thinks for less than a token takes: its own prompt is between two tokens, the last of which nobody waits after.
#[test]
fn nobody_waits_while_the_only_client_thinks() {
    let [first_tokens, tokens] = judged(repeated([&[PROMPT], &[TOKEN; 13]], 100), 12_000, [460, 20]);
    assert_eq!((first_tokens.1, tokens.1), (0, 0), "{tokens:?}");
    assert!(tokens.0 >= 1_200, "{tokens:?}");
    // A server that takes a prompt as soon as it is there, and its others wait.
    let at_once = (500, 300_000, Phase::Prefill);
    let [_, tokens] = judged(repeated([&[at_once], &[TOKEN; 13]], 100), 12_000, [460, 20]);
    assert_eq!(tokens, (1_300, 99));
    // That a token alone takes too long is no question of who waited before.
    let slow = (500, 25_000, Phase::Decode);
    let [_, tokens] = judged(repeated([&[PROMPT, slow], &[TOKEN; 12]], 100), 12_000, [460, 20]);
    assert_eq!(tokens.1, 100);
}

/// Servers put pieces of a prompt and tokens into one step: each of those is a token for somebody.
#[test]
fn tokens_in_steps_with_pieces_of_a_prompt_are_not_taken_for_late() {
    let mixed = (500, 60_000, Phase::Prefill);
    let [_, tokens] = judged(repeated([&[mixed; 4], &[TOKEN; 40]], 100), 12_000, [460, 100]);
    assert_eq!(tokens.1, 0, "{tokens:?}");
    assert!(tokens.0 >= 3_900, "{tokens:?}");
    // One piece alone takes too long: whoever runs waits for it, in the same step or not.
    let [_, tokens] = judged(repeated([&[mixed; 4], &[TOKEN; 40]], 100), 12_000, [460, 50]);
    assert_eq!(tokens, (4_000, 99));
}

/// Prompts of a piece each, one after the other with a token in between: that is no prompt that takes for ever.
#[test]
fn prompts_without_an_end_are_not_one_prompt() {
    let steps = [(500, 18_000, Phase::Prefill), (500, 6_000, Phase::Decode)];
    let [first_tokens, tokens] = judged(repeated([&steps], 1_000), 6_000, [100, 40]);
    assert_eq!(tokens, (1_000, 0));
    assert!(first_tokens.1 <= 1, "said once at most: {first_tokens:?}");
    let objectives = Objectives { p99_ns: None, ttft_ns: Some(100 * MS), tpot_ns: None };
    let mut keeper = Keeper::new();
    let mut longest = 0;
    for (number, (_, lasts_us, phase)) in (0..).zip(repeated([&steps], 1_000)) {
        let begun_ns = (1_000 + number * 20) * MS;
        let end_ns = begun_ns + lasts_us * 1_000;
        keeper.ended((begun_ns, end_ns), phase, 18 * MS, &objectives);
        let since_ns = keeper.prompt_since_ns().expect("one is pending at any time");
        longest = longest.max(end_ns - since_ns);
    }
    assert!(longest <= 450 * MS, "{longest}");
}

/// A server that has too much to do, in turn with pieces of prompts of many pieces: both are seen to be late.
#[test]
fn a_server_that_has_too_much_to_do_is_seen_to_be_late() {
    let steps = [(500, 60_000, Phase::Prefill), (500, 15_000, Phase::Decode)];
    let [first_tokens, tokens] = judged(repeated([&steps], 1_000), 12_000, [460, 40]);
    assert_eq!(tokens, (1_000, 999));
    assert!(first_tokens.1 >= 1, "{first_tokens:?}");
    // Whole ones, of which several come between two tokens.
    let [_, tokens] = judged(repeated([&[(500, 60_000, Phase::Prefill); 3], &[TOKEN]], 100), 12_000, [460, 40]);
    assert_eq!(tokens, (100, 99));
}

#[test]
fn tokens_that_are_late_on_a_front_are_to_have_a_wider_one_for_long() {
    let objectives = Objectives { p99_ns: None, ttft_ns: None, tpot_ns: Some(10 * MS) };
    let mut keeper = Keeper::new();
    let mut now_ns = 1_000 * MS;
    let mut run = |keeper: &mut Keeper, count: u32, ms, phase, is_on_front| {
        for _ in 0..count {
            keeper.ran_on_front(is_on_front);
            keeper.ended((now_ns, now_ns + ms * MS), phase, 5 * MS, &objectives);
            now_ns += ms * MS;
        }
        keeper.wider()
    };
    run(&mut keeper, 10, 5, Phase::Decode, false);
    assert_eq!(run(&mut keeper, 10, 20, Phase::Decode, false), 0, "on all SMs nothing is wider");
    for _ in 0..10 {
        run(&mut keeper, 1, 20, Phase::Prefill, false);
        assert_eq!(run(&mut keeper, 9, 5, Phase::Decode, true), 0, "they waited for a prompt");
    }
    for _ in 0..20 {
        run(&mut keeper, 200, 5, Phase::Decode, true);
        assert_eq!(run(&mut keeper, 1, 20, Phase::Decode, true), 0, "one in 200 is allowed");
    }
    run(&mut keeper, 200, 5, Phase::Decode, true);
    assert_eq!([2, 2].map(|count| run(&mut keeper, count, 20, Phase::Decode, true)), [1, 2]);
    assert_eq!(run(&mut keeper, 7_000, 5, Phase::Decode, false), 2, "not so soon as it is forgotten that any was late");
    assert_eq!([1_000, 8_000, 8_000].map(|count| run(&mut keeper, count, 5, Phase::Decode, true)), [1, 0, 0]);
    assert_eq!(run(&mut keeper, 1_000, 20, Phase::Decode, true), 16, "there are no more splits");
}
