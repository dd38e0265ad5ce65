//! As many as there are slots, at once, and one more.

use crate::crew::Crew;
use crate::figures;
use crate::house::{House, LOOK, PATIENCE, Programs};
use crate::tenant::{KINDS, Kind, Tenant};
use anyhow::{Context, Result, ensure};
use clap::Args;
use detshare_api::TenantPatch;
use detshare_board::SLOTS;
use serde_json::json;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Longer than it takes 64 to be started and paused, far from as long as they would take to end.
const STEPS: u32 = 100;
const PAUSE_US: u32 = 20_000;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    programs: Programs,
    /// How often all slots are filled
    #[arg(long, default_value_t = 3)]
    waves: u32,
    /// Where to write what came out as JSON
    #[arg(long)]
    out: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut house = House::new(&arguments.programs, false)?;
    house.start_daemon_and_wait()?;
    // Of all kinds, but all of them long enough.
    let kinds: Vec<&'static Kind> =
        KINDS.iter().map(|kind| &*Box::leak(Box::new(Kind { steps: STEPS, pause_us: PAUSE_US, ..*kind }))).collect();
    let mut crew = Crew::new(house, &kinds, 1)?;
    let mut waves = Vec::new();
    println!("wave  all there s  one more s  all ended s");
    for wave in 1..=arguments.waves {
        let times = run_wave(&mut crew).with_context(|| format!("wave {wave}\n{}", crew.house.logs()))?;
        let [there, one_more, ended] = times.map(|time| time.as_secs_f64());
        println!("{wave:>4}  {there:>11.2}  {one_more:>10.2}  {ended:>11.2}");
        waves.push(json!({ "all_there_s": there, "one_more_s": one_more, "all_ended_s": ended }));
    }
    crew.house.stop_daemon()?;
    println!("{} tenants ended with the right result, {} of them without a slot", crew.ended, arguments.waves);
    let figures = json!({ "waves": waves, "ended_with_the_right_result": crew.ended, "failures": 0 });
    figures::write(arguments.out.as_deref(), "crowd", &figures)
}

/// All come; each is paused as soon as it is there, so that none ends before the last has come. The one more goes on alone,
/// although the others never leave room for it. Then one half goes on and
/// ends, and then the other.
fn run_wave(crew: &mut Crew) -> Result<[Duration; 3]> {
    crew.replacing = true;
    let begun = Instant::now();
    for _ in 0..SLOTS {
        crew.add()?;
    }
    let mut paused = BTreeSet::new();
    let deadline = begun + 3 * PATIENCE;
    while paused.len() < SLOTS {
        ensure!(Instant::now() < deadline, "only {} of {SLOTS} tenants are there", paused.len());
        crew.pump(LOOK)?;
        let listed = crew.house.client().tenants()?;
        for tenant in listed.iter().filter(|tenant| !tenant.paused) {
            // One that has gone by now has been followed by another.
            if set_paused(crew, tenant.pid, true).is_ok() {
                paused.insert(tenant.pid);
            }
        }
        let living: BTreeSet<u32> = crew.tenants.iter().map(Tenant::pid).collect();
        paused.retain(|pid| living.contains(pid));
    }
    let there = begun.elapsed();

    crew.replacing = false;
    let (begun, ended) = (Instant::now(), crew.ended);
    crew.add()?;
    let one_more = crew.tenants.last().map(Tenant::pid).context("nobody")?;
    while crew.ended == ended {
        ensure!(begun.elapsed() < PATIENCE, "the one more does not end");
        crew.pump(LOOK)?;
        let listed = crew.house.client().tenants()?;
        ensure!(listed.len() == SLOTS, "there are {} tenants in {SLOTS} slots", listed.len());
        ensure!(listed.iter().all(|tenant| tenant.pid != one_more), "the one more has a slot");
    }
    ensure!(crew.tenants.len() == SLOTS && crew.tenants.iter().all(|tenant| tenant.pid() != one_more), "another ended");
    let alone = begun.elapsed();

    let begun = Instant::now();
    let paused: Vec<u32> = paused.into_iter().collect();
    let (first, second) = paused.split_at(SLOTS / 2);
    for half in [first, second] {
        for pid in half {
            set_paused(crew, *pid, false)?;
        }
        crew.until_ended(half)?;
        // Those who are still paused have let go of those who have gone.
        crew.settle(&[], true)?;
    }
    Ok([there, alone, begun.elapsed()])
}

fn set_paused(crew: &Crew, pid: u32, paused: bool) -> Result<()> {
    let patch = TenantPatch { paused: Some(paused), ..TenantPatch::default() };
    crew.house.client().change(&pid.to_string(), &patch)?;
    Ok(())
}
