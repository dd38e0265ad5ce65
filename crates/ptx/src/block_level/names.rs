//! What a name in an instruction stands for.

use super::operands::register_of;
use super::refusal::{Finding, RefusalKind};
use crate::ast::{Declarator, Function, Item, Module, Space, Statement, Variable};
use std::collections::HashMap;

/// A special register, by what reading it means for a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Special {
    /// The block's position or the grid: the version has its own.
    Position,
    /// The same in a version.
    Kept,
    /// Where the block runs, or beside what.
    Placement,
    /// Clusters.
    Cluster,
    /// The size or layout of shared memory: a preemptible version has a little more of it.
    SharedMemory,
}

/// The special register of that name, component or not.
pub(super) fn special(name: &str) -> Option<Special> {
    let register = register_of(name).strip_prefix('%')?;
    Some(match register {
        "ctaid" | "nctaid" => Special::Position,
        "tid" | "ntid" | "laneid" | "nwarpid" | "dynamic_smem_size" => Special::Kept,
        // Whoever reads a clock gets another answer each time.
        "clock" | "clock_hi" | "clock64" | "globaltimer" | "globaltimer_lo" | "globaltimer_hi" => Special::Kept,
        "lanemask_eq" | "lanemask_le" | "lanemask_lt" | "lanemask_ge" | "lanemask_gt" => Special::Kept,
        "warpid" | "smid" | "nsmid" | "gridid" | "current_graph_exec" => Special::Placement,
        "total_smem_size" | "aggr_smem_size" => Special::SharedMemory,
        "is_explicit_cluster" => Special::Cluster,
        _ if register.starts_with("cluster") || register.starts_with("ncluster") => Special::Cluster,
        _ if register.starts_with("reserved_smem") => Special::SharedMemory,
        _ if numbered(register, "envreg") || numbered(register, "pm") => Special::Placement,
        _ => return None,
    })
}

fn numbered(register: &str, stem: &str) -> bool {
    register.strip_prefix(stem).is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}

/// What a module declares.
pub(super) struct Names<'m> {
    variables: HashMap<&'m str, &'m Variable>,
    functions: HashMap<&'m str, &'m Function>,
}

impl<'m> Names<'m> {
    pub(super) fn of(module: &'m Module) -> Self {
        let mut names = Self { variables: HashMap::new(), functions: HashMap::new() };
        for item in &module.items {
            match item {
                Item::Variable(variable) => {
                    let declared = variable.declarators.iter().map(|it| (it.name.as_str(), variable));
                    names.variables.extend(declared);
                }
                Item::Function(function) => {
                    // The definition counts, wherever its declarations stand.
                    let known = names.functions.entry(&function.name).or_insert(function);
                    if known.body.is_none() {
                        *known = function;
                    }
                }
                Item::Directive(_) => {}
            }
        }
        names
    }

    pub(super) fn variable(&self, name: &str) -> Option<&'m Variable> {
        self.variables.get(name).copied()
    }

    pub(super) fn function(&self, name: &str) -> Option<&'m Function> {
        self.functions.get(name).copied()
    }

    /// A beginning that no name of the module has.
    pub(super) fn unused_prefix(&self, module: &Module) -> String {
        let mut used = Vec::new();
        for item in &module.items {
            if let Item::Function(function) = item {
                for_each_local(function, &mut |declarator, _, _| used.push(declarator.name.as_str()));
                for_each_label(function.body.as_deref().unwrap_or_default(), &mut |label| used.push(label));
            }
        }
        used.extend(self.variables.keys().chain(self.functions.keys()));
        let longest = used.iter().map(|name| name.len()).max().unwrap_or_default();
        let mut prefix = "detshare".to_string();
        while prefix.len() <= longest && used.iter().any(|name| name.starts_with(&prefix)) {
            prefix.push('_');
        }
        prefix
    }
}

/// What a function declares, its parameters included.
pub(super) struct Locals<'m> {
    names: HashMap<&'m str, Space>,
    /// `%r<10>`
    ranges: HashMap<&'m str, u32>,
}

impl<'m> Locals<'m> {
    /// # Errors
    ///
    /// Where a name stands for something of the module, too: such sources are not written by compilers, and the
    /// rewrites go by names.
    pub(super) fn of(function: &'m Function, names: &Names<'m>) -> Result<Self, Finding> {
        let mut locals = Self { names: HashMap::new(), ranges: HashMap::new() };
        let mut twice = None;
        for_each_local(function, &mut |declarator, space, at| {
            let name = declarator.name.as_str();
            if names.variable(name).is_some() || names.function(name).is_some() || special(name).is_some() {
                twice.get_or_insert_with(|| Finding::at(RefusalKind::NotUnderstood, &name, at));
            }
            match declarator.count {
                Some(count) => locals.ranges.insert(name, count),
                None => locals.names.insert(name, space).map(|_| 0),
            };
        });
        twice.map_or(Ok(locals), Err)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.space(name).is_some()
    }

    pub(super) fn space(&self, name: &str) -> Option<Space> {
        let register = register_of(name);
        if let Some(space) = self.names.get(register) {
            return Some(*space);
        }
        let stem = register.trim_end_matches(|last: char| last.is_ascii_digit());
        // A range's own name may end in digits, so that each split of them is tried; there are ten at most.
        const DIGITS_OF_A_COUNT: usize = 10;
        let splits = stem.len().max(register.len().saturating_sub(DIGITS_OF_A_COUNT))..register.len();
        splits
            .filter_map(|at| Some((self.ranges.get(&register[..at])?, register[at..].parse::<u32>().ok()?)))
            .any(|(count, number)| number < *count)
            .then_some(Space::Reg)
    }
}

/// Every variable that a function declares, with its space and place.
fn for_each_local<'m>(function: &'m Function, visit: &mut impl FnMut(&'m Declarator, Space, u32)) {
    for variable in function.returns.iter().chain(&function.parameters) {
        for_each_declarator(variable, visit);
    }
    for_each_declared(function.body.as_deref().unwrap_or_default(), visit);
}

fn for_each_declared<'m>(statements: &'m [Statement], visit: &mut impl FnMut(&'m Declarator, Space, u32)) {
    for statement in statements {
        match statement {
            Statement::Variable(variable) => for_each_declarator(variable, visit),
            Statement::Block(statements) => for_each_declared(statements, visit),
            _ => {}
        }
    }
}

fn for_each_label<'m>(statements: &'m [Statement], visit: &mut impl FnMut(&'m str)) {
    for statement in statements {
        match statement {
            Statement::Label(label) => visit(&label.name),
            Statement::Table(table) => visit(&table.label),
            Statement::Block(statements) => for_each_label(statements, visit),
            _ => {}
        }
    }
}

fn for_each_declarator<'m>(variable: &'m Variable, visit: &mut impl FnMut(&'m Declarator, Space, u32)) {
    variable.declarators.iter().for_each(|declarator| visit(declarator, variable.space, variable.span.start));
}
