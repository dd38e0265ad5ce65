//! How long a program takes to start on the software GPU: one that loads a module, launches a kernel and reads its result,
//! and the same program without any of it, in turn. With `--detshare` also as a person starts it, by `detshare run`.

use anyhow::{Result, ensure};
use clap::Parser;
use core::ffi::c_void;
use core::ptr::null_mut;
use detshare_bench::cu;
use detshare_bench::figures::Times;
use detshare_bench::program::Program;
use detshare_cuda::Driver;
use detshare_cuda::driver::Visibility;
use detshare_cuda::types::CUstream;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

#[derive(Parser)]
#[command(about = "What a program pays to start on the software GPU")]
struct Arguments {
    /// The software GPU's library
    #[arg(long)]
    driver: PathBuf,
    /// The command line's program, with the library beside it: starts by `detshare run --device soft` as well
    #[arg(long)]
    detshare: Option<PathBuf>,
    /// Where to write the figures as JSON
    #[arg(long)]
    out: Option<PathBuf>,
    /// Starts of each kind
    #[arg(long, default_value_t = 100)]
    starts: u32,
    /// Fail above what is asked for
    #[arg(long)]
    check: bool,
    /// Be the program that is started: with a kernel, or with nothing
    #[arg(long)]
    program: Option<Kind>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Kind {
    Kernel,
    Nothing,
}

/// What a start may take, in milliseconds.
const ASKED_MS: f64 = 30.0;
/// A folder that is not there.
const NO_DAEMON: &str = "/nonexistent/detshare";

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    match arguments.program {
        Some(Kind::Kernel) => return kernel(&arguments),
        Some(Kind::Nothing) => return Ok(()),
        None => {}
    }
    let (mut plain, mut with_kernel, mut by_detshare) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..arguments.starts {
        plain.push(milliseconds(&arguments, "nothing", None)?);
        with_kernel.push(milliseconds(&arguments, "kernel", None)?);
        if let Some(detshare) = &arguments.detshare {
            by_detshare.push(milliseconds(&arguments, "kernel", Some(detshare))?);
        }
    }
    let plain = Times::new(plain);
    let mut figures = json!({ "asked_ms": ASKED_MS, "without_ms": plain.json() });
    let library = judged(&plain, with_kernel, "");
    let added = library["added_ms"].as_f64().unwrap_or(f64::MAX);
    figures["summary"] = library["summary"].clone();
    figures["added_ms"] = added.into();
    figures["with_kernel_ms"] = library["with_kernel_ms"].clone();
    if !by_detshare.is_empty() {
        figures["by_detshare_run"] = judged(&plain, by_detshare, ", by `detshare run --device soft`");
    }
    if let Some(out) = &arguments.out {
        std::fs::write(out, figures.to_string())?;
    }
    let worst = figures["by_detshare_run"]["added_ms"].as_f64().unwrap_or(0.0).max(added);
    ensure!(!arguments.check || worst < ASKED_MS, "above what is asked for: {worst:.1} of {ASKED_MS} ms");
    Ok(())
}

/// What such starts take more than those of a program that does nothing.
fn judged(plain: &Times, with_kernel: Vec<f64>, how: &str) -> Value {
    let with_kernel = Times::new(with_kernel);
    let added = with_kernel.median() - plain.median();
    let slow = with_kernel.p90() - plain.median();
    let summary = format!(
        "a program's start{how}, up to its first kernel's result and its end: {added:.1} ms more than without, {slow:.1} ms \
         in the slowest tenth, of {ASKED_MS} ms"
    );
    println!("{summary}");
    json!({ "summary": summary, "added_ms": added, "with_kernel_ms": with_kernel.json() })
}

/// How long such a program takes from its start to its end.
fn milliseconds(arguments: &Arguments, kind: &str, detshare: Option<&Path>) -> Result<f64> {
    let this = std::env::current_exe()?;
    let mut command = match detshare {
        Some(detshare) => {
            let mut command = Command::new(detshare);
            // Where no daemon is: with one the program would be a tenant.
            command.args(["run", "--device", "soft", "--"]).arg(this).env("DETSHARE_DIR", NO_DAEMON);
            command
        }
        None => Command::new(this),
    };
    command.arg("--driver").arg(&arguments.driver).args(["--program", kind]);
    let start = Instant::now();
    let status = command.status()?;
    let taken = start.elapsed();
    ensure!(status.success(), "the program failed");
    Ok(taken.as_secs_f64() * 1e3)
}

fn kernel(arguments: &Arguments) -> Result<()> {
    let driver = Driver::open(&arguments.driver, Visibility::Local)?;
    let program = Program::open(&driver)?;
    let (mut counter, mut amount) = (program.counter, 7_u64);
    let mut parameters: [*mut c_void; 2] = [(&raw mut counter).cast(), (&raw mut amount).cast()];
    let stream = CUstream(null_mut());
    cu!(driver, cuLaunchKernel(program.add, 1, 1, 1, 1, 1, 1, 0, stream, parameters.as_mut_ptr(), null_mut()))?;
    ensure!(program.counted(&driver)? == amount, "the kernel computed something else");
    Ok(())
}
