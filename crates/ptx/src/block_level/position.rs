//! A block's position, held in registers instead of `%ctaid` and `%nctaid`.
//!
//! What reads the special registers reads ordinary ones instead. In a kernel's version they are worked out anew from the block's number
//! wherever they are read, each time in a scope of its own, and not once at the beginning: to NVIDIA's compiler reading a special register
//! costs next to nothing, and values that are there from the beginning to the end take registers from everything else, or turn loops
//! into other code than the original's. Worked out on the spot, registers and inner loops are the original's (seen in what ptxas 13.0
//! makes of `workloads/samples/long_work.cu` for sm_90). The divisions are multiplications by what the host worked out
//! ([`Division`](super::Division)): of constants and `%ctaid` alone they stay as uniform across the block as `%ctaid` is.
//!
//! A called function gets those that it needs as further parameters, and so do those that call it: a block's
//! position is nobody else's, so it cannot be in memory that blocks share. Functions that call themselves are refused
//! where they would have to hand it on: each of their calls would take more stack than the original's.

use super::operands::register_of;
use super::{Division, Divisor, Persistent, Slice};
use crate::ast::{Directive, Instruction, Label, Operand, Span, Statement};
use core::mem::offset_of;
use std::collections::HashMap;

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

    /// Whether a component of `%ctaid` is among them.
    fn has_position(self, component: usize) -> bool {
        self.0 & (1 << component) != 0
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

/// Where a block's position comes from.
#[derive(Clone, Copy)]
pub(super) enum Origin {
    /// A function's parameters.
    Parameters,
    /// The number of a slice's first block, and which of the slice's blocks it is.
    Slice,
    /// The answer that the block was given, its number. It is in shared memory, and is read there again each time, unless it `is_kept`:
    /// each thread has it in a register, too, where something reads the position again and again. The compiler takes no reading of memory
    /// out of a loop in which memory is written, and what keeps a register anyway need not read memory.
    Answer { is_kept: bool },
}

/// Where the `first` of a [`Slice`](super::Slice) lies, and the division of each kind of extra parameter. Both begin with the grid.
const FIRST: u32 = 12;
const SLICE_DIVISION: u32 = 16;
const PERSISTENT_DIVISION: u32 = 64;
const _: () = {
    assert!(offset_of!(Slice, grid) == 0 && offset_of!(Persistent, grid) == 0);
    assert!(offset_of!(Slice, first) == FIRST as usize && offset_of!(Slice, division) == SLICE_DIVISION as usize);
    assert!(offset_of!(Persistent, division) == PERSISTENT_DIVISION as usize);
    assert!(offset_of!(Division, height) == DIVISOR as usize && offset_of!(Divisor, shift) == SHIFT as usize);
};

/// Bytes of a [`Divisor`], and where its `shift` lies.
const DIVISOR: u32 = 8;
const SHIFT: u32 = 4;

/// The place of a block, under names that begin with the prefix.
#[derive(Clone, Copy)]
pub(super) struct Position<'p> {
    pub(super) prefix: &'p str,
    pub(super) needs: Needs,
    pub(super) origin: Origin,
}

impl Position<'_> {
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

    /// The instruction with the registers in place of the special ones; `needs` are those that it reads or hands on.
    pub(super) fn replace(self, instruction: Instruction, needs: Needs, code: &mut Vec<Statement>) {
        if needs.is_empty() {
            code.push(Statement::Instruction(instruction));
            return;
        }
        let number = match self.origin {
            Origin::Parameters => return self.rename(instruction, code),
            Origin::Slice => SLICED_NUMBER,
            Origin::Answer { is_kept: false } => ANSWERED_NUMBER,
            Origin::Answer { is_kept: true } => KEPT_NUMBER,
        };
        let mut scope = Vec::new();
        Position { needs, ..self }.fill(number, &mut scope);
        self.rename(instruction, &mut scope);
        code.push(Statement::Block(scope));
    }

    /// Declares the registers that are needed, and fills them: from the extra parameter and the block's number.
    fn fill(self, number: &str, code: &mut Vec<Statement>) {
        let prefix = self.prefix;
        let mut add = |text: &str| code.extend(lines(text, prefix));
        for (name, index) in self.needs.names() {
            add(&format!(".reg .b32 ${name};"));
            if name.starts_with("nctaid") {
                add(&format!("ld.param.u32 ${name}, {};", size_at(index)));
            }
        }
        let [x, y, z] = [0, 1, 2].map(|component| self.needs.has_position(component));
        if !(x || y || z) {
            return;
        }
        let width = if matches!(self.origin, Origin::Slice) { SLICE_DIVISION } else { PERSISTENT_DIVISION };
        add(POSITION);
        add(number);
        add(&quotient("row", "number", width));
        if x {
            add(&remainder("ctaid_x", "number", "row", 0));
        }
        if y || z {
            let layer = if z { "ctaid_z" } else { "layer" };
            add(&quotient(layer, "row", width + DIVISOR));
            if y {
                add(&remainder("ctaid_y", "row", layer, 1));
            }
        }
    }

    fn rename(self, mut instruction: Instruction, code: &mut Vec<Statement>) {
        if Needs::of(&instruction).is_empty() {
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

/// What a position takes besides its own registers.
const POSITION: &str = "\
.reg .b32 $number, $row, $layer, $factor, $shift, $before;
.reg .b64 $product;";

/// The block's number in a slice.
const SLICED_NUMBER: &str = "\
ld.param.u32 $before, [$work+12];
mov.u32 $number, %ctaid.x;
add.u32 $number, $number, $before;";
const _: () = assert!(FIRST == 12);

/// The block's number as a preemptible version was told it: behind the barrier the place is the next answer's.
const ANSWERED_NUMBER: &str = "\
xor.b32 $number, $place, 4;
ld.shared.u32 $number, [$number];";

/// The same, as each thread keeps it.
const KEPT_NUMBER: &str = "mov.u32 $number, $block;";

/// Where the extra parameter has the grid's size in that dimension.
fn size_at(dimension: usize) -> String {
    if dimension == 0 { "[$work]".to_string() } else { format!("[$work+{}]", 4 * dimension) }
}

/// A number divided by what the divisor at that place of the extra parameter is for.
fn quotient(to: &str, from: &str, divisor: u32) -> String {
    let shift = divisor + SHIFT;
    format!(
        "\
ld.param.u32 $factor, [$work+{divisor}];
ld.param.u32 $shift, [$work+{shift}];
mul.wide.u32 $product, ${from}, $factor;
shr.u64 $product, $product, $shift;
cvt.u32.u64 ${to}, $product;"
    )
}

/// What is left of a number that was divided by the grid's size in that dimension.
fn remainder(to: &str, from: &str, quotient: &str, dimension: usize) -> String {
    let size = size_at(dimension);
    format!(
        "\
ld.param.u32 $before, {size};
mul.lo.u32 $before, ${quotient}, $before;
sub.u32 ${to}, ${from}, $before;"
    )
}

/// Whether one of those instructions runs again and again: whether it stands between a label and what goes back there. What goes back
/// in other ways is not looked for: that would cost time, but no result.
pub(super) fn is_in_loop(body: &[Statement], counts: &dyn Fn(&Instruction) -> bool) -> bool {
    let mut search = Search { counts, labels: HashMap::new(), last: None };
    search.finds(body)
}

struct Search<'s, 'm> {
    counts: &'s dyn Fn(&Instruction) -> bool,
    labels: HashMap<&'m str, u32>,
    /// Where the last of them stands.
    last: Option<u32>,
}

impl<'m> Search<'_, 'm> {
    fn finds(&mut self, body: &'m [Statement]) -> bool {
        body.iter().any(|statement| match statement {
            Statement::Label(label) => {
                self.labels.insert(&label.name, label.span.start);
                false
            }
            Statement::Instruction(instruction) => {
                if (self.counts)(instruction) {
                    self.last = Some(instruction.span.start);
                }
                match instruction.operands.first() {
                    Some(Operand::Name(target)) if instruction.opcode == "bra" => {
                        self.labels.get(target.as_str()).is_some_and(|begin| self.last >= Some(*begin))
                    }
                    _ => false,
                }
            }
            Statement::Block(inner) => self.finds(inner),
            _ => false,
        })
    }
}
