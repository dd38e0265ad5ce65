//! Host memory that the program brought and had registered.

use std::collections::BTreeMap;
use std::sync::{LazyLock, RwLock};

/// A registered range.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Registered {
    /// Its first address.
    pub(crate) start: u64,
    /// In bytes.
    pub(crate) size: u64,
    /// As given to `cuMemHostRegister`.
    pub(crate) flags: u32,
    /// The handle of the context that it was registered in.
    pub(crate) context: usize,
    /// Never used twice by anything registered.
    pub(crate) id: u64,
}

static REGISTERED: LazyLock<RwLock<BTreeMap<u64, Registered>>> = LazyLock::new(RwLock::default);

/// Adds a range; false where it overlaps one that is there.
pub(crate) fn register(range: Registered) -> bool {
    let mut all = REGISTERED.write().expect("no panic while it is held");
    let end = range.start.saturating_add(range.size);
    let overlaps = all.range(..end).next_back().is_some_and(|(start, other)| start + other.size > range.start);
    if !overlaps {
        all.insert(range.start, range);
    }
    !overlaps
}

/// Removes the range that starts there.
pub(crate) fn unregister(start: u64) -> bool {
    REGISTERED.write().expect("no panic while it is held").remove(&start).is_some()
}

/// Removes what was registered in a context that ends.
pub(crate) fn unregister_all_of(context: usize) {
    REGISTERED.write().expect("no panic while it is held").retain(|_, range| range.context != context);
}

/// The range that an address lies in.
pub(crate) fn registered(address: u64) -> Option<Registered> {
    let all = REGISTERED.read().expect("no panic while it is held");
    let (_, range) = all.range(..=address).next_back()?;
    (address - range.start < range.size).then_some(*range)
}
