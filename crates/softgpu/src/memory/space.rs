//! The addresses of all device memory: one reserved range, backed by one file without a name.
//!
//! The range has a region for each device and one more for what lies on none. The file grows only where memory is
//! touched, and being a file, other processes can map parts of it. Parts of the last region can be overlaid with
//! other files: physical memory that a program maps itself, and memory of other processes.

use super::valgrind;
use crate::device::settings;
use core::sync::atomic::{AtomicU8, Ordering};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

/// More than the largest device has, so that fragments do not matter; half of it again and again where the system
/// or a memory checker does not have so many addresses.
const MOST_IN_REGION: u64 = 512 << 30;
const LEAST_IN_REGION: u64 = 1 << 30;
/// Faults are noticed to such a distance.
pub(crate) const PAGE: u64 = 64 << 10;
/// Memory goes back to the system in such pieces.
pub(super) const SYSTEM_PAGE: u64 = 4 << 10;
/// Physical memory comes in such pieces, as on a GPU.
pub(crate) const GRANULARITY: u64 = 2 << 20;
/// The access that a page gives when every device has it.
pub(crate) const ALL: u8 = u8::MAX;

pub(super) struct Space {
    pub(super) base: u64,
    /// Bytes of one region.
    pub(super) region: u64,
    /// One byte a page: a bit for each device that may touch it.
    access: Box<[AtomicU8]>,
    file: Option<OwnedFd>,
}

pub(super) fn space() -> &'static Space {
    static SPACE: OnceLock<Space> = OnceLock::new();
    SPACE.get_or_init(|| {
        let mut region = MOST_IN_REGION;
        loop {
            if let Some(space) = Space::reserve(region) {
                return space;
            }
            assert!(region > LEAST_IN_REGION, "no room for device addresses");
            region /= 2;
        }
    })
}

impl Space {
    /// Regions of so many bytes; None where there is no room.
    fn reserve(region: u64) -> Option<Self> {
        let regions = settings().devices as u64 + 1;
        let bytes = region * regions;
        let whole = usize::try_from(bytes + GRANULARITY).ok()?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: asks for a fresh range that nothing else uses.
        let start = unsafe { libc::mmap(core::ptr::null_mut(), whole, libc::PROT_NONE, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        let base = (start.expose_provenance() as u64).next_multiple_of(GRANULARITY);
        let space = Self { base, region, access: no_access(bytes / PAGE), file: file(bytes) };
        if space.restore(base, bytes) {
            return Some(space);
        }
        // SAFETY: the range that was just reserved, which nobody has seen.
        unsafe { libc::munmap(start, whole) };
        None
    }

    /// The file behind the memory.
    pub(super) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(std::os::fd::AsFd::as_fd)
    }

    /// Whether an address lies in the range.
    pub(super) fn contains(&self, address: u64) -> bool {
        address.checked_sub(self.base).is_some_and(|offset| offset / PAGE < self.access.len() as u64)
    }

    /// The space's own memory at these addresses, which hold nothing; false where the system refuses.
    pub(super) fn restore(&self, address: u64, bytes: u64) -> bool {
        let restored = self.map(address, bytes, self.file(), address - self.base);
        if restored {
            valgrind::not_in_use(address, bytes);
        }
        restored
    }

    /// Another file's memory at these addresses; false where the system refuses.
    pub(super) fn overlay(&self, address: u64, bytes: u64, file: BorrowedFd<'_>, offset: u64) -> bool {
        self.map(address, bytes, Some(file), offset)
    }

    fn map(&self, address: u64, bytes: u64, file: Option<BorrowedFd<'_>>, offset: u64) -> bool {
        let kind = if file.is_some() { libc::MAP_SHARED } else { libc::MAP_SHARED | libc::MAP_ANONYMOUS };
        let flags = kind | libc::MAP_NORESERVE | libc::MAP_FIXED;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let (pointer, size) = span(address, bytes);
        let Ok(offset) = libc::off_t::try_from(offset) else { return false };
        let file = file.map_or(-1, |file| file.as_raw_fd());
        // SAFETY: addresses of the reserved range, which only the driver hands out.
        unsafe { libc::mmap(pointer, size, access, flags, file, offset) != libc::MAP_FAILED }
    }

    /// Gives the memory of whole system pages back to the system; they are zero when they are touched again.
    pub(super) fn discard(start: u64, end: u64) {
        let (start, end) = (start.next_multiple_of(SYSTEM_PAGE), end / SYSTEM_PAGE * SYSTEM_PAGE);
        if start < end {
            let (pointer, size) = span(start, end - start);
            // SAFETY: pages of the reserved range whose content no one needs any more.
            unsafe { libc::madvise(pointer, size, libc::MADV_REMOVE) };
        }
    }

    /// The access bytes of the pages that the bytes touch.
    pub(super) fn pages(&self, address: u64, bytes: u64) -> &[AtomicU8] {
        let page = |address: u64| usize::try_from((address - self.base) / PAGE).unwrap_or(usize::MAX);
        let last = page(address.saturating_add(bytes.saturating_sub(1)));
        self.access.get(page(address)..=last).unwrap_or_default()
    }

    /// Whether the calling thread's device may touch all pages that the bytes touch; None outside of the range.
    #[inline]
    pub(super) fn is_accessible(&self, address: u64, bytes: u64) -> Option<bool> {
        let offset = address.checked_sub(self.base)?;
        let first = usize::try_from(offset / PAGE).ok()?;
        if first >= self.access.len() {
            return None;
        }
        let last = usize::try_from(offset.saturating_add(bytes.saturating_sub(1)) / PAGE).ok()?;
        let pages = self.access.get(first..=last);
        Some(pages.is_some_and(|pages| pages.iter().all(|page| super::access::allows(page.load(Ordering::Acquire)))))
    }
}

/// Zeroed memory that takes no room before it is written to.
fn no_access(pages: u64) -> Box<[AtomicU8]> {
    let bytes = vec![0_u8; usize::try_from(pages).expect("a 64-bit process")].into_boxed_slice();
    // SAFETY: an atomic byte has the layout of a byte, and the box is handed over whole.
    unsafe { Box::from_raw(Box::into_raw(bytes) as *mut [AtomicU8]) }
}

/// A file of that size without a name, which stays as large as it is: who maps it can rely on that.
pub(crate) fn memory_file(name: &core::ffi::CStr, bytes: u64) -> Option<OwnedFd> {
    // SAFETY: a terminated name.
    let file = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if file < 0 {
        return None;
    }
    // SAFETY: just opened, and owned by nobody else.
    let file = unsafe { OwnedFd::from_raw_fd(file) };
    // SAFETY: an open file.
    let sized = unsafe { libc::ftruncate(file.as_raw_fd(), libc::off_t::try_from(bytes).ok()?) } == 0;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: an open file that may be sealed.
    let sealed = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } == 0;
    (sized && sealed).then_some(file)
}

/// Where there is no such file, memory is as good, but other processes cannot map it.
fn file(bytes: u64) -> Option<OwnedFd> {
    memory_file(c"softgpu-memory", bytes)
}

fn span(address: u64, bytes: u64) -> (*mut libc::c_void, usize) {
    let whole = |number: u64| usize::try_from(number).expect("a 64-bit process");
    (core::ptr::with_exposed_provenance_mut(whole(address)), whole(bytes))
}
