//! Asynchronous copies and the barriers that count them.

use super::body::{Builder, Symbol};
use super::error::{Decoded, Refusal};
use super::hints::copies_waited_for;
use super::memory::{Named, atomic_op, atomic_type, has_no_effect, named_space};
use super::modifiers::Modifiers;
use super::operands::{exactly, nth};
use crate::exec::op::{
    Address, AtomicOp, Copy, CopyKind, Mbarrier, MbarrierAction, Op, Phase, Rare, Slot, StoreAsync, TensorCopy,
    TensorDirection, TensorReplace,
};
use crate::exec::tensor_map::{Field, MOST_DIMENSIONS};
use detshare_ptx::ScalarType;
use detshare_ptx::ast::{Instruction, Operand};

const WORD: ScalarType = ScalarType::U32;
/// What bulk copies are multiples of.
const BULK_ALIGN: u64 = 16;

fn rare(rare: Rare) -> Decoded<Op> {
    Ok(Op::Rare(Box::new(rare)))
}

/// Scopes and orders: everything is done at once, and in order.
fn without_effect(modifier: &str) -> bool {
    has_no_effect(modifier) || matches!(modifier, "relaxed" | "acquire" | "release" | "noComplete" | "b64")
}

impl Builder<'_> {
    pub(super) fn mbarrier(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        if m.take("pending_count") {
            m.take("b64");
            m.finish()?;
            let [d, state] = exactly(i)?;
            let (state, d) = (self.source(state, ScalarType::B64)?, self.destination(d, WORD)?);
            return rare(Rare::PendingCount { d, state });
        }
        // Where nothing is said, the address is generic.
        let named = m.find(named_space);
        m.ignore(without_effect);
        let (expect, complete) = (m.take("expect_tx"), m.take("complete_tx"));
        let (arrive, drop) = (m.take("arrive"), m.take("arrive_drop"));
        let (test, wait, parity) = (m.take("test_wait"), m.take("try_wait"), m.take("parity"));
        let (init, invalidate) = (m.take("init"), m.take("inval"));
        m.finish()?;
        let (at, action) = if arrive || drop {
            self.arrival(i, expect, drop)?
        } else if test || wait {
            let d = self.predicate(nth(i, 0)?)?;
            let phase = match parity {
                true => Phase::Parity(self.source(nth(i, 2)?, WORD)?),
                false => Phase::State(self.source(nth(i, 2)?, ScalarType::B64)?),
            };
            // How long it may wait at most is the fourth operand: it always asks again here.
            (1, MbarrierAction::Test { d, phase, waits: wait })
        } else if init {
            (0, MbarrierAction::Init { count: self.source(nth(i, 1)?, WORD)? })
        } else if invalidate {
            (0, MbarrierAction::Invalidate)
        } else if expect || complete {
            let bytes = self.source(nth(i, 1)?, WORD)?;
            (0, if expect { MbarrierAction::Expect { bytes } } else { MbarrierAction::Complete { bytes } })
        } else {
            return Err(Refusal::Unsupported);
        };
        let address = self.address(nth(i, at)?, named)?;
        rare(Rare::Mbarrier(Mbarrier { address, action }))
    }

    /// An arrival, and which operand its address is.
    fn arrival(&mut self, i: &Instruction, expects: bool, drop: bool) -> Decoded<(usize, MbarrierAction)> {
        // Without a result in its place, the address comes first.
        let at = usize::from(!matches!(nth(i, 0)?, Operand::Address { .. }));
        let state = match nth(i, 0)? {
            Operand::Address { .. } | Operand::Sink => None,
            state => Some(self.destination(state, ScalarType::B64)?),
        };
        let number = match i.operands.get(at + 1) {
            Some(number) => Some(self.source(number, WORD)?),
            None => None,
        };
        let one = self.narrow_constant(1);
        let (count, expect) = match (expects, number) {
            (true, None) => return Err(Refusal::Wrong("missing operand")),
            (true, bytes) => (one, bytes),
            (false, count) => (count.unwrap_or(one), None),
        };
        Ok((at, MbarrierAction::Arrive { state, count, expect, drop }))
    }

    /// `cp`
    pub(super) fn copy(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        let reduces = m.take("reduce");
        if !m.take("async") {
            return Err(Refusal::Unsupported);
        }
        let bulk = m.take("bulk");
        // Every copy is done when it is issued: there is nothing to wait for, and nothing to prefetch.
        if let Some(decoded) = copies_waited_for(i, m) {
            return decoded;
        }
        if m.take("mbarrier") {
            return self.arrival_of_copies(i, m);
        }
        match bulk {
            true if m.take("tensor") => self.tensor_copy(i, m, reduces),
            true => self.bulk_copy(i, m, reduces),
            false => self.small_copy(i, m),
        }
    }

    /// `cp.async.mbarrier.arrive`
    fn arrival_of_copies(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        let named = m.find(named_space);
        let increments = !m.take("noinc");
        m.take("arrive");
        m.ignore(without_effect);
        m.finish()?;
        let [address] = exactly(i)?;
        let address = self.address(address, named)?;
        rare(Rare::Mbarrier(Mbarrier { address, action: MbarrierAction::ArriveCopied { increments } }))
    }

    /// `cp.async`: 4, 8 or 16 bytes of each thread.
    fn small_copy(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        let hinted = m.rest().contains(&"L2::cache_hint");
        let to = m.find(named_space);
        let from = m.find(named_space);
        m.ignore(has_no_effect);
        m.finish()?;
        let Operand::Integer(size @ (4 | 8 | 16)) = nth(i, 2)? else {
            return Err(Refusal::Wrong("neither 4, 8 nor 16 bytes"));
        };
        let align = u64::try_from(*size).unwrap_or(1);
        let more = i.operands.get(3..).unwrap_or_default();
        let more = &more[..more.len().saturating_sub(usize::from(hinted))];
        let (mut read, mut ignore) = (None, None);
        match more {
            [] => {}
            [Operand::Name(name)] if matches!(self.find(name), Some(Symbol::Predicate(_))) => {
                ignore = Some(self.condition(&more[0])?);
            }
            [not @ Operand::Not(_)] => ignore = Some(self.condition(not)?),
            [size] => read = Some(self.source(size, WORD)?),
            _ => return Err(Refusal::Wrong("too many operands")),
        }
        let (to, from) = (self.address(nth(i, 0)?, to)?, self.address(nth(i, 1)?, from)?);
        let bytes = self.source(nth(i, 2)?, WORD)?;
        let (kind, reduction, signal, multicast) = (CopyKind::Small, None, None, None);
        rare(Rare::Copy(Copy { kind, to, from, bytes, read, ignore, align, reduction, signal, multicast }))
    }

    fn bulk_copy(&mut self, i: &Instruction, m: &mut Modifiers<'_>, reduces: bool) -> Decoded<Op> {
        let to = m.find(named_space);
        let from = m.find(named_space);
        let signals = m.take("mbarrier::complete_tx::bytes");
        m.take("bulk_group");
        let multicast = m.take("multicast::cluster");
        m.ignore(has_no_effect);
        m.take("noftz");
        let reduction = match reduces {
            true => {
                let op = m.find(atomic_op).ok_or(Refusal::Wrong("no operation"))?;
                Some((op, atomic_type(m.ty()?, op)?))
            }
            false => None,
        };
        m.finish()?;
        let (to, from) = (self.address(nth(i, 0)?, to)?, self.address(nth(i, 1)?, from)?);
        let bytes = self.source(nth(i, 2)?, WORD)?;
        let signal = match signals {
            true => Some(self.address(nth(i, 3)?, Some(Named::Shared))?),
            false => None,
        };
        let multicast = if multicast { Some(self.block_mask(nth(i, 4)?)?) } else { None };
        let (kind, align, read, ignore) = (CopyKind::Bulk, BULK_ALIGN, None, None);
        rare(Rare::Copy(Copy { kind, to, from, bytes, read, ignore, align, reduction, signal, multicast }))
    }

    /// The blocks of a multicast, one bit each.
    fn block_mask(&mut self, operand: &Operand) -> Decoded<Slot> {
        self.source(operand, ScalarType::B16)
    }

    fn tensor_copy(&mut self, i: &Instruction, m: &mut Modifiers<'_>, reduces: bool) -> Decoded<Op> {
        let dimensions = m.find(|name| {
            let digits = name.strip_suffix('d')?.parse::<usize>().ok()?;
            (1..=MOST_DIMENSIONS).contains(&digits).then_some(digits)
        });
        let dimensions = dimensions.ok_or(Refusal::Wrong("no number of dimensions"))?;
        let to = m.find(named_space);
        let from = m.find(named_space);
        m.take("tile");
        m.take("bulk_group");
        let signals = m.take("mbarrier::complete_tx::bytes");
        let multicast = m.take("multicast::cluster");
        m.ignore(has_no_effect);
        let op = if reduces { Some(m.find(atomic_op).ok_or(Refusal::Wrong("no operation"))?) } else { None };
        // `.im2col` and the modes of later devices.
        m.finish()?;
        let loads = signals && matches!(from, Some(Named::Global)) && matches!(to, Some(Named::Shared));
        let (tensor, shared) = if loads { (1, 0) } else { (0, 1) };
        let (map, coordinates) = self.tensor_place(nth(i, tensor)?)?;
        if coordinates.len() != dimensions {
            return Err(Refusal::Wrong("not as many coordinates as dimensions"));
        }
        let shared = self.address(nth(i, shared)?, Some(Named::Shared))?;
        let direction = match op {
            Some(op) => TensorDirection::Reduce(op),
            None if loads => {
                let signal = self.address(nth(i, 2)?, Some(Named::Shared))?;
                let multicast = if multicast { Some(self.block_mask(nth(i, 3)?)?) } else { None };
                TensorDirection::Load { signal, multicast }
            }
            None => TensorDirection::Store,
        };
        rare(Rare::TensorCopy(TensorCopy { map, coordinates, shared, direction }))
    }

    /// `[map, {x, y}]`
    fn tensor_place(&mut self, operand: &Operand) -> Decoded<(Address, Box<[Slot]>)> {
        let Operand::Tensor { base, offset, coordinates } = operand else {
            return Err(Refusal::Wrong("no place in a tensor"));
        };
        let map = self.address(&Operand::Address { base: base.clone(), offset: *offset }, None)?;
        let coordinates: Decoded<Vec<Slot>> =
            coordinates.iter().map(|coordinate| self.source(coordinate, ScalarType::S32)).collect();
        Ok((map, coordinates?.into()))
    }

    /// `tensormap.replace`; `tensormap.cp_fenceproxy`, which copies a map.
    pub(super) fn tensor_map(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        if m.take("cp_fenceproxy") {
            let (to, from) = (m.find(named_space), m.find(named_space));
            m.ignore(|modifier| {
                matches!(
                    modifier,
                    "tensormap::generic" | "release" | "cta" | "cluster" | "gpu" | "sys" | "sync" | "aligned"
                )
            });
            m.finish()?;
            let [to_operand, from_operand, size] = exactly(i)?;
            let (to, from) = (self.address(to_operand, to)?, self.address(from_operand, from)?);
            let bytes = self.source(size, WORD)?;
            let (kind, align) = (CopyKind::Map, BULK_ALIGN);
            let (read, ignore, reduction, signal, multicast) = (None, None, None, None, None);
            return rare(Rare::Copy(Copy { kind, to, from, bytes, read, ignore, align, reduction, signal, multicast }));
        }
        if !(m.take("replace") && m.take("tile")) {
            return Err(Refusal::Unsupported);
        }
        let named = m.find(named_space);
        m.take("b1024");
        let ordinal = |i: &Instruction| match i.operands.get(1) {
            Some(Operand::Integer(at)) => usize::try_from(*at).ok().filter(|at| *at < MOST_DIMENSIONS),
            _ => None,
        };
        let ordinal = ordinal(i).unwrap_or(0);
        let field = m.find(|name| {
            Some(match name {
                "global_address" => (Field::Address, 1),
                "rank" => (Field::Dimensions, 1),
                "box_dim" => (Field::Extent(ordinal), 2),
                "global_dim" => (Field::Size(ordinal), 2),
                "global_stride" => (Field::Stride(ordinal.min(MOST_DIMENSIONS - 2)), 2),
                "element_stride" => (Field::Step(ordinal), 2),
                "elemtype" => (Field::Element, 1),
                "swizzle_mode" => (Field::Swizzle, 1),
                "fill_mode" => (Field::Fill, 1),
                "interleave_layout" => (Field::Interleave, 1),
                _ => return None,
            })
        });
        let (field, at) = field.ok_or(Refusal::Unsupported)?;
        if field == Field::Interleave && !matches!(i.operands.get(at), Some(Operand::Integer(0))) {
            return Err(Refusal::Unsupported);
        }
        let ty = m.ty()?;
        m.finish()?;
        let value = self.value(nth(i, at)?, ty)?;
        let map = self.address(nth(i, 0)?, named)?;
        rare(Rare::TensorReplace(TensorReplace { map, field, value }))
    }

    /// `st.async` and `red.async`.
    pub(super) fn store_async(&mut self, i: &Instruction, m: &mut Modifiers<'_>, op: Option<AtomicOp>) -> Decoded<Op> {
        if !m.take("mbarrier::complete_tx::bytes") {
            return Err(Refusal::Unsupported);
        }
        m.find(named_space);
        let count = Self::vector(m);
        m.ignore(|modifier| matches!(modifier, "weak" | "relaxed" | "cluster" | "release"));
        let ty = m.ty()?;
        m.finish()?;
        let size = match ty.size() {
            size @ (4 | 8) => u8::try_from(size).unwrap_or(4),
            _ => return Err(Refusal::Wrong("neither 32 nor 64 bits")),
        };
        let reduction = match op {
            Some(op) => Some((op, atomic_type(ty, op)?)),
            None => None,
        };
        let elements = self.elements(nth(i, 1)?)?;
        if elements.len() != count {
            return Err(Refusal::Wrong("not as many sources as elements"));
        }
        let address = self.address(nth(i, 0)?, Some(Named::Shared))?;
        let signal = self.address(nth(i, 2)?, Some(Named::Shared))?;
        let from: Decoded<Vec<_>> = elements.iter().map(|from| self.value(from, ty)).collect();
        rare(Rare::StoreAsync(StoreAsync { address, signal, size, from: from?.into(), reduction }))
    }
}
