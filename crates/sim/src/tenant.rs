//! A tenant: what it launches next, and what others see of it.

use crate::random::Random;
use crate::server::{Progress, Server};
use crate::speed::{Model, Sms};
use crate::trace::{self, Arrivals};
use detshare_policy::account::{Flight, Share};
use detshare_policy::objective::{Keeper, Objectives};
use detshare_policy::phase::{Phase, Phases};
use detshare_policy::rhythm::{Learner, Work};
use detshare_policy::{Class, Member, Reason, Rhythm};

/// What a tenant's thread is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Thread {
    /// Waits for a request, which comes at a time that is known.
    Resting,
    /// Makes its next launch at a time that is known.
    Launching,
    /// A launch is held.
    Held(Held),
    /// A launch may run there, and the driver has no room for it.
    Blocked(Sms),
    /// Waits until the GPU has done everything.
    Waiting,
    /// Has nothing to do any more.
    Over,
}

/// A launch that is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) begun_ns: u64,
    /// Until when this is counted in the tenant's share.
    pub(crate) counted_ns: u64,
    /// Why at first.
    pub(crate) reason: Reason,
    /// Why now.
    pub(crate) now_for: Reason,
    /// The end of a step of one of these ends it: bit `n` is slot `n`.
    pub(crate) steps: u64,
}

/// How often something was decided, by reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Decisions {
    pub(crate) ran: [u64; Reason::ALL.len() + 1],
    pub(crate) held: [u64; Reason::ALL.len() + 1],
    pub(crate) held_ns: [u64; Reason::ALL.len() + 1],
    /// Launches that ran because they had been held for as long as can be.
    pub(crate) longest_holds: u64,
}

impl Decisions {
    pub(crate) fn ran(&mut self, reason: Reason) {
        self.ran[usize::from(reason.number())] += 1;
    }

    pub(crate) fn held(&mut self, reason: Reason, ns: u64) {
        self.held[usize::from(reason.number())] += 1;
        self.held_ns[usize::from(reason.number())] += ns;
    }
}

/// A tenant.
pub(crate) struct Tenant<'a> {
    pub(crate) trace: &'a trace::Tenant,
    pub(crate) class: Class,
    /// The work of a step, on average.
    pub(crate) step_ns: u64,
    pub(crate) thread: Thread,
    /// The next launch: which step, and which of its launches.
    step: usize,
    launch: usize,
    /// When the request that is worked on came, or the next one comes.
    pub(crate) request_ns: u64,
    requests: Requests<'a>,
    /// What decides about its steps, if it is an LLM server.
    pub(crate) server: Option<Server<'a>>,
    /// The lane of the last launch.
    pub(crate) lane: Sms,
    is_on_front: bool,
    // What others see.
    busy: bool,
    changed_ns: u64,
    learner: Learner,
    rhythm: Rhythm,
    phases: Phases,
    keeper: Keeper,
    /// Whether it misses its objectives.
    strained: bool,
    launches_of_step: u32,
    /// What the GPU has to do in the step that is under way.
    pub(crate) work: Work,
    // What it knows of itself.
    pub(crate) flight: Flight<u64>,
    pub(crate) share: Share,
    // What is reported.
    pub(crate) launched: u64,
    pub(crate) ended: u64,
    /// Work that has ended, as time on a GPU of its own.
    pub(crate) worked_ns: u64,
    pub(crate) steps: u64,
    latencies: Vec<u64>,
    pub(crate) decisions: Decisions,
}

impl<'a> Tenant<'a> {
    /// At the beginning. `number` is its place in the trace.
    pub(crate) fn new(trace: &'a trace::Tenant, models: &[Model], seed: u64, number: usize) -> Self {
        let class = match trace.class {
            trace::Class::Latency => Class::Latency,
            trace::Class::BestEffort => Class::BestEffort,
        };
        let kernels = trace.steps.iter().flatten().filter_map(|launch| usize::try_from(launch.kernel).ok());
        let all_ns: u64 = kernels.filter_map(|kernel| models.get(kernel)).map(|model| model.lasts_ns).sum();
        Self {
            trace,
            class,
            step_ns: all_ns / u64::try_from(trace.steps.len()).unwrap_or(1).max(1),
            thread: Thread::Resting,
            step: 0,
            launch: 0,
            request_ns: 0,
            requests: Requests {
                arrivals: trace.arrivals.as_ref(),
                random: Random::new(seed, number),
                count: 0,
                at_ns: 0,
            },
            server: trace.server.as_ref().map(Server::new),
            lane: 0..0,
            is_on_front: false,
            busy: false,
            changed_ns: 0,
            learner: Learner::new(),
            rhythm: Rhythm::UNKNOWN,
            phases: Phases::new(),
            keeper: Keeper::new(),
            strained: false,
            launches_of_step: 0,
            work: Work::NONE,
            flight: Flight::none(),
            share: Share::FULL,
            launched: 0,
            ended: 0,
            worked_ns: 0,
            steps: 0,
            latencies: Vec::new(),
            decisions: Decisions::default(),
        }
    }

    /// What it launches next.
    pub(crate) fn next_launch(&self) -> trace::Launch {
        self.server
            .as_ref()
            .map_or_else(|| self.trace.steps[self.step][self.launch], |server| server.launch(self.launch))
    }

    fn launches_in_step(&self) -> usize {
        self.server.as_ref().map_or_else(|| self.trace.steps[self.step].len(), Server::launches)
    }

    /// That was launched. Says whether it was the last of its step.
    pub(crate) fn go_on(&mut self) -> bool {
        self.launch += 1;
        let is_last = self.launch == self.launches_in_step();
        if is_last {
            self.launch = 0;
            self.step = (self.step + 1) % self.trace.steps.len().max(1);
        }
        is_last
    }

    /// Whether the next launch is the last of its step.
    pub(crate) fn ends_step(&self) -> bool {
        self.launch + 1 == self.launches_in_step()
    }

    /// Whether it waits for the GPU at the end of a step.
    pub(crate) fn waits(&self) -> bool {
        self.class == Class::Latency || self.trace.waits
    }

    /// When the next request comes, or came, after one was answered now; nothing if none does. A tenant without requests goes
    /// on at once.
    pub(crate) fn next_request(&mut self, now_ns: u64) -> Option<u64> {
        if let Some(server) = &mut self.server {
            return server.next_step(now_ns);
        }
        let at_ns = self.requests.next(now_ns)?;
        self.request_ns = at_ns;
        Some(at_ns.max(now_ns))
    }

    /// The step that it waited for is over.
    pub(crate) fn step_done(&mut self, now_ns: u64) {
        match &mut self.server {
            Some(server) => server.step_done(now_ns),
            None => self.latencies.push(now_ns - self.request_ns),
        }
    }

    /// From when requests came until they were answered.
    pub(crate) fn latencies(&self) -> &[u64] {
        self.server.as_ref().map_or(&self.latencies, |server| &server.latencies_ns)
    }

    /// How many requests have come by the end and are not answered.
    pub(crate) fn unanswered(&mut self, end_ns: u64) -> u64 {
        if let Some(server) = &self.server {
            let is_open = |(request, it): &(&trace::Request, &Progress)| !it.is_refused && it.tokens < request.output;
            return u64::try_from(server.arrived(end_ns).filter(is_open).count()).unwrap_or(u64::MAX);
        }
        if self.thread == Thread::Over || (self.thread == Thread::Resting && self.request_ns > end_ns) {
            return 0;
        }
        let mut count = 1;
        // With a pause between them the next comes after this one was answered.
        let can_queue = !matches!(self.requests.arrivals, None | Some(Arrivals::Pause { .. }));
        while can_queue && self.requests.next(end_ns).is_some_and(|at_ns| at_ns <= end_ns) {
            count += 1;
        }
        count
    }

    /// It has launched something: it is busy, if it was not.
    pub(crate) fn set_busy(&mut self, now_ns: u64) {
        if !self.busy {
            (self.busy, self.changed_ns) = (true, now_ns);
            if self.class == Class::Latency {
                self.learner.began(now_ns);
                self.rhythm.begun_ns = now_ns;
            }
        }
    }

    /// It has learned how many of so many SMs its step had.
    pub(crate) fn ran_on(&mut self, all: u32) {
        self.is_on_front = self.lane.start == 0 && self.lane.end < all;
        self.learner.ran_on((self.lane.end - self.lane.start).saturating_mul(Rhythm::ALL) / all.max(1));
    }

    /// Its step is over. What is known of the next one is of use for latency tenants alone: no policy looks at others'.
    pub(crate) fn set_idle(&mut self, now_ns: u64) {
        (self.busy, self.changed_ns) = (false, now_ns);
        if self.class == Class::Latency {
            let work = core::mem::replace(&mut self.work, Work::NONE);
            // As the shim does: what others see was worked out before the end, and is not again.
            self.learner.foresee();
            let rhythm = self.learner.if_ended(now_ns);
            self.learner.ended(now_ns, Some(work));
            let phase = self.phases.ended(0, self.launches_of_step);
            self.launches_of_step = 0;
            let (begun_ns, phase) = (self.rhythm.begun_ns, self.published(phase));
            let wanted = Objectives { p99_ns: None, ttft_ns: self.trace.ttft_ns, tpot_ns: self.trace.tpot_ns };
            self.keeper.ran_on_front(self.is_on_front);
            self.keeper.ended((begun_ns, now_ns), phase, self.phases.pace_ns(), &wanted);
            self.strained = self.keeper.is_strained(now_ns);
            let (pace_ns, prompt_since_ns) = (self.phases.pace_ns(), self.keeper.prompt_since_ns());
            let wider = self.keeper.wider();
            self.rhythm = Rhythm { begun_ns, phase, pace_ns, prompt_since_ns, wider, ..rhythm };
        }
    }

    /// A latency tenant launches something: it is part of what the step has to do, which tells what it is.
    pub(crate) fn launches(&mut self, kernel: usize, all_ns: u64, ran_ns: u64, now_ns: u64) {
        self.work.add(all_ns, ran_ns);
        self.launches_of_step += 1;
        let phase = self.phases.launched(u64::try_from(kernel).unwrap_or(0), all_ns);
        self.rhythm.phase = self.published(phase);
        self.rhythm.launched_ns = now_ns;
    }

    /// Others are told what steps are of one whose steps are of two kinds.
    fn published(&self, phase: Phase) -> Phase {
        if self.phases.has_both() { phase } else { Phase::Unknown }
    }

    /// Whether it wants the GPU, in truth.
    pub(crate) fn wants(&self) -> bool {
        self.busy || self.is_waiting()
    }

    /// Who waits for its own work alone is not kept from anything.
    fn is_waiting(&self) -> bool {
        matches!(&self.thread, Thread::Held(held) if held.now_for != Reason::InFlight)
    }

    /// As others see it now, if they see a change after so long.
    pub(crate) fn seen(&self, slot: usize, now_ns: u64, seen_after_ns: u64) -> Member {
        let has_been_seen = now_ns >= self.changed_ns + seen_after_ns;
        Member {
            slot: u8::try_from(slot).unwrap_or(u8::MAX),
            class: self.class,
            weight: self.trace.weight,
            busy: self.busy == has_been_seen,
            waiting: self.is_waiting(),
            rhythm: self.rhythm,
            ttft_ns: self.trace.ttft_ns,
            tpot_ns: self.trace.tpot_ns,
            strained: self.strained,
        }
    }

    /// As it sees itself when it launches this, which takes so long on all SMs.
    pub(crate) fn itself(&self, slot: usize, kernel: usize, all_ns: u64) -> Member {
        let mut itself = Member { waiting: false, ..self.seen(slot, self.changed_ns, 0) };
        if self.class == Class::Latency {
            itself.rhythm.phase = self.published(self.phases.foresee(u64::try_from(kernel).unwrap_or(0), all_ns));
        }
        itself
    }
}

/// When requests come.
struct Requests<'a> {
    arrivals: Option<&'a Arrivals>,
    random: Random,
    count: u64,
    /// The last, without its jitter.
    at_ns: u64,
}

impl Requests<'_> {
    /// When the next comes, if one was answered now.
    fn next(&mut self, now_ns: u64) -> Option<u64> {
        let Some(arrivals) = self.arrivals else { return Some(now_ns) };
        self.count += 1;
        match arrivals {
            Arrivals::Periodic { period_ns, jitter_ns } => {
                self.at_ns += period_ns;
                Some(self.at_ns + self.random.upto(*jitter_ns))
            }
            Arrivals::Poisson { mean_ns } => {
                self.at_ns += self.random.until_next(*mean_ns);
                Some(self.at_ns)
            }
            Arrivals::Pause { pause_ns, jitter_ns } => Some(now_ns + pause_ns + self.random.upto(*jitter_ns)),
            Arrivals::Recorded { at_ns } => at_ns.get(usize::try_from(self.count - 1).ok()?).copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(arrivals: Arrivals) -> trace::Tenant {
        trace::Tenant {
            name: "serve".to_owned(),
            class: trace::Class::Latency,
            weight: 100,
            queue: 1,
            waits: true,
            steps: vec![vec![trace::Launch { kernel: 0, gap_ns: 0 }]],
            arrivals: Some(arrivals),
            ttft_ns: None,
            tpot_ns: None,
            server: None,
        }
    }

    #[test]
    fn a_change_is_seen_a_little_later() {
        let trace = tenant(Arrivals::Poisson { mean_ns: 1_000_000 });
        let mut tenant = Tenant::new(&trace, &[], 1, 0);
        let is_busy = |tenant: &Tenant<'_>, now_ns| tenant.seen(0, now_ns, 100).busy;
        assert!(!is_busy(&tenant, 500));
        assert!(!tenant.itself(0, 0, 0).busy, "the first launch of a step is decided before it begins, as in the shim");
        tenant.set_busy(1_000);
        assert!(tenant.itself(0, 0, 0).busy);
        assert_eq!((is_busy(&tenant, 1_099), is_busy(&tenant, 1_100)), (false, true));
        tenant.set_idle(2_000);
        assert_eq!((is_busy(&tenant, 2_099), is_busy(&tenant, 2_100)), (true, false));
    }

    #[test]
    fn requests_come_when_they_should() {
        let times = |arrivals: Arrivals| -> Vec<u64> {
            let trace = tenant(arrivals);
            let mut tenant = Tenant::new(&trace, &[], 1, 0);
            (0..1_000).map_while(|_| tenant.next_request(0)).collect()
        };
        let late: Vec<u64> = times(Arrivals::Periodic { period_ns: 5_000, jitter_ns: 100 })
            .into_iter()
            .zip(1..)
            .map(|(at_ns, count)| at_ns - count * 5_000)
            .collect();
        assert!(late.iter().all(|ns| *ns <= 100) && late.iter().any(|ns| *ns < 20) && late.iter().any(|ns| *ns > 80));
        let paused = times(Arrivals::Pause { pause_ns: 5_000, jitter_ns: 100 });
        assert!(paused.iter().all(|ns| (5_000..=5_100).contains(ns)));
        assert_eq!(times(Arrivals::Recorded { at_ns: vec![3, 9] }), [3, 9]);
    }
}
