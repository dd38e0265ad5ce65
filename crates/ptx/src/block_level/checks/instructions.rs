//! Instructions, names and directives that no version can keep.

use crate::ast::{Function, Instruction, Operand};
use crate::block_level::assemble::is_pragma;
use crate::block_level::borrow;
use crate::block_level::code::Code;
use crate::block_level::names::{Names, Special, special};
use crate::block_level::refusal::{Finding, RefusalKind};
use crate::lexer::{Token, lex};

/// Functions that the driver itself brings along, and that know nothing of blocks.
pub(in crate::block_level) const RUNTIME_FUNCTIONS: [&str; 3] = ["vprintf", "malloc", "free"];

/// Properties of functions that mean the same for a version.
const KEPT_DIRECTIVES: [&str; 12] = [
    "maxntid",
    "reqntid",
    "minnctapersm",
    "maxnctapersm",
    "maxnreg",
    "noreturn",
    "pragma",
    "abi_preserve",
    "abi_preserve_control",
    "attribute",
    "unified",
    "noinline",
];

/// Instructions on textures and surfaces. Their operands may have a shape of their own; what they name must not be
/// the module's.
const TEXTURE_INSTRUCTIONS: [&str; 8] = ["tex", "tld4", "txq", "suld", "sust", "sured", "suq", "istypep"];

/// Checks a function and all its instructions.
pub(in crate::block_level) fn check(code: &Code<'_>, names: &Names<'_>) -> Result<(), Finding> {
    directives(code.function)?;
    for step in &code.steps {
        opcode(step.instruction)?;
        borrow::check(step.instruction, names)?;
        operands(step.instruction, code, names)?;
    }
    for raw in &code.raws {
        raw_text(&raw.text, code, names).map_err(|kind| Finding::at(kind, &raw.text, raw.span.start))?;
    }
    for directive in &code.directives {
        let is_known = is_pragma(&directive.text) || [".loc", ".file"].iter().any(|it| directive.text.starts_with(it));
        if !is_known {
            return Err(Finding::at(RefusalKind::NotUnderstood, &directive.text, directive.span.start));
        }
    }
    for variable in &code.variables {
        if borrow::is_borrowed(variable) {
            return Err(Finding::at(RefusalKind::Variable, variable, variable.span.start));
        }
    }
    Ok(())
}

fn directives(function: &Function) -> Result<(), Finding> {
    for directive in &function.directives {
        let name = directive.name.as_str();
        if !KEPT_DIRECTIVES.contains(&name) {
            let is_cluster = name.contains("cluster");
            let kind = if is_cluster { RefusalKind::Cluster } else { RefusalKind::NotUnderstood };
            return Err(Finding::at(kind, directive, directive.span.start));
        }
    }
    Ok(())
}

/// Opcodes of which it is known what they do, and that other blocks see nothing of it but memory.
const KNOWN: [&str; 122] = [
    "abs",
    "add",
    "addc",
    "alloca",
    "and",
    "applypriority",
    "atom",
    "bar",
    "barrier",
    "bfe",
    "bfi",
    "bfind",
    "bmsk",
    "bra",
    "brev",
    "brkpt",
    "brx",
    "call",
    "clz",
    "cnot",
    "copysign",
    "cos",
    "cp",
    "createpolicy",
    "cvt",
    "cvta",
    "discard",
    "div",
    "dp2a",
    "dp4a",
    "elect",
    "ex2",
    "exit",
    "fence",
    "fma",
    "fns",
    "isspacep",
    "ld",
    "ldmatrix",
    "ldu",
    "lg2",
    "lop3",
    "mad",
    "mad24",
    "madc",
    "match",
    "max",
    "mbarrier",
    "membar",
    "min",
    "mma",
    "mov",
    "movmatrix",
    "mul",
    "mul24",
    "multimem",
    "nanosleep",
    "neg",
    "not",
    "or",
    "pmevent",
    "popc",
    "prefetch",
    "prefetchu",
    "prmt",
    "rcp",
    "red",
    "redux",
    "rem",
    "ret",
    "rsqrt",
    "sad",
    "selp",
    "set",
    "setmaxnreg",
    "setp",
    "shf",
    "shfl",
    "shl",
    "shr",
    "sin",
    "slct",
    "sqrt",
    "st",
    "stackrestore",
    "stacksave",
    "stmatrix",
    "sub",
    "subc",
    "szext",
    "tanh",
    "tcgen05",
    "tensormap",
    "testp",
    "trap",
    "vabsdiff",
    "vabsdiff2",
    "vabsdiff4",
    "vadd",
    "vadd2",
    "vadd4",
    "vavrg2",
    "vavrg4",
    "vmad",
    "vmax",
    "vmax2",
    "vmax4",
    "vmin",
    "vmin2",
    "vmin4",
    "vote",
    "vset",
    "vset2",
    "vset4",
    "vshl",
    "vshr",
    "vsub",
    "vsub2",
    "vsub4",
    "wgmma",
    "wmma",
    "xor",
];

fn opcode(instruction: &Instruction) -> Result<(), Finding> {
    let modifier = |name: &str| instruction.has(name);
    let kind = match instruction.opcode.as_str() {
        "mapa" | "getctarank" | "clusterlaunchcontrol" => RefusalKind::Cluster,
        "barrier" if modifier("cluster") => RefusalKind::Cluster,
        _ if modifier("multicast::cluster") => RefusalKind::Cluster,
        "griddepcontrol" => RefusalKind::DependentLaunch,
        // Which threads of a warp run together is the compiler's and the hardware's choice.
        "activemask" => RefusalKind::Placement,
        "vote" | "shfl" | "match" if !modifier("sync") => RefusalKind::Placement,
        "isspacep" if modifier("const") => RefusalKind::Variable,
        opcode if !KNOWN.contains(&opcode) && !TEXTURE_INSTRUCTIONS.contains(&opcode) => RefusalKind::NotUnderstood,
        _ => return Ok(()),
    };
    Err(Finding::at(kind, instruction, instruction.span.start))
}

fn operands(instruction: &Instruction, code: &Code<'_>, names: &Names<'_>) -> Result<(), Finding> {
    let refuse = |kind| Err(Finding::at(kind, instruction, instruction.span.start));
    if instruction.opcode == "call" {
        return call(instruction, code, names).or_else(refuse);
    }
    if matches!(instruction.opcode.as_str(), "bra" | "brx") {
        // What they name are labels and tables, which were found or not when the blocks were joined.
        return Ok(());
    }
    let mut kind = None;
    for operand in &instruction.operands {
        operand.for_each_name(&mut |name| kind = kind.or(name_kind(name, code, names)));
    }
    kind.map_or(Ok(()), refuse)
}

/// What is wrong with a name, if anything is.
fn name_kind(name: &str, code: &Code<'_>, names: &Names<'_>) -> Option<RefusalKind> {
    if code.locals.has(name) {
        return None;
    }
    match special(name) {
        // A preemptible version is refused where it matters to it (`shared`).
        Some(Special::Position | Special::Kept | Special::SharedMemory) => return None,
        Some(Special::Placement) => return Some(RefusalKind::Placement),
        Some(Special::Cluster) => return Some(RefusalKind::Cluster),
        None => {}
    }
    if names.function(name).is_some() {
        return Some(RefusalKind::FunctionPointer);
    }
    if names.variable(name).is_some() { None } else { Some(RefusalKind::NotUnderstood) }
}

fn call(instruction: &Instruction, code: &Code<'_>, names: &Names<'_>) -> Result<(), RefusalKind> {
    let Some((callee, name)) = instruction.callee() else { return Err(RefusalKind::NotUnderstood) };
    for operand in instruction.operands.iter().filter(|operand| matches!(operand, Operand::List(_))) {
        let mut kind = None;
        operand.for_each_name(&mut |name| kind = kind.or(name_kind(name, code, names)));
        kind.map_or(Ok(()), Err)?;
    }
    if code.locals.has(name) || instruction.operands.iter().skip(callee + 1).any(|it| matches!(it, Operand::Name(_))) {
        return Err(RefusalKind::FunctionPointer);
    }
    match names.function(name) {
        Some(function) if function.body.is_some() => Ok(()),
        _ if RUNTIME_FUNCTIONS.contains(&name) => Ok(()),
        _ => Err(foreign_kind(name)),
    }
}

/// Why a function that the module does not have cannot be called.
fn foreign_kind(name: &str) -> RefusalKind {
    match name {
        "__assertfail" | "__assert_fail" => RefusalKind::Assertion,
        _ if name.starts_with("cudaCG") => RefusalKind::WaitsForBlocks,
        _ if name.starts_with("cudaLaunchDevice")
            || name.starts_with("cudaGetParameterBuffer")
            || name.starts_with("cudaGraphLaunch")
            || name.starts_with("cudaDeviceSynchronize")
            || name.starts_with("cudaStream")
            || name.starts_with("cudaEvent") =>
        {
            RefusalKind::DynamicParallelism
        }
        _ => RefusalKind::ForeignFunction,
    }
}

/// Text may stay text where it is a texture instruction on registers.
fn raw_text(text: &str, code: &Code<'_>, names: &Names<'_>) -> Result<(), RefusalKind> {
    let Ok(lexemes) = lex(text) else { return Err(RefusalKind::NotUnderstood) };
    let words: Vec<&str> = lexemes
        .iter()
        .filter(|lexeme| lexeme.token == Token::Word)
        .map(|lexeme| &text[lexeme.span.start as usize..lexeme.span.end as usize])
        .collect();
    let predicates = usize::from(text.starts_with('@'));
    if words.get(predicates).is_none_or(|opcode| !TEXTURE_INSTRUCTIONS.contains(opcode)) {
        return Err(RefusalKind::NotUnderstood);
    }
    let operands = words.iter().take(predicates).chain(words.iter().skip(predicates + 1));
    let foreign = operands.filter(|word| **word != "_" && !code.locals.has(word)).map(|word| names.variable(word));
    foreign.into_iter().next().map_or(Ok(()), |variable| match variable {
        Some(_) => Err(RefusalKind::Texture),
        None => Err(RefusalKind::NotUnderstood),
    })
}
