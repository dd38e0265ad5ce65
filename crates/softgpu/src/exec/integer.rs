//! Integer arithmetic and bits.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::cast_lossless,
    reason = "instructions see the bits of a register as the type that they name, and wrap"
)]

use super::lanes::{LANES, Registers, lanes_of, map1, map2, map3};
use super::op::{Count, IntType, Integer1, Integer2, Integer3, PermuteMode, Slot};

/// Runs `$body` with `$t` as the instruction's type, `$lane` as a lane of its registers and `$double` as the type
/// of twice its size.
macro_rules! with_type {
    ($ty:expr, $t:ident, $lane:ident, $double:ident, $body:block) => {
        match $ty {
            IntType::U16 => with_type!(@ u16, u32, u32, $t, $lane, $double, $body),
            IntType::S16 => with_type!(@ i16, u32, i32, $t, $lane, $double, $body),
            IntType::U32 => with_type!(@ u32, u32, u64, $t, $lane, $double, $body),
            IntType::S32 => with_type!(@ i32, u32, i64, $t, $lane, $double, $body),
            IntType::U64 => with_type!(@ u64, u64, u128, $t, $lane, $double, $body),
            IntType::S64 => with_type!(@ i64, u64, i128, $t, $lane, $double, $body),
        }
    };
    (@ $ty:ty, $lane_ty:ty, $double_ty:ty, $t:ident, $lane:ident, $double:ident, $body:block) => {{
        #[allow(dead_code, reason = "not every instruction needs the double size")]
        type $double = $double_ty;
        type $t = $ty;
        type $lane = $lane_ty;
        $body
    }};
}

/// Whether a value is below zero, of a type that may have no such values.
macro_rules! is_negative {
    ($t:ident, $value:expr) => {
        $t::MIN != 0 && ($value >> ($t::BITS - 1)) & 1 != 0
    };
}

pub(super) fn one(r: &mut Registers, op: Integer1, ty: IntType, d: Slot, a: Slot, mask: u32) {
    with_type!(ty, T, L, Double, {
        match op {
            Integer1::Neg => map1(r, d, a, mask, |a: L| (0 as T).wrapping_sub(a as T) as L),
            Integer1::Abs => map1(r, d, a, mask, |a: L| {
                let a = a as T;
                let result = if is_negative!(T, a) { (0 as T).wrapping_sub(a) } else { a };
                result as L
            }),
            Integer1::Not => map1(r, d, a, mask, |a: L| !a),
            Integer1::Cnot => map1(r, d, a, mask, |a: L| (a as T == 0) as L),
            Integer1::Brev => map1(r, d, a, mask, |a: L| (a as T).reverse_bits() as L),
        }
    });
}

pub(super) fn two(r: &mut Registers, op: Integer2, ty: IntType, d: Slot, ab: [Slot; 2], mask: u32) {
    with_type!(ty, T, L, Double, {
        match op {
            Integer2::Add => map2(r, d, ab, mask, |a: L, b: L| (a as T).wrapping_add(b as T) as L),
            Integer2::Sub => map2(r, d, ab, mask, |a: L, b: L| (a as T).wrapping_sub(b as T) as L),
            Integer2::AddSat => map2(r, d, ab, mask, |a: L, b: L| (a as T).saturating_add(b as T) as L),
            Integer2::SubSat => map2(r, d, ab, mask, |a: L, b: L| (a as T).saturating_sub(b as T) as L),
            Integer2::MulLow => map2(r, d, ab, mask, |a: L, b: L| (a as T).wrapping_mul(b as T) as L),
            Integer2::MulHigh => map2(r, d, ab, mask, |a: L, b: L| {
                (((a as T) as Double).wrapping_mul((b as T) as Double) >> T::BITS) as T as L
            }),
            // The GPU's own answer to a division by zero: all bits set.
            Integer2::Div => {
                map2(r, d, ab, mask, |a: L, b: L| if b as T == 0 { L::MAX } else { (a as T).wrapping_div(b as T) as L })
            }
            Integer2::Rem => {
                map2(r, d, ab, mask, |a: L, b: L| if b as T == 0 { L::MAX } else { (a as T).wrapping_rem(b as T) as L })
            }
            Integer2::Min => map2(r, d, ab, mask, |a: L, b: L| (a as T).min(b as T) as L),
            Integer2::Max => map2(r, d, ab, mask, |a: L, b: L| (a as T).max(b as T) as L),
            Integer2::And => map2(r, d, ab, mask, |a: L, b: L| a & b),
            Integer2::Or => map2(r, d, ab, mask, |a: L, b: L| a | b),
            Integer2::Xor => map2(r, d, ab, mask, |a: L, b: L| a ^ b),
        }
    });
}

/// `mul24`, `mad24`: the low 24 bits of both are the factors.
fn product24(high: bool, signed: bool, a: u32, b: u32) -> u32 {
    let factor = |value: u32| if signed { (value << 8) as i32 as i64 >> 8 } else { (value & 0xff_ffff) as i64 };
    let product = factor(a) * factor(b);
    if high { (product >> 16) as u32 } else { product as u32 }
}

pub(super) fn mul24(r: &mut Registers, high: bool, signed: bool, d: Slot, ab: [Slot; 2], mask: u32) {
    map2(r, d, ab, mask, |a: u32, b: u32| product24(high, signed, a, b));
}

pub(super) fn mad24(r: &mut Registers, high: bool, signed: bool, d: Slot, abc: [Slot; 3], mask: u32) {
    map3(r, d, abc, mask, |a: u32, b: u32, c: u32| product24(high, signed, a, b).wrapping_add(c));
}

/// `mad24.hi.sat.s32`.
pub(super) fn mad24_saturating(r: &mut Registers, d: Slot, abc: [Slot; 3], mask: u32) {
    map3(r, d, abc, mask, |a: u32, b: u32, c: u32| {
        (product24(true, true, a, b) as i32).saturating_add(c as i32) as u32
    });
}

pub(super) fn three(r: &mut Registers, op: Integer3, ty: IntType, d: Slot, abc: [Slot; 3], mask: u32) {
    with_type!(ty, T, L, Double, {
        match op {
            Integer3::MadLow => {
                map3(r, d, abc, mask, |a: L, b: L, c: L| (a as T).wrapping_mul(b as T).wrapping_add(c as T) as L)
            }
            Integer3::MadHigh => map3(r, d, abc, mask, |a: L, b: L, c: L| {
                let high = (((a as T) as Double).wrapping_mul((b as T) as Double) >> T::BITS) as T;
                high.wrapping_add(c as T) as L
            }),
            Integer3::MadHighSat => map3(r, d, abc, mask, |a: L, b: L, c: L| {
                let high = (((a as T) as Double).wrapping_mul((b as T) as Double) >> T::BITS) as T;
                high.saturating_add(c as T) as L
            }),
            Integer3::Sad => map3(r, d, abc, mask, |a: L, b: L, c: L| {
                let difference =
                    if (a as T) < b as T { (b as T).wrapping_sub(a as T) } else { (a as T).wrapping_sub(b as T) };
                (c as T).wrapping_add(difference) as L
            }),
        }
    });
}

/// `shl` of any type; amounts beyond the size give 0.
pub(super) fn shift_left(r: &mut Registers, ty: IntType, d: Slot, ab: [Slot; 2], mask: u32) {
    with_type!(ty, T, L, Double, {
        map2(r, d, ab, mask, |a: L, b: u32| if b < T::BITS { ((a as T) << b) as L } else { 0 });
    });
}

/// `shr`; amounts beyond the size give 0 or the sign.
pub(super) fn shift_right(r: &mut Registers, ty: IntType, d: Slot, ab: [Slot; 2], mask: u32) {
    with_type!(ty, T, L, Double, {
        map2(r, d, ab, mask, |a: L, b: u32| {
            let a = a as T;
            let beyond = if is_negative!(T, a) { !0 } else { 0 };
            if b < T::BITS { (a >> b) as L } else { beyond }
        });
    });
}

pub(super) fn mul_wide(r: &mut Registers, ty: IntType, d: Slot, ab: [Slot; 2], mask: u32) {
    match ty {
        IntType::U16 => map2(r, d, ab, mask, |a: u32, b: u32| (a & 0xffff) * (b & 0xffff)),
        IntType::S16 => map2(r, d, ab, mask, |a: u32, b: u32| (a as i16 as i32 * b as i16 as i32) as u32),
        IntType::S32 => map2(r, d, ab, mask, |a: u32, b: u32| (a as i32 as i64 * b as i32 as i64) as u64),
        _ => map2(r, d, ab, mask, |a: u32, b: u32| a as u64 * b as u64),
    }
}

pub(super) fn mad_wide(r: &mut Registers, ty: IntType, d: Slot, abc: [Slot; 3], mask: u32) {
    match ty {
        IntType::U16 => {
            map3(r, d, abc, mask, |a: u32, b: u32, c: u32| ((a & 0xffff) * (b & 0xffff)).wrapping_add(c));
        }
        IntType::S16 => {
            map3(r, d, abc, mask, |a: u32, b: u32, c: u32| ((a as i16 as i32 * b as i16 as i32) as u32).wrapping_add(c))
        }
        IntType::S32 => {
            map3(r, d, abc, mask, |a: u32, b: u32, c: u64| ((a as i32 as i64 * b as i32 as i64) as u64).wrapping_add(c))
        }
        _ => map3(r, d, abc, mask, |a: u32, b: u32, c: u64| (a as u64 * b as u64).wrapping_add(c)),
    }
}

pub(super) fn count(r: &mut Registers, op: Count, ty: IntType, d: Slot, a: Slot, mask: u32) {
    const NOT_FOUND: u32 = u32::MAX;
    with_type!(ty, T, L, Double, {
        // For a negative number, the highest bit that differs from the sign.
        let significant = |a: L| if is_negative!(T, a as T) { !(a as T) } else { a as T };
        match op {
            Count::Popc => map1(r, d, a, mask, |a: L| (a as T).count_ones()),
            Count::Clz => map1(r, d, a, mask, |a: L| (a as T).leading_zeros()),
            Count::Bfind => map1(r, d, a, mask, |a: L| match significant(a) {
                0 => NOT_FOUND,
                a => T::BITS - 1 - a.leading_zeros(),
            }),
            Count::BfindShift => map1(r, d, a, mask, |a: L| match significant(a) {
                0 => NOT_FOUND,
                a => a.leading_zeros(),
            }),
        }
    });
}

/// Where a bit field begins and how long it is: of 32-bit operands the low 8 bits say so, of 64-bit ones all.
fn field(start: u32, length: u32, bits: u32) -> (u32, u32) {
    if bits == u32::BITS { (start & 0xff, length & 0xff) } else { (start, length) }
}

/// `bfe`: `c` bits from bit `b` on; what lies beyond the operand is 0 or its sign.
pub(super) fn bit_extract(r: &mut Registers, ty: IntType, d: Slot, abc: [Slot; 3], mask: u32) {
    with_type!(ty, T, L, Double, {
        map3(r, d, abc, mask, |a: L, start: u32, length: u32| {
            let (start, length) = field(start, length, T::BITS);
            let a = a as T;
            if length == 0 {
                return 0;
            }
            let beyond: T = if is_negative!(T, a) { !0 } else { 0 };
            let shifted = if start < T::BITS { a >> start } else { beyond };
            let unused = T::BITS.saturating_sub(length);
            // The topmost bit of the field, or of the operand where the field reaches beyond it, is the sign.
            let kept = T::BITS.saturating_sub(start).min(length);
            if kept < length { shifted as L } else { ((shifted << unused) >> unused) as L }
        });
    });
}

/// `bfi`: the low `length` bits of `a` in `b` from bit `c` on.
pub(super) fn bit_insert(r: &mut Registers, wide: bool, d: Slot, [a, b, c, length]: [Slot; 4], mask: u32) {
    fn insert(a: u64, b: u64, start: u32, length: u32, bits: u32) -> u64 {
        let (start, length) = field(start, length, bits);
        if start >= bits || length == 0 {
            return b;
        }
        let field = if length >= u64::BITS { u64::MAX } else { (1 << length) - 1 };
        (b & !(field << start)) | ((a & field) << start)
    }
    let lengths = r.narrow[length as usize];
    let starts = r.narrow[c as usize];
    for lane in lanes_of(mask) {
        let (start, length) = (starts[lane], lengths[lane]);
        if wide {
            let (a, b) = (r.wide[a as usize][lane], r.wide[b as usize][lane]);
            r.wide[d as usize][lane] = insert(a, b, start, length, u64::BITS);
        } else {
            let (a, b) = (r.narrow[a as usize][lane], r.narrow[b as usize][lane]);
            r.narrow[d as usize][lane] = insert(a as u64, b as u64, start, length, u32::BITS) as u32;
        }
    }
}

/// `bmsk`: `b` bits set from bit `a` on.
pub(super) fn bit_mask(r: &mut Registers, clamp: bool, d: Slot, ab: [Slot; 2], mask: u32) {
    map2(r, d, ab, mask, |a: u32, b: u32| {
        let (start, length) = if clamp { (a.min(32), b.min(32)) } else { (a & 31, b & 31) };
        ((((1u64 << length) - 1) << start) & u32::MAX as u64) as u32
    });
}

pub(super) fn permute(r: &mut Registers, mode: PermuteMode, d: Slot, abc: [Slot; 3], mask: u32) {
    map3(r, d, abc, mask, |a: u32, b: u32, c: u32| {
        let bytes = (a as u64) | (b as u64) << 32;
        let byte = |number: u32| ((bytes >> (8 * (number & 7))) & 0xff) as u32;
        let side_by_side = |numbers: [u32; 4]| {
            numbers.iter().enumerate().fold(0, |word, (at, number)| word | byte(*number) << (8 * at))
        };
        let c3 = c & 3;
        match mode {
            PermuteMode::Default => (0..4).fold(0, |word, at| {
                let selector = c >> (4 * at) & 0xf;
                let value = byte(selector);
                // The selector's top bit replicates the byte's sign.
                let value = if selector & 8 == 0 { value } else { (value as u8 as i8 >> 7) as u8 as u32 };
                word | value << (8 * at)
            }),
            PermuteMode::Forward4 => side_by_side([c3, c3 + 1, c3 + 2, c3 + 3]),
            PermuteMode::Backward4 => side_by_side([c3, c3 + 7, c3 + 6, c3 + 5]),
            PermuteMode::Replicate8 => side_by_side([c3; 4]),
            PermuteMode::EdgeLeft => side_by_side([c3, c3.max(1), c3.max(2), 3]),
            PermuteMode::EdgeRight => side_by_side([0, c3.min(1), c3.min(2), c3]),
            PermuteMode::Replicate16 => {
                let half = 2 * (c & 1);
                side_by_side([half, half + 1, half, half + 1])
            }
        }
    });
}

/// `shf`: 32 bits out of `b:a`.
pub(super) fn funnel(r: &mut Registers, left: bool, clamp: bool, d: Slot, abc: [Slot; 3], mask: u32) {
    map3(r, d, abc, mask, |a: u32, b: u32, c: u32| {
        let amount = if clamp { c.min(32) } else { c & 31 };
        let both = (b as u64) << 32 | a as u64;
        if left { ((both << amount) >> 32) as u32 } else { (both >> amount) as u32 }
    });
}

pub(super) fn lop3(r: &mut Registers, table: u8, d: Slot, abc: [Slot; 3], mask: u32) {
    map3(r, d, abc, mask, |a: u32, b: u32, c: u32| by_table(table, a, b, c));
}

/// Each bit by the table's row that the bits of `a`, `b` and `c` name together.
#[inline(always)]
pub(super) fn by_table(table: u8, a: u32, b: u32, c: u32) -> u32 {
    let row = |number: u32| 0u32.wrapping_sub(u32::from(table >> number & 1));
    let choose = |by: u32, one: u32, zero: u32| by & one | !by & zero;
    let by_c = |number: u32| choose(c, row(number + 1), row(number));
    choose(a, choose(b, by_c(6), by_c(4)), choose(b, by_c(2), by_c(0)))
}

/// `dp4a`, and `dp2a` with the half of `b` that it takes.
pub(super) fn dot(r: &mut Registers, signed: [bool; 2], half: Option<bool>, d: Slot, abc: [Slot; 3], mask: u32) {
    let byte = |word: u32, at: u32, signed: bool| {
        let byte = (word >> (8 * at)) as u8;
        if signed { byte as i8 as i32 } else { byte as i32 }
    };
    let short = |word: u32, at: u32, signed: bool| {
        let short = (word >> (16 * at)) as u16;
        if signed { short as i16 as i32 } else { short as i32 }
    };
    map3(r, d, abc, mask, |a: u32, b: u32, c: u32| match half {
        None => (0..4).fold(c, |sum, at| sum.wrapping_add((byte(a, at, signed[0]) * byte(b, at, signed[1])) as u32)),
        Some(high) => (0..2).fold(c, |sum, at| {
            let factor = byte(b, at + if high { 2 } else { 0 }, signed[1]);
            sum.wrapping_add(short(a, at, signed[0]).wrapping_mul(factor) as u32)
        }),
    });
}

/// How an instruction uses the condition code.
#[derive(Debug, Clone, Copy)]
pub(super) struct Carry {
    pub(super) takes: bool,
    pub(super) gives: bool,
}

/// `add.cc`, `addc`, `sub.cc`, `subc`. As on the GPU, the condition code of a difference is set where nothing was
/// borrowed.
pub(super) fn add_carry(
    r: &mut Registers,
    wide: bool,
    subtract: bool,
    carry: Carry,
    d: Slot,
    [a, b]: [Slot; 2],
    mask: u32,
) {
    let mut out = r.carry;
    for lane in lanes_of(mask) {
        let carry_in = carry.takes && (r.carry >> lane & 1 != 0) != subtract;
        let carry_out = if wide {
            let (a, b) = (r.wide[a as usize][lane], r.wide[b as usize][lane]);
            let (result, carry_out) = if subtract { a.borrowing(b, carry_in) } else { a.carrying(b, carry_in) };
            r.wide[d as usize][lane] = result;
            carry_out
        } else {
            let (a, b) = (r.narrow[a as usize][lane], r.narrow[b as usize][lane]);
            let (result, carry_out) = if subtract { a.borrowing(b, carry_in) } else { a.carrying(b, carry_in) };
            r.narrow[d as usize][lane] = result;
            carry_out
        };
        let carry_out = carry_out != subtract;
        out = out & !(1 << lane) | u32::from(carry_out) << lane;
    }
    if carry.gives {
        r.carry = out;
    }
}

/// `mad.cc` and `madc`.
pub(super) fn mad_carry(
    r: &mut Registers,
    ty: IntType,
    high: bool,
    carry: Carry,
    d: Slot,
    [a, b, c]: [Slot; 3],
    mask: u32,
) {
    let mut out = r.carry;
    for lane in lanes_of(mask) {
        let carry_in = carry.takes && r.carry >> lane & 1 != 0;
        let carry_out = match ty {
            IntType::U64 | IntType::S64 => {
                let (a, b, c) = (r.wide[a as usize][lane], r.wide[b as usize][lane], r.wide[c as usize][lane]);
                let product = if ty == IntType::S64 {
                    (a as i64 as i128 * b as i64 as i128) as u128
                } else {
                    a as u128 * b as u128
                };
                let part = if high { (product >> 64) as u64 } else { product as u64 };
                let (result, carry_out) = part.carrying(c, carry_in);
                r.wide[d as usize][lane] = result;
                carry_out
            }
            _ => {
                let (a, b, c) = (r.narrow[a as usize][lane], r.narrow[b as usize][lane], r.narrow[c as usize][lane]);
                let product =
                    if ty == IntType::S32 { (a as i32 as i64 * b as i32 as i64) as u64 } else { a as u64 * b as u64 };
                let part = if high { (product >> 32) as u32 } else { product as u32 };
                let (result, carry_out) = part.carrying(c, carry_in);
                r.narrow[d as usize][lane] = result;
                carry_out
            }
        };
        out = out & !(1 << lane) | u32::from(carry_out) << lane;
    }
    if carry.gives {
        r.carry = out;
    }
}

/// Addition and subtraction with a carry in and out.
trait WithCarry: Sized {
    fn carrying(self, other: Self, carry: bool) -> (Self, bool);
    fn borrowing(self, other: Self, borrow: bool) -> (Self, bool);
}

macro_rules! with_carry {
    ($t:ty) => {
        impl WithCarry for $t {
            fn carrying(self, other: Self, carry: bool) -> (Self, bool) {
                let (sum, first) = self.overflowing_add(other);
                let (sum, second) = sum.overflowing_add(carry.into());
                (sum, first || second)
            }

            fn borrowing(self, other: Self, borrow: bool) -> (Self, bool) {
                let (difference, first) = self.overflowing_sub(other);
                let (difference, second) = difference.overflowing_sub(borrow.into());
                (difference, first || second)
            }
        }
    };
}
with_carry!(u32);
with_carry!(u64);

/// Puts registers side by side in another, the first at the bottom.
pub(super) fn pack(r: &mut Registers, d: super::op::Reg, bits: u32, parts: &[super::op::Reg], mask: u32) {
    let field = (1u64 << bits) - 1;
    let mut values = [0; LANES];
    for (at, part) in (0u32..).zip(parts) {
        let part = r.read(*part);
        for lane in 0..LANES {
            values[lane] |= (part[lane] & field) << (at * bits);
        }
    }
    r.write(d, mask, &values);
}

/// Takes a register apart, the bottom first.
pub(super) fn unpack(r: &mut Registers, parts: &[Option<super::op::Reg>], bits: u32, a: super::op::Reg, mask: u32) {
    let field = (1u64 << bits) - 1;
    let whole = r.read(a);
    for (at, part) in (0u32..).zip(parts) {
        if let Some(part) = part {
            r.write(*part, mask, &whole.map(|value| value >> (at * bits) & field));
        }
    }
}
