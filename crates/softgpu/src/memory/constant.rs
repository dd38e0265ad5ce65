//! Which parts of device memory hold constants.

use std::collections::BTreeMap;
use std::sync::RwLock;

/// Size by address.
static CONSTANTS: RwLock<BTreeMap<u64, u64>> = RwLock::new(BTreeMap::new());

pub(crate) fn add_constant(address: u64, size: u64) {
    CONSTANTS.write().expect("no panic while it is held").insert(address, size);
}

pub(crate) fn remove_constant(address: u64) {
    CONSTANTS.write().expect("no panic while it is held").remove(&address);
}

/// Whether a constant lies at that address.
pub(crate) fn is_constant(address: u64) -> bool {
    let constants = CONSTANTS.read().expect("no panic while it is held");
    constants.range(..=address).next_back().is_some_and(|(start, size)| address - start < *size)
}
