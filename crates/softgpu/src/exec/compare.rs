//! Comparisons and what is chosen by them.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "instructions see the bits of a register as the type that they name"
)]

use super::float::flush32;
use super::half;
use super::lanes::{Lane, Registers, map3, test2};
use super::op::{CompareType, Comparison, Condition, FloatType, IntType, Logic, Reg, Relation, Slot};

/// The lanes where a comparison holds.
pub(super) fn compare(r: &Registers, comparison: &Comparison) -> u32 {
    compare_half(r, comparison, 0)
}

/// The lanes where a comparison holds, for the halves from a bit on where two stand side by side.
pub(super) fn compare_half(r: &Registers, comparison: &Comparison, shift: u32) -> u32 {
    let held = relation(r, comparison, shift);
    match comparison.combined {
        None => held,
        Some((logic, condition)) => combine(logic, held, r.condition(condition)),
    }
}

/// The lanes where the relation does not hold, combined as the relation is.
pub(super) fn compare_inverse(r: &Registers, comparison: &Comparison) -> u32 {
    let held = !relation(r, comparison, 0);
    match comparison.combined {
        None => held,
        Some((logic, condition)) => combine(logic, held, r.condition(condition)),
    }
}

pub(super) fn combine(logic: Logic, a: u32, b: u32) -> u32 {
    match logic {
        Logic::And => a & b,
        Logic::Or => a | b,
        Logic::Xor => a ^ b,
    }
}

fn relation(r: &Registers, comparison: &Comparison, shift: u32) -> u32 {
    let ab = [comparison.a, comparison.b];
    let relation = comparison.relation;
    let flush = comparison.flush;
    let f16 = move |bits: u32| {
        let bits = bits >> shift & 0xffff;
        half::widen(FloatType::F16, if flush && bits & 0x7c00 == 0 { bits & 0x8000 } else { bits })
    };
    let bf16 = move |bits: u32| half::widen(FloatType::Bf16, bits >> shift & 0xffff);
    match comparison.ty {
        CompareType::Integer(IntType::U16) => ordered(r, relation, ab, |bits: u32| bits as u16),
        CompareType::Integer(IntType::S16) => ordered(r, relation, ab, |bits: u32| bits as i16),
        CompareType::Integer(IntType::U32) => ordered(r, relation, ab, |bits: u32| bits),
        CompareType::Integer(IntType::S32) => ordered(r, relation, ab, |bits: u32| bits as i32),
        CompareType::Integer(IntType::U64) => ordered(r, relation, ab, |bits: u64| bits),
        CompareType::Integer(IntType::S64) => ordered(r, relation, ab, |bits: u64| bits as i64),
        CompareType::Float(FloatType::F32) if comparison.flush => {
            ordered(r, relation, ab, |bits: u32| f32::from_bits(flush32(bits)))
        }
        CompareType::Float(FloatType::F32) => ordered(r, relation, ab, f32::from_bits),
        CompareType::Float(FloatType::F64) => ordered(r, relation, ab, f64::from_bits),
        CompareType::Float(FloatType::F16) => ordered(r, relation, ab, f16),
        CompareType::Float(FloatType::Bf16) => ordered(r, relation, ab, bf16),
    }
}

/// The lanes where a relation holds between values; those that are not equal to themselves are NaNs.
#[allow(
    clippy::eq_op,
    clippy::nonminimal_bool,
    clippy::neg_cmp_op_on_partial_ord,
    clippy::double_comparisons,
    reason = "a NaN makes every relation false, and its opposite too"
)]
#[inline(always)]
fn ordered<L: Lane, T: PartialOrd + Copy>(
    r: &Registers,
    relation: Relation,
    ab: [Slot; 2],
    value: impl Fn(L) -> T + Copy,
) -> u32 {
    macro_rules! test {
        (|$a:ident, $b:ident| $holds:expr) => {
            test2(r, ab, |$a: L, $b: L| {
                let ($a, $b) = (value($a), value($b));
                $holds
            })
        };
    }
    match relation {
        Relation::Equal => test!(|a, b| a == b),
        // Ordered: false for a NaN.
        Relation::NotEqual => test!(|a, b| a < b || a > b),
        Relation::Less => test!(|a, b| a < b),
        Relation::LessEqual => test!(|a, b| a <= b),
        Relation::Greater => test!(|a, b| a > b),
        Relation::GreaterEqual => test!(|a, b| a >= b),
        Relation::EqualUnordered => test!(|a, b| !(a < b) && !(a > b)),
        Relation::NotEqualUnordered => test!(|a, b| !(a == b)),
        Relation::LessUnordered => test!(|a, b| !(a >= b)),
        Relation::LessEqualUnordered => test!(|a, b| !(a > b)),
        Relation::GreaterUnordered => test!(|a, b| !(a <= b)),
        Relation::GreaterEqualUnordered => test!(|a, b| !(a < b)),
        Relation::Numbers => test!(|a, b| a == a && b == b),
        Relation::Nan => test!(|a, b| !(a == a && b == b)),
    }
}

/// `set`: a number where the comparison holds, 0 elsewhere.
pub(super) fn set(r: &mut Registers, comparison: &Comparison, d: Slot, yes: u32, mask: u32) {
    let held = compare(r, comparison);
    let values = core::array::from_fn(|lane| if held >> lane & 1 != 0 { u64::from(yes) } else { 0 });
    r.write(Reg::Narrow(d), mask, &values);
}

/// `selp`.
pub(super) fn select(r: &mut Registers, d: Reg, a: Slot, b: Slot, condition: Condition, mask: u32) {
    fn choose<L: Lane>(r: &mut Registers, d: Slot, a: Slot, b: Slot, held: u32, mask: u32) {
        let a = L::bank(r)[a as usize];
        let b = L::bank(r)[b as usize];
        let to = &mut L::bank_mut(r)[d as usize];
        for (lane, to) in to.iter_mut().enumerate() {
            let chosen = if held >> lane & 1 != 0 { a[lane] } else { b[lane] };
            *to = if mask >> lane & 1 != 0 { chosen } else { *to };
        }
    }
    let held = r.condition(condition);
    match d {
        Reg::Narrow(d) => choose::<u32>(r, d, a, b, held, mask),
        Reg::Wide(d) => choose::<u64>(r, d, a, b, held, mask),
    }
}

/// `slct`: `a` where `c` is at least 0, `b` elsewhere.
pub(super) fn select_sign(r: &mut Registers, d: Reg, abc: [Slot; 3], float: bool, flush: bool, mask: u32) {
    let first = move |c: u32| match (float, flush) {
        (true, true) => f32::from_bits(flush32(c)) >= 0.0,
        (true, false) => f32::from_bits(c) >= 0.0,
        _ => c as i32 >= 0,
    };
    match d {
        Reg::Narrow(d) => map3(r, d, abc, mask, |a: u32, b: u32, c: u32| if first(c) { a } else { b }),
        Reg::Wide(d) => map3(r, d, abc, mask, |a: u64, b: u64, c: u32| if first(c) { a } else { b }),
    }
}
