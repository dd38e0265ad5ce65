//! How near to alone could servers that share a GPU come at all?
//!
//! Nothing is faster than alone: against time-slicing, no way of sharing takes more off than what time-slicing added. And two
//! servers that are both busy cannot both be as fast as alone: their schedulers are run again on paper, each step with the time
//! that it took alone, on a GPU that does one server's work at a time, or both at a part of its speed, and never rests while
//! there is work. Where prompts and tokens run beside each other for less than the sum of their times, it can be better still.

use super::answers::{Answers, Ended, ServerStep, StepKind};
use super::paired::mean;
use crate::quantity::approximate;
use serde::Serialize;
use std::collections::VecDeque;

/// What is taken for a server's rows where it does not say.
const ROWS: usize = 64;

/// Servers at one load on a GPU that loses nothing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Ideal {
    pub(crate) load: Option<f64>,
    /// Who went first.
    pub(crate) order: String,
    pub(crate) servers: Vec<IdealServer>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct IdealServer {
    pub(crate) program: &'static str,
    /// The mean latency of whole requests, as it was alone.
    pub(crate) alone_ms: f64,
    /// The same on paper, with nobody else there: how right all of this is.
    pub(crate) alone_on_paper_ms: f64,
    /// How many times as long requests take with the others there.
    pub(crate) times_alone: f64,
}

/// A server's log alone; the first requests do not count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Logged<'a> {
    pub(crate) program: &'static str,
    pub(crate) answers: &'a Answers,
    pub(crate) warm_up: usize,
}

impl Ideal {
    /// Nothing where a log does not say enough.
    pub(crate) fn of(load: Option<f64>, logs: &[Logged<'_>]) -> Option<Self> {
        let servers: Vec<Server> = logs.iter().map(Server::of).collect::<Option<_>>()?;
        let first =
            logs.iter().enumerate().map(|(number, log)| (format!("{} first", log.program), Order::First(number)));
        let orders = [
            ("both at half the speed".to_string(), Order::Shared),
            ("the shortest step first".to_string(), Order::Shortest),
        ];
        let alone: Vec<f64> =
            servers.iter().map(|server| replayed(std::slice::from_ref(server), Order::Shared)[0]).collect();
        let of_all = |means: &[f64]| means.iter().sum::<f64>();
        let tried = orders.into_iter().chain(first).map(|(name, order)| (name, replayed(&servers, order)));
        let (order, together) = tried.min_by(|one, other| of_all(&one.1).total_cmp(&of_all(&other.1)))?;
        let server = |(number, log): (usize, &Logged<'_>)| {
            Some(IdealServer {
                program: log.program,
                alone_ms: measured_ms(log)?,
                alone_on_paper_ms: alone[number] * 1e3,
                times_alone: together[number] / alone[number],
            })
        };
        let servers = logs.iter().enumerate().map(server).collect::<Option<_>>()?;
        Some(Self { load, order, servers })
    }

    /// The sum of the mean latencies of all servers.
    pub(crate) fn alone_ms(&self) -> f64 {
        self.servers.iter().map(|server| server.alone_ms).sum()
    }

    pub(crate) fn ideal_ms(&self) -> f64 {
        self.servers.iter().map(|server| server.alone_ms * server.times_alone).sum()
    }
}

fn measured_ms(log: &Logged<'_>) -> Option<f64> {
    let counted = log.answers.requests.iter().skip(log.warm_up);
    let taken =
        counted.filter(|request| request.is_complete()).filter_map(|one| Some((one.end()? - one.arrival) * 1e3));
    mean(&taken.collect::<Vec<_>>())
}

/// Who gets how much of the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// All that are busy the same part.
    Shared,
    /// This one all of it whenever it is busy.
    First(usize),
    /// Whoever needs least for its step.
    Shortest,
}

/// A request.
#[derive(Debug, Clone, PartialEq)]
struct Job {
    arrival: f64,
    /// The seconds of each part of its prompt.
    prefill: Vec<f64>,
    tokens: usize,
    counts: bool,
}

/// What a server has to do, and how long that takes it alone.
#[derive(Debug)]
pub(crate) struct Server {
    jobs: Vec<Job>,
    decode: DecodeTime,
    rows: usize,
    interleave: bool,
}

impl Server {
    pub(crate) fn of(log: &Logged<'_>) -> Option<Self> {
        let answers = log.answers;
        let mut prefill = answers.steps.iter().filter(|step| step.0 == StepKind::Prefill);
        let mut jobs = Vec::new();
        // Prompts go through the model in the order of arrival, one after the other.
        for (number, request) in answers.requests.iter().enumerate().filter(|(_, one)| one.ended != Ended::TooLong) {
            let (mut parts, mut tokens) = (Vec::new(), 0);
            while tokens < request.prompt_length {
                let step = prefill.next()?;
                tokens += step.4;
                parts.push(step.seconds());
            }
            let is_right = tokens == request.prompt_length && request.is_complete();
            is_right.then_some(())?;
            let counts = number >= log.warm_up;
            // Alone they ran one after the other; together they begin at the same time.
            let arrival = request.arrival - answers.begin_s;
            jobs.push(Job { arrival, prefill: parts, tokens: request.tokens.len(), counts });
        }
        let rows = if answers.fixed_batch > 0 { answers.fixed_batch } else { ROWS };
        Some(Self { jobs, decode: DecodeTime::of(&answers.steps)?, rows, interleave: answers.interleave })
    }

    /// The part of the time, while requests come, for which it would be busy alone if they came at that rate.
    pub(crate) fn busy(&self, per_second: f64) -> f64 {
        let sent = self.at_rate(per_second);
        let Some((first, last)) = arrivals(&sent.jobs) else { return 0.0 };
        let (mut state, mut now, mut busy) = (State::new(&sent), first, 0.0);
        while now < last {
            state.go_on(now);
            let end = match (state.step, state.next_arrival()) {
                (Some((_, seconds)), _) => {
                    busy += (now + seconds).min(last) - now;
                    now + seconds
                }
                (None, Some(arrival)) => arrival,
                (None, None) => break,
            };
            state.end_step(end);
            now = end;
        }
        busy / (last - first)
    }

    /// The same with its requests at another mean distance, as the server's `--at-rate` has them.
    fn at_rate(&self, per_second: f64) -> Self {
        let mut jobs = self.jobs.clone();
        let distances = approximate(jobs.len().saturating_sub(1) as u64);
        let stretch = arrivals(&jobs).map_or(0.0, |(first, last)| distances / per_second / (last - first));
        jobs.iter_mut().for_each(|job| job.arrival *= stretch);
        Self { jobs, ..*self }
    }
}

/// The first and the last.
fn arrivals(jobs: &[Job]) -> Option<(f64, f64)> {
    let (first, last) = (jobs.first()?.arrival, jobs.last()?.arrival);
    (first < last).then_some((first, last))
}

/// How long a decode step takes alone: a line through all that were seen.
#[derive(Debug, Clone, Copy, PartialEq)]
struct DecodeTime {
    least: f64,
    of_row: f64,
}

impl DecodeTime {
    fn of(steps: &[ServerStep]) -> Option<Self> {
        let decode = || steps.iter().filter(|step| step.0 == StepKind::Decode);
        let rows = mean(&decode().map(|step| f64::from(step.3)).collect::<Vec<_>>())?;
        let time = mean(&decode().map(ServerStep::seconds).collect::<Vec<_>>())?;
        let (product, square) = decode().fold((0.0, 0.0), |(product, square), step| {
            let from_mean = f64::from(step.3) - rows;
            (product + from_mean * (step.seconds() - time), square + from_mean * from_mean)
        });
        // More requests at a time never take less.
        let of_row = if square > 0.0 { (product / square).clamp(0.0, time / rows.max(1.0)) } else { 0.0 };
        Some(Self { least: time - of_row * rows, of_row })
    }

    fn seconds(self, rows: usize) -> f64 {
        self.least + self.of_row * approximate(rows as u64)
    }
}

/// A server at some time.
struct State<'a> {
    server: &'a Server,
    next: usize,
    waiting: VecDeque<usize>,
    /// Jobs with the number of parts that are done.
    prefilling: VecDeque<(usize, usize)>,
    /// Jobs with the tokens that they have.
    running: Vec<(usize, usize)>,
    last: StepKind,
    /// What it does, and the seconds that this still takes at full speed.
    step: Option<(StepKind, f64)>,
    latencies: Vec<f64>,
}

impl<'a> State<'a> {
    fn new(server: &'a Server) -> Self {
        Self {
            server,
            next: 0,
            waiting: VecDeque::new(),
            prefilling: VecDeque::new(),
            running: Vec::new(),
            last: StepKind::Decode,
            step: None,
            latencies: Vec::new(),
        }
    }

    fn next_arrival(&self) -> Option<f64> {
        self.server.jobs.get(self.next).map(|job| job.arrival)
    }

    /// Takes what has arrived and, unless it is in the middle of a step, begins the next.
    fn go_on(&mut self, now: f64) {
        while self.next_arrival().is_some_and(|arrival| arrival <= now) {
            self.waiting.push_back(self.next);
            self.next += 1;
        }
        if self.step.is_some() {
            return;
        }
        while self.prefilling.len() + self.running.len() < self.server.rows {
            let Some(job) = self.waiting.pop_front() else { break };
            self.prefilling.push_back((job, 0));
        }
        let decode_is_due = self.server.interleave && self.last == StepKind::Prefill && !self.running.is_empty();
        self.step = match self.prefilling.front() {
            Some((job, part)) if !decode_is_due => {
                Some((StepKind::Prefill, self.server.jobs[*job].prefill.get(*part).copied().unwrap_or(0.0)))
            }
            _ if !self.running.is_empty() => Some((StepKind::Decode, self.server.decode.seconds(self.running.len()))),
            _ => None,
        };
    }

    fn end_step(&mut self, now: f64) {
        let Some((kind, _)) = self.step.take() else { return };
        self.last = kind;
        match kind {
            StepKind::Prefill => {
                let Some((job, part)) = self.prefilling.front_mut() else { return };
                *part += 1;
                if *part >= self.server.jobs[*job].prefill.len() {
                    self.running.push((*job, 1));
                    self.prefilling.pop_front();
                }
            }
            StepKind::Decode => self.running.iter_mut().for_each(|(_, tokens)| *tokens += 1),
        }
        let jobs = &self.server.jobs;
        let ended = self.running.extract_if(.., |(job, tokens)| *tokens >= jobs[*job].tokens);
        let counted = ended.map(|(job, _)| &jobs[job]).filter(|job| job.counts);
        self.latencies.extend(counted.map(|job| now - job.arrival));
    }
}

/// The mean latency of each server's requests, in seconds.
fn replayed(servers: &[Server], order: Order) -> Vec<f64> {
    let mut states: Vec<State<'_>> = servers.iter().map(State::new).collect();
    let mut now = 0.0;
    loop {
        states.iter_mut().for_each(|state| state.go_on(now));
        let speeds = speeds(&states, order);
        let ends = states
            .iter()
            .zip(&speeds)
            .filter_map(|(state, speed)| state.step.filter(|_| *speed > 0.0).map(|(_, left)| now + left / speed));
        let arrivals = states.iter().filter_map(State::next_arrival);
        let next = ends.chain(arrivals).fold(f64::INFINITY, f64::min);
        if next.is_infinite() {
            break;
        }
        for (state, speed) in states.iter_mut().zip(&speeds) {
            let Some((_, left)) = &mut state.step else { continue };
            // What ends now has nothing left, whatever rounding says.
            let is_over = *speed > 0.0 && now + *left / speed <= next;
            *left = (*left - (next - now) * speed).max(0.0);
            if is_over {
                state.end_step(next);
            }
        }
        now = next;
    }
    states.iter().map(|state| mean(&state.latencies).unwrap_or(0.0)).collect()
}

/// Which part of the GPU each has; together all of it, if anyone is busy.
fn speeds(states: &[State<'_>], order: Order) -> Vec<f64> {
    let busy = || states.iter().enumerate().filter_map(|(number, state)| Some((number, state.step?.1)));
    let shortest = || busy().min_by(|one, other| one.1.total_cmp(&other.1)).map(|(number, _)| number);
    let only = match order {
        Order::Shared => None,
        Order::First(number) => busy().find(|(one, _)| *one == number).map(|(one, _)| one).or_else(shortest),
        Order::Shortest => shortest(),
    };
    let part = 1.0 / approximate(busy().count().max(1) as u64);
    let speed = |number: usize| match (order, only) {
        (Order::Shared, _) => part,
        (_, Some(one)) if one == number => 1.0,
        _ => 0.0,
    };
    (0..states.len()).map(speed).collect()
}

#[cfg(test)]
mod tests {
    use super::super::answers::Answer;
    use super::*;

    const PREFILL: f64 = 0.5;
    const DECODE: f64 = 0.25;

    /// A server that answers requests one after the other, each with a prompt of one part and three tokens: a second each.
    fn log(arrivals: &[f64]) -> Answers {
        let (mut requests, mut steps, mut now) = (Vec::new(), Vec::new(), 0.0_f64);
        for (index, arrival) in (0..).zip(arrivals) {
            now = now.max(*arrival);
            steps.push(ServerStep(StepKind::Prefill, now, now + PREFILL, 1, 9));
            for number in 0..2 {
                let begin = now + PREFILL + DECODE * f64::from(number);
                steps.push(ServerStep(StepKind::Decode, begin, begin + DECODE, 1, 1));
            }
            let token_times = vec![now + PREFILL, now + PREFILL + DECODE, now + PREFILL + 2.0 * DECODE];
            now += PREFILL + 2.0 * DECODE;
            requests.push(Answer {
                index,
                arrival: *arrival,
                prompt_length: 9,
                token_times,
                tokens: vec![1; 3],
                ended: Ended::Complete,
            });
        }
        Answers { requests, steps, fixed_batch: 32, interleave: true, ..Answers::default() }
    }

    fn logged<'a>(program: &'static str, answers: &'a Answers) -> Logged<'a> {
        Logged { program, answers, warm_up: 0 }
    }

    #[test]
    fn who_never_meets_is_as_fast_as_alone() {
        let (chat, code) = (log(&[0.0, 4.0]), log(&[2.0, 6.0]));
        let found = Ideal::of(Some(0.5), &[logged("chat", &chat), logged("code", &code)]).unwrap();
        for server in &found.servers {
            assert!(
                (server.alone_ms - 1000.0).abs() < 1e-6 && (server.alone_on_paper_ms - 1000.0).abs() < 1e-6,
                "{found:?}"
            );
            assert!((server.times_alone - 1.0).abs() < 1e-9, "{found:?}");
        }
    }

    #[test]
    fn two_at_once_take_three_seconds_together_at_best() {
        // Each takes a second. One after the other the first takes one and the second two; at half the speed both take two.
        let (chat, code) = (log(&[0.0]), log(&[0.0]));
        let logs = [logged("chat", &chat), logged("code", &code)];
        let found = Ideal::of(None, &logs).unwrap();
        assert!((found.ideal_ms() - 3000.0).abs() < 1e-6 && (found.alone_ms() - 2000.0).abs() < 1e-6, "{found:?}");
        let servers: Vec<Server> = logs.iter().map(|log| Server::of(log).unwrap()).collect();
        for (order, expected) in
            [(Order::Shared, [2.0, 2.0]), (Order::First(1), [2.0, 1.0]), (Order::First(0), [1.0, 2.0])]
        {
            let means = replayed(&servers, order);
            let is_near = means.iter().zip(expected).all(|(mean, expected)| (mean - expected).abs() < 1e-9);
            assert!(is_near, "{order:?}: {means:?}");
        }
    }

    #[test]
    fn servers_that_ran_one_after_the_other_meet_all_the_same() {
        let (chat, mut code) = (log(&[0.0]), log(&[0.0]));
        let hours = 7200.0;
        code.begin_s += hours;
        code.requests[0].arrival += hours;
        code.requests[0].token_times.iter_mut().for_each(|time| *time += hours);
        let found = Ideal::of(None, &[logged("chat", &chat), logged("code", &code)]).unwrap();
        assert!((found.ideal_ms() - 3000.0).abs() < 1e-6, "{found:?}");
    }

    #[test]
    fn requests_that_do_not_count_are_in_the_way_all_the_same() {
        let (chat, code) = (log(&[0.0, 10.0]), log(&[10.5]));
        let first = Logged { warm_up: 1, ..logged("chat", &chat) };
        let servers: Vec<Server> = [first, logged("code", &code)].iter().map(|log| Server::of(log).unwrap()).collect();
        let means = replayed(&servers, Order::First(0));
        // Half a second later, and half of the other's second still to do.
        assert!((means[0] - 1.0).abs() < 1e-9 && (means[1] - 1.5).abs() < 1e-9, "{means:?}");
    }

    #[test]
    fn decode_steps_take_tokens_to_several_requests() {
        // Both come at once to one server: two prompts with a step between, then steps for both.
        let both = log(&[0.0, 0.0]);
        let server = Server::of(&logged("chat", &both)).unwrap();
        let means = replayed(std::slice::from_ref(&server), Order::Shared);
        // Prompt, token of the first, prompt, token of both (the first is done at 1.5), token of the second.
        assert!((means[0] - (1.5 + 1.75) / 2.0).abs() < 1e-9, "{means:?}");
    }

    #[test]
    fn a_log_that_says_too_little_gives_no_bound() {
        let mut cut = log(&[0.0, 1.0]);
        cut.steps.truncate(2);
        assert_eq!(Ideal::of(None, &[logged("chat", &cut), logged("code", &log(&[0.0]))]), None);
        assert_eq!(Ideal::of(None, &[logged("chat", &Answers::default())]), None);
    }

    #[test]
    fn larger_steps_take_longer_by_what_was_seen() {
        let step = |rows: u32, seconds: f64| ServerStep(StepKind::Decode, 0.0, seconds, rows, 1);
        let line = DecodeTime::of(&[step(1, 0.011), step(3, 0.013), step(5, 0.015)]).unwrap();
        assert!((line.seconds(2) - 0.012).abs() < 1e-9 && (line.seconds(10) - 0.02).abs() < 1e-9, "{line:?}");
        let falling = DecodeTime::of(&[step(1, 0.02), step(2, 0.01)]).unwrap();
        assert!((falling.seconds(1) - 0.015).abs() < 1e-9 && (falling.seconds(9) - 0.015).abs() < 1e-9, "{falling:?}");
    }
}
