//! Functions and kernels of the versions' module, put together from those of the original.

use super::borrow::Slots;
use super::names::Names;
use super::position::{Needs, Origin, Position};
use crate::ScalarType;
use crate::ast::{Declarator, Function, FunctionKind, Instruction, Linkage, Operand, Space, Span, Statement, Variable};
use std::collections::HashMap;

/// What all bodies of the module share.
pub(super) struct Assembler<'m, 'p> {
    pub(super) names: &'m Names<'m>,
    pub(super) prefix: &'p str,
    /// What each function needs of its block's position.
    pub(super) needs: &'m HashMap<&'m str, Needs>,
    pub(super) slots: Slots<'p>,
}

/// A body's own way with an instruction: true if it has put something else in its place.
pub(super) type Edit<'e> = &'e dyn Fn(&Instruction, &mut Vec<Statement>) -> bool;

/// No way of its own.
pub(super) fn keep(_: &Instruction, _: &mut Vec<Statement>) -> bool {
    false
}

impl<'m, 'p> Assembler<'m, 'p> {
    /// A function's; a kernel's has another origin.
    pub(super) fn position(&self, needs: Needs) -> Position<'p> {
        Position { prefix: self.prefix, needs, origin: Origin::Parameters }
    }

    /// What a function or kernel needs.
    pub(super) fn needs_of(&self, name: &str) -> Needs {
        self.needs.get(name).copied().unwrap_or_default()
    }

    /// A called function or its declaration, with the parameters that hold the block's position.
    pub(super) fn function(&mut self, original: &Function) -> Function {
        let position = self.position(self.needs_of(&original.name));
        let mut function = original.clone();
        function.parameters.extend(position.parameters().map(|name| parameter(name, None, ScalarType::B32, None)));
        if let Some(body) = &original.body {
            let mut code = Vec::new();
            position.load_parameters(&mut code);
            code.extend(self.body(body, position, &keep));
            function.body = Some(code);
        }
        function
    }

    /// A kernel's version: its name, parameters and properties, with the extra parameter last.
    pub(super) fn kernel(&self, original: &Function, kind: &str, work_size: u32) -> Function {
        let mut kernel = original.clone();
        kernel.linkage = Linkage::Visible;
        kernel.kind = FunctionKind::Kernel;
        kernel.name = format!("{}_{kind}_{}", self.prefix, original.name);
        kernel.parameters.push(parameter(self.work(), Some(8), ScalarType::B8, Some(work_size.into())));
        kernel
    }

    /// The extra parameter's name.
    pub(super) fn work(&self) -> String {
        format!("{}_work", self.prefix)
    }

    /// The statements with positions, borrowed variables and calls replaced.
    pub(super) fn body(&mut self, statements: &[Statement], position: Position<'_>, edit: Edit<'_>) -> Vec<Statement> {
        let mut addresses = 0;
        let replaced = self.statements(statements, position, edit, &mut addresses);
        self.slots.declare(addresses).chain(replaced).collect()
    }

    fn statements(
        &mut self,
        statements: &[Statement],
        position: Position<'_>,
        edit: Edit<'_>,
        addresses: &mut usize,
    ) -> Vec<Statement> {
        let mut code = Vec::with_capacity(statements.len());
        for statement in statements {
            match statement {
                Statement::Instruction(instruction) => {
                    if edit(instruction, &mut code) {
                        continue;
                    }
                    let mut instruction = instruction.clone();
                    let needs = self.reads(&instruction);
                    self.pass_position(&mut instruction);
                    self.slots.replace(&mut instruction, self.names, addresses, &mut code);
                    position.replace(instruction, needs, &mut code);
                }
                Statement::Block(inner) => {
                    code.push(Statement::Block(self.statements(inner, position, edit, addresses)));
                }
                // Lines of the source, for debuggers; the files that they count are not in this module.
                Statement::Directive(text) if !is_pragma(&text.text) => {}
                _ => code.push(statement.clone()),
            }
        }
        code
    }

    /// What of the position an instruction reads, for itself or for a function that it calls.
    pub(super) fn reads(&self, instruction: &Instruction) -> Needs {
        let passed = instruction.callee().map_or(Needs::default(), |(_, name)| self.needs_of(name));
        Needs::of(instruction).and(passed)
    }

    /// Adds the position to a call's arguments.
    fn pass_position(&self, call: &mut Instruction) {
        let Some((callee, name)) = call.callee() else { return };
        let arguments: Vec<_> = self.position(self.needs_of(name)).registers().map(Operand::Name).collect();
        if arguments.is_empty() {
            return;
        }
        match call.operands.get_mut(callee + 1) {
            Some(Operand::List(list)) => list.extend(arguments),
            _ => call.operands.insert(callee + 1, Operand::List(arguments)),
        }
    }
}

/// Whether a directive among statements means something to the compiler.
pub(super) fn is_pragma(text: &str) -> bool {
    text.starts_with(".pragma")
}

fn parameter(name: String, align: Option<u32>, ty: ScalarType, length: Option<u64>) -> Variable {
    let dimensions = length.into_iter().map(Some).collect();
    Variable {
        linkage: Linkage::Internal,
        space: Space::Param,
        align,
        vector: None,
        ty,
        attributes: Vec::new(),
        pointer: None,
        declarators: vec![Declarator { name, count: None, dimensions, initializer: None }],
        span: Span::default(),
    }
}
