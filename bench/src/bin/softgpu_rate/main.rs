//! How many thread instructions a second the software GPU executes: an fp32 FMA loop and a matrix multiply through shared
//! memory on one core, two, four and so on up to all, and functions on one.
//!
//! Each figure is taken by a process of its own, which is held to so many cores before the driver starts its threads.
//! The kernels' instructions are counted from their text, and their results are compared with the same in Rust.

mod device;
mod loops;
mod multiply;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use core::ffi::c_void;
use detshare_bench::cu;
use detshare_cuda::types::{CUdeviceptr_v2, CUstream};
use device::Device;
use loops::Loop;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

#[derive(Parser)]
#[command(about = "Thread instructions a second of the software GPU, on one core and on more")]
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
    /// Fail where the loop of FMAs or the matrix multiply is slower on one core than is asked for, or gains less by more cores
    #[arg(long, conflicts_with = "cores")]
    check: bool,
    /// Only the loop of this instruction, or `multiply`, on this many cores, and only the rate printed
    #[arg(long, requires = "instruction")]
    cores: Option<usize>,
    /// As above
    #[arg(long, requires = "cores")]
    instruction: Option<String>,
}

const THREADS: u32 = 256;
const BLOCKS: u32 = 256;
/// Thread instructions a second that are asked for on one core.
const LEAST_RATE: f64 = 300e6;
/// What is asked for on more cores, as a part of so many times one.
const LEAST_SCALING: f64 = 0.8;

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let loops = loops::all()?;
    if let (Some(cores), Some(name)) = (arguments.cores, &arguments.instruction) {
        hold_to_cores(cores)?;
        let device = Device::open(&arguments.driver)?;
        let rate = if name == multiply::NAME {
            multiply::rate(&device, arguments.launches)?
        } else {
            let timed = loops.iter().find(|timed| timed.name == name).context("no loop of that instruction")?;
            rate(&device, arguments.launches, timed)?
        };
        println!("{rate}");
        return Ok(());
    }
    let (fma, functions) = loops.split_first().context("the loop of FMAs is the first")?;
    let figures = json!({
        "fma_loop": on_more_and_more_cores(&arguments, fma.name, "a loop of fp32 FMAs")?,
        "multiply": on_more_and_more_cores(&arguments, multiply::NAME, "a matrix multiply through shared memory")?,
        "functions": functions.iter().map(|function| function_figures(&arguments, function)).collect::<Result<Value>>()?,
    });
    if let Some(out) = &arguments.out {
        std::fs::write(out, figures.to_string())?;
    }
    let below = [below(&figures["fma_loop"])?, below(&figures["multiply"])?].concat();
    ensure!(!arguments.check || below.is_empty(), "below what is asked for: {}", below.join("; "));
    Ok(())
}

/// Which of a kernel's figures are below what is asked for.
fn below(figures: &Value) -> Result<Vec<String>> {
    let mut below = Vec::new();
    let mut judge = |figures: &Value, what: &str, least: f64| {
        if figures[what].as_f64().context("a number")? < least {
            below.push(figures["summary"].as_str().unwrap_or_default().to_string());
        }
        anyhow::Ok(())
    };
    judge(figures, "thread_instructions_per_second", LEAST_RATE)?;
    for step in figures["more_cores"].as_array().context("steps")? {
        judge(step, "scaling", LEAST_SCALING)?;
    }
    Ok(below)
}

/// On one core, two, four and so on, and on all.
fn on_more_and_more_cores(arguments: &Arguments, name: &str, what: &str) -> Result<Value> {
    let all = cores()?.len();
    let one = rate_on(arguments, name, 1)?;
    let mut figures = json!({
        "summary": format!("{what}: {:.0} million thread instructions a second on one core", one / 1e6),
        "thread_instructions_per_second": one,
    });
    println!("{}", figures["summary"].as_str().unwrap_or_default());
    let counts = core::iter::successors(Some(2), |count| Some(2 * count)).take_while(|count| *count < all);
    let counts = counts.chain(Some(all).filter(|all| *all > 1));
    let mut steps = Vec::new();
    for count in counts {
        let together = rate_on(arguments, name, count)?;
        #[allow(clippy::cast_precision_loss, reason = "few cores")]
        let scaling = together / (one * count as f64);
        let summary =
            format!("{:.0} million on {count} cores: {:.0} % of {count} times one", together / 1e6, scaling * 100.0);
        println!("{summary}");
        steps.push(json!({
            "summary": summary, "cores": count, "thread_instructions_per_second": together, "scaling": scaling,
        }));
    }
    if let Some(last) = steps.last() {
        figures["all_cores"] = last.clone();
    }
    figures["more_cores"] = steps.into();
    Ok(figures)
}

/// On one core.
fn function_figures(arguments: &Arguments, function: &Loop) -> Result<Value> {
    let rate = rate_on(arguments, function.name, 1)?;
    let summary = format!("{}: {:.0} million a second on one core", function.name, rate / 1e6);
    println!("{summary}");
    Ok(json!({ "instruction": function.name, "summary": summary, "thread_instructions_per_second": rate }))
}

/// The rate in a process that is held to so many cores.
fn rate_on(arguments: &Arguments, name: &str, cores: usize) -> Result<f64> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--launches", &arguments.launches.to_string(), "--cores", &cores.to_string()]);
    command.args(["--instruction", name, "--driver"]);
    let output = command.arg(&arguments.driver).stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "the measuring process failed");
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

/// Thread instructions a second of a loop in this process: the median of so many launches.
fn rate(device: &Device, launches: usize, timed: &Loop) -> Result<f64> {
    let kernel = device.kernel(&timed.ptx, timed.kernel)?;
    let driver = &device.driver;
    let count = (THREADS * BLOCKS) as usize;
    let mut data = CUdeviceptr_v2(0);
    cu!(driver, cuMemAlloc_v2(&raw mut data, count * 4))?;

    // From one to three, so that a warp's lanes have nothing in common.
    let operands: Vec<f32> = (0..u16::try_from(THREADS)?).map(|thread| 1.0 + f32::from(thread) / 128.0).collect();
    let operands = operands.repeat(BLOCKS as usize);
    let mut rates = Vec::new();
    for _ in 0..launches {
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
