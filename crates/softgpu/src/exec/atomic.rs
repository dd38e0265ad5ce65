//! `atom` and `red`.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "instructions see the bits of a register as the type that they name"
)]

use super::access::{BadAccess, Memory, addresses, by_space, bytes_at, check_alignment, check_global, from_bytes};
use super::float;
use super::interface::FaultKind;
use super::lanes::{Registers, lanes_of};
use super::op::{Atomic, AtomicOp, AtomicType, Float2, FloatMode, FloatType, Order, Space};
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

impl AtomicType {
    pub(super) fn size(self) -> u8 {
        match self {
            Self::U16 | Self::F16 | Self::Bf16 => 2,
            Self::U32 | Self::S32 | Self::F32 | Self::F16x2 | Self::Bf16x2 => 4,
            Self::U64 | Self::S64 | Self::F64 => 8,
        }
    }
}

/// What memory holds afterwards that held `old`.
fn updated(op: AtomicOp, ty: AtomicType, old: u64, b: u64, c: u64, space: Space) -> u64 {
    let signed = |value: u64| match ty {
        AtomicType::S32 => (value as i32).into(),
        _ => value as i64,
    };
    let is_signed = matches!(ty, AtomicType::S32 | AtomicType::S64);
    match op {
        // Global memory's adders know no subnormal numbers.
        AtomicOp::Add if ty == AtomicType::F32 && space == Space::Global => {
            let mode = FloatMode { flush: true, ..FloatMode::PLAIN };
            float::two_bits(Float2::Add, FloatType::F32, mode, old, b)
        }
        AtomicOp::Add => float_or(ty, Float2::Add, old, b, old.wrapping_add(b)),
        AtomicOp::Min if is_signed => signed(old).min(signed(b)) as u64,
        AtomicOp::Max if is_signed => signed(old).max(signed(b)) as u64,
        AtomicOp::Min => float_or(ty, Float2::Min, old, b, old.min(b)),
        AtomicOp::Max => float_or(ty, Float2::Max, old, b, old.max(b)),
        AtomicOp::And => old & b,
        AtomicOp::Or => old | b,
        AtomicOp::Xor => old ^ b,
        AtomicOp::Exchange => b,
        AtomicOp::CompareExchange => {
            if old == b {
                c
            } else {
                old
            }
        }
        AtomicOp::Increment => {
            if old >= b {
                0
            } else {
                old + 1
            }
        }
        AtomicOp::Decrement => {
            if old == 0 || old > b {
                b
            } else {
                old - 1
            }
        }
    }
}

/// The floating-point operation where the type is one, the integer's result elsewhere.
fn float_or(ty: AtomicType, op: Float2, old: u64, b: u64, integer: u64) -> u64 {
    let half = |ty, shift: u32| float::two_bits(op, ty, FloatMode::PLAIN, old >> shift, b >> shift) & 0xffff;
    match ty {
        AtomicType::F32 => float::two_bits(op, FloatType::F32, FloatMode::PLAIN, old, b),
        AtomicType::F64 => float::two_bits(op, FloatType::F64, FloatMode::PLAIN, old, b),
        AtomicType::F16 => half(FloatType::F16, 0),
        AtomicType::Bf16 => half(FloatType::Bf16, 0),
        AtomicType::F16x2 => half(FloatType::F16, 0) | half(FloatType::F16, 16) << 16,
        AtomicType::Bf16x2 => half(FloatType::Bf16, 0) | half(FloatType::Bf16, 16) << 16,
        _ => integer,
    }
}

/// The low bytes of a number.
fn low(value: u64, size: u8) -> u64 {
    if size == 8 { value } else { value & ((1 << (8 * u32::from(size))) - 1) }
}

/// # Safety
/// `address` is valid for the type's size and aligned to it.
unsafe fn update_global(address: u64, atomic: &Atomic, b: u64, c: u64) -> u64 {
    let new = |old: u64| updated(atomic.op, atomic.ty, old, b, c, Space::Global);
    let address = address as usize;
    let ordering = Ordering::Relaxed;
    match atomic.ty.size() {
        2 => {
            // SAFETY: the caller says so.
            let cell = unsafe { AtomicU16::from_ptr(core::ptr::with_exposed_provenance_mut(address)) };
            cell.update(ordering, ordering, |old| new(old.into()) as u16).into()
        }
        4 => {
            // SAFETY: the caller says so.
            let cell = unsafe { AtomicU32::from_ptr(core::ptr::with_exposed_provenance_mut(address)) };
            match (atomic.op, atomic.ty) {
                (AtomicOp::Add, AtomicType::U32 | AtomicType::S32) => cell.fetch_add(b as u32, ordering).into(),
                (AtomicOp::Exchange, _) => cell.swap(b as u32, ordering).into(),
                (AtomicOp::CompareExchange, _) => {
                    let (Ok(old) | Err(old)) = cell.compare_exchange(b as u32, c as u32, ordering, ordering);
                    old.into()
                }
                _ => cell.update(ordering, ordering, |old| new(old.into()) as u32).into(),
            }
        }
        _ => {
            // SAFETY: the caller says so.
            let cell = unsafe { AtomicU64::from_ptr(core::ptr::with_exposed_provenance_mut(address)) };
            match (atomic.op, atomic.ty) {
                (AtomicOp::Add, AtomicType::U64 | AtomicType::S64) => cell.fetch_add(b, ordering),
                (AtomicOp::Exchange, _) => cell.swap(b, ordering),
                (AtomicOp::CompareExchange, _) => {
                    let (Ok(old) | Err(old)) = cell.compare_exchange(b, c, ordering, ordering);
                    old
                }
                _ => cell.update(ordering, ordering, new),
            }
        }
    }
}

pub(super) fn atomic(r: &mut Registers, memory: &mut Memory<'_>, atomic: &Atomic, mask: u32) -> Result<(), BadAccess> {
    let mut at = addresses(r, &atomic.address);
    let size = atomic.ty.size();
    check_alignment(&at, mask, size.into())?;
    if matches!(atomic.order, Order::Release | Order::AcquireRelease) {
        fence(Ordering::Release);
    }
    by_space(&mut at, atomic.address.space, mask, |space, at, mask| {
        if space == Space::Global {
            check_global(memory, at, mask, size.into())?;
        }
        for lane in lanes_of(mask) {
            let address = at[lane];
            let b = low(r.read_lane(atomic.b, lane), size);
            let c = atomic.c.map_or(0, |c| low(r.read_lane(c, lane), size));
            let old = if matches!(space, Space::Global | Space::Generic) {
                // SAFETY: checked above.
                unsafe { update_global(address, atomic, b, c) }
            } else {
                // Local memory and parameters have no atomics.
                if space != Space::Shared {
                    return Err(BadAccess { lane, address, kind: FaultKind::IllegalAddress });
                }
                let bytes = bytes_at(memory.shared, address, size.into());
                let bytes = bytes.ok_or(BadAccess { lane, address, kind: FaultKind::IllegalAddress })?;
                let old = from_bytes(bytes);
                let new = updated(atomic.op, atomic.ty, old, b, c, space);
                bytes.copy_from_slice(&new.to_le_bytes()[..size.into()]);
                old
            };
            if let Some(to) = atomic.to {
                r.write_lane(to, lane, old);
            }
        }
        Ok(())
    })?;
    if matches!(atomic.order, Order::Acquire | Order::AcquireRelease) {
        fence(Ordering::Acquire);
    }
    Ok(())
}
