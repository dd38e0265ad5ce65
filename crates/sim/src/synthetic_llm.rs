//! LLM servers that answer requests like those of the Azure LLM inference traces of 2023, with step times that are assumed.

use super::{HOST_NS, SMS, graph, training};
use crate::random::Random;
use crate::trace::{Bound, Class, Decode, Gpu, Kernel, Launch, OnSms, Request, Server, Tenant, Trace, VERSION};

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
    /// 8 billion: a decode step of 5.5 ms and 25 µs for each span of 256 tokens, 18 ms for 512 tokens of a prompt.
    EightB,
    /// 1 billion: 1.3 ms and 7 µs, 4 ms.
    OneB,
}

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
    const HOST_STEP_NS: u64 = 600_000;
    const ROWS: u32 = 32;
    const CACHE_TOKENS: u32 = 65_536;
    const SPAN_TOKENS: u32 = 256;
    // Nodes of a decode step's graph, what it takes, and for each span; launches of a chunk, and what each takes.
    let (nodes, decode_ns, span_ns, launches, launch_ns) = match served.model {
        Llm::EightB => (420, 5_500_000, 25_000, 128, 140_625),
        Llm::OneB => (220, 1_300_000, 7_000, 64, 62_500),
    };
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
    // Each larger by a half than the one before, up to a full cache and a row's begun span.
    let most = CACHE_TOKENS / SPAN_TOKENS + ROWS;
    let mut spans = ROWS;
    loop {
        decode.push(Decode { spans, kernel: place(kernels) });
        kernels.push(graph(&of(&format!("decode-{spans}")), nodes, decode_ns + span_ns * u64::from(spans), [102, 105]));
        if spans == most {
            break;
        }
        spans = (spans + spans.div_ceil(2)).min(most);
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
            host_ns: HOST_STEP_NS,
            decode,
            prefill: vec![Launch { kernel: chunk, gap_ns: HOST_NS }; launches],
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
