//! A kernel that runs a range of its blocks.
//!
//! The version is launched with as many blocks as the range has. Its block b is block `first + b` of the original:
//! before anything else each thread works the position out of that number, and whatever reads `%ctaid` or `%nctaid`
//! reads this position and the original's grid instead ([`position`](super::position)).
//!
//! Everything else is the original's: parameters, shared memory, properties such as `.maxntid`, the order of all
//! instructions. Threads really exit where they did, so barriers behave as they did. Blocks of one slice run side by
//! side as the original's blocks do; blocks of different slices run one after the other, in ascending order, which is
//! an order that the original could have had. What the original must not do is wait for a block of a later slice
//! ([`waiting`](super::checks::waiting)).

use super::assemble::{Assembler, keep};
use super::position::line;
use crate::ast::{Function, Statement};

/// Bytes of [`Slice`](super::Slice).
pub(super) const WORK_SIZE: u32 = 16;

/// Where its `first` lies.
const FIRST: u32 = 12;

pub(super) fn version(original: &Function, body: &[Statement], assembler: &mut Assembler<'_, '_>) -> Function {
    let (prefix, work) = (assembler.prefix, assembler.work());
    let mut kernel = assembler.kernel(original, "sliced", WORK_SIZE);
    let position = assembler.position(assembler.needs_of(&original.name));
    let mut code = Vec::new();
    position.declare(&work, &mut code);
    if position.needs_block() {
        let (block, first) = (format!("{prefix}_block"), format!("{prefix}_first"));
        code.push(line(format!(".reg .b32 {block}, {first};")));
        code.push(line(format!("ld.param.u32 {first}, [{work}+{FIRST}];")));
        code.push(line(format!("mov.u32 {block}, %ctaid.x;")));
        code.push(line(format!("add.u32 {block}, {block}, {first};")));
        position.place(&block, &mut code);
    }
    code.extend(assembler.body(body, position, &keep));
    kernel.body = Some(code);
    kernel
}
