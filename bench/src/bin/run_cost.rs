//! How much longer a program takes to start by `detshare run`: a program that ends at once, plainly, with the shim
//! preloaded, and through `detshare run` with a daemon that runs, in turn.

use anyhow::{Context, Result, ensure};
use clap::Parser;
use detshare_bench::machine;
use serde_json::{Value, json};
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
    /// Starts of each kind
    #[arg(long, default_value_t = 200)]
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

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let folder = std::env::temp_dir().join(format!("detshare-run-cost-{}", std::process::id()));
    let detshare = |words: &[&str]| {
        let mut command = Command::new(&arguments.detshare);
        command.args(words).env("DETSHARE_DIR", &folder).env("DETSHARE_SHIM", &arguments.shim);
        command
    };
    succeed(&mut detshare(&["up"]))?;
    let measured = measure(&arguments, &detshare);
    succeed(&mut detshare(&["down"]))?;
    std::fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    let report = measured?;
    println!("{}", report["summary"].as_str().unwrap_or_default());
    if let Some(out) = &arguments.out {
        std::fs::write(out, serde_json::to_string_pretty(&report)? + "\n")?;
    }
    let added = report["added_ms"].as_f64().unwrap_or(f64::MAX);
    ensure!(!arguments.check || added < ASKED_MS, "above what is asked for: {added:.2} of {ASKED_MS} ms");
    Ok(())
}

fn measure(arguments: &Arguments, detshare: &dyn Fn(&[&str]) -> Command) -> Result<Value> {
    let (mut plain, mut preloaded, mut run) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..arguments.starts {
        plain.push(milliseconds(&mut Command::new(&arguments.program))?);
        preloaded.push(milliseconds(Command::new(&arguments.program).env("LD_PRELOAD", absolute(&arguments.shim)?))?);
        run.push(milliseconds(detshare(&["run", "--"]).arg(&arguments.program))?);
    }
    let [plain, preloaded, run] = [plain, preloaded, run].map(quantiles);
    let (alone, through) = (plain.0, run.0);
    let added = through - alone;
    let figures = |(median, p95): (f64, f64)| json!({ "median_ms": median, "p95_ms": p95 });
    let command: Vec<String> = std::env::args().collect();
    Ok(json!({
        "command": command.join(" "),
        "machine": machine::processor(),
        "date": machine::date()?,
        "starts": arguments.starts,
        "plain": figures(plain),
        "with_the_shim": figures(preloaded),
        "by_detshare_run": figures(run),
        "added_ms": added,
        "asked_ms": ASKED_MS,
        "summary": format!("a start takes {alone:.2} ms, by `detshare run` {through:.2} ms: +{added:.2} of {ASKED_MS} ms"),
    }))
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("where is {}?", path.display()))
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
