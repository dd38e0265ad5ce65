//! Instructions that touch nothing but registers.

use super::integer::Carry;
use super::lanes::{Registers, map1};
use super::op::Op;
use super::{compare, convert, float, half, integer, uncommon};

/// Runs an instruction in the lanes of the mask.
pub(super) fn compute(r: &mut Registers, op: &Op, mask: u32) {
    match *op {
        Op::Move32 { d, a } => map1(r, d, a, mask, |a: u32| a),
        Op::Move64 { d, a } => map1(r, d, a, mask, |a: u64| a),
        Op::MovePredicate { d, a } => r.write_predicate(d, mask, r.condition(a)),
        Op::Pack { d, bits, ref parts } => integer::pack(r, d, bits, parts, mask),
        Op::Unpack { ref parts, bits, a } => integer::unpack(r, parts, bits, a, mask),

        Op::Integer1 { op, ty, d, a } => integer::one(r, op, ty, d, a, mask),
        Op::Integer2 { op, ty, d, a, b } => integer::two(r, op, ty, d, [a, b], mask),
        Op::Integer3 { op, ty, d, a, b, c } => integer::three(r, op, ty, d, [a, b, c], mask),
        Op::ShiftLeft { ty, d, a, b } => integer::shift_left(r, ty, d, [a, b], mask),
        Op::ShiftRight { ty, d, a, b } => integer::shift_right(r, ty, d, [a, b], mask),
        Op::MulWide { ty, d, a, b } => integer::mul_wide(r, ty, d, [a, b], mask),
        Op::MadWide { ty, d, a, b, c } => integer::mad_wide(r, ty, d, [a, b, c], mask),
        Op::Mul24 { high, signed, d, a, b } => integer::mul24(r, high, signed, d, [a, b], mask),
        Op::Mad24Saturating { d, a, b, c } => integer::mad24_saturating(r, d, [a, b, c], mask),
        Op::Mad24 { high, signed, d, a, b, c } => integer::mad24(r, high, signed, d, [a, b, c], mask),
        Op::Count { op, ty, d, a } => integer::count(r, op, ty, d, a, mask),
        Op::BitExtract { ty, d, a, b, c } => integer::bit_extract(r, ty, d, [a, b, c], mask),
        Op::BitInsert { wide, d, a, b, c, length } => integer::bit_insert(r, wide, d, [a, b, c, length], mask),
        Op::BitMask { clamp, d, a, b } => integer::bit_mask(r, clamp, d, [a, b], mask),
        Op::Permute { mode, d, a, b, c } => integer::permute(r, mode, d, [a, b, c], mask),
        Op::Funnel { left, clamp, d, a, b, c } => integer::funnel(r, left, clamp, d, [a, b, c], mask),
        Op::Lop3 { table, d, a, b, c } => integer::lop3(r, table, d, [a, b, c], mask),
        Op::Dot { signed, d, a, b, c, half } => integer::dot(r, signed, half, d, [a, b, c], mask),
        Op::AddCarry { wide, subtract, takes, gives, d, a, b } => {
            integer::add_carry(r, wide, subtract, Carry { takes, gives }, d, [a, b], mask);
        }
        Op::MadCarry { ty, high, takes, gives, d, a, b, c } => {
            integer::mad_carry(r, ty, high, Carry { takes, gives }, d, [a, b, c], mask);
        }
        Op::PredicateLogic { op, d, a, b } => {
            r.write_predicate(d, mask, compare::combine(op, r.condition(a), r.condition(b)));
        }

        Op::Float1 { op, ty, mode, d, a } => float::one(r, op, ty, mode, d, a, mask),
        Op::Float2 { op, ty, mode, d, a, b } => float::two(r, op, ty, mode, d, [a, b], mask),
        Op::Fma { ty, mode, d, a, b, c } => float::fma(r, ty, mode, d, [a, b, c], mask),
        Op::Joined { ty, mode, packed, negate, d, a, b, c } => {
            float::joined(r, ty, mode, packed, negate, d, [a, b, c], mask);
        }
        Op::PackedFloat1 { op, ty, mode, d, a } => half::run_packed(r, op, ty, mode, d, a, mask),
        Op::PackedFloat2 { op, ty, mode, d, a, b } => half::run_two(r, op, ty, mode, true, d, [a, b], mask),
        Op::PackedFma { ty, mode, d, a, b, c } => half::run_fma(r, ty, mode, true, d, [a, b, c], mask),
        Op::TestFloat { test, ty, d, a } => r.write_predicate(d, mask, float::test(r, test, ty, a)),

        Op::Compare { ref comparison, d, inverse } => {
            let held = compare::compare(r, comparison);
            let not_held = inverse.map(|slot| (slot, compare::compare_inverse(r, comparison)));
            if let Some(d) = d {
                r.write_predicate(d, mask, held);
            }
            if let Some((slot, held)) = not_held {
                r.write_predicate(slot, mask, held);
            }
        }
        Op::Set { ref comparison, d, yes } => compare::set(r, comparison, d, yes, mask),
        Op::Select { d, a, b, condition } => compare::select(r, d, a, b, condition, mask),
        Op::SelectSign { d, a, b, c, float, flush } => compare::select_sign(r, d, [a, b, c], float, flush, mask),

        Op::Convert { from, to, mode, d, a } => convert::convert(r, from, to, mode, d, a, mask),
        Op::ConvertPair { to, mode, d, a, b } => convert::convert_pair(r, to, mode, d, [a, b], mask),
        Op::Uncommon(ref op) => uncommon::run(r, op, mask),
        // The warp runs the others.
        _ => {}
    }
}
