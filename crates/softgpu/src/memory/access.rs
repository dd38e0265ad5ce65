//! Which addresses a kernel may touch.

use super::{host, space};
use core::cell::Cell;

thread_local! {
    /// The bit of the device that the calling thread works for; all of them for the program's own threads.
    static DEVICE: Cell<u8> = const { Cell::new(space::ALL) };
}

/// From now on the calling thread works for that device.
pub(crate) fn work_for(device: usize) {
    DEVICE.set(bit(device));
}

/// The bit of a device in the access of a page.
pub(crate) fn bit(device: usize) -> u8 {
    1_u8.checked_shl(u32::try_from(device).unwrap_or(u32::MAX)).unwrap_or(0)
}

/// Whether a page with that access may be touched. With one device, all pages are everyone's or nobody's.
#[inline]
pub(super) fn allows(access: u8) -> bool {
    access == space::ALL || (access != 0 && allows_this_device(access))
}

#[cold]
fn allows_this_device(access: u8) -> bool {
    access & DEVICE.get() != 0
}

/// Whether kernels may access all bytes from `address` on. Where they may, the address is valid as a host
/// pointer to that many bytes.
#[inline]
pub(crate) fn is_mapped(address: u64, bytes: u64) -> bool {
    match space::space().is_accessible(address, bytes) {
        Some(accessible) => accessible,
        // Unit tests of the execution core hand it memory of their own.
        None => cfg!(test) || host::registered(address).is_some_and(|it| address - it.start + bytes <= it.size),
    }
}
