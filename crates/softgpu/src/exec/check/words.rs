//! Findings for people.

use super::super::block::Surroundings;
use super::super::lanes::lanes_of;
use super::super::program::{Program, RESERVED_SHARED};
use super::super::warp::Warp;
use super::Accessor;
use super::shadow::{Access, Touch};
use crate::memory;

/// Whether a barrier's instruction wants all lanes of a warp at once.
pub(super) fn is_aligned(text: &str) -> bool {
    let opcode = text.split_whitespace().find(|word| !word.starts_with('@')).unwrap_or_default();
    opcode.starts_with("bar.") || opcode.contains(".aligned")
}

fn kernel(block: &Surroundings) -> String {
    let [x, y, z] = block.index;
    format!("kernel {}, block ({x}, {y}, {z})", block.kernel.properties.name)
}

fn thread(block: &Surroundings, warp: u32, lane: usize) -> String {
    let [x, y, z] = block.thread(warp, lane);
    format!("thread ({x}, {y}, {z})")
}

fn instruction(program: &Program, block: &Surroundings, (function, pc): (u32, u32)) -> String {
    let kernel = &block.kernel.properties.name;
    program.functions.get(function as usize).map(|function| function.described(pc, kernel)).unwrap_or_default()
}

fn site(program: &Program, block: &Surroundings, number: u32) -> String {
    let place = program.checks.as_ref().and_then(|checks| checks.sites.get(number as usize));
    place.map(|place| instruction(program, block, *place)).unwrap_or_default()
}

/// Who, where and in which instruction.
fn place(program: &Program, block: &Surroundings, accessor: Accessor, lane: usize) -> String {
    let thread = thread(block, accessor.warp, lane);
    format!("{}, {thread} in {}", kernel(block), site(program, block, accessor.site))
}

pub(super) fn outside(
    program: &Program,
    block: &Surroundings,
    accessor: Accessor,
    lane: usize,
    address: u64,
    bytes: u64,
) -> String {
    let place = place(program, block, accessor, lane);
    let nearby = memory::nearby(address);
    format!("access of {bytes} bytes outside of all allocations: {place}: address {address:#x}; {nearby}")
}

pub(super) fn reserved(
    program: &Program,
    block: &Surroundings,
    accessor: Accessor,
    lane: usize,
    address: u64,
) -> String {
    let place = place(program, block, accessor, lane);
    format!("access to shared memory of the system: {place}: address {address:#x}, below {RESERVED_SHARED:#x}")
}

pub(super) fn uninitialised(
    program: &Program,
    block: &Surroundings,
    accessor: Accessor,
    lane: usize,
    address: u64,
) -> String {
    let place = place(program, block, accessor, lane);
    format!("read of shared memory that nobody has written: {place}: address {address:#x}")
}

pub(super) fn race(
    program: &Program,
    block: &Surroundings,
    (accessor, lane, touch): (Accessor, usize, Touch),
    (earlier, earlier_wrote): (&Access, bool),
    address: u64,
) -> String {
    let verb = |wrote: bool| if wrote { "writes" } else { "reads" };
    let (earlier_verb, why) = if earlier.is_under_way() {
        ("copies to", "the copy is not waited for")
    } else {
        (verb(earlier_wrote), "nothing orders the two")
    };
    format!(
        "race in shared memory: {}: {} {} address {address:#x} in {}; {} {} it in {}; {why}",
        kernel(block),
        thread(block, earlier.warp(), earlier.lane()),
        earlier_verb,
        site(program, block, earlier.site()),
        thread(block, accessor.warp, lane),
        verb(touch.writes()),
        site(program, block, accessor.site),
    )
}

pub(super) fn divergent(
    program: &Program,
    block: &Surroundings,
    warp: u32,
    (lane, at): (usize, (u32, u32)),
    (other, other_at): (usize, (u32, u32)),
) -> String {
    format!(
        "lanes of a warp at different barriers: {}: {} at {}; {} at {}",
        kernel(block),
        thread(block, warp, lane),
        instruction(program, block, at),
        thread(block, warp, other),
        instruction(program, block, other_at),
    )
}

pub(super) fn partial(
    program: &Program,
    block: &Surroundings,
    warp: u32,
    waiting: u32,
    alive: u32,
    at: (u32, u32),
) -> String {
    let missing = lanes_of(alive & !waiting).next().unwrap_or_default();
    format!(
        "barrier that not all threads reach: {}: {} of the {} threads of warp {warp} are at {}; {} is not",
        kernel(block),
        waiting.count_ones(),
        alive.count_ones(),
        instruction(program, block, at),
        thread(block, warp, missing),
    )
}

pub(super) fn ended(program: &Program, block: &Surroundings, warps: &[Warp], at: (u32, u32)) -> String {
    let threads = block.threads();
    let ended = (0..threads).find(|number| {
        let warp = warps.get((number / 32) as usize);
        warp.is_some_and(|warp| warp.alive >> (number % 32) & 1 == 0)
    });
    let ended = ended.map(|number| thread(block, number / 32, (number % 32) as usize)).unwrap_or_default();
    format!(
        "barrier that not all threads reach: {}: {} of {threads} threads have ended before {}, the first of them {ended}",
        kernel(block),
        threads - block.live,
        instruction(program, block, at),
    )
}
