//! Whatever the trace: the same result each time, and nothing lost.

use detshare_policy::{Dial, POLICIES};
use detshare_sim::trace::{Arrivals, Bound, Class, Gpu, Kernel, Launch, OnSms, Tenant, Trace, VERSION};
use detshare_sim::{Settings, Simulator, Way, synthetic};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

fn ways() -> Vec<Way> {
    let plain = [Way::Alone, Way::TimeSlicing, Way::Mps].into_iter();
    plain.chain(POLICIES.iter().filter_map(|policy| Way::named(policy.name))).collect()
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let trace = synthetic::small_beside_training(synthetic::at_random(6 * MS));
    let of = |seed, way| {
        let settings = Settings { run_ns: 1_000 * MS, seed, ..Settings::default() };
        Simulator::new(&trace, settings).expect("it can be simulated").run(way).to_json()
    };
    for way in ways() {
        assert_eq!(of(7, way), of(7, way), "{}", way.name());
    }
    assert_ne!(of(7, Way::Alone), of(8, Way::Alone));
}

/// A result that was looked at once. It changes with the model and the policies alone, never with the machine.
#[test]
fn arrivals_are_the_same_on_every_machine() {
    let trace = synthetic::small_beside_training(synthetic::at_random(6 * MS));
    let settings = Settings { run_ns: 10_000 * MS, ..Settings::default() };
    let alone = Simulator::new(&trace, settings).expect("it can be simulated").run(Way::Alone);
    let latency = &alone.latency[0];
    assert_eq!((latency.requests, latency.times.p99_ns, latency.times.max_ns), LOOKED_AT);
}

const LOOKED_AT: (u64, u64, u64) = (1_735, 2_803_437, 4_196_502);

#[test]
fn requests_queue_up_and_their_latency_counts_from_when_they_came() {
    let mut trace = synthetic::small_beside_training(Arrivals::Recorded { at_ns: vec![MS, MS, MS + 1, 20 * MS] });
    trace.tenants.truncate(1);
    let run_ns = 100 * MS;
    let simulator = Simulator::new(&trace, Settings { run_ns, ..Settings::default() }).expect("it can be simulated");
    let latency = &simulator.run(Way::Alone).latency[0];
    // 1.185 ms on the GPU, 3 µs to launch it, 1.5 µs to see that it is over.
    assert_eq!((latency.requests, latency.unanswered), (4, 0));
    assert_eq!(latency.times.max_ns, 3 * 1_189_500 - 1, "the third waited for two others");
    let short = Settings { run_ns: 2 * MS, ..Settings::default() };
    let latency = &Simulator::new(&trace, short).expect("it can be simulated").run(Way::Alone).latency[0];
    assert_eq!((latency.requests, latency.unanswered), (0, 3));
}

#[test]
fn a_full_queue_makes_the_program_wait() {
    let mut trace = synthetic::small_beside_training(synthetic::one_client());
    let steps = |trace: &Trace| {
        let settings = Settings { run_ns: 2_000 * MS, ..Settings::default() };
        let report = Simulator::new(trace, settings).expect("it can be simulated").run(Way::Alone);
        (report.best_effort[0].steps, report.launches - report.ended)
    };
    let (deep, _) = steps(&trace);
    trace.tenants[1].queue = 2;
    let (shallow, in_flight) = steps(&trace);
    assert!(in_flight <= 3, "{in_flight}");
    assert!(shallow + 1 >= deep, "two in flight cost nothing: {shallow} of {deep}");
    trace.tenants[1].queue = 1;
    assert!(steps(&trace).0 < deep, "one does");
}

fn kernel() -> impl Strategy<Value = Kernel> {
    let bound = prop_oneof![Just(None), Just(Some(Bound::Compute)), Just(Some(Bound::Memory))];
    let ns = prop_oneof![1..50_000_u64, 1..3 * MS];
    (ns, 1..=300_u32, 1..40_u64, bound, any::<bool>()).prop_map(|(ns, nodes, slower, bound, is_measured)| {
        let narrow = is_measured.then_some(OnSms { sms: 64, ns: ns + ns * slower / 10 });
        let durations = narrow.into_iter().chain([OnSms { sms: 132, ns }]).collect();
        Kernel { id: String::new(), name: String::new(), nodes, bound, durations }
    })
}

fn arrivals() -> impl Strategy<Value = Arrivals> {
    prop_oneof![
        (50_000..10 * MS, 0..50_000_u64).prop_map(|(period_ns, jitter_ns)| Arrivals::Periodic { period_ns, jitter_ns }),
        (50_000..10 * MS).prop_map(|mean_ns| Arrivals::Poisson { mean_ns }),
        (0..5 * MS, 0..MS).prop_map(|(pause_ns, jitter_ns)| Arrivals::Pause { pause_ns, jitter_ns }),
        proptest::collection::vec(0..40 * MS, 0..20).prop_map(|mut at_ns| {
            at_ns.sort_unstable();
            Arrivals::Recorded { at_ns }
        }),
    ]
}

fn tenant(kernels: usize) -> impl Strategy<Value = Tenant> {
    let launch = (0..kernels, prop_oneof![Just(0), 0..100_000_u64])
        .prop_map(|(kernel, gap_ns)| Launch { kernel: u32::try_from(kernel).unwrap(), gap_ns });
    let steps = proptest::collection::vec(proptest::collection::vec(launch, 1..8), 1..4);
    (steps, proptest::option::of(arrivals()), 1..=10_000_u32, 1..30_u32, any::<bool>()).prop_map(
        |(steps, arrivals, weight, queue, waits)| {
            let class = if arrivals.is_some() { Class::Latency } else { Class::BestEffort };
            let (ttft_ns, tpot_ns) = (None, arrivals.as_ref().map(|_| u64::from(weight) * 10_000));
            Tenant { name: String::new(), class, weight, queue, waits, steps, arrivals, ttft_ns, tpot_ns, server: None }
        },
    )
}

fn trace() -> impl Strategy<Value = Trace> {
    proptest::collection::vec(kernel(), 1..6).prop_flat_map(|kernels| {
        proptest::collection::vec(tenant(kernels.len()), 1..6).prop_map(move |mut tenants| {
            let mut kernels = kernels.clone();
            kernels.iter_mut().enumerate().for_each(|(number, kernel)| kernel.id = format!("kernel-{number}"));
            tenants.iter_mut().enumerate().for_each(|(number, tenant)| tenant.name = format!("tenant-{number}"));
            Trace { version: VERSION, gpu: Gpu { name: String::new(), sms: 132 }, kernels, tenants }
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_whatever_the_trace(trace in trace(), dial in 0..=1_000_u16, mps in any::<bool>()) {
        let settings = Settings { run_ns: 40 * MS, dial: Dial::new(dial), mps, ..Settings::default() };
        let simulator = Simulator::new(&trace, settings.clone()).expect("it can be simulated");
        for way in ways() {
            let report = simulator.run(way);
            prop_assert_eq!(&report, &simulator.run(way));
            let queues: u64 = trace.tenants.iter().map(|tenant| u64::from(tenant.queue)).sum();
            prop_assert!(report.ended <= report.launches && report.launches - report.ended <= queues);
            let tenants = u64::try_from(trace.tenants.len()).unwrap();
            let decided = report.latency.iter().map(|it| &it.decided).chain(report.best_effort.iter().map(|it| &it.decided));
            let ran: u64 = decided.map(|decided| decided.ran.values().sum::<u64>() + decided.longest_holds).sum();
            // Each launch is let run once; those for which the driver had no room yet are not made.
            let expected = if matches!(way, Way::Policy(_)) { report.launches } else { 0 };
            prop_assert!(ran >= expected && ran <= expected + tenants, "{} of {}", ran, expected);
            for latency in &report.latency {
                let times = &latency.times;
                prop_assert!(times.p50_ns <= times.p90_ns && times.p90_ns <= times.p99_ns && times.p99_ns <= times.max_ns);
                prop_assert!(latency.requests == 0 || times.p50_ns > settings.costs.launch_ns);
            }
        }
    }

    #[test]
    fn a_trace_is_read_as_it_was_written(trace in trace()) {
        prop_assert_eq!(Trace::from_json(&trace.to_json()), Ok(trace));
    }
}
