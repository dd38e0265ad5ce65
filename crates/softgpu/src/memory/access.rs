//! Which addresses a kernel may touch.

use super::{arena, host};

/// Whether kernels may access all bytes from `address` on. Where they may, the address is valid as a host
/// pointer to that many bytes.
#[inline]
pub(crate) fn is_mapped(address: u64, bytes: u64) -> bool {
    match arena::is_accessible(address, bytes) {
        Some(accessible) => accessible,
        // Unit tests of the execution core hand it memory of their own.
        None => {
            cfg!(test) || host::host_range(address).is_some_and(|range| address - range.start + bytes <= range.size)
        }
    }
}
