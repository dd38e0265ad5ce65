//! A tree as text.

use crate::ast::{
    AddressBase, BranchTable, Declarator, Function, FunctionDirective, FunctionKind, InitValue, Initializer,
    Instruction, Item, Linkage, Module, Operand, Pointer, Space, Statement, Symbol, TableKind, Variable,
};
use core::fmt::{self, Display, Formatter};

impl Display for Module {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        writeln!(formatter, ".version {}.{}", self.version.0, self.version.1)?;
        writeln!(formatter, ".target {}", self.targets.join(", "))?;
        writeln!(formatter, ".address_size {}", self.address_size)?;
        for item in &self.items {
            writeln!(formatter, "\n{item}")?;
        }
        Ok(())
    }
}

impl Display for Item {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(variable) => write!(formatter, "{variable};"),
            Self::Function(function) => function.fmt(formatter),
            Self::Directive(directive) => formatter.write_str(&directive.text),
        }
    }
}

impl Display for Function {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write_linkage(formatter, self.linkage)?;
        formatter.write_str(match self.kind {
            FunctionKind::Kernel => ".entry ",
            FunctionKind::Function => ".func ",
        })?;
        write_attributes(formatter, &self.attributes)?;
        if !self.returns.is_empty() {
            write!(formatter, "({}) ", Separated(&self.returns, ", "))?;
        }
        formatter.write_str(&self.name)?;
        match self.parameters.as_slice() {
            [] => formatter.write_str("()")?,
            parameters => write!(formatter, "(\n\t{}\n)", Separated(parameters, ",\n\t"))?,
        }
        for directive in &self.directives {
            write!(formatter, "\n{directive}")?;
        }
        match &self.body {
            Some(statements) => {
                formatter.write_str("\n")?;
                write_block(formatter, statements, 0)
            }
            None => formatter.write_str(";"),
        }
    }
}

impl Display for FunctionDirective {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, ".{}", self.name)?;
        if !self.arguments.is_empty() {
            write!(formatter, " {}", Separated(&self.arguments, ", "))?;
        }
        if self.strings.is_empty() {
            return Ok(());
        }
        let comma = if self.arguments.is_empty() { "" } else { "," };
        write!(formatter, "{comma} \"{}\";", Separated(&self.strings, "\", \""))
    }
}

/// `{…}`, the braces that many tabs deep.
fn write_block(formatter: &mut Formatter<'_>, statements: &[Statement], depth: usize) -> fmt::Result {
    write_tabs(formatter, depth)?;
    formatter.write_str("{\n")?;
    for statement in statements {
        match statement {
            // A label starts its line, and a block indents itself.
            Statement::Label(_) | Statement::Block(_) => {}
            _ => write_tabs(formatter, depth + 1)?,
        }
        match statement {
            Statement::Label(label) => write!(formatter, "{}:", label.name)?,
            Statement::Variable(variable) => write!(formatter, "{variable};")?,
            Statement::Instruction(instruction) => instruction.fmt(formatter)?,
            Statement::Raw(directive) | Statement::Directive(directive) => formatter.write_str(&directive.text)?,
            Statement::Table(table) => table.fmt(formatter)?,
            Statement::Block(statements) => write_block(formatter, statements, depth + 1)?,
        }
        formatter.write_str("\n")?;
    }
    write_tabs(formatter, depth)?;
    formatter.write_str("}")
}

fn write_tabs(formatter: &mut Formatter<'_>, count: usize) -> fmt::Result {
    (0..count).try_for_each(|_| formatter.write_str("\t"))
}

impl Display for BranchTable {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: ", self.label)?;
        match &self.kind {
            TableKind::Targets(labels) => write!(formatter, ".branchtargets {};", labels.join(", ")),
            TableKind::CallTargets(functions) => write!(formatter, ".calltargets {};", functions.join(", ")),
            TableKind::CallPrototype { name, returns, parameters, directives } => {
                formatter.write_str(".callprototype ")?;
                if !returns.is_empty() {
                    write!(formatter, "({}) ", Separated(returns, ", "))?;
                }
                write!(formatter, "{name} ({})", Separated(parameters, ", "))?;
                for directive in directives {
                    write!(formatter, " {directive}")?;
                }
                formatter.write_str(";")
            }
        }
    }
}

/// Without the semicolon: a parameter has none.
impl Display for Variable {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write_linkage(formatter, self.linkage)?;
        write!(formatter, ".{} ", self.space.name())?;
        write_attributes(formatter, &self.attributes)?;
        if let Some(align) = self.align {
            write!(formatter, ".align {align} ")?;
        }
        if let Some(vector) = self.vector {
            write!(formatter, ".v{vector} ")?;
        }
        write!(formatter, ".{} ", self.ty.name())?;
        if let Some(pointer) = &self.pointer {
            write!(formatter, "{pointer} ")?;
        }
        Separated(&self.declarators, ", ").fmt(formatter)
    }
}

impl Display for Pointer {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(".ptr")?;
        if let Some(space) = self.space {
            write!(formatter, " .{}", space.name())?;
        }
        if let Some(align) = self.align {
            write!(formatter, " .align {align}")?;
        }
        Ok(())
    }
}

impl Display for Declarator {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name)?;
        if let Some(count) = self.count {
            write!(formatter, "<{count}>")?;
        }
        for dimension in &self.dimensions {
            match dimension {
                Some(length) => write!(formatter, "[{length}]")?,
                None => formatter.write_str("[]")?,
            }
        }
        match &self.initializer {
            Some(initializer) => write!(formatter, " = {initializer}"),
            None => Ok(()),
        }
    }
}

impl Display for Initializer {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(value) => value.fmt(formatter),
            Self::List(elements) => write!(formatter, "{{{}}}", Separated(elements, ", ")),
            Self::Field { name, value } => write!(formatter, "{name} = {value}"),
        }
    }
}

impl Display for InitValue {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(value) => value.fmt(formatter),
            Self::F32(bits) => write!(formatter, "0f{bits:08X}"),
            Self::F64(bits) => write!(formatter, "0d{bits:016X}"),
            Self::Symbol(symbol) => symbol.fmt(formatter),
            Self::Mask { mask, symbol } => write!(formatter, "0x{mask:X}({symbol})"),
        }
    }
}

impl Display for Symbol {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self.generic {
            true => write!(formatter, "generic({})", self.name)?,
            false => formatter.write_str(&self.name)?,
        }
        write_offset(formatter, self.offset)
    }
}

/// With its predicate and semicolon.
impl Display for Instruction {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        if let Some(predicate) = &self.predicate {
            write!(formatter, "@{}{} ", if predicate.negated { "!" } else { "" }, predicate.register)?;
        }
        formatter.write_str(&self.opcode)?;
        for modifier in &self.modifiers {
            write!(formatter, ".{modifier}")?;
        }
        if !self.operands.is_empty() {
            write!(formatter, " {}", Separated(&self.operands, ", "))?;
        }
        formatter.write_str(";")
    }
}

impl Display for Operand {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => formatter.write_str(name),
            Self::Integer(value) => value.fmt(formatter),
            Self::F32(bits) => write!(formatter, "0f{bits:08X}"),
            Self::F64(bits) => write!(formatter, "0d{bits:016X}"),
            Self::Address { base, offset } => {
                write_base(formatter, base, *offset)?;
                formatter.write_str("]")
            }
            Self::Tensor { base, offset, coordinates } => {
                write_base(formatter, base, *offset)?;
                write!(formatter, ", {{{}}}]", Separated(coordinates, ", "))
            }
            Self::Vector(elements) => write!(formatter, "{{{}}}", Separated(elements, ", ")),
            Self::Pair(first, second) => write!(formatter, "{first}|{second}"),
            Self::Not(operand) => write!(formatter, "!{operand}"),
            Self::Negative(name) => write!(formatter, "-{name}"),
            Self::Offset { name, offset } => write!(formatter, "{name}+{offset}"),
            Self::List(elements) => write!(formatter, "({})", Separated(elements, ", ")),
            Self::Sink => formatter.write_str("_"),
        }
    }
}

/// What an address starts with.
fn write_base(formatter: &mut Formatter<'_>, base: &AddressBase, offset: i64) -> fmt::Result {
    match base {
        AddressBase::Name(name) => write!(formatter, "[{name}")?,
        AddressBase::Integer(address) => write!(formatter, "[{address}")?,
    }
    write_offset(formatter, offset)
}

/// PTX has no subtraction here: `name+-4`.
fn write_offset(formatter: &mut Formatter<'_>, offset: i64) -> fmt::Result {
    if offset == 0 { Ok(()) } else { write!(formatter, "+{offset}") }
}

fn write_linkage(formatter: &mut Formatter<'_>, linkage: Linkage) -> fmt::Result {
    formatter.write_str(match linkage {
        Linkage::Internal => "",
        Linkage::Visible => ".visible ",
        Linkage::Extern => ".extern ",
        Linkage::Weak => ".weak ",
        Linkage::Common => ".common ",
    })
}

fn write_attributes(formatter: &mut Formatter<'_>, attributes: &[String]) -> fmt::Result {
    match attributes {
        [] => Ok(()),
        _ => write!(formatter, ".attribute({}) ", attributes.join(", ")),
    }
}

impl Space {
    /// Its name without the dot: `global`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Reg => "reg",
            Self::Sreg => "sreg",
            Self::Const => "const",
            Self::Global => "global",
            Self::Local => "local",
            Self::Param => "param",
            Self::Shared => "shared",
            Self::Tex => "tex",
        }
    }
}

/// The parts with text between them.
struct Separated<'a, T>(&'a [T], &'static str);

impl<T: Display> Display for Separated<'_, T> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        for (index, part) in self.0.iter().enumerate() {
            if index > 0 {
                formatter.write_str(self.1)?;
            }
            part.fmt(formatter)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_module_is_laid_out_by_lines() {
        let source = r#"
            .version 8.4 .target sm_90a, debug
            .file 1 "a.cu"
            .const .align 4 .b8 table[4] = {1, 2, 0x3, -4}; // comment
            .extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
            .visible .entry kernel(.param .u64 .ptr .align 1 x) .maxntid 256, 1, 1 .pragma "nounroll";
            { .reg .pred %p<2>; loop: .loc 1 2 3
              @!%p1 bra.uni loop; { .reg .b32 t; mov.b32 t, 1.5; st.v2.u32 [t+0], {t, _}; }
              ts: .branchtargets loop, done; done: ret; }
        "#;
        let expected = r#".version 8.4
.target sm_90a, debug
.address_size 64

.file 1 "a.cu"

.const .align 4 .b8 table[4] = {1, 2, 3, -4};

.extern .func (.param .b32 r) vprintf(
	.param .b64 a,
	.param .b64 b
);

.visible .entry kernel(
	.param .u64 .ptr .align 1 x
)
.maxntid 256, 1, 1
.pragma "nounroll";
{
	.reg .pred %p<2>;
loop:
	.loc 1 2 3
	@!%p1 bra.uni loop;
	{
		.reg .b32 t;
		mov.b32 t, 0d3FF8000000000000;
		st.v2.u32 [t], {t, _};
	}
	ts: .branchtargets loop, done;
done:
	ret;
}
"#;
        assert_eq!(crate::parse(source).expect("parses").to_string(), expected);
    }
}
