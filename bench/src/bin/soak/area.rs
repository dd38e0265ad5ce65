//! Memory for the threads' copies, made once: it outlives whatever an ended thread has left in its streams.

use anyhow::Result;
use core::ptr::null_mut;
use detshare_bench::cu;
use detshare_cuda::Driver;
use detshare_cuda::types::CUdeviceptr_v2;

/// Bytes of each of the regions.
pub(crate) const REGION: usize = 4096;
/// On the device: one whose contents are checked, one that anything may write to.
const REGIONS: usize = 2;

/// All of it.
pub(crate) struct Areas {
    device: CUdeviceptr_v2,
    pinned: *mut u8,
}

// SAFETY: each thread uses an area of its own.
unsafe impl Send for Areas {}
// SAFETY: as above.
unsafe impl Sync for Areas {}

/// One thread's.
#[derive(Clone, Copy)]
pub(crate) struct Area {
    pub(crate) checked: CUdeviceptr_v2,
    pub(crate) scratch: CUdeviceptr_v2,
    /// What is copied to the device, and where it comes back.
    pub(crate) there: *mut u8,
    pub(crate) back: *mut u8,
}

impl Areas {
    /// For so many threads that stay, and one that comes and goes beside each.
    pub(crate) fn new(driver: &Driver, threads: u64) -> Result<Self> {
        let bytes = usize::try_from(threads)? * 2 * REGIONS * REGION;
        let (mut device, mut pinned) = (CUdeviceptr_v2(0), null_mut());
        cu!(driver, cuMemAlloc_v2(&raw mut device, bytes))?;
        cu!(driver, cuMemAllocHost_v2(&raw mut pinned, bytes))?;
        Ok(Self { device, pinned: pinned.cast() })
    }

    pub(crate) fn of(&self, thread: u64, stays: bool) -> Area {
        let number = 2 * thread + u64::from(!stays);
        let first = number * (REGIONS * REGION) as u64;
        let there = self.pinned.wrapping_add(usize::try_from(first).unwrap_or(0));
        Area {
            checked: CUdeviceptr_v2(self.device.0 + first),
            scratch: CUdeviceptr_v2(self.device.0 + first + REGION as u64),
            there,
            back: there.wrapping_add(REGION),
        }
    }
}
