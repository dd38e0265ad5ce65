//! What all programs of a process share: the context, the kernels and the memory that programs work on.

use crate::kernels::MODULE;
use crate::program::{Cell, FLAGS, GATES, MAX_DEVICE_CELLS, PINNED_CELLS};
use crate::reference::Memory;
use anyhow::{Result, ensure};
use clap::ValueEnum;
use core::ffi::{CStr, c_uint, c_void};
use core::ops::Deref;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, Ordering};
use detshare_cuda::Driver;
use detshare_cuda::types::{
    CUcontext, CUdevice_v1, CUdeviceptr, CUdeviceptr_v2, CUfunction, CUmodule, CUstream, CUstream_flags,
};

/// What is left out or done wrongly, to see that it shows.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub(crate) enum Break {
    /// `cuStreamWaitEvent` is not called
    WaitEvent,
    /// Work of the legacy stream goes to a non-blocking one
    LegacyOrder,
    /// Work of the threads' own default streams goes to a non-blocking one
    PerThreadOrder,
    /// Blocking streams are created as non-blocking ones
    BlockingFlag,
    /// `cuStreamWaitValue32` is not called
    WaitValue,
    /// `cuStreamSynchronize` is not called
    StreamSync,
    /// `cuEventSynchronize` is not called
    EventSync,
    /// `cuCtxSynchronize` is not called inside programs
    ContextSync,
    /// Nodes are added to graphs without what they wait for
    GraphEdges,
    /// A graph's kernels keep their parameters
    SetParameters,
    /// A graph's nodes stay enabled
    SetEnabled,
    /// Every eighth kernel is not launched
    Launch,
}

/// A handle or an address of the driver, which every thread may use.
#[derive(Clone, Copy)]
pub(crate) struct Handle<T>(pub(crate) T);

// SAFETY: the driver's handles and addresses may be used from any thread.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Handle<T> {}

/// The kernels, loaded.
pub(crate) struct Kernels {
    pub(crate) step: CUfunction,
    pub(crate) step_reads_first: CUfunction,
    pub(crate) mix: CUfunction,
}

/// Pinned host memory, mapped into the device.
pub(crate) struct Pinned {
    host: *mut u32,
    device: CUdeviceptr,
    count: usize,
}

/// The driver with the primary context of its first device. Derefs to the driver, so that it can be called.
pub(crate) struct Machine<'d> {
    driver: &'d Driver,
    pub(crate) context: CUcontext,
    pub(crate) kernels: Kernels,
    device: CUdeviceptr,
    pub(crate) pinned: Pinned,
    device_flags: CUdeviceptr,
    pinned_flags: Pinned,
    pub(crate) gates: Pinned,
    pub(crate) broken: Option<Break>,
    /// Where the work of default streams goes where their order is to be broken.
    pub(crate) elsewhere: CUstream,
}

// SAFETY: handles and addresses of the driver, which every thread may use; memory is reached by atomic operations.
unsafe impl Sync for Machine<'_> {}

impl Deref for Machine<'_> {
    type Target = Driver;

    fn deref(&self) -> &Driver {
        self.driver
    }
}

impl<'d> Machine<'d> {
    pub(crate) fn new(driver: &'d Driver, broken: Option<Break>) -> Result<Self> {
        ok!(driver, cuInit(0));
        let (mut device, mut context) = (CUdevice_v1(-1), CUcontext(null_mut()));
        ok!(driver, cuDeviceGet(&raw mut device, 0));
        ok!(driver, cuDevicePrimaryCtxRetain(&raw mut context, device));
        ok!(driver, cuCtxSetCurrent(context));
        let mut module = CUmodule(null_mut());
        ok!(driver, cuModuleLoadData(&raw mut module, MODULE.as_ptr().cast()));
        let kernels = Kernels {
            step: kernel(driver, module, c"step")?,
            step_reads_first: kernel(driver, module, c"step_reads_first")?,
            mix: kernel(driver, module, c"mix")?,
        };
        let mut elsewhere = CUstream(null_mut());
        ok!(driver, cuStreamCreate(&raw mut elsewhere, CUstream_flags::CU_STREAM_NON_BLOCKING.0));
        Ok(Self {
            driver,
            context,
            kernels,
            device: device_words(driver, MAX_DEVICE_CELLS)?,
            pinned: Pinned::new(driver, PINNED_CELLS)?,
            device_flags: device_words(driver, FLAGS / 2)?,
            pinned_flags: Pinned::new(driver, FLAGS - FLAGS / 2)?,
            gates: Pinned::new(driver, GATES)?,
            broken,
            elsewhere,
        })
    }

    /// Makes the context current in this thread too.
    pub(crate) fn enter(&self) -> Result<()> {
        ok!(self, cuCtxSetCurrent(self.context));
        Ok(())
    }

    /// Puts all memory into the state that a program starts from.
    pub(crate) fn reset(&self, memory: &Memory) -> Result<()> {
        ok!(self, cuMemcpyHtoD_v2(self.device, memory.device.as_ptr().cast(), size_of_val(memory.device.as_slice())));
        ok!(self, cuMemsetD32_v2(self.device_flags, 0, FLAGS / 2));
        memory.pinned.iter().enumerate().for_each(|(index, value)| self.pinned.set(index, *value));
        (0..FLAGS - FLAGS / 2).for_each(|index| self.pinned_flags.set(index, 0));
        (0..GATES).for_each(|index| self.gates.set(index, 0));
        ok!(self, cuCtxSynchronize());
        Ok(())
    }

    /// The device's cells, from the first on. Everything must be over.
    pub(crate) fn device_cells(&self, count: usize) -> Result<Vec<u32>> {
        let mut words = vec![0_u32; count];
        ok!(self, cuMemcpyDtoH_v2(words.as_mut_ptr().cast(), self.device, size_of_val(words.as_slice())));
        Ok(words)
    }

    /// The address of a cell that lives as long as the process.
    pub(crate) fn fixed(&self, cell: Cell) -> Option<CUdeviceptr> {
        match cell {
            Cell::Device(index) => Some(word_at(self.device, index)),
            Cell::Pinned(index) => Some(self.pinned.at(index)),
            Cell::Pool(_) => None,
        }
    }

    pub(crate) fn flag(&self, flag: usize) -> CUdeviceptr {
        match flag.checked_sub(FLAGS / 2) {
            None => word_at(self.device_flags, flag),
            Some(index) => self.pinned_flags.at(index),
        }
    }

    pub(crate) fn is_broken(&self, what: Break) -> bool {
        self.broken == Some(what)
    }
}

/// Loaded for good: loading at the first launch may wait for the whole context.
fn kernel(driver: &Driver, module: CUmodule, name: &CStr) -> Result<CUfunction> {
    let mut function = CUfunction(null_mut());
    ok!(driver, cuModuleGetFunction(&raw mut function, module, name.as_ptr()));
    ok!(driver, cuFuncLoad(function));
    Ok(function)
}

fn device_words(driver: &Driver, count: usize) -> Result<CUdeviceptr> {
    let mut address = CUdeviceptr_v2(0);
    ok!(driver, cuMemAlloc_v2(&raw mut address, count * size_of::<u32>()));
    Ok(address)
}

fn word_at(base: CUdeviceptr, index: usize) -> CUdeviceptr {
    CUdeviceptr_v2(base.0 + (index * size_of::<u32>()) as u64)
}

impl Pinned {
    fn new(driver: &Driver, count: usize) -> Result<Self> {
        /// `CU_MEMHOSTALLOC_DEVICEMAP`.
        const DEVICE_MAP: c_uint = 2;
        let (mut host, mut device) = (null_mut(), CUdeviceptr_v2(0));
        ok!(driver, cuMemHostAlloc(&raw mut host, count * size_of::<u32>(), DEVICE_MAP));
        ensure!(!host.is_null(), "cuMemHostAlloc gave no memory");
        ok!(driver, cuMemHostGetDevicePointer_v2(&raw mut device, host, 0));
        Ok(Self { host: host.cast(), device, count })
    }

    pub(crate) fn word(&self, index: usize) -> &'static AtomicU32 {
        assert!(index < self.count, "there are {} words", self.count);
        // SAFETY: within the allocation.
        let word = unsafe { self.host.add(index) };
        // SAFETY: aligned as the driver's pages are, never freed, and the host goes through here.
        unsafe { AtomicU32::from_ptr(word) }
    }

    pub(crate) fn get(&self, index: usize) -> u32 {
        self.word(index).load(Ordering::SeqCst)
    }

    pub(crate) fn set(&self, index: usize, value: u32) {
        self.word(index).store(value, Ordering::SeqCst);
    }

    /// The word's address on the device.
    pub(crate) fn at(&self, index: usize) -> CUdeviceptr {
        word_at(self.device, index)
    }

    /// The word's address on the host.
    pub(crate) fn address(&self, index: usize) -> *mut c_void {
        self.word(index).as_ptr().cast()
    }
}
