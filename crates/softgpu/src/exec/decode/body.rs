//! The body of a function.

use super::directives;
use super::error::{DecodeError, Decoded, Refusal};
use super::link::{self, Linked, Symbol as Outer};
use super::opcodes;
use super::source::SourceText;
use crate::exec::interface::Parameter;
use crate::exec::line_table::{LineTable, Origin};
use crate::exec::op::{Condition, Instruction, Op, Place, Reg, Slot};
use crate::exec::program::{Function, Preset, Source};
use crate::system::SystemUse;
use detshare_ptx::ScalarType;
use detshare_ptx::ast::{self, FunctionKind, Space, Span, Statement, TableKind, Variable};
use detshare_ptx::joined::Joined;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// A decoded body and what it needs.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) function: Function,
    /// Where a kernel has its parameters.
    pub(super) parameters: Vec<Parameter>,
    /// Local variables alone, in bytes.
    pub(super) declared_local: u32,
    /// 32-bit registers.
    pub(super) registers: u32,
    /// The first instruction that cannot be run, or a directive that is not known.
    pub(super) unsupported: Option<(String, u32)>,
    /// Functions that it calls by name,
    pub(super) calls: BTreeSet<u32>,
    /// and those whose addresses it takes.
    pub(super) taken: BTreeSet<u32>,
    /// Whether it calls what an address says.
    pub(super) calls_addresses: bool,
    /// Shared variables that it uses.
    pub(super) shared: BTreeSet<u32>,
    /// What it uses of the system.
    pub(super) system: SystemUse,
}

/// What a name stands for within a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Symbol {
    Register(Reg),
    Predicate(Slot),
    /// A register of 128 bits: two of 64, the lower one first.
    Quad([Slot; 2]),
    /// `.reg .v4 .f32 v`: the first of as many registers.
    Vector(Reg, u8),
    /// A local variable or an argument of a call, in the frame's local memory.
    Frame {
        offset: u32,
        size: u32,
    },
    /// A kernel's parameter.
    Parameter {
        offset: u32,
    },
    Outer(Outer),
    /// A place in the code, by its number.
    Label(u32),
    /// A list of labels, by its number.
    Table(usize),
    /// The signature of an indirect call, which nobody asks for.
    Prototype,
}

/// The names of a block.
#[derive(Debug, Default)]
struct Scope<'a> {
    names: HashMap<String, Symbol>,
    /// `%r<10>`: prefix, count and type.
    ranges: HashMap<&'a str, (u32, ScalarType)>,
}

/// A function while it is decoded.
pub(super) struct Builder<'a> {
    pub(super) linked: &'a Linked<'a>,
    pub(super) module: usize,
    pub(super) kernel: bool,
    body: Body,
    scopes: Vec<Scope<'a>>,
    tables: Vec<&'a [String]>,
    /// Where labels are, by their numbers.
    labels: Vec<Option<u32>>,
    constants: HashMap<(bool, u64), Slot>,
    presets: HashMap<KnownAtEntry, Slot>,
    span: Span,
    lines: &'a [u32],
    /// What the last `.loc` says.
    origin: Origin,
    local_bytes: u64,
    pub(super) joined: Joined,
    /// Of products that sums are joined with, by where they start.
    pub(super) factors: HashMap<u32, [Slot; 2]>,
}

/// A preset without its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum KnownAtEntry {
    Special(crate::exec::op::Special, bool),
    Shared { variable: u32, offset: i64, wide: bool },
    Predicate(bool),
}

/// Decodes a function that has a body.
pub(super) fn decode(
    linked: &Linked<'_>,
    module: usize,
    function: &ast::Function,
    source: &SourceText,
) -> Result<Body, DecodeError> {
    let code = Function {
        name: function.name.clone(),
        source: Arc::clone(&source.text),
        lines: LineTable::new(&source.files),
        // The first wide register is where local memory starts.
        wide: 1,
        ..Function::default()
    };
    let body = Body {
        function: code,
        parameters: Vec::new(),
        declared_local: 0,
        registers: 0,
        unsupported: None,
        calls: BTreeSet::new(),
        taken: BTreeSet::new(),
        calls_addresses: false,
        shared: BTreeSet::new(),
        system: SystemUse::default(),
    };
    let mut builder = Builder {
        linked,
        module,
        kernel: function.kind == FunctionKind::Kernel,
        body,
        scopes: vec![Scope::default()],
        tables: Vec::new(),
        labels: Vec::new(),
        constants: HashMap::new(),
        presets: HashMap::new(),
        span: function.span,
        lines: &source.line_starts,
        origin: Origin::default(),
        local_bytes: 0,
        joined: if source.is_for_debugger { Joined::default() } else { Joined::of(function) },
        factors: HashMap::new(),
    };
    builder.signature(function)?;
    builder.head(function)?;
    builder.block(function.body.as_deref().unwrap_or_default())?;
    builder.finish()
}

impl<'a> Builder<'a> {
    fn signature(&mut self, function: &'a ast::Function) -> Result<(), DecodeError> {
        if self.kernel {
            let mut end = 0u64;
            for parameter in &function.parameters {
                let Some(declarator) = parameter.declarators.first() else { continue };
                let size = link::size_of(parameter, declarator)?;
                let offset = end.next_multiple_of(link::align_of(parameter));
                end = offset.saturating_add(size);
                let narrow = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
                self.body.parameters.push(Parameter { offset: narrow(offset), size: narrow(size) });
                let offset = u32::try_from(offset).unwrap_or(u32::MAX);
                self.name(&declarator.name, Symbol::Parameter { offset });
            }
            return Ok(());
        }
        for result in &function.returns {
            let place = self.formal(result)?;
            self.body.function.results.push(place);
        }
        for parameter in &function.parameters {
            let place = self.formal(parameter)?;
            self.body.function.parameters.push(place);
        }
        Ok(())
    }

    /// What stands between the parameters and the body.
    fn head(&mut self, function: &ast::Function) -> Result<(), DecodeError> {
        if let Some(directive) = directives::incomplete(function) {
            self.span = directive.span;
            self.refuse(Refusal::Wrong(".reqntid and .reqnctapercluster are needed"))?;
        }
        if let Some(attribute) = directives::unknown_attribute(function) {
            // It has no place of its own.
            self.span = Span { end: function.span.start, ..function.span };
            self.unsupported(format!(".attribute({attribute})"));
        }
        self.directives(function.kind, &function.directives)
    }

    fn directives(&mut self, kind: FunctionKind, directives: &[ast::FunctionDirective]) -> Result<(), DecodeError> {
        let Some(unknown) = directives::unknown(kind, directives) else { return Ok(()) };
        self.span = unknown.span;
        self.refuse(Refusal::Unsupported)
    }

    /// Where a function has a parameter or result.
    fn formal(&mut self, variable: &'a Variable) -> Result<Place, DecodeError> {
        let Some(declarator) = variable.declarators.first() else {
            return Ok(Place::Memory { offset: 0, size: 0 });
        };
        if variable.space == Space::Reg {
            if variable.ty == ScalarType::B128 {
                let reason = "parameters of 128 bits are passed in memory alone";
                return Err(DecodeError::BadVariable { name: declarator.name.clone(), reason });
            }
            let register = self.fresh(variable.ty);
            self.name(&declarator.name, Symbol::Register(register));
            return Ok(Place::Register(register));
        }
        let (offset, size) = self.frame_memory(variable, declarator)?;
        self.name(&declarator.name, Symbol::Frame { offset, size });
        Ok(Place::Memory { offset, size })
    }

    /// A place in the frame's local memory.
    fn frame_memory(&mut self, variable: &Variable, declarator: &ast::Declarator) -> Result<(u32, u32), DecodeError> {
        let size = link::size_of(variable, declarator)?;
        let offset = self.local_bytes.next_multiple_of(link::align_of(variable));
        self.local_bytes = offset.saturating_add(size);
        match (u32::try_from(offset), u32::try_from(size)) {
            (Ok(offset), Ok(size)) if self.local_bytes < u32::MAX.into() => Ok((offset, size)),
            _ => Err(DecodeError::BadVariable { name: declarator.name.clone(), reason: "it is too large" }),
        }
    }

    fn name(&mut self, name: &str, symbol: Symbol) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.names.insert(name.to_string(), symbol);
        }
    }

    /// The statements of a block, which has names of its own.
    fn block(&mut self, statements: &'a [Statement]) -> Result<(), DecodeError> {
        self.scopes.push(Scope::default());
        // Branches go forward, too.
        for statement in statements {
            match statement {
                Statement::Label(label) => {
                    let number = u32::try_from(self.labels.len()).unwrap_or(u32::MAX);
                    self.labels.push(None);
                    self.name(&label.name, Symbol::Label(number));
                }
                Statement::Table(table) => {
                    let symbol = match &table.kind {
                        TableKind::Targets(targets) => {
                            self.tables.push(targets);
                            Symbol::Table(self.tables.len() - 1)
                        }
                        TableKind::CallTargets(_) | TableKind::CallPrototype { .. } => Symbol::Prototype,
                    };
                    self.name(&table.label, symbol);
                }
                _ => {}
            }
        }
        for statement in statements {
            self.statement(statement)?;
        }
        self.scopes.pop();
        Ok(())
    }

    fn statement(&mut self, statement: &'a Statement) -> Result<(), DecodeError> {
        match statement {
            Statement::Label(label) => {
                let here = u32::try_from(self.body.function.code.len()).unwrap_or(u32::MAX);
                if let Some(Symbol::Label(number)) = self.find(&label.name) {
                    self.labels[number as usize] = Some(here);
                }
                Ok(())
            }
            Statement::Variable(variable) => self.variable(variable),
            Statement::Instruction(instruction) => {
                self.span = instruction.span;
                let start = self.body.function.code.len();
                let decoded = if opcodes::is_known(&instruction.opcode) {
                    self.instruction(instruction)
                } else {
                    Err(Refusal::Wrong("unknown instruction"))
                };
                match decoded {
                    Ok(()) => Ok(()),
                    Err(refusal) => {
                        self.body.function.code.truncate(start);
                        self.body.function.spans.truncate(start);
                        self.refuse(refusal)
                    }
                }
            }
            Statement::Raw(directive) => {
                self.span = directive.span;
                let known = opcodes::is_known(opcodes::of_text(&directive.text));
                self.refuse(if known { Refusal::Unsupported } else { Refusal::Wrong("unknown instruction") })
            }
            Statement::Block(statements) => self.block(statements),
            Statement::Directive(directive) => {
                if let Some(origin) = self.body.function.lines.note(&directive.text) {
                    self.origin = origin;
                }
                Ok(())
            }
            Statement::Table(ast::BranchTable { kind: TableKind::CallPrototype { directives, .. }, .. }) => {
                self.directives(FunctionKind::Function, directives)
            }
            Statement::Table(_) => Ok(()),
        }
    }

    /// What becomes of an instruction that was not decoded, or of a directive that is not known.
    fn refuse(&mut self, refusal: Refusal) -> Result<(), DecodeError> {
        let source = self.place_in_source();
        let text = || {
            let text = self.body.function.source.get(source.start as usize..source.end as usize);
            // Compilers write a call on several lines; people are told in one.
            text.unwrap_or_default().trim_end_matches(';').split_whitespace().collect::<Vec<_>>().join(" ")
        };
        match refusal {
            Refusal::Unsupported => {
                let text = text();
                self.unsupported(text);
                Ok(())
            }
            Refusal::NotSupported(reason) => Err(DecodeError::NotSupported { text: text(), line: source.line, reason }),
            Refusal::Wrong(reason) => Err(DecodeError::BadInstruction { text: text(), line: source.line, reason }),
            Refusal::Unresolved(name) => Err(DecodeError::Unresolved { name, line: Some(source.line) }),
        }
    }

    /// Keeps the kernels that come here from being launched, and the others from going on here.
    fn unsupported(&mut self, text: String) {
        let line = self.place_in_source().line;
        self.body.unsupported.get_or_insert((text, line));
        self.emit(Op::Unsupported);
    }

    fn place_in_source(&self) -> Source {
        let line = self.lines.partition_point(|start| *start <= self.span.start);
        let line = u32::try_from(line).unwrap_or(u32::MAX);
        Source { start: self.span.start, end: self.span.end, line, origin: self.origin }
    }

    fn variable(&mut self, variable: &'a Variable) -> Result<(), DecodeError> {
        for declarator in &variable.declarators {
            match variable.space {
                Space::Reg => self.declare_register(variable, declarator),
                Space::Local | Space::Param => {
                    let (offset, size) = self.frame_memory(variable, declarator)?;
                    if variable.space == Space::Local {
                        self.body.declared_local = self.body.declared_local.saturating_add(size);
                    }
                    self.name(&declarator.name, Symbol::Frame { offset, size });
                }
                _ => {
                    let found = self.linked.find_inner(self.module, variable, &declarator.name);
                    // `extern` within a function means what it means outside.
                    let found = found.or_else(|| self.linked.find(self.module, &declarator.name));
                    if let Some(symbol) = found {
                        self.name(&declarator.name, Symbol::Outer(symbol));
                    }
                }
            }
        }
        Ok(())
    }

    fn declare_register(&mut self, variable: &'a Variable, declarator: &'a ast::Declarator) {
        if let Some(count) = declarator.count {
            if let Some(scope) = self.scopes.last_mut() {
                scope.ranges.insert(&declarator.name, (count, variable.ty));
            }
        } else if let Some(size) = variable.vector {
            let first = self.fresh(variable.ty);
            let mut registers = vec![first];
            registers.extend((1..size).map(|_| self.fresh(variable.ty)));
            for (register, suffixes) in registers.iter().zip([[".x", ".r"], [".y", ".g"], [".z", ".b"], [".w", ".a"]]) {
                for suffix in suffixes {
                    self.name(&format!("{}{suffix}", declarator.name), Symbol::Register(*register));
                }
            }
            self.name(&declarator.name, Symbol::Vector(first, size));
        } else {
            let symbol = self.declared(variable.ty);
            self.name(&declarator.name, symbol);
        }
    }

    fn declared(&mut self, ty: ScalarType) -> Symbol {
        if ty == ScalarType::Pred {
            return Symbol::Predicate(self.fresh_predicate());
        }
        if ty == ScalarType::B128 {
            return Symbol::Quad([self.fresh_wide(), self.fresh_wide()]);
        }
        Symbol::Register(self.fresh(ty))
    }

    /// What a name stands for here.
    pub(super) fn find(&mut self, name: &str) -> Option<Symbol> {
        let digits = name.trim_end_matches(|digit: char| digit.is_ascii_digit()).len();
        let (prefix, number) = name.split_at(digits);
        let number = number.parse::<u32>().ok().filter(|_| number == "0" || !number.starts_with('0'));
        for at in (0..self.scopes.len()).rev() {
            if let Some(symbol) = self.scopes[at].names.get(name) {
                return Some(*symbol);
            }
            if let (Some(number), Some((count, ty))) = (number, self.scopes[at].ranges.get(prefix).copied())
                && number < count
            {
                // Registers get their places when they are first used.
                let symbol = self.declared(ty);
                self.scopes[at].names.insert(name.to_string(), symbol);
                return Some(symbol);
            }
        }
        self.linked.find(self.module, name).map(Symbol::Outer)
    }

    /// The labels of a table.
    pub(super) fn table(&self, number: usize) -> &'a [String] {
        self.tables[number]
    }

    /// A register of its own.
    pub(super) fn fresh(&mut self, ty: ScalarType) -> Reg {
        if ty.size() > 4 { Reg::Wide(self.fresh_wide()) } else { Reg::Narrow(self.fresh_narrow()) }
    }

    pub(super) fn fresh_narrow(&mut self) -> Slot {
        self.body.function.narrow += 1;
        self.body.registers = self.body.registers.saturating_add(1);
        self.body.function.narrow - 1
    }

    pub(super) fn fresh_wide(&mut self) -> Slot {
        self.body.function.wide += 1;
        self.body.registers = self.body.registers.saturating_add(2);
        self.body.function.wide - 1
    }

    /// How many registers of 32 bits the function has asked for.
    pub(super) fn registers(&self) -> u32 {
        self.body.registers
    }

    pub(super) fn set_registers(&mut self, registers: u32) {
        self.body.registers = registers;
    }

    pub(super) fn fresh_predicate(&mut self) -> Slot {
        self.body.function.predicates += 1;
        self.body.function.predicates - 1
    }

    /// A narrow register that always holds a number.
    pub(super) fn narrow_constant(&mut self, value: u32) -> Slot {
        if let Some(slot) = self.constants.get(&(false, value.into())) {
            return *slot;
        }
        let slot = self.fresh_narrow();
        self.body.registers -= 1;
        self.constants.insert((false, value.into()), slot);
        self.body.function.presets.push(Preset::Narrow { slot, value });
        slot
    }

    /// A wide register that always holds a number.
    pub(super) fn wide_constant(&mut self, value: u64) -> Slot {
        if let Some(slot) = self.constants.get(&(true, value)) {
            return *slot;
        }
        let slot = self.fresh_wide();
        self.body.registers -= 2;
        self.constants.insert((true, value), slot);
        self.body.function.presets.push(Preset::Wide { slot, value });
        slot
    }

    /// A register with what is known when the function is entered.
    pub(super) fn preset(&mut self, preset: KnownAtEntry) -> Slot {
        if let Some(slot) = self.presets.get(&preset) {
            return *slot;
        }
        let (slot, with_slot) = match preset {
            KnownAtEntry::Special(special, true) => {
                let slot = self.fresh_wide();
                (slot, Preset::WideSpecial { slot, special })
            }
            KnownAtEntry::Special(special, false) => {
                let slot = self.fresh_narrow();
                (slot, Preset::NarrowSpecial { slot, special })
            }
            KnownAtEntry::Shared { variable, offset, wide: true } => {
                let slot = self.fresh_wide();
                (slot, Preset::WideShared { slot, variable, offset })
            }
            KnownAtEntry::Shared { variable, offset, wide: false } => {
                let slot = self.fresh_narrow();
                (slot, Preset::NarrowShared { slot, variable, offset })
            }
            KnownAtEntry::Predicate(value) => {
                let slot = self.fresh_predicate();
                (slot, Preset::Predicate { slot, value })
            }
        };
        if let KnownAtEntry::Shared { variable, .. } = preset {
            self.body.shared.insert(variable);
        }
        self.presets.insert(preset, slot);
        self.body.function.presets.push(with_slot);
        slot
    }

    /// Notes that a function is called by name.
    pub(super) fn calls(&mut self, number: u32) {
        self.body.calls.insert(number);
    }

    /// Notes that a function's address is taken.
    pub(super) fn takes(&mut self, number: u32) {
        self.body.taken.insert(number);
    }

    /// Notes what it uses of the system.
    pub(super) fn uses(&mut self, system: SystemUse) {
        self.body.system = self.body.system.and(system);
    }

    /// Notes that whatever an address says is called.
    pub(super) fn calls_addresses(&mut self) {
        self.body.calls_addresses = true;
    }

    /// Adds an instruction without a condition.
    pub(super) fn emit(&mut self, op: Op) {
        self.emit_guarded(None, op);
    }

    pub(super) fn emit_guarded(&mut self, guard: Option<Condition>, op: Op) {
        let source = self.place_in_source();
        self.body.function.code.push(Instruction { guard, op });
        self.body.function.spans.push(source);
    }

    fn instruction(&mut self, instruction: &'a ast::Instruction) -> Decoded<()> {
        let guard = match &instruction.predicate {
            None => None,
            Some(predicate) => match self.find(&predicate.register) {
                Some(Symbol::Predicate(slot)) => Some(Condition { slot, negated: predicate.negated }),
                Some(_) => return Err(Refusal::Wrong("the condition is no predicate")),
                None => return Err(Refusal::Unresolved(predicate.register.clone())),
            },
        };
        self.keep_factors(instruction)?;
        let joined = match self.joined.sum(instruction) {
            Some(sum) => self.joined_sum(instruction, sum)?,
            None => None,
        };
        let op = match joined {
            Some(op) => op,
            None => self.operation(instruction)?,
        };
        if !self.joined.is_gone(instruction) {
            self.emit_guarded(guard, op);
        }
        Ok(())
    }

    /// Puts places for labels.
    fn finish(mut self) -> Result<Body, DecodeError> {
        self.emit(Op::Return);
        let labels = &self.labels;
        let place = |number: &mut u32| {
            // Every label stands in the block that it was found in.
            *number = labels.get(*number as usize).copied().flatten().unwrap_or(0);
        };
        for instruction in &mut self.body.function.code {
            match &mut instruction.op {
                Op::Branch { target } => place(target),
                Op::BranchTable { targets, .. } => targets.iter_mut().for_each(place),
                _ => {}
            }
        }
        // Frames follow each other, and all variables are aligned within them.
        let local_bytes = self.local_bytes.next_multiple_of(16);
        self.body.function.local_bytes = u32::try_from(local_bytes).unwrap_or(u32::MAX);
        Ok(self.body)
    }
}
