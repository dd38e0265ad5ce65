//! Launches a kernel of fused multiply-adds again and again and prints a checksum of what it computed and how
//! long a launch took: `fma_loop [LAUNCHES [front|rest SMS]]`. With the last two it runs in a green context on the first so many SMs,
//! or on all others.

use anyhow::{Result, bail, ensure};
use core::ffi::c_void;
use detshare_cuda::types::{
    CUcontext, CUdevResource, CUdevResourceDesc, CUdevResourceType, CUdevice_v1, CUdeviceptr_v2, CUfunction,
    CUgreenCtx, CUmodule, CUstream,
};
use detshare_workloads::{FMA_LOOP, Library, cu, device_name};
use std::time::Instant;

const THREADS: u32 = 128;
const BLOCKS: u32 = 264;
const ROUNDS: u32 = 64;

/// `CU_STREAM_NON_BLOCKING` and `CU_GREEN_CTX_DEFAULT_STREAM`.
const ONE: u32 = 1;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let launches = arguments.first().map_or(Ok(20), |word| word.parse::<u32>())?;
    let library = Library::open()?;
    cu!(library, cuInit(0))?;
    let device = CUdevice_v1(0);
    let mut context = CUcontext(core::ptr::null_mut());
    cu!(library, cuDevicePrimaryCtxRetain(&raw mut context, device))?;
    cu!(library, cuCtxSetCurrent(context))?;
    let stream = if let [_, side, sms] = &arguments[..] {
        green_stream(&library, side, sms.parse()?)?
    } else {
        let mut stream = CUstream(core::ptr::null_mut());
        cu!(library, cuStreamCreate(&raw mut stream, ONE))?;
        stream
    };
    let mut module = CUmodule(core::ptr::null_mut());
    cu!(library, cuModuleLoadData(&raw mut module, FMA_LOOP.as_ptr().cast()))?;
    let mut kernel = CUfunction(core::ptr::null_mut());
    cu!(library, cuModuleGetFunction(&raw mut kernel, module, c"fma_loop".as_ptr()))?;

    #[allow(clippy::cast_precision_loss, reason = "far below 2^24")]
    let mut values: Vec<f32> = (1..=THREADS * BLOCKS).map(|i| 1.0 / i as f32).collect();
    let bytes = size_of_val(&*values);
    let mut data = CUdeviceptr_v2(0);
    cu!(library, cuMemAlloc_v2(&raw mut data, bytes))?;
    cu!(library, cuMemcpyHtoD_v2(data, values.as_ptr().cast(), bytes))?;
    let mut rounds = ROUNDS;
    let mut parameters: [*mut c_void; 2] = [(&raw mut data).cast(), (&raw mut rounds).cast()];
    let started = Instant::now();
    for _ in 0..launches {
        let (arguments, no_extra) = (parameters.as_mut_ptr(), core::ptr::null_mut());
        cu!(library, cuLaunchKernel(kernel, BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, arguments, no_extra))?;
    }
    cu!(library, cuStreamSynchronize(stream))?;
    let milliseconds = started.elapsed().as_secs_f64() * 1e3 / f64::from(launches.max(1));
    cu!(library, cuMemcpyDtoH_v2(values.as_mut_ptr().cast(), data, bytes))?;
    let name = device_name(&library, device)?;
    ensure!(!name.is_empty(), "this driver has no device behind it");
    let checksum = values.iter().fold(0_u64, |sum, value| sum.rotate_left(7) ^ u64::from(value.to_bits()));
    println!("{checksum:016x} {milliseconds:.3}");
    Ok(())
}

/// A stream on the first so many SMs, or on the rest, which a GPU's driver does not split once more.
fn green_stream(library: &Library, side: &str, sms: u32) -> Result<CUstream> {
    // SAFETY: numbers and bytes, all of which may be zero.
    let zero = || unsafe { core::mem::zeroed::<CUdevResource>() };
    let (mut whole, mut front, mut rest) = (zero(), zero(), zero());
    let kind = CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
    let device = CUdevice_v1(0);
    cu!(library, cuDeviceGetDevResource(device, &raw mut whole, kind))?;
    let mut one = 1;
    cu!(library, cuDevSmResourceSplitByCount(&raw mut front, &raw mut one, &raw const whole, &raw mut rest, 0, sms))?;
    let mut part = match side {
        "front" => front,
        "rest" => rest,
        _ => bail!("{side}: front or rest"),
    };
    let mut description = CUdevResourceDesc(core::ptr::null_mut());
    cu!(library, cuDevResourceGenerateDesc(&raw mut description, &raw mut part, 1))?;
    let mut green = CUgreenCtx(core::ptr::null_mut());
    cu!(library, cuGreenCtxCreate(&raw mut green, description, device, ONE))?;
    let mut stream = CUstream(core::ptr::null_mut());
    cu!(library, cuGreenCtxStreamCreate(&raw mut stream, green, ONE, 0))?;
    Ok(stream)
}
