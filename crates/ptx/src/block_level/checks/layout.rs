//! Where shared memory lies, as a value.
//!
//! A preemptible version's variables may lie [`SHARED_SIZE`] bytes further up, and all of them alike. An address is made for
//! going there, and nothing else may show where that is: it must not be written to memory that others see, or be worked on in a way
//! whose result a shift by so many bytes would change. What stays the same are differences and comparisons of two addresses, the
//! bits below that shift, and whether a generic address is null. Addresses are followed through registers, parameters, results, and
//! memory of the block and the thread.

use super::sight::base_and_offset;
use crate::ast::{FunctionKind, Instruction, Operand, Space};
use crate::block_level::code::{Code, Register, Step};
use crate::block_level::flow::Effort;
use crate::block_level::names::Names;
use crate::block_level::preemptible::SHARED_SIZE;
use crate::block_level::refusal::{Finding, RefusalKind};
use crate::scalar_type::ScalarType;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Which parameters and results of functions may hold an address, and at which word of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::block_level) struct Handed {
    parameters: HashSet<(String, usize, i64)>,
    results: HashSet<(String, i64)>,
}

impl Handed {
    pub(in crate::block_level) fn extend(&mut self, other: Self) {
        self.parameters.extend(other.parameters);
        self.results.extend(other.results);
    }
}

/// Checks a function that is handed these, and says what it hands on.
pub(in crate::block_level) fn check(
    code: &Code<'_>,
    names: &Names<'_>,
    handed: &Handed,
    effort: &mut Effort,
) -> Result<Handed, Finding> {
    let mut search = Search::new(code, names, handed);
    let mut entries = search.entries(effort)?;
    loop {
        let before = search.anywhere.len();
        entries = if before == 0 { entries } else { search.entries(effort)? };
        if search.anywhere.len() == before {
            break;
        }
    }
    for (block, entry) in entries {
        search.held = entry;
        for step in code.steps_of(block) {
            if !search.step(step) {
                return Err(Finding::at(RefusalKind::SharedMemory, step.instruction, step.instruction.span.start));
            }
        }
    }
    Ok(search.handed_on)
}

/// That many words past what a register, parameter or variable points to.
type Cell = (Register, i64);

/// Bytes of a word: what is stored as a whole may be read in parts.
const WORD: i64 = 4;

/// What may hold an address at some place in the code.
#[derive(Debug, Clone, Default)]
struct Held {
    registers: HashSet<Register>,
    cells: HashSet<Cell>,
}

impl Held {
    fn len(&self) -> usize {
        self.registers.len() + self.cells.len()
    }

    fn extend(&mut self, other: &Self) {
        self.registers.extend(&other.registers);
        self.cells.extend(&other.cells);
    }
}

struct Search<'c, 'm> {
    code: &'c Code<'m>,
    names: &'c Names<'m>,
    handed: &'c Handed,
    held: Held,
    /// Of how many bytes addresses are that lie somewhere in the block's memory.
    anywhere: HashSet<u32>,
    /// Where a register is written, if that is one place.
    writers: HashMap<Register, Option<usize>>,
    /// The thread's variables in memory.
    stack: HashSet<Register>,
    /// What is held at the beginning.
    given: Held,
    handed_on: Handed,
}

impl<'c, 'm> Search<'c, 'm> {
    fn new(code: &'c Code<'m>, names: &'c Names<'m>, handed: &'c Handed) -> Self {
        let mut search = Self {
            code,
            names,
            handed,
            held: Held::default(),
            anywhere: HashSet::new(),
            writers: HashMap::new(),
            stack: HashSet::new(),
            given: Held::default(),
            handed_on: Handed::default(),
        };
        for (index, step) in code.steps.iter().enumerate() {
            for register in &step.results {
                search.writers.entry(*register).and_modify(|only| *only = None).or_insert(Some(index));
            }
            step.instruction.for_each_source(&mut |name| {
                let is_local = search.space(name) == Some(Space::Local);
                search.stack.extend(code.register(name).filter(|_| is_local));
            });
        }
        for (index, parameter) in code.function.parameters.iter().enumerate() {
            let register = parameter.declarators.first().and_then(|it| code.register(&it.name));
            let own = handed.parameters.iter().filter(|it| it.0 == code.function.name && it.1 == index);
            search
                .given
                .cells
                .extend(register.into_iter().flat_map(|it| own.clone().map(move |(_, _, offset)| (it, *offset))));
        }
        search
    }

    /// Where a variable lies.
    fn space(&self, name: &str) -> Option<Space> {
        self.names.variable(name).map(|it| it.space).or_else(|| self.code.locals.space(name))
    }

    /// What is held where each block of code that is run begins.
    fn entries(&mut self, effort: &mut Effort) -> Result<BTreeMap<u32, Held>, Finding> {
        let first = self.given.clone();
        let mut entries: BTreeMap<u32, Held> = BTreeMap::from([(0, first)]);
        let mut waiting = vec![0];
        while let Some(block) = waiting.pop() {
            self.held = entries.get(&block).cloned().unwrap_or_default();
            effort.spend(1 + self.held.len())?;
            for step in self.code.steps_of(block) {
                effort.spend(1)?;
                self.step(step);
            }
            let successors = self.code.blocks.get(block as usize).map_or(&[][..], |it| it.successors.as_slice());
            for successor in successors.iter().filter(|it| **it != self.code.exit()) {
                let is_new = !entries.contains_key(successor);
                let entry = entries.entry(*successor).or_default();
                let before = entry.len();
                entry.extend(&self.held);
                if is_new || entry.len() != before {
                    waiting.push(*successor);
                }
            }
        }
        Ok(entries)
    }

    /// Takes a step; false if it would tell where addresses are.
    fn step(&mut self, step: &Step<'_>) -> bool {
        let instruction = step.instruction;
        let (keeps, results) = match instruction.opcode.as_str() {
            "ld" => (true, self.load(instruction)),
            "st" => (self.store(step), HashSet::new()),
            "call" => self.call(instruction),
            _ => {
                let result = self.result(instruction);
                let is_address = result != Some(false);
                (result.is_some(), step.results.iter().copied().filter(|_| is_address).collect())
            }
        };
        // A parameter of a call is a result where it is stored to.
        if step.predicate.is_none() && instruction.opcode != "st" {
            step.results.iter().for_each(|register| {
                self.held.registers.remove(register);
            });
        }
        self.held.registers.extend(results);
        keeps
    }

    /// Whether an operand may be an address, which one in brackets is not.
    fn is_address(&self, operand: &Operand) -> bool {
        let mut found = false;
        if !matches!(operand, Operand::Address { .. } | Operand::Tensor { .. }) {
            operand.for_each_name(&mut |name| {
                found |= self.space(name) == Some(Space::Shared);
                found |= self.code.register(name).is_some_and(|register| self.held.registers.contains(&register));
            });
        }
        found
    }

    /// What an operation makes of addresses: whether its result is one, or None if that would tell where they are.
    fn result(&self, instruction: &Instruction) -> Option<bool> {
        let sources = instruction.operands.get(instruction.results()..).unwrap_or_default();
        let is: Vec<bool> = sources.iter().map(|operand| self.is_address(operand)).collect();
        if !is.contains(&true) {
            return Some(false);
        }
        let number = |at: usize| match sources.get(at) {
            Some(Operand::Integer(number)) => Some(*number),
            _ => None,
        };
        let constant = number(0).or_else(|| number(1));
        let is_narrow = instruction.has_any(&["u8", "s8", "b8", "u16", "s16", "b16"]);
        let shift = i128::from(SHARED_SIZE);
        match (instruction.opcode.as_str(), is.as_slice()) {
            ("mov" | "cvta", _) => Some(true),
            ("cvt", _) => (!is_narrow).then_some(true),
            ("add" | "min" | "max" | "mad", _) if is_narrow || instruction.has("hi") => None,
            ("add", [true, false] | [false, true]) | ("sub", [true, false]) | ("mad", [false, false, true]) => {
                Some(true)
            }
            ("sub", [true, true]) => Some(false),
            ("min" | "max", [true, true]) => Some(true),
            ("selp", [_, _, false]) | ("shfl", [true, ..]) => Some(true),
            ("isspacep", _) => Some(false),
            // Both are moved alike; and a generic address is null or not, wherever it points to.
            ("setp" | "set", [true, true, ..]) => Some(false),
            ("setp" | "set", _) if constant == Some(0) => {
                let is_generic = instruction.has_any(&["u64", "s64", "b64"]);
                (is_generic && instruction.has_any(&["eq", "ne"])).then_some(false)
            }
            ("and", _) => match constant? {
                low if (0..shift).contains(&low) => Some(false),
                // From the top to a bit that is not above the shift.
                high => is_mask_of_multiples(high, instruction, shift).then_some(true),
            },
            // Nothing is carried out of the bits below the shift.
            ("or" | "xor", _) => self.is_below(sources, &is, shift).then_some(true),
            _ => None,
        }
    }

    /// Whether what an address is joined with is below that many bytes.
    fn is_below(&self, sources: &[Operand], is: &[bool], shift: i128) -> bool {
        let mut others = sources.iter().zip(is).filter(|(_, is)| !**is).map(|(operand, _)| operand);
        is.iter().filter(|it| **it).count() == 1 && others.all(|operand| self.is_small(operand, shift, 0))
    }

    /// Whether a number is surely below a limit, by how it is worked out.
    fn is_small(&self, operand: &Operand, limit: i128, depth: u32) -> bool {
        /// As many steps as compilers and people take from a mask to where it is used.
        const DEEPEST: u32 = 4;
        let name = match operand {
            Operand::Integer(number) => return (0..limit).contains(number),
            Operand::Name(name) if depth < DEEPEST => name,
            _ => return false,
        };
        let Some(register) = self.code.register(name) else { return false };
        let Some(step) = self.only_writer(register) else { return false };
        match (step.instruction.opcode.as_str(), step.instruction.operands.as_slice()) {
            ("and", [_, first, second]) => [first, second].iter().any(|it| self.is_small(it, limit, depth + 1)),
            ("shl", [_, value, Operand::Integer(by @ 0..=6)]) => self.is_small(value, limit >> by, depth + 1),
            ("mov" | "cvt", [_, value]) => self.is_small(value, limit, depth + 1),
            ("or" | "xor", [_, first, second]) => [first, second].iter().all(|it| self.is_small(it, limit, depth + 1)),
            _ => false,
        }
    }

    /// The cells that an access with an address covers, with what is written to or read from them.
    fn cells<'o>(&self, instruction: &Instruction, address: &Operand, value: &'o Operand) -> Vec<(Cell, &'o Operand)> {
        let place = base_and_offset(address).and_then(|(name, offset)| Some((self.code.register(name)?, offset)));
        let Some((base, offset)) = place.map(|(base, offset)| self.root(base, offset)) else { return Vec::new() };
        let elements = match value {
            Operand::Vector(elements) => elements.as_slice(),
            one => core::slice::from_ref(one),
        };
        let size = i64::from(size(instruction)).max(1);
        let mut cells = Vec::new();
        for (index, element) in (0_i64..).zip(elements) {
            let from = offset.saturating_add(index * size);
            let words = from.div_euclid(WORD)..=from.saturating_add(size - 1).div_euclid(WORD);
            cells.extend(words.map(|word| ((base, word), element)));
        }
        cells
    }

    /// What an address is counted from, and how far it is from there, as far as registers are written once.
    fn root(&self, mut base: Register, mut offset: i64) -> Cell {
        /// As many steps as compilers take from a variable to a place in it; what counts itself on has no beginning.
        const FARTHEST: u32 = 16;
        for _ in 0..FARTHEST {
            let Some(step) = self.only_writer(base) else { break };
            let from = match (step.instruction.opcode.as_str(), step.instruction.operands.as_slice()) {
                ("mov" | "cvta", [_, Operand::Name(_)]) => 0,
                ("add", [_, Operand::Name(_), Operand::Integer(number)]) => i64::try_from(*number).unwrap_or_default(),
                _ => break,
            };
            let Some(source) = step.sources.first() else { break };
            base = *source;
            offset = offset.wrapping_add(from);
        }
        (base, offset)
    }

    fn only_writer(&self, register: Register) -> Option<&'c Step<'m>> {
        self.writers.get(&register).copied().flatten().map(|index| &self.code.steps[index])
    }

    /// The registers that a load writes an address to.
    fn load(&self, instruction: &Instruction) -> HashSet<Register> {
        let [value, address] = instruction.operands.as_slice() else { return HashSet::new() };
        let is_foreign = instruction.has_any(&["global", "const"]);
        let from_anywhere = !is_foreign && !is_parameter(instruction) && self.anywhere.contains(&size(instruction));
        let mut found = HashSet::new();
        for (cell, element) in self.cells(instruction, address, value) {
            if from_anywhere || self.held.cells.contains(&cell) {
                element.for_each_name(&mut |name| found.extend(self.code.register(name)));
            }
        }
        found
    }

    /// Whether what a store writes stays with the block.
    fn store(&mut self, step: &Step<'_>) -> bool {
        let instruction = step.instruction;
        let [address, value] = instruction.operands.as_slice() else { return true };
        for (cell, element) in self.cells(instruction, address, value) {
            let is_named = is_parameter(instruction) || self.stack.contains(&cell.0);
            if !self.is_address(element) {
                if is_named && step.predicate.is_none() {
                    self.held.cells.remove(&cell);
                }
                continue;
            }
            let is_inside = instruction.modifiers.iter().any(|it| it.starts_with("shared") || it == "local")
                || self.held.registers.contains(&cell.0)
                || self.is_on_stack(cell.0, 0)
                || self.space_of_base(address) == Some(Space::Shared);
            if is_named {
                self.held.cells.insert(cell);
                self.hand_back(address, cell.1);
            } else if is_inside {
                self.anywhere.insert(size(instruction));
                self.held.cells.insert(cell);
            } else {
                return false;
            }
        }
        // What has no cells has a number for an address.
        base_and_offset(address).is_some() || !self.is_address(value)
    }

    /// Whether a register points into the thread's variables, at an index or not.
    fn is_on_stack(&self, register: Register, depth: u32) -> bool {
        /// A variable, where in it, and where in that.
        const DEEPEST: u32 = 8;
        let Some(step) = self.only_writer(register) else { return self.stack.contains(&register) };
        let is_sum = matches!(step.instruction.opcode.as_str(), "mov" | "cvta" | "add");
        is_sum && depth < DEEPEST && step.sources.iter().any(|source| self.is_on_stack(*source, depth + 1))
    }

    fn space_of_base(&self, address: &Operand) -> Option<Space> {
        self.space(base_and_offset(address)?.0)
    }

    /// Notes that a result of the function is an address, if that is what was stored to.
    fn hand_back(&mut self, address: &Operand, word: i64) {
        let Some((name, _)) = base_and_offset(address) else { return };
        let is_result = |it: &crate::ast::Variable| it.declarators.iter().any(|it| it.name == name);
        if self.code.function.kind == FunctionKind::Function && self.code.function.returns.iter().any(is_result) {
            self.handed_on.results.insert((self.code.function.name.clone(), word));
        }
    }

    /// Whether a call's callee is known that is handed addresses, and the registers that it writes some to.
    fn call(&mut self, instruction: &Instruction) -> (bool, HashSet<Register>) {
        let Some((at, callee)) = instruction.callee() else { return (true, HashSet::new()) };
        let names = |operand: Option<&Operand>| {
            let mut names = Vec::new();
            if let Some(Operand::List(elements)) = operand {
                for element in elements {
                    let mut register = None;
                    element.for_each_name(&mut |name| register = self.code.register(name));
                    names.push(register);
                }
            }
            names
        };
        let arguments = names(instruction.operands.get(at + 1));
        let results = names(instruction.operands.first().filter(|_| at == 1));
        let mut keeps = true;
        let is_known = self.names.function(callee).is_some_and(|function| function.body.is_some());
        for (index, register) in arguments.into_iter().enumerate().filter_map(|(index, it)| Some((index, it?))) {
            let stored = self.held.cells.iter().filter(|cell| cell.0 == register).map(|cell| cell.1);
            let itself = self.held.registers.contains(&register).then_some(0);
            for offset in stored.chain(itself) {
                keeps &= is_known;
                self.handed_on.parameters.insert((callee.to_string(), index, offset));
            }
        }
        // Functions of the driver print what lies on the stack.
        keeps &= is_known || self.anywhere.is_empty() && !self.held.cells.iter().any(|it| self.stack.contains(&it.0));
        let mut found = HashSet::new();
        for register in results.into_iter().flatten() {
            self.held.cells.retain(|cell| cell.0 != register);
            for (_, offset) in self.handed.results.iter().filter(|(function, _)| function == callee) {
                self.held.cells.insert((register, *offset));
                found.insert(register);
            }
        }
        (keeps, found)
    }
}

fn is_parameter(instruction: &Instruction) -> bool {
    instruction.modifiers.iter().any(|it| it.starts_with("param"))
}

/// Bytes of what is loaded or stored, of a vector of one element.
fn size(instruction: &Instruction) -> u32 {
    let types = instruction.modifiers.iter().rev();
    types
        .filter_map(|it| ScalarType::from_name(it))
        .map(|ty| u32::try_from(ty.size()).unwrap_or_default())
        .next()
        .unwrap_or_default()
}

/// Whether a mask keeps all bits from one on that is not above the shift.
fn is_mask_of_multiples(mask: i128, instruction: &Instruction, shift: i128) -> bool {
    let bits: u32 = if instruction.has("b64") { 64 } else { 32 };
    let cleared = (1_i128 << bits) - mask.rem_euclid(1_i128 << bits);
    cleared <= shift && cleared.count_ones() == 1
}
