//! The names in an instruction.

use crate::ast::{AddressBase, Instruction, Operand};

/// Opcodes whose first operand is no result. A branch's is a label, a store's is an address, which is none anyway.
const WITHOUT_RESULT: [&str; 18] = [
    "st",
    "red",
    "bra",
    "brx",
    "bar",
    "barrier",
    "nanosleep",
    "pmevent",
    "prefetch",
    "prefetchu",
    "fence",
    "membar",
    "cp",
    "discard",
    "setmaxnreg",
    "stackrestore",
    "sust",
    "stmatrix",
];

impl Instruction {
    /// Whether the modifier is there.
    pub(crate) fn has(&self, modifier: &str) -> bool {
        self.modifiers.iter().any(|it| it == modifier)
    }

    /// Whether one of the modifiers is there.
    pub(crate) fn has_any(&self, modifiers: &[&str]) -> bool {
        modifiers.iter().any(|modifier| self.has(modifier))
    }

    /// The name of a direct call's callee and its place among the operands.
    pub(super) fn callee(&self) -> Option<(usize, &str)> {
        if self.opcode != "call" {
            return None;
        }
        self.operands.iter().take(2).enumerate().find_map(|(index, operand)| match operand {
            Operand::Name(name) => Some((index, name.as_str())),
            _ => None,
        })
    }

    /// How many operands are written to, from the first on.
    pub(super) fn results(&self) -> usize {
        let reduction = matches!(self.opcode.as_str(), "bar" | "barrier") && self.has("red");
        match self.opcode.as_str() {
            "call" => usize::from(matches!(self.operands.first(), Some(Operand::List(_))) && self.operands.len() > 1),
            opcode => usize::from(reduction || !WITHOUT_RESULT.contains(&opcode)),
        }
    }

    /// The names that are written to. A parameter of a call counts where it is stored to.
    pub(crate) fn for_each_result<'a>(&'a self, visit: &mut impl FnMut(&'a str)) {
        for operand in self.operands.iter().take(self.results()) {
            match operand {
                // An address is read, whatever becomes of what it points to.
                Operand::Address { .. } | Operand::Tensor { .. } => {}
                _ => operand.for_each_name(visit),
            }
        }
        if self.opcode == "st"
            && self.modifiers.iter().any(|it| it.starts_with("param"))
            && let Some(Operand::Address { base: AddressBase::Name(name), .. }) = self.operands.first()
        {
            visit(name);
        }
    }

    /// The names that are read, without the predicate.
    pub(crate) fn for_each_source<'a>(&'a self, visit: &mut impl FnMut(&'a str)) {
        for (index, operand) in self.operands.iter().enumerate() {
            let is_result = index < self.results();
            if !is_result || matches!(operand, Operand::Address { .. } | Operand::Tensor { .. }) {
                operand.for_each_name(visit);
            }
        }
    }
}

impl Operand {
    /// All names in it, components (`%v.x`, `%tid.x`) included.
    pub(super) fn for_each_name<'a>(&'a self, visit: &mut impl FnMut(&'a str)) {
        match self {
            Self::Name(name) | Self::Negative(name) | Self::Offset { name, .. } => visit(name),
            Self::Address { base, .. } => base.for_name(visit),
            Self::Tensor { base, coordinates, .. } => {
                base.for_name(visit);
                coordinates.iter().for_each(|coordinate| coordinate.for_each_name(visit));
            }
            Self::Vector(elements) | Self::List(elements) => {
                elements.iter().for_each(|element| element.for_each_name(visit));
            }
            Self::Pair(first, second) => {
                first.for_each_name(visit);
                second.for_each_name(visit);
            }
            Self::Not(operand) => operand.for_each_name(visit),
            Self::Integer(_) | Self::F32(_) | Self::F64(_) | Self::Sink => {}
        }
    }

    /// Replaces names; an [`Operand::Offset`] keeps its offset.
    pub(super) fn rename(&mut self, replace: &mut impl FnMut(&str) -> Option<String>) {
        let mut exchange = |name: &mut String| {
            if let Some(other) = replace(name) {
                *name = other;
            }
        };
        match self {
            Self::Name(name) | Self::Negative(name) | Self::Offset { name, .. } => exchange(name),
            Self::Address { base, .. } => base.rename(&mut exchange),
            Self::Tensor { base, coordinates, .. } => {
                base.rename(&mut exchange);
                coordinates.iter_mut().for_each(|coordinate| coordinate.rename(replace));
            }
            Self::Vector(elements) | Self::List(elements) => {
                elements.iter_mut().for_each(|element| element.rename(replace));
            }
            Self::Pair(first, second) => {
                first.rename(replace);
                second.rename(replace);
            }
            Self::Not(operand) => operand.rename(replace),
            Self::Integer(_) | Self::F32(_) | Self::F64(_) | Self::Sink => {}
        }
    }
}

impl AddressBase {
    fn for_name<'a>(&'a self, visit: &mut impl FnMut(&'a str)) {
        if let Self::Name(name) = self {
            visit(name);
        }
    }

    fn rename(&mut self, exchange: &mut impl FnMut(&mut String)) {
        if let Self::Name(name) = self {
            exchange(name);
        }
    }
}

/// The register of a component: `%v` of `%v.x`.
pub(super) fn register_of(name: &str) -> &str {
    name.split_once('.').map_or(name, |(register, _)| register)
}
