//! A kernel whose blocks are taken one after the other, and which gives way between two of them.
//!
//! A few *persistent* blocks are launched, as many as the GPU holds or fewer. Each of them runs blocks of the original
//! until there are no more:
//!
//! 1. One thread takes the next number from the counter, by an atomic addition of 64 bits: the number is the lower half. In the
//!    upper half stands whether to give way, so it learns that in the same moment. If so, it gives the number back, and giving way is
//!    the answer; nobody else makes use of a number that comes after the upper half was set. So every number is
//!    run by exactly one persistent block, in ascending order, and a block that was begun is run to its end.
//!    The flags lie in the host's memory, and a GPU makes one journey there after the other: a microsecond each, for all SMs together.
//!    So one thread at a time looks at them, and sets the upper half for the others; its own block it has begun. Who
//!    looks has set a word behind the counter. That is asked together with the counter, since every journey to memory is one in which
//!    nothing else is done.
//! 2. It puts the answer into shared memory, and all threads meet at a barrier and read it. An answer behind the last
//!    block (giving way is one) ends the persistent block.
//! 3. Threads run the original's code, which works the position out of the number ([`position`](super::position)), up to
//!    the common end ([`one_exit`](super::one_exit)), from where they go on with 1.
//!
//! One barrier for each block is enough, because answers have two places in turn. Threads read place A after the
//! barrier that all of them came to with the previous block behind them; so nobody uses that block's shared memory any
//! more. The thread that asks may be far ahead and write the next answer while others still read this one: that goes
//! to place B. It cannot come to write to A again before the next barrier, which all reach with the block behind them: until then A has
//! the block's number, and whatever reads the position reads A again.
//!
//! Kept are the parameters, properties, the order of instructions within each thread, and what threads of a block may
//! expect of each other. A block finds the registers, local and shared memory of the one before, where the original
//! finds something undefined. What else could be found is refused or waited for ([`leftovers`](super::checks::leftovers)).
//! The answers' place adds [`SHARED_SIZE`] bytes to the shared memory that a block declares.

use super::Persistent;
use super::assemble::Assembler;
use super::checks::barriers::Plan;
use super::checks::leftovers::Waits;
use super::one_exit::CommonEnd;
use super::position::{Origin, Position, is_in_loop, label, line, lines};
use crate::ast::{Function, Statement};
use core::mem::offset_of;

/// Bytes of [`Persistent`], and where its parts lie in the texts below.
pub(super) const WORK_SIZE: u32 = 80;
const _: () = {
    assert!(size_of::<Persistent>() == WORK_SIZE as usize && offset_of!(Persistent, blocks) == 12);
    assert!(
        offset_of!(Persistent, next) == 16 && offset_of!(Persistent, flags) == 24 && offset_of!(Persistent, mask) == 56
    );
};

/// Bytes of shared memory for the answers and what [`one_exit`](super::one_exit) keeps behind them. Six words would do; a multiple of what any access that is left needs to be
/// aligned to keeps everything else as well aligned as it was, whether it declared that or not.
pub(super) const SHARED_SIZE: u32 = 128;

/// What makes a kernel preemptible.
pub(super) struct Preemption {
    pub(super) plan: Plan,
    pub(super) waits: Waits,
    /// Whether threads of a warp can wait at different instructions.
    pub(super) independent: bool,
}

pub(super) fn version(
    original: &Function,
    body: &[Statement],
    preemption: &Preemption,
    assembler: &mut Assembler<'_, '_>,
) -> Function {
    let prefix = assembler.prefix;
    let end = CommonEnd { prefix, plan: preemption.plan };
    let mut kernel = assembler.kernel(original, "preemptible", WORK_SIZE);
    let is_kept = is_in_loop(body, &|instruction| !assembler.reads(instruction).is_empty());
    let position =
        Position { origin: Origin::Answer { is_kept }, ..assembler.position(assembler.needs_of(&original.name)) };
    let mut code: Vec<Statement> = lines(DECLARATIONS, prefix).collect();
    end.declare(&mut code);
    code.push(label(end.label()));
    code.extend(preemption.waits.instructions().map(|wait| line(wait.to_string())));
    for (part, end) in [(TAKE, "taken"), (LOOK, "told"), (TELL, "asked")] {
        code.extend(lines(part, prefix));
        code.push(label(format!("{prefix}_{end}")));
    }
    end.meet(preemption.independent, &mut code);
    code.extend(lines(ANSWERED, prefix));
    code.extend(assembler.body(body, position, &|instruction, code| end.edit(instruction, code)));
    // A body may end without a `ret`.
    code.push(line(format!("bra {};", end.label())));
    kernel.body = Some(code);
    kernel
}

/// Its [`SHARED_SIZE`] bytes, its registers, and whether a thread is the first of the block, which asks.
const DECLARATIONS: &str = "\
.shared .align 16 .b8 $answers[128];
.reg .b32 $place, $block, $blocks, $word<4>, $bits, $tid;
.reg .b64 $from, $counter;
.reg .pred $over, $other, $given;
mov.u32 $place, $answers;
ld.param.u32 $blocks, [$work+12];
mov.u32 $bits, %tid.x;
mov.u32 $tid, %tid.y;
or.b32 $bits, $bits, $tid;
mov.u32 $tid, %tid.z;
or.b32 $bits, $bits, $tid;
setp.ne.u32 $other, $bits, 0;";
const _: () = assert!(SHARED_SIZE == 128);

/// The first thread's part: the next number, or the answer that is behind all numbers.
const TAKE: &str = "\
@$other bra $asked;
ld.param.u64 $counter, [$work+16];
atom.global.or.b32 $bits, [$counter+8], 1;
atom.global.add.u64 $from, [$counter], 1;
mov.b64 {$block, $word0}, $from;
setp.eq.u32 $given, $word0, 0;
@$given bra $taken;
red.global.add.u64 [$counter], -1;
mov.u32 $block, -1;
bra $told;";

/// Nobody gives way yet, and it looks whether it is to, unless somebody else does so. Volatile is relaxed and of system scope: the
/// host and other processes write to the flags. All of them are on their way before one is looked at. The first word is 0, as it was the
/// counter's upper half.
const LOOK: &str = "\
setp.ne.u32 $given, $bits, 0;
@$given bra $told;
ld.param.u64 $from, [$work+24];
setp.ne.u64 $given, $from, 0;
@$given ld.volatile.global.u32 $word0, [$from];
ld.param.u64 $from, [$work+32];
setp.ne.u64 $given, $from, 0;
mov.u32 $word1, 0;
@$given ld.volatile.global.u32 $word1, [$from];
ld.param.u64 $from, [$work+40];
setp.ne.u64 $given, $from, 0;
mov.u32 $word2, 0;
@$given ld.volatile.global.u32 $word2, [$from];
ld.param.u64 $from, [$work+48];
setp.ne.u64 $given, $from, 0;
mov.u32 $word3, 0;
@$given ld.volatile.global.u32 $word3, [$from];
ld.param.u32 $bits, [$work+56];
or.b32 $word0, $word0, $word1;
or.b32 $word0, $word0, $word2;
or.b32 $word0, $word0, $word3;
and.b32 $bits, $bits, $word0;
setp.ne.u32 $given, $bits, 0;
@$given red.global.or.b64 [$counter], 4294967296;
@!$given st.volatile.global.u32 [$counter+8], 0;";

const TELL: &str = "\
st.volatile.shared.u32 [$place], $block;";

/// Behind the barrier: the answer, and the place of the next one.
const ANSWERED: &str = "\
ld.volatile.shared.u32 $block, [$place];
xor.b32 $place, $place, 4;
setp.ge.u32 $over, $block, $blocks;
@$over exit;";
