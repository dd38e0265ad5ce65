//! A driver's first device: modules, memory and launches.

use crate::call::{self, code_name};
use anyhow::{Context, Result, bail};
use core::cell::Cell;
use core::ffi::c_void;
use core::ptr::null_mut;
use detshare_cuda::Driver;
use detshare_cuda::driver::Visibility;
use detshare_cuda::types::{
    CUcontext, CUdevice_v1, CUdeviceptr_v2, CUfunction, CUfunction_attribute, CUjit_option, CUlimit, CUmodule,
    CUresult, CUstream,
};
use std::ffi::CString;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// Room for what an assembler has to say.
const LOG_BYTES: usize = 4096;
/// For each thread: how deep a recursion goes is not known to an assembler.
const STACK_BYTES: usize = 16 << 10;
/// More dynamic shared memory than this has to be asked for.
const USUAL_SHARED: u32 = 48 << 10;
/// `CU_MEMHOSTALLOC_DEVICEMAP`
const MAPPED: u32 = 2;

/// Bytes on their way to the device or back, of all copies that nobody has waited for yet.
const STAGING_BYTES: usize = 4 << 20;

/// The driver with the primary context of its first device current.
///
/// A device that others use as well is waited for as seldom as possible: each wait may cost a whole round of turns. So
/// copies only go into the queue ([`Gpu::write`]) until somebody wants to see something ([`Gpu::read_all`]).
pub(crate) struct Gpu {
    driver: Driver,
    flags: Flags,
    /// Memory that the device copies from and to by itself, and how much of it is on its way.
    staging: *mut u8,
    staged: Cell<usize>,
}

/// Words of the host that the device reads as well.
#[derive(Clone, Copy)]
struct Flags {
    host: *mut u32,
    device: u64,
}

/// How many such words there are.
pub(crate) const FLAGS: usize = 4;

/// A grid, a block and dynamic shared memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
}

impl Gpu {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let driver = Driver::open(path, Visibility::Local)?;
        let (mut device, mut context) = (CUdevice_v1(0), CUcontext(null_mut()));
        ok!(&driver, cuInit(0));
        ok!(&driver, cuDeviceGet(&raw mut device, 0));
        ok!(&driver, cuDevicePrimaryCtxRetain(&raw mut context, device));
        ok!(&driver, cuCtxSetCurrent(context));
        ok!(&driver, cuCtxSetLimit(CUlimit::CU_LIMIT_STACK_SIZE, STACK_BYTES));
        let mut host: *mut c_void = null_mut();
        ok!(&driver, cuMemHostAlloc(&raw mut host, FLAGS * 4, MAPPED));
        let mut mapped = CUdeviceptr_v2(0);
        ok!(&driver, cuMemHostGetDevicePointer_v2(&raw mut mapped, host, 0));
        let mut staging: *mut c_void = null_mut();
        ok!(&driver, cuMemHostAlloc(&raw mut staging, STAGING_BYTES, 0));
        let flags = Flags { host: host.cast(), device: mapped.0 };
        Ok(Self { driver, flags, staging: staging.cast(), staged: Cell::new(0) })
    }

    /// Makes a thread that may set flags; it needs no context for that.
    pub(crate) fn flag(&self, index: usize) -> &AtomicU32 {
        // SAFETY: allocated for `FLAGS` words, for as long as the process lives.
        let place = unsafe { self.flags.host.add(index % FLAGS) };
        // SAFETY: aligned, alive, and only ever used atomically from here on.
        unsafe { AtomicU32::from_ptr(place) }
    }

    /// Where the device finds a flag.
    pub(crate) fn flag_address(&self, index: usize) -> u64 {
        self.flags.device + (index % FLAGS) as u64 * 4
    }

    /// What all flags hold.
    pub(crate) fn set_flags(&self, words: [u32; FLAGS]) {
        for (index, word) in words.into_iter().enumerate() {
            self.flag(index).store(word, Ordering::SeqCst);
        }
    }

    pub(crate) fn load(&self, text: &str) -> Result<CUmodule> {
        let image = CString::new(text).context("the text has a NUL")?;
        let mut log = vec![0u8; LOG_BYTES];
        let mut options = [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), core::ptr::without_provenance_mut(LOG_BYTES)];
        let mut module = CUmodule(null_mut());
        let load = call::function(&self.driver, detshare_cuda::entry::cuModuleLoadDataEx)?;
        // SAFETY: text with a NUL behind it, two options with their values, and a buffer of that size.
        let code =
            unsafe { load(&raw mut module, image.as_ptr().cast(), 2, options.as_mut_ptr(), values.as_mut_ptr()) };
        if code == CUresult::CUDA_SUCCESS {
            return Ok(module);
        }
        let words: Vec<u8> = log.into_iter().take_while(|byte| *byte != 0).collect();
        bail!("not loaded: {}: {}", code_name(code), String::from_utf8_lossy(&words).replace('\n', " "))
    }

    pub(crate) fn unload(&self, module: CUmodule) -> Result<()> {
        ok!(&self.driver, cuModuleUnload(module));
        Ok(())
    }

    /// A kernel, ready for that much dynamic shared memory.
    pub(crate) fn kernel(&self, module: CUmodule, name: &str, shared: u32) -> Result<CUfunction> {
        let text = CString::new(name).context("a name has a NUL")?;
        let mut function = CUfunction(null_mut());
        ok!(&self.driver, cuModuleGetFunction(&raw mut function, module, text.as_ptr()));
        if shared > USUAL_SHARED {
            let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            ok!(&self.driver, cuFuncSetAttribute(function, attribute, i32::try_from(shared)?));
        }
        Ok(function)
    }

    /// Where a kernel's parameter lies, and its size.
    pub(crate) fn parameter(&self, function: CUfunction, index: usize) -> Result<(usize, usize)> {
        let (mut offset, mut size) = (0, 0);
        ok!(&self.driver, cuFuncGetParamInfo(function, index, &raw mut offset, &raw mut size));
        Ok((offset, size))
    }

    /// The address and size of a module's variable.
    pub(crate) fn variable(&self, module: CUmodule, name: &str) -> Result<(u64, usize)> {
        let text = CString::new(name).context("a name has a NUL")?;
        let (mut address, mut bytes) = (CUdeviceptr_v2(0), 0);
        ok!(&self.driver, cuModuleGetGlobal_v2(&raw mut address, &raw mut bytes, module, text.as_ptr()));
        Ok((address.0, bytes))
    }

    /// New device memory.
    pub(crate) fn allocate(&self, bytes: usize) -> Result<u64> {
        let mut address = CUdeviceptr_v2(0);
        ok!(&self.driver, cuMemAlloc_v2(&raw mut address, bytes.max(1)));
        Ok(address.0)
    }

    pub(crate) fn free(&self, address: u64) -> Result<()> {
        ok!(&self.driver, cuMemFree_v2(CUdeviceptr_v2(address)));
        Ok(())
    }

    /// Room for that many bytes on their way, which stays until somebody has waited; None if it can never be.
    fn stage(&self, bytes: usize) -> Result<Option<*mut u8>> {
        if bytes > STAGING_BYTES {
            return Ok(None);
        }
        if self.staged.get() + bytes > STAGING_BYTES {
            self.finish()?;
        }
        // SAFETY: no more than was allocated.
        let place = unsafe { self.staging.add(self.staged.get()) };
        self.staged.set(self.staged.get() + bytes);
        Ok(Some(place))
    }

    /// Writes before anything that is started later.
    pub(crate) fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let (to, count) = (CUdeviceptr_v2(address), bytes.len());
        let Some(place) = self.stage(count)? else {
            ok!(&self.driver, cuMemcpyHtoD_v2(to, bytes.as_ptr().cast(), count));
            return Ok(());
        };
        // SAFETY: room for as many bytes, that nothing on its way lies in.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), place, count) };
        ok!(&self.driver, cuMemcpyHtoDAsync_v2(to, place.cast(), count, CUstream(null_mut())));
        Ok(())
    }

    /// What lies at these addresses, so many bytes each, when all that was started is over.
    pub(crate) fn read_all(&self, places: &[(u64, usize)]) -> Result<Vec<Vec<u8>>> {
        // Room for all of it at once: nothing waits in between.
        let Some(mut place) = self.stage(places.iter().map(|(_, bytes)| bytes).sum())? else {
            return places.iter().map(|(address, bytes)| self.read_much(*address, *bytes)).collect();
        };
        let mut staged = Vec::new();
        for (address, bytes) in places.iter().copied() {
            if bytes > 0 {
                let (from, stream) = (CUdeviceptr_v2(address), CUstream(null_mut()));
                ok!(&self.driver, cuMemcpyDtoHAsync_v2(place.cast(), from, bytes, stream));
            }
            staged.push((place, bytes));
            // SAFETY: the room that was asked for is as big as all of them.
            place = unsafe { place.add(bytes) };
        }
        self.finish()?;
        // SAFETY: in that room, and nothing is on its way any more.
        let taken = |(place, bytes): (*mut u8, usize)| unsafe { core::slice::from_raw_parts(place, bytes) }.to_vec();
        Ok(staged.into_iter().map(taken).collect())
    }

    fn read_much(&self, address: u64, bytes: usize) -> Result<Vec<u8>> {
        let mut read = vec![0; bytes];
        ok!(&self.driver, cuMemcpyDtoH_v2(read.as_mut_ptr().cast(), CUdeviceptr_v2(address), bytes));
        Ok(read)
    }

    pub(crate) fn read(&self, address: u64, bytes: usize) -> Result<Vec<u8>> {
        Ok(self.read_all(&[(address, bytes)])?.remove(0))
    }

    pub(crate) fn read_word(&self, address: u64) -> Result<u32> {
        let bytes = self.read(address, 4)?;
        Ok(bytes.first_chunk().map_or(0, |word| u32::from_le_bytes(*word)))
    }

    /// Starts a kernel with these values as its parameters; all of them, or the driver reads what is not there.
    pub(crate) fn start(&self, kernel: CUfunction, shape: Shape, arguments: &[Vec<u8>]) -> Result<()> {
        let mut places: Vec<*mut c_void> = arguments.iter().map(|value| value.as_ptr().cast_mut().cast()).collect();
        let Shape { grid: [gx, gy, gz], block: [bx, by, bz], shared } = shape;
        let (stream, places) = (CUstream(null_mut()), places.as_mut_ptr());
        ok!(&self.driver, cuLaunchKernel(kernel, gx, gy, gz, bx, by, bz, shared, stream, places, null_mut()));
        Ok(())
    }

    /// Waits for all that was started.
    pub(crate) fn finish(&self) -> Result<()> {
        ok!(&self.driver, cuCtxSynchronize());
        self.staged.set(0);
        Ok(())
    }
}
