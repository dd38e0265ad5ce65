//! A module as a tree.
//!
//! Names, opcodes and modifiers are text as the source has it, constants are folded. What the parser has no
//! shape for is a [`Directive`]: the source's own text, printed as it came.

use crate::scalar_type::ScalarType;

/// Where something stands in the source, in bytes.
///
/// Two trees of differently laid out sources differ in their spans: compare
/// [`without_spans`](Module::without_spans).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// The first byte.
    pub start: u32,
    /// The byte after the last one.
    pub end: u32,
}

/// One PTX source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// `.version 8.4` is (8, 4).
    pub version: (u32, u32),
    /// What `.target` lists, such as `sm_90a` and `debug`.
    pub targets: Vec<String>,
    /// `.address_size`; 64 where the source has none, the only size that compilers still take.
    pub address_size: u32,
    /// Everything else, in the source's order.
    pub items: Vec<Item>,
}

/// What stands at the top of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A variable of the module.
    Variable(Variable),
    /// A kernel or a function, with or without a body.
    Function(Function),
    /// `.file`, `.section`, `.pragma`, `.alias` and those that are not known.
    Directive(Directive),
}

/// The source's own text, from its first token to its last (`;` or `}` included, where it has one).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directive {
    /// The text.
    pub text: String,
    /// Where it stands.
    pub span: Span,
}

/// Who sees a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Linkage {
    /// This module only; no directive.
    Internal,
    /// `.visible`
    Visible,
    /// `.extern`
    Extern,
    /// `.weak`
    Weak,
    /// `.common`
    Common,
}

/// Where a variable lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Space {
    /// `.reg`
    Reg,
    /// `.sreg`
    Sreg,
    /// `.const`
    Const,
    /// `.global`
    Global,
    /// `.local`
    Local,
    /// `.param`
    Param,
    /// `.shared`
    Shared,
    /// `.tex`
    Tex,
}

/// One declaration. It declares several names where the source lists several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Who sees it.
    pub linkage: Linkage,
    /// Where it lives.
    pub space: Space,
    /// `.align 16` is 16.
    pub align: Option<u32>,
    /// `.v4` is 4.
    pub vector: Option<u8>,
    /// The type of one element.
    pub ty: ScalarType,
    /// What `.attribute(…)` lists, such as `.managed` and `.unified(1, 2)`.
    pub attributes: Vec<String>,
    /// `.ptr` on a kernel's parameter.
    pub pointer: Option<Pointer>,
    /// The declared names; exactly one for a parameter.
    pub declarators: Vec<Declarator>,
    /// Where it stands.
    pub span: Span,
}

/// What a kernel's parameter points to: `.ptr .global .align 4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pointer {
    /// The space of the target; None is generic.
    pub space: Option<Space>,
    /// The alignment of the target.
    pub align: Option<u32>,
}

/// One declared name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declarator {
    /// The name; `_` in a call prototype.
    pub name: String,
    /// `%r<10>` is 10 and declares `%r0` to `%r9`.
    pub count: Option<u32>,
    /// `[4][]` is `Some(4), None`.
    pub dimensions: Vec<Option<u64>>,
    /// What stands after `=`.
    pub initializer: Option<Initializer>,
}

/// What a variable holds at first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Initializer {
    /// One element.
    Value(InitValue),
    /// `{…}`
    List(Vec<Initializer>),
    /// `filter_mode = nearest`, in the list of a texture, sampler or surface.
    Field {
        /// What is set.
        name: String,
        /// What it is set to.
        value: InitValue,
    },
}

/// One element of an initializer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InitValue {
    /// From 1-2⁶³ to 2⁶⁴-1; the variable takes its low bits.
    Integer(i128),
    /// `0f3F800000`, as bits.
    F32(u32),
    /// `0d3FF0000000000000` or `1.0`, as bits.
    F64(u64),
    /// The address of a variable or function.
    Symbol(Symbol),
    /// `0xff00(name)`: the bits of the address under the mask, shifted down to bit 0.
    Mask {
        /// The bits that are taken, adjacent ones.
        mask: u64,
        /// The address.
        symbol: Symbol,
    },
}

/// `generic(name)+offset`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    /// The variable or function.
    pub name: String,
    /// Bytes past its start.
    pub offset: i64,
    /// Whether the generic address is meant rather than the one within the variable's space.
    pub generic: bool,
}

/// What kind of function it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FunctionKind {
    /// `.entry`: launched from the host.
    Kernel,
    /// `.func`: called from the device.
    Function,
}

/// A kernel or a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Who sees it.
    pub linkage: Linkage,
    /// Kernel or function.
    pub kind: FunctionKind,
    /// What `.attribute(…)` lists.
    pub attributes: Vec<String>,
    /// Its name.
    pub name: String,
    /// What it returns; empty for a kernel.
    pub returns: Vec<Variable>,
    /// Its parameters.
    pub parameters: Vec<Variable>,
    /// What stands between the parameters and the body.
    pub directives: Vec<FunctionDirective>,
    /// None for a declaration.
    pub body: Option<Vec<Statement>>,
    /// From its linkage or kind to the end of its body.
    pub span: Span,
}

/// A property of a function, such as `.maxntid 256, 1, 1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionDirective {
    /// Without its dot: `maxntid`.
    pub name: String,
    /// Its numbers.
    pub arguments: Vec<u32>,
    /// The strings of a `.pragma`, without their quotes.
    pub strings: Vec<String>,
    /// Where it stands.
    pub span: Span,
}

/// One statement of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Statement {
    /// `name:`
    Label(Label),
    /// A variable of the function or block.
    Variable(Variable),
    /// An instruction.
    Instruction(Instruction),
    /// An instruction whose operands the parser has no shape for, predicate and `;` included.
    Raw(Directive),
    /// `.loc`, `.pragma` and those that are not known.
    Directive(Directive),
    /// A label that names destinations or a signature rather than a place.
    Table(BranchTable),
    /// `{…}` with names of its own.
    Block(Vec<Statement>),
}

/// A place to branch to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// Its name.
    pub name: String,
    /// Where it stands, colon included.
    pub span: Span,
}

/// What an indirect branch or call may lead to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BranchTable {
    /// Its name.
    pub label: String,
    /// What it lists.
    pub kind: TableKind,
    /// From its label to `;`.
    pub span: Span,
}

/// What a [`BranchTable`] lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TableKind {
    /// `.branchtargets`: labels for `brx.idx`.
    Targets(Vec<String>),
    /// `.calltargets`: functions for an indirect `call`.
    CallTargets(Vec<String>),
    /// `.callprototype`: the signature of an indirect `call`.
    CallPrototype {
        /// The name between the lists, `_` from compilers.
        name: String,
        /// What the callee returns.
        returns: Vec<Variable>,
        /// What it takes.
        parameters: Vec<Variable>,
        /// `.noreturn` and the like.
        directives: Vec<FunctionDirective>,
    },
}

/// One instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instruction {
    /// `@%p1` or `@!%p1`.
    pub predicate: Option<Predicate>,
    /// `ld`
    pub opcode: String,
    /// `global`, `nc`, `v4`, `f32`; `shared::cta` and `L2::128B` are one each.
    pub modifiers: Vec<String>,
    /// In the source's order. A `call` has: a list of results where the callee returns something, the callee's
    /// name, a list of arguments where it takes some, the name of a table where the call is indirect.
    pub operands: Vec<Operand>,
    /// From its predicate to `;`.
    pub span: Span,
}

/// The condition of an instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Predicate {
    /// Whether the instruction runs where the register is false.
    pub negated: bool,
    /// The register.
    pub register: String,
}

/// One operand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operand {
    /// A register, special register (`%tid.x`), component (`%v.x`), label, variable or function.
    Name(String),
    /// A folded integer, from 1-2⁶³ to 2⁶⁴-1. Instructions take its low bits.
    Integer(i128),
    /// `0f3F800000`, as bits.
    F32(u32),
    /// `0d3FF0000000000000` or `1.0`, as bits.
    F64(u64),
    /// `[base+offset]`
    Address {
        /// What the offset is added to.
        base: AddressBase,
        /// Bytes.
        offset: i64,
    },
    /// `[base+offset, {x, y}]`: a place in what a tensor map or a texture describes.
    Tensor {
        /// What the offset is added to.
        base: AddressBase,
        /// Bytes.
        offset: i64,
        /// One for each dimension.
        coordinates: Vec<Operand>,
    },
    /// `{a, b, c, d}`
    Vector(Vec<Operand>),
    /// `p|q`
    Pair(Box<Operand>, Box<Operand>),
    /// `!p`
    Not(Box<Operand>),
    /// `-%r`
    Negative(String),
    /// `name+4` outside of brackets.
    Offset {
        /// A variable.
        name: String,
        /// Bytes.
        offset: i64,
    },
    /// `(a, b)`: the results or arguments of a `call`.
    List(Vec<Operand>),
    /// `_`: a result that nobody wants.
    Sink,
}

/// What an address starts from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddressBase {
    /// A register or variable.
    Name(String),
    /// A number.
    Integer(u64),
}
