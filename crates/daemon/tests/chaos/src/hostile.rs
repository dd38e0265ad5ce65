//! A tenant whose page holds anything, changing all the time: the others compute what they compute, and the daemon lives.

use crate::crew::Crew;
use crate::figures;
use crate::house::{House, LOOK, PATIENCE, Programs};
use crate::process::Process;
use anyhow::{Context, Result, ensure};
use clap::Args;
use detshare_api::{Class, TenantPatch};
use serde_json::json;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

/// How many real ones there are at a time.
const TENANTS: usize = 4;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    programs: Programs,
    /// How many real tenants are to end under each policy
    #[arg(long, default_value_t = 12)]
    tenants: u64,
    /// What decides what the liar writes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where to write what came out as JSON
    #[arg(long)]
    out: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut house = House::new(&arguments.programs, false)?;
    house.start_daemon_and_wait()?;
    let mut crew = Crew::of_all_kinds(house, arguments.seed)?;
    let mut figures = Vec::new();
    println!("policy     tenants  seconds  questions");
    for policy in ["exclusive", "fair", "slo-aware"] {
        crew.house.client().set_policy(policy)?;
        let (seconds, questions) =
            beside_a_liar(&mut crew, arguments, policy).with_context(|| format!("{policy}\n{}", crew.house.logs()))?;
        println!("{policy:<9} {:>8}  {seconds:>7.1}  {questions:>9}", arguments.tenants);
        figures.push(
            json!({ "policy": policy, "tenants": arguments.tenants, "seconds": seconds, "questions": questions }),
        );
    }
    crew.house.stop_daemon()?;
    println!("{} tenants ended with the right result, 0 failures", crew.ended);
    let figures = json!({ "policies": figures, "ended_with_the_right_result": crew.ended, "failures": 0 });
    figures::write(arguments.out.as_deref(), "hostile", &figures)
}

fn beside_a_liar(crew: &mut Crew, arguments: &Arguments, policy: &str) -> Result<(f64, u64)> {
    let mut liar = start_liar(crew, arguments.seed)?;
    let who = liar.pid().to_string();
    if policy == "slo-aware" {
        // Then the others make way for it, whatever it says of when it is busy and when its next step is due.
        let urgent = TenantPatch { class: Some(Class::Latency), ..TenantPatch::default() };
        crew.house.client().change(&who, &urgent)?;
    }
    let begun = Instant::now();
    let end = crew.ended + arguments.tenants;
    crew.replacing = true;
    while crew.tenants.len() < TENANTS {
        crew.add()?;
    }
    let (mut deadline, mut ended, mut questions) = (Instant::now() + 3 * PATIENCE, crew.ended, 0);
    while crew.ended < end {
        crew.pump(LOOK)?;
        crew.house.client().tenants()?;
        let tenant = crew.house.client().tenant(&who).context("the liar is not there any more")?;
        ensure!(
            tenant.weight > 0 && tenant.finished <= tenant.launches,
            "the daemon passes on what cannot be: {tenant:?}"
        );
        questions += 2;
        if questions % 64 == 0 {
            // Both ways, so that a change reaches all while its page lies.
            let patch = TenantPatch { weight: Some(1 + u32::try_from(questions % 1000)?), ..TenantPatch::default() };
            crew.house.client().change(&who, &patch)?;
            crew.house.client().metrics()?;
        }
        if crew.ended > ended {
            (ended, deadline) = (crew.ended, Instant::now() + 3 * PATIENCE);
        }
        ensure!(Instant::now() < deadline, "no tenant ends beside the liar any more");
    }
    ensure!(crew.house.client().tenant(&who)?.doubts, "nobody has noticed that the liar lies");
    ensure!(liar.ended()?.is_none(), "the liar has ended");
    crew.finish()?;
    liar.kill()?;
    crew.settle(&[], true)?;
    Ok((begun.elapsed().as_secs_f64(), questions))
}

/// Starts it and waits until it has joined.
fn start_liar(crew: &Crew, seed: u64) -> Result<Process> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("liar").arg(crew.house.run_folder()).arg(seed.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(crew.house.log_file("tenants.log")?);
    let mut liar = Process::start(&mut command)?;
    let mut out = liar.child().stdout.take().context("a liar without output")?;
    // It says so, or ends.
    ensure!(out.read(&mut [0])? > 0, "the liar was not taken in");
    Ok(liar)
}
