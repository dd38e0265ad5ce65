//! How many thread instructions a second the software GPU executes on one core: an fp32 FMA loop.
//!
//! The process is held to one core before the driver starts its threads. The kernel's instructions are counted
//! from its text: four a round in the loop. A checksum is compared with the same loop in Rust.

use anyhow::{Context, Result, ensure};
use clap::Parser;
use core::ffi::c_void;
use detshare_bench::cu;
use detshare_cuda::Driver;
use detshare_cuda::driver::Visibility;
use detshare_cuda::types::{CUcontext, CUdevice_v1, CUdeviceptr_v2, CUfunction, CUmodule, CUstream};
use detshare_workloads::FMA_LOOP;
use std::path::PathBuf;
use std::time::Instant;

#[derive(Parser)]
#[command(about = "Thread instructions a second on one core of the software GPU")]
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
}

const THREADS: u32 = 256;
const BLOCKS: u32 = 64;
const ROUNDS: u32 = 2000;
const INSTRUCTIONS_PER_ROUND: f64 = 4.0;

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    hold_to_one_core()?;
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
    let rate = rates[rates.len() / 2];
    let summary = format!("{:.0} million thread instructions a second on one core", rate / 1e6);
    println!("{summary}");
    if let Some(out) = arguments.out {
        let figures = serde_json::json!({ "summary": summary, "thread_instructions_per_second": rate });
        std::fs::write(out, figures.to_string())?;
    }
    Ok(())
}

fn hold_to_one_core() -> Result<()> {
    // SAFETY: a set of bits, all of which may be zero.
    let mut cores: libc::cpu_set_t = unsafe { core::mem::zeroed() };
    // SAFETY: the set of this process's cores, as large as the call is told.
    let got = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut cores) };
    ensure!(got == 0, "cannot ask for this process's cores");
    // SAFETY: numbers below the set's size.
    let first = (0..libc::CPU_SETSIZE as usize).find(|core| unsafe { libc::CPU_ISSET(*core, &cores) });
    // SAFETY: as above.
    let mut one: libc::cpu_set_t = unsafe { core::mem::zeroed() };
    // SAFETY: a number below the set's size.
    unsafe { libc::CPU_SET(first.context("a process has a core")?, &mut one) };
    // SAFETY: a set with one core that the process may use.
    let set = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const one) };
    ensure!(set == 0, "cannot hold the process to one core");
    Ok(())
}
