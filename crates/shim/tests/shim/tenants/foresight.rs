//! What a tenant knows of its kernels, from before and by trying, and what it has in flight.

use super::{
    A_WHILE, BESIDE, BUSY, Office, Program, SLO_AWARE, beside_a_server, joined, until, until_it_sees_the_other,
    until_some,
};
use detshare_board::{Class, Entry, KernelNote, Noted, clock};
use std::time::{Duration, Instant};

/// As the policy numbers its reasons.
const IN_FLIGHT: u8 = 11;
const LONGEST_HOLD: u8 = 17;
const TRIAL: u8 = 19;
const EXPLORED: u8 = 20;

/// What cannot be is not believed, and it is said that it was not; what can be is put right by a trial beside a server whose
/// pauses it would never fit into.
#[test]
fn an_absurd_time_that_was_kept_does_not_last() {
    let (_office, mut program, admitted) = joined(&[], |_| ());
    until("both shapes are measured", || {
        program.does(&["shapes:2", "stream"]);
        admitted.view.kernels().iter().filter(|kernel| !kernel.widths.is_empty()).count() == 2
    });
    let known = admitted.view.kernels();
    program.ends();

    // The step that is due may be late by the time.
    let of_kernel = |decision: Noted| decision.doubts & !Noted::DUE_NOT_BELIEVED;
    for (ns, doubts) in [(u64::MAX, Noted::NOT_BELIEVED), (3_000_000_000, 0)] {
        let office = Office::open();
        let absurd = |kernel: &KernelNote| KernelNote { widths: vec![(132, ns, 50)], ..kernel.clone() };
        office.daemon.publish_kernels(0, &known.iter().map(absurd).collect::<Vec<_>>());
        office.daemon.set_policy(SLO_AWARE);
        office.daemon.set_aggressiveness(250);
        let mut program = Program::start(office.folder.path(), &[("DETSHARE_CLASS", "best-effort")]);
        let admitted = office.admit(|_| ());
        program.hear("ready");
        let other = office.introduce(&admitted, Class::Latency);
        // The first shape only: the other one has never been launched when the server is seen.
        until_it_sees_the_other(&mut program, &admitted);
        // Pauses of two seconds, and most of one is still to come.
        other.set_habits(1_000, 2_000_000_000, 0);
        other.launch();
        assert!(other.finish(other.launched(), clock::now() + 1_900_000_000));
        program.does(&["shapes:2", "stream"]);
        let second = *admitted.view.decisions().last().expect("it was written down");
        if doubts != 0 {
            assert_eq!((second.predicted_ns, of_kernel(second)), (0, doubts), "{second:?}");
        } else {
            assert_eq!((second.predicted_ns, second.reason, second.lane), (ns, TRIAL, 0), "{second:?}");
        }
        until("it is known what it takes", || {
            program.does(&["shapes:2", "stream"]);
            let last = *admitted.view.decisions().last().expect("it was written down");
            last.kernel == second.kernel && (1..ns / 2).contains(&last.predicted_ns) && of_kernel(last) == 0
        });
        program.ends();
    }
}

/// Few launches are timed, unless somebody asks: then those that are written down are, and nothing is learned from them.
#[test]
fn what_launches_take_is_told_to_those_who_ask() {
    /// So many decisions are kept.
    const KEPT: u32 = 62;
    let (office, mut program, admitted, _other) = beside_a_server();
    let (many, measured) = (format!("many:{KEPT}"), |noted: &Noted| noted.measured_ns != 0);
    let told = || admitted.view.decisions().into_iter().filter(measured).count();
    let few_are_told = |program: &mut Program| {
        until("few are told", || {
            program.does(&[&many, "stream"]);
            told() <= 2
        });
    };
    few_are_told(&mut program);
    let learned = || {
        let kernels = admitted.view.kernels();
        kernels.iter().flat_map(|kernel| &kernel.widths).map(|(.., times)| *times).sum::<u32>()
    };
    let (before, mut launches) = (learned(), 0);
    until("most are told", || {
        office.daemon.ask(&admitted.claim);
        program.does(&[&many, "stream"]);
        launches += KEPT;
        told() > KEPT as usize / 2
    });
    let learned = learned() - before;
    assert!(learned < launches / 8, "{learned} of {launches} launches");
    few_are_told(&mut program);
    program.ends();
}

/// What is told to those who ask: nothing of steps on few SMs where there were none.
#[test]
fn how_long_steps_last_is_told() {
    const AT_LEAST: Duration = Duration::from_millis(2);
    let (_office, mut program, admitted) = joined(&[], |_| ());
    assert_eq!(admitted.view.step_lengths().on_all_ns, 0);
    until("it is told", || {
        program.does(&["begin"]);
        // That is the step.
        std::thread::sleep(AT_LEAST);
        program.does(&["open", "stream"]);
        let lengths = admitted.view.step_lengths();
        assert_eq!(lengths.narrow, None);
        Duration::from_nanos(lengths.on_all_ns) >= AT_LEAST
    });
    program.ends();
}

/// What binds a kernel is known from before: beside a step runs what compute binds, and what memory binds is held.
#[test]
fn what_binds_a_kernel_is_kept() {
    let (_office, mut program, admitted) = joined(&[], |_| ());
    until("it is measured", || {
        program.does(&["begin", "open", "stream"]);
        admitted.view.kernels().iter().any(|kernel| !kernel.widths.is_empty())
    });
    let known = admitted.view.kernels().remove(0);
    program.ends();

    let (far_slower, no_slower) = (50_000_000, 1_000);
    for on_few in [far_slower, no_slower] {
        let office = Office::open();
        let kept = KernelNote { widths: vec![(132, 100_000, 50), (36, on_few, 50)], ..known.clone() };
        office.daemon.publish_kernels(0, &[kept]);
        office.daemon.set_policy(SLO_AWARE);
        office.daemon.set_aggressiveness(600);
        let mut program = Program::start(office.folder.path(), &[("DETSHARE_CLASS", "best-effort")]);
        let admitted = office.admit(|_| ());
        program.hear("ready");
        let other = office.introduce(&admitted, Class::Latency);
        until_it_sees_the_other(&mut program, &admitted);
        other.launch();
        program.say("begin");
        if on_few == no_slower {
            until("the launch is held", || admitted.view.is_holding());
            assert!(other.finish(other.launched(), 0));
        }
        program.hear("ok");
        program.does(&["open", "stream"]);
        let decision = *admitted.view.decisions().last().expect("it was written down");
        let expected = if on_few == no_slower { (BUSY, 0) } else { (0, BESIDE) };
        let reason = if on_few == no_slower { 0 } else { decision.reason };
        assert_eq!((decision.held_for, reason), expected, "{decision:?}");
        program.ends();
    }
}

/// Where it is of use to know what binds a kernel, a few launches of it go to few SMs, while nobody wants the GPU.
#[test]
fn what_few_sms_mean_to_a_kernel_is_found_out_where_that_is_of_use() {
    let (office, mut program, admitted, _other) = beside_a_server();
    let explored = || admitted.view.decisions().iter().filter(|decision| decision.reason == EXPLORED).count();
    office.daemon.set_aggressiveness(250);
    (0..50).for_each(|_| program.does(&["begin", "open", "stream"]));
    assert_eq!(explored(), 0, "nobody wants to know");
    office.daemon.set_aggressiveness(600);
    until("it is explored", || {
        program.does(&["begin", "open", "stream"]);
        explored() > 0
    });
    until("what it takes there is known", || {
        program.does(&["begin", "open", "stream"]);
        admitted.view.kernels().iter().any(|kernel| kernel.widths.iter().any(|(width, ..)| *width == 36))
    });
    program.ends();
}

/// What is in flight in one stream counts at a launch into another: a tenant with two streams has no more in the way of a
/// step than one with a single stream.
#[test]
fn what_is_in_flight_is_counted_over_all_streams() {
    let short = |entry: &mut Entry| entry.limits.longest_hold_ns = 2_000_000;
    let (office, mut program, admitted) = joined(&[("DETSHARE_CLASS", "best-effort")], short);
    office.daemon.set_policy(SLO_AWARE);
    let _other = office.introduce(&admitted, Class::Latency);
    // Its kernel takes far longer than may be in flight, whenever it is measured.
    let long_after = || {
        let since = Instant::now();
        while since.elapsed() < 4 * A_WHILE {
            std::thread::yield_now();
        }
    };
    // Launches that are decided alike are written down beside a latency tenant only.
    until("it sees the other, and the kernel is measured", || {
        program.does(&["begin"]);
        long_after();
        program.does(&["open", "stream"]);
        admitted.view.decisions().len() >= 3 && !admitted.view.kernels().is_empty()
    });
    for other_stream in ["begin-null", "begin-thread"] {
        program.does(&["begin", other_stream]);
        let second = *admitted.view.decisions().last().expect("it was written down");
        assert_eq!((second.held_for, second.reason), (IN_FLIGHT, LONGEST_HOLD), "{second:?}");
        long_after();
        program.does(&["open", "context"]);
    }
    program.ends();
}

/// Of a kernel that is known on a lane, one launch in 256 is timed, and all of the first few there. Those take what this
/// says; what the others take does not matter.
#[test]
fn kernels_that_keep_running_too_long_are_quarantined_until_they_behave() {
    const TIMED: u32 = 256;
    const FIRST: u32 = 20;
    const USUAL: Duration = Duration::from_millis(5);
    const FAR_TOO_LONG: Duration = Duration::from_millis(100);
    let (office, mut program, admitted) = joined(&[("DETSHARE_CLASS", "best-effort")], |_| ());
    office.daemon.set_policy(SLO_AWARE);
    // It has no habits: nobody is held for it, and only few SMs are to be had beside it by whoever cannot be planned with.
    let _other = office.introduce(&admitted, Class::Latency);
    let mut launched = 0_u32;
    let mut launch = |program: &mut Program, timed: Duration, is_first: bool| {
        program.does(&["begin"]);
        let takes = match (launched.is_multiple_of(TIMED), is_first) {
            (_, true) => USUAL,
            (true, false) => timed,
            (false, false) => Duration::ZERO,
        };
        let since = Instant::now();
        while since.elapsed() < takes {
            std::thread::yield_now();
        }
        program.does(&["open", "stream"]);
        launched += 1;
    };
    let mut launch_until = |program: &mut Program, timed: Duration, quarantined: bool| {
        let mut is_there = |here| {
            launch(program, timed, here < FIRST);
            admitted.view.is_quarantined() == quarantined
        };
        assert!((0..60 * TIMED).any(&mut is_there), "in vain: quarantined is still {}", !quarantined);
        // The first one since it was noticed.
        launch(program, timed, true);
    };
    launch_until(&mut program, FAR_TOO_LONG, true);
    let state = admitted.view.read(clock::now());
    assert_eq!(state.lane_width, 16, "few SMs: {state:?}");
    launch_until(&mut program, USUAL, false);
    assert_eq!(admitted.view.read(clock::now()).lane_width, 132, "all SMs again");
    program.ends();
}

/// What was measured is on the board, and who comes later goes on from what is known.
#[test]
fn what_a_kernel_takes_is_kept() {
    let (_office, mut program, admitted) = joined(&[], |_| ());
    until("it is measured", || {
        program.does(&["begin", "open", "stream"]);
        admitted.view.kernels().iter().any(|kernel| !kernel.widths.is_empty())
    });
    let mut known = admitted.view.kernels().remove(0);
    assert_eq!((known.name.as_str(), known.widths[0].0), ("waiter", 132));
    program.ends();

    known.widths = vec![(132, 7_000_000, 50)];
    let office = Office::open();
    office.daemon.publish_kernels(0, std::slice::from_ref(&known));
    office.daemon.set_policy(SLO_AWARE);
    let mut program = Program::start(office.folder.path(), &[("DETSHARE_CLASS", "best-effort")]);
    let admitted = office.admit(|_| ());
    program.hear("ready");
    let _other = office.introduce(&admitted, Class::Latency);
    let said = until_some(|| {
        program.does(&["begin", "open", "stream"]);
        admitted.view.decisions().first().copied()
    });
    assert_eq!(said.kernel, known.identity);
    // A few more measurements count by then, and the first of them were short.
    assert!(said.predicted_ns > 0 && said.predicted_ns <= 7_000_000, "{said:?}");
    program.ends();
}

/// Of kernels that nobody has ever seen something usual is assumed, and it can be seen that nothing is known.
#[test]
fn kernels_that_were_never_seen_are_taken_for_usual_ones() {
    let (_office, mut program, admitted, other) = beside_a_server();
    other.set_habits(1_000, 5_000_000, 0);
    program.does(&["shapes:1000", "stream"]);
    let decisions = admitted.view.decisions();
    assert!(decisions.iter().all(|decision| decision.predicted_ns == 0), "{:?}", decisions.last());
    program.ends();
}

/// As many blocks in another direction are another shape, which may take another time.
#[test]
fn a_grid_that_is_turned_has_a_profile_of_its_own() {
    let (_office, mut program, admitted) = joined(&[], |_| ());
    until("all three are measured", || {
        program.does(&["turned", "stream"]);
        admitted.view.kernels().iter().filter(|kernel| !kernel.widths.is_empty()).count() == 3
    });
    program.ends();
}

/// A program whose shapes never come again does not fill the memory with what is known of them.
#[test]
fn there_is_an_end_to_shapes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let stats = folder.path().join("stats");
    let (_office, mut program, admitted) = joined(&[("DETSHARE_STATS", stats.to_str().expect("plain"))], |_| ());
    program.does(&["shapes:10000", "stream"]);
    program.ends();
    assert_eq!(admitted.view.read(clock::now()).launched, 10_000);
    let stats = std::fs::read_to_string(stats).expect("stats");
    let stats: serde_json::Value = serde_json::from_str(&stats).expect("JSON");
    let shapes = stats["lanes"]["shapes"].as_u64().expect("a number");
    assert!((8_000..9_000).contains(&shapes), "{stats}");
}
