//! Loads and stores as nearly all of them are: aligned, all lanes in the same space, within memory.
//!
//! What is different in any way is left to the module above, which says what is wrong with it; so there is nothing here that
//! could fail. Sizes are constants and lanes that do not take part read what the first one does, so that the loops over
//! lanes have no branches.
#![allow(clippy::cast_possible_truncation, reason = "device addresses are host addresses, and stores take low bytes")]

use super::{CLOSE, Memory, addresses, extend, read_global, resolve, write_global};
use crate::exec::lanes::{FULL, LANES, Registers, lanes_of};
use crate::exec::op::{Address, Load, Order, Space, Store};

/// Where the lanes of an access go that can be done at once.
struct Together {
    space: Space,
    at: [u64; LANES],
    /// The last of the addresses.
    most: u64,
}

/// None where lanes are not aligned to the access's size, or in different spaces.
fn together(r: &Registers, address: &Address, mask: u32, bytes: u64) -> Option<Together> {
    let mut at = addresses(r, address);
    if mask != FULL {
        let first = at[mask.trailing_zeros() as usize & (LANES - 1)];
        for (lane, at) in at.iter_mut().enumerate() {
            *at = if mask >> lane & 1 != 0 { *at } else { first };
        }
    }
    let (mut least, mut most, mut bits) = (u64::MAX, 0, 0);
    for at in at {
        least = least.min(at);
        most = most.max(at);
        bits |= at;
    }
    if bits & (bytes - 1) != 0 || most - least >= CLOSE {
        return None;
    }
    if address.space != Space::Generic {
        return Some(Together { space: address.space, at, most });
    }
    let (space, within) = resolve(least);
    if resolve(most).0 != space {
        return None;
    }
    let window = least - within;
    Some(Together { space, at: at.map(|at| at - window), most: most - window })
}

impl Together {
    fn is_within(&self, memory: &[u8], bytes: u64) -> bool {
        self.most.checked_add(bytes).is_some_and(|end| end <= memory.len() as u64)
    }

    fn is_mapped(&self, memory: &Memory<'_>, bytes: u64) -> bool {
        let least = self.at.iter().copied().fold(u64::MAX, u64::min);
        self.most.checked_add(bytes).is_some_and(|end| (memory.is_mapped)(least, end - least))
    }
}

/// What is there in memory of the block's own; 0 where there is none.
#[inline(always)]
fn read_block<const SIZE: usize>(memory: &[u8], address: u64) -> u64 {
    let start = address as usize;
    let mut value = [0; 8];
    if let Some(bytes) = start.checked_add(SIZE).and_then(|end| memory.get(start..end)) {
        value[..SIZE].copy_from_slice(bytes);
    }
    u64::from_le_bytes(value)
}

#[inline(always)]
fn write_block<const SIZE: usize>(memory: &mut [u8], address: u64, value: u64) {
    let start = address as usize;
    if let Some(bytes) = start.checked_add(SIZE).and_then(|end| memory.get_mut(start..end)) {
        bytes.copy_from_slice(&value.to_le_bytes()[..SIZE]);
    }
}

/// Whether the load was one of those, and has been done.
#[inline]
pub(super) fn load(r: &mut Registers, memory: &Memory<'_>, load: &Load, mask: u32) -> bool {
    match load.size {
        4 => load_sized::<4>(r, memory, load, mask),
        8 => load_sized::<8>(r, memory, load, mask),
        2 => load_sized::<2>(r, memory, load, mask),
        _ => load_sized::<1>(r, memory, load, mask),
    }
}

fn load_sized<const SIZE: usize>(r: &mut Registers, memory: &Memory<'_>, load: &Load, mask: u32) -> bool {
    let bytes = (SIZE * load.to.len()) as u64;
    if matches!(load.order, Order::Acquire | Order::AcquireRelease) {
        return false;
    }
    let Some(together) = together(r, &load.address, mask, bytes) else { return false };
    let block = match together.space {
        Space::Shared => Some(&*memory.shared),
        Space::Parameters => Some(memory.parameters),
        Space::Global => None,
        Space::Local | Space::Generic => return false,
    };
    let is_there = match block {
        Some(block) => together.is_within(block, bytes),
        None => together.is_mapped(memory, bytes),
    };
    if !is_there {
        return false;
    }
    for (element, to) in load.to.iter().enumerate() {
        let Some(to) = *to else { continue };
        let offset = (element * SIZE) as u64;
        let mut values = match block {
            Some(block) => together.at.map(|at| read_block::<SIZE>(block, at + offset)),
            // SAFETY: all lanes' addresses may be accessed for all elements, and are aligned to their sizes.
            None => together.at.map(|at| unsafe { read_global(at + offset, SIZE as u8) }),
        };
        if load.signed {
            values = values.map(|value| extend(value, SIZE as u8, true));
        }
        r.write(to, mask, &values);
    }
    true
}

/// Whether the store was one of those, and has been done.
#[inline]
pub(super) fn store(r: &Registers, memory: &mut Memory<'_>, store: &Store, mask: u32) -> bool {
    match store.size {
        4 => store_sized::<4>(r, memory, store, mask),
        8 => store_sized::<8>(r, memory, store, mask),
        2 => store_sized::<2>(r, memory, store, mask),
        _ => store_sized::<1>(r, memory, store, mask),
    }
}

fn store_sized<const SIZE: usize>(r: &Registers, memory: &mut Memory<'_>, store: &Store, mask: u32) -> bool {
    let bytes = (SIZE * store.from.len()) as u64;
    if matches!(store.order, Order::Release | Order::AcquireRelease) {
        return false;
    }
    let Some(together) = together(r, &store.address, mask, bytes) else { return false };
    match together.space {
        Space::Shared if together.is_within(memory.shared, bytes) => {}
        Space::Global if together.is_mapped(memory, bytes) => {}
        _ => return false,
    }
    for (element, from) in store.from.iter().enumerate() {
        let offset = (element * SIZE) as u64;
        let values = r.read(*from);
        for lane in lanes_of(mask) {
            let address = together.at[lane] + offset;
            if together.space == Space::Shared {
                write_block::<SIZE>(memory.shared, address, values[lane]);
            } else {
                // SAFETY: all lanes' addresses may be accessed for all elements, and are aligned to their sizes.
                unsafe { write_global(address, SIZE as u8, values[lane]) };
            }
        }
    }
    true
}
