//! How many thread instructions a second the software GPU executes, on one core and on all: an fp32 FMA loop.
//!
//! Each figure is taken by a process of its own, which is held to so many cores before the driver starts its threads.
//! The kernel's instructions are counted from its text: four a round in the loop. A checksum is compared with the same
//! loop in Rust.

use anyhow::{Result, ensure};
use clap::Parser;
use core::ffi::c_void;
use detshare_bench::cu;
use detshare_cuda::Driver;
use detshare_cuda::driver::Visibility;
use detshare_cuda::types::{CUcontext, CUdevice_v1, CUdeviceptr_v2, CUfunction, CUmodule, CUstream};
use detshare_workloads::FMA_LOOP;
use serde_json::json;
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
    /// Only this many cores, and only the rate printed; without it one core and all are compared
    #[arg(long)]
    cores: Option<usize>,
}

const THREADS: u32 = 256;
const BLOCKS: u32 = 256;
const ROUNDS: u32 = 2000;
const INSTRUCTIONS_PER_ROUND: f64 = 4.0;

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if let Some(cores) = arguments.cores {
        hold_to_cores(cores)?;
        println!("{}", rate(&arguments)?);
        return Ok(());
    }
    let all = cores()?.len();
    let one = rate_on(&arguments, 1)?;
    let mut figures = json!({
        "summary": format!("{:.0} million thread instructions a second on one core", one / 1e6),
        "thread_instructions_per_second": one,
    });
    println!("{}", figures["summary"].as_str().unwrap_or_default());
    if all > 1 {
        let together = rate_on(&arguments, all)?;
        #[allow(clippy::cast_precision_loss, reason = "few cores")]
        let scaling = together / (one * all as f64);
        let summary =
            format!("{:.0} million on {all} cores: {:.0} % of {all} times one", together / 1e6, scaling * 100.0);
        println!("{summary}");
        figures["all_cores"] = json!({
            "summary": summary, "cores": all, "thread_instructions_per_second": together, "scaling": scaling,
        });
    }
    if let Some(out) = arguments.out {
        std::fs::write(out, figures.to_string())?;
    }
    Ok(())
}

/// The rate in a process that is held to so many cores.
fn rate_on(arguments: &Arguments, cores: usize) -> Result<f64> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--launches", &arguments.launches.to_string(), "--cores", &cores.to_string(), "--driver"]);
    let output = command.arg(&arguments.driver).stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "the measuring process failed");
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

/// Thread instructions a second in this process.
fn rate(arguments: &Arguments) -> Result<f64> {
    let driver = Driver::open(&arguments.driver, Visibility::Local)?;
    cu!(driver, cuInit(0))?;
    let mut context = CUcontext(core::ptr::null_mut());
    cu!(driver, cuDevicePrimaryCtxRetain(&raw mut context, CUdevice_v1(0)))?;
    cu!(driver, cuCtxSetCurrent(context))?;
    let mut module = CUmodule(core::ptr::null_mut());
    cu!(driver, cuModuleLoadData(&raw mut module, FMA_LOOP.as_ptr().cast()))?;
    let mut kernel = CUfunction(core::ptr::null_mut());
    cu!(driver, cuModuleGetFunction(&raw mut kernel, module, c"fma_loop".as_ptr()))?;
    let count = (THREADS * BLOCKS) as usize;
    let mut data = CUdeviceptr_v2(0);
    cu!(driver, cuMemAlloc_v2(&raw mut data, count * 4))?;

    let mut rates = Vec::new();
    for _ in 0..arguments.launches {
        let mut values = vec![1.0_f32; count];
        cu!(driver, cuMemcpyHtoD_v2(data, values.as_ptr().cast(), count * 4))?;
        let mut rounds = ROUNDS;
        let mut parameters: [*mut c_void; 2] = [(&raw mut data).cast(), (&raw mut rounds).cast()];
        let (stream, none) = (CUstream(core::ptr::null_mut()), core::ptr::null_mut());
        let start = Instant::now();
        cu!(driver, cuLaunchKernel(kernel, BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, parameters.as_mut_ptr(), none))?;
        cu!(driver, cuCtxSynchronize())?;
        let seconds = start.elapsed().as_secs_f64();
        cu!(driver, cuMemcpyDtoH_v2(values.as_mut_ptr().cast(), data, count * 4))?;
        let expected = (0..ROUNDS).fold(1.0_f32, |x, _| x.mul_add(f32::from_bits(0x3F7F_BE77), 0.5));
        ensure!(values.iter().all(|value| value.to_bits() == expected.to_bits()), "the kernel computed something else");
        rates.push(f64::from(THREADS * BLOCKS) * f64::from(ROUNDS) * INSTRUCTIONS_PER_ROUND / seconds);
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
