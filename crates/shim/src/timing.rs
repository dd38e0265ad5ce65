//! What a kernel takes, from two events round its launch.
//!
//! There is more between them than the kernel. The GPU takes its time for the events themselves; and where the stream had
//! nothing left to do, the first event happens while the host still makes the launch. For a kernel of a few microseconds
//! that is as much again.

/// How a launch was made between its events.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Made {
    /// Whether the stream had nothing left to do before.
    pub(crate) was_idle: bool,
    /// Whether the first event had happened by the end of it.
    pub(crate) has_begun: bool,
    /// How long the host took to make it.
    pub(crate) ns: u64,
}

/// What the kernel took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Measured {
    pub(crate) ns: u64,
    /// Whether that can be relied on.
    pub(crate) is_sure: bool,
}

/// What is in doubt may be such a part of what was measured, and no more.
const DOUBTFUL_PART: u64 = 20;

/// What the kernel took, with so much between its events and so much between two with nothing between them, where the host
/// usually takes so long to make such a launch; 0 is unknown.
pub(crate) fn kernel_took(between_ns: u64, empty_ns: u64, usual_ns: u64, made: Made) -> Measured {
    let matters = made.ns > between_ns / DOUBTFUL_PART;
    // Where it took longer than usual, nobody knows whether the launch was there before or after what kept it.
    let is_unusual = usual_ns == 0 || made.ns > usual_ns.saturating_add(usual_ns / 4);
    let (extra_ns, in_doubt) =
        if made.was_idle { (empty_ns.max(made.ns), is_unusual) } else { (empty_ns, made.has_begun) };
    let ns = between_ns.saturating_sub(extra_ns);
    if ns < empty_ns.max(1) || (matters && in_doubt) {
        return Measured { ns: between_ns.max(1), is_sure: false };
    }
    Measured { ns, is_sure: true }
}
