//! What launches in parts need, made ahead of time: counters that the GPU counts blocks by, words by which the host stops
//! it and those by which other tenants do, and events.
//!
//! The words lie in a page of our own that the driver is told of, and that stays when the context goes: whoever still writes
//! to it then does no harm.

use super::sight::{Owner, Sight};
use crate::call::is_ok;
use crate::tenant::Membership;
use core::ffi::{c_uint, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use detshare_board::StepPage;
use detshare_cuda::types::{CUdeviceptr, CUdeviceptr_v2, CUevent, CUevent_flags, CUresult, CUstream};

/// Launches in parts that can be under way at once.
const CONTROLS: usize = 64;
/// Counters lie apart: each is hammered by its kernel.
const APART: usize = 128;
/// `CU_MEMHOSTREGISTER_PORTABLE` and `CU_MEMHOSTREGISTER_DEVICEMAP`.
const PORTABLE_AND_MAPPED: c_uint = 1 | 2;

/// The bit of any word that kernels look at: ours, and other tenants' step words.
pub(super) const STOP: u32 = StepPage::BUSY;

/// What the host and the GPU tell each other of one launch.
#[repr(C, align(64))]
struct Words {
    /// [`STOP`] or 0.
    stop: AtomicU32,
    /// The counter, as it was when the kernel had ended.
    counted: AtomicU32,
}

/// All of one context.
pub(crate) struct Controls {
    words: *const [Words; CONTROLS],
    /// Where the GPU finds them.
    mapped: u64,
    counters: u64,
    events: [[CUevent; 3]; CONTROLS],
    /// Bits of those that nobody uses.
    free: AtomicU64,
    /// Bits of those that are still in a stream's queue although their launch has returned.
    resting: AtomicU64,
    sight: Sight,
}

// SAFETY: handles of the driver, which any thread may use, and atomics in a page that stays.
unsafe impl Send for Controls {}
// SAFETY: as above.
unsafe impl Sync for Controls {}

/// One launch's. It is given back when this is dropped.
pub(super) struct Control {
    controls: &'static Controls,
    number: usize,
}

impl Controls {
    /// Makes them in the current context, in which nothing runs: allocating may wait for the device.
    pub(crate) fn make() -> Result<&'static Self, String> {
        let failed = |what: &str, code: CUresult| Err(format!("{what}: error {}", code.0));
        let bytes = size_of::<[Words; CONTROLS]>();
        // SAFETY: a new mapping, at any address.
        let page = unsafe {
            libc::mmap(
                null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if page == libc::MAP_FAILED {
            return Err("there is no memory for control words".to_string());
        }
        let code = cu!(cuMemHostRegister_v2(page, bytes, PORTABLE_AND_MAPPED));
        if !is_ok(code) {
            // SAFETY: mapped above, and nobody knows of it.
            unsafe { libc::munmap(page, bytes) };
            return failed("the GPU cannot see control words", code);
        }
        let (mut mapped, mut counters) = (CUdeviceptr_v2(0), CUdeviceptr_v2(0));
        let mut code = cu!(cuMemHostGetDevicePointer_v2(&raw mut mapped, page, 0));
        if is_ok(code) {
            code = cu!(cuMemAlloc_v2(&raw mut counters, CONTROLS * APART));
        }
        let mut events = [[CUevent(null_mut()); 3]; CONTROLS];
        for event in events.as_flattened_mut() {
            if is_ok(code) {
                code = cu!(cuEventCreate(event, CUevent_flags::CU_EVENT_DEFAULT.0));
            }
        }
        let words = page.cast::<[Words; CONTROLS]>().cast_const();
        let free = if is_ok(code) { u64::MAX } else { 0 };
        let made = Self {
            words,
            mapped: mapped.0,
            counters: counters.0,
            events,
            free: AtomicU64::new(free),
            resting: AtomicU64::new(0),
            sight: Sight::default(),
        };
        if !is_ok(code) {
            made.destroy();
            return failed("no memory for counters", code);
        }
        Ok(Box::leak(Box::new(made)))
    }

    /// The context, which is current, is going.
    pub(crate) fn destroy(&self) {
        self.free.store(0, Ordering::Release);
        self.resting.store(0, Ordering::Release);
        for event in self.events.as_flattened().iter().filter(|event| !event.0.is_null()) {
            cu!(cuEventDestroy_v2(*event));
        }
        self.sight.end();
        if self.counters != 0 {
            cu!(cuMemFree_v2(CUdeviceptr_v2(self.counters)));
        }
        cu!(cuMemHostUnregister(self.words.cast_mut().cast::<c_void>()));
    }

    /// Looks who else is there. For our thread; the context is current, and `is_idle` says whether nothing of it runs.
    pub(super) fn look(&self, membership: &Membership, is_idle: &dyn Fn() -> bool) {
        self.sight.look(membership);
        self.sight.let_go_of_those_who_left(|| {
            self.wake_rested();
            self.free.load(Ordering::SeqCst) == u64::MAX && is_idle()
        });
    }

    /// One that nobody uses.
    pub(super) fn take(&'static self) -> Option<Control> {
        self.take_free().or_else(|| {
            self.wake_rested();
            self.take_free()
        })
    }

    fn take_free(&'static self) -> Option<Control> {
        let lowest = |free: u64| (free != 0).then(|| free & (free - 1));
        // Pairs with the release of whoever gave it back, and with `look`.
        let before = self.free.try_update(Ordering::SeqCst, Ordering::Relaxed, lowest).ok()?;
        Some(Control { controls: self, number: before.trailing_zeros() as usize })
    }

    /// Gives those back that have left their stream's queue.
    fn wake_rested(&self) {
        let resting = self.resting.load(Ordering::Acquire);
        for number in (0..CONTROLS).filter(|number| resting >> number & 1 != 0) {
            let bit = 1 << number;
            if cu!(cuEventQuery(self.events[number][0])) != CUresult::CUDA_ERROR_NOT_READY
                && self.resting.fetch_and(!bit, Ordering::AcqRel) & bit != 0
            {
                self.free.fetch_or(bit, Ordering::Release);
            }
        }
    }
}

impl Control {
    fn words(&self) -> &Words {
        // SAFETY: mapped in `make` and never unmapped since; the number is below `CONTROLS`.
        unsafe { &(*self.controls.words)[self.number] }
    }

    /// Before a launch: nobody has seen that it is to give way; of the first one the counter is 0 too.
    /// Where that cannot be done nothing may be launched: blocks that give way at once would be launched again without an end.
    pub(super) fn reset(&self, is_first: bool, at: CUstream) -> CUresult {
        let CUdeviceptr_v2(counter) = self.counter();
        // The number, whether to give way, and whether somebody looks.
        let (first, count) = if is_first { (0, 3) } else { (size_of::<u32>() as u64, 2) };
        cu!(cuMemsetD32Async(CUdeviceptr_v2(counter + first), 0, count, at))
    }

    /// Device address of the counter, and of the words behind it by which a kernel's blocks tell each other to give way.
    pub(super) fn counter(&self) -> CUdeviceptr {
        CUdeviceptr_v2(self.controls.counters + (self.number * APART) as u64)
    }

    /// Where the GPU finds the word that stops it.
    pub(super) fn flag(&self) -> u64 {
        self.controls.mapped + (self.number * size_of::<Words>()) as u64
    }

    /// Where the GPU finds the step word of that owner of a slot, if it can see it.
    pub(super) fn step_of(&self, owner: Owner) -> Option<u64> {
        self.controls.sight.find(owner)
    }

    pub(super) fn stop(&self, stop: bool) {
        // The GPU reads it when it comes by; there is nothing else to be seen with it.
        self.words().stop.store(if stop { STOP } else { 0 }, Ordering::Relaxed);
    }

    /// Where the counter's value goes.
    pub(super) fn counted_at(&self) -> *mut c_void {
        (&raw const self.words().counted).cast_mut().cast()
    }

    /// The counter, as it was when the kernel had ended. The driver has said that it has.
    pub(super) fn counted(&self) -> u32 {
        self.words().counted.load(Ordering::Acquire)
    }

    /// Its end, and two to measure with.
    pub(super) fn events(&self) -> [CUevent; 3] {
        self.controls.events[self.number]
    }

    /// Its launch returns before it has ended; its first event says when it has.
    pub(super) fn rest(self) {
        self.controls.resting.fetch_or(1 << self.number, Ordering::AcqRel);
        core::mem::forget(self);
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.controls.free.fetch_or(1 << self.number, Ordering::Release);
    }
}
