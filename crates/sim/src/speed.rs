//! How fast kernels run: by the SMs that each has, by who else is on them, and by the memory bandwidth that all share.

use crate::costs::Costs;
use crate::trace;
use core::ops::Range;
use detshare_policy::Bound;

/// The speed of a kernel that has the GPU for itself. All speeds are parts of it, and work is time at it.
pub(crate) const FULL_SPEED: u64 = 1 << 16;
/// A kernel that shares SMs has parts of them: so many make one.
const PARTS_OF_AN_SM: u64 = 256;
/// The weight of a kernel that never waits for room.
const FULL_WEIGHT: u64 = 1 << 10;

/// SMs, by their numbers.
pub(crate) type Sms = Range<u32>;

/// What the model knows of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Model {
    /// On all SMs, with nobody else there.
    pub(crate) lasts_ns: u64,
    /// What each of a graph's kernels takes.
    node_ns: u64,
    /// What it needs most, where that is known.
    pub(crate) bound: Option<Bound>,
    /// Speeds by width, in parts of SMs: lines between these points, the first of which comes from nothing.
    points: Vec<(u64, u64)>,
}

impl Model {
    pub(crate) fn new(kernel: &trace::Kernel, sms: u32, costs: &Costs) -> Self {
        let lasts_ns = kernel.durations.last().map_or(1, |duration| duration.ns);
        // Nothing is faster on fewer SMs: what was measured so was measured badly.
        let speed = |ns: u64| (lasts_ns * FULL_SPEED / ns).clamp(1, FULL_SPEED);
        let mut points: Vec<(u64, u64)> =
            kernel.durations.iter().map(|on| (u64::from(on.sms) * PARTS_OF_AN_SM, speed(on.ns))).collect();
        let bound = kernel.bound.map(known).or_else(|| told_by_durations(&kernel.durations));
        if points.len() == 1 && bound == Some(Bound::Memory) && sms > 1 {
            let half = u64::from(sms) * PARTS_OF_AN_SM / 2;
            points.insert(0, (half, (FULL_SPEED * costs.memory_on_half / 1_000).max(1)));
        }
        let node_ns = (lasts_ns / u64::from(kernel.nodes)).max(1);
        Self { lasts_ns, node_ns, bound, points }
    }

    /// How fast it is with so many parts of SMs.
    fn speed(&self, width: u64) -> u64 {
        let mut before = (0, 0);
        for point in &self.points {
            if width < point.0 {
                return (before.1 + (point.1.saturating_sub(before.1)) * (width - before.0) / (point.0 - before.0))
                    .max(1);
            }
            before = *point;
        }
        before.1
    }

    /// How long it takes on so many SMs of its own.
    pub(crate) fn lasts_on(&self, width: u32) -> u64 {
        self.lasts_ns * FULL_SPEED / self.speed(u64::from(width) * PARTS_OF_AN_SM)
    }

    fn is_memory_bound(&self) -> bool {
        self.bound == Some(Bound::Memory)
    }

    /// Its part where several are on the same SMs. Each of a graph's kernels has to find room: it waits until blocks of the
    /// others end, which takes as long as they run. Who waits for most of the time has little of the SMs.
    fn weight(&self, others_node_ns: u64, costs: &Costs) -> u64 {
        let waits_ns = others_node_ns.min(costs.block_ns);
        (FULL_WEIGHT * self.node_ns / (self.node_ns + waits_ns)).max(1)
    }
}

fn known(bound: trace::Bound) -> Bound {
    match bound {
        trace::Bound::Compute => Bound::Compute,
        trace::Bound::Memory => Bound::Memory,
    }
}

/// What the durations say: who needs the SMs most is slower where it lacks them.
pub(crate) fn told_by_durations(durations: &[trace::OnSms]) -> Option<Bound> {
    let [narrowest, .., full] = durations else { return None };
    Bound::told_by((full.ns, full.sms), (narrowest.ns, narrowest.sms))
}

/// A kernel that is on SMs.
#[derive(Debug, Clone)]
pub(crate) struct Placed<'a> {
    pub(crate) model: &'a Model,
    pub(crate) lane: Sms,
}

/// How fast all of these run at once.
pub(crate) fn speeds(placed: &[Placed<'_>], costs: &Costs, speeds: &mut Vec<u64>) {
    speeds.clear();
    if let [only] = placed {
        speeds.push(only.model.speed(u64::from(only.lane.end - only.lane.start) * PARTS_OF_AN_SM));
        return;
    }
    widths(placed, costs, speeds);
    for (placed, speed) in placed.iter().zip(speeds.iter_mut()) {
        *speed = placed.model.speed(*speed);
    }
    share_bandwidth(placed, costs, speeds);
}

/// The parts of SMs that each has: of those that several are on, each has its part by weight.
fn widths(placed: &[Placed<'_>], costs: &Costs, widths: &mut Vec<u64>) {
    widths.resize(placed.len(), 0);
    let mut from = 0;
    // Pieces of the GPU that are the same to all. There are at most twice as many as kernels.
    while let Some(to) = next_edge(placed, from) {
        let piece = u64::from(to - from) * PARTS_OF_AN_SM;
        let here = || placed.iter().enumerate().filter(|(_, one)| one.lane.contains(&from));
        let (mut longest, mut second, mut count) = (0, 0, 0_u32);
        for (_, one) in here() {
            let node_ns = one.model.node_ns;
            (longest, second) = if node_ns > longest { (node_ns, longest) } else { (longest, second.max(node_ns)) };
            count += 1;
        }
        if count == 1 {
            here().for_each(|(index, _)| widths[index] += piece);
        } else {
            // Who is the longest waits for the second.
            let others = |one: &Placed<'_>| if one.model.node_ns == longest { second } else { longest };
            let weight = |one: &Placed<'_>| one.model.weight(others(one), costs);
            let total: u64 = here().map(|(_, one)| weight(one)).sum();
            here().for_each(|(index, one)| widths[index] += piece * weight(one) / total.max(1));
        }
        from = to;
    }
}

/// The next SM after this at which any lane begins or ends.
fn next_edge(placed: &[Placed<'_>], from: u32) -> Option<u32> {
    let edges = placed.iter().flat_map(|one| [one.lane.start, one.lane.end]);
    edges.filter(|edge| *edge > from).min()
}

/// Compute-bound kernels take little bandwidth and get it. The others divide what is left, each by what it would take.
fn share_bandwidth(placed: &[Placed<'_>], costs: &Costs, speeds: &mut [u64]) {
    let of = |is_memory_bound: bool, speeds: &[u64]| -> u64 {
        let these = placed.iter().zip(speeds).filter(|(one, _)| one.model.is_memory_bound() == is_memory_bound);
        these.map(|(_, speed)| *speed).sum()
    };
    let wanted = of(true, speeds);
    let left = FULL_SPEED.saturating_sub(of(false, speeds) * costs.compute_bandwidth / 1_000).max(1);
    if wanted > left {
        for (_, speed) in placed.iter().zip(speeds).filter(|(one, _)| one.model.is_memory_bound()) {
            *speed = (*speed * left / wanted).max(1);
        }
    }
}

#[cfg(test)]
#[path = "speed_tests.rs"]
mod tests;
