//! The versions' module, put together.

use super::assemble::{Assembler, is_pragma};
use super::borrow::Slots;
use super::checks::instructions::RUNTIME_FUNCTIONS;
use super::names::Names;
use super::parameters::{self, architecture};
use super::preemptible::{self, Preemption};
use super::program::Program;
use super::refusal::{Finding, Lines, RefusalKind};
use super::{Borrowed, Kernel, Rewritten, Version, sliced};
use crate::ast::{Directive, Function, Item, Module, Space, Span};
use std::collections::BTreeSet;

/// The first architecture whose threads can wait at different instructions of a warp, and the version that says so.
const INDEPENDENT: u32 = 70;
const INDEPENDENT_VERSION: (u32, u32) = (6, 0);

/// The oldest architecture that is rewritten: older ones are not compiled for any more.
const OLDEST: u32 = 50;

/// What is put together.
struct Output<'m, 'p> {
    module: &'m Module,
    program: &'m Program<'m>,
    assembler: Assembler<'m, 'p>,
    /// Whether threads of a warp can wait at different instructions.
    independent: bool,
    /// The version of PTX that all kernels need.
    version: (u32, u32),
    kernels: Vec<Function>,
    /// Numbers of the functions that they call.
    called: BTreeSet<usize>,
}

pub(super) fn rewrite(module: &Module, source: &str) -> Rewritten {
    let names = Names::of(module);
    let prefix = names.unused_prefix(module);
    let program = Program::of(module, &names);
    let lines = Lines::of(source);
    let assembler = Assembler { names: &names, prefix: &prefix, needs: &program.needs, slots: Slots::new(&prefix) };
    let target = architecture(module);
    let mut output = Output {
        module,
        program: &program,
        assembler,
        independent: target.is_some_and(|it| it >= INDEPENDENT) && module.version >= INDEPENDENT_VERSION,
        version: module.version,
        kernels: Vec::new(),
        called: BTreeSet::new(),
    };
    let is_known = module.address_size == 64 && target.is_some_and(|it| it >= OLDEST);
    let mut kernels: Vec<Kernel> = Vec::new();
    for index in program.kernels() {
        let refused = || Finding::whole(RefusalKind::Target, module.targets.join(", "));
        let (sliced, preemptible) = if is_known { output.kernel(index) } else { (Err(refused()), Err(refused())) };
        let function = program.routines[index].function;
        kernels.push(Kernel {
            name: function.name.clone(),
            parameters_size: parameters::size(function),
            sliced: sliced.map_err(|finding| lines.locate(finding)),
            preemptible: preemptible.map_err(|finding| lines.locate(finding)),
        });
    }
    if output.kernels.is_empty() {
        return Rewritten { source: None, borrowed: Vec::new(), kernels };
    }
    match output.finish() {
        Ok((source, borrowed)) => Rewritten { source: Some(source), borrowed, kernels },
        Err(finding) => {
            let refusal = lines.locate(finding);
            for version in kernels.iter_mut().flat_map(|kernel| [&mut kernel.sliced, &mut kernel.preemptible]) {
                if version.is_ok() {
                    *version = Err(refusal.clone());
                }
            }
            Rewritten { source: None, borrowed: Vec::new(), kernels }
        }
    }
}

impl Output<'_, '_> {
    /// Both versions of a kernel.
    fn kernel(&mut self, index: usize) -> (Result<Version, Finding>, Result<Version, Finding>) {
        let reachable = self.program.reachable(index);
        if let Err(finding) = self.program.check(&reachable) {
            return (Err(finding.clone()), Err(finding));
        }
        let routine = &self.program.routines[index];
        let (function, body) = (routine.function, routine.body);
        let sliced = self.program.check_sliced(&reachable).and_then(|()| {
            let work_offset = self.layout(function, sliced::WORK_SIZE)?;
            let kernel = sliced::version(function, body, &mut self.assembler);
            Ok(self.add(kernel, work_offset, false))
        });
        let plan = self.program.check_preemptible(&reachable, self.independent);
        let preemptible = plan.and_then(|(plan, waits)| {
            let work_offset = self.layout(function, preemptible::WORK_SIZE)?;
            let preemption = Preemption { plan, waits, independent: self.independent };
            let kernel = preemptible::version(function, body, &preemption, &mut self.assembler);
            Ok(self.add(kernel, work_offset, plan.whole_rows))
        });
        if sliced.is_ok() || preemptible.is_ok() {
            self.called.extend(reachable.into_iter().skip(1));
        }
        (sliced, preemptible)
    }

    /// Where the extra parameter lies.
    fn layout(&mut self, kernel: &Function, work_size: u32) -> Result<u32, Finding> {
        let layout = parameters::layout(kernel, self.module, work_size)?;
        self.version = self.version.max(layout.version.unwrap_or_default());
        Ok(layout.work_offset)
    }

    fn add(&mut self, kernel: Function, work_offset: u32, whole_rows: bool) -> Version {
        let version = Version { name: kernel.name.clone(), work_offset, whole_rows };
        self.kernels.push(kernel);
        version
    }

    /// The module's text, and what it borrows.
    fn finish(mut self) -> Result<(String, Vec<Borrowed>), Finding> {
        let mut items: Vec<Item> = Vec::new();
        for item in &self.module.items {
            match item {
                Item::Variable(variable) => {
                    let is_own = matches!(variable.space, Space::Shared | Space::Local);
                    items.extend(is_own.then(|| item.clone()));
                }
                Item::Function(function) => items.extend(self.function(function).map(Item::Function)),
                Item::Directive(directive) if is_pragma(&directive.text) => items.push(item.clone()),
                Item::Directive(_) => {}
            }
        }
        if self.assembler.slots.are_too_many() {
            return Err(Finding::whole(RefusalKind::Variable, "its module has too many variables"));
        }
        let borrowed = self.assembler.slots.borrowed();
        let slots = borrowed.iter().map(|it| format!(".visible .const .align 8 .u64 {};", it.slot));
        let slots = slots.map(|text| Item::Directive(Directive { text, span: Span::default() }));
        // Without lines and sections for debuggers, which are not in this module, it is not to be debugged.
        let targets = self.module.targets.iter().filter(|target| *target != "debug").cloned().collect();
        let module = Module {
            version: self.version,
            targets,
            address_size: self.module.address_size,
            items: slots.chain(items).chain(self.kernels.into_iter().map(Item::Function)).collect(),
        };
        Ok((module.to_string(), borrowed))
    }

    /// A function or its declaration, if a version calls it.
    fn function(&mut self, function: &Function) -> Option<Function> {
        match self.program.number(&function.name) {
            Some(number) => self.called.contains(&number).then(|| self.assembler.function(function)),
            // The driver's own functions are known by their declarations.
            None => RUNTIME_FUNCTIONS.contains(&function.name.as_str()).then(|| function.clone()),
        }
    }
}
