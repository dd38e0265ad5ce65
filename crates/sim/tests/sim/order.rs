//! The synthetic traces, made after what was measured on an H200, give the order of the ways that was measured there.

use detshare_policy::Dial;
use detshare_sim::report::Report;
use detshare_sim::trace::{Launch, Tenant, Trace};
use detshare_sim::{Settings, Simulator, Way, synthetic};

fn settings() -> Settings {
    Settings { run_ns: 10_000_000_000, ..Settings::default() }
}

/// What comes of some ways, with default settings.
fn reports<const N: usize>(trace: &Trace, ways: [&str; N]) -> [Report; N] {
    let simulator = Simulator::new(trace, settings()).expect("it can be simulated");
    ways.map(|way| simulator.run(Way::named(way).expect("there is one of that name")))
}

fn p99(report: &Report) -> u64 {
    report.latency[0].times.p99_ns
}

fn share(report: &Report) -> u64 {
    report.best_effort[0].share
}

#[test]
fn alone_it_is_as_it_was_measured() {
    let near = |measured: u64, found: u64| found.abs_diff(measured) * 100 <= measured * 2;
    let [small] = reports(&synthetic::small_beside_training(synthetic::one_client()), ["alone"]);
    assert!(near(1_190_000, small.latency[0].times.p50_ns), "{small:?}");
    assert!(near(11_500, small.best_effort[0].steps_per_1000_s), "{small:?}");
    assert_eq!((small.latency[0].p99_overhead, share(&small)), (0, 1_000));
    let [decode] = reports(&synthetic::decode_beside_training(synthetic::one_client()), ["alone"]);
    assert!(near(4_800_000, decode.latency[0].times.p50_ns), "{decode:?}");
}

#[test]
fn a_small_step_suffers_least_under_slo_aware_and_most_under_mps() {
    for arrivals in [synthetic::one_client(), synthetic::every(6_000_000)] {
        let trace = synthetic::small_beside_training(arrivals);
        let [alone, slo_aware, sliced, mps] = reports(&trace, ["alone", "slo-aware", "time-slicing", "mps"]);
        assert!(p99(&alone) < p99(&slo_aware) && p99(&slo_aware) < p99(&sliced) && p99(&sliced) < p99(&mps));
        assert!(slo_aware.latency[0].p99_overhead < 100, "{slo_aware:?}");
        assert!(share(&slo_aware) > 700, "{slo_aware:?}");
        assert!(share(&slo_aware) < share(&mps) && share(&sliced) < share(&mps));
    }
}

#[test]
fn so_does_a_decode_step_and_training_pays_for_it() {
    let trace = synthetic::decode_beside_training(synthetic::one_client());
    let [alone, slo_aware, sliced, mps] = reports(&trace, ["alone", "slo-aware", "time-slicing", "mps"]);
    assert!(p99(&alone) < p99(&slo_aware) && p99(&slo_aware) < p99(&sliced) && p99(&sliced) < p99(&mps));
    assert!(slo_aware.latency[0].p99_overhead < 50, "{slo_aware:?}");
    assert!(share(&slo_aware) < share(&sliced) && share(&sliced) < share(&mps));
}

#[test]
fn requests_at_random_are_not_foreseen_and_suffer_a_little() {
    let trace = synthetic::small_beside_training(synthetic::at_random(6_000_000));
    let [slo_aware, sliced, mps] = reports(&trace, ["slo-aware", "time-slicing", "mps"]);
    assert!(p99(&slo_aware) < p99(&sliced) && p99(&sliced) < p99(&mps));
    let held = &slo_aware.best_effort[0].decided.held;
    let due = held.get("due").map_or(0, |holds| holds.launches);
    assert!(held["busy"].launches > 20 * due, "{held:?}");
}

#[test]
fn throughput_gives_the_most_training() {
    for trace in [
        synthetic::small_beside_training(synthetic::one_client()),
        synthetic::decode_beside_training(synthetic::one_client()),
    ] {
        let [most, mps, sliced, fair, slo_aware] =
            reports(&trace, ["throughput", "mps", "time-slicing", "fair", "slo-aware"]);
        assert!([&sliced, &fair, &slo_aware].into_iter().all(|other| share(other) < share(&most)));
        assert_eq!((p99(&most), share(&most)), (p99(&mps), share(&mps)), "it holds nobody, and that is MPS");
    }
}

#[test]
fn a_greater_dial_gives_no_less_training() {
    /// What a run may differ by for no reason, in thousandths.
    const NOISE: u64 = 20;
    for trace in [
        synthetic::small_beside_training(synthetic::one_client()),
        synthetic::decode_beside_training(synthetic::one_client()),
    ] {
        let at = |thousandths| {
            let settings = Settings { dial: Dial::new(thousandths), ..settings() };
            let simulator = Simulator::new(&trace, settings).expect("it can be simulated");
            share(&simulator.run(Way::named("slo-aware").expect("there is one of that name")))
        };
        let shares: Vec<u64> = [0, 100, 250, 400, 500, 600, 750, 900, 1_000].map(at).to_vec();
        assert!(shares.windows(2).all(|pair| pair[1] + NOISE >= pair[0]), "{shares:?}");
    }
}

#[test]
fn a_best_effort_tenant_gets_its_least_share_beside_one_that_never_rests() {
    let always = synthetic::every(1_250_000);
    let trace = synthetic::small_beside_training(always);
    let at = |least_share| {
        let settings = Settings { least_share, longest_hold_ns: 10_000_000_000, ..settings() };
        let simulator = Simulator::new(&trace, settings).expect("it can be simulated");
        simulator.run(Way::named("slo-aware").expect("there is one of that name"))
    };
    let (least, more) = (at(100), at(300));
    assert!(share(&least) > 0 && share(&more) >= share(&least), "{} {}", share(&least), share(&more));
    assert!(least.best_effort[0].decided.ran.contains_key("least-share"), "{least:?}");
}

/// Whoever gets its least share must not launch so much at once that the GPU is full of it for a long time.
#[test]
fn a_least_share_does_not_take_more_than_it_is() {
    let trace = synthetic::decode_beside_training(synthetic::every(5_300_000));
    let [slo_aware] = reports(&trace, ["slo-aware"]);
    assert!(slo_aware.latency[0].p99_overhead < 200, "{:?}", slo_aware.latency[0].times);
    assert!((20..150).contains(&share(&slo_aware)), "{}", share(&slo_aware));
}

#[test]
fn no_launch_is_held_for_longer_than_the_longest_hold() {
    let trace = synthetic::small_beside_training(synthetic::one_client());
    let at = |longest_hold_ns| {
        let settings = Settings { longest_hold_ns, ..settings() };
        let simulator = Simulator::new(&trace, settings).expect("it can be simulated");
        simulator.run(Way::named("exclusive").expect("there is one of that name"))
    };
    // What training has in its queue is waited for, and takes longer than that.
    let (short, long) = (at(1_000_000), at(20_000_000));
    for (report, longest_ns) in [(&short, 1_000_000), (&long, 20_000_000)] {
        let decided = &report.latency[0].decided;
        let held: u64 = decided.held.values().map(|holds| holds.ns / holds.launches).max().unwrap_or(0);
        assert!(decided.longest_holds > 0 && held <= longest_ns + 10_000, "{decided:?}");
    }
    assert!(p99(&short) + 15_000_000 < p99(&long), "{} {}", p99(&short), p99(&long));
}

#[test]
fn a_fair_share_is_a_side_of_a_split() {
    let mut trace = synthetic::small_beside_training(synthetic::one_client());
    // Two of them, of long kernels that compute binds, on front64 and rest64.
    let matmul = trace.kernels.iter().position(|kernel| kernel.name == "matmul").expect("training has some");
    let mut one = trace.tenants[1].clone();
    one.steps = vec![vec![Launch { kernel: u32::try_from(matmul).expect("it is small"), gap_ns: 0 }; 100]];
    let other = Tenant { name: "other".to_owned(), ..one.clone() };
    trace.tenants = vec![one, other];
    let [fair] = reports(&trace, ["fair"]);
    let shares: Vec<u64> = fair.best_effort.iter().map(|it| it.share).collect();
    assert!(shares[0].abs_diff(64_000 / 132) <= 10 && shares[1].abs_diff(68_000 / 132) <= 10, "{shares:?}");
}

#[test]
fn without_profiles_every_kernel_is_a_usual_one() {
    let trace = synthetic::small_beside_training(synthetic::one_client());
    let at = |profiles| {
        let simulator = Simulator::new(&trace, Settings { profiles, ..settings() }).expect("it can be simulated");
        simulator.run(Way::named("slo-aware").expect("there is one of that name"))
    };
    let (with, without) = (at(true), at(false));
    assert!(p99(&with) < p99(&without), "{} {}: long ones are in the way", p99(&with), p99(&without));
}

#[test]
fn a_policy_works_without_mps_too() {
    let trace = synthetic::small_beside_training(synthetic::one_client());
    let settings = Settings { mps: false, ..settings() };
    let simulator = Simulator::new(&trace, settings).expect("it can be simulated");
    let [sliced, slo_aware] =
        ["time-slicing", "slo-aware"].map(|way| simulator.run(Way::named(way).expect("there is one of that name")));
    assert!(p99(&slo_aware) < p99(&sliced));
}

/// Nine of ten steps of each server are tokens, or more: the time that they take at most, and all steps of all servers.
fn tokens(report: &Report) -> (u64, u64) {
    let slowest = report.latency.iter().map(|server| server.times.p90_ns).max();
    (slowest.expect("a server"), report.latency.iter().map(|server| server.requests).sum())
}

#[test]
fn tokens_keep_their_pace_best_under_tpot_first() {
    let ways = ["alone", "tpot-first", "throughput", "time-slicing"];
    for (servers, with_training) in [(1, true), (2, false), (2, true)] {
        let [alone, tpot_first, throughput, sliced] = reports(&synthetic::llm_servers(servers, with_training), ways);
        let [(pace, _), (first, steps), (all_at_once, fewer), (by_turns, _)] =
            [&alone, &tpot_first, &throughput, &sliced].map(tokens);
        assert!(pace < first && first < all_at_once && first < by_turns, "{servers}: {first} {all_at_once} {by_turns}");
        assert!(steps > fewer, "{servers}: what is not in each other's way is done sooner: {steps}, {fewer}");
        if servers == 1 {
            assert!(tpot_first.latency[0].p99_overhead < 70, "prompts too: {tpot_first:?}");
            assert!(first * 100 < pace * 107, "{first}, alone {pace}");
        }
    }
}
