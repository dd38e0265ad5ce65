//! Traces made in code, after what was measured on an H200 with PyTorch: a small inference step, one like that of a model with
//! 7 billion parameters, LLM servers that decode and take prompts in between, and a training loop that fills the GPU.

#[path = "synthetic_llm.rs"]
mod llm;

pub use llm::{Llm, Served, Traffic, alone, at_load, requests, served};

use crate::trace::{Arrivals, Bound, Class, Gpu, Kernel, Launch, OnSms, Tenant, Trace, VERSION};
use core::ops::Range;

/// SMs of an H200.
const SMS: u32 = 132;
/// What Python does on the host for each launch.
const HOST_NS: u64 = 4_000;

/// What a part of a training step is made of.
struct Part {
    /// Kernels of up to 35 µs: half of all.
    short: usize,
    middle: usize,
    /// Kernels of 200 to 380 µs, in which most of the time is spent.
    long: usize,
}

/// Forward, backward, and the optimizer: 1,055 kernels.
const TRAINING: [Part; 3] = [
    Part { short: 100, middle: 140, long: 60 },
    Part { short: 230, middle: 205, long: 120 },
    Part { short: 198, middle: 2, long: 0 },
];

/// Requests that come by a clock, each up to 40 µs late.
#[must_use]
pub fn every(period_ns: u64) -> Arrivals {
    Arrivals::Periodic { period_ns, jitter_ns: 40_000 }
}

/// Requests that come at random, at this mean distance.
#[must_use]
pub fn at_random(mean_ns: u64) -> Arrivals {
    Arrivals::Poisson { mean_ns }
}

/// Requests of one client, which sleeps for 5 ms after each answer and is woken up to 100 µs late.
#[must_use]
pub fn one_client() -> Arrivals {
    Arrivals::Pause { pause_ns: 5_050_000, jitter_ns: 100_000 }
}

/// A small inference server (a graph of 200 kernels, 1.19 ms) beside training.
#[must_use]
pub fn small_beside_training(arrivals: Arrivals) -> Trace {
    beside_training(small_step(), arrivals)
}

/// A server like one of a model with 7 billion parameters (4.8 ms, bound by memory) beside training.
#[must_use]
pub fn decode_beside_training(arrivals: Arrivals) -> Trace {
    beside_training(decode_step(), arrivals)
}

/// LLM servers with a model of 8 billion parameters that always have requests, beside training or not. A step is a token for
/// each request that runs (6 ms, bound by memory), and now and then a prompt (about 30 ms, bound by compute): those of different
/// servers drift past each other.
#[must_use]
pub fn llm_servers(servers: usize, with_training: bool) -> Trace {
    const LAYERS: usize = 32;
    const MATMULS: usize = 4;
    let mut kernels = vec![graph("decode-8b", 420, 6_000_000, [102, 105])];
    let mut matmuls = variants(&mut kernels, "prefill", Bound::Compute, 150_000..310_000);
    let prompt: Vec<Launch> =
        (0..LAYERS * MATMULS).map(|_| Launch { kernel: matmuls.next().unwrap_or(0), gap_ns: HOST_NS }).collect();
    let server = |number: usize| {
        let tokens = 20 + 7 * number;
        let mut steps = vec![vec![Launch { kernel: 0, gap_ns: 0 }]; tokens];
        steps.push(prompt.clone());
        Tenant {
            name: format!("llm-{number}"),
            class: Class::Latency,
            weight: 100,
            queue: 1_024,
            waits: true,
            steps,
            arrivals: Some(Arrivals::Pause { pause_ns: 300_000, jitter_ns: 100_000 }),
            ttft_ns: Some(500_000_000),
            tpot_ns: None,
            server: None,
        }
    };
    let mut tenants: Vec<Tenant> = (0..servers).map(server).collect();
    tenants.extend(with_training.then(|| training(&mut kernels)));
    let gpu = Gpu { name: "H200".to_owned(), sms: SMS };
    Trace { version: VERSION, gpu, kernels, tenants }
}

fn beside_training(step: Kernel, arrivals: Arrivals) -> Trace {
    let server = Tenant {
        name: "serve".to_owned(),
        class: Class::Latency,
        weight: 100,
        queue: 1_024,
        waits: true,
        steps: vec![vec![Launch { kernel: 0, gap_ns: 0 }]],
        arrivals: Some(arrivals),
        ttft_ns: None,
        tpot_ns: None,
        server: None,
    };
    let mut kernels = vec![step];
    let training = training(&mut kernels);
    let gpu = Gpu { name: "H200".to_owned(), sms: SMS };
    Trace { version: VERSION, gpu, kernels, tenants: vec![server, training] }
}

/// Measured: 1.19 ms; on 96 SMs 12 % more, on 64 SMs 35 %.
fn small_step() -> Kernel {
    graph("decode-small", 200, 1_185_000, [112, 135])
}

/// Measured: 4.8 ms; on 96 SMs 2 % more, on 64 SMs 5 %.
fn decode_step() -> Kernel {
    graph("decode-7b", 390, 4_795_000, [102, 105])
}

/// A graph with what it takes on 96 and 64 SMs, in hundredths.
fn graph(name: &str, nodes: u32, ns: u64, [on_96, on_64]: [u64; 2]) -> Kernel {
    let on = |sms, hundredths| OnSms { sms, ns: ns * hundredths / 100 };
    let durations = vec![on(64, on_64), on(96, on_96), on(SMS, 100)];
    Kernel { id: name.to_owned(), name: name.to_owned(), nodes, bound: Some(Bound::Memory), durations }
}

/// A step of 87 ms. In each part the sorts come evenly mixed, as in layer after layer.
fn training(kernels: &mut Vec<Kernel>) -> Tenant {
    let mut short = variants(kernels, "elementwise", Bound::Memory, 3_000..34_000);
    let mut middle = variants(kernels, "reduce", Bound::Memory, 40_000..117_000);
    let mut long = variants(kernels, "matmul", Bound::Compute, 200_000..380_000);
    let mut step = Vec::new();
    for Part { short: short_ones, middle: middle_ones, long: long_ones } in TRAINING {
        let (mut shorter, all) = (0, short_ones + middle_ones + long_ones);
        for place in 0..all {
            let kernel = if is_one_of(long_ones, place, all) {
                long.next()
            } else {
                shorter += 1;
                let is_short = is_one_of(short_ones, shorter - 1, short_ones + middle_ones);
                if is_short { short.next() } else { middle.next() }
            };
            step.push(Launch { kernel: kernel.unwrap_or(0), gap_ns: HOST_NS });
        }
    }
    Tenant {
        name: "train".to_owned(),
        class: Class::BestEffort,
        weight: 100,
        queue: 1_024,
        waits: true,
        steps: vec![step],
        arrivals: None,
        ttft_ns: None,
        tpot_ns: None,
        server: None,
    }
}

/// Whether a place is one of so many that lie evenly among all.
fn is_one_of(count: usize, place: usize, all: usize) -> bool {
    place * count / all != (place + 1) * count / all
}

/// Adds sixteen kernels with durations in a range, and goes round them for ever.
fn variants(kernels: &mut Vec<Kernel>, name: &str, bound: Bound, ns: Range<u64>) -> impl Iterator<Item = u32> + use<> {
    const COUNT: u32 = 16;
    /// So that shorter and longer ones alternate.
    const STRIDE: u32 = 7;
    let first = u32::try_from(kernels.len()).unwrap_or(u32::MAX);
    kernels.extend((0..COUNT).map(|number| {
        let ns = ns.start + (ns.end - ns.start) * u64::from(number) / u64::from(COUNT);
        let durations = vec![OnSms { sms: SMS, ns }];
        Kernel { id: format!("{name}-{number}"), name: name.to_owned(), nodes: 1, bound: Some(bound), durations }
    }));
    (0..COUNT).cycle().map(move |turn| first + turn * STRIDE % COUNT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn training_is_as_it_was_measured() {
        let trace = small_beside_training(one_client());
        trace.check().expect("it can be");
        let kernel = |launch: &Launch| &trace.kernels[usize::try_from(launch.kernel).unwrap()];
        let durations: Vec<u64> =
            trace.tenants[1].steps[0].iter().map(|launch| kernel(launch).durations[0].ns).collect();
        assert_eq!(durations.len(), 1_055);
        let below = |ns: u64| durations.iter().filter(|duration| **duration < ns).count();
        assert!((520..540).contains(&below(35_000)), "{}", below(35_000));
        let total: u64 = durations.iter().sum();
        assert!((86_000_000..87_500_000).contains(&total), "{total}");
        let long: u64 = durations.iter().filter(|ns| (200_000..=380_000).contains(*ns)).sum();
        assert!((58..62).contains(&(long * 100 / total)), "{long} of {total}");
    }
}
