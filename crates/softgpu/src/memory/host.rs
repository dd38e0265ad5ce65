//! Pinned host memory: what the program allocated or registered through the driver.

use std::collections::BTreeMap;
use std::sync::{LazyLock, RwLock};

/// A pinned range.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostRange {
    /// Its first address.
    pub(crate) start: u64,
    /// In bytes.
    pub(crate) size: u64,
    /// As given to `cuMemHostAlloc` or `cuMemHostRegister`.
    pub(crate) flags: u32,
    /// Whether the program brought the memory.
    pub(crate) registered: bool,
}

static PINNED: LazyLock<RwLock<BTreeMap<u64, HostRange>>> = LazyLock::new(RwLock::default);

/// Adds a range; false where it overlaps one that is there.
pub(crate) fn pin(range: HostRange) -> bool {
    let mut pinned = PINNED.write().expect("no panic while it is held");
    let end = range.start.saturating_add(range.size);
    let overlaps = pinned.range(..end).next_back().is_some_and(|(start, other)| start + other.size > range.start);
    if !overlaps {
        pinned.insert(range.start, range);
    }
    !overlaps
}

/// Removes the range that starts there.
pub(crate) fn unpin(start: u64, registered: bool) -> Option<HostRange> {
    let mut pinned = PINNED.write().expect("no panic while it is held");
    if pinned.get(&start)?.registered != registered {
        return None;
    }
    pinned.remove(&start)
}

/// The range that an address lies in.
pub(crate) fn host_range(address: u64) -> Option<HostRange> {
    let pinned = PINNED.read().expect("no panic while it is held");
    let (_, range) = pinned.range(..=address).next_back()?;
    (address - range.start < range.size).then_some(*range)
}
