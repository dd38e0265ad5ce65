//! Launches one kernel with a number of rounds for each argument, each after the one before is over, and prints a
//! checksum: `slow_once 10 5000000 10 10`. To something that watches how long kernels take, the same kernel in the
//! same shape takes very different times.

use anyhow::Result;
use core::ffi::c_void;
use detshare_cuda::types::{CUcontext, CUdevice_v1, CUdeviceptr_v2, CUfunction, CUmodule, CUstream};
use detshare_workloads::{FMA_LOOP, Library, cu};

const THREADS: u32 = 32;

fn main() -> Result<()> {
    let rounds: Vec<u32> = std::env::args().skip(1).map(|word| word.parse()).collect::<Result<_, _>>()?;
    let library = Library::open()?;
    cu!(library, cuInit(0))?;
    let mut context = CUcontext(core::ptr::null_mut());
    cu!(library, cuDevicePrimaryCtxRetain(&raw mut context, CUdevice_v1(0)))?;
    cu!(library, cuCtxSetCurrent(context))?;
    let mut stream = CUstream(core::ptr::null_mut());
    cu!(library, cuStreamCreate(&raw mut stream, 0))?;
    let mut module = CUmodule(core::ptr::null_mut());
    cu!(library, cuModuleLoadData(&raw mut module, FMA_LOOP.as_ptr().cast()))?;
    let mut kernel = CUfunction(core::ptr::null_mut());
    cu!(library, cuModuleGetFunction(&raw mut kernel, module, c"fma_loop".as_ptr()))?;
    let (mut values, mut data) = ([1.0_f32; THREADS as usize], CUdeviceptr_v2(0));
    let bytes = size_of_val(&values);
    cu!(library, cuMemAlloc_v2(&raw mut data, bytes))?;
    cu!(library, cuMemcpyHtoD_v2(data, values.as_ptr().cast(), bytes))?;
    for mut rounds in rounds {
        let mut parameters: [*mut c_void; 2] = [(&raw mut data).cast(), (&raw mut rounds).cast()];
        let (arguments, no_extra) = (parameters.as_mut_ptr(), core::ptr::null_mut());
        cu!(library, cuLaunchKernel(kernel, 1, 1, 1, THREADS, 1, 1, 0, stream, arguments, no_extra))?;
        cu!(library, cuStreamSynchronize(stream))?;
    }
    cu!(library, cuMemcpyDtoH_v2(values.as_mut_ptr().cast(), data, bytes))?;
    let checksum = values.iter().fold(0_u64, |sum, value| sum.rotate_left(7) ^ u64::from(value.to_bits()));
    println!("{checksum:016x}");
    Ok(())
}
