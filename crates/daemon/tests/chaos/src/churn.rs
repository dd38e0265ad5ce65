//! Thousands that come and go, with kernels that the daemon learns and saves: it does not grow.

use crate::figures;
use crate::house::{House, PATIENCE, Programs};
use crate::process::{Holdings, Process, resident_kib};
use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Each is another process; this many at a time.
const AT_A_TIME: u64 = 4;
/// How often one process comes and goes before it dies.
const STAYS: u64 = 249;
/// How many come and go between two looks at the daemon's memory.
const BETWEEN_LOOKS: u64 = 2_000;
/// Of each quarter there are some.
const FEWEST_LOOKS: usize = 8;
/// The daemon saves each minute: so many saves are an hour's.
const SAVES_OF_AN_HOUR: u64 = 60;
/// As often as the daemon looks whether it is to save, so that an hour's saves fit into a test.
const SAVE_EVERY: &str = "100ms";
/// What its memory may differ by from one quarter to the next: the allocator keeps what the largest save so far took, some 1.5 MiB in
/// one go, and that may come late. A daemon that kept 300 bytes of each tenant would grow by more.
const NOISE_KIB: u64 = 2048;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    programs: Programs,
    /// How many come and go, at least; as many more as it takes until the daemon has saved 60 times
    #[arg(long, default_value_t = 32_000)]
    joins: u64,
    /// Where to write what came out as JSON
    #[arg(long)]
    out: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut house = House::new(&arguments.programs, false)?;
    house.write_config("log = \"warn\"")?;
    // An hour's churn goes by in seconds, and so does what the daemon does each minute of it.
    house.daemon_arguments = &["--save-every", SAVE_EVERY];
    house.start_daemon_and_wait()?;
    let result = churn(&mut house, arguments);
    result.with_context(|| house.logs())?;
    house.stop_daemon()
}

/// What was seen of the daemon while nobody was there.
struct Look {
    joins: u64,
    saves: u64,
    kib: u64,
    holdings: Holdings,
}

fn churn(house: &mut House, arguments: &Arguments) -> Result<()> {
    let started = Instant::now();
    let (mut joins, mut looks) = (0, Vec::<Look>::new());
    println!("     joins   saves  resident KiB");
    let is_enough = |last: &Look| last.joins >= arguments.joins && last.saves >= SAVES_OF_AN_HOUR;
    while looks.len() < FEWEST_LOOKS || !looks.last().is_some_and(is_enough) {
        come_and_go(house, BETWEEN_LOOKS, &mut joins)?;
        // The first time it has made what it keeps for ever; from then on it comes back to that.
        let holdings = house.daemon_at_rest(looks.first().map(|look| look.holdings))?;
        let kib = resident_kib(house.daemon_pid().context("no daemon")?)?;
        let look = Look { joins, saves: house.count("profile_saves")?, kib, holdings };
        println!("{:>10} {:>7} {:>13}", look.joins, look.saves, look.kib);
        looks.push(look);
    }
    let seconds = started.elapsed().as_secs_f64();
    let (joined, died) = (house.count("joins")?, house.count("deaths")?);
    // Each quarter at its highest: what one look finds is what the allocator happens to keep just then.
    let highest = |quarter: &[Look]| quarter.iter().map(|look| look.kib).max().unwrap_or(0);
    let quarter = looks.len().div_ceil(4);
    let [third, fourth] = [&looks[looks.len() - 2 * quarter..looks.len() - quarter], &looks[looks.len() - quarter..]];
    let (before, after) = (highest(third), highest(fourth));
    let [first, last] = [&looks[0], &looks[looks.len() - 1]];
    println!("{joins} came and went in {seconds:.0} s; joined {joined}, died {died}");
    println!("at most {before} KiB in the third quarter, {after} in the last");
    let samples: Vec<_> = looks
        .iter()
        .map(|look| json!({ "joins": look.joins, "saves": look.saves, "resident_kib": look.kib }))
        .collect();
    let figures = json!({
        "joins": joins, "saves": last.saves, "seconds": seconds, "joined_in_all": joined, "died_in_all": died,
        "samples": samples, "resident_kib": { "third_quarter": before, "last_quarter": after, "noise": NOISE_KIB },
        "open_files": { "before": first.holdings.files, "after": last.holdings.files },
        "pages_of_tenants_mapped": { "before": first.holdings.tenants_mapped, "after": last.holdings.tenants_mapped },
    });
    figures::write(arguments.out.as_deref(), "churn", &figures)?;
    ensure!(after <= before + NOISE_KIB, "the daemon grows: {before} KiB in the third quarter, {after} in the last");
    Ok(())
}

/// Has processes come and go until there were so many more.
fn come_and_go(house: &mut House, joins: u64, next: &mut u64) -> Result<()> {
    let end = *next + joins;
    let mut running: Vec<(Process, Instant)> = Vec::new();
    loop {
        while running.len() < usize::try_from(AT_A_TIME)? && *next < end {
            let mut command = Command::new(std::env::current_exe()?);
            command.arg("light").arg(house.run_folder()).args([next.to_string(), STAYS.to_string()]);
            running.push((Process::start(command.stdin(Stdio::null()).stdout(Stdio::null()))?, Instant::now()));
            // Its death is one more.
            *next += STAYS + 1;
        }
        if running.is_empty() {
            return Ok(());
        }
        let mut still = Vec::new();
        for (mut process, started) in running {
            match process.ended()? {
                Some(status) => {
                    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
                    ensure!(signal == Some(libc::SIGABRT), "a light tenant ended with {status}");
                }
                None => {
                    ensure!(started.elapsed() < 6 * PATIENCE, "a light tenant is stuck");
                    still.push((process, started));
                }
            }
        }
        running = still;
        house.check_daemon()?;
        std::thread::sleep(crate::house::LOOK);
    }
}
