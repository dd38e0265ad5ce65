//! A tenant whose page holds anything, changing all the time: the others compute what they compute, and are not much slower than
//! beside an honest tenant that is busy; the daemon lives, and what is known of the others' kernels is still known afterwards, and
//! nothing else.

use crate::crew::Crew;
use crate::figures;
use crate::house::{House, LOOK, PATIENCE, Programs};
use crate::process::Process;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use detshare_api::{Class, TenantPatch};
use detshare_policy::POLICIES;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

/// How many real ones there are at a time.
const TENANTS: usize = 4;
/// Beside a liar real ones may take so many times as long as beside a busy tenant, and so much longer: a machine that has something
/// else to do meanwhile may be half as fast, and stand still for a while.
const TIMES_AS_LONG: f64 = 3.0;
const LONGER_S: f64 = 5.0;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    programs: Programs,
    /// How many real tenants are to end under each policy
    #[arg(long, default_value_t = 12)]
    tenants: u64,
    /// What decides what the first liar writes; each that follows has the next
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many liars, one after the other, there are under each policy
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..))]
    liars: u64,
    /// Where to write what came out as JSON
    #[arg(long)]
    out: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut house = House::new(&arguments.programs, false)?;
    house.start_daemon_and_wait()?;
    let mut crew = Crew::of_all_kinds(house, arguments.seed)?;
    let before = alone(&mut crew, arguments.tenants).with_context(|| crew.house.logs())?;
    crew.house.start_daemon_and_wait()?;
    let mut figures = Vec::new();
    println!("policy      tenants  s beside a busy one  s beside the slowest liar  questions");
    for policy in POLICIES.iter().map(|policy| policy.name) {
        crew.house.client().set_policy(policy)?;
        let (tenants, seeds) = (arguments.tenants, arguments.seed..arguments.seed + arguments.liars);
        let mut beside = |neighbour| {
            beside(&mut crew, neighbour, tenants, policy, &before)
                .with_context(|| format!("{policy}\n{}", crew.house.logs()))
        };
        let busy = beside(Neighbour::Busy)?;
        let liars = seeds.map(|seed| beside(Neighbour::Liar(seed))).collect::<Result<Vec<_>>>()?;
        let slowest = liars.iter().map(|liar| liar.seconds).fold(0.0, f64::max);
        let questions = liars.iter().map(|liar| liar.questions).sum::<u64>();
        println!("{policy:<10} {tenants:>8}  {:>19.1}  {slowest:>25.1}  {questions:>9}", busy.seconds);
        ensure!(
            slowest <= busy.seconds * TIMES_AS_LONG + LONGER_S,
            "{policy}: {tenants} tenants took {slowest:.1} s beside a liar, and {:.1} s beside a busy one",
            busy.seconds
        );
        figures.push(json!({
            "policy": policy, "tenants": tenants, "beside_a_busy_one_s": busy.seconds,
            "beside_liars_s": liars.iter().map(|liar| liar.seconds).collect::<Vec<_>>(), "questions": questions,
        }));
    }
    crew.house.stop_daemon()?;
    let after = Known::read(&crew.house)?;
    let lost: Vec<_> = before.kernels.difference(&after.kernels).collect();
    ensure!(lost.is_empty(), "kernels are not known any more: {lost:?}");
    let names = before.names();
    let made_up: Vec<_> = after.names().into_iter().filter(|name| !names.contains(name)).collect();
    ensure!(made_up.is_empty(), "kernels are known that nobody launched: {made_up:?}");
    let kernels = after.kernels.len();
    println!("{} tenants ended with the right result, {kernels} kernels are known, 0 failures", crew.ended);
    let figures = json!({
        "policies": figures, "ended_with_the_right_result": crew.ended, "kernels_known": kernels, "failures": 0,
    });
    figures::write(arguments.out.as_deref(), "hostile", &figures)
}

/// What the daemon has on disk of kernels.
struct Known {
    model: String,
    driver: String,
    /// With their identities, as they stand there.
    kernels: BTreeSet<String>,
}

impl Known {
    fn read(house: &House) -> Result<Self> {
        let files = house.profiles()?;
        let [file] = files.as_slice() else { bail!("there is one GPU, and its profiles are in {files:?}") };
        let profiles: Value = serde_json::from_slice(&std::fs::read(file)?)?;
        let text = |name: &str| Ok::<_, anyhow::Error>(profiles[name].as_str().context("no text")?.to_string());
        let kernels = profiles["kernels"].as_object().context("no kernels")?.keys().cloned().collect();
        Ok(Self { model: text("gpu")?, driver: text("driver")?, kernels })
    }

    fn names(&self) -> BTreeSet<&str> {
        self.kernels.iter().filter_map(|kernel| Some(kernel.split_once(' ')?.1)).collect()
    }
}

/// Real tenants without the liar, until the daemon knows their kernels and has ended.
fn alone(crew: &mut Crew, tenants: u64) -> Result<Known> {
    // It measures kernels to foresee what they take.
    crew.house.client().set_policy("slo-aware")?;
    let end = crew.ended + tenants;
    while crew.tenants.len() < TENANTS {
        crew.add()?;
    }
    let deadline = Instant::now() + 6 * PATIENCE;
    while crew.ended < end {
        crew.pump(LOOK)?;
        ensure!(Instant::now() < deadline, "no tenant ends");
    }
    crew.finish()?;
    crew.house.stop_daemon()?;
    let known = Known::read(&crew.house)?;
    ensure!(!known.kernels.is_empty(), "no kernel was measured");
    Ok(known)
}

/// Who is there beside the real ones.
#[derive(Clone, Copy)]
enum Neighbour {
    /// Honest, and at work most of the time.
    Busy,
    /// Writes what this seed decides.
    Liar(u64),
}

/// How long so many tenants took to end, and how much was asked meanwhile.
struct Beside {
    seconds: f64,
    questions: u64,
}

fn beside(crew: &mut Crew, neighbour: Neighbour, tenants: u64, policy: &str, known: &Known) -> Result<Beside> {
    let mut process = start(crew, neighbour, known)?;
    let who = process.pid().to_string();
    if foresees(policy) {
        // Then the others make way for it, whatever it says of when it is busy and when its next step is due.
        let urgent = TenantPatch { class: Some(Class::Latency), ..TenantPatch::default() };
        crew.house.client().change(&who, &urgent)?;
    }
    let begun = Instant::now();
    let end = crew.ended + tenants;
    crew.replacing = true;
    while crew.tenants.len() < TENANTS {
        crew.add()?;
    }
    let (mut deadline, mut ended, mut questions) = (Instant::now() + 3 * PATIENCE, crew.ended, 0);
    while crew.ended < end {
        crew.pump(LOOK)?;
        crew.house.client().tenants()?;
        let tenant = crew.house.client().tenant(&who).context("the neighbour is not there any more")?;
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
        ensure!(Instant::now() < deadline, "no tenant ends any more");
    }
    let seconds = begun.elapsed().as_secs_f64();
    let is_doubted = crew.house.client().tenant(&who)?.doubts;
    match neighbour {
        Neighbour::Busy => ensure!(!is_doubted, "an honest tenant is doubted"),
        Neighbour::Liar(_) => ensure!(is_doubted, "nobody has noticed that the liar lies"),
    }
    ensure!(process.ended()?.is_none(), "the neighbour has ended");
    crew.finish()?;
    process.kill()?;
    crew.settle(&[], true)?;
    Ok(Beside { seconds, questions })
}

/// Whether it protects latency tenants by what they say of themselves.
fn foresees(policy: &str) -> bool {
    POLICIES.iter().any(|one| one.name == policy && one.foresees)
}

/// Starts it and waits until it has joined.
fn start(crew: &Crew, neighbour: Neighbour, known: &Known) -> Result<Process> {
    let mut command = Command::new(std::env::current_exe()?);
    match neighbour {
        Neighbour::Busy => command.arg("busy").arg(crew.house.run_folder()),
        Neighbour::Liar(seed) => command.arg("liar").arg(crew.house.run_folder()).arg(seed.to_string()),
    };
    command.args([&known.model, &known.driver]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(crew.house.log_file("tenants.log")?);
    let mut process = Process::start(&mut command)?;
    let mut out = process.child().stdout.take().context("a neighbour without output")?;
    // It says so, or ends.
    ensure!(out.read(&mut [0])? > 0, "the neighbour was not taken in");
    Ok(process)
}
