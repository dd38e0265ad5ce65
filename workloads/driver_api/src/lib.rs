//! What the small programs share: the driver as the loader finds it, and calls that stop at an error.

use anyhow::{Result, bail, ensure};
use core::ffi::{CStr, c_char, c_void};
use detshare_cuda::driver::as_function;
use detshare_cuda::entry::Entry;
use detshare_cuda::types::{CUdevice, CUresult};
use detshare_cuda::{functions, result_name};
use std::ffi::CString;

/// The driver, as the loader found it.
pub struct Library(*mut c_void);

impl Library {
    /// Opens `libcuda.so.1`, wherever the loader finds it.
    pub fn open() -> Result<Self> {
        // SAFETY: a terminated name; the driver's constructors are made to be run by the loader.
        let handle = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
        ensure!(!handle.is_null(), "there is no libcuda.so.1 here: install a CUDA driver, or name one by LD_PRELOAD");
        Ok(Self(handle))
    }

    /// One of its functions.
    pub fn function<F: Copy>(&self, entry: Entry<F>) -> Result<F> {
        let name = CString::new(functions()[entry.index()].name)?;
        // SAFETY: an open handle and a terminated name.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        ensure!(!address.is_null(), "the driver has no {name:?}");
        // SAFETY: the driver's function of that name, which has the entry's type.
        Ok(unsafe { as_function(entry, address) })
    }
}

/// Stops at anything but success, by the name of the call.
pub fn ok(what: &str, result: CUresult) -> Result<()> {
    if result != CUresult::CUDA_SUCCESS {
        bail!("{what} returned {}", result_name(result).unwrap_or(c"an unknown code").to_string_lossy());
    }
    Ok(())
}

/// Calls a function of the driver by its name and stops at an error.
#[macro_export]
macro_rules! cu {
    ($library:expr, $function:ident($($argument:expr),*)) => {{
        let function = $library.function(detshare_cuda::entry::$function)?;
        #[allow(clippy::macro_metavars_in_unsafe, reason = "the arguments are the program's own, a few lines away")]
        // SAFETY: arguments as the driver API's manual asks for, with everything they point to alive.
        let result = unsafe { function($($argument),*) };
        $crate::ok(stringify!($function), result)
    }};
}

/// The device's name; empty on a driver that has nothing behind it.
pub fn device_name(library: &Library, device: CUdevice) -> Result<String> {
    let mut name = [0; 128];
    cu!(library, cuDeviceGetName(name.as_mut_ptr(), 128, device))?;
    Ok(text(&name))
}

/// Up to the first NUL.
fn text(characters: &[c_char]) -> String {
    #[allow(clippy::cast_sign_loss, reason = "C's characters are bytes")]
    let bytes: Vec<u8> = characters.iter().map(|character| *character as u8).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Runs `rounds` fused multiply-adds on each float of `data`: four instructions a round.
pub const FMA_LOOP: &CStr = c"
.version 7.0
.target sm_70
.address_size 64
.visible .entry fma_loop(.param .u64 data, .param .u32 rounds)
{
    .reg .pred %more;
    .reg .f32 %x;
    .reg .b32 %block, %size, %thread, %i, %left;
    .reg .b64 %data, %offset;
    ld.param.u64 %data, [data];
    ld.param.u32 %left, [rounds];
    mov.u32 %block, %ctaid.x;
    mov.u32 %size, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %i, %block, %size, %thread;
    mul.wide.u32 %offset, %i, 4;
    add.u64 %data, %data, %offset;
    ld.global.f32 %x, [%data];
AGAIN:
    fma.rn.f32 %x, %x, 0f3F7FBE77, 0f3F000000;
    sub.u32 %left, %left, 1;
    setp.ne.u32 %more, %left, 0;
    @%more bra AGAIN;
    st.global.f32 [%data], %x;
    ret;
}
";
