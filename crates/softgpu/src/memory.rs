//! Memory that the driver knows: on devices, managed, pinned, mapped by the program, and of other processes.
//!
//! One large range of addresses is reserved when it is first needed (`space`); allocations are parts of it
//! (`arena`). A device address is therefore a host address, and whether a kernel may touch it is a look into a table
//! of pages. Only memory that the program brought and registered lies outside, in a list (`host`).

pub(crate) mod access;
mod arena;
mod constant;
mod host;
pub(crate) mod managed;
mod nearby;
pub(crate) mod physical;
pub(crate) mod shared;
mod space;
mod valgrind;

pub(crate) use arena::{Kind, Range, Wanted, change, free_bytes, new_id, set_access, take};
pub(crate) use constant::{add_constant, is_constant, remove_constant};
pub(crate) use host::{Registered, register, unregister, unregister_all_of};
pub(crate) use nearby::{Whereabouts, nearby, whereabouts};
pub(crate) use space::{ALL, GRANULARITY, memory_file};

use crate::context;
use core::sync::atomic::{AtomicUsize, Ordering};

/// The most devices that there can be: each has a bit in the access of a page.
pub(crate) const MOST_DEVICES: usize = 8;

/// Memory on the device of the calling thread's context; None where there is not enough.
pub(crate) fn allocate(bytes: u64) -> Option<u64> {
    allocate_as(Kind::Device, bytes)
}

/// Memory on that device for a library, whose kernels may run on any.
pub(crate) fn allocate_for_all(bytes: u64) -> Option<u64> {
    allocate_as(Kind::Library, bytes)
}

/// Memory that the host uses, too.
pub(crate) fn allocate_managed(bytes: u64) -> Option<u64> {
    allocate_as(Kind::Managed, bytes)
}

fn allocate_as(kind: Kind, bytes: u64) -> Option<u64> {
    let (device, context) = context::top().map_or((0, 0), |context| (context.device, context.handle));
    take(&Wanted { bytes, kind, device, context, align: 1, access: ALL }).map(|range| range.start)
}

/// Gives back what begins at that address; false where there is nothing.
pub(crate) fn free(address: u64) -> bool {
    // Memory of others is mapped by whole pages, and may begin within one.
    let start = arena::find(address).filter(|range| range.kind == Kind::Imported).map_or(address, |range| range.start);
    let Some(range) = arena::free(start) else { return false };
    if range.kind == Kind::Managed {
        managed::forget(&range);
    }
    true
}

/// What an address points to, as far as the driver knows it; reserved addresses point to nothing.
pub(crate) fn find(address: u64) -> Option<Range> {
    match arena::find(address) {
        Some(range) if range.kind == Kind::Reserved => physical::find(address),
        Some(range) => Some(range),
        None => host::registered(address).map(|it| Range {
            start: it.start,
            size: it.size,
            kind: Kind::Registered(it.flags),
            device: context::find(it.context).map_or(0, |context| context.device),
            context: it.context,
            id: it.id,
            synchronous: false,
            access: ALL,
        }),
    }
}

/// The reserved addresses around an address: their start and size.
pub(crate) fn reservation(address: u64) -> Option<Range> {
    arena::find(address).filter(|range| range.kind == Kind::Reserved)
}

impl Range {
    /// Whether it is the host's own memory.
    pub(crate) fn is_host(&self) -> bool {
        matches!(self.kind, Kind::Host(_) | Kind::Registered(_))
    }
}

/// Whether all bytes from that address on are memory that the driver knows and devices may touch. Neighbours count as
/// one where the program has mapped them so.
pub(crate) fn covers(address: u64, bytes: u64) -> bool {
    let Some(end) = address.checked_add(bytes) else { return false };
    let mut next = address;
    while let Some(range) = find(next) {
        if end <= range.end() {
            return access::is_mapped(address, bytes);
        }
        if range.kind != Kind::Mapped {
            return false;
        }
        next = range.end();
    }
    false
}

/// How many contexts on one device (the row) may touch what lies on another (the column).
static PEERS: [[AtomicUsize; MOST_DEVICES]; MOST_DEVICES] =
    [const { [const { AtomicUsize::new(0) }; MOST_DEVICES] }; MOST_DEVICES];

/// A context on `device` may touch what lies on `other`, or no longer.
pub(crate) fn set_peer(device: usize, other: usize, enabled: bool) {
    let count = &PEERS[device][other];
    if enabled {
        count.fetch_add(1, Ordering::Relaxed)
    } else {
        count.fetch_sub(1, Ordering::Relaxed)
    };
    let may = |device: &usize| PEERS[*device][other].load(Ordering::Relaxed) > 0;
    let others = (0..MOST_DEVICES).filter(may).fold(0, |all, device| all | access::bit(device));
    arena::set_peers(other, others | access::bit(other));
}
