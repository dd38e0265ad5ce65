//! Floating-point instructions and conversions.

use super::body::Builder;
use super::error::{Decoded, Refusal};
use super::modifiers::{Modifiers, float_type};
use super::operands::exactly;
use crate::exec::op::{Float1, Float2, FloatMode, FloatTest, FloatType, Number, Op, Rounding};
use detshare_ptx::ScalarType;
use detshare_ptx::ast::Instruction;

impl Builder<'_> {
    pub(super) fn float1(&mut self, i: &Instruction, m: &mut Modifiers<'_>, op: Float1) -> Decoded<Op> {
        let mode = m.float_mode();
        let scalar = m.ty()?;
        m.finish()?;
        let (ty, packed) = float_type(scalar).ok_or(Refusal::Unsupported)?;
        let [d, a] = exactly(i)?;
        let a = self.source(a, scalar)?;
        let d = self.destination(d, scalar)?;
        Ok(if packed { Op::PackedFloat1 { op, ty, mode, d, a } } else { Op::Float1 { op, ty, mode, d, a } })
    }

    pub(super) fn float2(&mut self, i: &Instruction, m: &mut Modifiers<'_>, op: Float2) -> Decoded<Op> {
        let mode = m.float_mode();
        let scalar = m.ty()?;
        m.finish()?;
        let (ty, packed) = float_type(scalar).ok_or(Refusal::Unsupported)?;
        let [d, a, b] = exactly(i)?;
        let (a, b) = (self.source(a, scalar)?, self.source(b, scalar)?);
        let d = self.destination(d, scalar)?;
        Ok(if packed { Op::PackedFloat2 { op, ty, mode, d, a, b } } else { Op::Float2 { op, ty, mode, d, a, b } })
    }

    pub(super) fn fma(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        let mode = FloatMode { outside_is_zero: m.take("oob"), ..m.float_mode() };
        let scalar = m.ty()?;
        m.finish()?;
        let (ty, packed) = float_type(scalar).ok_or(Refusal::Unsupported)?;
        if mode.outside_is_zero && matches!(ty, FloatType::F32 | FloatType::F64) {
            return Err(Refusal::Wrong("only halves come from outside"));
        }
        let [d, a, b, c] = exactly(i)?;
        let (a, b, c) = (self.source(a, scalar)?, self.source(b, scalar)?, self.source(c, scalar)?);
        let d = self.destination(d, scalar)?;
        Ok(if packed { Op::PackedFma { ty, mode, d, a, b, c } } else { Op::Fma { ty, mode, d, a, b, c } })
    }

    /// Roots, reciprocals and transcendental functions.
    pub(super) fn function(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        let approximate = m.take("approx");
        let op = match (i.opcode.as_str(), approximate) {
            ("sqrt", false) => Float1::Sqrt,
            ("sqrt", true) => Float1::SqrtApprox,
            ("rcp", false) => Float1::Rcp,
            ("rcp", true) => Float1::RcpApprox,
            ("rsqrt", _) => Float1::Rsqrt,
            ("sin", _) => Float1::Sin,
            ("cos", _) => Float1::Cos,
            ("lg2", _) => Float1::Lg2,
            ("ex2", _) => Float1::Ex2,
            _ => Float1::Tanh,
        };
        self.float1(i, m, op)
    }

    pub(super) fn test_float(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        let test = m.find(|modifier| {
            Some(match modifier {
                "finite" => FloatTest::Finite,
                "infinite" => FloatTest::Infinite,
                "number" => FloatTest::Number,
                "notanumber" => FloatTest::NotANumber,
                "normal" => FloatTest::Normal,
                "subnormal" => FloatTest::Subnormal,
                _ => return None,
            })
        });
        let test = test.ok_or(Refusal::Wrong("no test"))?;
        let scalar = m.ty()?;
        m.finish()?;
        let ty = match scalar {
            ScalarType::F32 => FloatType::F32,
            ScalarType::F64 => FloatType::F64,
            _ => return Err(Refusal::Unsupported),
        };
        let [p, a] = exactly(i)?;
        let a = self.source(a, scalar)?;
        Ok(Op::TestFloat { test, ty, d: self.predicate(p)?, a })
    }

    pub(super) fn convert(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        if m.take("pack") {
            return self.convert_pack(i, m);
        }
        let rounded = i.modifiers.iter().any(|modifier| Rounding::from_name(modifier).is_some());
        let mode = m.float_mode();
        let (to, from) = (m.ty()?, m.ty()?);
        m.finish()?;
        if let (ScalarType::F16x2 | ScalarType::BF16x2, ScalarType::F32) = (to, from) {
            let [d, a, b] = exactly(i)?;
            let (a, b) = (self.source(a, from)?, self.source(b, from)?);
            let half = if to == ScalarType::F16x2 { FloatType::F16 } else { FloatType::Bf16 };
            return Ok(Op::ConvertPair { to: half, mode, d: self.destination(d, to)?, a, b });
        }
        if let Some(converted) = self.convert_fp8(i, mode, to, from) {
            return converted;
        }
        let (from_number, to_number) = (number(from)?, number(to)?);
        match (from_number, to_number) {
            (Number::Tf32, _) => return Err(Refusal::Unsupported),
            (Number::Integer { .. }, Number::Tf32) => return Err(Refusal::Unsupported),
            (Number::Float(from), Number::Tf32) if from != FloatType::F32 => return Err(Refusal::Unsupported),
            // To a smaller format there has to be a rounding.
            (Number::Float(FloatType::F64), Number::Float(FloatType::F32)) if !rounded => {
                return Err(Refusal::Wrong("no rounding"));
            }
            _ => {}
        }
        let [d, a] = exactly(i)?;
        let a = self.value(a, from)?;
        Ok(Op::Convert { from: from_number, to: to_number, mode, d: self.register(d, to)?, a })
    }
}

fn number(ty: ScalarType) -> Decoded<Number> {
    let integer = |bits, signed| Number::Integer { bits, signed };
    Ok(match ty {
        ScalarType::U8 | ScalarType::B8 => integer(8, false),
        ScalarType::S8 => integer(8, true),
        ScalarType::U16 | ScalarType::B16 => integer(16, false),
        ScalarType::S16 => integer(16, true),
        ScalarType::U32 | ScalarType::B32 => integer(32, false),
        ScalarType::S32 => integer(32, true),
        ScalarType::U64 | ScalarType::B64 => integer(64, false),
        ScalarType::S64 => integer(64, true),
        ScalarType::F16 => Number::Float(FloatType::F16),
        ScalarType::BF16 => Number::Float(FloatType::Bf16),
        ScalarType::F32 => Number::Float(FloatType::F32),
        ScalarType::F64 => Number::Float(FloatType::F64),
        ScalarType::TF32 => Number::Tf32,
        _ => return Err(Refusal::Unsupported),
    })
}
