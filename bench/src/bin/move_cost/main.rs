//! What launches through the shim cost when streams stay where they are and when they move, beside the bare driver.
//!
//! Each case is a child process of its own, because the shim reads its schedule when it is loaded. In the child the
//! bare driver and the shim act on the same context, stream and graph, and batches of launches alternate between
//! them. Where the work goes to other SMs, a third side does by hand, with the bare driver, what the shim does: the
//! difference to it is ours, the rest is the driver's own price. The kernels count in a way that only launches one
//! after the other get right, and the shim's own counts tell whether it did what the case is about.

mod by_hand;
mod case;
mod child;
mod report;
mod sides;

use anyhow::{Context, Result, ensure};
use case::Case;
use clap::Parser;
use detshare_bench::figures::Amount;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Fresh processes for each start-up figure.
const STARTS: u32 = 7;
/// Fresh processes for each case of launches: where a process's memory and threads happen to lie is worth as much as what
/// is measured. The one in the middle counts.
const PROCESSES: usize = 5;

#[derive(Parser)]
#[command(about = "What launches through the shim cost, with and without moves")]
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
    /// Batches of each side
    #[arg(long, default_value_t = 7)]
    batches: u32,
    /// Kernel launches in a batch
    #[arg(long, default_value_t = 2000)]
    launches: u32,
    /// The split whose front is the other lane
    #[arg(long, default_value_t = 64)]
    split: u32,
    /// The folder of a daemon without other tenants; without it what a tenant pays is not measured
    #[arg(long)]
    daemon: Option<PathBuf>,
    /// Few and small batches, to see that everything runs
    #[arg(long)]
    quick: bool,
    /// Fail where a figure is above what is asked for
    #[arg(long)]
    check: bool,
    /// Measure one case in this process, and print its JSON
    #[arg(long, hide = true)]
    case: Option<Case>,
}

impl Arguments {
    fn amount(&self) -> Amount {
        let (batches, launches) = if self.quick { (3, 100) } else { (self.batches, self.launches) };
        Amount { batches, launches }
    }

    fn warm_up(&self) -> Duration {
        Duration::from_millis(if self.quick { 300 } else { 700 })
    }
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if let Some(case) = arguments.case {
        println!("{}", child::run(case, &arguments)?);
        return Ok(());
    }
    let scratch = std::env::temp_dir().join(format!("move_cost-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).with_context(|| format!("cannot make {}", scratch.display()))?;
    let report = measure_all(&arguments, &scratch);
    std::fs::remove_dir_all(&scratch).ok();
    let report = report?;
    report::print(&report);
    if let Some(out) = &arguments.out {
        std::fs::write(out, format!("{report:#}\n"))?;
    }
    let above: Vec<&str> = report::above(&report);
    ensure!(!arguments.check || above.is_empty(), "above what is asked for: {}", above.join("; "));
    Ok(())
}

fn measure_all(arguments: &Arguments, scratch: &Path) -> Result<Value> {
    let (mut launches, mut on) = (Vec::new(), Value::Null);
    for case in Case::LAUNCHES.into_iter().filter(|case| arguments.daemon.is_some() || !case.is_tenant()) {
        eprintln!("{} …", case.title());
        let over = if case == Case::OtherLane { "of_which_ours_ns" } else { "added_ns" };
        let mut processes = Vec::new();
        for _ in 0..if arguments.quick { 1 } else { PROCESSES } {
            let mut figures = in_child(case, arguments, scratch)?;
            on = figures["on"].take();
            did_what_it_is_about(case, arguments, &figures).context(case.title())?;
            processes.push((figures["in_bursts"][over].as_f64().unwrap_or(f64::NAN), figures));
        }
        processes.sort_by(|one, other| one.0.total_cmp(&other.0));
        let each: Vec<f64> = processes.iter().map(|(ns, _)| *ns).collect();
        let (_, figures) = processes.swap_remove(processes.len() / 2);
        launches.push(json!({
            "case": case.title(),
            "schedule": case.schedule(arguments.split),
            "asked_ns": case.asked(),
            "asked_of": over,
            "ns": figures["in_bursts"][over],
            "ns_of_each_process": each,
            "figures": figures,
        }));
    }
    eprintln!("start-up …");
    let (mut bare, mut shim) = (Vec::new(), Vec::new());
    for _ in 0..if arguments.quick { 2 } else { STARTS } {
        bare.push(in_child(Case::StartBare, arguments, scratch)?);
        shim.push(in_child(Case::StartShim, arguments, scratch)?);
    }
    eprintln!("memory …");
    let mut memory = Vec::new();
    for case in [Case::LanesMade, Case::LanesUsed] {
        let figures = in_child(case, arguments, scratch)?;
        memory.push(json!({ "case": case.title(), "asked_mib": report::ASKED_MIB, "mib": figures["mib"] }));
    }
    let command: Vec<String> = std::env::args().collect();
    on["command"] = command.join(" ").into();
    let start_up = report::start_up(&bare, &shim)?;
    let mut report = json!({ "on": on, "launches": launches, "start_up": start_up, "memory": memory });
    report["summary"] = report::summary(&report).into();
    Ok(report)
}

/// Runs a case in a process of its own and returns its figures, with the shim's counts among them.
fn in_child(case: Case, arguments: &Arguments, scratch: &Path) -> Result<Value> {
    let stats = scratch.join("stats.json");
    std::fs::remove_file(&stats).ok();
    let name = clap::ValueEnum::to_possible_value(&case).context("a case without a name")?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--shim").arg(&arguments.shim).arg("--driver").arg(&arguments.driver);
    command.args(["--case", name.get_name(), "--split", &arguments.split.to_string()]);
    command.args(["--batches", &arguments.batches.to_string(), "--launches", &arguments.launches.to_string()]);
    if arguments.quick {
        command.arg("--quick");
    }
    command.env("DETSHARE_DRIVER", &arguments.driver).env("DETSHARE_STATS", &stats);
    match arguments.daemon.as_ref().filter(|_| case.is_tenant()) {
        Some(folder) => command.env("DETSHARE_DIR", folder).env_remove("DETSHARE_SCHEDULE"),
        None => command.env("DETSHARE_SCHEDULE", case.schedule(arguments.split)).env_remove("DETSHARE_DIR"),
    };
    let output = command.stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "{}: {}", case.title(), output.status);
    let mut figures: Value = serde_json::from_slice(&output.stdout).context("a child's figures")?;
    if let Ok(text) = std::fs::read_to_string(&stats) {
        figures["shim_counts"] = serde_json::from_str::<Value>(&text)?["lanes"].take();
    }
    Ok(figures)
}

/// Whether the launches through the shim went to the lanes that the case is about.
fn did_what_it_is_about(case: Case, arguments: &Arguments, figures: &Value) -> Result<()> {
    /// A graph's first launches come before its copies, and a kernel's before its first move; of two lanes in turn, one
    /// is the whole GPU.
    const MOST: f64 = 0.4;
    let counts = &figures["shim_counts"];
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    let launched = number(&figures["launched_through_shim"]);
    let lanes = counts["each"].as_array().context("the shim has no lanes here")?;
    let on = |wanted: &dyn Fn(&str) -> bool| -> f64 {
        let wanted = lanes.iter().filter(|lane| wanted(lane["name"].as_str().unwrap_or("")));
        wanted.map(|lane| number(&lane["launches"])).sum()
    };
    let moves = number(&counts["moves"]);
    match case {
        Case::Move | Case::MoveNull | Case::MoveAround => {
            ensure!(moves > MOST * launched, "{launched} launches, but {moves} moves")
        }
        Case::GraphMove | Case::GraphMoveAround => {
            let away = on(&|name| name != "full");
            ensure!(away > MOST * launched, "{launched} launches, but {away} of a lane's copy");
        }
        Case::OtherLane => {
            let name = case.schedule(arguments.split);
            let there = on(&|lane| lane == name);
            ensure!(there > MOST * launched, "{launched} launches, but {there} on {name}");
        }
        _ => ensure!(moves == 0.0, "{moves} moves where there should be none"),
    }
    Ok(())
}
