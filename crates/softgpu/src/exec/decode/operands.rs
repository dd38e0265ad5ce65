//! Operands.

use super::body::{Builder, KnownAtEntry, Symbol};
use super::data;
use super::error::{Decoded, Refusal};
use super::link::Symbol as Outer;
use crate::exec::lanes::low;
use crate::exec::op::{
    CompareType, Comparison, Condition, IntType, Integer2, LOCAL_BASE, LaneMask, Op, Reg, Relation, Slot, Special,
};
use crate::exec::program::{FUNCTION_WINDOW, RESERVED_SHARED};
use detshare_ptx::ScalarType;
use detshare_ptx::ast::{Instruction, Operand};

/// The operand at that place.
pub(super) fn nth(instruction: &Instruction, at: usize) -> Decoded<&Operand> {
    instruction.operands.get(at).ok_or(Refusal::Wrong("missing operand"))
}

/// Exactly that many operands.
pub(super) fn exactly<const N: usize>(instruction: &Instruction) -> Decoded<[&Operand; N]> {
    let operands: Vec<&Operand> = instruction.operands.iter().collect();
    operands.try_into().map_err(|_| Refusal::Wrong("wrong number of operands"))
}

impl Builder<'_> {
    /// A register to write to. The sink is one that nobody reads.
    pub(super) fn register(&mut self, operand: &Operand, ty: ScalarType) -> Decoded<Reg> {
        match operand {
            Operand::Sink => Ok(self.fresh(ty)),
            Operand::Name(name) => match self.find(name) {
                Some(Symbol::Register(register)) => Ok(register),
                Some(_) => Err(Refusal::Wrong("the destination is no register")),
                None => Err(Refusal::Unresolved(name.clone())),
            },
            _ => Err(Refusal::Wrong("the destination is no register")),
        }
    }

    /// A register of the type's size to write to.
    pub(super) fn destination(&mut self, operand: &Operand, ty: ScalarType) -> Decoded<Slot> {
        match (self.register(operand, ty)?, ty.size() > 4) {
            (Reg::Narrow(slot), false) | (Reg::Wide(slot), true) => Ok(slot),
            _ => Err(Refusal::Wrong("the destination's size is not the instruction's")),
        }
    }

    /// A register of the type's size with an operand's value.
    pub(super) fn source(&mut self, operand: &Operand, ty: ScalarType) -> Decoded<Slot> {
        match (self.value(operand, ty)?, ty.size() > 4) {
            (Reg::Narrow(slot), false) | (Reg::Wide(slot), true) => Ok(slot),
            _ => Err(Refusal::Wrong("an operand's size is not the instruction's")),
        }
    }

    /// A register with an operand's value, of the type's size unless the operand is a register itself.
    pub(super) fn value(&mut self, operand: &Operand, ty: ScalarType) -> Decoded<Reg> {
        let wide = ty.size() > 4;
        match operand {
            Operand::Integer(value) => Ok(self.constant(data::literal_integer(*value, ty), wide)),
            Operand::F32(bits) => Ok(self.constant(data::literal_f32(*bits, ty), wide)),
            Operand::F64(bits) => Ok(self.constant(data::literal_f64(*bits, ty), wide)),
            Operand::Name(name) => match self.find(name) {
                Some(symbol) => self.value_of(symbol, 0, wide),
                None => match special_register(name) {
                    Some((special, _)) => Ok(self.special(special, wide)),
                    None => Err(Refusal::Unresolved(name.clone())),
                },
            },
            Operand::Offset { name, offset } => match self.find(name) {
                Some(Symbol::Register(_)) => Err(Refusal::Wrong("a sum is no operand")),
                Some(symbol) => self.value_of(symbol, *offset, wide),
                None => Err(Refusal::Unresolved(name.clone())),
            },
            Operand::Negative(_) => Err(Refusal::Unsupported),
            _ => Err(Refusal::Wrong("an operand of a kind that the instruction cannot have")),
        }
    }

    fn constant(&mut self, value: u64, wide: bool) -> Reg {
        if wide { Reg::Wide(self.wide_constant(value)) } else { Reg::Narrow(self.narrow_constant(low(value))) }
    }

    /// A register's value or a variable's address within its space.
    fn value_of(&mut self, symbol: Symbol, offset: i64, wide: bool) -> Decoded<Reg> {
        Ok(match symbol {
            Symbol::Register(register) => register,
            Symbol::Outer(Outer::Data(number)) => {
                let address = self.linked.data[number].address.wrapping_add_signed(offset);
                self.constant(address, wide)
            }
            Symbol::Outer(Outer::Shared(variable)) => {
                let slot = self.preset(KnownAtEntry::Shared { variable, offset, wide });
                if wide { Reg::Wide(slot) } else { Reg::Narrow(slot) }
            }
            Symbol::Outer(Outer::Function(number)) => {
                self.takes(number);
                self.constant(FUNCTION_WINDOW + u64::from(number), wide)
            }
            Symbol::Parameter { offset: start } => self.constant(u64::from(start).wrapping_add_signed(offset), wide),
            Symbol::Frame { offset: start, .. } => {
                let within = self.wide_constant(u64::from(start).wrapping_add_signed(offset));
                let d = self.fresh_wide();
                self.emit(Op::Integer2 { op: Integer2::Add, ty: IntType::U64, d, a: LOCAL_BASE, b: within });
                if wide {
                    Reg::Wide(d)
                } else {
                    let narrow = self.fresh_narrow();
                    self.emit(Op::Unpack { parts: Box::new([Some(Reg::Narrow(narrow))]), bits: 32, a: Reg::Wide(d) });
                    Reg::Narrow(narrow)
                }
            }
            Symbol::Predicate(_) => return Err(Refusal::Wrong("a predicate is no number")),
            Symbol::Quad(_) => return Err(Refusal::Wrong("an operand's size is not the instruction's")),
            Symbol::Vector(..) | Symbol::Label(_) | Symbol::Table(_) | Symbol::Prototype => {
                return Err(Refusal::Wrong("an operand of a kind that the instruction cannot have"));
            }
        })
    }

    /// A register with what a special register holds: from the start, or read here where it changes.
    fn special(&mut self, special: Special, wide: bool) -> Reg {
        let changes = matches!(
            special,
            Special::Clock
                | Special::ClockHigh
                | Special::Clock64
                | Special::GlobalTimer
                | Special::GlobalTimerLow
                | Special::GlobalTimerHigh
        );
        if changes {
            let d = if wide { Reg::Wide(self.fresh_wide()) } else { Reg::Narrow(self.fresh_narrow()) };
            self.emit(Op::Read { d, special });
            return d;
        }
        let slot = self.preset(KnownAtEntry::Special(special, wide));
        if wide { Reg::Wide(slot) } else { Reg::Narrow(slot) }
    }

    /// `%is_explicit_cluster`
    fn explicit_cluster(&mut self) -> Slot {
        let a = self.preset(KnownAtEntry::Special(Special::ExplicitCluster, false));
        let (b, d) = (self.narrow_constant(0), self.fresh_predicate());
        let ty = CompareType::Integer(IntType::U32);
        let comparison = Comparison { relation: Relation::NotEqual, ty, flush: false, a, b, combined: None };
        self.emit(Op::Compare { comparison: Box::new(comparison), d: Some(d), inverse: None });
        d
    }

    /// A predicate as operand.
    pub(super) fn condition(&mut self, operand: &Operand) -> Decoded<Condition> {
        match operand {
            Operand::Name(name) => match self.find(name) {
                Some(Symbol::Predicate(slot)) => Ok(Condition { slot, negated: false }),
                Some(_) => Err(Refusal::Wrong("an operand is no predicate")),
                None if name == "%is_explicit_cluster" => {
                    Ok(Condition { slot: self.explicit_cluster(), negated: false })
                }
                None => Err(Refusal::Unresolved(name.clone())),
            },
            Operand::Not(operand) => {
                let condition = self.condition(operand)?;
                Ok(Condition { negated: !condition.negated, ..condition })
            }
            Operand::Integer(value) => {
                Ok(Condition { slot: self.preset(KnownAtEntry::Predicate(*value != 0)), negated: false })
            }
            _ => Err(Refusal::Wrong("an operand is no predicate")),
        }
    }

    /// A predicate to write to.
    pub(super) fn predicate(&mut self, operand: &Operand) -> Decoded<Slot> {
        match operand {
            Operand::Sink => Ok(self.fresh_predicate()),
            Operand::Name(name) => match self.find(name) {
                Some(Symbol::Predicate(slot)) => Ok(slot),
                Some(_) => Err(Refusal::Wrong("the destination is no predicate")),
                None => Err(Refusal::Unresolved(name.clone())),
            },
            _ => Err(Refusal::Wrong("the destination is no predicate")),
        }
    }

    /// The elements of a vector operand; a single one counts as a vector of one.
    pub(super) fn elements(&mut self, operand: &Operand) -> Decoded<Vec<Operand>> {
        Ok(match operand {
            Operand::Vector(elements) => elements.clone(),
            Operand::Name(name) => match self.find(name) {
                Some(Symbol::Vector(_, size)) => [".x", ".y", ".z", ".w"]
                    .iter()
                    .take(size.into())
                    .map(|suffix| Operand::Name(format!("{name}{suffix}")))
                    .collect(),
                // A special register of three dimensions, whose fourth element is 0.
                None if special_register(&format!("{name}.x")).is_some() => {
                    let axes = [".x", ".y", ".z"].map(|suffix| Operand::Name(format!("{name}{suffix}")));
                    axes.into_iter().chain([Operand::Integer(0)]).collect()
                }
                _ => vec![operand.clone()],
            },
            _ => vec![operand.clone()],
        })
    }
}

/// A special register by its name, and whether it has 64 bits.
fn special_register(name: &str) -> Option<(Special, bool)> {
    let axis = |suffix: &str| match suffix {
        "x" => Some(0),
        "y" => Some(1),
        "z" => Some(2),
        _ => None,
    };
    let name = name.strip_prefix('%')?;
    if let Some((vector, suffix)) = name.split_once('.') {
        let axis = axis(suffix)?;
        return Some(match vector {
            "tid" => (Special::Thread(axis), false),
            "ntid" => (Special::BlockSize(axis), false),
            "ctaid" => (Special::BlockIndex(axis), false),
            "nctaid" => (Special::GridSize(axis), false),
            "clusterid" => (Special::ClusterIndex(axis), false),
            "nclusterid" => (Special::ClusterCount(axis), false),
            "cluster_ctaid" => (Special::IndexInCluster(axis), false),
            "cluster_nctaid" => (Special::ClusterSize(axis), false),
            _ => return None,
        });
    }
    Some(match name {
        "laneid" => (Special::Lane, false),
        "warpid" => (Special::Warp, false),
        "nwarpid" => (Special::WarpCount, false),
        "smid" => (Special::Sm, false),
        "nsmid" => (Special::SmCount, false),
        "gridid" => (Special::Grid, true),
        "lanemask_eq" => (Special::LaneMask(LaneMask::Equal), false),
        "lanemask_lt" => (Special::LaneMask(LaneMask::Less), false),
        "lanemask_le" => (Special::LaneMask(LaneMask::LessEqual), false),
        "lanemask_gt" => (Special::LaneMask(LaneMask::Greater), false),
        "lanemask_ge" => (Special::LaneMask(LaneMask::GreaterEqual), false),
        "clock" => (Special::Clock, false),
        "clock_hi" => (Special::ClockHigh, false),
        "clock64" => (Special::Clock64, true),
        "globaltimer" => (Special::GlobalTimer, true),
        "globaltimer_lo" => (Special::GlobalTimerLow, false),
        "globaltimer_hi" => (Special::GlobalTimerHigh, false),
        "dynamic_smem_size" => (Special::DynamicShared, false),
        "total_smem_size" | "aggr_smem_size" => (Special::TotalShared, false),
        "cluster_ctarank" => (Special::ClusterRank, false),
        "cluster_nctarank" => (Special::ClusterBlocks, false),
        "current_graph_exec" => (Special::Always(0), true),
        "reserved_smem_offset_begin" | "reserved_smem_offset_0" => (Special::Always(0), false),
        "reserved_smem_offset_1" => (Special::Always(RESERVED_SHARED / 2), false),
        "reserved_smem_offset_end" | "reserved_smem_offset_cap" => (Special::Always(RESERVED_SHARED), false),
        _ if name.strip_prefix("pm").is_some_and(is_number) => (Special::Always(0), false),
        _ if name.strip_prefix("envreg").is_some_and(is_number) => {
            (Special::Environment(name["envreg".len()..].parse().ok()?), false)
        }
        _ => return None,
    })
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit())
}
