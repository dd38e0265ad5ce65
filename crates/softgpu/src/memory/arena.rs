//! What lies where in the reserved range.

use super::access::bit;
use super::space::{ALL, PAGE, SYSTEM_PAGE, Space, space};
use super::valgrind;
use crate::device::settings;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, OnceLock};

/// Small allocations share a page.
const ALIGN: u64 = 512;

/// What a range is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The program's or a module's own on a device.
    Device,
    /// A library's on a device, which kernels on all devices share.
    Library,
    /// From the pool with that handle.
    Pool(usize),
    /// The host's and every device's.
    Managed,
    /// Pinned host memory with the flags that it was asked for with.
    Host(u32),
    /// The program's own host memory, with the flags that it was registered with.
    Registered(u32),
    /// Of another process.
    Imported,
    /// Addresses only.
    Reserved,
    /// Physical memory that the program has mapped to reserved addresses.
    Mapped,
}

/// A part of the address space.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range {
    pub(crate) start: u64,
    /// As asked for.
    pub(crate) size: u64,
    pub(crate) kind: Kind,
    /// Where it lies; for host and managed memory, the device that it was asked for on.
    pub(crate) device: usize,
    /// The handle of the context that it was asked for in.
    pub(crate) context: usize,
    /// Never used twice.
    pub(crate) id: u64,
    /// Whether the program wants synchronous copies of it to be wholly synchronous.
    pub(crate) synchronous: bool,
    /// The devices that may touch it.
    pub(crate) access: u8,
}

impl Range {
    pub(crate) fn end(&self) -> u64 {
        self.start + self.size
    }

    /// The size with what it is rounded up by.
    fn rounded(&self) -> u64 {
        self.size.next_multiple_of(align(self.kind))
    }

    /// With the gap behind it, where there are gaps.
    fn footprint(&self) -> u64 {
        self.rounded() + gap(self.kind)
    }
}

/// What is not on a device is apart from everything else: it is mapped, advised and protected page by page.
fn align(kind: Kind) -> u64 {
    if is_on_device(kind) { ALIGN } else { PAGE }
}

/// Where kernels are checked there is a gap behind everything, so that one that goes beyond its end does not come to the
/// next.
fn gap(kind: Kind) -> u64 {
    if settings().check.is_some() { align(kind) } else { 0 }
}

fn is_on_device(kind: Kind) -> bool {
    matches!(kind, Kind::Device | Kind::Library | Kind::Pool(_))
}

#[derive(Default)]
struct Region {
    taken: BTreeMap<u64, Range>,
    /// Free parts, size by address; never two neighbours.
    free: BTreeMap<u64, u64>,
}

struct Arena {
    /// One for each device, and one for what is on none.
    regions: Vec<Mutex<Region>>,
    /// Bytes of each device that are taken.
    used: Vec<AtomicU64>,
    /// For each device, who may touch what is allocated there.
    peers: Vec<AtomicU8>,
}

fn arena() -> &'static Arena {
    static ARENA: OnceLock<Arena> = OnceLock::new();
    ARENA.get_or_init(|| {
        let space = space();
        let devices = settings().devices;
        let region = |number: usize| {
            let start = space.base + number as u64 * space.region;
            Mutex::new(Region { taken: BTreeMap::new(), free: BTreeMap::from([(start, space.region)]) })
        };
        Arena {
            regions: (0..=devices).map(region).collect(),
            used: (0..devices).map(|_| AtomicU64::new(0)).collect(),
            peers: (0..devices).map(|device| AtomicU8::new(everyone_is_all(bit(device)))).collect(),
        }
    })
}

/// The access that lets all devices in has one form.
pub(super) fn everyone_is_all(access: u8) -> u8 {
    let everyone = (0..settings().devices).fold(0, |all, device| all | bit(device));
    if access & everyone == everyone { ALL } else { access }
}

fn region(number: usize) -> MutexGuard<'static, Region> {
    arena().regions[number].lock().expect("no panic while it is held")
}

/// The region that an address lies in.
fn region_of(address: u64) -> Option<MutexGuard<'static, Region>> {
    let space = space();
    let number = usize::try_from(address.checked_sub(space.base)? / space.region).ok()?;
    (number <= settings().devices).then(|| region(number))
}

/// What to allocate.
pub(crate) struct Wanted {
    pub(crate) bytes: u64,
    pub(crate) kind: Kind,
    pub(crate) device: usize,
    pub(crate) context: usize,
    /// A power of two; the kind may need more.
    pub(crate) align: u64,
    /// The devices that may touch it, where the kind leaves that open.
    pub(crate) access: u8,
}

/// A number for what pointers point to.
pub(crate) fn new_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Takes a part of the address space, with memory behind it unless it is only reserved; None where there is not
/// enough.
pub(crate) fn take(wanted: &Wanted) -> Option<Range> {
    let on_device = is_on_device(wanted.kind);
    let size = wanted.bytes.max(1).checked_next_multiple_of(align(wanted.kind))?;
    if on_device && !charge(wanted.device, size) {
        return None;
    }
    let number = if on_device { wanted.device } else { settings().devices };
    let mut region = region(number);
    let footprint = size.checked_add(gap(wanted.kind))?;
    let Some(start) = region.find_room(footprint, wanted.align.max(align(wanted.kind))) else {
        if on_device {
            discharge(wanted.device, size);
        }
        return None;
    };
    let access = match wanted.kind {
        Kind::Device => arena().peers[wanted.device].load(Ordering::Relaxed),
        _ => everyone_is_all(wanted.access),
    };
    let range = Range {
        start,
        size: wanted.bytes.max(1),
        kind: wanted.kind,
        device: wanted.device,
        context: wanted.context,
        id: new_id(),
        synchronous: false,
        access,
    };
    region.taken.insert(start, range);
    if wanted.kind != Kind::Reserved {
        valgrind::in_use(start, size);
    }
    add_access(start, size, access);
    Some(range)
}

/// Takes bytes of a device's memory into account; false where it has not so many.
pub(super) fn charge(device: usize, bytes: u64) -> bool {
    let used = &arena().used[device];
    let most = settings().memory;
    let more = |now: u64| now.checked_add(bytes).filter(|then| *then <= most);
    // A counter: nothing is read by it.
    used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
}

pub(super) fn discharge(device: usize, bytes: u64) {
    arena().used[device].fetch_sub(bytes, Ordering::Relaxed);
}

/// Gives a part back by its first address, with the memory behind it; None where none begins there.
pub(crate) fn free(address: u64) -> Option<Range> {
    let mut region = region_of(address)?;
    let range = region.taken.remove(&address)?;
    let (size, footprint) = (range.rounded(), range.footprint());
    super::nearby::note_freed(address, range.size);
    if is_on_device(range.kind) {
        discharge(range.device, size);
    }
    region.remove_access(address, size);
    valgrind::not_in_use(address, size);
    if range.kind == Kind::Imported && !space().restore(address, size) {
        // The addresses stay as they are, and are not used again.
        return Some(range);
    }
    let (start, room) = region.insert_free(address, footprint);
    // System pages at the edges may hold what lies beside it.
    let (first, last) = (address / SYSTEM_PAGE * SYSTEM_PAGE, (address + size).next_multiple_of(SYSTEM_PAGE));
    Space::discard(start.max(first), (start + room).min(last));
    Some(range)
}

/// The part that an address lies in.
pub(super) fn find(address: u64) -> Option<Range> {
    let region = region_of(address)?;
    let (_, range) = region.taken.range(..=address).next_back()?;
    (address < range.end()).then_some(*range)
}

/// The parts before and after an address that lies in none: start and size.
pub(super) fn neighbours(address: u64) -> [Option<(u64, u64)>; 2] {
    let Some(region) = region_of(address) else { return [None, None] };
    let pair = |(start, range): (&u64, &Range)| (*start, range.size);
    [region.taken.range(..=address).next_back().map(pair), region.taken.range(address..).next().map(pair)]
}

/// Changes what is known of the part that begins there.
pub(crate) fn change(address: u64, change: impl FnOnce(&mut Range)) {
    if let Some(mut region) = region_of(address)
        && let Some(range) = region.taken.get_mut(&address)
    {
        change(range);
    }
}

pub(crate) fn free_bytes(device: usize) -> u64 {
    settings().memory.saturating_sub(arena().used[device].load(Ordering::Relaxed))
}

/// From now on these devices, and no others, may touch what lies on the device as [`Kind::Device`].
pub(super) fn set_peers(device: usize, access: u8) {
    let access = everyone_is_all(access);
    arena().peers[device].store(access, Ordering::Relaxed);
    set_access(device, |range| range.kind == Kind::Device, access);
}

/// Gives the chosen parts on a device another access.
pub(crate) fn set_access(device: usize, chosen: impl Fn(&Range) -> bool, access: u8) {
    let mut region = region(device);
    region.taken.values_mut().filter(|range| chosen(range)).for_each(|range| range.access = access);
    // A page that several parts share is written once, with what all of them allow: a kernel may look at it.
    let mut last: Option<(&AtomicU8, u8)> = None;
    for range in region.taken.values() {
        for page in space().pages(range.start, range.rounded()) {
            let before = last.take_if(|(other, _)| core::ptr::eq(*other, page)).map_or(0, |(_, access)| access);
            if let Some((other, access)) = last.replace((page, before | range.access)) {
                other.store(access, Ordering::Release);
            }
        }
    }
    if let Some((page, access)) = last {
        page.store(access, Ordering::Release);
    }
}

/// Lets these devices touch the part that begins there, too.
pub(super) fn grant(range: &Range, access: u8) {
    let access = everyone_is_all(access);
    change(range.start, |range| range.access = access);
    add_access(range.start, range.rounded(), access);
}

fn add_access(address: u64, bytes: u64, access: u8) {
    for page in space().pages(address, bytes) {
        page.fetch_or(access, Ordering::Release);
    }
}

impl Region {
    /// Takes room of that size out of the free parts. Where kernels are checked it is as far from what was freed as can
    /// be, so that one that uses freed memory does not come to something new.
    fn find_room(&mut self, size: u64, align: u64) -> Option<u64> {
        let fits = |start: u64, room: u64| {
            let aligned = start.checked_next_multiple_of(align)?;
            (aligned - start <= room && room - (aligned - start) >= size).then_some(aligned)
        };
        let suits = |(start, room): (&u64, &u64)| fits(*start, *room).map(|aligned| (*start, *room, aligned));
        let found = if settings().check.is_some() {
            self.free.iter().rev().find_map(suits)
        } else {
            self.free.iter().find_map(suits)
        };
        let (start, room, aligned) = found?;
        self.free.remove(&start);
        if aligned > start {
            self.free.insert(start, aligned - start);
        }
        if start + room > aligned + size {
            self.free.insert(aligned + size, start + room - aligned - size);
        }
        Some(aligned)
    }

    /// Takes the access away from pages that hold nothing else.
    fn remove_access(&self, address: u64, size: u64) {
        let before = self.taken.range(..address).next_back().map_or(0, |(_, it)| it.start + it.rounded());
        let after = self.taken.range(address..).next().map_or(u64::MAX, |(start, _)| *start);
        let first = address.max(before.next_multiple_of(PAGE));
        let last = (address + size).min(after / PAGE * PAGE);
        if first < last {
            space().pages(first, last - first).iter().for_each(|page| page.store(0, Ordering::Release));
        }
    }

    /// Joins the part with its free neighbours; returns what they are together.
    fn insert_free(&mut self, mut address: u64, mut size: u64) -> (u64, u64) {
        if let Some(after) = self.free.remove(&(address + size)) {
            size += after;
        }
        if let Some((&before, &room)) = self.free.range(..address).next_back()
            && before + room == address
        {
            self.free.remove(&before);
            address = before;
            size += room;
        }
        self.free.insert(address, size);
        (address, size)
    }
}
