//! What tenants do beside each other's steps under the policies that foresee them: wait, run on a part of the SMs, make room, and have
//! the GPU turn to them.

use super::{BESIDE, BUSY, DUE, Program, SLO_AWARE, TPOT_FIRST, beside_a_server, joined, until};
use detshare_board::{Class, clock};
use std::time::{Duration, Instant};

/// Under `slo-aware` a best-effort launch waits for the step of another, and it is written down why.
#[test]
fn a_best_effort_launch_waits_for_a_step_and_says_why() {
    let (_office, mut program, admitted, other) = beside_a_server();
    other.launch();
    program.say("begin");
    until("the launch is held", || admitted.view.is_holding());
    assert!(other.finish(other.launched(), 0));
    program.hear("ok");
    program.does(&["open", "stream"]);
    let decision = *admitted.view.decisions().last().expect("it was written down");
    assert_eq!((decision.held_for, decision.lane), (BUSY, 0), "{decision:?}");
    assert!(decision.held_ns > 0 && decision.because_of != u8::MAX, "{decision:?}");
    program.ends();
}

/// Whoever is held looks from time to time whether its own work is over. A capture of another thread, which may be void by
/// that, goes on undisturbed.
#[test]
fn a_held_launch_disturbs_no_capture_of_another_thread() {
    let (_office, mut program, admitted, other) = beside_a_server();
    // A shape of which nothing is known: that it is over is asked, and not told by the clock.
    program.does(&["begin:64"]);
    other.launch();
    program.does(&["aside"]);
    until("the launch is held", || admitted.view.is_holding());
    program.does(&["capture"]);
    // Whoever is held sleeps between two looks.
    let before = program.sleeps_of("aside");
    until("it has looked again and again", || program.sleeps_of("aside") >= before + 10);
    program.does(&["captured"]);
    assert!(admitted.view.is_holding(), "it was let go meanwhile");
    assert!(other.finish(other.launched(), 0));
    program.does(&["joined", "open", "stream"]);
    program.ends();
}

/// A step that is due soon holds what would not be over by then; one that does not come holds nobody for long.
#[test]
fn a_step_that_is_due_is_waited_for_but_not_for_ever() {
    let (_office, mut program, admitted, other) = beside_a_server();
    other.set_habits(1_000, 5_000_000, 0);
    other.launch();
    assert!(other.finish(other.launched(), clock::now() + 50_000));
    // Nothing else lets it go: the other neither begins nor ends anything.
    program.does(&["begin", "open", "stream"]);
    // What is due long after it will be over is nothing to wait for.
    other.launch();
    assert!(other.finish(other.launched(), clock::now() + 9_000_000_000));
    program.does(&["begin", "open", "stream"]);
    let decision = *admitted.view.decisions().last().expect("it was written down");
    assert!(![BUSY, DUE].contains(&decision.held_for), "{decision:?}");
    program.ends();
}

/// Beside a server whose steps make use of a tenth of the GPU nobody is held: the rest of the SMs is there for others.
#[test]
fn beside_a_step_that_leaves_most_of_the_gpu_idle_a_launch_runs_on_the_rest() {
    let (office, mut program, admitted, other) = beside_a_server();
    office.daemon.set_aggressiveness(250);
    other.set_habits(0, 5_000_000, 100);
    other.launch();
    program.does(&["begin", "open", "stream"]);
    let decision = *admitted.view.decisions().last().expect("it was written down");
    assert_eq!((decision.held_for, decision.reason), (0, BESIDE), "{decision:?}");
    assert_eq!(admitted.view.read(clock::now()).lane_width, 100);
    // As soon as it makes use of more, others wait.
    other.set_habits(0, 5_000_000, 300);
    program.say("begin");
    until("the launch is held", || admitted.view.is_holding());
    assert!(other.finish(other.launched(), 0));
    program.hear("ok");
    program.does(&["open", "stream"]);
    program.ends();
}

/// A server whose host cannot launch as fast as the GPU runs gets by with a part of the SMs while others want some, and has
/// all of them when they do not.
#[test]
fn a_server_that_leaves_most_of_the_gpu_idle_is_content_with_some_sms() {
    let (office, mut program, admitted) = joined(&[], |_| ());
    office.daemon.set_policy(SLO_AWARE);
    office.daemon.set_aggressiveness(250);
    let other = office.introduce(&admitted, Class::BestEffort);
    other.launch();
    let has = |program: &mut Program, sms| {
        program.does(&["slowly:20:2", "stream"]);
        admitted.view.read(clock::now()).lane_width == sms
    };
    until("it is on some SMs, as it says that it needs no more", || {
        has(&mut program, 32) && (1..=250).contains(&admitted.view.outlook(clock::now()).needs)
    });
    until("it is told how long its steps last there", || {
        has(&mut program, 32);
        admitted.view.step_lengths().narrow.is_some_and(|(part, ns)| part == 32 * 1_000 / 132 && ns != 0)
    });
    assert!(other.finish(other.launched(), 0));
    until("it has all SMs", || has(&mut program, 132));
    program.ends();
}

/// A server makes so many tokens between two prompts here. One tiny step between any two long ones, which are alike, would be no token: so
/// look programs that wait for something trifling after each token.
const TOKENS: u32 = 5;

/// Steps of two kinds are told apart, alone and in company.
#[test]
fn short_steps_and_long_ones_are_told_apart() {
    let (decode, prefill) = (1, 2);
    let (office, mut program, admitted) = joined(&[], |_| ());
    office.daemon.set_policy(SLO_AWARE);
    let phase = |program: &mut Program, step: &str| {
        program.does(&[step, "stream"]);
        admitted.view.read(clock::now()).phase
    };
    (0..20).for_each(|_| _ = phase(&mut program, "many:2"));
    until("a long one is known", || {
        (0..TOKENS).for_each(|_| _ = phase(&mut program, "many:2"));
        phase(&mut program, "many:200") == prefill
    });
    until("a short one is known", || phase(&mut program, "many:2") == decode);
    assert!(admitted.view.read(clock::now()).pace_ns > 0);
    let _other = office.introduce(&admitted, Class::BestEffort);
    until("a long one is known in company", || phase(&mut program, "many:200") == prefill);
    until("a short one is known in company", || phase(&mut program, "many:2") == decode);
    program.ends();
}

/// Under `tpot-first` a prompt leaves half of the SMs to another's tokens, and has all of them when nobody decodes.
#[test]
fn a_prompt_makes_room_for_anothers_tokens() {
    let (decode, prefill) = (1, 2);
    let (office, mut program, admitted) = joined(&[], |_| ());
    office.daemon.set_policy(TPOT_FIRST);
    let other = office.introduce(&admitted, Class::Latency);
    let step = |program: &mut Program, step: &str| {
        program.does(&[step, "stream"]);
        let state = admitted.view.read(clock::now());
        (state.phase, state.lane_width)
    };
    (0..20).for_each(|_| _ = step(&mut program, "many:2"));
    until("a long step is known", || {
        (0..TOKENS).for_each(|_| _ = step(&mut program, "many:2"));
        step(&mut program, "many:200").0 == prefill
    });
    other.set_phase(decode, 4_000_000);
    other.launch();
    until("it makes room", || step(&mut program, "many:200") == (prefill, 68));
    assert!(other.finish(other.launched(), 0));
    until("it has all SMs", || step(&mut program, "many:200") == (prefill, 132));
    program.ends();
}

/// A latency tenant beside others has the GPU turn to it before a step is due; one that is alone need not.
#[test]
fn the_gpu_turns_to_a_server_before_its_step() {
    const BEAT: Duration = Duration::from_millis(10);
    for others in [false, true] {
        let stats = tempfile::NamedTempFile::new().expect("a file");
        let (office, mut program, admitted) =
            joined(&[("DETSHARE_STATS", stats.path().to_str().expect("text"))], |_| ());
        office.daemon.set_policy(SLO_AWARE);
        let _other = others.then(|| office.introduce(&admitted, Class::BestEffort));
        let since = Instant::now();
        let (mut beat, mut expected) = (0, 0);
        // On a busy machine beats are irregular, and it takes longer until they are expected.
        until("steps are expected", || {
            beat += 1;
            while since.elapsed() < BEAT * beat {
                std::thread::yield_now();
            }
            expected += u32::from(admitted.view.due(clock::now()).is_some());
            program.does(&["begin", "open", "stream"]);
            expected == 40
        });
        program.ends();
        let stats = std::fs::read_to_string(stats.path()).expect("they were written");
        assert_eq!(stats.contains("\"beckoned\":0,"), !others, "{stats}");
    }
}
