//! Physical memory that the program makes itself and maps to addresses that it has reserved.
//!
//! Each piece is a file without a name, so it can be mapped in several places and given to other processes. A page
//! behind the memory says what it is to those who get the file.

use super::arena::{self, Kind, Range, everyone_is_all, new_id};
use super::managed::Location;
use super::space::{PAGE, SYSTEM_PAGE, memory_file, space};
use super::{MOST_DEVICES, access};
use crate::handle;
use core::sync::atomic::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};

/// What the program said of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Properties {
    pub(crate) location: Location,
    /// A bit for each `CUmemAllocationHandleType`.
    pub(crate) handle_types: u32,
    pub(crate) compression: u8,
    pub(crate) usage: u16,
}

/// A piece of memory.
pub(crate) struct Physical {
    pub(crate) handle: u64,
    pub(crate) id: u64,
    pub(crate) size: u64,
    pub(crate) properties: Properties,
    file: File,
    /// The device whose memory it takes.
    charged: Option<usize>,
}

impl Drop for Physical {
    fn drop(&mut self) {
        if let Some(device) = self.charged {
            arena::discharge(device, self.size);
        }
    }
}

/// A piece at an address.
struct Mapping {
    size: u64,
    physical: Arc<Physical>,
    id: u64,
    /// `CUmemAccess_flags` of each device, and of the host.
    flags: [u8; MOST_DEVICES],
    host: u8,
}

#[derive(Default)]
struct Known {
    /// Pieces with how often the program holds them.
    held: HashMap<u64, (Arc<Physical>, usize)>,
    mappings: BTreeMap<u64, Mapping>,
}

static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

fn known() -> MutexGuard<'static, Known> {
    KNOWN.lock().expect("no panic while it is held")
}

/// Why something could not be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The device or the system has no more.
    NoMemory,
    /// It is not what it should be.
    Invalid,
}

/// A new piece, held once; on a device it takes that much of its memory.
pub(crate) fn create(size: u64, properties: Properties, device: Option<usize>) -> Result<u64, Refused> {
    if device.is_some_and(|device| !arena::charge(device, size)) {
        return Err(Refused::NoMemory);
    }
    let made = memory_file(c"softgpu-physical", size + SYSTEM_PAGE).and_then(|file| {
        let file = File::from(file);
        file.write_all_at(&header(size, &properties), size).ok().map(|()| file)
    });
    let Some(file) = made else {
        device.into_iter().for_each(|device| arena::discharge(device, size));
        return Err(Refused::NoMemory);
    };
    Ok(hold(Arc::new(Physical { handle: handle::new() as u64, id: new_id(), size, properties, file, charged: device })))
}

fn hold(physical: Arc<Physical>) -> u64 {
    let handle = physical.handle;
    known().held.entry(handle).or_insert((physical, 0)).1 += 1;
    handle
}

pub(crate) fn get(handle: u64) -> Option<Arc<Physical>> {
    known().held.get(&handle).map(|(physical, _)| Arc::clone(physical))
}

/// Gives one hold back. The memory stays as long as it is held or mapped.
pub(crate) fn release(handle: u64) -> bool {
    let mut known = known();
    let Some((_, holds)) = known.held.get_mut(&handle) else { return false };
    *holds -= 1;
    if *holds == 0 {
        known.held.remove(&handle);
    }
    true
}

const MAGIC: [u8; 16] = *b"softgpu physical";

fn header(size: u64, properties: &Properties) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(size.to_le_bytes());
    bytes.extend(properties.location.kind.to_le_bytes());
    bytes.extend(properties.location.id.to_le_bytes());
    bytes.extend(properties.handle_types.to_le_bytes());
    bytes.extend(properties.usage.to_le_bytes());
    bytes.push(properties.compression);
    bytes
}

/// A file for another process.
pub(crate) fn export(physical: &Physical) -> Option<OwnedFd> {
    physical.file.as_fd().try_clone_to_owned().ok()
}

/// The piece behind a file that a process was given, held once. The file stays the program's.
pub(crate) fn import(file: &File) -> Result<u64, Refused> {
    let invalid = |_| Refused::Invalid;
    let length = file.metadata().map_err(invalid)?.len();
    let size = length.checked_sub(SYSTEM_PAGE).filter(|size| *size > 0).ok_or(Refused::Invalid)?;
    let mut bytes = [0; 39];
    file.read_exact_at(&mut bytes, size).map_err(invalid)?;
    let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let properties = Properties {
        location: Location { kind: number(24), id: number(28).cast_signed() },
        handle_types: number(32),
        usage: u16::from_le_bytes([bytes[36], bytes[37]]),
        compression: bytes[38],
    };
    if bytes[..] != header(size, &properties)[..] || !is_sealed(file) {
        return Err(Refused::Invalid);
    }
    let file = file.try_clone().map_err(|_| Refused::NoMemory)?;
    Ok(hold(Arc::new(Physical { handle: handle::new() as u64, id: new_id(), size, properties, file, charged: None })))
}

/// Whether nobody can make the file smaller under those who have mapped it.
fn is_sealed(file: &File) -> bool {
    use std::os::fd::AsRawFd;
    // SAFETY: an open file.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    seals >= 0 && seals & libc::F_SEAL_SHRINK != 0
}

/// Maps the first bytes of a piece to reserved addresses that nothing is mapped to. No one may touch them yet.
pub(crate) fn map(address: u64, size: u64, physical: Arc<Physical>) -> Result<(), Refused> {
    let end = address.checked_add(size).ok_or(Refused::Invalid)?;
    let mut known = known();
    let reserved = super::reservation(address).is_some_and(|range| end <= range.end());
    let taken = known.mappings.range(..end).next_back().is_some_and(|(start, it)| start + it.size > address);
    if !reserved || taken || size > physical.size {
        return Err(Refused::Invalid);
    }
    if !space().overlay(address, size, physical.file.as_fd(), 0) {
        return Err(Refused::NoMemory);
    }
    let mapping = Mapping { size, physical, id: new_id(), flags: [0; MOST_DEVICES], host: 0 };
    known.mappings.insert(address, mapping);
    Ok(())
}

impl Known {
    /// The first addresses of mappings that lie side by side and cover the bytes; None where they do not.
    fn covering(&self, address: u64, size: u64) -> Option<Vec<u64>> {
        let end = address.checked_add(size)?;
        let mut next = self.mappings.range(..=address).next_back().map(|(start, _)| *start)?;
        let mut found = Vec::new();
        while next < end {
            let mapping = self.mappings.get(&next)?;
            if next + mapping.size > address {
                found.push(next);
            }
            next += mapping.size;
        }
        (!found.is_empty()).then_some(found)
    }

    /// As [`Self::covering`], where the bytes begin and end with a mapping.
    fn exactly(&self, address: u64, size: u64) -> Option<Vec<u64>> {
        let found = self.covering(address, size)?;
        let last = found.last().and_then(|start| self.mappings.get(start).map(|it| start + it.size));
        (found.first() == Some(&address) && last == Some(address + size)).then_some(found)
    }
}

/// Takes whole mappings away.
pub(crate) fn unmap(address: u64, size: u64) -> Result<(), Refused> {
    let mut known = known();
    let starts = known.exactly(address, size).ok_or(Refused::Invalid)?;
    for page in space().pages(address, size) {
        page.store(0, Ordering::Release);
    }
    if !space().restore(address, size) {
        return Err(Refused::NoMemory);
    }
    for start in starts {
        known.mappings.remove(&start);
    }
    Ok(())
}

/// Whether something is mapped between these addresses.
pub(crate) fn is_in_use(address: u64, size: u64) -> bool {
    known().mappings.range(address..address.saturating_add(size)).next().is_some()
}

/// Who gets which access.
#[derive(Clone, Copy)]
pub(crate) enum Accessor {
    Device(usize),
    Host,
}

/// Sets the access to mappings that cover the bytes; for those who are not named it stays as it is.
pub(crate) fn set_access(address: u64, size: u64, wanted: &[(Accessor, u8)]) -> Result<(), Refused> {
    let mut known = known();
    for start in known.exactly(address, size).ok_or(Refused::Invalid)? {
        let Some(mapping) = known.mappings.get_mut(&start) else { continue };
        for (accessor, flags) in wanted {
            match accessor {
                Accessor::Device(device) => mapping.flags[*device] = *flags,
                Accessor::Host => mapping.host = *flags,
            }
        }
        let may = |device: &usize| mapping.flags[*device] != 0;
        let devices = (0..MOST_DEVICES).filter(may).fold(0, |all, device| all | access::bit(device));
        for page in space().pages(start, mapping.size) {
            page.store(everyone_is_all(devices), Ordering::Release);
        }
    }
    Ok(())
}

/// The flags of an accessor for what is mapped at an address.
pub(crate) fn access_at(address: u64, accessor: Accessor) -> Option<u8> {
    let known = known();
    let (start, mapping) = known.mappings.range(..=address).next_back()?;
    (address - start < mapping.size).then(|| match accessor {
        Accessor::Device(device) => mapping.flags[device],
        Accessor::Host => mapping.host,
    })
}

/// The piece that is mapped at an address, held once more.
pub(crate) fn retain(address: u64) -> Option<u64> {
    let physical = at(address)?;
    Some(hold(physical))
}

/// The piece that is mapped at an address.
pub(crate) fn at(address: u64) -> Option<Arc<Physical>> {
    let known = known();
    let (start, mapping) = known.mappings.range(..=address).next_back()?;
    (address - start < mapping.size).then(|| Arc::clone(&mapping.physical))
}

/// The mapping that an address lies in.
pub(super) fn find(address: u64) -> Option<Range> {
    let known = known();
    let (start, mapping) = known.mappings.range(..=address).next_back()?;
    let location = mapping.physical.properties.location;
    let device = usize::try_from(location.id).unwrap_or(0).min(crate::device::settings().devices - 1);
    (address - start < mapping.size).then_some(Range {
        start: *start,
        size: mapping.size,
        kind: Kind::Mapped,
        device,
        context: 0,
        id: mapping.id,
        synchronous: false,
        access: 0,
    })
}

const _: () = assert!(super::GRANULARITY.is_multiple_of(PAGE), "access is set page by page");
