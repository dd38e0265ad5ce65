//! A GPU in simulated time: streams of kernels, which run at once or by turns.
//!
//! What is launched into a stream runs in its order, one after the other. Of different streams, one for each tenant, kernels
//! run at the speeds that [`crate::speed`] gives them; those change only when a kernel begins or ends. Work is counted in
//! nanoseconds at full speed, times [`FULL_SPEED`], so all progress is whole numbers: nothing is rounded, nothing is lost.

use crate::costs::Costs;
use crate::events::NEVER;
use crate::speed::{FULL_SPEED, Model, Placed, Sms, speeds};
use std::collections::VecDeque;

/// How kernels of different streams share the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// All at once, as under MPS.
    AtOnce,
    /// By turns: the time is sliced.
    ByTurns,
}

/// A launch.
#[derive(Debug, Clone)]
pub(crate) struct Work {
    /// Which kernel: its place among the models.
    pub(crate) kernel: usize,
    /// Where.
    pub(crate) lane: Sms,
    /// It does not begin before.
    pub(crate) ready_ns: u64,
    /// Whether a step of its tenant is finished with it.
    pub(crate) ends_step: bool,
}

/// A kernel that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) stream: usize,
    /// Which kernel.
    pub(crate) kernel: usize,
    pub(crate) ends_step: bool,
    /// Whether the stream has nothing more to do.
    pub(crate) was_last: bool,
}

#[derive(Debug, Default)]
struct Stream {
    queue: VecDeque<Work>,
    /// The first of the queue is on the SMs.
    is_running: bool,
    /// What is left of it, in nanoseconds times [`FULL_SPEED`].
    left: u64,
    speed: u64,
    ends_ns: u64,
    /// How many kernels it has begun.
    begun: u64,
    /// It has had nothing to do since, and how many the others had begun by then.
    has_rested: bool,
    others_begun: u64,
    /// What others' work in the caches still costs it.
    cold_ns: u64,
}

/// Whose turn it is, where streams take turns.
#[derive(Debug, Clone, Copy)]
struct Turn {
    stream: usize,
    /// Nobody runs before: it is being handed over.
    from_ns: u64,
    /// It keeps its turn until then, and longer if nobody else wants one.
    to_ns: u64,
}

/// The GPU.
pub(crate) struct Gpu<'a> {
    costs: Costs,
    sharing: Sharing,
    models: &'a [Model],
    streams: Vec<Stream>,
    turn: Option<Turn>,
    /// How many kernels all streams have begun.
    begun: u64,
    now_ns: u64,
    /// When something happens next, and in which stream; beyond the last it is the turn.
    next: (u64, usize),
    // Kept so that nothing is allocated while time goes by.
    placed: Vec<Placed<'a>>,
    running: Vec<usize>,
    speeds: Vec<u64>,
}

impl<'a> Gpu<'a> {
    pub(crate) fn new(models: &'a [Model], streams: usize, sharing: Sharing, costs: Costs) -> Self {
        Self {
            costs,
            sharing,
            models,
            streams: (0..streams).map(|_| Stream { has_rested: true, ..Stream::default() }).collect(),
            turn: None,
            begun: 0,
            now_ns: 0,
            next: (NEVER, 0),
            placed: Vec::new(),
            running: Vec::new(),
            speeds: Vec::new(),
        }
    }

    /// What a stream still has to do, with what is running.
    pub(crate) fn queued(&self, stream: usize) -> usize {
        self.streams[stream].queue.len()
    }

    /// When something happens next.
    pub(crate) fn next_ns(&self) -> u64 {
        self.next.0
    }

    /// Launches into a stream. Time must not have gone past [`Self::next_ns`].
    pub(crate) fn launch(&mut self, stream: usize, work: Work) {
        let queue = &mut self.streams[stream].queue;
        // What comes behind others is looked at when they have ended.
        if queue.is_empty() {
            let ready_ns = work.ready_ns.max(self.now_ns);
            if (ready_ns, stream) < self.next {
                self.next = (ready_ns, stream);
            }
        }
        queue.push_back(work);
    }

    /// Goes to when something happens, and does it. Says which kernel has ended, if that was it.
    pub(crate) fn step(&mut self) -> Option<Ended> {
        let (at_ns, stream) = self.next;
        self.go_on(at_ns);
        let ended = self.streams.get(stream).is_some_and(|it| it.is_running).then(|| self.end(stream));
        if self.streams.get(stream).is_some_and(|it| !it.is_running) {
            self.begin(stream);
        }
        self.look();
        ended
    }

    /// Time goes by.
    fn go_on(&mut self, now_ns: u64) {
        let elapsed = now_ns - self.now_ns;
        self.now_ns = now_ns;
        for stream in &self.running {
            let stream = &mut self.streams[*stream];
            stream.left = stream.left.saturating_sub(elapsed * stream.speed);
        }
    }

    fn end(&mut self, number: usize) -> Ended {
        let stream = &mut self.streams[number];
        stream.is_running = false;
        let work = stream.queue.pop_front();
        let was_last = stream.queue.is_empty();
        if was_last {
            (stream.has_rested, stream.others_begun) = (true, self.begun - stream.begun);
        }
        let (kernel, ends_step) = work.map_or((0, false), |work| (work.kernel, work.ends_step));
        Ended { stream: number, kernel, ends_step, was_last }
    }

    /// Puts the first of a stream's queue on the SMs, if it is ready.
    fn begin(&mut self, number: usize) {
        let stream = &mut self.streams[number];
        let Some(work) = stream.queue.front().filter(|work| work.ready_ns <= self.now_ns) else { return };
        if core::mem::replace(&mut stream.has_rested, false) && self.begun - stream.begun != stream.others_begun {
            stream.cold_ns = self.costs.cold_ns;
        }
        let lasts_ns = self.models[work.kernel].lasts_ns;
        let longer_ns = stream.cold_ns.min(lasts_ns * self.costs.cold_part / 1_000);
        stream.cold_ns -= longer_ns;
        stream.left = (lasts_ns + longer_ns) * FULL_SPEED;
        stream.is_running = true;
        stream.begun += 1;
        self.begun += 1;
    }

    /// Sees who runs how fast now, and what happens next.
    fn look(&mut self) {
        self.running.clear();
        self.placed.clear();
        let turn = self.pass_turn();
        for (number, stream) in self.streams.iter_mut().enumerate() {
            stream.speed = 0;
            stream.ends_ns = NEVER;
            if stream.is_running && turn.is_none_or(|turn| turn.stream == number && turn.from_ns <= self.now_ns) {
                self.running.push(number);
                if let Some(work) = stream.queue.front() {
                    self.placed.push(Placed { model: &self.models[work.kernel], lane: work.lane.clone() });
                }
            }
        }
        if !self.placed.is_empty() {
            speeds(&self.placed, &self.costs, &mut self.speeds);
        }
        for (number, speed) in self.running.iter().zip(&self.speeds) {
            let stream = &mut self.streams[*number];
            stream.speed = *speed;
            stream.ends_ns = self.now_ns + stream.left.div_ceil(*speed);
        }
        self.next = self.first();
    }

    /// What happens first: of what happens at the same time, that of the lowest stream.
    fn first(&self) -> (u64, usize) {
        let of = |stream: &Stream| match stream.queue.front() {
            Some(_) if stream.is_running => stream.ends_ns,
            Some(work) => work.ready_ns.max(self.now_ns),
            None => NEVER,
        };
        let turn = self.turn.map_or(NEVER, |turn| self.turn_ends(turn));
        let streams = self.streams.iter().map(of).zip(0..);
        streams.chain([(turn, self.streams.len())]).min().unwrap_or((NEVER, 0))
    }
}

/// Turns.
impl Gpu<'_> {
    /// When something happens to a turn.
    fn turn_ends(&self, turn: Turn) -> u64 {
        let others_want = || self.streams.iter().enumerate().any(|(it, stream)| it != turn.stream && stream.is_running);
        if turn.from_ns > self.now_ns {
            turn.from_ns
        } else if others_want() {
            turn.to_ns.max(self.now_ns)
        } else {
            NEVER
        }
    }

    /// Whose turn it is from now on; nobody's where all run at once. Whoever has had its time gives way to the next that wants
    /// one, at once if nobody wanted one before. Whoever had nothing to do begins anew.
    fn pass_turn(&mut self) -> Option<Turn> {
        if self.sharing == Sharing::AtOnce {
            return None;
        }
        let wants = |stream: usize| self.streams[stream].is_running;
        let slice = |stream: usize, from_ns: u64| Turn { stream, from_ns, to_ns: from_ns + self.costs.slice_ns };
        let Some(turn) = self.turn else {
            self.turn = (0..self.streams.len()).find(|stream| wants(*stream)).map(|stream| slice(stream, self.now_ns));
            return self.turn;
        };
        let count = self.streams.len();
        let next = (1..count).map(|ahead| (turn.stream + ahead) % count).find(|stream| wants(*stream));
        let is_over = !wants(turn.stream) || turn.to_ns <= self.now_ns;
        if let Some(next) = next.filter(|_| is_over) {
            self.turn = Some(slice(next, self.now_ns + self.costs.switch_ns));
        } else if !wants(turn.stream) {
            // What it launches next begins a slice of its own, as if it had just been given the turn.
            self.turn = Some(Turn { to_ns: NEVER, ..turn });
        } else if turn.to_ns == NEVER {
            self.turn = Some(slice(turn.stream, self.now_ns.max(turn.from_ns)));
        }
        self.turn
    }
}

#[cfg(test)]
#[path = "gpu_tests.rs"]
mod tests;
