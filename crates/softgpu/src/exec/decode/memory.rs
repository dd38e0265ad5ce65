//! Loads, stores, atomics and addresses.

use super::body::{Builder, KnownAtEntry, Symbol};
use super::error::{Decoded, Refusal};
use super::link::Symbol as Outer;
use super::modifiers::Modifiers;
use super::operands::{exactly, nth};
use crate::exec::op::{
    Address, AtomicOp, AtomicType, IntType, Integer2, LOCAL_BASE, Load, Op, Order, Rare, Reg, Space, Store,
};
use crate::exec::program::{LOCAL_WINDOW, PARAMETER_WINDOW, SHARED_WINDOW};
use detshare_ptx::ScalarType;
use detshare_ptx::ast::{AddressBase, Instruction, Operand};

/// The spaces that instructions name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Named {
    Global,
    Shared,
    Local,
    Parameter,
}

pub(super) fn named_space(name: &str) -> Option<Named> {
    Some(match name {
        "global" | "const" => Named::Global,
        // Addresses tell by themselves which block of the cluster they belong to.
        "shared" | "shared::cta" | "shared::cluster" => Named::Shared,
        "local" => Named::Local,
        "param" | "param::entry" | "param::func" => Named::Parameter,
        _ => return None,
    })
}

/// Hints about caches, and scopes: all memory is coherent here.
pub(super) fn has_no_effect(modifier: &str) -> bool {
    matches!(
        modifier,
        "ca" | "cg"
            | "cs"
            | "cv"
            | "lu"
            | "wb"
            | "wt"
            | "nc"
            | "weak"
            | "cta"
            | "cluster"
            | "gpu"
            | "sys"
            | "mmio"
            | "unified"
    ) || modifier.starts_with("L1::")
        || modifier.starts_with("L2::")
}

impl Builder<'_> {
    fn space(&self, named: Option<Named>) -> Space {
        match named {
            None => Space::Generic,
            Some(Named::Global) => Space::Global,
            Some(Named::Shared) => Space::Shared,
            Some(Named::Local) => Space::Local,
            Some(Named::Parameter) if self.kernel => Space::Parameters,
            // A function has its parameters on its stack.
            Some(Named::Parameter) => Space::Local,
        }
    }

    pub(super) fn address(&mut self, operand: &Operand, named: Option<Named>) -> Decoded<Address> {
        let Operand::Address { base, offset } = operand else {
            return Err(Refusal::Wrong("no address"));
        };
        let space = self.space(named);
        let name = match base {
            AddressBase::Name(name) => name,
            AddressBase::Integer(address) => {
                let base = Reg::Wide(self.wide_constant(*address));
                return Ok(Address { space, base, offset: *offset });
            }
        };
        Ok(match self.find(name) {
            Some(Symbol::Register(base)) => Address { space, base, offset: *offset },
            Some(Symbol::Outer(Outer::Data(number))) => {
                let base = Reg::Wide(self.wide_constant(self.linked.data[number].address));
                Address { space: Space::Global, base, offset: *offset }
            }
            Some(Symbol::Outer(Outer::Shared(variable))) => {
                let base = self.preset(KnownAtEntry::Shared { variable, offset: 0, wide: true });
                Address { space: Space::Shared, base: Reg::Wide(base), offset: *offset }
            }
            Some(Symbol::Frame { offset: start, .. }) => Address {
                space: Space::Local,
                base: Reg::Wide(LOCAL_BASE),
                offset: offset.saturating_add(start.into()),
            },
            Some(Symbol::Parameter { offset: start }) => {
                let base = Reg::Wide(self.wide_constant(start.into()));
                Address { space: Space::Parameters, base, offset: *offset }
            }
            Some(_) => return Err(Refusal::Wrong("no address")),
            None => return Err(Refusal::Unresolved(name.clone())),
        })
    }

    /// An address in the space that the modifiers name.
    pub(super) fn address_with_space(&mut self, operand: &Operand, m: &mut Modifiers<'_>) -> Decoded<Address> {
        let named = m.find(named_space);
        self.address(operand, named)
    }

    /// What a load or store says about its order.
    pub(super) fn order(m: &mut Modifiers<'_>) -> Order {
        let strong = m.take("volatile") | m.take("relaxed");
        let order = match (m.take("acquire"), m.take("release"), m.take("acq_rel")) {
            (true, _, _) => Order::Acquire,
            (_, true, _) => Order::Release,
            (_, _, true) => Order::AcquireRelease,
            _ if strong => Order::Strong,
            _ => Order::Weak,
        };
        m.ignore(has_no_effect);
        order
    }

    /// How many elements an access has at once.
    pub(super) fn vector(m: &mut Modifiers<'_>) -> usize {
        let size = m.find(|modifier| {
            Some(match modifier {
                "v2" => 2,
                "v4" => 4,
                "v8" => 8,
                _ => return None,
            })
        });
        size.unwrap_or(1)
    }

    pub(super) fn load(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        let named = m.find(named_space);
        let order = Self::order(m);
        let count = Self::vector(m);
        let ty = m.ty()?;
        m.finish()?;
        let address = self.address(nth(i, 1)?, named)?;
        if ty == ScalarType::B128 && count == 1 {
            let to = self.quad(nth(i, 0)?)?.map(|slot| Some(Reg::Wide(slot)));
            return Ok(Op::Load(Box::new(Load { address, size: 8, signed: false, order, to: to.into() })));
        }
        let size = element_bytes(ty)?;
        let elements = self.elements(nth(i, 0)?)?;
        if elements.len() != count {
            return Err(Refusal::Wrong("not as many destinations as elements"));
        }
        let signed = matches!(ty, ScalarType::S8 | ScalarType::S16 | ScalarType::S32);
        Ok(Op::Load(Box::new(Load { address, size, signed, order, to: self.wanted_registers(&elements, ty)? })))
    }

    pub(super) fn store(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        if m.take("async") {
            return self.store_async(i, m, None);
        }
        let named = m.find(named_space);
        let order = Self::order(m);
        let count = Self::vector(m);
        let ty = m.ty()?;
        m.finish()?;
        let address = self.address(nth(i, 0)?, named)?;
        if ty == ScalarType::B128 && count == 1 {
            let from = self.quad(nth(i, 1)?)?.map(Reg::Wide);
            return Ok(Op::Store(Box::new(Store { address, size: 8, order, from: from.into() })));
        }
        let size = element_bytes(ty)?;
        let elements = self.elements(nth(i, 1)?)?;
        if elements.len() != count {
            return Err(Refusal::Wrong("not as many sources as elements"));
        }
        let from: Decoded<Vec<_>> = elements.iter().map(|from| self.value(from, ty)).collect();
        Ok(Op::Store(Box::new(Store { address, size, order, from: from?.into() })))
    }

    /// `cvta`: between addresses of a space and generic ones.
    pub(super) fn convert_address(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        let from_generic = m.take("to");
        let named = m.find(named_space).ok_or(Refusal::Wrong("no space"))?;
        let ty = m.ty()?;
        m.finish()?;
        if ty.size() != 8 {
            return Err(Refusal::Unsupported);
        }
        let [d, a] = exactly(i)?;
        let a = self.source(a, ty)?;
        let d = self.destination(d, ty)?;
        let window = match self.space(Some(named)) {
            Space::Shared => SHARED_WINDOW,
            Space::Local => LOCAL_WINDOW,
            Space::Parameters => PARAMETER_WINDOW,
            Space::Global | Space::Generic => return Ok(Op::Move64 { d, a }),
        };
        let b = self.wide_constant(window);
        let op = if from_generic { Integer2::Sub } else { Integer2::Add };
        Ok(Op::Integer2 { op, ty: IntType::U64, d, a, b })
    }

    pub(super) fn in_space(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        let constant = m.take("const");
        let own_shared = m.rest().iter().any(|space| matches!(*space, "shared" | "shared::cta"));
        let named = m.find(named_space);
        m.finish()?;
        let [p, a] = exactly(i)?;
        let a = self.source(a, ScalarType::U64)?;
        let d = self.predicate(p)?;
        if constant {
            return Ok(Op::IsConstant { d, a });
        }
        if own_shared {
            return Ok(Op::Rare(Box::new(Rare::InOwnShared { d, a })));
        }
        let space = self.space(Some(named.ok_or(Refusal::Wrong("no space"))?));
        Ok(Op::InSpace { space, d, a })
    }

    pub(super) fn fence(&mut self, m: &mut Modifiers<'_>) -> Decoded<Op> {
        m.ignore(|modifier| {
            matches!(
                modifier,
                "cta"
                    | "cluster"
                    | "gpu"
                    | "gl"
                    | "sys"
                    | "sc"
                    | "acq_rel"
                    | "acquire"
                    | "release"
                    | "sync_restrict::shared::cta"
                    | "sync_restrict::shared::cluster"
                    | "mbarrier_init"
                    | "proxy"
                    | "alias"
                    | "async"
                    | "async::generic"
                    | "tensormap::generic"
                    | "global"
                    | "shared::cta"
                    | "shared::cluster"
            )
        });
        m.finish()?;
        Ok(Op::Fence)
    }
}

fn element_bytes(ty: ScalarType) -> Decoded<u8> {
    match (ty, ty.size()) {
        (ScalarType::Pred, _) => Err(Refusal::Wrong("predicates have no place in memory")),
        (_, size @ (1 | 2 | 4 | 8)) => u8::try_from(size).map_err(|_| Refusal::Unsupported),
        _ => Err(Refusal::Unsupported),
    }
}

pub(super) fn atomic_op(name: &str) -> Option<AtomicOp> {
    Some(match name {
        "add" => AtomicOp::Add,
        "min" => AtomicOp::Min,
        "max" => AtomicOp::Max,
        "and" => AtomicOp::And,
        "or" => AtomicOp::Or,
        "xor" => AtomicOp::Xor,
        "exch" => AtomicOp::Exchange,
        "cas" => AtomicOp::CompareExchange,
        "inc" => AtomicOp::Increment,
        "dec" => AtomicOp::Decrement,
        _ => return None,
    })
}

pub(super) fn atomic_type(ty: ScalarType, op: AtomicOp) -> Decoded<AtomicType> {
    let ty = match ty {
        ScalarType::B16 | ScalarType::U16 => AtomicType::U16,
        ScalarType::B32 | ScalarType::U32 => AtomicType::U32,
        ScalarType::S32 => AtomicType::S32,
        ScalarType::B64 | ScalarType::U64 => AtomicType::U64,
        ScalarType::S64 => AtomicType::S64,
        ScalarType::F32 => AtomicType::F32,
        ScalarType::F64 => AtomicType::F64,
        ScalarType::F16 => AtomicType::F16,
        ScalarType::BF16 => AtomicType::Bf16,
        ScalarType::F16x2 => AtomicType::F16x2,
        ScalarType::BF16x2 => AtomicType::Bf16x2,
        _ => return Err(Refusal::Unsupported),
    };
    let is_integer =
        matches!(ty, AtomicType::U16 | AtomicType::U32 | AtomicType::S32 | AtomicType::U64 | AtomicType::S64);
    match op {
        AtomicOp::And | AtomicOp::Or | AtomicOp::Xor | AtomicOp::Increment | AtomicOp::Decrement if !is_integer => {
            Err(Refusal::Wrong("no such operation on that type"))
        }
        _ => Ok(ty),
    }
}
