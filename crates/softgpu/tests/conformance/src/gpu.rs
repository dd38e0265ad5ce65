//! The first device with its primary context current, and what tests need of it.

use crate::kernels::{PROGRAM, TIMED_OUT};
use anyhow::{Result, ensure};
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::ops::Deref;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, Ordering};
use detshare_cuda::Driver;
use detshare_cuda::types::{
    CUcontext, CUdevice, CUdevice_attribute, CUdevice_v1, CUdeviceptr, CUdeviceptr_v2, CUevent, CUevent_flags,
    CUfunction, CUmodule, CUresult, CUstream, CUstream_flags,
};

/// The default stream: the legacy one, or the calling thread's for the `_ptsz` functions.
pub(crate) const NULL_STREAM: CUstream = CUstream(null_mut());
/// `CU_STREAM_LEGACY`.
pub(crate) const LEGACY: CUstream = CUstream(core::ptr::without_provenance_mut(1));
/// `CU_STREAM_PER_THREAD`.
pub(crate) const PER_THREAD: CUstream = CUstream(core::ptr::without_provenance_mut(2));

pub(crate) const BLOCKING: c_uint = CUstream_flags::CU_STREAM_DEFAULT.0;
pub(crate) const NON_BLOCKING: c_uint = CUstream_flags::CU_STREAM_NON_BLOCKING.0;
/// `CU_MEMHOSTALLOC_DEVICEMAP`.
pub(crate) const DEVICE_MAP: c_uint = 2;

pub(crate) const NO_DEVICE: CUdevice = CUdevice_v1(-1);
pub(crate) const NO_ADDRESS: CUdeviceptr = CUdeviceptr_v2(0);
pub(crate) const NO_CONTEXT: CUcontext = CUcontext(null_mut());

/// How many threads a block has where it does not matter.
const BLOCK: u32 = 128;

/// How many blocks or threads, in x, y and z.
pub(crate) type Size = (u32, u32, u32);

/// The driver with its first device. Derefs to the driver, so that it can be called through this.
pub(crate) struct Gpu<'d> {
    driver: &'d Driver,
    pub(crate) device: CUdevice,
    pub(crate) context: CUcontext,
}

impl Deref for Gpu<'_> {
    type Target = Driver;

    fn deref(&self) -> &Driver {
        self.driver
    }
}

/// What may be an argument of a kernel.
pub(crate) trait Argument {}
impl Argument for CUdeviceptr {}
impl Argument for u8 {}
impl Argument for u16 {}
impl Argument for u32 {}
impl Argument for u64 {}
impl Argument for f32 {}
impl Argument for f64 {}
impl<const N: usize> Argument for [u8; N] {}
impl<const N: usize> Argument for [u32; N] {}

/// The arguments as the driver wants them: a pointer to each. It only reads through them.
pub(crate) fn addresses(arguments: &[&dyn Argument]) -> Vec<*mut c_void> {
    arguments.iter().map(|argument| core::ptr::from_ref(*argument).cast_mut().cast()).collect()
}

/// Initialises the driver and gives its first device.
#[track_caller]
pub(crate) fn first_device(driver: &Driver) -> Result<CUdevice> {
    ok!(driver, cuInit(0));
    let mut device = NO_DEVICE;
    ok!(driver, cuDeviceGet(&raw mut device, 0));
    Ok(device)
}

impl<'d> Gpu<'d> {
    /// Initialises the driver and makes the primary context of the first device current.
    #[track_caller]
    pub(crate) fn new(driver: &'d Driver) -> Result<Self> {
        let device = first_device(driver)?;
        let mut context = NO_CONTEXT;
        ok!(driver, cuDevicePrimaryCtxRetain(&raw mut context, device));
        ensure!(context != NO_CONTEXT, "cuDevicePrimaryCtxRetain gave no context");
        ok!(driver, cuCtxSetCurrent(context));
        Ok(Self { driver, device, context })
    }

    /// The device's name.
    #[track_caller]
    pub(crate) fn name(&self) -> Result<String> {
        let mut name = [0; 256];
        ok!(self, cuDeviceGetName(name.as_mut_ptr(), 256, self.device));
        Ok(text(&name))
    }

    #[track_caller]
    pub(crate) fn attribute(&self, attribute: CUdevice_attribute) -> Result<c_int> {
        let mut value = -1;
        ok!(self, cuDeviceGetAttribute(&raw mut value, attribute, self.device));
        Ok(value)
    }

    #[track_caller]
    pub(crate) fn total_memory(&self) -> Result<usize> {
        let mut bytes = 0;
        ok!(self, cuDeviceTotalMem_v2(&raw mut bytes, self.device));
        Ok(bytes)
    }

    #[track_caller]
    pub(crate) fn alloc(&self, bytes: usize) -> Result<CUdeviceptr> {
        let mut pointer = NO_ADDRESS;
        ok!(self, cuMemAlloc_v2(&raw mut pointer, bytes));
        ensure!(pointer.0 != 0, "cuMemAlloc gave no address");
        Ok(pointer)
    }

    /// New device memory with these words.
    #[track_caller]
    pub(crate) fn upload(&self, words: &[u32]) -> Result<CUdeviceptr> {
        let pointer = self.alloc(size_of_val(words))?;
        self.write(pointer, words)?;
        Ok(pointer)
    }

    /// New device memory, all zero, and that is done.
    #[track_caller]
    pub(crate) fn zeros(&self, words: usize) -> Result<CUdeviceptr> {
        let pointer = self.upload(&vec![0; words])?;
        self.synchronise()?;
        Ok(pointer)
    }

    #[track_caller]
    pub(crate) fn write(&self, pointer: CUdeviceptr, words: &[u32]) -> Result<()> {
        ok!(self, cuMemcpyHtoD_v2(pointer, words.as_ptr().cast(), size_of_val(words)));
        Ok(())
    }

    #[track_caller]
    pub(crate) fn read(&self, pointer: CUdeviceptr, words: usize) -> Result<Vec<u32>> {
        let mut read = vec![0xcccc_cccc; words];
        ok!(self, cuMemcpyDtoH_v2(read.as_mut_ptr().cast(), pointer, words * size_of::<u32>()));
        Ok(read)
    }

    #[track_caller]
    pub(crate) fn read_bytes(&self, pointer: CUdeviceptr, bytes: usize) -> Result<Vec<u8>> {
        let mut read = vec![0xcc; bytes];
        ok!(self, cuMemcpyDtoH_v2(read.as_mut_ptr().cast(), pointer, bytes));
        Ok(read)
    }

    #[track_caller]
    pub(crate) fn module(&self, text: &CStr) -> Result<CUmodule> {
        let mut module = CUmodule(null_mut());
        ok!(self, cuModuleLoadData(&raw mut module, text.as_ptr().cast()));
        ensure!(!module.0.is_null(), "cuModuleLoadData gave no module");
        Ok(module)
    }

    /// A kernel of the module, loaded for good: loading it at its first launch may wait for the whole context.
    #[track_caller]
    pub(crate) fn function_of(&self, module: CUmodule, name: &CStr) -> Result<CUfunction> {
        let mut function = CUfunction(null_mut());
        ok!(self, cuModuleGetFunction(&raw mut function, module, name.as_ptr()));
        ensure!(!function.0.is_null(), "cuModuleGetFunction gave no function");
        ok!(self, cuFuncLoad(function));
        Ok(function)
    }

    /// Kernels of [`PROGRAM`], in a module of their own.
    #[track_caller]
    pub(crate) fn kernels<const N: usize>(&self, names: [&CStr; N]) -> Result<[CUfunction; N]> {
        let module = self.module(PROGRAM)?;
        let mut functions = [CUfunction(null_mut()); N];
        for (function, name) in functions.iter_mut().zip(names) {
            *function = self.function_of(module, name)?;
        }
        Ok(functions)
    }

    #[track_caller]
    pub(crate) fn stream(&self, flags: c_uint) -> Result<CUstream> {
        let mut stream = NULL_STREAM;
        ok!(self, cuStreamCreate(&raw mut stream, flags));
        ensure!(stream != NULL_STREAM, "cuStreamCreate gave no stream");
        Ok(stream)
    }

    /// An event that orders and does not time.
    #[track_caller]
    pub(crate) fn event(&self) -> Result<CUevent> {
        self.event_with(CUevent_flags::CU_EVENT_DISABLE_TIMING.0)
    }

    #[track_caller]
    pub(crate) fn event_with(&self, flags: c_uint) -> Result<CUevent> {
        let mut event = CUevent(null_mut());
        ok!(self, cuEventCreate(&raw mut event, flags));
        ensure!(!event.0.is_null(), "cuEventCreate gave no event");
        Ok(event)
    }

    /// Launches enough blocks for so many threads.
    #[track_caller]
    pub(crate) fn launch(
        &self,
        kernel: CUfunction,
        threads: u32,
        stream: CUstream,
        arguments: &[&dyn Argument],
    ) -> Result<()> {
        let block = threads.min(BLOCK);
        self.launch_shaped(kernel, (threads.div_ceil(block), 1, 1), (block, 1, 1), 0, stream, arguments)
    }

    #[track_caller]
    pub(crate) fn launch_shaped(
        &self,
        kernel: CUfunction,
        grid: Size,
        block: Size,
        shared: u32,
        stream: CUstream,
        arguments: &[&dyn Argument],
    ) -> Result<()> {
        let code = self.try_launch(kernel, grid, block, shared, stream, arguments)?;
        crate::call::judge("cuLaunchKernel", code, &[CUresult::CUDA_SUCCESS])
    }

    /// Launches and gives the code.
    #[track_caller]
    pub(crate) fn try_launch(
        &self,
        kernel: CUfunction,
        grid: Size,
        block: Size,
        shared: u32,
        stream: CUstream,
        arguments: &[&dyn Argument],
    ) -> Result<CUresult> {
        let mut addresses = addresses(arguments);
        let pointers = addresses.as_mut_ptr();
        let ((gx, gy, gz), (bx, by, bz)) = (grid, block);
        Ok(cu!(self, cuLaunchKernel(kernel, gx, gy, gz, bx, by, bz, shared, stream, pointers, null_mut())))
    }

    #[track_caller]
    pub(crate) fn synchronise(&self) -> Result<()> {
        ok!(self, cuCtxSynchronize());
        Ok(())
    }

    #[track_caller]
    pub(crate) fn wait(&self, stream: CUstream) -> Result<()> {
        ok!(self, cuStreamSynchronize(stream));
        Ok(())
    }

    #[track_caller]
    pub(crate) fn is_pending(&self, stream: CUstream) -> Result<()> {
        expect!(self, cuStreamQuery(stream) => CUDA_ERROR_NOT_READY);
        Ok(())
    }

    #[track_caller]
    pub(crate) fn is_done(&self, stream: CUstream) -> Result<()> {
        ok!(self, cuStreamQuery(stream));
        Ok(())
    }

    /// Words of pinned host memory that kernels see too, all zero.
    #[track_caller]
    pub(crate) fn shared_words(&self, count: usize) -> Result<SharedWords> {
        let mut host = null_mut();
        ok!(self, cuMemHostAlloc(&raw mut host, count * size_of::<u32>(), DEVICE_MAP));
        let mut device = NO_ADDRESS;
        ok!(self, cuMemHostGetDevicePointer_v2(&raw mut device, host, 0));
        let words = SharedWords { host: host.cast(), device, count };
        (0..count).for_each(|index| words.set(index, 0));
        Ok(words)
    }

    /// Prepares a gate without holding anything yet: what loads or allocates may wait for what runs.
    #[track_caller]
    pub(crate) fn gate(&self) -> Result<Gate> {
        let [kernel] = self.kernels([c"wait_flag"])?;
        Ok(Gate { words: self.shared_words(2)?, kernel })
    }

    /// Holds the stream at that gate.
    #[track_caller]
    pub(crate) fn hold_at(&self, gate: &Gate, stream: CUstream) -> Result<()> {
        self.launch(gate.kernel, 1, stream, &[&gate.words.at(0), &gate.words.at(1), &PASSED])
    }
}

/// What a gate's kernel writes when it was let through.
const PASSED: u32 = 1;

/// A kernel that waits for the host.
pub(crate) struct Gate {
    words: SharedWords,
    kernel: CUfunction,
}

impl Gate {
    /// Lets the kernel through.
    pub(crate) fn open(&self) {
        self.words.set(0, 1);
    }

    /// Makes the gate fit to hold again.
    pub(crate) fn close(&self) {
        self.words.set(0, 0);
        self.words.set(1, 0);
    }

    /// That the kernel is over and was let through by the host, not by its own bound.
    pub(crate) fn was_passed(&self) -> Result<()> {
        let seen = self.words.get(1);
        ensure!(seen != TIMED_OUT, "the held kernel gave up: something waited for it before it was let through");
        ensure!(seen == PASSED, "the held kernel has not run: it left {seen:#x}");
        Ok(())
    }

    /// The kernel itself.
    pub(crate) fn kernel(&self) -> CUfunction {
        self.kernel
    }

    /// The address of its flag and of its answer.
    pub(crate) fn arguments(&self) -> (CUdeviceptr, CUdeviceptr, u32) {
        (self.words.at(0), self.words.at(1), PASSED)
    }
}

/// A handle of the driver, to be used by another thread.
#[derive(Clone, Copy)]
pub(crate) struct Shared<T>(T);

// SAFETY: the driver's handles may be used from any thread.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Shared<T> {}

impl<T: Copy> Shared<T> {
    pub(crate) fn new(handle: T) -> Self {
        Self(handle)
    }

    pub(crate) fn get(&self) -> T {
        self.0
    }
}

/// Pinned host memory, mapped into the device.
#[derive(Clone, Copy)]
pub(crate) struct SharedWords {
    host: *mut u32,
    device: CUdeviceptr,
    count: usize,
}

// SAFETY: the memory is reached through atomic operations only.
unsafe impl Send for SharedWords {}
// SAFETY: as above.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    fn word(&self, index: usize) -> &AtomicU32 {
        assert!(index < self.count);
        // SAFETY: within the allocation, which is never freed.
        let word = unsafe { self.host.add(index) };
        // SAFETY: aligned as the driver's pages are, and everyone on the host goes through here.
        unsafe { AtomicU32::from_ptr(word) }
    }

    pub(crate) fn set(&self, index: usize, value: u32) {
        self.word(index).store(value, Ordering::SeqCst);
    }

    pub(crate) fn get(&self, index: usize) -> u32 {
        self.word(index).load(Ordering::SeqCst)
    }

    /// The word's address on the device.
    pub(crate) fn at(&self, index: usize) -> CUdeviceptr {
        offset(self.device, index * size_of::<u32>())
    }

    pub(crate) fn host(&self) -> *mut c_void {
        self.host.cast()
    }
}

/// So many bytes further on.
pub(crate) fn offset(pointer: CUdeviceptr, bytes: usize) -> CUdeviceptr {
    CUdeviceptr_v2(pointer.0 + bytes as u64)
}

/// Up to the first NUL.
pub(crate) fn text(characters: &[c_char]) -> String {
    let bytes: Vec<u8> = characters.iter().map(|it| it.cast_unsigned()).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A terminated string of the driver.
pub(crate) fn driver_text(text: *const c_char) -> Result<String> {
    ensure!(!text.is_null(), "the driver gave no text");
    // SAFETY: not NULL, and the driver's strings are terminated and live as long as what they name.
    Ok(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}
