//! A small CUDA program: the primary context, kernels that count, and the word that they count in.

use crate::cu;
use anyhow::Result;
use core::ffi::{CStr, c_void};
use core::ptr::null_mut;
use detshare_cuda::Driver;
use detshare_cuda::types::{
    CUcontext, CUdevice, CUdevice_v1, CUdeviceptr_v2, CUfunction, CUmodule, CUresult, CUstream,
};

/// `cuLaunchKernel` of some library.
pub type LaunchKernel = unsafe extern "C" fn(
    CUfunction,
    u32,
    u32,
    u32,
    u32,
    u32,
    u32,
    u32,
    CUstream,
    *mut *mut c_void,
    *mut *mut c_void,
) -> CUresult;

/// `next` adds one to the counter in two steps: launches that are not one after the other lose some. `add` adds an
/// amount at once, and `empty` does nothing.
const KERNELS: &CStr = c"
.version 7.0
.target sm_70
.address_size 64
.visible .entry next(.param .u64 counter)
{
    .reg .b64 %counter, %value;
    ld.param.u64 %counter, [counter];
    ld.volatile.global.u64 %value, [%counter];
    add.u64 %value, %value, 1;
    st.volatile.global.u64 [%counter], %value;
    ret;
}
.visible .entry add(.param .u64 counter, .param .u64 amount)
{
    .reg .b64 %counter, %amount;
    ld.param.u64 %counter, [counter];
    ld.param.u64 %amount, [amount];
    red.global.add.u64 [%counter], %amount;
    ret;
}
.visible .entry empty()
{
    ret;
}
";

/// What was made through one driver library. It lasts as long as the process.
#[derive(Debug)]
pub struct Program {
    /// The first one.
    pub device: CUdevice,
    /// The device's primary context; current in the thread that opened it.
    pub context: CUcontext,
    /// Adds one, not atomically.
    pub next: CUfunction,
    /// Adds an amount, atomically.
    pub add: CUfunction,
    /// Does nothing.
    pub empty: CUfunction,
    /// Zero at first.
    pub counter: CUdeviceptr_v2,
}

// SAFETY: handles of the driver, which any thread may use.
unsafe impl Send for Program {}
// SAFETY: as above.
unsafe impl Sync for Program {}

impl Program {
    /// Initialises the driver and makes all of it, as far as the first call that needs the GPU.
    pub fn open(driver: &Driver) -> Result<Self> {
        cu!(driver, cuInit(0))?;
        let mut device = CUdevice_v1(0);
        cu!(driver, cuDeviceGet(&raw mut device, 0))?;
        let mut context = CUcontext(null_mut());
        cu!(driver, cuDevicePrimaryCtxRetain(&raw mut context, device))?;
        cu!(driver, cuCtxSetCurrent(context))?;
        let mut module = CUmodule(null_mut());
        cu!(driver, cuModuleLoadData(&raw mut module, KERNELS.as_ptr().cast()))?;
        let kernel = |name: &CStr| -> Result<CUfunction> {
            let mut kernel = CUfunction(null_mut());
            cu!(driver, cuModuleGetFunction(&raw mut kernel, module, name.as_ptr()))?;
            Ok(kernel)
        };
        let mut counter = CUdeviceptr_v2(0);
        cu!(driver, cuMemAlloc_v2(&raw mut counter, size_of::<u64>()))?;
        cu!(driver, cuMemsetD8_v2(counter, 0, size_of::<u64>()))?;
        Ok(Self { device, context, next: kernel(c"next")?, add: kernel(c"add")?, empty: kernel(c"empty")?, counter })
    }

    /// What the kernels have counted. Waits for all of it.
    pub fn counted(&self, driver: &Driver) -> Result<u64> {
        cu!(driver, cuCtxSynchronize())?;
        let mut counted = 0_u64;
        cu!(driver, cuMemcpyDtoH_v2((&raw mut counted).cast(), self.counter, size_of::<u64>()))?;
        Ok(counted)
    }
}

/// The device memory that nobody uses, and all that there is.
pub fn memory(driver: &Driver) -> Result<(u64, u64)> {
    let (mut free, mut total) = (0, 0);
    cu!(driver, cuMemGetInfo_v2(&raw mut free, &raw mut total))?;
    Ok((free as u64, total as u64))
}
