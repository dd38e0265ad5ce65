//! Names of modules.

use super::error::DecodeError;
use crate::exec::interface::Placement;
use detshare_ptx::ast::{
    Declarator, Function, FunctionKind, Initializer, Item, Linkage, Module, Space, Statement, Variable,
};
use std::collections::HashMap;

/// What a name of a module stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Symbol {
    /// A variable in device memory, by its number.
    Data(usize),
    /// A shared variable, by its number.
    Shared(u32),
    /// A function or kernel, by its number.
    Function(u32),
}

/// A variable in device memory.
#[derive(Debug)]
pub(super) struct Datum<'a> {
    pub(super) module: usize,
    pub(super) variable: &'a Variable,
    pub(super) declarator: &'a Declarator,
    pub(super) size: u64,
    /// Declared within a function.
    pub(super) inner: bool,
    pub(super) address: u64,
}

impl Datum<'_> {
    pub(super) fn is_managed(&self) -> bool {
        self.variable.attributes.iter().any(|attribute| attribute.trim_start_matches('.') == "managed")
    }

    pub(super) fn is_constant(&self) -> bool {
        self.variable.space == Space::Const
    }
}

/// A shared variable.
#[derive(Debug)]
pub(super) struct SharedVariable {
    pub(super) size: u64,
    pub(super) align: u64,
    /// `extern .shared x[]`: as large as the launch says.
    pub(super) dynamic: bool,
}

/// All modules of an image.
#[derive(Debug, Default)]
pub(super) struct Linked<'a> {
    pub(super) data: Vec<Datum<'a>>,
    pub(super) shared: Vec<SharedVariable>,
    /// Those with a body, and the module that each is of.
    pub(super) functions: Vec<(usize, &'a Function)>,
    /// What only its own module sees.
    internal: Vec<HashMap<&'a str, Symbol>>,
    /// What all see, and whether another definition may take its place.
    common: HashMap<&'a str, (Symbol, bool)>,
    /// Variables within functions, by module, place and name.
    inner: HashMap<(usize, u32, &'a str), Symbol>,
    /// `.alias a, b`: `a` is `b`.
    aliases: HashMap<String, String>,
}

/// The size of a variable in bytes.
pub(super) fn size_of(variable: &Variable, declarator: &Declarator) -> Result<u64, DecodeError> {
    let too_large = || DecodeError::BadVariable { name: declarator.name.clone(), reason: "it is too large" };
    let mut size = element_size(variable);
    for (depth, dimension) in declarator.dimensions.iter().enumerate() {
        // As many as there are values, where the source does not say.
        let count = dimension.unwrap_or_else(|| match (&declarator.initializer, depth) {
            (Some(Initializer::List(values)), 0) => values.len() as u64,
            _ => 0,
        });
        size = size.checked_mul(count).ok_or_else(too_large)?;
    }
    // More than any device has.
    if size > 1 << 47 { Err(too_large()) } else { Ok(size) }
}

/// The size of one element in bytes, a vector being one.
pub(super) fn element_size(variable: &Variable) -> u64 {
    variable.ty.size() as u64 * u64::from(variable.vector.unwrap_or(1).max(1))
}

/// The alignment of a variable in bytes.
pub(super) fn align_of(variable: &Variable) -> u64 {
    let natural = element_size(variable).next_power_of_two();
    variable.align.map_or(natural, |align| u64::from(align).max(1).next_power_of_two())
}

impl<'a> Linked<'a> {
    /// Finds out what all names stand for.
    pub(super) fn collect(modules: &'a [(Module, &str)]) -> Result<Self, DecodeError> {
        let mut linked = Self { internal: vec![HashMap::new(); modules.len()], ..Self::default() };
        for (number, (module, _)) in modules.iter().enumerate() {
            for item in &module.items {
                match item {
                    Item::Variable(variable) => linked.add_variable(number, variable, false)?,
                    Item::Function(function) => linked.add_function(number, function)?,
                    Item::Directive(directive) => linked.add_alias(&directive.text),
                }
            }
        }
        // Dynamic shared memory has a declaration in every module that uses it.
        for (number, (module, _)) in modules.iter().enumerate() {
            for item in &module.items {
                if let Item::Variable(variable) = item
                    && variable.linkage == Linkage::Extern
                    && variable.space == Space::Shared
                {
                    linked.add_dynamic(number, variable);
                }
            }
        }
        Ok(linked)
    }

    fn define(&mut self, module: usize, name: &'a str, linkage: Linkage, symbol: Symbol) -> Result<bool, DecodeError> {
        let duplicate = || DecodeError::Duplicate { name: name.to_string() };
        let weak = matches!(linkage, Linkage::Weak | Linkage::Common);
        if linkage == Linkage::Internal {
            return match self.internal[module].insert(name, symbol) {
                Some(_) => Err(duplicate()),
                None => Ok(true),
            };
        }
        match self.common.get(name) {
            Some((_, false)) if !weak => Err(duplicate()),
            Some((_, _)) if weak => Ok(false),
            _ => {
                self.common.insert(name, (symbol, weak));
                Ok(true)
            }
        }
    }

    fn add_variable(&mut self, module: usize, variable: &'a Variable, inner: bool) -> Result<(), DecodeError> {
        if variable.linkage == Linkage::Extern {
            return Ok(());
        }
        for declarator in &variable.declarators {
            let symbol = match variable.space {
                Space::Global | Space::Const => Symbol::Data(self.data.len()),
                Space::Shared => Symbol::Shared(u32::try_from(self.shared.len()).unwrap_or(u32::MAX)),
                _ => continue,
            };
            let is_new = if inner {
                self.inner.insert((module, variable.span.start, &declarator.name), symbol);
                true
            } else {
                self.define(module, &declarator.name, variable.linkage, symbol)?
            };
            if !is_new {
                continue;
            }
            let size = size_of(variable, declarator)?;
            match symbol {
                Symbol::Shared(_) => {
                    self.shared.push(SharedVariable { size, align: align_of(variable), dynamic: false });
                }
                _ => self.data.push(Datum { module, variable, declarator, size, inner, address: 0 }),
            }
        }
        Ok(())
    }

    fn add_dynamic(&mut self, module: usize, variable: &'a Variable) {
        for declarator in &variable.declarators {
            if self.common.contains_key(declarator.name.as_str()) {
                continue;
            }
            let symbol = Symbol::Shared(u32::try_from(self.shared.len()).unwrap_or(u32::MAX));
            self.shared.push(SharedVariable { size: 0, align: align_of(variable), dynamic: true });
            self.internal[module].insert(&declarator.name, symbol);
        }
    }

    fn add_function(&mut self, module: usize, function: &'a Function) -> Result<(), DecodeError> {
        let Some(body) = &function.body else { return Ok(()) };
        let symbol = Symbol::Function(u32::try_from(self.functions.len()).unwrap_or(u32::MAX));
        // A kernel is seen by the host even where no directive says so.
        let linkage = match (function.kind, function.linkage) {
            (FunctionKind::Kernel, Linkage::Internal) => Linkage::Visible,
            (_, linkage) => linkage,
        };
        if self.define(module, &function.name, linkage, symbol)? {
            self.functions.push((module, function));
            self.add_inner(module, body)?;
        }
        Ok(())
    }

    fn add_inner(&mut self, module: usize, statements: &'a [Statement]) -> Result<(), DecodeError> {
        for statement in statements {
            match statement {
                Statement::Variable(variable) => self.add_variable(module, variable, true)?,
                Statement::Block(statements) => self.add_inner(module, statements)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn add_alias(&mut self, text: &str) {
        let names = text.strip_prefix(".alias").and_then(|names| names.trim().trim_end_matches(';').split_once(','));
        if let Some((alias, name)) = names {
            self.aliases.insert(alias.trim().to_string(), name.trim().to_string());
        }
    }

    /// Gives every variable in device memory its address.
    pub(super) fn place(&mut self, place: &mut dyn FnMut(&Placement<'_>) -> Option<u64>) -> Result<(), DecodeError> {
        for datum in &mut self.data {
            let name = datum.declarator.name.as_str();
            let placement = Placement {
                name,
                size: datum.size,
                align: align_of(datum.variable),
                constant: datum.variable.space == Space::Const,
                managed: datum.is_managed(),
            };
            let address = place(&placement);
            datum.address =
                address.ok_or_else(|| DecodeError::NoMemory { name: name.to_string(), size: datum.size })?;
        }
        Ok(())
    }

    /// What a name stands for in a module.
    pub(super) fn find(&self, module: usize, name: &str) -> Option<Symbol> {
        let found = |name: &str| {
            let common = || self.common.get(name).map(|(symbol, _)| *symbol);
            self.internal[module].get(name).copied().or_else(common)
        };
        found(name).or_else(|| found(self.aliases.get(name)?))
    }

    /// What a name stands for that is declared within a function.
    pub(super) fn find_inner(&self, module: usize, variable: &Variable, name: &str) -> Option<Symbol> {
        self.inner.get(&(module, variable.span.start, name)).copied()
    }
}
