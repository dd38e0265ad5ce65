//! Trees without places, to be compared.

use crate::ast::{
    BranchTable, Directive, Function, FunctionDirective, Item, Module, Span, Statement, TableKind, Variable,
};

const NOWHERE: Span = Span { start: 0, end: 0 };

impl Module {
    /// The same module with every span set to zero: equal for two sources that differ in layout only.
    #[must_use]
    pub fn without_spans(mut self) -> Self {
        for item in &mut self.items {
            match item {
                Item::Variable(variable) => variable.span = NOWHERE,
                Item::Function(function) => clear_function(function),
                Item::Directive(Directive { span, .. }) => *span = NOWHERE,
            }
        }
        self
    }
}

fn clear_function(function: &mut Function) {
    function.span = NOWHERE;
    clear_directives(&mut function.directives);
    clear_variables(&mut function.returns);
    clear_variables(&mut function.parameters);
    clear_statements(function.body.as_deref_mut().unwrap_or_default());
}

fn clear_directives(directives: &mut [FunctionDirective]) {
    for directive in directives {
        directive.span = NOWHERE;
    }
}

fn clear_variables(variables: &mut [Variable]) {
    for variable in variables {
        variable.span = NOWHERE;
    }
}

fn clear_statements(statements: &mut [Statement]) {
    for statement in statements {
        match statement {
            Statement::Label(label) => label.span = NOWHERE,
            Statement::Variable(variable) => variable.span = NOWHERE,
            Statement::Instruction(instruction) => instruction.span = NOWHERE,
            Statement::Raw(directive) | Statement::Directive(directive) => directive.span = NOWHERE,
            Statement::Table(table) => clear_table(table),
            Statement::Block(statements) => clear_statements(statements),
        }
    }
}

fn clear_table(table: &mut BranchTable) {
    table.span = NOWHERE;
    if let TableKind::CallPrototype { returns, parameters, directives, .. } = &mut table.kind {
        clear_directives(directives);
        clear_variables(returns);
        clear_variables(parameters);
    }
}
