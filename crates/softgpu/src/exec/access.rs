//! Loads and stores.
//!
//! Blocks run on several threads and share global memory, so it is only ever touched by atomic accesses. Shared
//! and local memory belong to whoever runs the block.
#![allow(clippy::cast_possible_truncation, reason = "device addresses are host addresses, and stores take low bytes")]

mod fast;

use super::block::Surroundings;
use super::cluster;
use super::interface::FaultKind;
use super::lanes::{LANES, Registers, lanes_of};
use super::op::{Address, Load, Order, Reg, Space, Store};
use super::program::{LOCAL_WINDOW, PARAMETER_WINDOW, SHARED_WINDOW, WINDOW_SIZE};
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

/// Lanes closer together than this are checked at once.
const CLOSE: u64 = 1 << 20;

/// What a warp can reach.
pub(super) struct Memory<'a> {
    pub(super) shared: &'a mut [u8],
    /// Shared memory of the cluster's other blocks, by rank.
    peers: &'a mut [Vec<u8>],
    rank: u32,
    /// Whether the launch has clusters.
    clustered: bool,
    pub(super) local: &'a mut Local,
    pub(super) parameters: &'a [u8],
    /// Whether kernels may access all bytes from an address on.
    pub(super) is_mapped: fn(u64, u64) -> bool,
}

impl<'a> Memory<'a> {
    /// What a warp of the block can reach that has this local memory.
    pub(super) fn of(block: &'a mut Surroundings, local: &'a mut Local) -> Self {
        Self {
            shared: &mut block.shared,
            peers: &mut block.cluster.shared,
            rank: block.rank,
            clustered: block.shape.cluster.is_some(),
            local,
            parameters: &block.shape.parameters,
            is_mapped: block.is_mapped,
        }
    }

    pub(super) fn is_clustered(&self) -> bool {
        self.clustered
    }

    /// The bytes of an access within the cluster's shared memory.
    pub(super) fn shared_at(&mut self, address: u64, size: usize) -> Option<&mut [u8]> {
        let start = usize::try_from(address).ok()?;
        let end = start.checked_add(size)?;
        if end <= self.shared.len() {
            return self.shared.get_mut(start..end);
        }
        let (rank, within) = cluster::resolve(address, self.rank);
        if rank == u64::from(self.rank) {
            return bytes_at(self.shared, within, size);
        }
        bytes_at(self.peers.get_mut(usize::try_from(rank).ok()?)?, within, size)
    }

    /// The rank of the block whose turn it is.
    pub(super) fn rank(&self) -> u32 {
        self.rank
    }

    /// Reads bytes of any memory but local one; None where there are none.
    pub(super) fn read(&mut self, space: Space, address: u64, to: &mut [u8]) -> Option<()> {
        match space {
            Space::Global => {
                self.may_access(address, to.len())?;
                in_units(address, to.len(), |at, range| {
                    // SAFETY: all bytes may be accessed, and the unit is aligned to its size.
                    let value = unsafe { read_global(at, range.len() as u8) };
                    let size = range.len();
                    to[range].copy_from_slice(&value.to_le_bytes()[..size]);
                });
            }
            Space::Shared => to.copy_from_slice(self.shared_at(address, to.len())?),
            Space::Parameters => {
                let start = usize::try_from(address).ok()?;
                to.copy_from_slice(self.parameters.get(start..)?.get(..to.len())?);
            }
            Space::Local | Space::Generic => return None,
        }
        Some(())
    }

    /// Writes bytes of global or shared memory; None where there are none.
    pub(super) fn write(&mut self, space: Space, address: u64, from: &[u8]) -> Option<()> {
        match space {
            Space::Global => {
                self.may_access(address, from.len())?;
                in_units(address, from.len(), |at, range| {
                    let (size, value) = (range.len() as u8, from_bytes(&from[range]));
                    // SAFETY: all bytes may be accessed, and the unit is aligned to its size.
                    unsafe { write_global(at, size, value) };
                });
            }
            Space::Shared => self.shared_at(address, from.len())?.copy_from_slice(from),
            Space::Local | Space::Parameters | Space::Generic => return None,
        }
        Some(())
    }

    fn may_access(&self, address: u64, bytes: usize) -> Option<()> {
        let bytes = bytes as u64;
        address.checked_add(bytes)?;
        (bytes == 0 || (self.is_mapped)(address, bytes)).then_some(())
    }
}

/// Cuts bytes into aligned units of at most 8, each with its address and its place among them.
fn in_units(address: u64, count: usize, mut each: impl FnMut(u64, core::ops::Range<usize>)) {
    let mut start = 0;
    while start < count {
        let at = address + start as u64;
        let largest = 1_usize << at.trailing_zeros().min(3);
        let mut size = largest;
        while size > count - start {
            size /= 2;
        }
        each(at, start..start + size);
        start += size;
    }
}

/// The local memory of a warp's lanes, as large as their stacks.
#[derive(Debug, Default)]
pub(super) struct Local {
    lanes: Vec<Vec<u8>>,
}

/// An access that ends the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BadAccess {
    pub(super) lane: usize,
    pub(super) address: u64,
    pub(super) kind: FaultKind,
}

impl BadAccess {
    /// With the address as the instruction has it, where that is a generic one.
    fn generic(self, space: Space) -> Self {
        let window = match space {
            Space::Shared => SHARED_WINDOW,
            Space::Local => LOCAL_WINDOW,
            Space::Parameters => PARAMETER_WINDOW,
            Space::Global | Space::Generic => 0,
        };
        Self { address: self.address.wrapping_add(window), ..self }
    }
}

impl Local {
    /// Makes a lane's memory at least that large. New memory is zero.
    pub(super) fn grow(&mut self, lane: usize, bytes: usize) {
        if self.lanes.is_empty() {
            self.lanes.resize_with(LANES, Vec::new);
        }
        let memory = &mut self.lanes[lane];
        if memory.len() < bytes {
            memory.resize(bytes, 0);
        }
    }

    pub(super) fn of(&mut self, lane: usize) -> &mut [u8] {
        self.lanes.get_mut(lane).map_or(&mut [], Vec::as_mut_slice)
    }
}

/// Where each lane's access goes.
pub(super) fn addresses(r: &Registers, address: &Address) -> [u64; LANES] {
    let offset = address.offset.cast_unsigned();
    match address.base {
        Reg::Narrow(slot) => r.narrow[slot as usize].map(|base| u64::from(base).wrapping_add(offset)),
        Reg::Wide(slot) => r.wide[slot as usize].map(|base| base.wrapping_add(offset)),
    }
}

/// Where one lane's access goes.
pub(super) fn address_of(r: &Registers, address: &Address, lane: usize) -> u64 {
    r.read_lane(address.base, lane).wrapping_add_signed(address.offset)
}

/// The space that a generic address lies in, and the address within it.
pub(super) fn resolve(address: u64) -> (Space, u64) {
    match address & !(WINDOW_SIZE - 1) {
        SHARED_WINDOW => (Space::Shared, address - SHARED_WINDOW),
        LOCAL_WINDOW => (Space::Local, address - LOCAL_WINDOW),
        PARAMETER_WINDOW => (Space::Parameters, address - PARAMETER_WINDOW),
        _ => (Space::Global, address),
    }
}

/// An address is aligned to the access's size.
pub(super) fn check_alignment(at: &[u64; LANES], mask: u32, bytes: u64) -> Result<(), BadAccess> {
    for lane in lanes_of(mask) {
        if at[lane] & (bytes - 1) != 0 {
            return Err(BadAccess { lane, address: at[lane], kind: FaultKind::MisalignedAddress });
        }
    }
    Ok(())
}

/// All lanes may access global memory where they mean to.
pub(super) fn check_global(memory: &Memory<'_>, at: &[u64; LANES], mask: u32, bytes: u64) -> Result<(), BadAccess> {
    let (mut least, mut most) = (u64::MAX, 0);
    for lane in lanes_of(mask) {
        least = least.min(at[lane]);
        most = most.max(at[lane]);
    }
    // Together, where the lanes are close: there may be a hole between them, though.
    if most - least < CLOSE && most.checked_add(bytes).is_some() && (memory.is_mapped)(least, most - least + bytes) {
        return Ok(());
    }
    for lane in lanes_of(mask) {
        if at[lane].checked_add(bytes).is_none() || !(memory.is_mapped)(at[lane], bytes) {
            return Err(BadAccess { lane, address: at[lane], kind: FaultKind::IllegalAddress });
        }
    }
    Ok(())
}

/// Runs an access for groups of lanes whose addresses lie in the same space.
pub(super) fn by_space(
    at: &mut [u64; LANES],
    space: Space,
    mask: u32,
    mut access: impl FnMut(Space, &[u64; LANES], u32) -> Result<(), BadAccess>,
) -> Result<(), BadAccess> {
    if space != Space::Generic {
        return access(space, at, mask);
    }
    let mut left = mask;
    while left != 0 {
        let (space, _) = resolve(at[left.trailing_zeros() as usize]);
        let mut together = 0;
        for lane in lanes_of(left) {
            let (its_space, within) = resolve(at[lane]);
            if its_space == space {
                together |= 1 << lane;
                at[lane] = within;
            }
        }
        access(space, at, together).map_err(|bad| bad.generic(space))?;
        left &= !together;
    }
    Ok(())
}

/// The bytes of an access within memory that belongs to the block.
pub(super) fn bytes_at(memory: &mut [u8], address: u64, size: usize) -> Option<&mut [u8]> {
    let start = usize::try_from(address).ok()?;
    memory.get_mut(start..start.checked_add(size)?)
}

/// Little-endian bytes as a number.
pub(super) fn from_bytes(bytes: &[u8]) -> u64 {
    let mut value = [0; 8];
    value[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(value)
}

/// # Safety
/// `address` is valid for `size` bytes and aligned to them; `size` is 1, 2, 4 or 8.
#[inline(always)]
unsafe fn read_global(address: u64, size: u8) -> u64 {
    let address = address as usize;
    match size {
        // SAFETY: the caller says so.
        1 => unsafe { AtomicU8::from_ptr(core::ptr::with_exposed_provenance_mut(address)) }
            .load(Ordering::Relaxed)
            .into(),
        // SAFETY: as above.
        2 => unsafe { AtomicU16::from_ptr(core::ptr::with_exposed_provenance_mut(address)) }
            .load(Ordering::Relaxed)
            .into(),
        // SAFETY: as above.
        4 => unsafe { AtomicU32::from_ptr(core::ptr::with_exposed_provenance_mut(address)) }
            .load(Ordering::Relaxed)
            .into(),
        // SAFETY: as above.
        _ => unsafe { AtomicU64::from_ptr(core::ptr::with_exposed_provenance_mut(address)) }.load(Ordering::Relaxed),
    }
}

/// # Safety
/// As for [`read_global`].
#[inline(always)]
unsafe fn write_global(address: u64, size: u8, value: u64) {
    let address = address as usize;
    match size {
        // SAFETY: the caller says so.
        1 => unsafe { AtomicU8::from_ptr(core::ptr::with_exposed_provenance_mut(address)) }
            .store(value as u8, Ordering::Relaxed),
        // SAFETY: as above.
        2 => unsafe { AtomicU16::from_ptr(core::ptr::with_exposed_provenance_mut(address)) }
            .store(value as u16, Ordering::Relaxed),
        // SAFETY: as above.
        4 => unsafe { AtomicU32::from_ptr(core::ptr::with_exposed_provenance_mut(address)) }
            .store(value as u32, Ordering::Relaxed),
        // SAFETY: as above.
        _ => unsafe { AtomicU64::from_ptr(core::ptr::with_exposed_provenance_mut(address)) }
            .store(value, Ordering::Relaxed),
    }
}

/// A loaded element, extended as its type says.
fn extend(value: u64, size: u8, signed: bool) -> u64 {
    if !signed {
        return value;
    }
    let unused = 64 - 8 * u32::from(size);
    ((value << unused).cast_signed() >> unused).cast_unsigned()
}

pub(super) fn load(r: &mut Registers, memory: &mut Memory<'_>, load: &Load, mask: u32) -> Result<(), BadAccess> {
    if fast::load(r, memory, load, mask) {
        return Ok(());
    }
    let mut at = addresses(r, &load.address);
    let size = u64::from(load.size);
    let bytes = size * load.to.len() as u64;
    check_alignment(&at, mask, bytes)?;
    by_space(&mut at, load.address.space, mask, |space, at, mask| {
        if space == Space::Global {
            check_global(memory, at, mask, bytes)?;
        }
        for (element, to) in (0u64..).zip(&load.to) {
            let Some(to) = *to else { continue };
            let offset = element * size;
            for lane in lanes_of(mask) {
                let address = at[lane].wrapping_add(offset);
                let value = match space {
                    // SAFETY: checked above for all elements, and the first one's alignment covers the others.
                    Space::Global | Space::Generic => unsafe { read_global(address, load.size) },
                    _ => {
                        let outside = BadAccess { lane, address, kind: FaultKind::IllegalAddress };
                        let bytes = match space {
                            Space::Shared => memory.shared_at(address, load.size.into()).map(|bytes| &*bytes),
                            Space::Local => {
                                bytes_at(memory.local.of(lane), address, load.size.into()).map(|bytes| &*bytes)
                            }
                            _ => usize::try_from(address)
                                .ok()
                                .and_then(|start| memory.parameters.get(start..)?.get(..load.size.into())),
                        };
                        from_bytes(bytes.ok_or(outside)?)
                    }
                };
                r.write_lane(to, lane, extend(value, load.size, load.signed));
            }
        }
        Ok(())
    })?;
    if matches!(load.order, Order::Acquire | Order::AcquireRelease) {
        fence(Ordering::Acquire);
    }
    Ok(())
}

pub(super) fn store(r: &Registers, memory: &mut Memory<'_>, store: &Store, mask: u32) -> Result<(), BadAccess> {
    if fast::store(r, memory, store, mask) {
        return Ok(());
    }
    let mut at = addresses(r, &store.address);
    let size = u64::from(store.size);
    let bytes = size * store.from.len() as u64;
    check_alignment(&at, mask, bytes)?;
    if matches!(store.order, Order::Release | Order::AcquireRelease) {
        fence(Ordering::Release);
    }
    by_space(&mut at, store.address.space, mask, |space, at, mask| {
        if space == Space::Global {
            check_global(memory, at, mask, bytes)?;
        }
        for (element, from) in (0u64..).zip(&store.from) {
            let offset = element * size;
            for lane in lanes_of(mask) {
                let address = at[lane].wrapping_add(offset);
                let value = r.read_lane(*from, lane);
                if matches!(space, Space::Global | Space::Generic) {
                    // SAFETY: checked above for all elements, and the first one's alignment covers the others.
                    unsafe { write_global(address, store.size, value) };
                    continue;
                }
                let bytes = match space {
                    Space::Shared => memory.shared_at(address, store.size.into()),
                    Space::Local => bytes_at(memory.local.of(lane), address, store.size.into()),
                    // Parameters cannot be written.
                    _ => return Err(BadAccess { lane, address, kind: FaultKind::IllegalAddress }),
                };
                let bytes = bytes.ok_or(BadAccess { lane, address, kind: FaultKind::IllegalAddress })?;
                let length = bytes.len();
                bytes.copy_from_slice(&value.to_le_bytes()[..length]);
            }
        }
        Ok(())
    })
}
