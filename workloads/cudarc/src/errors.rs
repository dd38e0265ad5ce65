//! What goes wrong in a program is answered with an error, and the program goes on.

use crate::Program;
use crate::gpu::{Gpu, line, refused, same};
use anyhow::{Result, ensure};
use cudarc::driver::sys::CUresult;
use cudarc::driver::{CudaContext, CudaFunction, LaunchConfig};
use cudarc::nvrtc::{CompileError, Ptx, compile_ptx};

pub(crate) const PROGRAMS: &[Program] = &[
    ("errors::missing_names", missing_names),
    ("errors::too_many_threads", too_many_threads),
    ("errors::too_much_shared_memory", too_much_shared_memory),
    ("errors::broken_ptx", broken_ptx),
    ("errors::broken_source", broken_source),
    ("errors::no_such_device", no_such_device),
    ("errors::out_of_memory", out_of_memory),
];

const COUNT: &str = r#"
extern "C" __global__ void count(unsigned *total) { atomicAdd(total, 1u); }
"#;

/// The device still works: a kernel counts its threads.
fn still_works(gpu: &Gpu, kernel: &CudaFunction) -> Result<()> {
    let mut on_total = gpu.stream.alloc_zeros::<u32>(1)?;
    launch!(gpu.stream, *kernel, line(3, 100), &mut on_total)?;
    same(&gpu.stream.clone_dtoh(&on_total)?, &[300_u32])
}

fn missing_names() -> Result<()> {
    let gpu = Gpu::open()?;
    let module = gpu.module(COUNT)?;
    refused("a kernel", module.load_function("counts"), CUresult::CUDA_ERROR_NOT_FOUND)?;
    refused("a symbol", module.get_global("total", &gpu.stream), CUresult::CUDA_ERROR_NOT_FOUND)?;
    still_works(&gpu, &module.load_function("count")?)
}

fn too_many_threads() -> Result<()> {
    let gpu = Gpu::open()?;
    let kernel = gpu.kernel(COUNT, "count")?;
    let mut on_total = gpu.stream.alloc_zeros::<u32>(1)?;
    let shapes = [
        ("2048 threads", line(1, 2048)),
        ("64 times 32 threads", LaunchConfig { grid_dim: (1, 1, 1), block_dim: (64, 32, 1), shared_mem_bytes: 0 }),
        ("128 threads deep", LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1, 1, 128), shared_mem_bytes: 0 }),
        ("no threads", line(1, 0)),
        ("no blocks", line(0, 32)),
        ("65536 blocks high", LaunchConfig { grid_dim: (1, 65_536, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 }),
    ];
    for (what, shape) in shapes {
        refused(what, launch!(gpu.stream, kernel, shape, &mut on_total), CUresult::CUDA_ERROR_INVALID_VALUE)?;
    }
    same(&gpu.stream.clone_dtoh(&on_total)?, &[0_u32])?;
    still_works(&gpu, &kernel)
}

fn too_much_shared_memory() -> Result<()> {
    let gpu = Gpu::open()?;
    let kernel = gpu.kernel(COUNT, "count")?;
    let mut on_total = gpu.stream.alloc_zeros::<u32>(1)?;
    // More than 48 KiB, which the kernel did not ask for.
    let shape = LaunchConfig { shared_mem_bytes: 60_000, ..line(1, 32) };
    refused("60000 bytes", launch!(gpu.stream, kernel, shape, &mut on_total), CUresult::CUDA_ERROR_INVALID_VALUE)?;
    still_works(&gpu, &kernel)
}

fn broken_ptx() -> Result<()> {
    let gpu = Gpu::open()?;
    let broken = Ptx::from_src(".version 8.0\n.target sm_80\n.address_size 64\n.entry broken() { nonsense; }\n");
    refused("nonsense", gpu.context.load_module(broken), CUresult::CUDA_ERROR_INVALID_PTX)?;
    let missing = Ptx::from_file("/nowhere/kernel.ptx");
    refused("a missing file", gpu.context.load_module(missing), CUresult::CUDA_ERROR_FILE_NOT_FOUND)?;
    still_works(&gpu, &gpu.kernel(COUNT, "count")?)
}

/// Not a matter of the driver: NVRTC says what is wrong with the source.
fn broken_source() -> Result<()> {
    match compile_ptx("extern \"C\" __global__ void broken() { undeclared = 1; }") {
        Err(CompileError::CompileError { log, .. }) => {
            ensure!(log.to_string_lossy().contains("undeclared"), "an unhelpful log: {log:?}");
            Ok(())
        }
        other => anyhow::bail!("{other:?} instead of an error"),
    }
}

fn no_such_device() -> Result<()> {
    let devices = usize::try_from(CudaContext::device_count()?)?;
    refused("one past the last", CudaContext::new(devices), CUresult::CUDA_ERROR_INVALID_DEVICE)
}

fn out_of_memory() -> Result<()> {
    let gpu = Gpu::open()?;
    let twice = 2 * gpu.context.total_mem()?;
    // SAFETY: nothing is allocated.
    let answer = unsafe { gpu.stream.alloc::<u8>(twice) };
    refused("twice the device's memory", answer, CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    still_works(&gpu, &gpu.kernel(COUNT, "count")?)
}
