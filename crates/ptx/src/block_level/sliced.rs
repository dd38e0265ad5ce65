//! A kernel that runs a range of its blocks.
//!
//! The version is launched with as many blocks as the range has. Its block b is block `first + b` of the original:
//! whatever reads `%ctaid` or `%nctaid` works the position out of that number, and reads it and the original's grid
//! instead ([`position`](super::position)).
//!
//! Everything else is the original's: parameters, shared memory, properties such as `.maxntid`, the order of all
//! instructions. Threads really exit where they did, so barriers behave as they did. Blocks of one slice run side by
//! side as the original's blocks do; blocks of different slices run one after the other, in ascending order, which is
//! an order that the original could have had. What the original must not do is wait for a block of a later slice
//! ([`waiting`](super::checks::waiting)).

use super::Slice;
use super::assemble::{Assembler, keep};
use super::position::{Origin, Position};
use crate::ast::{Function, Statement};

/// Bytes of [`Slice`].
pub(super) const WORK_SIZE: u32 = 32;
const _: () = assert!(size_of::<Slice>() == WORK_SIZE as usize);

pub(super) fn version(original: &Function, body: &[Statement], assembler: &mut Assembler<'_, '_>) -> Function {
    let mut kernel = assembler.kernel(original, "sliced", WORK_SIZE);
    let position = Position { origin: Origin::Slice, ..assembler.position(assembler.needs_of(&original.name)) };
    kernel.body = Some(assembler.body(body, position, &keep));
    kernel
}
