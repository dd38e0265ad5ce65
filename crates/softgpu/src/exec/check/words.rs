//! Findings for people.

use super::super::block::Surroundings;
use super::super::lanes::lanes_of;
use super::super::program::{Program, RESERVED_SHARED};
use super::super::warp::Warp;
use super::shadow::{Access, Touch};
use super::{Moment, Place};
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

/// A thread of a block.
fn thread(block: &Surroundings, warp: u32, lane: usize) -> String {
    let [x, y, z] = block.thread(warp, lane);
    format!("thread ({x}, {y}, {z})")
}

/// A thread of the cluster, by the number that its warp has there; it is said which block it is in if that is another one.
fn thread_of_cluster(block: &Surroundings, warp: u32, lane: usize) -> String {
    let warps = block.threads().div_ceil(32).max(1);
    format!("{}{}", thread(block, warp % warps, lane), of_block(block, warp / warps))
}

/// What is of another block than this one.
fn of_block(block: &Surroundings, rank: u32) -> String {
    if rank == block.rank {
        return String::new();
    }
    let size = block.shape.cluster_size();
    let within = |rank: u32| [rank % size[0], rank / size[0] % size[1], rank / size[0] / size[1]];
    let (own, other) = (within(block.rank), within(rank));
    let axis = |axis: usize| block.index[axis] - own[axis] + other[axis];
    format!(" of block ({}, {}, {})", axis(0), axis(1), axis(2))
}

/// An address in the shared memory of the cluster.
fn shared(block: &Surroundings, (rank, address): Place) -> String {
    format!("address {address:#x}{}", of_block(block, rank))
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
fn place(Moment { program, block, accessor }: Moment<'_>, lane: usize) -> String {
    let thread = thread_of_cluster(block, accessor.warp, lane);
    format!("{}, {thread} in {}", kernel(block), site(program, block, accessor.site))
}

pub(super) fn outside(moment: Moment<'_>, lane: usize, address: u64, bytes: u64) -> String {
    let place = place(moment, lane);
    let nearby = memory::nearby(address);
    format!("access of {bytes} bytes outside of all allocations: {place}: address {address:#x}; {nearby}")
}

pub(super) fn reserved(moment: Moment<'_>, lane: usize, at: Place) -> String {
    let (place, address) = (place(moment, lane), shared(moment.block, at));
    format!("access to shared memory of the system: {place}: {address}, below {RESERVED_SHARED:#x}")
}

pub(super) fn uninitialised(moment: Moment<'_>, lane: usize, at: Place) -> String {
    let (place, address) = (place(moment, lane), shared(moment.block, at));
    format!("read of shared memory that nobody has written: {place}: {address}")
}

fn verb(wrote: bool) -> &'static str {
    if wrote { "writes" } else { "reads" }
}

/// Two accesses to the same place.
fn both(
    Moment { program, block, accessor }: Moment<'_>,
    (earlier, earlier_verb): (&Access, &str),
    (lane, later_verb): (usize, &str),
    at: Place,
) -> String {
    format!(
        "race in shared memory: {}: {} {earlier_verb} {} in {}; {} {later_verb} it in {}",
        kernel(block),
        thread_of_cluster(block, earlier.warp(), earlier.lane()),
        shared(block, at),
        site(program, block, earlier.site()),
        thread_of_cluster(block, accessor.warp, lane),
        site(program, block, accessor.site),
    )
}

pub(super) fn race(
    moment: Moment<'_>,
    (lane, touch): (usize, Touch),
    (earlier, earlier_wrote): (&Access, bool),
    at: Place,
) -> String {
    let (earlier_verb, why) = match (earlier.is_under_way() || earlier.agent().is_some(), earlier_wrote) {
        (true, true) => ("copies to", "the copy is not waited for"),
        (true, false) => ("reads", "that the first is done is not waited for"),
        (false, wrote) => (verb(wrote), "nothing orders the two"),
    };
    format!("{}; {why}", both(moment, (earlier, earlier_verb), (lane, verb(touch.writes())), at))
}

pub(super) fn unfenced(moment: Moment<'_>, lane: usize, earlier: &Access, at: Place) -> String {
    let both = both(moment, (earlier, verb(true)), (lane, verb(false)), at);
    format!("{both}; no fence.proxy.async is between the two")
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
