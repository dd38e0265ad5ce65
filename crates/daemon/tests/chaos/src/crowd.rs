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
use std::time::Instant;

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
    println!("wave  all there s  one more s  halves ended s  together went on s  together ended s  killed s");
    for wave in 1..=arguments.waves {
        let Wave { all_there, one_more, halves_ended, together_went_on, together_ended, killed } =
            run_wave(&mut crew).with_context(|| format!("wave {wave}\n{}", crew.house.logs()))?;
        println!(
            "{wave:>4}  {all_there:>11.2}  {one_more:>10.2}  {halves_ended:>14.2}  {together_went_on:>18.2}  {together_ended:>16.2}  {killed:>8.2}"
        );
        waves.push(json!({
            "all_there_s": all_there, "one_more_s": one_more, "halves_ended_s": halves_ended,
            "together_went_on_s": together_went_on, "together_ended_s": together_ended, "killed_s": killed,
        }));
    }
    crew.house.stop_daemon()?;
    println!("{} tenants ended with the right result, {} of them without a slot", crew.ended, arguments.waves);
    let figures = json!({
        "slots": SLOTS, "waves": waves, "ended_with_the_right_result": crew.ended, "results_judged": crew.judged, "failures": 0,
    });
    figures::write(arguments.out.as_deref(), "crowd", &figures)
}

/// How long each part took, in seconds.
struct Wave {
    all_there: f64,
    one_more: f64,
    halves_ended: f64,
    together_went_on: f64,
    together_ended: f64,
    killed: f64,
}

/// All slots are filled three times; those who were there end in halves, all together, and killed together.
fn run_wave(crew: &mut Crew) -> Result<Wave> {
    let begun = Instant::now();
    let paused = fill(crew)?;
    let all_there = begun.elapsed().as_secs_f64();
    let one_more = one_more(crew)?;
    let halves_ended = end_in_halves(crew, &paused)?;
    fill(crew)?;
    let together_went_on = work_together(crew)?;
    let together_ended = end_together(crew)?;
    fill(crew)?;
    work_together(crew)?;
    let killed = die_together(crew)?;
    Ok(Wave { all_there, one_more, halves_ended, together_went_on, together_ended, killed })
}

/// All come; each is paused as soon as it is there, so that none ends before the last has come.
fn fill(crew: &mut Crew) -> Result<Vec<u32>> {
    crew.replacing = true;
    for _ in 0..SLOTS {
        crew.add()?;
    }
    let mut paused = BTreeSet::new();
    let deadline = Instant::now() + 3 * PATIENCE;
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
    crew.replacing = false;
    Ok(paused.into_iter().collect())
}

/// It goes on alone, although the others never leave room for it.
fn one_more(crew: &mut Crew) -> Result<f64> {
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
    Ok(begun.elapsed().as_secs_f64())
}

fn end_in_halves(crew: &mut Crew, paused: &[u32]) -> Result<f64> {
    let begun = Instant::now();
    let (first, second) = paused.split_at(SLOTS / 2);
    for half in [first, second] {
        for pid in half {
            set_paused(crew, *pid, false)?;
        }
        crew.until_ended(half)?;
        // Those who are still paused have let go of those who have gone.
        crew.settle(&[], true)?;
    }
    Ok(begun.elapsed().as_secs_f64())
}

/// All are released at once, and each does whole steps while all of the others do.
fn work_together(crew: &mut Crew) -> Result<f64> {
    let begun = Instant::now();
    for place in 0..SLOTS {
        set_paused(crew, crew.tenants[place].pid(), false)?;
    }
    crew.disturbed("all were released", begun, &[])?;
    crew.settle(&[], true)?;
    ensure!(crew.tenants.len() == SLOTS, "only {} of {SLOTS} were at work together", crew.tenants.len());
    Ok(begun.elapsed().as_secs_f64())
}

/// All have as many steps to do, and end with the right results at about the same time.
fn end_together(crew: &mut Crew) -> Result<f64> {
    let begun = Instant::now();
    crew.finish()?;
    crew.settle(&[], true)?;
    Ok(begun.elapsed().as_secs_f64())
}

/// All are gone in the same moment, in the middle of their steps.
fn die_together(crew: &mut Crew) -> Result<f64> {
    let begun = Instant::now();
    crew.kill_all()?;
    crew.settle(&[], true)?;
    Ok(begun.elapsed().as_secs_f64())
}

fn set_paused(crew: &Crew, pid: u32, paused: bool) -> Result<()> {
    let patch = TenantPatch { paused: Some(paused), ..TenantPatch::default() };
    crew.house.client().change(&pid.to_string(), &patch)?;
    Ok(())
}
