//! The reserved range and the allocations in it.

use crate::device::settings;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::{Mutex, OnceLock};

/// More than the largest device has, so that fragments do not matter; half of it again and again where the system
/// or a memory checker does not have so many addresses.
const MOST_RESERVED: u64 = 512 << 30;
const LEAST_RESERVED: u64 = 1 << 30;
/// Allocations begin at such addresses, as on a GPU; and faults are noticed to such a distance.
pub(crate) const PAGE: u64 = 64 << 10;
/// Small allocations share a page.
const ALIGN: u64 = 512;

struct Arena {
    base: u64,
    /// One byte a page: how many allocations lie in it, up to a number that is never reached by counting.
    pages: Box<[AtomicU8]>,
    allocations: Mutex<Allocations>,
    used: AtomicU64,
}

#[derive(Default)]
struct Allocations {
    /// By address: the size that was asked for.
    taken: BTreeMap<u64, u64>,
    /// Free parts, size by address; never two neighbours.
    free: BTreeMap<u64, u64>,
}

fn arena() -> &'static Arena {
    static ARENA: OnceLock<Arena> = OnceLock::new();
    ARENA.get_or_init(|| {
        let (mapped, reserved) = reserve();
        let base = mapped.next_multiple_of(PAGE);
        let end = (mapped + reserved) / PAGE * PAGE;
        let mut allocations = Allocations::default();
        allocations.free.insert(base, end - base);
        Arena {
            base,
            pages: (0..(end - base) / PAGE).map(|_| AtomicU8::new(0)).collect(),
            allocations: Mutex::new(allocations),
            used: AtomicU64::new(0),
        }
    })
}

/// A range of addresses without memory behind them: its start and size.
fn reserve() -> (u64, u64) {
    let mut size = MOST_RESERVED;
    loop {
        let bytes = usize::try_from(size).expect("a 64-bit process");
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: asks for a fresh range that nothing else uses.
        let start = unsafe { libc::mmap(core::ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
        if start != libc::MAP_FAILED {
            return (start.expose_provenance() as u64, size);
        }
        assert!(size > LEAST_RESERVED, "no room for device addresses");
        size /= 2;
    }
}

/// Memory on the device; None where there is not enough.
pub(crate) fn allocate(bytes: u64) -> Option<u64> {
    let arena = arena();
    let size = bytes.max(1).checked_next_multiple_of(ALIGN)?;
    let mut allocations = arena.allocations.lock().expect("no panic while it is held");
    if arena.used.load(Ordering::Relaxed).checked_add(size)? > settings().memory {
        return None;
    }
    let footprint = footprint(bytes.max(1))?;
    let (address, room) = find_free(&allocations.free, footprint)?;
    allocations.free.remove(&address);
    if room > footprint {
        allocations.free.insert(address + footprint, room - footprint);
    }
    allocations.taken.insert(address, bytes.max(1));
    arena.used.fetch_add(size, Ordering::Relaxed);
    // Neighbours that share the first or last page are accessible already, and stay so.
    let pages = pages(arena, address, size);
    protect(arena, &pages, libc::PROT_READ | libc::PROT_WRITE);
    for page in pages {
        // More than the counter holds cannot share a page: 64 KiB hold 128 of 512 bytes.
        arena.pages[page].fetch_add(1, Ordering::Release);
    }
    Some(address)
}

/// Gives back an allocation by its address; false where there is none.
pub(crate) fn free(address: u64) -> bool {
    let arena = arena();
    let mut allocations = arena.allocations.lock().expect("no panic while it is held");
    let Some(asked) = allocations.taken.remove(&address) else { return false };
    let size = asked.next_multiple_of(ALIGN);
    arena.used.fetch_sub(size, Ordering::Relaxed);
    let mut empty = pages(arena, address, size);
    for page in empty.clone() {
        arena.pages[page].fetch_sub(1, Ordering::Release);
    }
    let in_use = |page: usize| arena.pages[page].load(Ordering::Relaxed) != 0;
    if in_use(*empty.start()) {
        empty = empty.start() + 1..=*empty.end();
    }
    if !empty.is_empty() && in_use(*empty.end()) {
        empty = *empty.start()..=empty.end().saturating_sub(1);
    }
    discard(arena, &empty);
    super::nearby::note_freed(address, asked);
    insert_free(&mut allocations.free, address, footprint(asked).unwrap_or(size));
    true
}

/// Joins the part with its free neighbours.
fn insert_free(free: &mut BTreeMap<u64, u64>, mut address: u64, mut size: u64) {
    if let Some(after) = free.remove(&(address + size)) {
        size += after;
    }
    if let Some((&before, &room)) = free.range(..address).next_back()
        && before + room == address
    {
        free.remove(&before);
        address = before;
        size += room;
    }
    free.insert(address, size);
}

/// The allocation that an address lies in: its start and size.
pub(crate) fn device_range(address: u64) -> Option<(u64, u64)> {
    let allocations = arena().allocations.lock().expect("no panic while it is held");
    let (&start, &size) = allocations.taken.range(..=address).next_back()?;
    (address < start + size).then_some((start, size))
}

/// The allocations before and after an address that lies in none: start and size.
pub(super) fn neighbours(address: u64) -> [Option<(u64, u64)>; 2] {
    let allocations = arena().allocations.lock().expect("no panic while it is held");
    let pair = |(start, size): (&u64, &u64)| (*start, *size);
    let before = allocations.taken.range(..=address).next_back().map(pair);
    [before, allocations.taken.range(address..).next().map(pair)]
}

/// What an allocation takes of the range. Where kernels are checked there is a gap behind each, so that one that goes
/// beyond its end does not come to the next.
fn footprint(size: u64) -> Option<u64> {
    let gap = if settings().check.is_some() { ALIGN } else { 0 };
    size.checked_next_multiple_of(ALIGN)?.checked_add(gap)
}

/// A free part with so much room. Where kernels are checked it is as far from what was freed as can be, so that one that
/// uses freed memory does not come to something new.
fn find_free(free: &BTreeMap<u64, u64>, size: u64) -> Option<(u64, u64)> {
    let fits = |(address, room): (&u64, &u64)| (*room >= size).then_some((*address, *room));
    if settings().check.is_some() { free.iter().rev().find_map(fits) } else { free.iter().find_map(fits) }
}

pub(crate) fn free_bytes() -> u64 {
    settings().memory.saturating_sub(arena().used.load(Ordering::Relaxed))
}

/// Whether all pages that the bytes touch hold allocations; None outside of the range.
pub(super) fn is_accessible(address: u64, bytes: u64) -> Option<bool> {
    let arena = arena();
    let offset = address.checked_sub(arena.base)?;
    let first = usize::try_from(offset / PAGE).ok()?;
    if first >= arena.pages.len() {
        return None;
    }
    let last = usize::try_from(offset.saturating_add(bytes.saturating_sub(1)) / PAGE).ok()?;
    let pages = arena.pages.get(first..=last);
    Some(pages.is_some_and(|pages| pages.iter().all(|page| page.load(Ordering::Acquire) != 0)))
}

fn pages(arena: &Arena, address: u64, size: u64) -> RangeInclusive<usize> {
    let page = |address: u64| usize::try_from((address - arena.base) / PAGE).expect("a 64-bit process");
    page(address)..=page(address + size - 1)
}

fn protect(arena: &Arena, pages: &RangeInclusive<usize>, access: libc::c_int) {
    let (pointer, size) = span(arena, pages);
    // SAFETY: pages of the reserved range.
    let failed = unsafe { libc::mprotect(pointer, size, access) };
    assert!(failed == 0, "the system has no more room for mappings");
}

/// Gives the pages' memory back to the system and makes them inaccessible.
fn discard(arena: &Arena, pages: &RangeInclusive<usize>) {
    if pages.is_empty() {
        return;
    }
    let (pointer, size) = span(arena, pages);
    // SAFETY: pages of the reserved range in which no allocation lies.
    unsafe { libc::madvise(pointer, size, libc::MADV_DONTNEED) };
    protect(arena, pages, libc::PROT_NONE);
}

fn span(arena: &Arena, pages: &RangeInclusive<usize>) -> (*mut libc::c_void, usize) {
    let whole = |number: u64| usize::try_from(number).expect("a 64-bit process");
    let start = whole(arena.base + *pages.start() as u64 * PAGE);
    (core::ptr::with_exposed_provenance_mut(start), (pages.end() - pages.start() + 1) * whole(PAGE))
}
