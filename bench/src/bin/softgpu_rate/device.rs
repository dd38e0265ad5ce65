//! The software GPU in this process, with its first device's context.

use anyhow::Result;
use detshare_bench::cu;
use detshare_cuda::Driver;
use detshare_cuda::driver::Visibility;
use detshare_cuda::types::{CUcontext, CUdevice_v1, CUfunction, CUmodule};
use std::ffi::CStr;
use std::path::Path;

pub(crate) struct Device {
    pub(crate) driver: Driver,
}

impl Device {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let driver = Driver::open(path, Visibility::Local)?;
        cu!(driver, cuInit(0))?;
        let mut context = CUcontext(core::ptr::null_mut());
        cu!(driver, cuDevicePrimaryCtxRetain(&raw mut context, CUdevice_v1(0)))?;
        cu!(driver, cuCtxSetCurrent(context))?;
        Ok(Self { driver })
    }

    /// A kernel of a module that stays.
    pub(crate) fn kernel(&self, ptx: &CStr, name: &CStr) -> Result<CUfunction> {
        let mut module = CUmodule(core::ptr::null_mut());
        cu!(self.driver, cuModuleLoadData(&raw mut module, ptx.as_ptr().cast()))?;
        let mut kernel = CUfunction(core::ptr::null_mut());
        cu!(self.driver, cuModuleGetFunction(&raw mut kernel, module, name.as_ptr()))?;
        Ok(kernel)
    }
}
