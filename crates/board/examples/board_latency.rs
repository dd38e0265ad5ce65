//! How fast one process sees what another publishes, and how fast it runs again when it slept.
//!
//! Two processes, each pinned to a core of its own. Times are by `CLOCK_MONOTONIC`, taken by the publisher before it
//! publishes and by the other after it has seen it, so each contains the cost of publishing and of reading the clock.

use anyhow::{Context, Result, ensure};
use clap::Parser;
use detshare_board::{
    Class, Daemon, DaemonView, LONGEST_SPIN, Tenant, TenantView, Waited, clock, receive_fds, send_fds, wait,
    wait_spinning,
};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

#[derive(Parser)]
#[command(about = "How fast processes see each other on the board")]
struct Arguments {
    /// Rounds of each
    #[arg(long, default_value_t = 100_000)]
    rounds: usize,
    /// The core of the publisher, and that of the other
    #[arg(long, num_args = 2, default_values_t = [0, 1])]
    cores: Vec<usize>,
    /// How long the publisher lets the other fall asleep, in microseconds
    #[arg(long, default_value_t = 60)]
    asleep_us: u64,
    /// Where to write the figures as JSON
    #[arg(long)]
    out: Option<PathBuf>,
    /// Be the other process: its socket is the standard input
    #[arg(long, hide = true)]
    other: bool,
}

/// What is measured, and how the other waits for it. Each row is a round of its own kind.
#[derive(Clone, Copy)]
enum Kind {
    BusySeen,
    ResumeAsleep,
    ResumeAsleepOnTwo,
    ResumeShortWait,
    ResumeSpinning,
}

const KINDS: [(Kind, &str); 5] = [
    (Kind::BusySeen, "busy seen by a process that looks"),
    (Kind::ResumeAsleep, "idle until a process that slept runs"),
    (Kind::ResumeAsleepOnTwo, "the same, asleep on a tenant and the epoch"),
    (Kind::ResumeShortWait, "the same, after a wait of 2 µs"),
    (Kind::ResumeSpinning, "the same, after a long wait without sleep"),
];

/// How long the publisher waits before it publishes to one that is awake.
const SETTLE_NS: u64 = 2_000;
const BOUND: Duration = Duration::from_secs(1);

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if arguments.other { other(&arguments) } else { publisher(&arguments) }
}

fn publisher(arguments: &Arguments) -> Result<()> {
    let (mut stream, theirs) = UnixStream::pair()?;
    let mut other = Command::new(std::env::current_exe()?)
        .args(["--other", "--rounds", &arguments.rounds.to_string(), "--cores"])
        .args(arguments.cores.iter().map(usize::to_string))
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .spawn()
        .context("cannot start the other process")?;
    pin(arguments.cores[0])?;
    let (tenant, daemon) = (Tenant::create(Class::Latency)?, Daemon::create()?);
    send_fds(&stream, b"t", &[tenant.file(), daemon.file()])?;
    let received = receive_fds(&stream, &mut [0])?;
    let their = TenantView::map(received.files.first().context("no group came")?)?;

    let alone = costs_alone(arguments.rounds)?;
    let mut figures = Vec::new();
    let mut marks = 0;
    for (kind, what) in KINDS {
        let published: Vec<u64> = (0..arguments.rounds)
            .map(|_| {
                marks += 2;
                round(kind, &tenant, &their, marks, arguments.asleep_us * 1_000)
            })
            .collect();
        let mut bytes = vec![0; arguments.rounds * size_of::<u64>()];
        stream.read_exact(&mut bytes).context("the other process has ended")?;
        let seen = bytes.as_chunks().0.iter().copied().map(u64::from_le_bytes);
        let times = seen.zip(published).map(|(seen, published)| seen.saturating_sub(published)).collect();
        figures.push(summary(what, times));
        stream.write_all(b"n")?;
    }
    figures.extend(alone);
    ensure!(other.wait()?.success(), "the other process has failed");
    report(arguments, &figures)
}

/// One round of the publisher; returns when it published. The other marks twice: when it is ready, and when it has seen.
fn round(kind: Kind, tenant: &Tenant, their: &TenantView, marks: u64, asleep_ns: u64) -> u64 {
    if !matches!(kind, Kind::BusySeen) {
        tenant.launch();
    }
    until_marked(their, marks - 1);
    spin_for(if matches!(kind, Kind::BusySeen | Kind::ResumeShortWait) { SETTLE_NS } else { asleep_ns });
    let published = clock::now();
    if matches!(kind, Kind::BusySeen) {
        tenant.launch();
        until_marked(their, marks);
        tenant.finish(tenant.launched(), 0);
    } else {
        tenant.finish(tenant.launched(), 0);
        until_marked(their, marks);
    }
    published
}

fn other(arguments: &Arguments) -> Result<()> {
    let mut stream = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    pin(arguments.cores[1])?;
    // Its launches are the marks.
    let tenant = Tenant::create(Class::BestEffort)?;
    let received = receive_fds(&stream, &mut [0])?;
    let [their, daemon] = &received.files[..] else { anyhow::bail!("no groups came") };
    let (their, daemon) = (TenantView::map(their)?, DaemonView::map(daemon)?);
    send_fds(&stream, b"t", &[tenant.file()])?;
    for (kind, _) in KINDS {
        let mut seen = Vec::with_capacity(arguments.rounds * size_of::<u64>());
        for _ in 0..arguments.rounds {
            seen.extend(see(kind, &tenant, &their, &daemon).to_le_bytes());
            tenant.launch();
        }
        stream.write_all(&seen)?;
        stream.read_exact(&mut [0])?;
    }
    Ok(())
}

/// One round of the other; returns when it saw.
fn see(kind: Kind, tenant: &Tenant, their: &TenantView, daemon: &DaemonView) -> u64 {
    let wanted = !matches!(kind, Kind::BusySeen);
    while their.step().is_busy() != wanted {
        core::hint::spin_loop();
    }
    let step = their.step();
    let watch = [their.watch(step), daemon.watch(daemon.epoch())];
    tenant.launch();
    match kind {
        Kind::BusySeen => {
            while !their.step().is_busy() {
                core::hint::spin_loop();
            }
        }
        Kind::ResumeAsleep => while wait_spinning(&watch[..1], Duration::ZERO, BOUND) == Waited::Over {},
        Kind::ResumeAsleepOnTwo => while wait_spinning(&watch, Duration::ZERO, BOUND) == Waited::Over {},
        Kind::ResumeSpinning => while wait_spinning(&watch, LONGEST_SPIN, BOUND) == Waited::Over {},
        Kind::ResumeShortWait => while wait(&watch, BOUND) == Waited::Over {},
    }
    clock::now()
}

/// What publishing costs the publisher, with nobody waiting.
fn costs_alone(rounds: usize) -> Result<Vec<Value>> {
    let tenant = Tenant::create(Class::Latency)?;
    let (mut first, mut more, mut finish) = (Vec::new(), Vec::new(), Vec::new());
    let timed = |times: &mut Vec<u64>, act: &dyn Fn()| {
        let before = clock::now();
        act();
        times.push(clock::now() - before);
    };
    for _ in 0..rounds {
        timed(&mut first, &|| _ = tenant.launch());
        timed(&mut more, &|| _ = tenant.launch());
        timed(&mut finish, &|| _ = tenant.finish(tenant.launched(), 0));
    }
    let mut clock_alone = Vec::new();
    (0..rounds).for_each(|_| timed(&mut clock_alone, &|| ()));
    Ok(vec![
        summary("cost of a step's first launch", first),
        summary("cost of a further launch", more),
        summary("cost of ending a step nobody waits for", finish),
        summary("two readings of the clock, in each of these", clock_alone),
    ])
}

fn until_marked(their: &TenantView, marks: u64) {
    while their.read(0).launched < marks {
        core::hint::spin_loop();
    }
}

fn spin_for(ns: u64) {
    let until = clock::now() + ns;
    while clock::now() < until {
        core::hint::spin_loop();
    }
}

fn pin(core: usize) -> Result<()> {
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores).with_context(|| format!("cannot run on core {core}"))
}

fn summary(what: &str, mut times: Vec<u64>) -> Value {
    times.sort_unstable();
    let part = |thousandths: usize| times.get((times.len() * thousandths).div_ceil(1000).max(1) - 1);
    json!({
        "what": what, "rounds": times.len(),
        "p50_ns": part(500), "p99_ns": part(990), "p999_ns": part(999), "max_ns": times.last(),
    })
}

fn report(arguments: &Arguments, figures: &[Value]) -> Result<()> {
    println!("{:<46}{:>10}{:>10}{:>10}{:>12}", "ns", "p50", "p99", "p99.9", "max");
    for figure in figures {
        let [p50, p99, p999, max] = ["p50_ns", "p99_ns", "p999_ns", "max_ns"].map(|name| &figure[name]);
        let what = figure["what"].as_str().unwrap_or_default();
        println!(
            "{what:<46}{:>10}{:>10}{:>10}{:>12}",
            p50.to_string(),
            p99.to_string(),
            p999.to_string(),
            max.to_string()
        );
    }
    let Some(out) = &arguments.out else { return Ok(()) };
    let date = Command::new("date").arg("+%F").output().context("date")?;
    let record = json!({
        "command": std::env::args().collect::<Vec<_>>().join(" "),
        "machine": machine(),
        "date": String::from_utf8_lossy(&date.stdout).trim(),
        "asked": "busy seen within 2 µs (p99), running again within 20 µs",
        "figures": figures,
    });
    std::fs::write(out, format!("{record:#}\n")).with_context(|| format!("cannot write {}", out.display()))
}

fn machine() -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let processors = read("/proc/cpuinfo");
    let model = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let count = processors.lines().filter(|line| line.starts_with("processor")).count();
    let model = model.map_or("unknown processor", |(_, name)| name.trim());
    format!("{model}, {count} cores, Linux {}", read("/proc/sys/kernel/osrelease").trim())
}
