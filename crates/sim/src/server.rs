//! An LLM server: which requests run, and what its next step launches. As `workloads/llm_scheduler.py`, whose requests these are.
//!
//! A request is admitted once the cache has blocks for its whole prompt and answer, in the order of arrival. Its prompt goes
//! through the model chunk by chunk; then each decode step gives one token to every request that runs.

use crate::trace::{self, Launch};
use std::collections::VecDeque;

/// Tokens of a block of the cache.
const BLOCK: u64 = 16;
/// Tokens of a span, by which decode steps grow.
const SPAN: u64 = 256;

/// How far a request has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    prefilled: u32,
    pub(crate) tokens: u32,
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
    pub(crate) is_refused: bool,
}

/// What a step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Prefill,
    Decode(Launch),
}

/// A server and its requests, by their places in the trace.
pub(crate) struct Server<'a> {
    trace: &'a trace::Server,
    /// The next that has not arrived.
    next: usize,
    waiting: VecDeque<usize>,
    prefilling: VecDeque<usize>,
    running: Vec<usize>,
    free_blocks: u64,
    step: Step,
    /// Prefill steps that are over.
    chunks: usize,
    /// When the step began that is under way, and what all before it took.
    begun_ns: u64,
    pub(crate) busy_ns: u64,
    pub(crate) progress: Vec<Progress>,
    /// All times between two tokens of a request.
    pub(crate) gaps_ns: Vec<u64>,
    pub(crate) latencies_ns: Vec<u64>,
}

impl<'a> Server<'a> {
    pub(crate) fn new(trace: &'a trace::Server) -> Self {
        Self {
            trace,
            next: 0,
            waiting: VecDeque::new(),
            prefilling: VecDeque::new(),
            running: Vec::new(),
            free_blocks: u64::from(trace.cache_tokens) / BLOCK,
            step: Step::Decode(Launch { kernel: 0, gap_ns: 0 }),
            chunks: 0,
            begun_ns: 0,
            busy_ns: 0,
            progress: vec![Progress::default(); trace.requests.len()],
            gaps_ns: Vec::new(),
            latencies_ns: Vec::new(),
        }
    }

    /// What its step launches, one after the other; what the host does for the step comes before the first.
    pub(crate) fn launch(&self, place: usize) -> Launch {
        let all = &self.trace.prefill_host_ns;
        let (launch, more_ns) = match self.step {
            Step::Decode(launch) => (launch, 0),
            Step::Prefill => (self.trace.prefill[place], all.get(self.chunks % all.len().max(1)).copied().unwrap_or(0)),
        };
        let host_ns = if place == 0 { self.trace.host_ns + more_ns } else { 0 };
        Launch { gap_ns: launch.gap_ns + host_ns, ..launch }
    }

    pub(crate) fn launches(&self) -> usize {
        match self.step {
            Step::Decode(_) => 1,
            Step::Prefill => self.trace.prefill.len(),
        }
    }

    /// Chooses the next step, and says when it is to begin; nothing where no request is left.
    pub(crate) fn next_step(&mut self, now_ns: u64) -> Option<u64> {
        self.begun_ns = self.choose(now_ns)?;
        Some(self.begun_ns)
    }

    fn choose(&mut self, now_ns: u64) -> Option<u64> {
        let mut now_ns = now_ns;
        loop {
            self.arrive(now_ns);
            self.admit();
            let decode_is_due = self.trace.interleave && self.step == Step::Prefill && !self.running.is_empty();
            if !self.prefilling.is_empty() && !decode_is_due {
                self.step = Step::Prefill;
                return Some(now_ns);
            }
            if !self.running.is_empty() {
                self.step = Step::Decode(self.decode());
                return Some(now_ns);
            }
            // Whoever waits finds room where nobody runs, so nobody does.
            now_ns = self.trace.requests.get(self.next)?.at_ns;
        }
    }

    fn arrive(&mut self, now_ns: u64) {
        while let Some(request) = self.trace.requests.get(self.next).filter(|request| request.at_ns <= now_ns) {
            let is_too_long = blocks(request) > u64::from(self.trace.cache_tokens) / BLOCK;
            self.progress[self.next].is_refused = is_too_long;
            if !is_too_long {
                self.waiting.push_back(self.next);
            }
            self.next += 1;
        }
    }

    fn admit(&mut self) {
        let rows = usize::try_from(self.trace.rows).unwrap_or(usize::MAX);
        while let Some(request) = self.waiting.front().copied()
            && self.prefilling.len() + self.running.len() < rows
            && let Some(free) = self.free_blocks.checked_sub(blocks(&self.trace.requests[request]))
        {
            self.free_blocks = free;
            self.waiting.pop_front();
            self.prefilling.push_back(request);
        }
    }

    /// The smallest decode step that has room for all spans; rows that nobody has take one each.
    fn decode(&self) -> Launch {
        let position = |request: usize| {
            let known = u64::from(self.trace.requests[request].prompt) + u64::from(self.progress[request].tokens);
            known.saturating_sub(1)
        };
        let held: u64 = self.running.iter().map(|request| position(*request) / SPAN + 1).sum();
        let unused = u64::from(self.trace.rows).saturating_sub(u64::try_from(self.running.len()).unwrap_or(0));
        let has_room = |decode: &&trace::Decode| u64::from(decode.spans) >= held + unused;
        let sizes = &self.trace.decode;
        let kernel = sizes.iter().find(has_room).or(sizes.last()).map_or(0, |decode| decode.kernel);
        Launch { kernel, gap_ns: 0 }
    }

    /// The step is over.
    pub(crate) fn step_done(&mut self, now_ns: u64) {
        self.busy_ns += now_ns - self.begun_ns;
        match self.step {
            Step::Prefill => {
                self.chunks += 1;
                let Some(request) = self.prefilling.front().copied() else { return };
                let progress = &mut self.progress[request];
                progress.prefilled = progress.prefilled.saturating_add(self.trace.chunk);
                if progress.prefilled >= self.trace.requests[request].prompt {
                    self.prefilling.pop_front();
                    self.running.push(request);
                    self.token(request, now_ns);
                    self.leave_finished(now_ns);
                }
            }
            Step::Decode(_) => {
                for place in 0..self.running.len() {
                    self.token(self.running[place], now_ns);
                }
                self.leave_finished(now_ns);
            }
        }
    }

    fn token(&mut self, request: usize, now_ns: u64) {
        let progress = &mut self.progress[request];
        if progress.tokens == 0 {
            progress.first_ns = now_ns;
        } else {
            self.gaps_ns.push(now_ns - progress.last_ns);
        }
        progress.tokens += 1;
        progress.last_ns = now_ns;
    }

    fn leave_finished(&mut self, now_ns: u64) {
        let (requests, progress) = (&self.trace.requests, &self.progress);
        let (free_blocks, latencies_ns) = (&mut self.free_blocks, &mut self.latencies_ns);
        self.running.retain(|place| {
            let request = &requests[*place];
            let goes_on = progress[*place].tokens < request.output;
            if !goes_on {
                *free_blocks += blocks(request);
                latencies_ns.push(now_ns - request.at_ns);
            }
            goes_on
        });
    }

    /// Requests that have come by then, with how far they are.
    pub(crate) fn arrived(&self, end_ns: u64) -> impl Iterator<Item = (&trace::Request, &Progress)> {
        self.trace.requests.iter().zip(&self.progress).filter(move |(request, _)| request.at_ns <= end_ns)
    }
}

/// What a request takes of the cache.
fn blocks(request: &trace::Request) -> u64 {
    (u64::from(request.prompt) + u64::from(request.output)).div_ceil(BLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Decode, Request};

    const MS: u64 = 1_000_000;

    fn server(requests: Vec<Request>) -> trace::Server {
        trace::Server {
            rows: 2,
            chunk: 512,
            interleave: true,
            cache_tokens: 4_096,
            host_ns: MS,
            decode: vec![Decode { spans: 4, kernel: 1 }, Decode { spans: 8, kernel: 2 }],
            prefill: vec![Launch { kernel: 0, gap_ns: 0 }; 3],
            prefill_host_ns: Vec::new(),
            requests,
        }
    }

    fn request(at_ns: u64, prompt: u32, output: u32) -> Request {
        Request { at_ns, prompt, output }
    }

    /// What it launches first in each step, where steps take 5 ms and begin as soon as they can.
    fn kernels(trace: &trace::Server) -> (Vec<u32>, Vec<Progress>, Vec<u64>) {
        let mut server = Server::new(trace);
        let (mut now_ns, mut kernels) = (0, Vec::new());
        while let Some(at_ns) = server.next_step(now_ns) {
            kernels.push(server.launch(0).kernel);
            now_ns = at_ns + 5 * MS;
            server.step_done(now_ns);
        }
        (kernels, server.progress, server.gaps_ns)
    }

    #[test]
    fn prompts_go_in_turn_with_tokens_and_decode_steps_grow_with_what_is_cached() {
        // Three chunks and two more tokens; meanwhile a short one comes, which is answered first by its second chunk.
        let (kernels, progress, gaps) = kernels(&server(vec![request(0, 1_025, 4), request(MS, 10, 2)]));
        // Chunks of the first, whose token comes with the third; a token, a chunk of the second, …
        assert_eq!(kernels, [0, 0, 0, 2, 0, 2, 2]);
        assert_eq!(progress.iter().map(|it| (it.tokens, it.first_ns / MS)).collect::<Vec<_>>(), [(4, 15), (2, 25)]);
        assert_eq!(gaps.iter().map(|ns| ns / MS).collect::<Vec<_>>(), [5, 10, 5, 5]);
    }

    #[test]
    fn who_finds_no_room_waits_and_who_never_could_is_refused() {
        let (_, progress, _) = kernels(&server(vec![request(0, 4_000, 90), request(0, 500, 1), request(0, 5_000, 1)]));
        assert!(progress[1].first_ns > progress[0].last_ns, "{progress:?}");
        assert!(progress[2].is_refused && progress[2].tokens == 0);
        // Nobody is there for a second.
        let (_, progress, _) = kernels(&server(vec![request(0, 1, 1), request(1_000 * MS, 1, 1)]));
        assert_eq!(progress[1].first_ns, 1_005 * MS);
    }
}
