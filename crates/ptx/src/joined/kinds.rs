//! What an instruction is to products and sums.

use crate::ast::{Instruction, Operand};

/// What products and sums must have in common: the type, and whether subnormal numbers are taken for zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind {
    ty: &'static str,
    flush: bool,
}

impl Kind {
    pub(super) fn flushes(self) -> bool {
        self.flush
    }
}

/// What an instruction is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Product(Kind),
    Sum(Kind),
    /// It hands a value on, with the other sign if it `negates`; what `flushes` does so only for products that do.
    Copy {
        negates: bool,
        flushes: bool,
    },
    Other,
}

const ROUNDINGS: [&str; 4] = ["rn", "rz", "rm", "rp"];
const TYPES: [&str; 6] = ["f32", "f64", "f16", "bf16", "f16x2", "bf16x2"];

/// Instructions that the compiler runs for all lanes and throws away for some, instead of going round them.
const PLAIN: [&str; 48] = [
    "abs", "add", "and", "bfe", "bfi", "bfind", "bmsk", "brev", "clz", "cnot", "copysign", "cos", "cvt", "cvta", "div",
    "dp2a", "dp4a", "ex2", "fma", "isspacep", "lg2", "lop3", "mad", "mad24", "max", "min", "mov", "mul", "mul24",
    "neg", "not", "or", "popc", "prmt", "rcp", "rem", "rsqrt", "sad", "selp", "set", "setp", "shf", "shl", "shr",
    "sin", "slct", "sqrt", "sub",
];
const PLAIN_TOO: [&str; 4] = ["szext", "tanh", "testp", "xor"];

fn kind(instruction: &Instruction) -> Option<Kind> {
    let ty = TYPES.into_iter().find(|ty| instruction.has(ty))?;
    Some(Kind { ty, flush: instruction.has("ftz") })
}

/// The sign of a number that is 1 or -1.
fn unit(operand: &Operand) -> Option<bool> {
    let value = match operand {
        Operand::F32(bits) => f32::from_bits(*bits).into(),
        Operand::F64(bits) => f64::from_bits(*bits),
        _ => return None,
    };
    (value.abs().to_bits() == 1_f64.to_bits()).then_some(value.is_sign_negative())
}

pub(super) fn is_constant(operand: &Operand) -> bool {
    matches!(operand, Operand::F32(_) | Operand::F64(_) | Operand::Integer(_))
}

/// Whether a register is written to, as a whole.
fn writes_register(instruction: &Instruction) -> bool {
    matches!(instruction.operands.first(), Some(Operand::Name(name)) if !name.contains('.'))
}

pub(super) fn role(instruction: &Instruction) -> Role {
    match instruction.opcode.as_str() {
        "add" | "sub" if !instruction.has_any(&ROUNDINGS) => kind(instruction).map_or(Role::Other, Role::Sum),
        // A register that is written to now and then is no copy of anything.
        _ if instruction.predicate.is_some() || !writes_register(instruction) => Role::Other,
        "mul" => product(instruction),
        "div" | "rcp" => quotient(instruction),
        "mov" if matches!(instruction.operands.get(1), Some(Operand::Name(_))) => {
            Role::Copy { negates: false, flushes: false }
        }
        "neg" => match kind(instruction) {
            // The compiler has an instruction of its own for these.
            None | Some(Kind { ty: "bf16x2", .. } | Kind { ty: "f16" | "f16x2", flush: true }) => Role::Other,
            Some(kind) => Role::Copy { negates: true, flushes: kind.flush },
        },
        "cvt" => conversion(instruction),
        _ => Role::Other,
    }
}

fn product(instruction: &Instruction) -> Role {
    let [_, first, second] = instruction.operands.as_slice() else { return Role::Other };
    let Some(kind) = kind(instruction).filter(|_| !instruction.has("sat")) else { return Role::Other };
    match (unit(first), unit(second)) {
        _ if is_constant(first) && is_constant(second) => Role::Other,
        // However it is rounded: nothing is lost.
        (Some(negates), _) | (_, Some(negates)) => Role::Copy { negates, flushes: kind.flush },
        _ if instruction.has_any(&ROUNDINGS) => Role::Other,
        _ => Role::Product(kind),
    }
}

/// The approximate ones are products with a reciprocal. That alone is one where it is scaled.
fn quotient(instruction: &Instruction) -> Role {
    let Some(kind) = kind(instruction).filter(|kind| kind.ty == "f32") else { return Role::Other };
    let is_reciprocal = match instruction.operands.get(1) {
        _ if instruction.opcode == "rcp" => true,
        Some(dividend) => instruction.has("approx") && unit(dividend) == Some(false),
        None => false,
    };
    match () {
        () if !instruction.has_any(&["approx", "full"]) || instruction.has("sat") => Role::Other,
        () if is_reciprocal && kind.flush => Role::Other,
        () if instruction.operands.iter().skip(1).all(is_constant) => Role::Other,
        () => Role::Product(kind),
    }
}

/// A conversion from a type to itself.
fn conversion(instruction: &Instruction) -> Role {
    match kind(instruction) {
        Some(kind) if instruction.modifiers.iter().filter(|it| *it == kind.ty).count() == 2 => {
            let others = instruction.modifiers.iter().any(|it| it != kind.ty && it != "ftz");
            if others { Role::Other } else { Role::Copy { negates: false, flushes: kind.flush } }
        }
        _ => Role::Other,
    }
}

fn is_plain(instruction: &Instruction) -> bool {
    let opcode = instruction.opcode.as_str();
    // What takes a carry is left together with what gave it.
    (PLAIN.contains(&opcode) || PLAIN_TOO.contains(&opcode)) && !instruction.has("cc")
}

/// Whether an instruction does more than to write registers, to the compiler too. A load may fault.
pub(super) fn does_more(instruction: &Instruction) -> bool {
    !is_plain(instruction) || splits(instruction)
}

/// Whether the compiler makes several blocks of it, or goes round it.
pub(super) fn splits(instruction: &Instruction) -> bool {
    let has = |modifiers: &[&str]| instruction.has_any(modifiers);
    let opcode = instruction.opcode.as_str();
    match opcode {
        // Where they lead says the rest.
        "bra" | "brx" => return false,
        "membar" | "call" | "trap" | "brkpt" | "pmevent" => return true,
        // Those of proxies are one instruction.
        "fence" if has(&["sc", "acq_rel"]) => return true,
        "div" | "rem" if has(&TYPES) => return !has(&["approx", "full"]),
        "div" | "rem" if !has(&["u32"]) => return true,
        "sqrt" | "rcp" if !has(&["approx"]) => return true,
        "rsqrt" if has(&["f64"]) => return true,
        _ => {}
    }
    instruction.predicate.is_some() && !is_plain(instruction)
}
