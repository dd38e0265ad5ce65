//! The rounds: one disturbance each, and then all must be well again.

use crate::crew::Crew;
use crate::figures::{self, ms};
use crate::house::{House, LOOK, PATIENCE, Programs};
use crate::process::{adopt_orphans, descendants};
use crate::random::Random;
use anyhow::{Context, Result, ensure};
use clap::Args;
use detshare_api::{Class, TenantPatch};
use detshare_policy::POLICIES;
use rustix::process::Signal;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A survivor that has not gone on by then hangs, even if it does go on before all patience has run out.
const HANG_MS: u64 = 5_000;
/// How often it is said how far it is.
const PROGRESS: u64 = 100;
/// So many rounds bring every disturbance and every policy.
const MANY: u64 = 200;
/// How long somebody is stopped, and how long there is no daemon, at most.
const LONGEST_STOP_MS: usize = 50;
/// What survivors are meant to go on within. How many take longer is always said.
const AIM: Duration = Duration::from_millis(100);
/// Of so many one may take longer than `--mostly-within-ms`.
const MOSTLY: usize = 100;
/// Steps that may be over after a pause is in force: one that was on the GPU, and one whose line was on its way.
const STEPS_AFTER_PAUSE: u64 = 2;

#[derive(Args)]
pub(crate) struct Arguments {
    /// How many rounds, of one disturbance each
    #[arg(long, default_value_t = 1000)]
    rounds: u64,
    /// What decides the disturbances
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many tenants there are at a time
    #[arg(long, default_value_t = 5, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(2..=32))]
    tenants: usize,
    #[command(flatten)]
    programs: Programs,
    /// The command line, to pause tenants and set policies by it
    #[arg(long)]
    cli: Option<PathBuf>,
    /// A survivor that takes longer to go on is a failure. What is assumed is no measure of speed but a detector of hangs: far longer
    /// than anything takes on a busy machine
    #[arg(long, value_name = "N", default_value_t = HANG_MS)]
    within_ms: u64,
    /// More than one in a hundred survivors that take longer to go on are a failure: for a machine that has other things to do, where
    /// now and then somebody is woken late
    #[arg(long, value_name = "N")]
    mostly_within_ms: Option<u64>,
    /// Where to write what came out as JSON
    #[arg(long)]
    out: Option<PathBuf>,
    /// Leave the folder with the logs
    #[arg(long)]
    keep: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    KillTenant,
    StopTenant,
    KillDaemon,
    StopDaemon,
    StopBoth,
    KillBoth,
    RestartDaemon,
    Reload,
    BreakConfig,
    SetPolicy,
    Pause,
    PauseAndKillDaemon,
    Change,
}

/// By weight: what ends somebody most often.
const ACTIONS: &[(usize, Action)] = &[
    (20, Action::KillTenant),
    (14, Action::StopTenant),
    (16, Action::KillDaemon),
    (10, Action::StopDaemon),
    (8, Action::StopBoth),
    (8, Action::KillBoth),
    (4, Action::RestartDaemon),
    (6, Action::Reload),
    (5, Action::BreakConfig),
    (8, Action::SetPolicy),
    (8, Action::Pause),
    (4, Action::PauseAndKillDaemon),
    (8, Action::Change),
];

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let started = Instant::now();
    adopt_orphans()?;
    let house = House::new(&arguments.programs, arguments.keep)?;
    let mut crew = Crew::of_all_lengths(house, arguments.seed)?;
    let mut round = 0;
    let result = rounds(&mut crew, arguments, &mut round, started);
    let result = result.with_context(|| {
        let Arguments { seed, tenants, .. } = arguments;
        format!("round {round} of seed {seed} with {tenants} tenants\n{}", crew.house.logs())
    });
    let Crew { house, ended, judged, times, listed, births, lanes, doubted, .. } = crew;
    result?;
    drop(house);
    let left = descendants()?;
    ensure!(left.is_empty(), "processes are left: {left:?}");

    times.print("a survivor goes on after");
    listed.print("all well and listed after");
    births.print("new tenants");
    // Or nobody was ever moved, and little was tried.
    ensure!(arguments.rounds < MANY || lanes.len() > 1, "all tenants were on one lane all the time: {lanes:?}");
    println!("lanes seen: {lanes:?}; tenants doubted: {}", doubted.len());
    let longest = times.longest().unwrap_or_default();
    let (count, late) = (times.count(), times.longer_than(AIM));
    println!(
        "the slowest survivor went on after {} ms; {late} of {count} took longer than {} ms",
        ms(longest),
        ms(AIM)
    );
    let seconds = started.elapsed().as_secs_f64();
    println!("{judged} results were those of an undisturbed program, of every survivor after every round");
    println!("{} rounds in {seconds:.0} s, {ended} tenants ended with the right result, 0 failures", arguments.rounds);
    let figures = json!({
        "rounds": arguments.rounds, "seed": arguments.seed, "tenants": arguments.tenants, "seconds": seconds,
        "ended_with_the_right_result": ended, "results_judged": judged, "failures": 0, "survivors_go_on": times.json(), "slowest_survivor_ms": ms(longest),
        "survivors_beyond_100_ms": late, "within_ms": arguments.within_ms, "mostly_within_ms": arguments.mostly_within_ms,
        "all_well_and_listed": listed.json(), "births": births.json(),
        "lanes_seen": lanes, "tenants_doubted": doubted.len(),
    });
    figures::write(arguments.out.as_deref(), "chaos", &figures)?;
    let limit = arguments.within_ms;
    ensure!(longest <= Duration::from_millis(limit), "a survivor took {} ms, more than {limit}", ms(longest));
    if let Some(limit) = arguments.mostly_within_ms {
        let late = times.longer_than(Duration::from_millis(limit));
        ensure!(late * MOSTLY <= count, "{late} of {count} survivors took longer than {limit} ms");
    }
    Ok(())
}

fn rounds(crew: &mut Crew, arguments: &Arguments, round: &mut u64, started: Instant) -> Result<()> {
    crew.house.start_daemon_and_wait()?;
    for _ in 0..arguments.tenants {
        crew.add()?;
    }
    crew.disturbed("the start", Instant::now(), &[])?;
    crew.settle(&[], true)?;
    for number in 1..=arguments.rounds {
        *round = number;
        let mut random = Random::new(arguments.seed, number);
        let action = random.weighted(ACTIONS);
        let begun = Instant::now();
        Round { crew, random, cli: arguments.cli.as_deref() }.run(action).with_context(|| format!("{action:?}"))?;
        if arguments.rounds <= PROGRESS {
            println!("round {number}: {action:?}, {} ms", ms(begun.elapsed()));
        } else if number % PROGRESS == 0 {
            let (seconds, ended) = (started.elapsed().as_secs(), crew.ended);
            let longest = ms(crew.times.longest().unwrap_or_default());
            println!("{number} rounds after {seconds} s: {ended} tenants ended well, longest recovery {longest} ms");
        }
    }
    crew.finish()?;
    crew.settle(&[], true)?;
    crew.house.stop_daemon()
}

struct Round<'a> {
    crew: &'a mut Crew,
    random: Random,
    cli: Option<&'a Path>,
}

impl Round<'_> {
    fn run(mut self, action: Action) -> Result<()> {
        let victim = self.random.below(self.crew.tenants.len());
        match action {
            Action::KillTenant => {
                let begun = Instant::now();
                self.crew.kill(victim)?;
                self.settle("a tenant was killed", begun)
            }
            Action::StopTenant => self.stop_tenant(victim),
            Action::KillDaemon => {
                let begun = Instant::now();
                self.crew.house.kill_daemon()?;
                self.start_successor("the daemon was killed", begun)
            }
            Action::StopDaemon => self.stop_daemon(),
            Action::StopBoth => self.stop_both(victim),
            Action::KillBoth => {
                let begun = Instant::now();
                self.crew.house.kill_daemon()?;
                self.crew.kill(victim)?;
                self.start_successor("daemon and tenant were killed", begun)
            }
            Action::RestartDaemon => self.restart_daemon(),
            Action::Reload => self.reload(),
            Action::BreakConfig => self.break_config(),
            Action::SetPolicy => {
                let (policy, begun) = (self.any_policy(), Instant::now());
                self.set_policy(policy)?;
                self.settle("the policy was set", begun)
            }
            Action::Pause => self.pause(victim),
            Action::PauseAndKillDaemon => {
                self.set_paused(victim, true)?;
                let begun = Instant::now();
                self.crew.house.kill_daemon()?;
                self.start_successor("a pauser was killed", begun)
            }
            Action::Change => self.change(victim),
        }
    }

    fn settle(&mut self, action: &'static str, begun: Instant) -> Result<()> {
        self.crew.disturbed(action, begun, &[])?;
        self.crew.settle(&[], true)
    }

    fn some_time(&mut self) -> Duration {
        Duration::from_millis(self.random.below(LONGEST_STOP_MS + 1) as u64)
    }

    fn stop_tenant(&mut self, victim: usize) -> Result<()> {
        let time = self.some_time();
        let tenant = &mut self.crew.tenants[victim];
        let (stopped, begun) = (tenant.pid(), Instant::now());
        tenant.process().signal(Signal::STOP);
        self.crew.disturbed("a tenant was stopped", begun, &[stopped])?;
        self.crew.settle(&[stopped], true)?;
        self.crew.pump_for(time.saturating_sub(begun.elapsed()))?;
        // In its place, unless it had ended just before it was to be stopped.
        let begun = Instant::now();
        self.crew.tenants[victim].process().signal(Signal::CONT);
        self.settle("a tenant was continued", begun)
    }

    fn start_successor(&mut self, action: &'static str, begun: Instant) -> Result<()> {
        self.crew.disturbed(action, begun, &[])?;
        if self.random.percent(50) {
            let time = self.some_time();
            self.crew.pump_for(time)?;
        }
        self.crew.house.start_daemon()?;
        self.crew.settle(&[], true)
    }

    fn stop_daemon(&mut self) -> Result<()> {
        let (time, begun) = (self.some_time(), Instant::now());
        self.crew.house.signal_daemon(Signal::STOP);
        self.crew.disturbed("the daemon was stopped", begun, &[])?;
        self.crew.settle(&[], false)?;
        self.crew.pump_for(time.saturating_sub(begun.elapsed()))?;
        let begun = Instant::now();
        self.crew.house.signal_daemon(Signal::CONT);
        self.settle("the daemon was continued", begun)
    }

    /// Those who are left see a tenant that is busy for ever, and nobody tells them otherwise.
    fn stop_both(&mut self, victim: usize) -> Result<()> {
        let (time, begun) = (self.some_time(), Instant::now());
        let tenant = &mut self.crew.tenants[victim];
        let stopped = tenant.pid();
        tenant.process().signal(Signal::STOP);
        self.crew.house.signal_daemon(Signal::STOP);
        self.crew.disturbed("daemon and tenant were stopped", begun, &[stopped])?;
        self.crew.settle(&[stopped], false)?;
        self.crew.pump_for(time.saturating_sub(begun.elapsed()))?;
        let begun = Instant::now();
        if self.random.percent(50) {
            self.crew.house.signal_daemon(Signal::CONT);
        }
        // In its place, as above.
        self.crew.tenants[victim].process().signal(Signal::CONT);
        self.crew.house.signal_daemon(Signal::CONT);
        self.settle("daemon and tenant were continued", begun)
    }

    fn restart_daemon(&mut self) -> Result<()> {
        let begun = Instant::now();
        if self.random.percent(50) {
            self.crew.house.signal_daemon(Signal::TERM);
        } else {
            self.crew.house.client().shutdown()?;
        }
        self.crew.disturbed("the daemon was restarted", begun, &[])?;
        let deadline = Instant::now() + PATIENCE;
        while !self.crew.house.daemon_has_ended()? {
            ensure!(Instant::now() < deadline, "the daemon does not end");
            self.crew.hear(LOOK)?;
        }
        self.crew.house.start_daemon()?;
        self.crew.settle(&[], true)
    }

    fn any_policy(&mut self) -> &'static str {
        POLICIES[self.random.below(POLICIES.len())].name
    }

    fn any_config(&mut self) -> String {
        let policy = self.any_policy();
        let hold = ["5ms", "10ms", "20ms"][self.random.below(3)];
        let class = if self.random.percent(50) { "latency" } else { "best-effort" };
        let weight = 1 + self.random.below(1000);
        format!(
            "policy = \"{policy}\"\nlongest_hold = \"{hold}\"\ndefault_class = \"{class}\"\n[tenants.event]\nweight = {weight}"
        )
    }

    /// Has it read in one of the three ways.
    fn have_config_read(&mut self, is_broken: bool) -> Result<()> {
        match self.random.below(3) {
            // By itself, on its next beat.
            0 => (),
            1 => self.crew.house.signal_daemon(Signal::HUP),
            _ => {
                let answer = self.crew.house.client().reload();
                ensure!(answer.is_err() == is_broken, "the daemon says to a reload: {answer:?}");
            }
        }
        Ok(())
    }

    fn reload(&mut self) -> Result<()> {
        let (config, begun) = (self.any_config(), Instant::now());
        self.crew.house.write_config(&config)?;
        self.have_config_read(false)?;
        self.settle("the configuration changed", begun)
    }

    fn break_config(&mut self) -> Result<()> {
        let broken = ["policy = \"none\"", "polciy = \"fair\"", "ladder = [", "longest_hold = \"0ms\"", "\u{0}"];
        let (text, begun) = (broken[self.random.below(broken.len())], Instant::now());
        self.crew.house.write_config(text)?;
        self.have_config_read(true)?;
        self.crew.disturbed("the configuration was broken", begun, &[])?;
        self.until_config("it is broken", |error| error.is_some())?;
        self.crew.settle(&[], true)?;
        let config = self.any_config();
        self.crew.house.write_config(&config)?;
        self.have_config_read(false)?;
        self.until_config("it is good again", |error| error.is_none())
    }

    fn until_config(&mut self, what: &str, is_it: impl Fn(&Option<String>) -> bool) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !is_it(&self.crew.house.client().status()?.config.error) {
            ensure!(Instant::now() < deadline, "the daemon does not notice that its configuration has changed: {what}");
            self.crew.pump(LOOK)?;
        }
        Ok(())
    }

    fn set_policy(&mut self, policy: &str) -> Result<()> {
        match self.cli {
            Some(cli) => self.command(cli, &["policy", policy]),
            None => Ok(self.crew.house.client().set_policy(policy).map(drop)?),
        }
    }

    fn command(&self, cli: &Path, words: &[&str]) -> Result<()> {
        let mut command = Command::new(cli);
        command.env("DETSHARE_DIR", self.crew.house.run_folder()).args(words);
        let output = command.stdin(Stdio::null()).output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{command:?} ended with {}: {said}", output.status);
        Ok(())
    }

    /// Returns whom, and when that was begun.
    fn set_paused(&mut self, victim: usize, paused: bool) -> Result<(u32, Instant)> {
        let patch = TenantPatch { paused: Some(paused), ..TenantPatch::default() };
        let (pid, begun, tenant) = self.crew.ask_about(victim, |house, pid| house.client().change(pid, &patch))?;
        ensure!(tenant.paused == paused, "a pause is not in force: {tenant:?}");
        Ok((pid, begun))
    }

    fn pause(&mut self, victim: usize) -> Result<()> {
        let (pid, begun) = self.set_paused(victim, true)?;
        self.crew.disturbed("a tenant was paused", begun, &[pid])?;
        let before = self.steps_of(pid);
        self.crew.settle(&[], true)?;
        let time = self.some_time();
        self.crew.pump_for(time)?;
        if let (Some(before), Some(after)) = (before, self.steps_of(pid)) {
            ensure!(
                after - before <= STEPS_AFTER_PAUSE,
                "tenant {pid} is paused and has done {} steps",
                after - before
            );
        }
        // One that was at its end has gone, and another has come in its place.
        let begun = match self.cli {
            Some(cli) if self.steps_of(pid).is_some() => {
                let begun = Instant::now();
                self.command(cli, &["resume", &pid.to_string()])?;
                begun
            }
            _ => self.set_paused(victim, false)?.1,
        };
        self.settle("a tenant was resumed", begun)
    }

    fn steps_of(&self, pid: u32) -> Option<u64> {
        self.crew.tenants.iter().find(|tenant| tenant.pid() == pid).map(|tenant| tenant.steps)
    }

    fn change(&mut self, victim: usize) -> Result<()> {
        const WEIGHTS: [u32; 5] = [1, 50, 100, 400, 10_000];
        let class = if self.random.percent(50) { Class::Latency } else { Class::BestEffort };
        let weight = WEIGHTS[self.random.below(WEIGHTS.len())];
        let patch = TenantPatch { class: Some(class), weight: Some(weight), ..TenantPatch::default() };
        let (_, begun, tenant) = self.crew.ask_about(victim, |house, pid| house.client().change(pid, &patch))?;
        ensure!((tenant.class, tenant.weight) == (class, weight), "a change is not in force: {tenant:?}");
        self.settle("a tenant was changed", begun)
    }
}
