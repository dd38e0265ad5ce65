//! Device memory.
//!
//! One large range of addresses is reserved when it is first needed; allocations are parts of it that are made
//! accessible. A device address is therefore a host address, and whether a kernel may touch it is a look into a
//! table of pages. Pinned host memory lies outside and is looked up in a list.

pub(crate) mod access;
mod arena;
mod host;
mod nearby;

mod constant;

pub(crate) use arena::{allocate, device_range, free, free_bytes};
pub(crate) use constant::{add_constant, is_constant, remove_constant};
pub(crate) use host::{HostRange, host_range, pin, unpin};
pub(crate) use nearby::{Whereabouts, nearby, whereabouts};
