//! How long a program takes to start on the software GPU: one that loads a module, launches a kernel and reads its result,
//! and the same program without any of it, in turn.

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
use serde_json::json;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

#[derive(Parser)]
#[command(about = "What a program pays to start on the software GPU")]
struct Arguments {
    /// The software GPU's library
    #[arg(long)]
    driver: PathBuf,
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

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    match arguments.program {
        Some(Kind::Kernel) => return kernel(&arguments),
        Some(Kind::Nothing) => return Ok(()),
        None => {}
    }
    let (mut plain, mut with_kernel) = (Vec::new(), Vec::new());
    for _ in 0..arguments.starts {
        plain.push(milliseconds(&arguments, "nothing")?);
        with_kernel.push(milliseconds(&arguments, "kernel")?);
    }
    let (plain, with_kernel) = (Times::new(plain), Times::new(with_kernel));
    let added = with_kernel.median() - plain.median();
    let slow = with_kernel.p90() - plain.median();
    let summary = format!(
        "a program's start, up to its first kernel's result and its end: {added:.1} ms more than without, {slow:.1} ms in \
         the slowest tenth, of {ASKED_MS} ms"
    );
    println!("{summary}");
    if let Some(out) = &arguments.out {
        let figures = json!({
            "summary": summary, "added_ms": added, "asked_ms": ASKED_MS,
            "without_ms": plain.json(), "with_kernel_ms": with_kernel.json(),
        });
        std::fs::write(out, figures.to_string())?;
    }
    ensure!(!arguments.check || added < ASKED_MS, "above what is asked for: {added:.1} of {ASKED_MS} ms");
    Ok(())
}

/// How long such a program takes from its start to its end.
fn milliseconds(arguments: &Arguments, kind: &str) -> Result<f64> {
    let mut command = Command::new(std::env::current_exe()?);
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
