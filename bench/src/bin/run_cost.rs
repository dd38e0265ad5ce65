//! How much longer a program takes to start by `detshare run`, in turn with the same program plainly and with the shim
//! preloaded: one that ends at once, one that computes something, and, where it is asked for, one whose `detshare run` finds no
//! daemon and has to start it.

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use detshare_bench::machine;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

#[derive(Parser)]
#[command(about = "What `detshare run` adds to a program's start")]
struct Arguments {
    /// The command line's program; the daemon lies beside it
    #[arg(long)]
    detshare: PathBuf,
    /// The shim's library
    #[arg(long)]
    shim: PathBuf,
    /// A program that ends at once
    #[arg(long, default_value = "/bin/true")]
    program: PathBuf,
    /// A program that uses CUDA and ends soon, such as `steps` or `vector_add`
    #[arg(long)]
    cuda_program: Option<PathBuf>,
    /// Arguments of it, one by one
    #[arg(long, allow_hyphen_values = true)]
    cuda_argument: Vec<String>,
    /// The software GPU's library, which that program then has in place of the driver
    #[arg(long)]
    softgpu: Option<PathBuf>,
    /// Also the start of a program for which the daemon has to be started first
    #[arg(long)]
    cold: bool,
    /// Starts of each kind; of those that start a daemon, a tenth
    #[arg(long, default_value_t = 200, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(10..))]
    starts: usize,
    /// Where to write the figures as JSON
    #[arg(long)]
    out: Option<PathBuf>,
    /// Fail above what is asked for
    #[arg(long)]
    check: bool,
}

/// What `run` may add, in milliseconds.
const ASKED_MS: f64 = 50.0;

/// A program that is started in three ways in turn.
struct Case<'a> {
    name: &'static str,
    program: &'a Path,
    arguments: &'a [String],
    /// The driver behind the shim.
    driver: Option<&'a Path>,
    starts: usize,
}

/// A folder for a daemon, and how commands are given to it.
struct Place<'a> {
    folder: PathBuf,
    arguments: &'a Arguments,
}

impl Place<'_> {
    fn detshare(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.arguments.detshare);
        command.args(words).env("DETSHARE_DIR", &self.folder).env("DETSHARE_SHIM", &self.arguments.shim);
        command
    }

    /// Starts a program in each way, so many times; `before` comes before each start by `detshare run`, and is not timed.
    fn measure(&self, case: &Case<'_>, before: impl Fn() -> Result<()>) -> Result<Value> {
        let with = |library: &Path| {
            let mut command = Command::new(case.program);
            command.args(case.arguments).env("LD_PRELOAD", library);
            command
        };
        let (mut plain, mut preloaded, mut run) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..case.starts {
            plain.push(milliseconds(&mut case.driver.map_or_else(|| Command::new(case.program), with))?);
            let (mut through_shim, mut through_run) = (with(&self.arguments.shim), self.detshare(&["run", "--"]));
            for command in [&mut through_shim, &mut through_run] {
                command.envs(case.driver.map(|driver| ("DETSHARE_DRIVER", driver)));
            }
            preloaded.push(milliseconds(&mut through_shim)?);
            before()?;
            run.push(milliseconds(through_run.arg(case.program).args(case.arguments))?);
        }
        let [plain, preloaded, run] = [plain, preloaded, run].map(quantiles);
        let added = run.0 - plain.0;
        println!(
            "{}: a start takes {:.2} ms, by `detshare run` {:.2} ms: {added:+.2} of {ASKED_MS} ms",
            case.name, plain.0, run.0
        );
        let figures = |(median, p95): (f64, f64)| json!({ "median_ms": median, "p95_ms": p95 });
        Ok(json!({
            "starts": case.starts,
            "plain": figures(plain),
            "with_the_shim": figures(preloaded),
            "by_detshare_run": figures(run),
            "added_ms": added,
            "asked_ms": ASKED_MS,
        }))
    }
}

fn main() -> Result<()> {
    let arguments = Arguments::parse().found()?;
    let folder = std::env::temp_dir().join(format!("detshare-run-cost-{}", std::process::id()));
    let place = Place { folder, arguments: &arguments };
    let measured = measure(&place);
    succeed(&mut place.detshare(&["down"]))?;
    std::fs::remove_dir_all(&place.folder).with_context(|| format!("cannot remove {}", place.folder.display()))?;
    let cases = measured?;
    let mut above = Vec::new();
    for (name, case) in &cases {
        let added = case["added_ms"].as_f64().unwrap_or(f64::MAX);
        if added >= ASKED_MS {
            above.push(format!("{name} {added:+.2} of {ASKED_MS} ms"));
        }
    }
    if let Some(out) = &arguments.out {
        let command: Vec<String> = std::env::args().collect();
        let report = json!({
            "command": command.join(" "),
            "machine": machine::processor(),
            "date": machine::date()?,
            "cases": cases,
        });
        std::fs::write(out, serde_json::to_string_pretty(&report)? + "\n")?;
    }
    if arguments.check && !above.is_empty() {
        bail!("above what is asked for: {}", above.join(", "));
    }
    Ok(())
}

fn measure(place: &Place<'_>) -> Result<Map<String, Value>> {
    /// Such a start takes far longer.
    const COLD_STARTS: usize = 10;
    let Arguments { program, cuda_program, cuda_argument, softgpu, cold, starts, .. } = place.arguments;
    let mut cases = Map::new();
    let plain = Case { name: "no_cuda", program, arguments: &[], driver: None, starts: *starts };
    succeed(&mut place.detshare(&["up"]))?;
    cases.insert(plain.name.to_string(), place.measure(&plain, || Ok(()))?);
    if let Some(program) = cuda_program {
        let cuda = Case {
            name: if softgpu.is_some() { "cuda_on_the_software_gpu" } else { "cuda" },
            program,
            arguments: cuda_argument,
            driver: softgpu.as_deref(),
            ..plain
        };
        cases.insert(cuda.name.to_string(), place.measure(&cuda, || Ok(()))?);
    }
    if *cold {
        let cold = Case { name: "starts_the_daemon", starts: starts / COLD_STARTS, ..plain };
        cases.insert(cold.name.to_string(), place.measure(&cold, || succeed(&mut place.detshare(&["down"])))?);
    }
    Ok(cases)
}

impl Arguments {
    /// With absolute paths of what is loaded into programs.
    fn found(self) -> Result<Self> {
        let absolute =
            |path: PathBuf| std::path::absolute(&path).with_context(|| format!("where is {}?", path.display()));
        Ok(Self { shim: absolute(self.shim)?, softgpu: self.softgpu.map(absolute).transpose()?, ..self })
    }
}

fn succeed(command: &mut Command) -> Result<()> {
    // It says by itself what went wrong; that the program did not use CUDA need not be said each time.
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null()).status()?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}

fn milliseconds(command: &mut Command) -> Result<f64> {
    let started = Instant::now();
    succeed(command)?;
    Ok(started.elapsed().as_secs_f64() * 1000.0)
}

/// The median and the 95th percentile.
fn quantiles(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[values.len() * 95 / 100])
}
