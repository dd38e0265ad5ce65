//! Tenants that run in a house: hearing them, starting those that are missing, and seeing that all of them go on and that nothing is
//! left of those who have gone: processes, open files, pages. Of a futex nothing can be: the kernel has nothing of it but those who
//! wait, and one who waited for somebody who has gone would be a survivor that does not go on.

use crate::figures::Times;
use crate::house::{House, LOOK, PATIENCE};
use crate::process::{Holdings, descendants, holdings, threads};
use crate::random::Random;
use crate::tenant::{KINDS, Kind, Tenant, endless};
use crate::undisturbed::Undisturbed;
use anyhow::{Context, Result, bail, ensure};
use detshare_api::ClientError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// A tenant has gone on when it has finished a whole step that began afterwards: the next one may have been over already.
const STEPS_TO_GO_ON: u64 = 2;
/// What the daemon has open of each tenant: the connection, the page, and the process twice, to know it and to hear of its end.
const FILES_OF_A_TENANT: usize = 4;
const PIDFDS_OF_A_TENANT: usize = 2;

/// One that is expected to go on.
struct Watched {
    pid: u32,
    since: u64,
    /// Whether it worked already: how long a start takes is another question.
    is_timed: bool,
    has_gone_on: bool,
    /// Whether results of a step that was not over yet have been judged.
    is_judged: bool,
}

/// What was disturbed, and since when.
struct Disturbance {
    action: &'static str,
    begun: Instant,
    watched: Vec<Watched>,
}

/// All tenants.
pub(crate) struct Crew {
    pub(crate) house: House,
    /// With what each computes when nothing disturbs it.
    kinds: Vec<(&'static Kind, Undisturbed)>,
    pub(crate) tenants: Vec<Tenant>,
    seed: u64,
    started: u64,
    /// Whether one that ends is followed by another.
    pub(crate) replacing: bool,
    /// How many have ended with the right result.
    pub(crate) ended: u64,
    /// How often results were judged, of all who were ever there. A wrong one ends everything.
    pub(crate) judged: u64,
    disturbance: Option<Disturbance>,
    /// How long those took to go on that were there, by what had happened.
    pub(crate) times: Times,
    /// How long it took until the daemon had exactly the living in its list, by what had happened.
    pub(crate) listed: Times,
    /// How often the daemon said of one that it is on a lane, by lane.
    pub(crate) lanes: BTreeMap<String, u64>,
    /// Of whom it said that what they publish cannot be.
    pub(crate) doubted: BTreeSet<u32>,
    /// How long new ones took from their start to their first step.
    pub(crate) births: Times,
}

impl Crew {
    /// Nobody yet; learns what the kinds of tenants compute when they are alone.
    pub(crate) fn new(house: House, kinds: &[&'static Kind], seed: u64) -> Result<Self> {
        let mut learnt = Vec::new();
        for kind in kinds {
            let mut undisturbed = Undisturbed::new(kind);
            undisturbed.confirm(kind, &house)?;
            learnt.push((*kind, undisturbed));
        }
        Ok(Self {
            house,
            kinds: learnt,
            tenants: Vec::new(),
            seed,
            started: 0,
            replacing: true,
            ended: 0,
            judged: 0,
            disturbance: None,
            times: Times::default(),
            listed: Times::default(),
            lanes: BTreeMap::new(),
            doubted: BTreeSet::new(),
            births: Times::default(),
        })
    }

    /// Of every kind that there is.
    pub(crate) fn of_all_kinds(house: House, seed: u64) -> Result<Self> {
        Self::new(house, &KINDS.iter().collect::<Vec<_>>(), seed)
    }

    /// The same, and some that never end: one that has not joined again cannot go unnoticed because it ends.
    pub(crate) fn of_all_lengths(house: House, seed: u64) -> Result<Self> {
        /// Every so many of the kinds.
        const SOME: usize = 3;
        let endless = endless().into_iter().step_by(SOME);
        Self::new(house, &endless.chain(KINDS).collect::<Vec<_>>(), seed)
    }

    /// Starts one more. The first ones are one of each kind, later ones any.
    pub(crate) fn add(&mut self) -> Result<()> {
        let tenant = self.start()?;
        self.tenants.push(tenant);
        Ok(())
    }

    fn start(&mut self) -> Result<Tenant> {
        let number = usize::try_from(self.started)?;
        let kinds = self.kinds.len();
        let kind = if number < kinds { number } else { Random::new(!self.seed, self.started).below(kinds) };
        self.started += 1;
        Tenant::start(&self.house, self.kinds[kind].0, kind)
    }

    /// Ends one at once and starts another in its place.
    pub(crate) fn kill(&mut self, victim: usize) -> Result<()> {
        let tenant = &mut self.tenants[victim];
        let results = tenant.results;
        tenant.kill(&mut self.kinds[tenant.number].1)?;
        self.judged += tenant.results - results;
        self.tenants[victim] = self.start()?;
        Ok(())
    }

    /// Ends all at once, and nobody comes in their place.
    pub(crate) fn kill_all(&mut self) -> Result<()> {
        // All of them before any is waited for.
        self.tenants.iter_mut().for_each(|tenant| tenant.process().signal(Signal::KILL));
        for mut tenant in std::mem::take(&mut self.tenants) {
            let results = tenant.results;
            tenant.kill(&mut self.kinds[tenant.number].1)?;
            self.judged += tenant.results - results;
        }
        Ok(())
    }

    /// Hears what is said, waiting for it no longer than that. Those that have ended are replaced or leave.
    pub(crate) fn pump(&mut self, limit: Duration) -> Result<()> {
        self.house.check_daemon()?;
        self.hear(limit)
    }

    /// The same, whether or not the daemon is still there.
    pub(crate) fn hear(&mut self, limit: Duration) -> Result<()> {
        let limit = Timespec { tv_sec: 0, tv_nsec: limit.subsec_nanos().into() };
        let mut outputs: Vec<_> =
            self.tenants.iter().map(|tenant| PollFd::from_borrowed_fd(tenant.output(), PollFlags::IN)).collect();
        poll(&mut outputs, Some(&limit))?;
        let ready: Vec<_> = outputs.iter().map(|output| !output.revents().is_empty()).collect();
        drop(outputs);
        // From the last one on: those that leave do not move others that have not been heard.
        for index in (0..ready.len()).rev().filter(|index| ready[*index]) {
            let tenant = &mut self.tenants[index];
            let (steps, results) = (tenant.steps, tenant.results);
            let has_ended = tenant.listen(&mut self.kinds[tenant.number].1)?;
            self.judged += tenant.results - results;
            if steps == 0 && tenant.steps > 0 {
                self.births.add("start to first step", tenant.started.elapsed());
            }
            if has_ended {
                self.ended += 1;
                if self.replacing {
                    self.tenants[index] = self.start()?;
                } else {
                    self.tenants.remove(index);
                }
            }
        }
        self.look_who_goes_on();
        Ok(())
    }

    /// Hears what is said for so long.
    pub(crate) fn pump_for(&mut self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            self.pump(left.min(LOOK))?;
        }
    }

    /// Something has just been done: all that are there, but these, are to go on from now. Their time runs from before it was begun:
    /// they are disturbed while it is being done, too.
    pub(crate) fn disturbed(&mut self, action: &'static str, begun: Instant, except: &[u32]) -> Result<()> {
        self.disturbance = None;
        self.pump(Duration::ZERO)?;
        let watched = self.tenants.iter().filter(|tenant| !except.contains(&tenant.pid())).map(|tenant| Watched {
            pid: tenant.pid(),
            since: tenant.steps,
            is_timed: tenant.steps > 0,
            has_gone_on: false,
            is_judged: false,
        });
        self.disturbance = Some(Disturbance { action, begun, watched: watched.collect() });
        Ok(())
    }

    fn look_who_goes_on(&mut self) {
        let Some(disturbance) = &mut self.disturbance else { return };
        for watched in &mut disturbance.watched {
            let tenant = self.tenants.iter().find(|tenant| tenant.pid() == watched.pid);
            watched.is_judged |= tenant.is_none_or(|tenant| tenant.judged > watched.since);
            if watched.has_gone_on {
                continue;
            }
            // Who has ended has done so with the right result.
            let steps = tenant.map_or(u64::MAX, |tenant| tenant.steps - watched.since);
            watched.has_gone_on = steps >= STEPS_TO_GO_ON;
            if watched.has_gone_on && watched.is_timed && self.replacing {
                self.times.add(disturbance.action, disturbance.begun.elapsed());
            }
        }
    }

    /// Until all go on that are to, and, if the daemon can be asked, it has exactly the living in its list and nothing is
    /// left of those who have gone. Nothing is asked of the stopped.
    pub(crate) fn settle(&mut self, stopped: &[u32], can_ask: bool) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let (mut is_listed, mut wrong) = (!can_ask, String::new());
        loop {
            self.pump(LOOK)?;
            // Before the daemon is asked: a question is a connection that it has for a moment.
            let all_is_well =
                self.all_go_on() && self.all_are_judged() && self.nothing_is_left(stopped, can_ask, &mut wrong)?;
            if all_is_well || !is_listed {
                is_listed = !can_ask || self.is_listed(stopped, &mut wrong)?;
            }
            if all_is_well && is_listed {
                if let Some(disturbance) = self.disturbance.take().filter(|_| can_ask) {
                    self.listed.add(disturbance.action, disturbance.begun.elapsed());
                }
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "after {PATIENCE:?}:\n{}", self.stuck(&wrong));
        }
    }

    fn all_go_on(&self) -> bool {
        self.disturbance.iter().flat_map(|disturbance| &disturbance.watched).all(|watched| watched.has_gone_on)
    }

    /// Whether all have gone on with the same bits, also those who will be killed before they end.
    fn all_are_judged(&self) -> bool {
        self.disturbance.iter().flat_map(|disturbance| &disturbance.watched).all(|watched| watched.is_judged)
    }

    fn pids(&self) -> BTreeSet<u32> {
        self.tenants.iter().map(Tenant::pid).collect()
    }

    /// Whether the daemon's list has exactly the living. Those that are stopped may have been so before they joined.
    fn is_listed(&mut self, stopped: &[u32], wrong: &mut String) -> Result<bool> {
        let listed: BTreeSet<u32> = match self.house.client().tenants() {
            Ok(tenants) => {
                for tenant in &tenants {
                    *self.lanes.entry(tenant.lane.clone()).or_default() += 1;
                }
                self.doubted.extend(tenants.iter().filter(|tenant| tenant.doubts).map(|tenant| tenant.pid));
                tenants.iter().map(|tenant| tenant.pid).collect()
            }
            Err(error) if is_passing(&error) => {
                *wrong = error.to_string();
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        };
        let living = self.pids();
        let missing: Vec<_> = living.difference(&listed).filter(|pid| !stopped.contains(pid)).collect();
        let gone: Vec<_> = listed.difference(&living).collect();
        *wrong = format!("the daemon does not list {missing:?}, and lists {gone:?}, which are gone");
        Ok(missing.is_empty() && gone.is_empty())
    }

    /// Whether there are no other processes than daemon and tenants, and those have nothing of those who have gone.
    fn nothing_is_left(&self, stopped: &[u32], can_ask: bool, wrong: &mut String) -> Result<bool> {
        let expected: BTreeSet<u32> = self.pids().into_iter().chain(self.house.daemon_pid()).collect();
        let there = descendants()?;
        if there != expected {
            *wrong = format!("there are processes {there:?} instead of {expected:?}");
            return Ok(false);
        }
        let living = self.tenants.len();
        if let Some(daemon) = self.house.daemon_pid().filter(|_| can_ask) {
            let alone = self.house.daemon_alone.context("nobody has seen a daemon alone")?;
            let most = Holdings {
                files: alone.files + living * FILES_OF_A_TENANT,
                groups: alone.groups + living,
                sockets: alone.sockets + living,
                pidfds: alone.pidfds + living * PIDFDS_OF_A_TENANT,
                tenants_mapped: living,
                daemons_mapped: alone.daemons_mapped,
            };
            let had = holdings(daemon);
            if !had.as_ref().is_some_and(|had| had.is_within(&most)) {
                *wrong = format!("with {living} tenants the daemon has {had:?}, and alone {alone:?}");
                return Ok(false);
            }
        }
        // Its own page, which it has once more among the others', and one daemon's.
        let is_fine = |had: &Holdings| {
            had.groups <= 1 && had.tenants_mapped <= living + 1 && had.daemons_mapped <= 1 && had.sockets <= 1
        };
        for tenant in self.tenants.iter().filter(|tenant| !stopped.contains(&tenant.pid())) {
            // One that has gone by now is heard of next time.
            let Some(had) = holdings(tenant.pid()) else { continue };
            if !is_fine(&had) {
                *wrong = format!("with {living} tenants {tenant} has {had:?}");
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Who does not go on, what is wrong, and what there is to see.
    fn stuck(&self, wrong: &str) -> String {
        let watched = self.disturbance.iter().flat_map(|disturbance| &disturbance.watched);
        let stuck: Vec<_> = watched
            .filter(|watched| !watched.has_gone_on || !watched.is_judged)
            .filter_map(|watched| self.tenants.iter().find(|tenant| tenant.pid() == watched.pid))
            .map(|tenant| {
                let on = self.house.client().tenant(&tenant.pid().to_string());
                let (steps, judged) = (tenant.steps, tenant.judged);
                format!("  {tenant} stays at step {steps}, with results of {judged}; {on:?}\n{}", threads(tenant.pid()))
            })
            .collect();
        format!("{}\n  {wrong}", if stuck.is_empty() { "  all go on".to_string() } else { stuck.join("\n") })
    }

    /// Has all end by themselves, with the right results, but those that never do.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.replacing = false;
        self.tenants.retain(|tenant| !tenant.kind.is_endless());
        let all: Vec<u32> = self.pids().into_iter().collect();
        self.until_ended(&all)
    }

    /// Waits until these have ended by themselves, for as long as they go on.
    pub(crate) fn until_ended(&mut self, these: &[u32]) -> Result<()> {
        let is_one = |tenant: &Tenant| these.contains(&tenant.pid());
        while self.tenants.iter().any(is_one) {
            let others: Vec<u32> = self.tenants.iter().filter(|tenant| !is_one(tenant)).map(Tenant::pid).collect();
            self.disturbed("the end was near", Instant::now(), &others)?;
            let deadline = Instant::now() + PATIENCE;
            while !self.all_go_on() {
                self.pump(LOOK)?;
                ensure!(Instant::now() < deadline, "at the end:\n{}", self.stuck(""));
            }
        }
        self.disturbance = None;
        Ok(())
    }

    /// Asks the daemon something about the tenant in that place, whoever it is: it may end meanwhile, and be followed. Says whom, and
    /// when the question was asked that was answered.
    pub(crate) fn ask_about<T>(
        &mut self,
        place: usize,
        ask: impl Fn(&House, &str) -> Result<T, ClientError>,
    ) -> Result<(u32, Instant, T)> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (pid, asked) = (self.tenants[place].pid(), Instant::now());
            match ask(&self.house, &pid.to_string()) {
                Ok(answer) => return Ok((pid, asked, answer)),
                Err(error) if is_passing(&error) || matches!(error, ClientError::Refused { status: 404, .. }) => {
                    ensure!(Instant::now() < deadline, "the daemon does not know {}: {error}", self.tenants[place]);
                }
                Err(error) => bail!("the daemon refuses: {error}"),
            }
            self.pump(LOOK)?;
        }
    }
}

/// Whether it may only be that a daemon is being started.
fn is_passing(error: &ClientError) -> bool {
    matches!(error, ClientError::NotRunning(_) | ClientError::Broken { .. })
}
