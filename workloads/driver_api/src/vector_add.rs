//! Adds two vectors on the GPU through `libcuda.so.1`, wherever the loader finds that, and checks the sum.
//!
//! Prints what it computed. On a driver that computes nothing (the stub driver of the tests) it says so.

use anyhow::{Result, bail, ensure};
use core::ffi::{CStr, c_char, c_void};
use detshare_cuda::driver::as_function;
use detshare_cuda::entry::{self, Entry};
use detshare_cuda::types::{
    CUcontext, CUdevice_v1, CUdeviceptr, CUdeviceptr_v2, CUfunction, CUmodule, CUresult, CUstream,
};
use detshare_cuda::{functions, result_name};
use std::ffi::CString;

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

/// The driver, as the loader found it.
struct Library(*mut c_void);

impl Library {
    fn open() -> Result<Self> {
        // SAFETY: a terminated name; the driver's constructors are made to be run by the loader.
        let handle = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
        ensure!(!handle.is_null(), "there is no libcuda.so.1 here: install a CUDA driver, or name one by LD_PRELOAD");
        Ok(Self(handle))
    }

    fn function<F: Copy>(&self, entry: Entry<F>) -> Result<F> {
        let name = CString::new(functions()[entry.index()].name)?;
        // SAFETY: an open handle and a terminated name.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        ensure!(!address.is_null(), "the driver has no {name:?}");
        // SAFETY: the driver's function of that name, which has the entry's type.
        Ok(unsafe { as_function(entry, address) })
    }
}

fn ok(what: &str, result: CUresult) -> Result<()> {
    if result != CUresult::CUDA_SUCCESS {
        bail!("{what} returned {}", result_name(result).unwrap_or(c"an unknown code").to_string_lossy());
    }
    Ok(())
}

/// Calls a function of the driver by its name and stops at an error.
macro_rules! cu {
    ($library:expr, $function:ident($($argument:expr),*)) => {{
        let function = $library.function(entry::$function)?;
        // SAFETY: arguments as the driver API's manual asks for, with everything they point to alive.
        ok(stringify!($function), unsafe { function($($argument),*) })
    }};
}

fn main() -> Result<()> {
    let library = Library::open()?;
    cu!(library, cuInit(0))?;
    let mut device = CUdevice_v1(0);
    cu!(library, cuDeviceGet(&raw mut device, 0))?;
    let mut name = [0; 128];
    cu!(library, cuDeviceGetName(name.as_mut_ptr(), 128, device))?;
    let name = text(&name);
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

/// Up to the first NUL.
fn text(characters: &[c_char]) -> String {
    #[allow(clippy::cast_sign_loss, reason = "C's characters are bytes")]
    let bytes: Vec<u8> = characters.iter().map(|character| *character as u8).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
