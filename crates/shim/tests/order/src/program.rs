//! A program: what each host thread asks of the driver, as data that can be run, simulated and read.
//!
//! Everything is named by number: streams, events, graphs, cells. The steps stand in one order in which they may
//! have been issued; each thread runs its own ones in that order.

use std::fmt;

/// How many host threads a program has at most.
pub(crate) const MAX_THREADS: usize = 4;
/// The legacy default stream's number.
pub(crate) const LEGACY: StreamId = 0;
/// How many streams are there without being created: the legacy one, and each thread's.
pub(crate) const DEFAULT_STREAMS: usize = 1 + MAX_THREADS;

/// How many words of pinned host memory programs share with the device.
pub(crate) const PINNED_CELLS: usize = 4;
/// How many words of device memory there can be.
pub(crate) const MAX_DEVICE_CELLS: usize = 16;
/// How many words streams write to and wait for: the first half on the device, the second pinned.
pub(crate) const FLAGS: usize = 8;
/// How many words hold a stream until the host lets it go.
pub(crate) const GATES: usize = 3;

pub(crate) type StreamId = usize;
pub(crate) type EventId = usize;
pub(crate) type GraphId = usize;
pub(crate) type ExecId = usize;
pub(crate) type NodeId = usize;

/// The number of a thread's own default stream.
pub(crate) fn per_thread(thread: usize) -> StreamId {
    1 + thread
}

/// Where a word lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cell {
    Device(usize),
    Pinned(usize),
    /// From the stream-ordered allocator.
    Pool(usize),
}

/// What may run in a stream or be a node of a graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// A kernel: `cell = cell * 3 + add`. It spins first, or between reading and writing.
    Step {
        cell: Cell,
        add: u32,
        spin: u32,
        reads_first: bool,
    },
    /// A kernel: `to = to * 5 + from`, after spinning.
    Mix {
        from: Cell,
        to: Cell,
        spin: u32,
    },
    Copy {
        from: Cell,
        to: Cell,
    },
    Set {
        cell: Cell,
        value: u32,
    },
    /// A function of the host: `cell = cell * 7 + add`.
    Host {
        cell: Cell,
        add: u32,
    },
}

/// Which of the driver's functions does it, where there are several.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Manner {
    /// `cuLaunchKernel`, `cuMemcpyDtoDAsync` and so on, `cuLaunchHostFunc`.
    Plain,
    /// `cuLaunchKernelEx`.
    Extended,
    /// `cuLaunchCooperativeKernel`.
    Cooperative,
    /// `cuMemcpyAsync`, which finds out itself where the memory lies.
    Untyped,
    /// `cuMemcpyDtoD` and so on, `cuMemsetD32`: without a stream, so in the default one.
    Synchronous,
    /// `cuStreamAddCallback`.
    Callback,
}

/// A stream and how the call names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct On {
    pub(crate) stream: StreamId,
    /// Through the variant in which NULL means the thread's own stream.
    pub(crate) per_thread_variant: bool,
    /// By NULL, not by a handle.
    pub(crate) null: bool,
}

/// One part of a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// The graph's next node, in the first stream or in the one that forked off.
    Work { aside: bool },
    /// The second stream waits for the first.
    Fork,
    /// The first stream waits for the second.
    Join,
}

/// A node of a graph and the earlier nodes that it waits for.
#[derive(Clone, Debug)]
pub(crate) struct GraphNode {
    pub(crate) work: Work,
    pub(crate) after: Vec<NodeId>,
}

/// What the driver is asked.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Run {
        on: On,
        work: Work,
        manner: Manner,
    },
    /// A synchronous copy to pageable memory, and what it brought must be right.
    ReadBack {
        on: On,
        cell: Cell,
    },
    /// A synchronous copy from pageable memory.
    WriteIn {
        on: On,
        cell: Cell,
        value: u32,
    },
    /// The host looks at pinned memory itself.
    HostCheck {
        cell: Cell,
    },
    /// The host changes pinned memory itself: `cell = cell * 7 + add`.
    HostStep {
        cell: Cell,
        add: u32,
    },

    StreamCreate {
        stream: StreamId,
        blocking: bool,
        priority: i32,
    },
    StreamDestroy {
        stream: StreamId,
    },
    StreamSync {
        on: On,
    },
    StreamQuery {
        on: On,
    },
    ContextSync,

    EventRecord {
        event: EventId,
        on: On,
    },
    EventWait {
        event: EventId,
        on: On,
    },
    EventSync {
        event: EventId,
    },
    EventQuery {
        event: EventId,
    },
    EventDestroy {
        event: EventId,
    },

    /// By its own function, or by `cuStreamBatchMemOp`.
    WriteValue {
        on: On,
        flag: usize,
        value: u32,
        batch: bool,
    },
    WaitValue {
        on: On,
        flag: usize,
        value: u32,
        batch: bool,
    },
    /// The stream stands still until the host opens the gate.
    Hold {
        on: On,
        gate: usize,
    },
    Open {
        gate: usize,
    },

    Allocate {
        on: On,
        cell: Cell,
    },
    Free {
        on: On,
        cell: Cell,
    },

    Capture {
        graph: GraphId,
        on: On,
        aside: Option<On>,
        parts: Vec<Part>,
    },
    Build {
        graph: GraphId,
    },
    Instantiate {
        graph: GraphId,
        exec: ExecId,
    },
    GraphLaunch {
        exec: ExecId,
        on: On,
    },
    SetParameters {
        exec: ExecId,
        node: NodeId,
        work: Work,
    },
    SetEnabled {
        exec: ExecId,
        node: NodeId,
        enabled: bool,
    },
    /// `cuGraphExecUpdate` from a graph of the same shape.
    Update {
        exec: ExecId,
        graph: GraphId,
    },
    Upload {
        exec: ExecId,
        on: On,
    },
    GraphDestroy {
        graph: GraphId,
    },
    ExecDestroy {
        exec: ExecId,
    },

    /// Tells another thread that everything before has returned.
    Signal {
        number: usize,
    },
    /// Waits for that.
    Await {
        number: usize,
    },
}

/// An operation and the host thread that issues it.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) thread: usize,
    pub(crate) op: Op,
}

/// How an event is made: it times or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EventKind {
    pub(crate) timing: bool,
    pub(crate) blocking_sync: bool,
}

/// A whole program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Program {
    pub(crate) threads: usize,
    pub(crate) device_cells: usize,
    pub(crate) pool_cells: usize,
    pub(crate) streams: usize,
    pub(crate) execs: usize,
    pub(crate) signals: usize,
    pub(crate) events: Vec<EventKind>,
    pub(crate) graphs: Vec<Vec<GraphNode>>,
    /// Streams that are there before the threads start.
    pub(crate) prepared: Vec<Op>,
    pub(crate) steps: Vec<Step>,
}

impl Work {
    /// The cell that it reads without changing it.
    pub(crate) fn reads(&self) -> Option<Cell> {
        match *self {
            Self::Mix { from, .. } | Self::Copy { from, .. } => Some(from),
            Self::Step { .. } | Self::Set { .. } | Self::Host { .. } => None,
        }
    }

    /// The cell that it changes.
    pub(crate) fn writes(&self) -> Cell {
        match *self {
            Self::Step { cell, .. } | Self::Set { cell, .. } | Self::Host { cell, .. } => cell,
            Self::Mix { to, .. } | Self::Copy { to, .. } => to,
        }
    }

    /// Whether a graph's node of this kind can be changed or switched off by what the kernel's functions do.
    pub(crate) fn is_kernel(&self) -> bool {
        matches!(self, Self::Step { .. } | Self::Mix { .. })
    }

    /// Whether the order of the two shows.
    pub(crate) fn conflicts(&self, other: &Self) -> bool {
        let touches = |work: &Self, cell| work.writes() == cell || work.reads() == Some(cell);
        touches(other, self.writes()) || touches(self, other.writes())
    }
}

/// The nodes that each part of a capture waits for, in the order of the parts that are work.
pub(crate) fn captured_edges(parts: &[Part]) -> Vec<Vec<NodeId>> {
    let mut edges: Vec<Vec<NodeId>> = Vec::new();
    // The last nodes of the first and of the second stream.
    let mut ends = [Vec::new(), Vec::new()];
    for part in parts {
        match *part {
            Part::Work { aside } => {
                let end = &mut ends[usize::from(aside)];
                edges.push(core::mem::replace(end, vec![edges.len()]));
            }
            Part::Fork | Part::Join => {
                let (from, to) = if *part == Part::Fork { (0, 1) } else { (1, 0) };
                let more: Vec<_> = ends[from].iter().copied().filter(|node| !ends[to].contains(node)).collect();
                ends[to].extend(more);
            }
        }
    }
    edges
}

impl fmt::Display for Cell {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(index) => write!(formatter, "d{index}"),
            Self::Pinned(index) => write!(formatter, "h{index}"),
            Self::Pool(index) => write!(formatter, "p{index}"),
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Step { cell, add, spin, reads_first } => {
                let how = if reads_first { "between reading and writing" } else { "first" };
                write!(formatter, "kernel {cell} = {cell} * 3 + {add}, spins {spin} {how}")
            }
            Self::Mix { from, to, spin } => write!(formatter, "kernel {to} = {to} * 5 + {from}, spins {spin} first"),
            Self::Copy { from, to } => write!(formatter, "copy {to} = {from}"),
            Self::Set { cell, value } => write!(formatter, "memset {cell} = {value}"),
            Self::Host { cell, add } => write!(formatter, "host function {cell} = {cell} * 7 + {add}"),
        }
    }
}

impl fmt::Display for On {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.stream {
            LEGACY => write!(formatter, "legacy")?,
            stream if stream < DEFAULT_STREAMS => write!(formatter, "per-thread{}", stream - 1)?,
            stream => write!(formatter, "s{}", stream - DEFAULT_STREAMS)?,
        }
        match (self.null, self.per_thread_variant) {
            (true, false) => write!(formatter, " (NULL)"),
            (true, true) => write!(formatter, " (NULL, ptsz)"),
            (false, true) => write!(formatter, " (ptsz)"),
            (false, false) => Ok(()),
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let created = |stream: &StreamId| stream - DEFAULT_STREAMS;
        match self {
            Self::Run { on, work, manner: Manner::Plain } => write!(formatter, "{work}, on {on}"),
            Self::Run { on, work, manner } => write!(formatter, "{work}, {manner:?}, on {on}"),
            Self::ReadBack { on, cell } => write!(formatter, "read {cell} back, on {on}"),
            Self::WriteIn { on, cell, value } => write!(formatter, "write {cell} = {value} from the host, on {on}"),
            Self::HostCheck { cell } => write!(formatter, "host looks at {cell}"),
            Self::HostStep { cell, add } => write!(formatter, "host does {cell} = {cell} * 7 + {add}"),
            Self::StreamCreate { stream, blocking, priority } => {
                let kind = if *blocking { "blocking" } else { "non-blocking" };
                write!(formatter, "create s{}, {kind}, priority {priority}", created(stream))
            }
            Self::StreamDestroy { stream } => write!(formatter, "destroy s{}", created(stream)),
            Self::StreamSync { on } => write!(formatter, "synchronise {on}"),
            Self::StreamQuery { on } => write!(formatter, "query {on} until done"),
            Self::ContextSync => write!(formatter, "synchronise the context"),
            Self::EventRecord { event, on } => write!(formatter, "record e{event} on {on}"),
            Self::EventWait { event, on } => write!(formatter, "{on} waits for e{event}"),
            Self::EventSync { event } => write!(formatter, "synchronise e{event}"),
            Self::EventQuery { event } => write!(formatter, "query e{event} until done"),
            Self::EventDestroy { event } => write!(formatter, "destroy e{event}"),
            Self::WriteValue { on, flag, value, batch } => {
                write!(formatter, "write flag{flag} = {value}, on {on}{}", if *batch { ", batch" } else { "" })
            }
            Self::WaitValue { on, flag, value, batch } => {
                write!(formatter, "{on} waits for flag{flag} >= {value}{}", if *batch { ", batch" } else { "" })
            }
            Self::Hold { on, gate } => write!(formatter, "{on} waits at gate{gate}"),
            Self::Open { gate } => write!(formatter, "host opens gate{gate}"),
            Self::Allocate { on, cell } => write!(formatter, "allocate {cell} on {on}"),
            Self::Free { on, cell } => write!(formatter, "free {cell} on {on}"),
            Self::Capture { graph, on, aside, parts } => {
                write!(formatter, "capture g{graph} on {on}")?;
                if let Some(aside) = aside {
                    write!(formatter, " and {aside}")?;
                }
                for part in parts {
                    match part {
                        Part::Work { aside: false } => write!(formatter, " ; next node")?,
                        Part::Work { aside: true } => write!(formatter, " ; next node aside")?,
                        Part::Fork => write!(formatter, " ; fork")?,
                        Part::Join => write!(formatter, " ; join")?,
                    }
                }
                Ok(())
            }
            Self::Build { graph } => write!(formatter, "build g{graph}"),
            Self::Instantiate { graph, exec } => write!(formatter, "instantiate g{graph} as x{exec}"),
            Self::GraphLaunch { exec, on } => write!(formatter, "launch x{exec} on {on}"),
            Self::SetParameters { exec, node, work } => write!(formatter, "set node {node} of x{exec} to {work}"),
            Self::SetEnabled { exec, node, enabled } => {
                write!(formatter, "switch node {node} of x{exec} {}", if *enabled { "on" } else { "off" })
            }
            Self::Update { exec, graph } => write!(formatter, "update x{exec} from g{graph}"),
            Self::Upload { exec, on } => write!(formatter, "upload x{exec} on {on}"),
            Self::GraphDestroy { graph } => write!(formatter, "destroy g{graph}"),
            Self::ExecDestroy { exec } => write!(formatter, "destroy x{exec}"),
            Self::Signal { number } => write!(formatter, "signal {number}"),
            Self::Await { number } => write!(formatter, "wait for signal {number}"),
        }
    }
}

impl fmt::Display for Program {
    /// Line by line, in an order in which the steps may have been issued.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (threads, cells) = (self.threads, self.device_cells);
        writeln!(formatter, "  {threads} threads, {cells} device cells")?;
        for (number, kind) in self.events.iter().enumerate() {
            let (timing, blocking) = (kind.timing, kind.blocking_sync);
            writeln!(formatter, "  e{number}: timing {timing}, blocking synchronise {blocking}")?;
        }
        for (number, graph) in self.graphs.iter().enumerate() {
            for (index, node) in graph.iter().enumerate() {
                writeln!(formatter, "  g{number} node {index} after {:?}: {}", node.after, node.work)?;
            }
        }
        for op in &self.prepared {
            writeln!(formatter, "  before: {op}")?;
        }
        for (index, step) in self.steps.iter().enumerate() {
            writeln!(formatter, "  {index:3} t{}: {}", step.thread, step.op)?;
        }
        Ok(())
    }
}
