//! A kernel whose blocks are taken one after the other, and which gives way between two of them.
//!
//! A few *persistent* blocks are launched, as many as the GPU holds or fewer. Each of them runs blocks of the original
//! until there are no more:
//!
//! 1. One thread looks at the flags. If one asks to give way, that is the answer; otherwise it takes the next number
//!    from the counter, by an atomic addition. So every number is taken by exactly one persistent block, in ascending
//!    order, and none is taken and not run: a block that was begun is run to its end.
//! 2. It puts the answer into shared memory, and all threads meet at a barrier and read it. An answer behind the last
//!    block (giving way is one) ends the persistent block.
//! 3. Threads work the position out of the number ([`position`](super::position)) and run the original's code, up to
//!    the common end ([`one_exit`](super::one_exit)), from where they go on with 1.
//!
//! One barrier for each block is enough, because answers have two places in turn. Threads read place A after the
//! barrier that all of them came to with the previous block behind them; so nobody uses that block's shared memory any
//! more. The thread that asks may be far ahead and write the next answer while others still read this one: that goes
//! to place B. It cannot come to write to A again before the next barrier, which all reach after having read A.
//!
//! Kept are the parameters, properties, the order of instructions within each thread, and what threads of a block may
//! expect of each other. A block finds the registers, local and shared memory of the one before, where the original
//! finds something undefined. What else could be found is refused or waited for ([`leftovers`](super::checks::leftovers)).
//! The answers' place adds [`SHARED_SIZE`] bytes to the shared memory that a block declares.

use super::assemble::Assembler;
use super::checks::barriers::Plan;
use super::checks::leftovers::Waits;
use super::one_exit::CommonEnd;
use super::position::{label, line};
use crate::ast::{Function, Statement};

/// Bytes of [`Persistent`](super::Persistent), and where its parts lie.
pub(super) const WORK_SIZE: u32 = 64;
const BLOCKS: u32 = 12;
const NEXT: u32 = 16;
const FLAGS: [u32; 4] = [24, 32, 40, 48];
const MASK: u32 = 56;

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
    let (prefix, work) = (assembler.prefix, assembler.work());
    let end = CommonEnd { prefix, plan: preemption.plan };
    let mut kernel = assembler.kernel(original, "preemptible", WORK_SIZE);
    let position = assembler.position(assembler.needs_of(&original.name));
    let mut code = declarations(prefix, &work);
    end.declare(&mut code);
    position.declare(&work, &mut code);
    code.push(label(end.label()));
    code.extend(preemption.waits.instructions().map(|wait| line(wait.to_string())));
    code.extend(ask(prefix, &work));
    end.meet(preemption.independent, &mut code);
    code.push(line(format!("ld.volatile.shared.u32 {prefix}_block, [{prefix}_place];")));
    code.push(line(format!("xor.b32 {prefix}_place, {prefix}_place, 4;")));
    code.push(line(format!("setp.ge.u32 {prefix}_over, {prefix}_block, {prefix}_blocks;")));
    code.push(line(format!("@{prefix}_over exit;")));
    position.place(&format!("{prefix}_block"), &mut code);
    code.extend(assembler.body(body, position, &|instruction, code| end.edit(instruction, code)));
    // A body may end without a `ret`.
    code.push(line(format!("bra {};", end.label())));
    kernel.body = Some(code);
    kernel
}

fn declarations(prefix: &str, work: &str) -> Vec<Statement> {
    [
        format!(".shared .align 16 .b8 {prefix}_answers[{SHARED_SIZE}];"),
        format!(
            ".reg .b32 {prefix}_place, {prefix}_block, {prefix}_blocks, {prefix}_word<{count}>, {prefix}_bits, {prefix}_tid;",
            count = FLAGS.len(),
        ),
        format!(".reg .b64 {prefix}_from;"),
        format!(".reg .pred {prefix}_over, {prefix}_other, {prefix}_stop, {prefix}_given;"),
        format!("mov.u32 {prefix}_place, {prefix}_answers;"),
        format!("ld.param.u32 {prefix}_blocks, [{work}+{BLOCKS}];"),
        // The first thread of the block asks.
        format!("mov.u32 {prefix}_bits, %tid.x;"),
        format!("mov.u32 {prefix}_tid, %tid.y;"),
        format!("or.b32 {prefix}_bits, {prefix}_bits, {prefix}_tid;"),
        format!("mov.u32 {prefix}_tid, %tid.z;"),
        format!("or.b32 {prefix}_bits, {prefix}_bits, {prefix}_tid;"),
        format!("setp.ne.u32 {prefix}_other, {prefix}_bits, 0;"),
    ]
    .map(line)
    .into()
}

/// The first thread's part: the answer is the next number, or one behind all of them. All flags are on their way before one is
/// looked at: they lie in the host's memory, and one journey there is what a block can afford.
fn ask(prefix: &str, work: &str) -> Vec<Statement> {
    let mut code = vec![format!("@{prefix}_other bra {prefix}_asked;")];
    for (word, flag) in FLAGS.into_iter().enumerate() {
        code.extend([
            format!("ld.param.u64 {prefix}_from, [{work}+{flag}];"),
            format!("setp.ne.u64 {prefix}_given, {prefix}_from, 0;"),
            format!("mov.u32 {prefix}_word{word}, 0;"),
            // Volatile is relaxed and of system scope: the host and other processes write to it.
            format!("@{prefix}_given ld.volatile.global.u32 {prefix}_word{word}, [{prefix}_from];"),
        ]);
    }
    code.push(format!("ld.param.u32 {prefix}_bits, [{work}+{MASK}];"));
    code.extend((1..FLAGS.len()).map(|word| format!("or.b32 {prefix}_word0, {prefix}_word0, {prefix}_word{word};")));
    code.extend([
        format!("and.b32 {prefix}_bits, {prefix}_bits, {prefix}_word0;"),
        format!("setp.ne.u32 {prefix}_stop, {prefix}_bits, 0;"),
        format!("mov.u32 {prefix}_block, -1;"),
        format!("ld.param.u64 {prefix}_from, [{work}+{NEXT}];"),
        format!("@!{prefix}_stop atom.global.add.u32 {prefix}_block, [{prefix}_from], 1;"),
        format!("st.volatile.shared.u32 [{prefix}_place], {prefix}_block;"),
    ]);
    code.into_iter().map(line).chain([label(format!("{prefix}_asked"))]).collect()
}
