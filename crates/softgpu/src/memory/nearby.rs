//! What lies near an address, for people who look for a mistake.

use super::space::space;
use super::{Kind, arena, covers, find};
use std::collections::VecDeque;
use std::sync::Mutex;

/// How many freed allocations are remembered: enough for what a kernel may still point to.
const REMEMBERED: usize = 1024;
/// Below this an address is one that was computed from NULL.
const NULL_PAGE: u64 = 64 << 10;

/// Where an access lies among the allocations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whereabouts {
    /// Within this one.
    Within { start: u64, size: u64 },
    /// Not, or not wholly, within one.
    Outside,
    /// Where it is not for us to say: memory that the program brought.
    Elsewhere,
}

/// Start and size, the oldest first.
static FREED: Mutex<VecDeque<(u64, u64)>> = Mutex::new(VecDeque::new());

/// Notes that an allocation is no more.
pub(super) fn note_freed(start: u64, size: u64) {
    let mut freed = FREED.lock().expect("no panic while it is held");
    if freed.len() == REMEMBERED {
        freed.pop_front();
    }
    freed.push_back((start, size));
}

/// The last one that was freed there.
fn freed_at(address: u64) -> Option<(u64, u64)> {
    let freed = FREED.lock().expect("no panic while it is held");
    freed.iter().rev().copied().find(|(start, size)| (*start..start + size).contains(&address))
}

/// Where an access of so many bytes lies.
pub(crate) fn whereabouts(address: u64, bytes: u64) -> Whereabouts {
    match find(address) {
        Some(range) if matches!(range.kind, Kind::Registered(_)) => Whereabouts::Elsewhere,
        Some(range) if covers(address, bytes) => Whereabouts::Within { start: range.start, size: range.size },
        Some(_) => Whereabouts::Outside,
        None if space().contains(address) => Whereabouts::Outside,
        None => Whereabouts::Elsewhere,
    }
}

/// What is at or near an address.
pub(crate) fn nearby(address: u64) -> String {
    if address < NULL_PAGE {
        return format!("that is {address} bytes from NULL");
    }
    if let Some(range) = find(address) {
        let (start, size) = (range.start, range.size);
        return format!("that is byte {} of the allocation of {size} bytes at {start:#x}", address - start);
    }
    if let Some((start, size)) = freed_at(address) {
        return format!(
            "that is byte {} of an allocation of {size} bytes at {start:#x} that was freed",
            address - start
        );
    }
    let [before, after] = arena::neighbours(address);
    let before = before.map(|(start, size)| {
        let beyond = (address - start).saturating_sub(size);
        (beyond, format!("{beyond} bytes after the end of the allocation of {size} bytes at {start:#x}"))
    });
    let after = after.map(|(start, size)| {
        let ahead = start - address;
        (ahead, format!("{ahead} bytes before the allocation of {size} bytes at {start:#x}"))
    });
    match before.into_iter().chain(after).min() {
        Some((_, words)) if space().contains(address) => format!("that is {words}"),
        _ => "that is no device memory: pageable host memory, or a wild pointer".to_string(),
    }
}
