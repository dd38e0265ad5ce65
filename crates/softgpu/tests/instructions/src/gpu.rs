//! The first device, and one case on it.

use crate::case::Case;
use anyhow::{Context, Result};
use core::ffi::c_void;
use core::ptr::null_mut;
use detshare_cuda::Driver;
use detshare_cuda::driver::Visibility;
use detshare_cuda::types::{CUcontext, CUdevice_v1, CUdeviceptr, CUdeviceptr_v2, CUfunction, CUmodule, CUstream};
use std::ffi::CString;
use std::path::Path;

/// What an output word holds that no thread has written.
pub(crate) const UNWRITTEN: u32 = 0xcccc_cccc;

/// The driver with the primary context of its first device current.
pub(crate) struct Gpu {
    driver: Driver,
}

impl Gpu {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let driver = Driver::open(path, Visibility::Local)?;
        let (mut device, mut context) = (CUdevice_v1(0), CUcontext(null_mut()));
        ok!(&driver, cuInit(0));
        ok!(&driver, cuDeviceGet(&raw mut device, 0));
        ok!(&driver, cuDevicePrimaryCtxRetain(&raw mut context, device));
        ok!(&driver, cuCtxSetCurrent(context));
        Ok(Self { driver })
    }

    /// Runs the case's kernel and gives what it wrote.
    pub(crate) fn run(&self, case: &Case) -> Result<Vec<u32>> {
        self.launch(&case.text, [case.blocks, case.threads], case.output_words(), &case.input)
    }

    /// Runs the kernel of a module in so many blocks of so many threads, and gives the words that it wrote.
    pub(crate) fn launch(&self, text: &str, size: [u32; 2], words: usize, input: &[u32]) -> Result<Vec<u32>> {
        let [blocks, threads] = size;
        let text = CString::new(text).context("the text has a NUL")?;
        let mut module = CUmodule(null_mut());
        ok!(&self.driver, cuModuleLoadData(&raw mut module, text.as_ptr().cast()));
        let mut kernel = CUfunction(null_mut());
        ok!(&self.driver, cuModuleGetFunction(&raw mut kernel, module, c"test".as_ptr()));

        let out = self.upload(&vec![UNWRITTEN; words.max(1)])?;
        let input = self.upload(if input.is_empty() { &[0] } else { input })?;
        let (mut out_argument, mut in_argument) = (out.0, input.0);
        let mut arguments: [*mut c_void; 2] = [(&raw mut out_argument).cast(), (&raw mut in_argument).cast()];
        let (stream, arguments) = (CUstream(null_mut()), arguments.as_mut_ptr());
        ok!(&self.driver, cuLaunchKernel(kernel, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, null_mut()));
        ok!(&self.driver, cuCtxSynchronize());

        let mut written = vec![UNWRITTEN; words];
        if words > 0 {
            ok!(&self.driver, cuMemcpyDtoH_v2(written.as_mut_ptr().cast(), out, size_of_val(&*written)));
        }
        ok!(&self.driver, cuMemFree_v2(out));
        ok!(&self.driver, cuMemFree_v2(input));
        ok!(&self.driver, cuModuleUnload(module));
        Ok(written)
    }

    /// New device memory with these words.
    fn upload(&self, words: &[u32]) -> Result<CUdeviceptr> {
        let mut pointer = CUdeviceptr_v2(0);
        ok!(&self.driver, cuMemAlloc_v2(&raw mut pointer, size_of_val(words)));
        ok!(&self.driver, cuMemcpyHtoD_v2(pointer, words.as_ptr().cast(), size_of_val(words)));
        Ok(pointer)
    }
}
