//! Where threads meet, and who may have left by then.
//!
//! In the original a thread that leaves is gone, and barriers go on without it. In a preemptible version it goes to
//! the common end and is still there. So each instruction at which threads wait for each other is looked at: can a
//! thread be at the end while others are still to come there? It cannot
//!
//! * where all threads run the instruction alike ([`uniformity`]): all of the block for a barrier, all of the warp for
//!   what is among a warp;
//! * where all threads pass a barrier later on, before any of them can leave.
//!
//! Otherwise a barrier needs the threads at the end to take part ([`one_exit`](crate::block_level::one_exit)), which
//! they can in one barrier only; and what is among a warp is refused, since it may name the threads that have left.

use super::uniformity::{Level, Levels, levels};
use crate::ast::{Instruction, Operand};
use crate::block_level::code::{Code, Step};
use crate::block_level::flow::Effort;
use crate::block_level::refusal::{Finding, RefusalKind};
use std::collections::{BTreeSet, HashMap};

/// The barriers that a block has.
const BARRIERS: u32 = 16;

/// How threads wait for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::block_level) enum Meeting {
    /// All threads of the block that have not left.
    Block {
        /// Which barrier, where that is a constant.
        number: Option<u32>,
        /// Whether it also gives a result.
        reduces: bool,
    },
    /// As many threads as it says.
    Counted {
        /// Which barrier, where that is a constant.
        number: Option<u32>,
    },
    /// Threads of a warp that a mask names.
    Warp,
}

/// The meeting that an instruction is.
pub(in crate::block_level) fn meeting(instruction: &Instruction) -> Option<Meeting> {
    match instruction.opcode.as_str() {
        "shfl" | "vote" | "match" | "redux" | "elect" => Some(Meeting::Warp),
        "bar" | "barrier" if instruction.has("warp") => Some(Meeting::Warp),
        "bar" | "barrier" => {
            let reduces = instruction.has("red");
            // A reduction has a result before the barrier's number and a predicate behind everything.
            let (at, extra) = if reduces { (1, 2) } else { (0, 0) };
            let number = match instruction.operands.get(at) {
                Some(Operand::Integer(number)) => u32::try_from(*number).ok().filter(|it| *it < BARRIERS),
                _ => None,
            };
            match instruction.operands.len() - extra.min(instruction.operands.len()) {
                0 | 1 => Some(Meeting::Block { number, reduces }),
                _ => Some(Meeting::Counted { number }),
            }
        }
        _ => None,
    }
}

/// What is among a function's meetings, those of the functions that it calls included.
#[derive(Debug, Clone, Default)]
pub(in crate::block_level) struct Meetings {
    /// Barriers of the whole block.
    block: BTreeSet<Option<u32>>,
    /// Barriers with a count.
    counted: BTreeSet<Option<u32>>,
    reduces: bool,
    warp: bool,
    /// The first that some threads may have left before.
    left_block: Option<Finding>,
    left_warp: Option<Finding>,
    /// A barrier of the whole block in a called function.
    in_function: bool,
    /// Whether it holds only for launches whose warps lie within rows.
    whole_rows: bool,
}

/// How a preemptible version keeps blocks apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::block_level) struct Plan {
    /// The barrier at the common end.
    pub(in crate::block_level) barrier: u32,
    /// Whether threads at the end take part in the barriers of the others.
    pub(in crate::block_level) parks: bool,
    /// Whether the version may be launched with whole rows of warps only.
    pub(in crate::block_level) whole_rows: bool,
}

/// The meetings of a function; `called` are those of the functions that it calls, as far as they have some.
pub(in crate::block_level) fn meetings(
    code: &Code<'_>,
    meets: &[Option<u32>],
    called: &HashMap<&str, Meetings>,
    effort: &mut Effort,
) -> Result<Meetings, Finding> {
    let mut found = Meetings::default();
    let mut places: Vec<Place<'_, '_>> = Vec::new();
    for (index, step) in code.steps.iter().enumerate() {
        let mut add = |block: bool, warp: bool| places.push(Place { index, step, block, warp });
        match meeting(step.instruction) {
            Some(Meeting::Block { number, reduces }) => {
                found.block.insert(number);
                found.reduces |= reduces;
                add(true, false);
            }
            Some(Meeting::Counted { number }) => {
                found.counted.insert(number);
            }
            Some(Meeting::Warp) => {
                found.warp = true;
                add(false, true);
            }
            None => {}
        }
        if let Some(inner) = step.instruction.callee().and_then(|(_, callee)| called.get(callee)) {
            found.take_over(inner);
            add(!inner.block.is_empty(), inner.warp);
        }
    }
    if places.is_empty() {
        return Ok(found);
    }
    let plain = levels(code, meets, false, effort)?;
    let later = Later::new(code, meets, &plain);
    let whole = |place: &Place<'_, '_>, most: Level, levels: &Levels| {
        levels.of(place.step) <= most || later.passes(place.index, place.step)
    };
    let left =
        |place: &Place<'_, '_>, kind| Finding::at(kind, place.step.instruction, place.step.instruction.span.start);
    let block = places.iter().find(|place| place.block && !whole(place, Level::Block, &plain));
    found.left_block = found.left_block.or(block.map(|place| left(place, RefusalKind::Barrier)));
    let warps = || places.iter().filter(|place| place.warp);
    if warps().all(|place| whole(place, Level::Warp, &plain)) {
        return Ok(found);
    }
    let rows = levels(code, meets, true, effort)?;
    found.whole_rows = true;
    let warp = warps().find(|place| !whole(place, Level::Warp, &rows));
    found.left_warp = found.left_warp.or(warp.map(|place| left(place, RefusalKind::EarlyExit)));
    Ok(found)
}

/// A step at which threads meet, or that calls a function in which they do.
struct Place<'c, 'm> {
    index: usize,
    step: &'c Step<'m>,
    block: bool,
    warp: bool,
}

impl Meetings {
    /// Whether there are none.
    pub(in crate::block_level) fn is_empty(&self) -> bool {
        self.block.is_empty() && self.counted.is_empty() && !self.warp
    }

    /// A called function's own.
    fn take_over(&mut self, inner: &Self) {
        self.block.extend(&inner.block);
        self.counted.extend(&inner.counted);
        self.reduces |= inner.reduces;
        self.warp |= inner.warp;
        self.left_block = self.left_block.take().or_else(|| inner.left_block.clone());
        self.left_warp = self.left_warp.take().or_else(|| inner.left_warp.clone());
        self.in_function |= !inner.block.is_empty();
        self.whole_rows |= inner.whole_rows;
    }

    /// How a kernel with these meetings is made preemptible. `can_park`: whether threads of a warp can wait at
    /// different instructions, which is so from sm_70 on.
    pub(in crate::block_level) fn plan(&self, can_park: bool) -> Result<Plan, Finding> {
        if let Some(finding) = &self.left_warp {
            return Err(finding.clone());
        }
        let whole_rows = self.whole_rows;
        let refused = |detail: &str| Finding::whole(RefusalKind::Barrier, detail);
        if self.counted.contains(&None) {
            return Err(refused("a barrier with a count has a number that is not constant"));
        }
        let is_free = |number: &u32| !self.counted.contains(&Some(*number));
        let Some(left) = &self.left_block else {
            let barrier = (0..BARRIERS).find(is_free);
            let barrier = barrier.ok_or_else(|| refused("all barriers are used with counts"))?;
            return Ok(Plan { barrier, parks: false, whole_rows });
        };
        let mut numbers = self.block.iter();
        match (numbers.next(), numbers.next()) {
            (Some(Some(barrier)), None) if is_free(barrier) && !self.reduces && !self.in_function && can_park => {
                Ok(Plan { barrier: *barrier, parks: true, whole_rows })
            }
            _ => Err(left.clone()),
        }
    }
}

/// Which steps all threads pass a barrier after.
struct Later {
    /// For each block the last step that is such a barrier.
    last: Vec<Option<usize>>,
    /// Whether there is one in a block that all ways from the block lead through.
    ahead: Vec<bool>,
}

impl Later {
    fn new(code: &Code<'_>, meets: &[Option<u32>], levels: &Levels) -> Self {
        let is_barrier = |step: &Step<'_>| {
            matches!(meeting(step.instruction), Some(Meeting::Block { .. })) && levels.of(step) == Level::Block
        };
        let last: Vec<_> = code
            .blocks
            .iter()
            .map(|block| block.steps.clone().rev().find(|index| is_barrier(&code.steps[*index])))
            .collect();
        let mut ahead: Vec<Option<bool>> = vec![None; code.blocks.len()];
        for start in 0..code.blocks.len() {
            let mut path = vec![start];
            let mut found = false;
            while let Some(at) = path.last().copied() {
                if let Some(known) = ahead[at] {
                    found = known;
                    path.pop();
                    break;
                }
                match meets[at].map(|next| next as usize).filter(|next| *next < last.len()) {
                    Some(next) if last[next].is_some() => {
                        found = true;
                        break;
                    }
                    Some(next) => path.push(next),
                    None => break,
                }
            }
            path.into_iter().for_each(|block| ahead[block] = Some(found));
        }
        Self { last, ahead: ahead.into_iter().map(|known| known.unwrap_or_default()).collect() }
    }

    fn passes(&self, index: usize, step: &Step<'_>) -> bool {
        let block = step.block as usize;
        self.last[block].is_some_and(|last| last > index) || self.ahead[block]
    }
}
