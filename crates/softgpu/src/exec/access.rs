//! Loads and stores.
//!
//! Blocks run on several threads and share global memory, so it is only ever touched by atomic accesses. Shared
//! and local memory belong to whoever runs the block.
#![allow(clippy::cast_possible_truncation, reason = "device addresses are host addresses, and stores take low bytes")]

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
    pub(super) local: &'a mut Local,
    pub(super) parameters: &'a [u8],
    /// Whether kernels may access all bytes from an address on.
    pub(super) is_mapped: fn(u64, u64) -> bool,
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
                            Space::Shared => bytes_at(memory.shared, address, load.size.into()).map(|bytes| &*bytes),
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
                    Space::Shared => bytes_at(memory.shared, address, store.size.into()),
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
