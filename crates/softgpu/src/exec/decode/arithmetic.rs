//! Which instruction does what; integers in particular.

use super::body::Builder;
use super::error::{Decoded, Refusal};
use super::hints::hint;
use super::modifiers::{Modifiers, float_type, int_type};
use super::operands::{exactly, nth};
use crate::exec::op::{Count, Float1, Float2, IntType, Integer1, Integer2, Integer3, Logic, Op, PermuteMode};
use detshare_ptx::ScalarType;
use detshare_ptx::ast::{Instruction, Operand};

impl<'a> Builder<'a> {
    /// What an instruction does, without its condition.
    pub(super) fn operation(&mut self, i: &'a Instruction) -> Decoded<Op> {
        let mut m = Modifiers::new(&i.modifiers);
        let m = &mut m;
        match i.opcode.as_str() {
            "add" => self.sum(i, m, Integer2::Add, Integer2::AddSat, Float2::Add),
            "sub" => self.sum(i, m, Integer2::Sub, Integer2::SubSat, Float2::Sub),
            "mul" => self.product(i, m),
            "mad" => self.product_sum(i, m),
            "fma" => self.fma(i, m),
            "div" => self.quotient(i, m),
            "rem" => self.integer2(i, m, Integer2::Rem),
            "min" => self.number2(i, m, Integer2::Min, Float2::Min),
            "max" => self.number2(i, m, Integer2::Max, Float2::Max),
            "abs" => self.number1(i, m, Integer1::Abs, Float1::Abs),
            "neg" => self.number1(i, m, Integer1::Neg, Float1::Neg),
            "sad" => self.integer3(i, m, Integer3::Sad),
            "and" => self.logic(i, m, Integer2::And, Logic::And),
            "or" => self.logic(i, m, Integer2::Or, Logic::Or),
            "xor" => self.logic(i, m, Integer2::Xor, Logic::Xor),
            "not" => self.not(i, m),
            "cnot" => self.integer1(i, m, Integer1::Cnot),
            "brev" => self.integer1(i, m, Integer1::Brev),
            "shl" | "shr" => self.shift(i, m),
            "shf" => self.funnel(i, m),
            "lop3" => self.lop3(i, m),
            "popc" => self.count(i, m, Count::Popc),
            "clz" => self.count(i, m, Count::Clz),
            "bfind" => {
                let count = if m.take("shiftamt") { Count::BfindShift } else { Count::Bfind };
                self.count(i, m, count)
            }
            "bfe" => self.bit_extract(i, m),
            "bfi" => self.bit_insert(i, m),
            "bmsk" => self.bit_mask(i, m),
            "fns" => self.find_bit(i, m),
            "szext" => self.extend(i, m),
            "vadd" | "vsub" | "vabsdiff" | "vmin" | "vmax" | "vshl" | "vshr" | "vset" => self.video(i, m),
            "vmad" => self.video_multiply(i, m),
            "vadd2" | "vsub2" | "vavrg2" | "vabsdiff2" | "vmin2" | "vmax2" | "vset2" | "vadd4" | "vsub4" | "vavrg4"
            | "vabsdiff4" | "vmin4" | "vmax4" | "vset4" => self.video_parts(i, m),
            "prmt" => self.permute(i, m),
            "mul24" | "mad24" => self.product24(i, m),
            "addc" => self.add_carry(i, m, false, true),
            "subc" => self.add_carry(i, m, true, true),
            "madc" => self.mad_carry(i, m, true),
            "dp4a" | "dp2a" => self.dot(i, m),
            "sqrt" | "rcp" | "rsqrt" | "sin" | "cos" | "lg2" | "ex2" | "tanh" => self.function(i, m),
            "copysign" => self.float2(i, m, Float2::CopySign),
            "testp" => self.test_float(i, m),
            "setp" => self.set_predicate(i, m),
            "set" => self.set(i, m),
            "selp" => self.select(i, m),
            "slct" => self.select_sign(i, m),
            "cvt" => self.convert(i, m),
            "mov" => self.mov(i, m),
            "ld" | "ldu" => self.load(i, m),
            "st" => self.store(i, m),
            "atom" | "red" => self.atomic(i, m),
            "cvta" => self.convert_address(i, m),
            "isspacep" => self.in_space(i, m),
            "membar" | "fence" => self.fence(m),
            "prefetch" | "prefetchu" | "discard" | "applypriority" | "pmevent" | "griddepcontrol" | "setmaxnreg" => {
                hint(i, m)
            }
            "createpolicy" => self.cache_policy(i, m),
            "bra" => self.branch(i, m),
            "brx" => self.branch_table(i, m),
            "call" => self.call(i, m),
            "ret" => {
                m.take("uni");
                m.finish().map(|()| Op::Return)
            }
            "exit" => m.finish().map(|()| Op::Exit),
            "trap" | "brkpt" => m.finish().map(|()| Op::Trap),
            "nanosleep" => {
                m.ty()?;
                m.finish()?;
                let [a] = exactly(i)?;
                Ok(Op::Sleep { a: self.source(a, ScalarType::U32)? })
            }
            "bar" | "barrier" => self.barrier(i, m),
            "mapa" => self.map_address(i, m),
            "getctarank" => self.block_rank(i, m),
            "mbarrier" => self.mbarrier(i, m),
            "cp" => self.copy(i, m),
            "tensormap" => self.tensor_map(i, m),
            "alloca" | "stacksave" | "stackrestore" => self.stack(i, m),
            "shfl" => self.shuffle(i, m),
            "vote" => self.vote(i, m),
            "match" => self.matching(i, m),
            "redux" => self.reduce(i, m),
            "elect" => self.elect(i, m),
            "activemask" => {
                m.ty()?;
                m.finish()?;
                let [d] = exactly(i)?;
                Ok(Op::ActiveMask { d: self.destination(d, ScalarType::B32)? })
            }
            "mma" => self.mma(i, m),
            "wmma" => self.wmma(i, m),
            "wgmma" => self.warp_group(i, m),
            "ldmatrix" | "stmatrix" => self.matrix_rows(i, m),
            "movmatrix" => self.transpose(i, m),
            _ => Err(Refusal::Unsupported),
        }
    }

    pub(super) fn integer1(&mut self, i: &Instruction, m: &mut Modifiers<'_>, op: Integer1) -> Decoded<Op> {
        let ty = m.ty()?;
        m.finish()?;
        let [d, a] = exactly(i)?;
        Ok(Op::Integer1 { op, ty: int_type(ty)?, d: self.destination(d, ty)?, a: self.source(a, ty)? })
    }

    pub(super) fn integer2(&mut self, i: &Instruction, m: &mut Modifiers<'_>, op: Integer2) -> Decoded<Op> {
        let ty = m.ty()?;
        m.finish()?;
        let [d, a, b] = exactly(i)?;
        let (a, b) = (self.source(a, ty)?, self.source(b, ty)?);
        Ok(Op::Integer2 { op, ty: int_type(ty)?, d: self.destination(d, ty)?, a, b })
    }

    fn integer3(&mut self, i: &Instruction, m: &mut Modifiers<'_>, op: Integer3) -> Decoded<Op> {
        let ty = m.ty()?;
        m.finish()?;
        let [d, a, b, c] = exactly(i)?;
        let (a, b, c) = (self.source(a, ty)?, self.source(b, ty)?, self.source(c, ty)?);
        Ok(Op::Integer3 { op, ty: int_type(ty)?, d: self.destination(d, ty)?, a, b, c })
    }

    /// Whether an instruction is one of numbers with a fraction.
    fn is_float(i: &Instruction) -> bool {
        let ty = i.modifiers.iter().find_map(|modifier| ScalarType::from_name(modifier));
        ty.is_some_and(|ty| float_type(ty).is_some())
    }

    /// Whether it is one of two integers side by side.
    fn is_integer_pair(i: &Instruction) -> bool {
        i.modifiers.iter().any(|modifier| matches!(modifier.as_str(), "u16x2" | "s16x2"))
    }

    fn number1(&mut self, i: &Instruction, m: &mut Modifiers<'_>, integer: Integer1, float: Float1) -> Decoded<Op> {
        if Self::is_float(i) { self.float1(i, m, float) } else { self.integer1(i, m, integer) }
    }

    fn number2(&mut self, i: &Instruction, m: &mut Modifiers<'_>, integer: Integer2, float: Float2) -> Decoded<Op> {
        match () {
            () if Self::is_float(i) => self.float2(i, m, float),
            () if Self::is_integer_pair(i) => self.integer_pair(i, m, integer),
            () if m.take("relu") => self.integer_relu(i, m, integer),
            () => self.integer2(i, m, integer),
        }
    }

    fn sum(
        &mut self,
        i: &Instruction,
        m: &mut Modifiers<'_>,
        plain: Integer2,
        saturating: Integer2,
        float: Float2,
    ) -> Decoded<Op> {
        if Self::is_float(i) {
            return self.float2(i, m, float);
        }
        if m.rest().contains(&"cc") {
            return self.add_carry(i, m, plain == Integer2::Sub, false);
        }
        if Self::is_integer_pair(i) {
            return self.integer_pair(i, m, plain);
        }
        let op = if m.take("sat") { saturating } else { plain };
        self.integer2(i, m, op)
    }

    fn add_carry(&mut self, i: &Instruction, m: &mut Modifiers<'_>, subtract: bool, takes: bool) -> Decoded<Op> {
        let gives = m.take("cc");
        let ty = m.ty()?;
        m.finish()?;
        let wide = match int_type(ty)? {
            IntType::U32 | IntType::S32 => false,
            IntType::U64 | IntType::S64 => true,
            _ => return Err(Refusal::Unsupported),
        };
        let [d, a, b] = exactly(i)?;
        let (a, b) = (self.source(a, ty)?, self.source(b, ty)?);
        Ok(Op::AddCarry { wide, subtract, takes, gives, d: self.destination(d, ty)?, a, b })
    }

    fn product(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        if Self::is_float(i) {
            return self.float2(i, m, Float2::Mul);
        }
        if m.take("wide") {
            let ty = m.ty()?;
            m.finish()?;
            let [d, a, b] = exactly(i)?;
            let (a, b) = (self.source(a, ty)?, self.source(b, ty)?);
            return Ok(Op::MulWide { ty: narrow_int(ty)?, d: self.destination(d, doubled(ty)?)?, a, b });
        }
        let op = if m.take("hi") { Integer2::MulHigh } else { Integer2::MulLow };
        m.take("lo");
        self.integer2(i, m, op)
    }

    fn product_sum(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        if Self::is_float(i) {
            return self.fma(i, m);
        }
        if m.rest().contains(&"cc") {
            return self.mad_carry(i, m, false);
        }
        if m.take("wide") {
            let ty = m.ty()?;
            m.finish()?;
            let [d, a, b, c] = exactly(i)?;
            let double = doubled(ty)?;
            let (a, b, c) = (self.source(a, ty)?, self.source(b, ty)?, self.source(c, double)?);
            return Ok(Op::MadWide { ty: narrow_int(ty)?, d: self.destination(d, double)?, a, b, c });
        }
        let op = match (m.take("hi"), m.take("sat")) {
            (true, true) => Integer3::MadHighSat,
            (true, false) => Integer3::MadHigh,
            (false, false) => Integer3::MadLow,
            (false, true) => return Err(Refusal::Unsupported),
        };
        m.take("lo");
        self.integer3(i, m, op)
    }

    fn mad_carry(&mut self, i: &Instruction, m: &mut Modifiers<'_>, takes: bool) -> Decoded<Op> {
        let gives = m.take("cc");
        let high = m.take("hi");
        m.take("lo");
        let ty = m.ty()?;
        m.finish()?;
        let int = int_type(ty)?;
        if matches!(int, IntType::U16 | IntType::S16) {
            return Err(Refusal::Unsupported);
        }
        let [d, a, b, c] = exactly(i)?;
        let (a, b, c) = (self.source(a, ty)?, self.source(b, ty)?, self.source(c, ty)?);
        Ok(Op::MadCarry { ty: int, high, takes, gives, d: self.destination(d, ty)?, a, b, c })
    }

    fn product24(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        let high = m.take("hi");
        m.take("lo");
        let saturate = m.take("sat");
        let ty = m.ty()?;
        m.finish()?;
        let signed = ty == ScalarType::S32;
        if saturate && !(high && signed && i.opcode == "mad24") {
            return Err(Refusal::Wrong("only mad24.hi.s32 saturates"));
        }
        let (a, b) = (self.source(nth(i, 1)?, ty)?, self.source(nth(i, 2)?, ty)?);
        let d = self.destination(nth(i, 0)?, ty)?;
        if i.opcode == "mul24" {
            return Ok(Op::Mul24 { high, signed, d, a, b });
        }
        let c = self.source(nth(i, 3)?, ty)?;
        if saturate { Ok(Op::Mad24Saturating { d, a, b, c }) } else { Ok(Op::Mad24 { high, signed, d, a, b, c }) }
    }

    fn quotient(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        if !Self::is_float(i) {
            return self.integer2(i, m, Integer2::Div);
        }
        let op = if m.take("approx") {
            Float2::DivApprox
        } else if m.take("full") {
            Float2::DivFull
        } else {
            Float2::Div
        };
        self.float2(i, m, op)
    }

    fn logic(&mut self, i: &Instruction, m: &mut Modifiers<'_>, integer: Integer2, logic: Logic) -> Decoded<Op> {
        if !m.take("pred") {
            return self.integer2(i, m, integer);
        }
        m.finish()?;
        let [d, a, b] = exactly(i)?;
        let (a, b) = (self.condition(a)?, self.condition(b)?);
        Ok(Op::PredicateLogic { op: logic, d: self.predicate(d)?, a, b })
    }

    fn not(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        if !m.take("pred") {
            return self.integer1(i, m, Integer1::Not);
        }
        m.finish()?;
        let [d, a] = exactly(i)?;
        let mut a = self.condition(a)?;
        a.negated = !a.negated;
        Ok(Op::MovePredicate { d: self.predicate(d)?, a })
    }

    fn shift(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        let ty = m.ty()?;
        m.finish()?;
        let [d, a, b] = exactly(i)?;
        let (a, b) = (self.source(a, ty)?, self.source(b, ScalarType::U32)?);
        let d = self.destination(d, ty)?;
        let ty = int_type(ty)?;
        Ok(if i.opcode == "shl" { Op::ShiftLeft { ty, d, a, b } } else { Op::ShiftRight { ty, d, a, b } })
    }

    fn funnel(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        let left = m.take("l");
        if !left && !m.take("r") {
            return Err(Refusal::Wrong("no direction"));
        }
        let clamp = m.take("clamp");
        m.take("wrap");
        let ty = m.ty()?;
        m.finish()?;
        let [d, a, b, c] = exactly(i)?;
        let (a, b, c) = (self.source(a, ty)?, self.source(b, ty)?, self.source(c, ScalarType::U32)?);
        Ok(Op::Funnel { left, clamp, d: self.destination(d, ty)?, a, b, c })
    }

    fn lop3(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        let logic = match (m.take("and"), m.take("or")) {
            (true, _) => Some(Logic::And),
            (_, true) => Some(Logic::Or),
            _ => None,
        };
        let ty = m.ty()?;
        m.finish()?;
        let Operand::Integer(table) = nth(i, 4)? else { return Err(Refusal::Wrong("the table is no number")) };
        let table = u8::try_from(*table).map_err(|_| Refusal::Wrong("the table has more than 8 bits"))?;
        if let Some(logic) = logic {
            return self.lop3_test(i, logic, table);
        }
        let [d, a, b, c, _] = exactly(i)?;
        let (a, b, c) = (self.source(a, ty)?, self.source(b, ty)?, self.source(c, ty)?);
        Ok(Op::Lop3 { table, d: self.destination(d, ty)?, a, b, c })
    }

    fn count(&mut self, i: &Instruction, m: &mut Modifiers<'_>, op: Count) -> Decoded<Op> {
        let ty = m.ty()?;
        m.finish()?;
        let [d, a] = exactly(i)?;
        let a = self.source(a, ty)?;
        Ok(Op::Count { op, ty: int_type(ty)?, d: self.destination(d, ScalarType::U32)?, a })
    }

    fn bit_extract(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        let ty = m.ty()?;
        m.finish()?;
        let [d, a, b, c] = exactly(i)?;
        let a = self.source(a, ty)?;
        let (b, c) = (self.source(b, ScalarType::U32)?, self.source(c, ScalarType::U32)?);
        Ok(Op::BitExtract { ty: int_type(ty)?, d: self.destination(d, ty)?, a, b, c })
    }

    fn bit_insert(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        let ty = m.ty()?;
        m.finish()?;
        let [d, a, b, c, length] = exactly(i)?;
        let (a, b) = (self.source(a, ty)?, self.source(b, ty)?);
        let (c, length) = (self.source(c, ScalarType::U32)?, self.source(length, ScalarType::U32)?);
        Ok(Op::BitInsert { wide: ty.size() == 8, d: self.destination(d, ty)?, a, b, c, length })
    }

    fn bit_mask(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        let clamp = m.take("clamp");
        m.take("wrap");
        let ty = m.ty()?;
        m.finish()?;
        let [d, a, b] = exactly(i)?;
        let (a, b) = (self.source(a, ty)?, self.source(b, ty)?);
        Ok(Op::BitMask { clamp, d: self.destination(d, ScalarType::B32)?, a, b })
    }

    fn permute(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        let ty = m.ty()?;
        let mode = m.find(|modifier| {
            Some(match modifier {
                "f4e" => PermuteMode::Forward4,
                "b4e" => PermuteMode::Backward4,
                "rc8" => PermuteMode::Replicate8,
                "ecl" => PermuteMode::EdgeLeft,
                "ecr" => PermuteMode::EdgeRight,
                "rc16" => PermuteMode::Replicate16,
                _ => return None,
            })
        });
        m.finish()?;
        let [d, a, b, c] = exactly(i)?;
        let (a, b, c) = (self.source(a, ty)?, self.source(b, ty)?, self.source(c, ty)?);
        Ok(Op::Permute { mode: mode.unwrap_or(PermuteMode::Default), d: self.destination(d, ty)?, a, b, c })
    }

    fn dot(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        let half = match (i.opcode.as_str(), m.take("hi"), m.take("lo")) {
            ("dp2a", high, _) => Some(high),
            _ => None,
        };
        let signed = [m.ty()? == ScalarType::S32, m.ty()? == ScalarType::S32];
        m.finish()?;
        let [d, a, b, c] = exactly(i)?;
        let word = ScalarType::B32;
        let (a, b, c) = (self.source(a, word)?, self.source(b, word)?, self.source(c, word)?);
        Ok(Op::Dot { signed, d: self.destination(d, word)?, a, b, c, half })
    }
}

/// A type of 16 or 32 bits.
fn narrow_int(ty: ScalarType) -> Decoded<IntType> {
    match int_type(ty)? {
        IntType::U64 | IntType::S64 => Err(Refusal::Wrong("there is no type of twice that size")),
        ty => Ok(ty),
    }
}

/// The type of twice the size.
fn doubled(ty: ScalarType) -> Decoded<ScalarType> {
    Ok(match narrow_int(ty)? {
        IntType::U16 => ScalarType::U32,
        IntType::S16 => ScalarType::S32,
        IntType::S32 => ScalarType::S64,
        _ => ScalarType::U64,
    })
}
