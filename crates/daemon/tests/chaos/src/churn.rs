//! Thousands that come and go, with kernels that the daemon learns and saves: it does not grow.

use crate::figures;
use crate::house::{House, PATIENCE, Programs};
use crate::process::{Holdings, Process, holdings, resident_kib};
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
/// Names and memory that the daemon keeps are at their bound after so many, and so is what the allocator keeps of a few saves.
const WARM_UP: u64 = 12_000;
/// What its memory may differ by: pages that the allocator keeps of a save, and of tables that were full by chance.
const MOST_GROWTH_KIB: u64 = 2048;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    programs: Programs,
    /// How many come and go after the first 12000
    #[arg(long, default_value_t = 20_000)]
    joins: u64,
    /// Where to write what came out as JSON
    #[arg(long)]
    out: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut house = House::new(&arguments.programs, false)?;
    house.write_config("log = \"warn\"")?;
    // An hour's churn goes by in seconds, and so does what the daemon does each minute of it.
    house.daemon_arguments = &["--save-every", "1s"];
    house.start_daemon_and_wait()?;
    let result = churn(&mut house, arguments);
    result.with_context(|| house.logs())?;
    house.stop_daemon()
}

fn churn(house: &mut House, arguments: &Arguments) -> Result<()> {
    let mut next = 0;
    come_and_go(house, WARM_UP, &mut next)?;
    let (holdings_before, kib_before) = settled(house, None)?;
    let started = Instant::now();
    let joins = come_and_go(house, arguments.joins, &mut next)?;
    let seconds = started.elapsed().as_secs_f64();
    let (holdings_after, kib_after) = settled(house, Some(holdings_before))?;
    let metrics = house.client().metrics()?;
    let count = |name: &str| metrics.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    let (joined, died) = (count("detshare_joins_total"), count("detshare_deaths_total"));
    println!("                      before     after");
    println!("resident KiB      {kib_before:>10} {kib_after:>9}");
    println!("open files        {:>10} {:>9}", holdings_before.files, holdings_after.files);
    println!("mapped pages      {:>10} {:>9}", holdings_before.tenants_mapped, holdings_after.tenants_mapped);
    println!("{joins} came and went in {seconds:.0} s, after {WARM_UP}; joined in all {joined:?}, died {died:?}");
    let figures = json!({
        "joins": joins, "warm_up": WARM_UP, "seconds": seconds, "joined_in_all": joined, "died_in_all": died,
        "resident_kib": { "before": kib_before, "after": kib_after },
        "open_files": { "before": holdings_before.files, "after": holdings_after.files },
        "pages_of_tenants_mapped": { "before": holdings_before.tenants_mapped, "after": holdings_after.tenants_mapped },
    });
    figures::write(arguments.out.as_deref(), "churn", &figures)?;
    ensure!(
        kib_after <= kib_before + MOST_GROWTH_KIB,
        "the daemon has grown by {} KiB",
        kib_after.saturating_sub(kib_before)
    );
    Ok(())
}

/// Has processes come and go until there were so many; returns how many there were.
fn come_and_go(house: &mut House, joins: u64, next: &mut u64) -> Result<u64> {
    let (end, first) = (*next + joins, *next);
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
            return Ok(*next - first);
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

/// What the daemon has when nobody is there: the same as before, if it comes to that.
fn settled(house: &House, before: Option<Holdings>) -> Result<(Holdings, u64)> {
    /// How often it is found the same: the question's own connection is closed a little later, and on a busy machine later still.
    const LOOKS: usize = 50;
    let pid = house.daemon_pid().context("no daemon")?;
    crate::house::until("an empty list", || house.client().tenants().ok().filter(Vec::is_empty))?;
    let (mut last, mut same) = (None, 0);
    let at_rest = crate::house::until("nothing to be mapped, and no connection", || {
        let had = holdings(pid)?;
        same = if last == Some(had) { same + 1 } else { 0 };
        last = Some(had);
        let is_at_rest = same >= LOOKS && had.tenants_mapped == 0 && had.groups == 1;
        (is_at_rest && before.is_none_or(|before| before == had)).then_some(had)
    });
    let at_rest = at_rest.with_context(|| format!("it has {last:?} at last, and before it had {before:?}"))?;
    Ok((at_rest, resident_kib(pid)?))
}
