//! Registers of a warp, and loops over its lanes.
//!
//! A register holds one value for each of 32 lanes side by side. Instructions are loops over the lanes, which the
//! compiler turns into vector instructions; those loops exist twice, the second time for CPUs with AVX2 and FMA.

use super::op::{Reg, Slot};

/// Threads in a warp.
pub(super) const LANES: usize = 32;
/// All lanes.
pub(super) const FULL: u32 = u32::MAX;

/// The registers of one activation of a function. Lanes share an activation where they have called the function
/// at the same depth: every lane only ever touches its own part.
#[derive(Debug)]
pub(super) struct Registers {
    pub(super) narrow: Vec<[u32; LANES]>,
    pub(super) wide: Vec<[u64; LANES]>,
    /// One bit per lane.
    pub(super) predicates: Vec<u32>,
    /// The condition code register, one bit per lane.
    pub(super) carry: u32,
}

/// What a lane has in a bank of registers.
pub(super) trait Lane: Copy {
    fn bank(registers: &Registers) -> &[[Self; LANES]];
    fn bank_mut(registers: &mut Registers) -> &mut [[Self; LANES]];
}

impl Lane for u32 {
    #[inline(always)]
    fn bank(registers: &Registers) -> &[[Self; LANES]] {
        &registers.narrow
    }

    #[inline(always)]
    fn bank_mut(registers: &mut Registers) -> &mut [[Self; LANES]] {
        &mut registers.narrow
    }
}

impl Lane for u64 {
    #[inline(always)]
    fn bank(registers: &Registers) -> &[[Self; LANES]] {
        &registers.wide
    }

    #[inline(always)]
    fn bank_mut(registers: &mut Registers) -> &mut [[Self; LANES]] {
        &mut registers.wide
    }
}

/// The lanes of a mask, lowest first.
pub(super) fn lanes_of(mut mask: u32) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let lane = (mask != 0).then_some(mask.trailing_zeros() as usize);
        mask &= mask.wrapping_sub(1);
        lane
    })
}

/// The mask of some lanes.
pub(super) fn mask_of(lanes: impl Iterator<Item = usize>) -> u32 {
    lanes.fold(0, |mask, lane| mask | 1 << lane)
}

/// Writes what the lanes of the mask have computed.
#[inline(always)]
fn blend<D: Lane>(to: &mut [D; LANES], mask: u32, value: impl Fn(usize) -> D) {
    if mask == FULL {
        for (lane, to) in to.iter_mut().enumerate() {
            *to = value(lane);
        }
    } else {
        for (lane, to) in to.iter_mut().enumerate() {
            let new = value(lane);
            *to = if mask >> lane & 1 != 0 { new } else { *to };
        }
    }
}

#[inline(always)]
fn map1_lanes<D: Lane, A: Lane>(registers: &mut Registers, d: Slot, a: Slot, mask: u32, f: impl Fn(A) -> D) {
    let a = A::bank(registers)[a as usize];
    blend(&mut D::bank_mut(registers)[d as usize], mask, |lane| f(a[lane]));
}

#[inline(always)]
fn map2_lanes<D: Lane, A: Lane, B: Lane>(
    registers: &mut Registers,
    d: Slot,
    [a, b]: [Slot; 2],
    mask: u32,
    f: impl Fn(A, B) -> D,
) {
    let a = A::bank(registers)[a as usize];
    let b = B::bank(registers)[b as usize];
    blend(&mut D::bank_mut(registers)[d as usize], mask, |lane| f(a[lane], b[lane]));
}

#[inline(always)]
fn map3_lanes<D: Lane, A: Lane, B: Lane, C: Lane>(
    registers: &mut Registers,
    d: Slot,
    [a, b, c]: [Slot; 3],
    mask: u32,
    f: impl Fn(A, B, C) -> D,
) {
    let a = A::bank(registers)[a as usize];
    let b = B::bank(registers)[b as usize];
    let c = C::bank(registers)[c as usize];
    blend(&mut D::bank_mut(registers)[d as usize], mask, |lane| f(a[lane], b[lane], c[lane]));
}

#[inline(always)]
fn long_map1_lanes<A: Lane>(registers: &mut Registers, d: Slot, a: Slot, mask: u32, f: impl Fn(A) -> A) {
    let mut lanes = A::bank(registers)[a as usize];
    for lane in &mut lanes {
        *lane = f(*lane);
    }
    blend(&mut A::bank_mut(registers)[d as usize], mask, |lane| lanes[lane]);
}

#[inline(always)]
fn long_map2_lanes<A: Lane>(registers: &mut Registers, d: Slot, [a, b]: [Slot; 2], mask: u32, f: impl Fn(A, A) -> A) {
    let mut lanes = A::bank(registers)[a as usize];
    let b = &A::bank(registers)[b as usize];
    for (a, b) in lanes.iter_mut().zip(b) {
        *a = f(*a, *b);
    }
    blend(&mut A::bank_mut(registers)[d as usize], mask, |lane| lanes[lane]);
}

#[inline(always)]
fn test2_lanes<A: Lane, B: Lane>(registers: &Registers, [a, b]: [Slot; 2], f: impl Fn(A, B) -> bool) -> u32 {
    let a = &A::bank(registers)[a as usize];
    let b = &B::bank(registers)[b as usize];
    let mut held = 0;
    for lane in 0..LANES {
        held |= u32::from(f(a[lane], b[lane])) << lane;
    }
    held
}

/// Makes a function of a loop over lanes that takes the best form for the CPU it runs on.
macro_rules! for_this_cpu {
    ($(#[$doc:meta])* $name:ident = $body:ident<$($lane:ident),*>($($argument:ident: $ty:ty),*; $($f:tt)*) -> $result:ty) => {
        $(#[$doc])*
        #[inline]
        pub(super) fn $name<$($lane: Lane),*>($($argument: $ty),*, f: impl $($f)*) -> $result {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma")]
                fn with_avx2<$($lane: Lane),*>($($argument: $ty),*, f: impl $($f)*) -> $result {
                    $body($($argument),*, f)
                }
                if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
                    // SAFETY: the CPU has what the function was compiled for.
                    return unsafe { with_avx2($($argument),*, f) };
                }
            }
            $body($($argument),*, f)
        }
    };
}

for_this_cpu!(
    /// `d = f(a)` in the lanes of the mask. `f` is also called with the values of other lanes.
    map1 = map1_lanes<D, A>(registers: &mut Registers, d: Slot, a: Slot, mask: u32; Fn(A) -> D) -> ()
);
for_this_cpu!(
    /// `d = f(a, b)` in the lanes of the mask. `f` is also called with the values of other lanes.
    map2 = map2_lanes<D, A, B>(registers: &mut Registers, d: Slot, sources: [Slot; 2], mask: u32; Fn(A, B) -> D) -> ()
);
for_this_cpu!(
    /// `d = f(a, b, c)` in the lanes of the mask. `f` is also called with the values of other lanes.
    map3 = map3_lanes<D, A, B, C>(
        registers: &mut Registers, d: Slot, sources: [Slot; 3], mask: u32; Fn(A, B, C) -> D
    ) -> ()
);
for_this_cpu!(
    /// As `map1` for a function of many instructions. It stands once in the loop, where the compiler would otherwise rather
    /// call it for each lane, and must be one that is always inlined, which a closure is not.
    long_map1 = long_map1_lanes<A>(registers: &mut Registers, d: Slot, a: Slot, mask: u32; Fn(A) -> A) -> ()
);
for_this_cpu!(
    /// As `map2`, and as `long_map1`.
    long_map2 = long_map2_lanes<A>(
        registers: &mut Registers, d: Slot, sources: [Slot; 2], mask: u32; Fn(A, A) -> A
    ) -> ()
);
for_this_cpu!(
    /// The lanes where `f(a, b)` holds, of all.
    test2 = test2_lanes<A, B>(registers: &Registers, sources: [Slot; 2]; Fn(A, B) -> bool) -> u32
);

impl Registers {
    /// A register's lanes, narrow ones extended with zeros.
    pub(super) fn read(&self, register: Reg) -> [u64; LANES] {
        match register {
            Reg::Narrow(slot) => self.narrow[slot as usize].map(u64::from),
            Reg::Wide(slot) => self.wide[slot as usize],
        }
    }

    /// A register's value in one lane, extended with zeros where narrow.
    pub(super) fn read_lane(&self, register: Reg, lane: usize) -> u64 {
        match register {
            Reg::Narrow(slot) => self.narrow[slot as usize][lane].into(),
            Reg::Wide(slot) => self.wide[slot as usize][lane],
        }
    }

    /// Writes a register in the lanes of the mask; a narrow one takes the low bits.
    pub(super) fn write(&mut self, register: Reg, mask: u32, values: &[u64; LANES]) {
        match register {
            Reg::Narrow(slot) => blend(&mut self.narrow[slot as usize], mask, |lane| low(values[lane])),
            Reg::Wide(slot) => blend(&mut self.wide[slot as usize], mask, |lane| values[lane]),
        }
    }

    /// Writes a register in one lane; a narrow one takes the low bits.
    pub(super) fn write_lane(&mut self, register: Reg, lane: usize, value: u64) {
        match register {
            Reg::Narrow(slot) => self.narrow[slot as usize][lane] = low(value),
            Reg::Wide(slot) => self.wide[slot as usize][lane] = value,
        }
    }

    /// Writes a predicate in the lanes of the mask.
    pub(super) fn write_predicate(&mut self, slot: Slot, mask: u32, values: u32) {
        let to = &mut self.predicates[slot as usize];
        *to = *to & !mask | values & mask;
    }

    /// The lanes where a condition holds.
    #[inline]
    pub(super) fn condition(&self, condition: super::op::Condition) -> u32 {
        let held = self.predicates[condition.slot as usize];
        if condition.negated { !held } else { held }
    }
}

/// The low 32 bits.
#[allow(clippy::cast_possible_truncation, reason = "the low bits are what is asked for")]
#[inline(always)]
pub(super) fn low(value: u64) -> u32 {
    value as u32
}
