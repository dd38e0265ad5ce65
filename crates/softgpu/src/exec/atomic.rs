//! `atom` and `red`.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "instructions see the bits of a register as the type that they name"
)]

use super::access::{BadAccess, Memory, addresses, by_space, check_alignment, check_global, from_bytes};
use super::float;
use super::interface::FaultKind;
use super::lanes::{Registers, lanes_of};
use super::op::{Atomic, Atomic128, AtomicOp, AtomicType, Float2, FloatMode, FloatType, Order, Space};
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
unsafe fn update_global(address: u64, (op, ty): (AtomicOp, AtomicType), b: u64, c: u64) -> u64 {
    let new = |old: u64| updated(op, ty, old, b, c, Space::Global);
    let address = address as usize;
    let ordering = Ordering::Relaxed;
    match ty.size() {
        2 => {
            // SAFETY: the caller says so.
            let cell = unsafe { AtomicU16::from_ptr(core::ptr::with_exposed_provenance_mut(address)) };
            cell.update(ordering, ordering, |old| new(old.into()) as u16).into()
        }
        4 => {
            // SAFETY: the caller says so.
            let cell = unsafe { AtomicU32::from_ptr(core::ptr::with_exposed_provenance_mut(address)) };
            match (op, ty) {
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
            match (op, ty) {
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
                unsafe { update_global(address, (atomic.op, atomic.ty), b, c) }
            } else {
                // Local memory and parameters have no atomics.
                if space != Space::Shared {
                    return Err(BadAccess { lane, address, kind: FaultKind::IllegalAddress });
                }
                let bytes = memory.shared_at(address, size.into());
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

/// Combines one element with what is there; None where there is no memory for it.
pub(super) fn apply(
    memory: &mut Memory<'_>,
    space: Space,
    address: u64,
    op: AtomicOp,
    ty: AtomicType,
    b: u64,
) -> Option<()> {
    let size = ty.size();
    match space {
        Space::Global => {
            if !address.is_multiple_of(u64::from(size)) || !(memory.is_mapped)(address, size.into()) {
                return None;
            }
            // SAFETY: aligned memory that may be accessed.
            unsafe { update_global(address, (op, ty), b, 0) };
        }
        Space::Shared => {
            let bytes = memory.shared_at(address, size.into())?;
            let new = updated(op, ty, from_bytes(bytes), b, 0, space);
            bytes.copy_from_slice(&new.to_le_bytes()[..size.into()]);
        }
        Space::Local | Space::Parameters | Space::Generic => return None,
    }
    Some(())
}

/// `atom` on 128 bits.
pub(super) fn atomic_128(
    r: &mut Registers,
    memory: &mut Memory<'_>,
    atomic: &Atomic128,
    mask: u32,
) -> Result<(), BadAccess> {
    const BYTES: u64 = 16;
    let mut at = addresses(r, &atomic.address);
    check_alignment(&at, mask, BYTES)?;
    fence(Ordering::SeqCst);
    by_space(&mut at, atomic.address.space, mask, |space, at, mask| {
        if space == Space::Global {
            check_global(memory, at, mask, BYTES)?;
        }
        for lane in lanes_of(mask) {
            let address = at[lane];
            let value = |slot: u32| {
                let [low, high] = [slot, slot + 1].map(|slot| u128::from(r.wide[slot as usize][lane]));
                high << 64 | low
            };
            let (expected, new) = (atomic.expected.map(value), value(atomic.new));
            let bad = BadAccess { lane, address, kind: FaultKind::IllegalAddress };
            let old = match space {
                // SAFETY: aligned memory that may be accessed, checked above.
                Space::Global => unsafe { wide::update(address as usize, expected, new) },
                Space::Shared => {
                    let bytes = memory.shared_at(address, BYTES as usize).ok_or(bad)?;
                    let mut old = [0; BYTES as usize];
                    old.copy_from_slice(bytes);
                    let old = u128::from_le_bytes(old);
                    if expected.is_none_or(|expected| expected == old) {
                        bytes.copy_from_slice(&new.to_le_bytes());
                    }
                    old
                }
                _ => return Err(bad),
            };
            r.wide[atomic.to as usize][lane] = old as u64;
            r.wide[atomic.to as usize + 1][lane] = (old >> 64) as u64;
        }
        Ok(())
    })
}

/// 128 bits at once: with the CPU's instruction, or under a lock where it has none.
mod wide {
    use std::sync::Mutex;

    /// Stores `new` where `expected` is there, or whatever is there; returns that.
    ///
    /// # Safety
    /// `address` is valid for 16 bytes and aligned to them.
    pub(super) unsafe fn update(address: usize, expected: Option<u128>, new: u128) -> u128 {
        let place = core::ptr::with_exposed_provenance_mut::<u128>(address);
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("cmpxchg16b") {
            // SAFETY: the CPU has the instruction, and the caller says the rest.
            return unsafe { with_instruction(place, expected, new) };
        }
        static LOCK: Mutex<()> = Mutex::new(());
        let _held = LOCK.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // SAFETY: the caller says so.
        let old = unsafe { place.read_volatile() };
        if expected.is_none_or(|expected| expected == old) {
            // SAFETY: the caller says so.
            unsafe { place.write_volatile(new) };
        }
        old
    }

    /// # Safety
    /// As for [`update`], on a CPU that has `cmpxchg16b`.
    #[cfg(target_arch = "x86_64")]
    unsafe fn with_instruction(place: *mut u128, expected: Option<u128>, new: u128) -> u128 {
        let mut old = expected.unwrap_or_default();
        loop {
            let (mut low, mut high) = (old as u64, (old >> 64) as u64);
            // The library's function becomes a call of something that is not there, in a build for any CPU.
            // SAFETY: the caller says so. `rbx` belongs to the compiler and gets its value back; what is named alone could lie in it, as
            // the place must not.
            unsafe {
                core::arch::asm!(
                    "xchg {new_low}, rbx",
                    "lock cmpxchg16b [rdi]",
                    "mov rbx, {new_low}",
                    new_low = inout(reg) new as u64 => _,
                    in("rdi") place,
                    inout("rax") low,
                    inout("rdx") high,
                    in("rcx") (new >> 64) as u64,
                    options(nostack),
                );
            }
            let seen = u128::from(high) << 64 | u128::from(low);
            if seen == old || expected.is_some() {
                return seen;
            }
            old = seen;
        }
    }
}
