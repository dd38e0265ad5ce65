//! PTX text: parse, print, and kernels that can be launched in parts.
//!
//! * [`parse`] turns a source into a tree ([`ast::Module`]), its `Display` turns the tree into a source again.
//!   Both directions keep the program: a printed module parses to the same tree, but for its spans.
//! * [`ast`]: the tree. Names, opcodes and modifiers stay text, constant expressions are folded as `ptxas` folds
//!   them, and everything that a rewrite or an interpreter may point at has a [`Span`](ast::Span).
//! * [`block_level`]: versions of a module's kernels that can be launched in parts and give way in the middle, or the
//!   reason why a kernel has none.
//! * [`joined`]: which products and sums the driver's compiler makes one instruction of.
//! * [`ParseError`] says where a source is wrong and what was expected there.
//!
//! The parser knows the shape of PTX and not its meaning: it takes any opcode with any modifiers and operands. An
//! instruction whose operands have a shape of their own (`tex` with its `[texture, sampler, {x, y}]`, an array's
//! `a[1]`) is carried through as its own text, [`ast::Statement::Raw`]; so are
//! directives that are not declarations, debug sections among them. What is kept of a source's layout is nothing:
//! comments and empty lines are gone after printing, and `[x+0]` becomes `[x]`.
//!
//! Sources are not trusted. No input makes the parser or the rewrites panic, their time is linear in the source, and
//! their stack is bounded by [`MAX_DEPTH`].
//!
//! ```
//! use detshare_ptx::ast::{Item, Operand, Statement};
//!
//! let source = "
//!     .version 8.4
//!     .target sm_90
//!     .address_size 64
//!     .visible .entry twice(.param .u64 data) .maxntid 256, 1, 1
//!     {
//!         .reg .b64 %rd<2>;
//!         .reg .f32 %f<3>;
//!         ld.param.u64 %rd1, [data];
//!         ld.global.f32 %f1, [%rd1+4*2];
//!         mul.f32 %f2, %f1, 0f40000000; // times 2
//!         st.global.f32 [%rd1+8], %f2;
//!         ret;
//!     }";
//! let module = detshare_ptx::parse(source)?;
//! let [Item::Function(kernel)] = module.items.as_slice() else { panic!("one kernel") };
//! assert_eq!(kernel.name, "twice");
//! assert_eq!(kernel.directives[0].arguments, [256, 1, 1]);
//!
//! let Some(Statement::Instruction(multiply)) = kernel.body.as_ref().and_then(|body| body.get(4)) else { panic!() };
//! assert_eq!((multiply.opcode.as_str(), multiply.modifiers.as_slice()), ("mul", ["f32".to_string()].as_slice()));
//! assert_eq!(multiply.operands[2], Operand::F32(2.0_f32.to_bits()));
//! assert_eq!(detshare_ptx::line_column(source, multiply.span.start), (11, 9));
//!
//! let printed = module.to_string();
//! assert!(printed.contains("\tld.global.f32 %f1, [%rd1+8];\n"));
//! assert_eq!(detshare_ptx::parse(&printed)?.without_spans(), module.without_spans());
//! # Ok::<(), detshare_ptx::ParseError>(())
//! ```

pub mod ast;
pub mod block_level;
mod error;
pub mod fatbin;
pub mod joined;
mod lexer;
mod parser;
mod printer;
mod scalar_type;
mod spans;

pub use error::{MAX_DEPTH, ParseError, ParseErrorKind, line_column};
pub use parser::parse;
pub use scalar_type::ScalarType;
