//! Branches, calls and barriers.

use super::body::{Builder, KnownAtEntry, Symbol};
use super::cluster::cluster_barrier;
use super::error::{Decoded, Refusal};
use super::link::Symbol as Outer;
use super::modifiers::Modifiers;
use super::operands::{exactly, nth};
use crate::exec::op::{Barrier, BarrierKind, Call, Condition, Logic, Op, Place, Reg};
use detshare_ptx::ScalarType;
use detshare_ptx::ast::{Instruction, Operand};

impl<'a> Builder<'a> {
    pub(super) fn branch(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        m.take("uni");
        m.finish()?;
        let [target] = exactly(i)?;
        let Operand::Name(name) = target else { return Err(Refusal::Wrong("no label")) };
        Ok(Op::Branch { target: self.label(name)? })
    }

    /// A label's number, which becomes its place in the end.
    fn label(&mut self, name: &str) -> Decoded<u32> {
        match self.find(name) {
            Some(Symbol::Label(number)) => Ok(number),
            Some(_) => Err(Refusal::Wrong("no label")),
            None => Err(Refusal::Unresolved(name.to_string())),
        }
    }

    pub(super) fn branch_table(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        m.take("uni");
        if !m.take("idx") {
            return Err(Refusal::Unsupported);
        }
        m.finish()?;
        let [index, table] = exactly(i)?;
        let index = self.source(index, ScalarType::U32)?;
        let Operand::Name(name) = table else { return Err(Refusal::Wrong("no table of labels")) };
        let Some(Symbol::Table(number)) = self.find(name) else {
            return Err(Refusal::Wrong("no table of labels"));
        };
        let targets: Decoded<Vec<u32>> = self.table(number).iter().map(|name| self.label(name)).collect();
        Ok(Op::BranchTable { index, targets: targets?.into() })
    }

    pub(super) fn call(&mut self, i: &'a Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        m.take("uni");
        m.finish()?;
        let (results, rest): (&[Operand], &[Operand]) = match i.operands.as_slice() {
            [Operand::List(results), rest @ ..] => (results, rest),
            rest => (&[], rest),
        };
        let Some((Operand::Name(callee), rest)) = rest.split_first() else {
            return Err(Refusal::Wrong("no function to call"));
        };
        let (arguments, indirect): (&[Operand], bool) = match rest {
            [] => (&[], false),
            [Operand::List(arguments)] => (arguments, false),
            [Operand::List(arguments), _] => (arguments, true),
            [_] => (&[], true),
            _ => return Err(Refusal::Wrong("too many operands")),
        };
        let (callee, target) = match self.find(callee) {
            Some(Symbol::Outer(Outer::Function(number))) => {
                let (_, function) = self.linked.functions[number as usize];
                if function.parameters.len() != arguments.len() || function.returns.len() != results.len() {
                    return Err(Refusal::Wrong("not the callee's parameters"));
                }
                self.calls(number);
                (Some(number), 0)
            }
            Some(Symbol::Register(Reg::Wide(slot))) if indirect => {
                self.calls_addresses();
                (None, slot)
            }
            Some(_) => return Err(Refusal::Wrong("no function to call")),
            None => return self.system_call(callee, results, arguments),
        };
        let arguments: Decoded<Vec<Place>> = arguments.iter().map(|operand| self.argument(operand)).collect();
        let results: Decoded<Vec<Option<Place>>> = results
            .iter()
            .map(|operand| match operand {
                Operand::Sink => Ok(None),
                operand => self.argument(operand).map(Some),
            })
            .collect();
        Ok(Op::Call(Box::new(Call { callee, target, arguments: arguments?.into(), results: results?.into() })))
    }

    /// Where an argument or result of a call is.
    pub(super) fn argument(&mut self, operand: &Operand) -> Decoded<Place> {
        if let Operand::Name(name) = operand
            && let Some(Symbol::Frame { offset, size }) = self.find(name)
        {
            return Ok(Place::Memory { offset, size });
        }
        // As many bytes of it are taken as the callee asks for.
        self.value(operand, ScalarType::B64).map(Place::Register)
    }

    pub(super) fn barrier(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        if m.take("warp") {
            m.take("sync");
            m.finish()?;
            let [members] = exactly(i)?;
            return Ok(Op::WarpBarrier { members: self.source(members, ScalarType::B32)? });
        }
        if m.take("cluster") {
            return cluster_barrier(i, m);
        }
        m.take("cta");
        m.take("aligned");
        let always = Condition { slot: self.preset(KnownAtEntry::Predicate(true)), negated: false };
        let word = ScalarType::U32;
        if m.take("red") {
            let logic = m.find(|modifier| {
                Some(match modifier {
                    "and" => Some(Logic::And),
                    "or" => Some(Logic::Or),
                    "popc" => None,
                    _ => return None,
                })
            });
            let logic = logic.ok_or(Refusal::Wrong("no reduction"))?;
            m.ty()?;
            m.finish()?;
            let [d, number, rest @ ..] = i.operands.as_slice() else {
                return Err(Refusal::Wrong("missing operand"));
            };
            let (threads, input) = match rest {
                [input] => (None, input),
                [threads, input] => (Some(self.source(threads, word)?), input),
                _ => return Err(Refusal::Wrong("wrong number of operands")),
            };
            let input = self.condition(input)?;
            let number = self.source(number, word)?;
            let kind = match logic {
                Some(logic) => BarrierKind::Reduce(logic, self.predicate(d)?),
                None => BarrierKind::Count(self.destination(d, word)?),
            };
            return Ok(Op::Barrier(Box::new(Barrier { kind, number, threads, input })));
        }
        let kind = if m.take("arrive") { BarrierKind::Arrive } else { BarrierKind::Sync };
        m.take("sync");
        m.finish()?;
        let number = self.source(nth(i, 0)?, word)?;
        let threads = match i.operands.get(1) {
            Some(threads) => Some(self.source(threads, word)?),
            None => None,
        };
        Ok(Op::Barrier(Box::new(Barrier { kind, number, threads, input: always })))
    }
}
