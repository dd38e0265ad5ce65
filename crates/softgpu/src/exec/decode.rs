//! From PTX to code that can be run.
//!
//! All modules of an image are linked first, so that every name is a place before the first body is read. An
//! instruction that cannot be run does not make its module useless: its kernel says so and the others run.

mod arithmetic;
mod asynchronous;
mod atomics;
mod body;
mod checked;
mod cluster;
mod comparison;
mod control;
mod data;
mod directives;
mod error;
mod float;
#[cfg(test)]
mod forms;
mod hints;
mod joined;
mod link;
mod memory;
mod modifiers;
mod moves;
mod opcodes;
mod operands;
mod registers;
mod source;
mod system;
mod tensor;
mod tensor_memory;
mod uncommon;
mod video;
mod warp_group;
mod warp_wide;

pub(crate) use error::DecodeError;
pub(crate) use registers::with_register_limit;

use super::interface::{Global, KernelProperties, Parameter, Placement};
use super::program::{Image, Kernel, Program, RESERVED_SHARED};
use crate::system::SystemUse;
use body::Body;
use detshare_ptx::ast::{Function, FunctionKind, Linkage, Module};
use link::Linked;
use source::SourceText;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};

/// Decodes modules that were linked together, each with its source.
///
/// `place` gives memory for each variable. The variables hold their initial values afterwards: the returned
/// addresses are written to.
pub(crate) fn decode(
    modules: &[(Module, &str)],
    place: &mut dyn FnMut(&Placement<'_>) -> Option<u64>,
) -> Result<Image, DecodeError> {
    decode_as_asked(modules, place, false)
}

/// As [`decode`], with every instruction that touches memory seen by the checker.
pub(crate) fn decode_checked(
    modules: &[(Module, &str)],
    place: &mut dyn FnMut(&Placement<'_>) -> Option<u64>,
) -> Result<Image, DecodeError> {
    decode_as_asked(modules, place, true)
}

fn decode_as_asked(
    modules: &[(Module, &str)],
    place: &mut dyn FnMut(&Placement<'_>) -> Option<u64>,
    check: bool,
) -> Result<Image, DecodeError> {
    let mut linked = Linked::collect(modules)?;
    linked.place(place)?;
    data::initialise(&linked)?;
    let sources: Vec<SourceText> = modules.iter().map(|(module, source)| SourceText::new(module, source)).collect();
    let mut bodies = Vec::with_capacity(linked.functions.len());
    for (module, function) in &linked.functions {
        bodies.push(body::decode(&linked, *module, function, &sources[*module])?);
    }
    // Addresses go from kernel to kernel through memory, so a call of one may lead to any function that has one.
    let mut addressed = data::functions_in_variables(&linked);
    // Kernels are launched by their addresses and not called: what they come to is their own.
    let is_called = |number: &u32| linked.functions[*number as usize].1.kind != FunctionKind::Kernel;
    bodies.iter_mut().for_each(|body| body.taken.retain(is_called));
    addressed.extend(bodies.iter().flat_map(|body| &body.taken));
    addressed.retain(is_called);
    let reach: Vec<Reach> = (0..bodies.len()).map(|start| Reach::of(&bodies, start, &addressed)).collect();
    let mut kernels = HashMap::new();
    let mut described = Vec::new();
    for (number, (module, function)) in linked.functions.iter().enumerate() {
        if function.kind == FunctionKind::Kernel {
            let shared = shared_layout(&linked, &reach[number]);
            let properties =
                properties(&linked, &modules[*module].0, function, &bodies, number, &reach[number], &shared);
            described.push((number, properties, shared.offsets));
        }
    }
    let mut functions: Vec<_> = bodies.into_iter().map(|body| body.function).collect();
    let checks = check.then(|| checked::wrap(&mut functions));
    let program = Arc::new(Program { functions, checks, kernels: OnceLock::new() });
    let mut by_number = HashMap::new();
    for (number, properties, shared) in described {
        let name = properties.name.clone();
        let function = u32::try_from(number).unwrap_or(u32::MAX);
        let kernel = Arc::new(Kernel { properties, program: Arc::clone(&program), function, shared });
        by_number.insert(function, Arc::downgrade(&kernel));
        kernels.insert(name, kernel);
    }
    // Nobody else has the program yet.
    let _ = program.kernels.set(by_number);
    let mut globals = HashMap::new();
    // The host finds a module's internal variables too, as with a GPU's driver; a function's own it does not.
    for datum in linked.data.iter().filter(|datum| !datum.inner) {
        let visible = datum.variable.linkage != Linkage::Internal;
        let global = Global { address: datum.address, size: datum.size };
        // The visible one of two with the same name.
        match globals.entry(datum.declarator.name.clone()) {
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(global);
            }
            std::collections::hash_map::Entry::Occupied(mut entry) if visible => {
                entry.insert(global);
            }
            std::collections::hash_map::Entry::Occupied(_) => {}
        }
    }
    Ok(Image { kernels, globals })
}

/// What a kernel comes to, through all the calls that it can make.
struct Reach {
    functions: BTreeSet<u32>,
    shared: BTreeSet<u32>,
    unsupported: Option<(String, u32)>,
    system: SystemUse,
}

impl Reach {
    fn of(bodies: &[Body], start: usize, addressed: &BTreeSet<u32>) -> Self {
        let start = u32::try_from(start).unwrap_or(u32::MAX);
        let mut reach = Self {
            functions: BTreeSet::from([start]),
            shared: BTreeSet::new(),
            unsupported: None,
            system: SystemUse::default(),
        };
        // Functions whose address is taken may be called, but then the call itself says what is missing.
        let mut called = vec![(start, true)];
        let mut calls = BTreeSet::from([start]);
        while let Some((number, is_called)) = called.pop() {
            let Some(body) = bodies.get(number as usize) else { continue };
            reach.shared.extend(&body.shared);
            reach.system = reach.system.and(body.system);
            if is_called && reach.unsupported.is_none() {
                reach.unsupported.clone_from(&body.unsupported);
            }
            for callee in &body.calls {
                if is_called && calls.insert(*callee) || reach.functions.insert(*callee) {
                    reach.functions.insert(*callee);
                    called.push((*callee, is_called));
                }
            }
            let maybe_called = if body.calls_addresses { addressed } else { &body.taken };
            for taken in maybe_called {
                if reach.functions.insert(*taken) {
                    called.push((*taken, false));
                }
            }
        }
        reach
    }
}

/// Where a kernel has its shared variables.
struct SharedLayout {
    offsets: HashMap<u32, u32>,
    size: u32,
}

/// Dynamic memory starts behind all variables.
fn shared_layout(linked: &Linked<'_>, reach: &Reach) -> SharedLayout {
    /// The alignment of dynamic memory, whatever its declaration asks for.
    const DYNAMIC_ALIGN: u64 = 16;
    let mut offsets = HashMap::new();
    let reserved = u64::from(RESERVED_SHARED);
    let mut end = reserved;
    let mut dynamic_align = 1;
    let variables = reach.shared.iter().map(|number| (*number, &linked.shared[*number as usize]));
    for (number, variable) in variables.clone() {
        if variable.dynamic {
            dynamic_align = variable.align.max(DYNAMIC_ALIGN).max(dynamic_align);
            continue;
        }
        end = end.next_multiple_of(variable.align);
        offsets.insert(number, u32::try_from(end).unwrap_or(u32::MAX));
        end = end.saturating_add(variable.size).min(u32::MAX.into());
    }
    let start = end.next_multiple_of(dynamic_align).min(u32::MAX.into());
    for (number, variable) in variables {
        if variable.dynamic {
            end = start;
            offsets.insert(number, u32::try_from(start).unwrap_or(u32::MAX));
        }
    }
    SharedLayout { offsets, size: u32::try_from(end - reserved).unwrap_or(u32::MAX) }
}

fn properties(
    linked: &Linked<'_>,
    module: &Module,
    function: &Function,
    bodies: &[Body],
    number: usize,
    reach: &Reach,
    shared: &SharedLayout,
) -> KernelProperties {
    let parameters: Vec<Parameter> = bodies[number].parameters.clone();
    let parameter_bytes = parameters.iter().map(|parameter| parameter.offset + parameter.size).max().unwrap_or(0);
    let directive = |name: &str| function.directives.iter().find(|directive| directive.name == name);
    let product = |arguments: &[u32]| arguments.iter().fold(1u32, |product, size| product.saturating_mul(*size));
    let sizes = |name: &str| {
        directive(name).map(|directive| {
            let mut sizes = [1; 3];
            sizes.iter_mut().zip(&directive.arguments).for_each(|(size, argument)| *size = *argument);
            sizes
        })
    };
    let required_block = sizes("reqntid");
    let reached = reach.functions.iter().filter_map(|number| bodies.get(*number as usize));
    let wanted_registers = reached.map(|body| body.registers);
    let target = module.targets.iter().find_map(|target| {
        let digits: String = target.strip_prefix("sm_")?.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    });
    let constant_bytes: u64 = linked.data.iter().filter(|datum| datum.is_constant()).map(|datum| datum.size).sum();
    KernelProperties {
        name: function.name.clone(),
        parameters,
        parameter_bytes,
        shared_bytes: shared.size,
        local_bytes: bodies[number].declared_local,
        constant_bytes: u32::try_from(constant_bytes).unwrap_or(u32::MAX),
        registers: registers::limited(module, function, wanted_registers.max().unwrap_or(1)),
        most_threads: directive("reqntid").or_else(|| directive("maxntid")).map(|found| product(&found.arguments)),
        required_block,
        unsupported: reach.unsupported.clone(),
        system: reach.system,
        target: target.unwrap_or_default(),
        required_cluster: sizes("reqnctapercluster").filter(|sizes| sizes.iter().all(|size| *size > 0)),
        needs_cluster: directive("explicitcluster").is_some(),
        most_blocks_in_cluster: directive("maxclusterrank").and_then(|found| found.arguments.first().copied()),
        blocks_are_clusters: directive("blocksareclusters").is_some(),
    }
}
