//! A function's instructions in a row, and where control goes from each.

use super::names::{Locals, Names};
use super::operands::register_of;
use super::refusal::{Finding, RefusalKind};
use crate::ast::{Directive, Function, Instruction, Operand, Statement, TableKind, Variable};
use core::ops::Range;
use std::collections::HashMap;

/// A number for a name within one function.
pub(super) type Register = u32;

/// One instruction.
pub(super) struct Step<'m> {
    pub(super) instruction: &'m Instruction,
    /// What it writes.
    pub(super) results: Vec<Register>,
    /// What it reads, without its predicate.
    pub(super) sources: Vec<Register>,
    pub(super) predicate: Option<Register>,
    pub(super) block: u32,
    scope: u32,
}

/// Instructions that are run one after the other.
pub(super) struct Block {
    pub(super) steps: Range<usize>,
    /// Blocks that may follow; [`Code::exit`] is the end of the function.
    pub(super) successors: Vec<u32>,
}

/// A function with a body.
pub(super) struct Code<'m> {
    pub(super) function: &'m Function,
    pub(super) locals: Locals<'m>,
    pub(super) steps: Vec<Step<'m>>,
    pub(super) raws: Vec<&'m Directive>,
    pub(super) directives: Vec<&'m Directive>,
    pub(super) variables: Vec<&'m Variable>,
    pub(super) blocks: Vec<Block>,
    numbers: HashMap<&'m str, Register>,
}

/// What is needed while the statements are put in a row.
struct Builder<'m> {
    code: Code<'m>,
    /// The scope around each scope.
    parents: Vec<u32>,
    labels: HashMap<(u32, &'m str), u32>,
    tables: HashMap<(u32, &'m str), &'m [String]>,
}

/// Whether control may go elsewhere after it. A `trap` ends the whole grid: nobody is left to be looked at.
fn ends_block(instruction: &Instruction) -> bool {
    matches!(instruction.opcode.as_str(), "bra" | "brx" | "ret" | "exit")
}

impl<'m> Code<'m> {
    pub(super) fn of(function: &'m Function, body: &'m [Statement], names: &Names<'m>) -> Result<Self, Finding> {
        let code = Self {
            function,
            locals: Locals::of(function, names)?,
            steps: Vec::new(),
            raws: Vec::new(),
            directives: Vec::new(),
            variables: Vec::new(),
            blocks: vec![Block { steps: 0..0, successors: Vec::new() }],
            numbers: HashMap::new(),
        };
        let mut builder = Builder { code, parents: vec![0], labels: HashMap::new(), tables: HashMap::new() };
        builder.statements(body, 0);
        builder.finish()
    }

    /// The number of the end, which is no block.
    pub(super) fn exit(&self) -> u32 {
        number(self.blocks.len())
    }

    /// How many registers are numbered.
    pub(super) fn registers(&self) -> usize {
        self.numbers.len()
    }

    /// The number of a register, variable or parameter that some instruction names.
    pub(super) fn register(&self, name: &str) -> Option<Register> {
        self.numbers.get(register_of(name)).copied()
    }

    /// The steps of a block.
    pub(super) fn steps_of(&self, block: u32) -> &[Step<'m>] {
        self.blocks.get(block as usize).map_or(&[], |block| &self.steps[block.steps.clone()])
    }

    /// What it calls by name, with the instruction.
    pub(super) fn calls(&self) -> impl Iterator<Item = (&'m str, &'m Instruction)> {
        self.steps.iter().filter_map(|step| Some((step.instruction.callee()?.1, step.instruction)))
    }
}

/// A tree holds fewer than 2³² statements, since its source has fewer bytes.
fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

impl<'m> Builder<'m> {
    fn statements(&mut self, statements: &'m [Statement], scope: u32) {
        for statement in statements {
            match statement {
                Statement::Label(label) => {
                    let block = self.new_block();
                    self.labels.insert((scope, &label.name), block);
                }
                Statement::Variable(variable) => self.code.variables.push(variable),
                Statement::Instruction(instruction) => self.instruction(instruction, scope),
                Statement::Raw(text) => self.code.raws.push(text),
                Statement::Directive(text) => self.code.directives.push(text),
                Statement::Table(table) => {
                    if let TableKind::Targets(targets) = &table.kind {
                        self.tables.insert((scope, &table.label), targets);
                    }
                }
                Statement::Block(statements) => {
                    let inner = number(self.parents.len());
                    self.parents.push(scope);
                    self.statements(statements, inner);
                }
            }
        }
    }

    fn instruction(&mut self, instruction: &'m Instruction, scope: u32) {
        let numbers = &mut self.code.numbers;
        let mut number_of = |name: &'m str| {
            let next = number(numbers.len());
            *numbers.entry(register_of(name)).or_insert(next)
        };
        let (mut results, mut sources) = (Vec::new(), Vec::new());
        instruction.for_each_result(&mut |name| results.push(number_of(name)));
        instruction.for_each_source(&mut |name| sources.push(number_of(name)));
        let predicate = instruction.predicate.as_ref().map(|predicate| number_of(&predicate.register));
        let block = number(self.code.blocks.len() - 1);
        self.code.steps.push(Step { instruction, results, sources, predicate, block, scope });
        if let Some(block) = self.code.blocks.last_mut() {
            block.steps.end = self.code.steps.len();
        }
        if ends_block(instruction) {
            self.new_block();
        }
    }

    /// Begins another block, unless the last one is still empty.
    fn new_block(&mut self) -> u32 {
        let start = self.code.steps.len();
        if self.code.blocks.last().is_none_or(|block| !block.steps.is_empty()) {
            self.code.blocks.push(Block { steps: start..start, successors: Vec::new() });
        }
        number(self.code.blocks.len() - 1)
    }

    /// Joins the blocks.
    fn finish(mut self) -> Result<Code<'m>, Finding> {
        let exit = self.code.exit();
        for index in 0..self.code.blocks.len() {
            let next = number(index + 1).min(exit);
            let last = self.code.steps_of(number(index)).last();
            let successors = match last {
                Some(step) if ends_block(step.instruction) => {
                    let mut successors = self.targets(step, exit)?;
                    if step.predicate.is_some() {
                        successors.push(next);
                    }
                    successors
                }
                _ => vec![next],
            };
            self.code.blocks[index].successors = successors;
        }
        Ok(self.code)
    }

    fn targets(&self, step: &Step<'m>, exit: u32) -> Result<Vec<u32>, Finding> {
        let missing = || Finding::at(RefusalKind::NotUnderstood, step.instruction, step.instruction.span.start);
        let found = |name: &'m str| self.find(&self.labels, step.scope, name).copied().ok_or_else(missing);
        let instruction: &'m Instruction = step.instruction;
        match (instruction.opcode.as_str(), instruction.operands.as_slice()) {
            ("ret" | "exit", _) => Ok(vec![exit]),
            ("bra", [Operand::Name(label)]) => Ok(vec![found(label)?]),
            ("brx", [_, Operand::Name(table)]) => {
                let targets = self.find(&self.tables, step.scope, table).ok_or_else(missing)?;
                targets.iter().map(|label| found(label)).collect()
            }
            _ => Err(missing()),
        }
    }

    /// What a name means in a scope: there, or in the nearest one around it.
    fn find<'a, T>(&self, all: &'a HashMap<(u32, &'m str), T>, scope: u32, name: &'m str) -> Option<&'a T> {
        let mut scope = scope;
        loop {
            let found = all.get(&(scope, name));
            if found.is_some() || scope == 0 {
                return found;
            }
            scope = self.parents[scope as usize];
        }
    }
}
