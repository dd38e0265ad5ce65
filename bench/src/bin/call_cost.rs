//! What a call through the shim costs on top of the driver's own, both in one process and one run.
//!
//! Batches of calls alternate between the driver's function and the shim's entry for it, so that whatever
//! drifts hits both. Reported are the medians over the batches, and the median of the ratios of neighbours.
//! `forward` and `observed` time functions that do nothing (on the stub driver, so that only the shim is
//! left); `launch` launches a kernel that counts, on a GPU, and checks the count.

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
use core::ffi::{CStr, c_void};
use detshare_bench::cu;
use detshare_bench::program::LaunchKernel;
use detshare_cuda::driver::Visibility;
use detshare_cuda::types::{CUcontext, CUdevice_v1, CUdeviceptr_v2, CUfunction, CUmodule, CUresult, CUstream};
use detshare_cuda::{Driver, entry};
use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;

#[derive(Parser)]
#[command(about = "What a call through the shim costs")]
struct Arguments {
    /// Which call
    call: Call,
    /// The shim's library
    #[arg(long)]
    shim: PathBuf,
    /// The driver that the shim forwards to
    #[arg(long)]
    driver: PathBuf,
    /// Where to write the figures as JSON
    #[arg(long)]
    out: Option<PathBuf>,
    /// Batches of each
    #[arg(long, default_value_t = 400)]
    batches: usize,
    /// Fail if the ratio is above this
    #[arg(long)]
    ratio_at_most: Option<f64>,
    /// Fail if the shim adds more nanoseconds than this
    #[arg(long)]
    added_at_most: Option<f64>,
    /// Calls in a batch
    #[arg(long, default_value_t = 256)]
    calls: u32,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Call {
    /// A function that is only forwarded
    Forward,
    /// cuLaunchKernel, which is counted, doing nothing
    Observed,
    /// cuLaunchKernel on a GPU
    Launch,
}

const KERNEL: &CStr = c"
.version 7.0
.target sm_70
.address_size 64
.visible .entry count(.param .u64 counter)
{
    .reg .b64 %counter;
    ld.param.u64 %counter, [counter];
    red.global.add.u64 [%counter], 1;
    ret;
}
";

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    // SAFETY: there is no other thread yet.
    unsafe { std::env::set_var("DETSHARE_DRIVER", &arguments.driver) };
    let bare = Driver::open(&arguments.driver, Visibility::Local)?;
    let through_shim = Driver::open(&arguments.shim, Visibility::Local)?;
    let figures = match arguments.call {
        Call::Forward => forward(&bare, &through_shim, &arguments)?,
        Call::Observed => observed(&bare, &through_shim, &arguments)?,
        Call::Launch => launch(&bare, &through_shim, &arguments)?,
    };
    println!("{}", figures.summary());
    if let Some(out) = &arguments.out {
        std::fs::write(out, figures.json().to_string())?;
    }
    if let Some(most) = arguments.ratio_at_most {
        ensure!(figures.ratio <= most, "the ratio is above {most}");
    }
    if let Some(most) = arguments.added_at_most {
        ensure!(figures.through_shim - figures.bare <= most, "the shim adds more than {most} ns");
    }
    Ok(())
}

/// Nanoseconds a call, medians.
struct Figures {
    bare: f64,
    through_shim: f64,
    ratio: f64,
}

impl Figures {
    fn summary(&self) -> String {
        format!(
            "bare {:.2} ns, through the shim {:.2} ns: {:+.2} ns, ratio {:.4}",
            self.bare,
            self.through_shim,
            self.through_shim - self.bare,
            self.ratio
        )
    }

    fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "summary": self.summary(),
            "bare_ns": self.bare,
            "through_shim_ns": self.through_shim,
            "ratio": self.ratio,
        })
    }
}

/// Times batches of both in turn; which of the two goes first alternates too. What happens between batches is
/// not timed.
fn alternate(
    arguments: &Arguments,
    mut bare: impl FnMut(),
    mut through_shim: impl FnMut(),
    between: impl Fn(),
) -> Figures {
    let mut times: [Vec<f64>; 2] = [Vec::new(), Vec::new()];
    for batch in 0..arguments.batches {
        for turn in 0..2 {
            let side = (batch + turn) % 2;
            let start = Instant::now();
            if side == 0 {
                bare()
            } else {
                through_shim()
            }
            times[side].push(start.elapsed().as_secs_f64() * 1e9 / f64::from(arguments.calls));
            between();
        }
    }
    let ratios = times[1].iter().zip(&times[0]).map(|(shim, bare)| shim / bare).collect();
    let [bare, through_shim] = times;
    Figures { bare: median(bare), through_shim: median(through_shim), ratio: median(ratios) }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn forward(bare: &Driver, through_shim: &Driver, arguments: &Arguments) -> Result<Figures> {
    let function = |driver: &Driver| driver.function(entry::cuCtxGetFlags).context("no cuCtxGetFlags");
    let (bare, through_shim) = (function(bare)?, function(through_shim)?);
    let mut flags = 0;
    let flags = &raw mut flags;
    let batch = |function: unsafe extern "C" fn(*mut u32) -> CUresult| {
        for _ in 0..arguments.calls {
            // SAFETY: a place to write to.
            black_box(unsafe { black_box(function)(flags) });
        }
    };
    Ok(alternate(arguments, || batch(bare), || batch(through_shim), || ()))
}

fn observed(bare: &Driver, through_shim: &Driver, arguments: &Arguments) -> Result<Figures> {
    let nothing = CUfunction(core::ptr::null_mut());
    let launcher = |driver| Launcher::new(driver, nothing, CUdeviceptr_v2(0));
    let (mut bare, mut through_shim) = (launcher(bare)?, launcher(through_shim)?);
    let calls = arguments.calls;
    Ok(alternate(arguments, || bare.batch(calls), || through_shim.batch(calls), || ()))
}

/// Launches one kernel again and again.
struct Launcher {
    launch: LaunchKernel,
    kernel: CUfunction,
    counter: CUdeviceptr_v2,
}

impl Launcher {
    fn new(driver: &Driver, kernel: CUfunction, counter: CUdeviceptr_v2) -> Result<Self> {
        let launch = driver.function(entry::cuLaunchKernel).context("no cuLaunchKernel")?;
        Ok(Self { launch, kernel, counter })
    }

    fn batch(&mut self, calls: u32) {
        let mut parameters: [*mut c_void; 1] = [(&raw mut self.counter).cast()];
        let (stream, extra) = (CUstream(core::ptr::null_mut()), core::ptr::null_mut());
        for _ in 0..calls {
            let launch = black_box(self.launch);
            // SAFETY: a loaded kernel with its one parameter, which outlives the call.
            let result = unsafe { launch(self.kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters.as_mut_ptr(), extra) };
            assert_eq!(result, CUresult::CUDA_SUCCESS, "a launch failed");
        }
    }
}

fn launch(bare: &Driver, through_shim: &Driver, arguments: &Arguments) -> Result<Figures> {
    cu!(bare, cuInit(0))?;
    let mut device = CUdevice_v1(0);
    cu!(bare, cuDeviceGet(&raw mut device, 0))?;
    let mut context = CUcontext(core::ptr::null_mut());
    cu!(bare, cuDevicePrimaryCtxRetain(&raw mut context, device))?;
    cu!(bare, cuCtxSetCurrent(context))?;
    let mut module = CUmodule(core::ptr::null_mut());
    cu!(bare, cuModuleLoadData(&raw mut module, KERNEL.as_ptr().cast()))?;
    let mut kernel = CUfunction(core::ptr::null_mut());
    cu!(bare, cuModuleGetFunction(&raw mut kernel, module, c"count".as_ptr()))?;
    let mut counter = CUdeviceptr_v2(0);
    cu!(bare, cuMemAlloc_v2(&raw mut counter, 8))?;
    cu!(bare, cuMemsetD8_v2(counter, 0, 8))?;

    let mut bare_launcher = Launcher::new(bare, kernel, counter)?;
    let mut shim_launcher = Launcher::new(through_shim, kernel, counter)?;
    let synchronise = bare.function(entry::cuCtxSynchronize).context("cuCtxSynchronize")?;
    let wait = || {
        // SAFETY: takes nothing; waits for the current context.
        let result = unsafe { synchronise() };
        assert_eq!(result, CUresult::CUDA_SUCCESS, "the GPU reports an error");
    };
    let calls = arguments.calls;
    bare_launcher.batch(calls);
    shim_launcher.batch(calls);
    wait();
    let figures = alternate(arguments, || bare_launcher.batch(calls), || shim_launcher.batch(calls), wait);
    let mut counted = 0_u64;
    cu!(bare, cuMemcpyDtoH_v2((&raw mut counted).cast(), counter, 8))?;
    let launched = 2 * u64::from(calls) * (arguments.batches as u64 + 1);
    ensure!(counted == launched, "{launched} launches, but the GPU counted {counted}");
    Ok(figures)
}
