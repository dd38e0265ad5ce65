//! Tenants and a GPU in simulated time: what happens next happens, until the time is over.
//!
//! Two kinds of things happen. On the GPU a kernel begins or ends ([`Gpu::step`]). On the host a tenant's thread goes on, or
//! it is seen that a tenant has nothing left to do ([`Timers`]). Of what happens at the same time the GPU's is first, then the
//! lower tenant's.

use crate::events::Timers;
use crate::gpu::{Ended, Gpu, Sharing, Work};
use crate::settings::{Settings, Way};
use crate::speed::{Model, Sms};
use crate::tenant::{Held, Tenant, Thread};
use detshare_policy::{Class, Decision, Lane, Launch, Member, Reason, Until, Verdict, View, decide, policy};

/// One run of some tenants.
pub(crate) struct Simulation<'a> {
    settings: &'a Settings,
    models: &'a [Model],
    sms: u32,
    /// The policy that decides, if any, and whether it wants to know what launches take.
    policy: Option<(u32, bool)>,
    ladder: &'a [u32],
    now_ns: u64,
    gpu: Gpu<'a>,
    /// A tenant's thread goes on: slot `n`. It is seen that it has nothing left to do: behind those of all threads.
    timers: Timers,
    tenants: Vec<Tenant<'a>>,
    someone_is_urgent: bool,
    /// Kept so that nothing is allocated while time goes by.
    others: Vec<Member>,
}

/// What becomes of a launch.
enum Answer {
    Run(Sms),
    Hold(Until, Reason),
}

impl<'a> Simulation<'a> {
    /// These tenants on a GPU with so many SMs.
    pub(crate) fn new(
        settings: &'a Settings,
        way: Way,
        models: &'a [Model],
        sms: u32,
        tenants: Vec<Tenant<'a>>,
    ) -> Self {
        let is_policy = matches!(way, Way::Policy(_));
        let by_turns = way == Way::TimeSlicing || (is_policy && !settings.mps);
        let sharing = if by_turns { Sharing::ByTurns } else { Sharing::AtOnce };
        let number = if let Way::Policy(number) = way { Some(number) } else { None };
        Self {
            settings,
            models,
            sms,
            policy: number.map(|number| (number, policy(number).is_some_and(|policy| policy.foresees))),
            ladder: if by_turns { &[] } else { &settings.ladder },
            now_ns: 0,
            gpu: Gpu::new(models, tenants.len(), sharing, settings.costs),
            timers: Timers::new(2 * tenants.len()),
            someone_is_urgent: tenants.iter().any(|tenant| tenant.class == Class::Latency),
            tenants,
            others: Vec::new(),
        }
    }

    /// Lets the time pass, and hands back the tenants as they are then.
    pub(crate) fn run(mut self) -> Vec<Tenant<'a>> {
        for tenant in 0..self.tenants.len() {
            self.next_step(tenant);
        }
        loop {
            let (timer_ns, slot) = self.timers.first();
            let gpu_ns = self.gpu.next_ns();
            if timer_ns.min(gpu_ns) > self.settings.run_ns {
                return self.tenants;
            }
            if gpu_ns <= timer_ns {
                self.now_ns = gpu_ns;
                if let Some(ended) = self.gpu.step() {
                    self.ended(ended);
                }
                continue;
            }
            self.now_ns = timer_ns;
            self.timers.clear(slot);
            match slot.checked_sub(self.tenants.len()) {
                None => self.launch(slot),
                Some(tenant) => self.idle(tenant),
            }
        }
    }

    /// A tenant has finished a step, or nothing yet: it goes on when its next request comes.
    fn next_step(&mut self, number: usize) {
        let tenant = &mut self.tenants[number];
        match tenant.next_request(self.now_ns) {
            Some(at_ns) => {
                let goes_on_ns = at_ns + tenant.next_launch().gap_ns;
                tenant.thread = if at_ns > self.now_ns { Thread::Resting } else { Thread::Launching };
                self.timers.set(number, goes_on_ns);
            }
            None => tenant.thread = Thread::Over,
        }
    }

    /// A tenant's thread makes its next launch, or asks again whether it may.
    fn launch(&mut self, number: usize) {
        match self.ask(number) {
            Answer::Hold(until, reason) => self.hold(number, until, reason),
            Answer::Run(lane) => {
                self.release(number);
                let tenant = &mut self.tenants[number];
                if self.gpu.queued(number) >= usize::try_from(tenant.trace.queue).unwrap_or(usize::MAX) {
                    tenant.thread = Thread::Blocked(lane);
                } else {
                    self.submit(number, lane);
                }
            }
        }
    }

    fn submit(&mut self, number: usize, lane: Sms) {
        let tenant = &mut self.tenants[number];
        let costs = &self.settings.costs;
        let moves = if lane == tenant.lane || tenant.launched == 0 { 0 } else { costs.move_ns };
        let ready_ns = self.now_ns + costs.launch_ns + moves;
        let kernel = usize::try_from(tenant.next_launch().kernel).unwrap_or(usize::MAX);
        tenant.set_busy(self.now_ns);
        if tenant.class == Class::Latency {
            let model = &self.models[kernel];
            tenant.launches(kernel, model.lasts_ns, model.lasts_on(lane.end - lane.start), self.now_ns);
        }
        if tenant.class == Class::BestEffort && self.policy.is_some_and(|(_, foresees)| foresees) {
            let width = lane.end - lane.start;
            let lasts_ns = self.settings.profiles.then(|| self.models[kernel].lasts_on(width));
            let expected_ns = Launch { lasts_ns, ..Launch::UNKNOWN }.expected_ns();
            // A mark is reached when so many launches have ended.
            tenant.flight.launched(expected_ns, self.now_ns, || Some(tenant.launched + 1));
        }
        self.gpu.launch(number, Work { kernel, lane: lane.clone(), ready_ns, ends_step: tenant.ends_step() });
        self.timers.clear(self.tenants.len() + number);
        let tenant = &mut self.tenants[number];
        tenant.lane = lane;
        tenant.launched += 1;
        if tenant.go_on() && tenant.waits() {
            tenant.thread = Thread::Waiting;
        } else {
            tenant.thread = Thread::Launching;
            self.timers.set(number, ready_ns + tenant.next_launch().gap_ns);
        }
    }

    /// A kernel has ended.
    fn ended(&mut self, ended: Ended) {
        let number = ended.stream;
        let tenant = &mut self.tenants[number];
        tenant.ended += 1;
        tenant.worked_ns += self.models[ended.kernel].lasts_ns;
        tenant.steps += u64::from(ended.ends_step);
        if let Thread::Blocked(lane) = &tenant.thread {
            let lane = lane.clone();
            self.submit(number, lane);
        } else if ended.was_last {
            let is_waiting = tenant.thread == Thread::Waiting;
            let costs = &self.settings.costs;
            let seen_ns = self.now_ns + if is_waiting { costs.idle_seen_ns } else { costs.look_ns };
            self.timers.set(self.tenants.len() + number, seen_ns);
        }
    }

    /// It is seen that a tenant has nothing left to do.
    fn idle(&mut self, number: usize) {
        let tenant = &mut self.tenants[number];
        tenant.ran_on(self.sms);
        tenant.set_idle(self.now_ns);
        let was_waiting = tenant.thread == Thread::Waiting;
        if was_waiting && tenant.class == Class::Latency {
            tenant.step_done(self.now_ns);
        }
        let wakes_ns = self.now_ns + self.settings.costs.wake_ns;
        for (other, tenant) in self.tenants.iter().enumerate() {
            if let Thread::Held(held) = &tenant.thread
                && held.steps >> number & 1 != 0
            {
                self.timers.set(other, wakes_ns);
            }
        }
        if was_waiting {
            self.next_step(number);
        }
    }
}

/// The gate, as the shim has it.
impl Simulation<'_> {
    fn ask(&mut self, number: usize) -> Answer {
        let Some((policy, foresees)) = self.policy else { return Answer::Run(0..self.sms) };
        self.count_held(number);
        let foresees = foresees && self.tenants[number].class == Class::BestEffort && self.someone_is_urgent;
        let verdict = self.decide(policy, foresees, number);
        let tenant = &mut self.tenants[number];
        match verdict.decision {
            Decision::Run(lane) => {
                tenant.decisions.ran(verdict.reason);
                Answer::Run(self.sms_of(lane))
            }
            Decision::Hold(until) => {
                let longest_ns = self.settings.longest_hold_ns;
                if matches!(&tenant.thread, Thread::Held(held) if self.now_ns >= held.begun_ns + longest_ns) {
                    tenant.decisions.longest_holds += 1;
                    return Answer::Run(0..self.sms);
                }
                Answer::Hold(until, verdict.reason)
            }
        }
    }

    fn decide(&mut self, policy: u32, foresees: bool, number: usize) -> Verdict {
        let (now_ns, seen_after_ns) = (self.now_ns, self.settings.costs.busy_seen_ns);
        self.others.clear();
        let others = self.tenants.iter().enumerate().filter(|(other, _)| *other != number);
        self.others.extend(others.map(|(other, tenant)| tenant.seen(other, now_ns, seen_after_ns)));
        let tenant = &mut self.tenants[number];
        let kernel = usize::try_from(tenant.next_launch().kernel).unwrap_or(usize::MAX);
        let model = &self.models[kernel];
        let me = tenant.itself(number, kernel, model.lasts_ns);
        let (launch, in_flight_ns) = if foresees {
            let known = Launch { lasts_ns: Some(model.lasts_ns), bound: model.bound, ..Launch::UNKNOWN };
            let launch = if self.settings.profiles { known } else { Launch::UNKNOWN };
            (launch, tenant.flight.left_ns(now_ns, |launches| launches <= tenant.ended))
        } else {
            (Launch::UNKNOWN, 0)
        };
        let view = View {
            now_ns,
            me,
            others: &self.others,
            ladder: self.ladder,
            width: self.sms,
            in_flight_ns,
            share: tenant.share.thousandths(now_ns),
            least_share: self.settings.least_share,
            quarantined: false,
            dial: self.settings.dial,
        };
        decide(policy, &launch, &view)
    }

    /// Holds a launch until what it waits for, or goes on holding it.
    fn hold(&mut self, number: usize, until: Until, reason: Reason) {
        let costs = &self.settings.costs;
        // Who has finished since it was seen to be busy wakes nobody any more.
        let has_missed = self.tenants.iter().enumerate().any(|(n, other)| until.steps >> n & 1 != 0 && !other.wants());
        let tenant = &mut self.tenants[number];
        let now_ns = self.now_ns;
        let held = match &tenant.thread {
            Thread::Held(held) => Held { now_for: reason, steps: until.steps, ..held.clone() },
            _ => Held { begun_ns: now_ns, counted_ns: now_ns, reason, now_for: reason, steps: until.steps },
        };
        // For its own work a tenant waits awake, and asks whether it is done.
        let wake_ns = if reason == Reason::InFlight { costs.idle_seen_ns } else { costs.wake_ns };
        let upto_ns = until.at_ns.min(held.begun_ns + self.settings.longest_hold_ns);
        let at_ns = if has_missed { now_ns + costs.busy_seen_ns } else { upto_ns };
        tenant.thread = Thread::Held(held);
        self.timers.set(number, at_ns.max(now_ns + 1) + wake_ns);
    }

    /// The time of a hold that has passed counts in its tenant's share, unless it waited for its own work.
    fn count_held(&mut self, number: usize) {
        let tenant = &mut self.tenants[number];
        if let Thread::Held(held) = &mut tenant.thread {
            if held.now_for != Reason::InFlight {
                tenant.share.held_ns += self.now_ns - held.counted_ns;
            }
            held.counted_ns = self.now_ns;
        }
    }

    /// A launch is held no longer, if it was.
    fn release(&mut self, number: usize) {
        let tenant = &mut self.tenants[number];
        if let Thread::Held(held) = &tenant.thread {
            tenant.decisions.held(held.reason, self.now_ns - held.begun_ns);
        }
    }

    fn sms_of(&self, lane: Lane) -> Sms {
        let width = |split: usize| self.ladder.get(split).copied().unwrap_or(self.sms);
        match lane {
            Lane::Full => 0..self.sms,
            Lane::Front { split } => 0..width(split),
            // A split that is not there means all SMs.
            Lane::Rest { split } => width(split) % self.sms..self.sms,
        }
    }
}
