//! Special registers, and what registers hold when a function is entered.

use super::block::Surroundings;
use super::lanes::{LANES, Registers, low};
use super::op::{LOCAL_BASE, LaneMask, Reg, Special};
use super::program::{Function, Preset, RESERVED_SHARED};
use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Nanoseconds since the first look at the clock.
pub(super) fn clock() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    u64::try_from(START.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}

fn global_timer() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// A special register in one lane.
fn value(special: Special, block: &Surroundings, warp: u32, lane: u32) -> u64 {
    let threads = block.shape.block;
    let thread = warp * 32 + lane;
    let below = (1u32 << lane) - 1;
    match special {
        Special::Thread(0) => (thread % threads[0].max(1)).into(),
        Special::Thread(1) => (thread / threads[0].max(1) % threads[1].max(1)).into(),
        Special::Thread(_) => (thread / threads[0].saturating_mul(threads[1]).max(1)).into(),
        Special::BlockSize(axis) => threads[usize::from(axis)].into(),
        Special::BlockIndex(axis) => block.index[usize::from(axis)].into(),
        Special::GridSize(axis) => block.shape.grid[usize::from(axis)].into(),
        Special::Lane => lane.into(),
        Special::LaneMask(LaneMask::Equal) => (1u32 << lane).into(),
        Special::LaneMask(LaneMask::Less) => below.into(),
        Special::LaneMask(LaneMask::LessEqual) => (below | 1 << lane).into(),
        Special::LaneMask(LaneMask::Greater) => (!(below | 1 << lane)).into(),
        Special::LaneMask(LaneMask::GreaterEqual) => (!below).into(),
        Special::Warp => warp.into(),
        Special::WarpCount => block.threads().div_ceil(32).into(),
        Special::Sm => block.sm.into(),
        Special::SmCount => block.shape.sm_count.into(),
        Special::Grid => block.shape.grid_id,
        Special::DynamicShared => block.shape.dynamic_shared.into(),
        Special::TotalShared => block.shared.len() as u64 - u64::from(RESERVED_SHARED),
        Special::ClusterIndex(axis) => {
            let axis = usize::from(axis);
            (block.index[axis] / block.shape.cluster_size()[axis].max(1)).into()
        }
        Special::ClusterCount(axis) => block.shape.clusters()[usize::from(axis)].into(),
        Special::IndexInCluster(axis) => {
            let axis = usize::from(axis);
            (block.index[axis] % block.shape.cluster_size()[axis].max(1)).into()
        }
        Special::ClusterSize(axis) => block.shape.cluster_size()[usize::from(axis)].into(),
        Special::ClusterRank => block.rank.into(),
        Special::ClusterBlocks => block.shape.cluster_size().iter().product::<u32>().into(),
        Special::ExplicitCluster => block.shape.cluster.is_some().into(),
        Special::Environment(number) => {
            let workspace = block.shape.workspace.as_ref().map_or(0, |workspace| workspace.address());
            match number {
                1 => workspace >> 32,
                2 => u64::from(low(workspace)),
                _ => 0,
            }
        }
        Special::Always(value) => value.into(),
        Special::Clock => u64::from(low(clock())),
        Special::ClockHigh => clock() >> 32,
        Special::Clock64 => clock(),
        Special::GlobalTimer => global_timer(),
        Special::GlobalTimerLow => u64::from(low(global_timer())),
        Special::GlobalTimerHigh => global_timer() >> 32,
    }
}

/// A special register in all lanes.
fn values(special: Special, block: &Surroundings, warp: u32) -> [u64; LANES] {
    let mut lane = 0;
    [(); LANES].map(|()| {
        lane += 1;
        value(special, block, warp, lane - 1)
    })
}

/// Reads a register that changes while a kernel runs; all lanes see the same.
pub(super) fn read(r: &mut Registers, d: Reg, special: Special, block: &Surroundings, warp: u32, mask: u32) {
    let now = value(special, block, warp, 0);
    r.write(d, mask, &[now; LANES]);
}

/// What registers begin with where programs are tried out in other orders: bits of both kinds, wherever they are cut.
const UNWRITTEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The registers of a function that is entered for the first time by this warp.
pub(super) fn registers(function: &Function, block: &Surroundings, warp: u32) -> Registers {
    // A program must not care what a register holds that nobody has written; it is another for each block.
    let turn = |seed| block.index.iter().fold(low(seed), |sum, axis| sum.wrapping_add(*axis));
    let turn = crate::device::settings().order.map(turn);
    let unwritten = turn.map_or(0, |turn| UNWRITTEN.rotate_left(turn % 64));
    let held = if turn.is_some_and(|turn| turn % 2 == 1) { u32::MAX } else { 0 };
    let mut r = Registers {
        narrow: vec![[low(unwritten); LANES]; function.narrow as usize],
        wide: vec![[unwritten; LANES]; function.wide as usize],
        predicates: vec![held; function.predicates as usize],
        carry: 0,
    };
    r.wide[LOCAL_BASE as usize] = [0; LANES];
    let shared = |variable: u32, offset: i64| {
        let start = block.kernel.shared.get(&variable).copied().unwrap_or_default();
        u64::from(start).wrapping_add_signed(offset)
    };
    for preset in &function.presets {
        match *preset {
            Preset::Narrow { slot, value } => r.narrow[slot as usize] = [value; LANES],
            Preset::Wide { slot, value } => r.wide[slot as usize] = [value; LANES],
            Preset::Predicate { slot, value } => r.predicates[slot as usize] = if value { u32::MAX } else { 0 },
            Preset::NarrowSpecial { slot, special } => {
                r.narrow[slot as usize] = values(special, block, warp).map(low);
            }
            Preset::WideSpecial { slot, special } => r.wide[slot as usize] = values(special, block, warp),
            Preset::NarrowShared { slot, variable, offset } => {
                r.narrow[slot as usize] = [low(shared(variable, offset)); LANES];
            }
            Preset::WideShared { slot, variable, offset } => {
                r.wide[slot as usize] = [shared(variable, offset); LANES];
            }
        }
    }
    r
}
