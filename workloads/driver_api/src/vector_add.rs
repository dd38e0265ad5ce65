//! Adds two vectors on the GPU through `libcuda.so.1`, wherever the loader finds that, and checks the sum.
//!
//! Prints what it computed. On a driver that computes nothing (the stub driver of the tests) it says so.

use anyhow::{Result, ensure};
use core::ffi::{CStr, c_void};
use detshare_cuda::types::{CUcontext, CUdevice_v1, CUdeviceptr, CUdeviceptr_v2, CUfunction, CUmodule, CUstream};
use detshare_workloads::{Library, cu, device_name};

const ELEMENTS: u32 = 1 << 20;
const BLOCK: u32 = 256;

const KERNEL: &CStr = c"
.version 7.0
.target sm_70
.address_size 64
.visible .entry vector_add(.param .u64 a, .param .u64 b, .param .u64 sum, .param .u32 n)
{
    .reg .pred %outside;
    .reg .f32 %x, %y, %z;
    .reg .b32 %block, %size, %thread, %i, %n;
    .reg .b64 %pa, %pb, %psum, %offset;
    ld.param.u64 %pa, [a];
    ld.param.u64 %pb, [b];
    ld.param.u64 %psum, [sum];
    ld.param.u32 %n, [n];
    mov.u32 %block, %ctaid.x;
    mov.u32 %size, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %i, %block, %size, %thread;
    setp.ge.u32 %outside, %i, %n;
    @%outside bra DONE;
    mul.wide.u32 %offset, %i, 4;
    add.u64 %pa, %pa, %offset;
    add.u64 %pb, %pb, %offset;
    add.u64 %psum, %psum, %offset;
    ld.global.f32 %x, [%pa];
    ld.global.f32 %y, [%pb];
    add.rn.f32 %z, %x, %y;
    st.global.f32 [%psum], %z;
DONE:
    ret;
}
";

fn main() -> Result<()> {
    let library = Library::open()?;
    cu!(library, cuInit(0))?;
    let mut device = CUdevice_v1(0);
    cu!(library, cuDeviceGet(&raw mut device, 0))?;
    let name = device_name(&library, device)?;
    let mut context = CUcontext(core::ptr::null_mut());
    cu!(library, cuDevicePrimaryCtxRetain(&raw mut context, device))?;
    cu!(library, cuCtxSetCurrent(context))?;
    let mut module = CUmodule(core::ptr::null_mut());
    cu!(library, cuModuleLoadData(&raw mut module, KERNEL.as_ptr().cast()))?;
    let mut kernel = CUfunction(core::ptr::null_mut());
    cu!(library, cuModuleGetFunction(&raw mut kernel, module, c"vector_add".as_ptr()))?;

    let sum = add(&library, kernel)?;
    cu!(library, cuModuleUnload(module))?;
    cu!(library, cuDevicePrimaryCtxRelease_v2(device))?;
    if name.is_empty() {
        println!("vector_add: this driver has no device behind it, nothing was computed");
        return Ok(());
    }
    let wrong = (0..ELEMENTS).filter(|i| sum[*i as usize].to_bits() != expected(*i).to_bits()).count();
    ensure!(wrong == 0, "{wrong} of {ELEMENTS} sums are wrong");
    println!("vector_add on {name}: {ELEMENTS} sums, all as expected");
    Ok(())
}

fn input(i: u32) -> (f32, f32) {
    #[allow(clippy::cast_precision_loss, reason = "inputs only need to differ")]
    let i = i as f32;
    (i * 0.5, i * 0.25 + 1.0)
}

fn expected(i: u32) -> f32 {
    let (a, b) = input(i);
    a + b
}

fn add(library: &Library, kernel: CUfunction) -> Result<Vec<f32>> {
    let (a, b): (Vec<f32>, Vec<f32>) = (0..ELEMENTS).map(input).unzip();
    let mut sum = vec![0.0_f32; a.len()];
    let bytes = size_of_val(&*a);
    let mut buffers = [CUdeviceptr_v2(0); 3];
    for buffer in &mut buffers {
        cu!(library, cuMemAlloc_v2(&raw mut *buffer, bytes))?;
    }
    let [mut on_a, mut on_b, mut on_sum]: [CUdeviceptr; 3] = buffers;
    cu!(library, cuMemcpyHtoD_v2(on_a, a.as_ptr().cast(), bytes))?;
    cu!(library, cuMemcpyHtoD_v2(on_b, b.as_ptr().cast(), bytes))?;
    let mut n = ELEMENTS;
    let mut parameters: [*mut c_void; 4] =
        [(&raw mut on_a).cast(), (&raw mut on_b).cast(), (&raw mut on_sum).cast(), (&raw mut n).cast()];
    let stream = CUstream(core::ptr::null_mut());
    let blocks = ELEMENTS.div_ceil(BLOCK);
    let no_extra = core::ptr::null_mut();
    cu!(library, cuLaunchKernel(kernel, blocks, 1, 1, BLOCK, 1, 1, 0, stream, parameters.as_mut_ptr(), no_extra))?;
    cu!(library, cuStreamSynchronize(stream))?;
    cu!(library, cuMemcpyDtoH_v2(sum.as_mut_ptr().cast(), on_sum, bytes))?;
    for buffer in buffers {
        cu!(library, cuMemFree_v2(buffer))?;
    }
    Ok(sum)
}
