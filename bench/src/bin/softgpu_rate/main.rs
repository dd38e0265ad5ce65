//! How many thread instructions a second the software GPU executes: an fp32 FMA loop on one core and on all, and functions
//! on one.
//!
//! Each figure is taken by a process of its own, which is held to so many cores before the driver starts its threads.
//! The kernels' instructions are counted from their text, and their results are compared with the same in Rust.

mod loops;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use core::ffi::c_void;
use detshare_bench::cu;
use detshare_cuda::Driver;
use detshare_cuda::driver::Visibility;
use detshare_cuda::types::{CUcontext, CUdevice_v1, CUdeviceptr_v2, CUfunction, CUmodule, CUstream};
use loops::Loop;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

#[derive(Parser)]
#[command(about = "Thread instructions a second of the software GPU, on one core and on all")]
struct Arguments {
    /// The software GPU's library
    #[arg(long)]
    driver: PathBuf,
    /// Where to write the figures as JSON
    #[arg(long)]
    out: Option<PathBuf>,
    /// Launches; the median counts
    #[arg(long, default_value_t = 9)]
    launches: usize,
    /// Only the loop of this instruction, on this many cores, and only the rate printed
    #[arg(long, requires = "instruction")]
    cores: Option<usize>,
    /// As above
    #[arg(long, requires = "cores")]
    instruction: Option<String>,
}

const THREADS: u32 = 256;
const BLOCKS: u32 = 256;

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let loops = loops::all()?;
    if let (Some(cores), Some(name)) = (arguments.cores, &arguments.instruction) {
        let timed = loops.iter().find(|timed| timed.name == name).context("no loop of that instruction")?;
        hold_to_cores(cores)?;
        println!("{}", rate(&arguments, timed)?);
        return Ok(());
    }
    let (fma, functions) = loops.split_first().context("the loop of FMAs is the first")?;
    let figures = json!({
        "fma_loop": fma_figures(&arguments, fma)?,
        "functions": functions.iter().map(|function| function_figures(&arguments, function)).collect::<Result<Value>>()?,
    });
    if let Some(out) = arguments.out {
        std::fs::write(out, figures.to_string())?;
    }
    Ok(())
}

/// On one core and on all.
fn fma_figures(arguments: &Arguments, fma: &Loop) -> Result<Value> {
    let all = cores()?.len();
    let one = rate_on(arguments, fma, 1)?;
    let mut figures = json!({
        "summary": format!("{:.0} million thread instructions a second on one core", one / 1e6),
        "thread_instructions_per_second": one,
    });
    println!("{}", figures["summary"].as_str().unwrap_or_default());
    if all > 1 {
        let together = rate_on(arguments, fma, all)?;
        #[allow(clippy::cast_precision_loss, reason = "few cores")]
        let scaling = together / (one * all as f64);
        let summary =
            format!("{:.0} million on {all} cores: {:.0} % of {all} times one", together / 1e6, scaling * 100.0);
        println!("{summary}");
        figures["all_cores"] = json!({
            "summary": summary, "cores": all, "thread_instructions_per_second": together, "scaling": scaling,
        });
    }
    Ok(figures)
}

/// On one core.
fn function_figures(arguments: &Arguments, function: &Loop) -> Result<Value> {
    let rate = rate_on(arguments, function, 1)?;
    let summary = format!("{}: {:.0} million a second on one core", function.name, rate / 1e6);
    println!("{summary}");
    Ok(json!({ "instruction": function.name, "summary": summary, "thread_instructions_per_second": rate }))
}

/// The rate in a process that is held to so many cores.
fn rate_on(arguments: &Arguments, timed: &Loop, cores: usize) -> Result<f64> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--launches", &arguments.launches.to_string(), "--cores", &cores.to_string()]);
    command.args(["--instruction", timed.name, "--driver"]);
    let output = command.arg(&arguments.driver).stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "the measuring process failed");
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

/// Thread instructions a second in this process.
fn rate(arguments: &Arguments, timed: &Loop) -> Result<f64> {
    let driver = Driver::open(&arguments.driver, Visibility::Local)?;
    cu!(driver, cuInit(0))?;
    let mut context = CUcontext(core::ptr::null_mut());
    cu!(driver, cuDevicePrimaryCtxRetain(&raw mut context, CUdevice_v1(0)))?;
    cu!(driver, cuCtxSetCurrent(context))?;
    let mut module = CUmodule(core::ptr::null_mut());
    cu!(driver, cuModuleLoadData(&raw mut module, timed.ptx.as_ptr().cast()))?;
    let mut kernel = CUfunction(core::ptr::null_mut());
    cu!(driver, cuModuleGetFunction(&raw mut kernel, module, timed.kernel.as_ptr()))?;
    let count = (THREADS * BLOCKS) as usize;
    let mut data = CUdeviceptr_v2(0);
    cu!(driver, cuMemAlloc_v2(&raw mut data, count * 4))?;

    // From one to three, so that a warp's lanes have nothing in common.
    let operands: Vec<f32> = (0..u16::try_from(THREADS)?).map(|thread| 1.0 + f32::from(thread) / 128.0).collect();
    let operands = operands.repeat(BLOCKS as usize);
    let mut rates = Vec::new();
    for _ in 0..arguments.launches {
        let mut values = operands.clone();
        cu!(driver, cuMemcpyHtoD_v2(data, values.as_ptr().cast(), count * 4))?;
        let mut rounds = timed.rounds;
        let mut parameters: [*mut c_void; 2] = [(&raw mut data).cast(), (&raw mut rounds).cast()];
        let (stream, none) = (CUstream(core::ptr::null_mut()), core::ptr::null_mut());
        let start = Instant::now();
        cu!(driver, cuLaunchKernel(kernel, BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, parameters.as_mut_ptr(), none))?;
        cu!(driver, cuCtxSynchronize())?;
        let seconds = start.elapsed().as_secs_f64();
        cu!(driver, cuMemcpyDtoH_v2(values.as_mut_ptr().cast(), data, count * 4))?;
        // Blocks do the same: one is computed here as well, and the others are compared with it.
        let (first, others) = values.split_at(THREADS as usize);
        let is_expected = |(x, y): (&f32, &f32)| (f64::from(*y) - (timed.expected)(*x)).abs() <= timed.within;
        let is_right = operands.iter().zip(first).all(is_expected) && others.chunks(first.len()).all(|y| y == first);
        ensure!(is_right, "the kernel computed something else");
        rates.push(f64::from(THREADS * BLOCKS) * f64::from(timed.rounds) * f64::from(timed.counted) / seconds);
    }
    rates.sort_by(f64::total_cmp);
    Ok(rates[rates.len() / 2])
}

/// The cores that this process may use.
fn cores() -> Result<Vec<usize>> {
    // SAFETY: a set of bits, all of which may be zero.
    let mut cores: libc::cpu_set_t = unsafe { core::mem::zeroed() };
    // SAFETY: the set of this process's cores, as large as the call is told.
    let got = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut cores) };
    ensure!(got == 0, "cannot ask for this process's cores");
    // SAFETY: numbers below the set's size.
    Ok((0..libc::CPU_SETSIZE as usize).filter(|core| unsafe { libc::CPU_ISSET(*core, &cores) }).collect())
}

fn hold_to_cores(count: usize) -> Result<()> {
    // SAFETY: a set of bits, all of which may be zero.
    let mut some: libc::cpu_set_t = unsafe { core::mem::zeroed() };
    for core in cores()?.into_iter().take(count) {
        // SAFETY: a number below the set's size.
        unsafe { libc::CPU_SET(core, &mut some) };
    }
    // SAFETY: a set of cores that the process may use.
    let set = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const some) };
    ensure!(set == 0, "cannot hold the process to {count} cores");
    Ok(())
}
