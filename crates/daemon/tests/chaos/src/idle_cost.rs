//! What the daemon costs while tenants are busy, with all that it does then: it saves what it has learnt, and somebody asks who is
//! there.

use crate::crew::Crew;
use crate::figures;
use crate::house::{House, Programs};
use crate::process::{cpu_seconds, resident_kib};
use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Six times as often as by default, so that there is a save in the window.
const SAVE_EVERY: &str = "10s";
/// How often somebody asks, as `detshare ps` does.
const ASK_EVERY: Duration = Duration::from_secs(1);

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    programs: Programs,
    /// How many tenants are busy
    #[arg(long, default_value_t = 16)]
    tenants: usize,
    /// How long to look: the daemon saves every 10 s
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(15..))]
    seconds: u64,
    /// More of a core, in percent, is a failure
    #[arg(long, value_name = "PERCENT")]
    at_most: Option<f64>,
    /// Where to write what came out as JSON
    #[arg(long)]
    out: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut house = House::new(&arguments.programs, false)?;
    house.daemon_arguments = &["--save-every", SAVE_EVERY];
    house.start_daemon_and_wait()?;
    // Those that do not end while the daemon is looked at: what it costs that they come and go is another question.
    let kinds = crate::tenant::endless();
    let mut crew = Crew::new(house, &kinds, 1)?;
    let result = look(&mut crew, arguments);
    result.with_context(|| crew.house.logs())
}

fn look(crew: &mut Crew, arguments: &Arguments) -> Result<()> {
    for _ in 0..arguments.tenants {
        crew.add()?;
    }
    crew.disturbed("the start", Instant::now(), &[])?;
    crew.settle(&[], true)?;
    let daemon = crew.house.daemon_pid().context("no daemon")?;
    let steps = |crew: &Crew| crew.tenants.iter().map(|tenant| tenant.steps).sum::<u64>();
    let saves_before = crew.house.count("profile_saves")?;
    let (begun, cpu_before, steps_before) = (Instant::now(), cpu_seconds(daemon)?, steps(crew));
    let mut questions = 0;
    while begun.elapsed() < Duration::from_secs(arguments.seconds) {
        crew.pump_for(ASK_EVERY)?;
        let listed = crew.house.client().tenants()?.len();
        ensure!(listed == arguments.tenants, "the daemon lists {listed} of {} tenants", arguments.tenants);
        questions += 1;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let percent = (cpu_seconds(daemon)? - cpu_before) / seconds * 100.0;
    let steps = steps(crew) - steps_before;
    let saves = crew.house.count("profile_saves")? - saves_before;
    ensure!(saves > 0, "the daemon has not saved anything: what it costs is not all there");
    let kib = resident_kib(daemon)?;
    println!("tenants  steps in {seconds:.0} s  saves  questions  daemon's CPU %  resident KiB");
    println!("{:>7}  {steps:>13}  {saves:>5}  {questions:>9}  {percent:>14.2}  {kib:>12}", crew.tenants.len());
    let figures = json!({
        "tenants": crew.tenants.len(), "seconds": seconds, "steps": steps, "saves": saves, "questions": questions,
        "cpu_percent_of_a_core": percent,
        "resident_kib": kib, "at_most": arguments.at_most,
    });
    figures::write(arguments.out.as_deref(), "idle-cost", &figures)?;
    let limit = arguments.at_most.unwrap_or(f64::INFINITY);
    ensure!(percent <= limit, "the daemon takes {percent:.2} % of a core, more than {limit} %");
    Ok(())
}
