//! A block's position, held in registers instead of `%ctaid` and `%nctaid`.
//!
//! What reads the special registers reads ordinary ones of the same names instead, which the beginning of a version
//! fills. A called function gets those that it needs as further parameters, and so do those that call it: a block's
//! position is nobody else's, so it cannot be in memory that blocks share. Functions that call themselves are refused
//! where they would have to hand it on: each of their calls would take more stack than the original's.

use super::operands::register_of;
use crate::ast::{Directive, Instruction, Label, Operand, Span, Statement};

/// The components that have a value of their own; the fourth is always 0.
const COMPONENTS: [char; 3] = ['x', 'y', 'z'];

/// The special registers that are replaced.
const REGISTERS: [&str; 2] = ["ctaid", "nctaid"];

/// Which of `%ctaid.x` to `%nctaid.z` code reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Needs(u8);

impl Needs {
    /// What the name is, if it is a component of the position.
    fn of_name(name: &str) -> Self {
        let Some(register) = REGISTERS.iter().position(|it| register_of(name).strip_prefix('%') == Some(it)) else {
            return Self::default();
        };
        let bits = match name.rsplit_once('.') {
            None => 0b111,
            Some((_, component)) => {
                let index = COMPONENTS.iter().position(|it| component.chars().eq([*it]));
                index.map_or(0, |index| 1 << index)
            }
        };
        Self(bits << (COMPONENTS.len() * register))
    }

    /// What an instruction reads.
    pub(super) fn of(instruction: &Instruction) -> Self {
        let mut needs = Self::default();
        instruction.for_each_source(&mut |name| needs = needs.and(Self::of_name(name)));
        needs
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether any of `%ctaid` is among them.
    fn has_position(self) -> bool {
        self.0 & 0b111 != 0
    }

    /// `ctaid_x` and so on, with the component's number.
    fn names(self) -> impl Iterator<Item = (String, usize)> {
        let all = REGISTERS.iter().flat_map(|register| COMPONENTS.iter().enumerate().map(move |it| (register, it)));
        all.enumerate()
            .filter(move |(bit, _)| self.0 & (1 << bit) != 0)
            .map(|(_, (register, (index, component)))| (format!("{register}_{component}"), index))
    }
}

/// Text that is an instruction or a declaration of ours.
pub(super) fn line(text: String) -> Statement {
    Statement::Raw(Directive { text, span: Span::default() })
}

/// Several such lines, in which `$` stands for the beginning of our names.
pub(super) fn lines<'t>(text: &'t str, prefix: &'t str) -> impl Iterator<Item = Statement> + 't {
    let beginning = format!("{prefix}_");
    text.lines().map(move |text| line(text.replace('$', &beginning)))
}

/// A label of ours.
pub(super) fn label(name: String) -> Statement {
    Statement::Label(Label { name, span: Span::default() })
}

/// The place of a block, under names that begin with the prefix.
#[derive(Clone, Copy)]
pub(super) struct Position<'p> {
    pub(super) prefix: &'p str,
    pub(super) needs: Needs,
}

impl Position<'_> {
    /// Whether the block's number is needed.
    pub(super) fn needs_block(self) -> bool {
        self.needs.has_position()
    }

    /// The registers, as a call's arguments or a function's parameters name them.
    pub(super) fn registers(self) -> impl Iterator<Item = String> {
        let prefix = self.prefix;
        self.needs.names().map(move |(name, _)| format!("{prefix}_{name}"))
    }

    /// The name of a function's parameter that a register is filled from.
    pub(super) fn parameters(self) -> impl Iterator<Item = String> {
        self.registers().map(|register| format!("{register}_param"))
    }

    /// The beginning of a function that gets them as parameters.
    pub(super) fn load_parameters(self, code: &mut Vec<Statement>) {
        for (register, parameter) in self.registers().zip(self.parameters()) {
            code.push(line(format!(".reg .b32 {register};")));
            code.push(line(format!("ld.param.b32 {register}, [{parameter}];")));
        }
    }

    /// Declares the registers of a kernel's version, and fills those of the grid from its extra parameter.
    pub(super) fn declare(self, work: &str, code: &mut Vec<Statement>) {
        let prefix = self.prefix;
        for register in self.registers() {
            code.push(line(format!(".reg .b32 {register};")));
        }
        for (name, index) in self.needs.names().filter(|(name, _)| name.starts_with("nctaid")) {
            // Both `Slice` and `Persistent` begin with the grid.
            let offset = if index == 0 { String::new() } else { format!("+{}", index * 4) };
            code.push(line(format!("ld.param.u32 {prefix}_{name}, [{work}{offset}];")));
        }
        if self.needs.has_position() {
            code.push(line(format!(".reg .b32 {prefix}_width, {prefix}_height, {prefix}_row, {prefix}_before;")));
            code.push(line(format!(".reg .pred {prefix}_flat;")));
            code.push(line(format!("ld.param.u32 {prefix}_width, [{work}];")));
            code.push(line(format!("ld.param.u32 {prefix}_height, [{work}+4];")));
        }
    }

    /// Fills those of the block, whose number is in a register. The divisions are for grids of several rows only.
    pub(super) fn place(self, block: &str, code: &mut Vec<Statement>) {
        if !self.needs.has_position() {
            return;
        }
        let prefix = self.prefix;
        let has = |name: &str| self.needs.names().any(|(it, _)| it == name);
        let [x, y, z] = ["ctaid_x", "ctaid_y", "ctaid_z"].map(|name| has(name).then(|| format!("{prefix}_{name}")));
        let (width, height, row, before) = (
            format!("{prefix}_width"),
            format!("{prefix}_height"),
            format!("{prefix}_row"),
            format!("{prefix}_before"),
        );
        code.extend(x.iter().map(|x| line(format!("mov.u32 {x}, {block};"))));
        code.extend(y.iter().chain(&z).map(|zero| line(format!("mov.u32 {zero}, 0;"))));
        code.push(line(format!("setp.lt.u32 {prefix}_flat, {block}, {width};")));
        code.push(line(format!("@{prefix}_flat bra {prefix}_placed;")));
        code.push(line(format!("div.u32 {row}, {block}, {width};")));
        if let Some(x) = x {
            code.push(line(format!("mul.lo.u32 {before}, {row}, {width};")));
            code.push(line(format!("sub.u32 {x}, {block}, {before};")));
        }
        if y.is_some() || z.is_some() {
            let layer = z.unwrap_or_else(|| before.clone());
            code.push(line(format!("div.u32 {layer}, {row}, {height};")));
            code.extend(y.iter().flat_map(|y| {
                [
                    line(format!("mul.lo.u32 {before}, {layer}, {height};")),
                    line(format!("sub.u32 {y}, {row}, {before};")),
                ]
            }));
        }
        code.push(label(format!("{prefix}_placed")));
    }

    /// The instruction with the registers in place of the special ones; more than one where it reads all at once.
    pub(super) fn replace(self, mut instruction: Instruction, code: &mut Vec<Statement>) {
        let own = Needs::of(&instruction);
        if own.is_empty() {
            code.push(Statement::Instruction(instruction));
            return;
        }
        if instruction.opcode == "mov" && instruction.has("v4") {
            self.replace_vector(&instruction, code);
            return;
        }
        // The special registers can be read as 16 bits, which others cannot.
        if instruction.opcode == "mov" && instruction.has_any(&["u16", "s16", "b16"]) {
            instruction.opcode = "cvt".to_string();
            instruction.modifiers = vec!["u16".to_string(), "u32".to_string()];
        }
        for operand in instruction.operands.iter_mut().skip(1) {
            operand.rename(&mut |name| self.register_for(name));
        }
        code.push(Statement::Instruction(instruction));
    }

    /// `mov.v4.u32 {a, b, c, d}, %ctaid`
    fn replace_vector(self, instruction: &Instruction, code: &mut Vec<Statement>) {
        let [destination, Operand::Name(source)] = instruction.operands.as_slice() else { return };
        let predicate = instruction.predicate.as_ref().map_or(String::new(), |predicate| {
            format!("@{}{} ", if predicate.negated { "!" } else { "" }, predicate.register)
        });
        for (index, component) in COMPONENTS.into_iter().chain(['w']).enumerate() {
            let target = match destination {
                Operand::Vector(elements) => match elements.get(index) {
                    Some(Operand::Name(name)) => name.clone(),
                    _ => continue,
                },
                Operand::Name(vector) => format!("{vector}.{component}"),
                _ => continue,
            };
            let value = self.register_for(&format!("{source}.{component}")).unwrap_or_else(|| "0".to_string());
            code.push(line(format!("{predicate}mov.b32 {target}, {value};")));
        }
    }

    fn register_for(self, name: &str) -> Option<String> {
        let own = Needs::of_name(name);
        let (register, _) = own.names().next()?;
        Some(format!("{}_{register}", self.prefix))
    }
}
