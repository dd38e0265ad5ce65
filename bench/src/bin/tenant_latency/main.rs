//! How fast others see that a tenant is busy, and how fast one that was held goes on, through the real shim.
//!
//! This process plays the daemon and watches the tenants' pages. The tenants are children with the shim preloaded that
//! reach the driver as any program does. All times are by `CLOCK_MONOTONIC`, which the processes share, and each
//! participant that spins has a core of its own where there are enough.
//!
//! `busy`: a tenant takes the time right before `cuLaunchKernel`; the watcher takes it when the page says busy. And the
//! other way round: right after `cuStreamSynchronize`, and when the page says idle.
//!
//! `resume`: a best-effort tenant's launch is held at the gate for a latency tenant (policy `exclusive`), which was
//! there first, or came while the best-effort tenant had work on the GPU and was itself held until that was done. The
//! time is from the end of the latency tenant's step, as the watcher sees it in the page and as the tenant itself knows
//! it when `cuStreamSynchronize` returns, until the watcher sees in the other page that the hold is over, and until the held
//! `cuLaunchKernel` has returned, with the driver's part in it. That is the raw time; the net one is without what the same
//! launch costs in the middle when nothing holds it.
//!
//! `own wait`: the same without a hold. The best-effort tenant looks at a word that the latency tenant sets when its step is
//! over, and then launches. No gate can be faster: it is what machine and driver take by themselves. That is why the end of
//! the hold is what is judged, and not the return of the launch: on some machines the launch alone takes longer than asked.

mod board;
mod child;
mod report;
mod words;

use anyhow::{Context, Result, bail, ensure};
use board::Board;
use child::Role;
use clap::{Parser, ValueEnum};
use detshare_board::{Class, clock};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::{Value, json};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use words::Words;

/// How long the start of a tenant, or its end, may take: the first on a GPU machine takes seconds.
const START_OR_END: Duration = Duration::from_secs(30);
/// The end of a child does not announce itself.
const PAUSE: Duration = Duration::from_millis(2);

#[derive(Parser)]
#[command(about = "How fast a tenant is seen to be busy, and how fast one that was held goes on")]
pub(crate) struct Arguments {
    /// The shim's library
    #[arg(long)]
    shim: PathBuf,
    /// The driver that the shim forwards to
    #[arg(long)]
    driver: PathBuf,
    /// Where to write the figures as JSON
    #[arg(long)]
    out: Option<PathBuf>,
    /// Steps that are watched
    #[arg(long, default_value_t = 20_000)]
    steps: usize,
    /// Launches that are held
    #[arg(long, default_value_t = 5_000)]
    holds: usize,
    /// How long a launch is held, about, in microseconds
    #[arg(long, default_value_t = 300)]
    held_us: u32,
    /// The cores of the watcher, the latency tenant and the best-effort tenant; without it the last ones that there are
    #[arg(long, value_delimiter = ',', num_args = 1..=3)]
    cores: Vec<usize>,
    /// A few rounds, to see that everything runs
    #[arg(long)]
    quick: bool,
    /// Fail where a figure is above what is asked for
    #[arg(long)]
    check: bool,
    /// Be a tenant
    #[arg(long, hide = true)]
    role: Option<Role>,
    /// The shared words' file, open in a tenant
    #[arg(long, hide = true, default_value_t = -1)]
    words: i32,
    /// Where a tenant writes what it measured
    #[arg(long, hide = true)]
    figures: Option<PathBuf>,
    /// Who comes first, in a tenant
    #[arg(long, hide = true, default_value = "first")]
    order: Order,
    /// Whether somebody watches the latency tenant while another is held
    #[arg(long, hide = true)]
    watched: bool,
}

/// When the latency tenant comes that another is held for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Order {
    /// Its kernel runs before the other launches anything
    First,
    /// The other's kernel runs, and it is held until that is over
    Second,
    /// As the first, but nobody holds the other: it waits by itself until the latency tenant says that its step is over
    Own,
}

impl Arguments {
    /// Launches that are held, in that order. The second is the slower one: where a hold lasts for a whole turn, as it
    /// may, all of them would take minutes.
    fn holds(&self, order: Order) -> usize {
        match order {
            Order::First => self.rounds(self.holds),
            Order::Second | Order::Own => self.rounds(self.holds / 5).max(1),
        }
    }

    fn rounds(&self, of: usize) -> usize {
        /// Enough for a 99.9th percentile that is not the slowest one.
        const QUICK: usize = 2_000;
        if self.quick { of.min(QUICK) } else { of }
    }
}

fn main() -> Result<()> {
    let mut arguments = Arguments::parse();
    if let Some(role) = arguments.role {
        return child::run(role, &arguments);
    }
    // Tenants are started in whatever folder; the loader and the shim want absolute paths.
    for path in [&mut arguments.shim, &mut arguments.driver] {
        *path = path.canonicalize().with_context(|| format!("there is no {}", path.display()))?;
    }
    if arguments.cores.is_empty() {
        arguments.cores = usual_cores()?;
    }
    let scratch = std::env::temp_dir().join(format!("tenant_latency-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).with_context(|| format!("cannot make {}", scratch.display()))?;
    let measured = measure(&arguments, &scratch);
    std::fs::remove_dir_all(&scratch).ok();
    let report = report::of(&arguments, measured?)?;
    report::print(&report);
    if let Some(out) = &arguments.out {
        std::fs::write(out, format!("{report:#}\n")).with_context(|| format!("cannot write {}", out.display()))?;
    }
    let above = report::above(&report);
    ensure!(!arguments.check || above.is_empty(), "above what is asked for: {}", above.join("; "));
    Ok(())
}

/// What was measured, in nanoseconds, a value for each round.
pub(crate) struct Measured {
    on: Value,
    /// Until the watcher saw busy, since right before the launch.
    busy: Vec<i64>,
    /// Until it saw idle, since the tenant had waited for its step; below zero where it saw it before.
    idle: Vec<i64>,
    first: Resume,
    second: Resume,
    /// From the end until a launch has returned that its program itself waited with.
    own: Vec<i64>,
}

/// What was measured of launches that were held.
pub(crate) struct Resume {
    /// When the step's end was seen by the watcher; nothing where it had no core of its own.
    end_seen: Option<Vec<u64>>,
    /// When it saw that the hold was over.
    hold_over_seen: Vec<u64>,
    /// When the latency tenant knew of it.
    end_known: Vec<u64>,
    /// When the best-effort tenant called, and when its launch had returned.
    called: Vec<u64>,
    returned: Vec<u64>,
    /// The same launch when nothing holds it.
    unheld: Vec<u64>,
    /// What the best-effort tenant's page says.
    holds: u64,
    held_ns: u64,
}

fn measure(arguments: &Arguments, scratch: &Path) -> Result<Measured> {
    let everywhere = sched_getaffinity(None)?;
    eprintln!("busy …");
    let (on, busy, idle) = watch_busy(arguments, &scratch.join("busy"))?;
    // Tenants inherit it: their other threads must not crowd the watcher's core.
    sched_setaffinity(None, &everywhere)?;
    eprintln!("resume, the latency tenant comes first …");
    let first = watch_resume(Order::First, arguments, &scratch.join("first"))?;
    sched_setaffinity(None, &everywhere)?;
    eprintln!("resume, it comes while the other runs …");
    let second = watch_resume(Order::Second, arguments, &scratch.join("second"))?;
    sched_setaffinity(None, &everywhere)?;
    eprintln!("own wait, nobody holds the other …");
    let own = wait_by_itself(arguments, &scratch.join("own"))?;
    Ok(Measured { on, busy, idle, first, second, own })
}

/// How long after the step a launch has returned that its program itself waited with.
fn wait_by_itself(arguments: &Arguments, folder: &Path) -> Result<Vec<i64>> {
    let mut board = Board::open(folder)?;
    let words = Words::create()?;
    let mut latency = Tenant::start(Role::Ahead, Order::Own, arguments, folder, &words, false)?;
    board.admit(Class::Latency, &mut latency.child)?;
    let mut best_effort = Tenant::start(Role::Held, Order::Own, arguments, folder, &words, false)?;
    board.admit(Class::BestEffort, &mut best_effort.child)?;
    let (ended, returned) = (numbers(&latency.figures()?, "ended")?, numbers(&best_effort.figures()?, "returned")?);
    Ok(ended.iter().zip(&returned).map(|(ended, returned)| signed(*returned) - signed(*ended)).collect())
}

/// How long it took, at each step, until the page said busy, and until it said idle.
fn watch_busy(arguments: &Arguments, folder: &Path) -> Result<(Value, Vec<i64>, Vec<i64>)> {
    let mut board = Board::open(folder)?;
    let words = Words::create()?;
    let mut tenant = Tenant::start(Role::Busy, Order::First, arguments, folder, &words, false)?;
    let page = board.admit(Class::Latency, &mut tenant.child)?;
    pin(arguments.cores[0])?;
    words::until("the tenant is warm", || words.present.get() > 0)?;
    let (mut busy, mut idle) = (Vec::new(), Vec::new());
    for round in 1..=arguments.rounds(arguments.steps) {
        words::until("the tenant's step is over", || !page.step().is_busy())?;
        let last = page.step();
        words.watching.set(round);
        // Another step, be it over already: a watcher that lost its core for a moment has seen it late, not never.
        words::spin_until("the tenant is busy", || page.step() != last)?;
        let seen = clock::now();
        busy.push(signed(seen) - signed(words.stamp.get()));
        words.busy_seen.set(round);
        words::spin_until("the tenant is idle", || !page.step().is_busy())?;
        let seen = clock::now();
        words::until("the tenant has waited for its step", || words.done.get() >= round as u64)?;
        idle.push(signed(seen) - signed(words.stamp.get()));
        words.seen.set(round);
    }
    let figures = tenant.figures()?;
    Ok((figures["on"].clone(), busy, idle))
}

/// When the latency tenant's steps ended, and when the launch that they held went on.
fn watch_resume(order: Order, arguments: &Arguments, folder: &Path) -> Result<Resume> {
    let mut board = Board::open(folder)?;
    let words = Words::create()?;
    // With fewer cores the watcher would stand in the way of those whom it watches.
    let watches = distinct(&arguments.cores) >= Role::ALL_AT_ONCE;
    let mut latency = Tenant::start(Role::Ahead, order, arguments, folder, &words, watches)?;
    let page = board.admit(Class::Latency, &mut latency.child)?;
    let mut best_effort = Tenant::start(Role::Held, order, arguments, folder, &words, watches)?;
    let held = board.admit(Class::BestEffort, &mut best_effort.child)?;
    let (mut end_seen, mut hold_over_seen) = (Vec::new(), Vec::new());
    if watches {
        pin(arguments.cores[0])?;
        words::until("the tenants are warm", || words.present.get() > 0)?;
        for round in 1..=arguments.holds(order) {
            words::until("the latency tenant is idle", || !page.step().is_busy())?;
            let last = page.step();
            words.watching.set(round);
            let is_over = || page.step() != last && !page.step().is_busy();
            words::spin_until("the latency tenant's step is over", is_over)?;
            end_seen.push(clock::now());
            words::spin_until("the held launch goes on", || !held.is_holding())?;
            hold_over_seen.push(clock::now());
            words.seen.set(round);
        }
    }
    let (ahead, held_up) = (latency.figures()?, best_effort.figures()?);
    let state = held.read(clock::now());
    Ok(Resume {
        end_seen: watches.then_some(end_seen),
        hold_over_seen,
        end_known: numbers(&ahead, "ended")?,
        called: numbers(&held_up, "called")?,
        returned: numbers(&held_up, "returned")?,
        unheld: numbers(&held_up, "unheld")?,
        holds: state.holds,
        held_ns: state.held_ns,
    })
}

/// For differences.
pub(crate) fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

fn numbers(figures: &Value, name: &str) -> Result<Vec<u64>> {
    let values = figures[name].as_array().with_context(|| format!("a tenant wrote no {name}"))?;
    values.iter().map(|value| value.as_u64().context("a time is a number")).collect()
}

/// A child process that has not been waited for; it does not outlive this.
struct Tenant {
    child: Child,
    figures: PathBuf,
}

impl Tenant {
    fn start(
        role: Role,
        order: Order,
        arguments: &Arguments,
        folder: &Path,
        words: &Words,
        watched: bool,
    ) -> Result<Self> {
        let name = role.to_possible_value().context("a role without a name")?;
        let figures = folder.join(format!("{}.json", name.get_name()));
        let cores = arguments.cores.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("--shim")
            .arg(&arguments.shim)
            .arg("--driver")
            .arg(&arguments.driver)
            .arg("--figures")
            .arg(&figures);
        command.args(["--role", name.get_name(), "--cores", &cores, "--words", &words.file().as_raw_fd().to_string()]);
        command.args(["--steps", &arguments.steps.to_string(), "--holds", &arguments.holds.to_string()]);
        let order = order.to_possible_value().context("an order without a name")?;
        command.args(["--held-us", &arguments.held_us.to_string(), "--order", order.get_name()]);
        command.args(arguments.quick.then_some("--quick")).args(watched.then_some("--watched"));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("DETSHARE_")) {
            command.env_remove(name);
        }
        command.env("LD_PRELOAD", &arguments.shim).env("DETSHARE_DRIVER", &arguments.driver);
        command.env("DETSHARE_DIR", folder).env("DETSHARE_CLASS", role.class_name()).env("DETSHARE_LOG", "1");
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().context("cannot start a tenant")?;
        Ok(Self { child, figures })
    }

    /// What it measured, once it has ended.
    fn figures(&mut self) -> Result<Value> {
        let status = ended_within(&mut self.child, START_OR_END)?.context("a tenant does not end")?;
        ensure!(status.success(), "a tenant has failed: {status}");
        let file = File::open(&self.figures).context("a tenant wrote no figures")?;
        Ok(serde_json::from_reader(file)?)
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        // It has ended already, as a rule.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn ended_within(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let until = Instant::now() + limit;
    loop {
        let ended = child.try_wait()?;
        if ended.is_some() || Instant::now() >= until {
            return Ok(ended);
        }
        std::thread::sleep(PAUSE);
    }
}

/// The last ones that this process may use, if there are several: the first ones have the machine's other work.
fn usual_cores() -> Result<Vec<usize>> {
    let allowed = sched_getaffinity(None)?;
    let mut cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
    cores.reverse();
    cores.truncate(Role::ALL_AT_ONCE);
    if cores.is_empty() {
        bail!("there is no core to run on");
    }
    Ok(cores)
}

fn distinct(cores: &[usize]) -> usize {
    let mut cores = cores.to_vec();
    cores.sort_unstable();
    cores.dedup();
    cores.len()
}

pub(crate) fn pin(core: usize) -> Result<()> {
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores).with_context(|| format!("cannot run on core {core}"))
}

/// As a record has it.
pub(crate) fn settings(arguments: &Arguments) -> Value {
    json!({
        "cores": arguments.cores,
        "steps": arguments.rounds(arguments.steps),
        "holds": [arguments.holds(Order::First), arguments.holds(Order::Second)],
        "held_us": arguments.held_us,
    })
}
