//! LLM servers that answer requests like those of the Azure LLM inference traces of 2023, with step times
//! that were measured (8B) or are assumed (1B).

use super::{HOST_NS, SMS, graph, training};
use crate::Simulator;
use crate::random::Random;
use crate::report::Service;
use crate::settings::{Error, Settings, Way};
use crate::trace::{
    Bound, Class, Decode, Gpu, Kernel, LAST_NS, Launch, OnSms, Request, Server, Tenant, Trace, VERSION,
};

/// What people send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    /// Questions and answers of some length.
    Conversation,
    /// Long prompts and short answers.
    Code,
}

/// A model, by how many parameters it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Llm {
    /// 8 billion, as measured: a decode step of 8.65 ms and 35 µs for each span of 256 tokens, 16.8 ms for 512 tokens of a
    /// prompt, and up to 18 ms more by its host.
    EightB,
    /// 1 billion, assumed: 1.3 ms and 7 µs, 4 ms.
    OneB,
}

/// What a model's steps take.
struct Times {
    /// Nodes of a decode step's graph.
    nodes: u32,
    /// What the host does before each step.
    host_ns: u64,
    /// A decode step, and for each span.
    decode_ns: u64,
    span_ns: u64,
    /// Launches of a chunk, what each takes, and what the host does before, chunk by chunk.
    launches: usize,
    launch_ns: u64,
    prefill_host_ns: &'static [u64],
}

impl Llm {
    fn times(self) -> Times {
        match self {
            Self::EightB => Times {
                nodes: 420,
                host_ns: 600_000,
                decode_ns: 8_650_000,
                span_ns: 35_000,
                launches: 128,
                launch_ns: 131_300,
                prefill_host_ns: &PREFILL_HOST_8B,
            },
            Self::OneB => Times {
                nodes: 220,
                host_ns: 600_000,
                decode_ns: 1_300_000,
                span_ns: 7_000,
                launches: 64,
                launch_ns: 62_500,
                prefill_host_ns: &[],
            },
        }
    }
}

/// Measured: by how much chunks of an 8B server alone, whose host launches kernel by kernel, are longer than the fastest, a figure
/// for each tenth of them.
const PREFILL_HOST_8B: [u64; 10] =
    [0, 1_300_000, 7_400_000, 0, 17_700_000, 2_500_000, 1_800_000, 13_400_000, 3_300_000, 4_400_000];

/// How many of a hundred are at most as long as the lengths below.
const HUNDREDTHS: [u64; 11] = [0, 1, 5, 10, 25, 50, 75, 90, 95, 99, 100];

impl Traffic {
    /// Lengths of prompts and of answers.
    const fn lengths(self) -> [[u64; HUNDREDTHS.len()]; 2] {
        match self {
            Self::Conversation => [
                [2, 30, 180, 205, 400, 1_000, 1_200, 2_700, 4_000, 4_200, 8_000],
                [7, 16, 40, 55, 85, 130, 390, 425, 450, 600, 1_000],
            ],
            Self::Code => [
                [3, 17, 75, 150, 580, 1_500, 2_700, 5_200, 7_300, 7_400, 7_500],
                [6, 6, 6, 7, 9, 13, 24, 55, 90, 250, 1_900],
            ],
        }
    }
}

/// Requests that come at random, at this mean distance. The same seed gives the same.
#[must_use]
pub fn requests(traffic: Traffic, mean_ns: u64, count: usize, seed: u64) -> Vec<Request> {
    let mut random = Random::new(seed, 0);
    let mut at_ns = 0;
    let [prompts, outputs] = traffic.lengths();
    let request = |_| {
        at_ns += random.until_next(mean_ns);
        let [prompt, output] = [&prompts, &outputs].map(|lengths| drawn(&mut random, lengths));
        Request { at_ns, prompt, output }
    };
    (0..count).map(request).collect()
}

/// A length such that as many are shorter as the hundredths say; lines are drawn in between.
fn drawn(random: &mut Random, lengths: &[u64; HUNDREDTHS.len()]) -> u32 {
    const PARTS: u64 = 1_000;
    let at = random.upto(100 * PARTS - 1);
    let after = HUNDREDTHS.iter().position(|hundredths| hundredths * PARTS > at).unwrap_or(1).max(1);
    let (from, to) = (HUNDREDTHS[after - 1] * PARTS, HUNDREDTHS[after] * PARTS);
    let length = lengths[after - 1] + (lengths[after] - lengths[after - 1]) * (at - from) / (to - from);
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// A server and what it is sent.
#[derive(Debug, Clone)]
pub struct Served {
    /// What people call it.
    pub name: &'static str,
    /// What it runs.
    pub model: Llm,
    /// What it is sent.
    pub requests: Vec<Request>,
    /// What it wants: the first token, and the time between tokens.
    pub objectives: [Option<u64>; 2],
}

/// The server with its requests at another distance, such that alone it is busy for that part of the time, in thousandths: its
/// *load*.
///
/// # Errors
///
/// What is wrong with the server.
pub fn at_load(server: &Served, load: u64, run_ns: u64) -> Result<Served, Error> {
    const HALVINGS: u32 = 24;
    let count = u64::try_from(server.requests.len()).unwrap_or(u64::MAX).max(1);
    // Nearer to each other, they would all have come before the end; further away, some never.
    let (mut near_ns, mut far_ns) = ((run_ns / count).max(1), run_ns.min(LAST_NS / count).max(2));
    for _ in 0..HALVINGS {
        let mean_ns = u64::try_from((u128::from(near_ns) * u128::from(far_ns)).isqrt()).unwrap_or(far_ns);
        let busy = alone(&stretched(server, mean_ns), run_ns)?.busy;
        (near_ns, far_ns) = if busy > load { (mean_ns, far_ns) } else { (near_ns, mean_ns) };
    }
    Ok(stretched(server, far_ns))
}

/// What a server's users get with the GPU for itself.
///
/// # Errors
///
/// What is wrong with the server.
///
/// # Panics
///
/// Never: a server has users.
pub fn alone(server: &Served, run_ns: u64) -> Result<Service, Error> {
    let trace = served(core::slice::from_ref(server), false);
    let report = Simulator::new(&trace, Settings { run_ns, ..Settings::default() })?.run(Way::Alone);
    Ok(report.latency[0].service.clone().expect("a server has users"))
}

/// The same requests at another mean distance.
fn stretched(server: &Served, mean_ns: u64) -> Served {
    let last_ns = u128::from(server.requests.last().map_or(1, |request| request.at_ns).max(1));
    let all_ns = u128::from(mean_ns) * u128::try_from(server.requests.len()).unwrap_or(0);
    let at = |at_ns: u64| u64::try_from(u128::from(at_ns) * all_ns / last_ns).unwrap_or(u64::MAX);
    let requests = server.requests.iter().map(|request| Request { at_ns: at(request.at_ns), ..*request });
    Served { requests: requests.collect(), ..server.clone() }
}

/// Such servers, beside a training that fills the GPU or not.
#[must_use]
pub fn served(servers: &[Served], with_training: bool) -> Trace {
    let mut kernels = Vec::new();
    let mut tenants: Vec<Tenant> = servers.iter().map(|served| tenant(&mut kernels, served)).collect();
    tenants.extend(with_training.then(|| training(&mut kernels)));
    let gpu = Gpu { name: "H200".to_owned(), sms: SMS };
    Trace { version: VERSION, gpu, kernels, tenants }
}

fn tenant(kernels: &mut Vec<Kernel>, served: &Served) -> Tenant {
    const ROWS: u32 = 32;
    const CACHE_TOKENS: u32 = 65_536;
    const SPAN_TOKENS: u32 = 256;
    let Times { nodes, host_ns, decode_ns, span_ns, launches, launch_ns, prefill_host_ns } = served.model.times();
    let place = |kernels: &[Kernel]| u32::try_from(kernels.len()).unwrap_or(u32::MAX);
    let of = |part: &str| format!("{}-{part}", served.name);
    let chunk = place(kernels);
    kernels.push(Kernel {
        id: of("prefill"),
        name: of("prefill"),
        nodes: 1,
        bound: Some(Bound::Compute),
        durations: vec![OnSms { sms: SMS, ns: launch_ns }],
    });
    let mut decode = Vec::new();
    // Each larger by 15 % than the one before, up to a full cache and a row's begun span, as `workloads/llm_sizes.py` has them.
    let most = CACHE_TOKENS / SPAN_TOKENS + ROWS;
    let mut spans = ROWS;
    loop {
        decode.push(Decode { spans, kernel: place(kernels) });
        kernels.push(graph(&of(&format!("decode-{spans}")), nodes, decode_ns + span_ns * u64::from(spans), [102, 105]));
        if spans == most {
            break;
        }
        spans = (spans * 115).div_ceil(100).min(most);
    }
    Tenant {
        name: served.name.to_owned(),
        class: Class::Latency,
        weight: 100,
        queue: 1_024,
        waits: true,
        steps: Vec::new(),
        arrivals: None,
        ttft_ns: served.objectives[0],
        tpot_ns: served.objectives[1],
        server: Some(Server {
            rows: ROWS,
            chunk: 512,
            interleave: true,
            cache_tokens: CACHE_TOKENS,
            host_ns,
            decode,
            prefill: vec![Launch { kernel: chunk, gap_ns: HOST_NS }; launches],
            prefill_host_ns: prefill_host_ns.to_vec(),
            requests: served.requests.clone(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_those_of_the_traces() {
        let made = requests(Traffic::Conversation, 1_000_000, 20_000, 1);
        let middle = |mut lengths: Vec<u32>| {
            lengths.sort_unstable();
            lengths[lengths.len() / 2]
        };
        let (prompt, output) =
            (middle(made.iter().map(|it| it.prompt).collect()), middle(made.iter().map(|it| it.output).collect()));
        assert!((950..1_050).contains(&prompt) && (125..135).contains(&output), "{prompt} {output}");
        assert!((19_500_000_000..20_500_000_000).contains(&made[19_999].at_ns), "{}", made[19_999].at_ns);
        assert_eq!(made, requests(Traffic::Conversation, 1_000_000, 20_000, 1));
        assert_ne!(made, requests(Traffic::Conversation, 1_000_000, 20_000, 2));
    }
}
