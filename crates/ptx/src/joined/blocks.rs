//! A function's instructions in blocks, with names that mean one register each.

use super::kinds::{self, Role};
use crate::ast::{AddressBase, Function, FunctionKind, Instruction, Operand, Space, Statement, TableKind, Variable};
use core::ops::Range;
use std::collections::{HashMap, HashSet};

/// A number for a register of the function.
pub(super) type Register = u32;

/// One instruction.
pub(super) struct Step<'m> {
    pub(super) instruction: &'m Instruction,
    pub(super) role: Role,
    pub(super) results: Vec<Register>,
    pub(super) sources: Vec<Register>,
    predicate: Option<Register>,
    scope: usize,
}

impl Step<'_> {
    /// A sum's operands, where they are registers.
    pub(super) fn operands(&self) -> [Option<Register>; 2] {
        let mut sources = self.sources.iter().copied();
        [1, 2].map(|index| match self.instruction.operands.get(index) {
            Some(Operand::Name(_)) => sources.next(),
            _ => None,
        })
    }
}

/// Instructions that are run one after the other.
struct Block {
    steps: Range<usize>,
    successors: Vec<usize>,
    /// Whether the compiler makes an end of it, so that it is none with the block that follows.
    ends_hard: bool,
}

/// A function with a body.
pub(super) struct Code<'m> {
    steps: Vec<Step<'m>>,
    blocks: Vec<Block>,
    /// What whoever calls it reads.
    pub(super) returned: HashSet<Register>,
    /// How often each register is written to in the source.
    writes: HashMap<Register, u32>,
    /// Registers that hold a number, a kernel's parameter or what is in constant memory.
    constants: HashSet<Register>,
    /// Registers that are written to before anything can be run twice, and once.
    at_start: HashSet<Register>,
}

/// The names of a scope.
#[derive(Default)]
struct Scope<'m> {
    parent: Option<usize>,
    names: HashMap<&'m str, Register>,
    /// `%r<10>`
    ranges: HashMap<&'m str, u32>,
    labels: HashMap<&'m str, usize>,
    tables: HashMap<&'m str, &'m [String]>,
}

struct Builder<'m> {
    code: Code<'m>,
    scopes: Vec<Scope<'m>>,
    registers: Register,
}

/// Whether a function has a sum and a product at all.
fn has_both(statements: &[Statement]) -> bool {
    fn look(statements: &[Statement], found: &mut [bool; 2]) {
        for statement in statements {
            match statement {
                Statement::Instruction(instruction) => match kinds::role(instruction) {
                    Role::Product(_) => found[0] = true,
                    Role::Sum(_) => found[1] = true,
                    Role::Copy { .. } | Role::Other => {}
                },
                Statement::Block(statements) => look(statements, found),
                _ => {}
            }
        }
    }
    let mut found = [false; 2];
    look(statements, &mut found);
    found == [true; 2]
}

impl<'m> Code<'m> {
    /// None where nothing can be joined.
    pub(super) fn of(function: &'m Function) -> Option<Self> {
        let body = function.body.as_deref().filter(|body| has_both(body))?;
        let code = Self {
            steps: Vec::new(),
            blocks: Vec::new(),
            returned: HashSet::new(),
            writes: HashMap::new(),
            constants: HashSet::new(),
            at_start: HashSet::new(),
        };
        let mut builder = Builder { code, scopes: vec![Scope::default()], registers: 0 };
        builder.new_block();
        for variable in function.returns.iter().chain(&function.parameters) {
            builder.declare(variable, 0);
        }
        for declarator in function.returns.iter().flat_map(|variable| &variable.declarators) {
            let register = builder.register(&declarator.name, 0);
            builder.code.returned.insert(register);
        }
        builder.statements(body, 0)?;
        let mut code = builder.finish()?;
        code.find_constants(function);
        Some(code)
    }

    pub(super) fn steps(&self) -> &[Step<'m>] {
        &self.steps
    }

    pub(super) fn is_written_once(&self, register: Register) -> bool {
        self.writes.get(&register) == Some(&1)
    }

    pub(super) fn is_set_at_start(&self, register: Register) -> bool {
        self.at_start.contains(&register)
    }

    /// Whether a product is one with a constant; a quotient, whether it is one by a number.
    pub(super) fn has_constant_factor(&self, step: &Step<'_>) -> bool {
        match step.instruction.opcode.as_str() {
            "mul" => {
                let is_number = step.instruction.operands.iter().skip(1).any(kinds::is_constant);
                is_number || step.sources.iter().any(|register| self.constants.contains(register))
            }
            _ => step.instruction.operands.last().is_some_and(kinds::is_constant),
        }
    }

    fn find_constants(&mut self, function: &Function) {
        for register in self.steps.iter().flat_map(|step| &step.results) {
            *self.writes.entry(*register).or_insert(0) += 1;
        }
        let parameters = function.parameters.iter().flat_map(|it| &it.declarators).map(|it| it.name.as_str());
        let parameters: HashSet<&str> = parameters.filter(|_| function.kind == FunctionKind::Kernel).collect();
        for step in self.steps.iter().filter(|step| step.instruction.predicate.is_none()) {
            let is_constant = match step.instruction.opcode.as_str() {
                "mov" => step.instruction.operands.get(1).is_some_and(kinds::is_constant) || self.copies_constant(step),
                "neg" | "abs" => self.copies_constant(step),
                "ld" => reads_constant(step.instruction, &parameters),
                _ => false,
            };
            let once = step.results.iter().filter(|register| self.writes.get(register) == Some(&1));
            if is_constant {
                self.constants.extend(once);
            }
        }
        // Nothing leads back to the first block where no label stands before it.
        let first = self.blocks.first().filter(|_| self.blocks.iter().all(|block| !block.successors.contains(&0)));
        let steps = first.map_or(0..0, |block| block.steps.clone());
        let registers = self.steps[steps].iter().flat_map(|step| &step.results);
        let once = registers.filter(|register| self.writes.get(register) == Some(&1));
        self.at_start.extend(once.chain(&self.constants));
    }

    fn copies_constant(&self, step: &Step<'_>) -> bool {
        matches!(step.sources.as_slice(), [source] if self.constants.contains(source))
    }

    pub(super) fn steps_of(&self, block: usize) -> &[Step<'m>] {
        self.blocks.get(block).map_or(&[], |block| &self.steps[block.steps.clone()])
    }

    pub(super) fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Blocks that may follow; none where the function ends.
    pub(super) fn successors(&self, block: usize) -> &[usize] {
        &self.blocks[block].successors
    }

    /// All blocks that can be reached, those together that always follow each other.
    pub(super) fn chains(&self) -> Vec<Vec<usize>> {
        let entries = self.entries();
        let next = |block: usize| match self.blocks[block].successors.as_slice() {
            // What stands before is run before, so that products are seen before their sums.
            [only] if !self.blocks[block].ends_hard && entries[*only] == 1 && *only > block => Some(*only),
            _ => None,
        };
        let mut taken: Vec<bool> = entries.iter().map(|entries| *entries == 0).collect();
        let mut chains = Vec::new();
        for start in 0..self.blocks.len() {
            if taken[start] {
                continue;
            }
            let chain: Vec<usize> = core::iter::successors(Some(start), |block| next(*block)).collect();
            chain.iter().for_each(|block| taken[*block] = true);
            chains.push(chain);
        }
        chains
    }

    /// How many ways lead into each block, of those that can be reached.
    fn entries(&self) -> Vec<u32> {
        let mut entries = vec![0; self.blocks.len()];
        let mut waiting = vec![0];
        entries[0] = 1;
        while let Some(block) = waiting.pop() {
            for successor in &self.blocks[block].successors {
                entries[*successor] += 1;
                if entries[*successor] == 1 {
                    waiting.push(*successor);
                }
            }
        }
        entries
    }
}

impl<'m> Builder<'m> {
    fn new_block(&mut self) -> usize {
        let start = self.code.steps.len();
        self.code.blocks.push(Block { steps: start..start, successors: Vec::new(), ends_hard: false });
        self.code.blocks.len() - 1
    }

    fn declare(&mut self, variable: &'m Variable, scope: usize) {
        for declarator in &variable.declarators {
            match declarator.count {
                Some(count) if variable.space == Space::Reg => {
                    self.scopes[scope].ranges.insert(&declarator.name, count);
                }
                _ => {
                    self.scopes[scope].names.insert(&declarator.name, self.registers);
                    self.registers += 1;
                }
            }
        }
    }

    /// The register of that name; a component counts as its whole.
    fn register(&mut self, name: &'m str, scope: usize) -> Register {
        let name = name.split_once('.').map_or(name, |(register, _)| register);
        let digits = name.trim_end_matches(|digit: char| digit.is_ascii_digit()).len();
        let (prefix, number) = name.split_at(digits);
        let number = number.parse::<u32>().ok();
        let mut at = scope;
        loop {
            let scope = &self.scopes[at];
            if let Some(register) = scope.names.get(name) {
                return *register;
            }
            let in_range = scope.ranges.get(prefix).zip(number).is_some_and(|(count, number)| number < *count);
            match scope.parent {
                Some(parent) if !in_range => at = parent,
                _ => break,
            }
        }
        // What is declared nowhere, such as a special register, is the function's.
        self.scopes[at].names.insert(name, self.registers);
        self.registers += 1;
        self.registers - 1
    }

    /// None where the parser has no shape for an instruction: nobody knows what it reads.
    fn statements(&mut self, statements: &'m [Statement], scope: usize) -> Option<()> {
        for statement in statements {
            match statement {
                Statement::Label(label) => {
                    let block = self.new_block();
                    self.scopes[scope].labels.insert(&label.name, block);
                }
                Statement::Variable(variable) => self.declare(variable, scope),
                Statement::Instruction(instruction) => self.instruction(instruction, scope),
                Statement::Raw(_) => return None,
                Statement::Directive(_) => {}
                Statement::Table(table) => {
                    if let TableKind::Targets(targets) = &table.kind {
                        self.scopes[scope].tables.insert(&table.label, targets);
                    }
                }
                Statement::Block(statements) => {
                    self.scopes.push(Scope { parent: Some(scope), ..Scope::default() });
                    let inner = self.scopes.len() - 1;
                    self.statements(statements, inner)?;
                }
            }
        }
        Some(())
    }

    fn instruction(&mut self, instruction: &'m Instruction, scope: usize) {
        let (mut results, mut sources) = (Vec::new(), Vec::new());
        instruction.for_each_result(&mut |name| results.push(self.register(name, scope)));
        instruction.for_each_source(&mut |name| sources.push(self.register(name, scope)));
        let predicate = instruction.predicate.as_ref().map(|predicate| self.register(&predicate.register, scope));
        self.code.steps.push(Step { instruction, role: kinds::role(instruction), results, sources, predicate, scope });
        let end = self.code.steps.len();
        let ends_hard = kinds::splits(instruction);
        if let Some(block) = self.code.blocks.last_mut() {
            block.steps.end = end;
            block.ends_hard = ends_hard;
        }
        if ends_hard || is_jump(instruction) {
            self.new_block();
        }
    }

    fn finish(mut self) -> Option<Code<'m>> {
        self.forget_unread();
        for index in 0..self.code.blocks.len() {
            let next = Some(index + 1).filter(|next| *next < self.code.blocks.len());
            let mut successors = Vec::new();
            match self.code.steps_of(index).last() {
                Some(step) if is_jump(step.instruction) => {
                    successors = self.targets(step)?;
                    successors.extend(next.filter(|_| step.instruction.predicate.is_some()));
                }
                _ => successors.extend(next),
            }
            // A branch to what follows anyway is none.
            if successors.iter().all(|it| Some(*it) == next) {
                successors.truncate(1);
            }
            self.code.blocks[index].successors = successors;
        }
        Some(self.code)
    }

    /// Instructions that do nothing but write registers which nobody reads are none. Registers are looked at as a whole: in what
    /// compilers write each is written to in one place, or holds one thing.
    fn forget_unread(&mut self) {
        let mut writers: HashMap<Register, Vec<usize>> = HashMap::new();
        let mut is_read = vec![false; self.code.steps.len()];
        let mut waiting = Vec::new();
        for (index, step) in self.code.steps.iter().enumerate() {
            if kinds::does_more(step.instruction) {
                is_read[index] = true;
                waiting.push(index);
            } else {
                step.results.iter().for_each(|register| writers.entry(*register).or_default().push(index));
            }
        }
        let mut reached: Vec<Register> = self.code.returned.iter().copied().collect();
        loop {
            while let Some(register) = reached.pop() {
                for writer in writers.remove(&register).unwrap_or_default() {
                    if !core::mem::replace(&mut is_read[writer], true) {
                        waiting.push(writer);
                    }
                }
            }
            let Some(index) = waiting.pop() else { break };
            reached.extend(&self.code.steps[index].sources);
            reached.extend(self.code.steps[index].predicate);
        }
        for (step, _) in self.code.steps.iter_mut().zip(is_read).filter(|(_, is_read)| !is_read) {
            step.role = Role::Other;
            step.sources.clear();
        }
    }

    fn targets(&self, step: &Step<'m>) -> Option<Vec<usize>> {
        let instruction = step.instruction;
        match (instruction.opcode.as_str(), instruction.operands.as_slice()) {
            ("bra", [Operand::Name(label)]) => {
                Some(vec![self.find(step.scope, |scope| scope.labels.get(label.as_str()))?])
            }
            ("brx", [_, Operand::Name(table)]) => {
                let targets = self.find(step.scope, |scope| scope.tables.get(table.as_str()))?;
                targets.iter().map(|label| self.find(step.scope, |scope| scope.labels.get(label.as_str()))).collect()
            }
            ("ret" | "exit", _) => Some(Vec::new()),
            _ => None,
        }
    }

    /// What a name means in a scope: there, or in the nearest one around it.
    fn find<'a, T: Copy + 'a>(&'a self, scope: usize, of: impl Fn(&'a Scope<'m>) -> Option<&'a T>) -> Option<T> {
        let scopes = core::iter::successors(Some(scope), |scope| self.scopes[*scope].parent);
        scopes.into_iter().find_map(|scope| of(&self.scopes[scope]).copied())
    }
}

/// Whether it loads a kernel's parameter, or what a variable in constant memory holds.
fn reads_constant(instruction: &Instruction, parameters: &HashSet<&str>) -> bool {
    let Some(Operand::Address { base: AddressBase::Name(name), .. }) = instruction.operands.get(1) else {
        return false;
    };
    let space = |space: &str| instruction.modifiers.iter().any(|it| it.split("::").next() == Some(space));
    space("param") && parameters.contains(name.as_str()) || space("const") && !name.starts_with('%')
}

fn is_jump(instruction: &Instruction) -> bool {
    matches!(instruction.opcode.as_str(), "bra" | "brx" | "ret" | "exit")
}
