//! Making programs that have one result.
//!
//! Operations are chosen at random, one after the other. Before each the generator asks the model whether everything
//! that it must not overtake happens before it; where not, it adds what orders the two (an event, a value, a
//! synchronise, a signal between threads) or chooses something else. Everything that several threads share (an event,
//! an executable graph, a stream that is captured) is passed from one to the next by signals, because the driver asks
//! for that too or the meaning of a call depends on it.

mod graph;
mod order;
mod stream;

use crate::model::{Model, Node};
use crate::program::{
    Cell, DEFAULT_STREAMS, EventKind, FLAGS, LEGACY, MAX_THREADS, Manner, On, Op, PINNED_CELLS, Program, Step,
    StreamId, Work, per_thread,
};
use crate::random::Random;
use graph::{Exec, Graph};

/// How many streams may be created in all.
const MAX_CREATED: usize = 8;
/// How many cells of the stream-ordered allocator there may be in all.
const MAX_POOL: usize = 3;
/// How long a kernel spins at most; on a GPU about 30 microseconds, several launches.
const MAX_SPIN: u32 = 3000;
/// The priorities of current GPUs; elsewhere the driver takes the nearest that it has.
const PRIORITIES: usize = 6;

/// Something that the calls of several threads share: the calls that only use it, and the last that changed it.
#[derive(Default)]
struct Object {
    changed: Option<Node>,
    used: Vec<Node>,
}

impl Object {
    /// What must be over before it is used.
    fn before_use(&self) -> Vec<Node> {
        self.changed.into_iter().collect()
    }

    /// What must be over before it is changed.
    fn before_change(&self) -> Vec<Node> {
        self.used.iter().copied().chain(self.changed).collect()
    }

    fn change(&mut self, call: Node) {
        self.used.clear();
        self.changed = Some(call);
    }
}

/// Who wrote a cell last, and who has read it since.
#[derive(Default)]
struct Access {
    written: Option<Node>,
    read: Vec<Node>,
}

struct Event {
    object: Object,
    recorded: Option<Node>,
    alive: bool,
}

#[derive(Default)]
struct Flag {
    value: u32,
    written: Option<Node>,
}

/// What may come next.
#[derive(Clone, Copy)]
enum Choice {
    Work,
    ReadBack,
    WriteIn,
    HostAccess,
    Record,
    EventWait,
    EventHostWait,
    EventDestroy,
    StreamWait,
    ContextSync,
    StreamCreate,
    StreamDestroy,
    Hold,
    Allocate,
    Free,
    MakeGraph,
    Instantiate,
    GraphLaunch,
    ChangeExec,
    GraphDestroy,
    ExecDestroy,
}

const CHOICES: &[(usize, Choice)] = &[
    (420, Choice::Work),
    (30, Choice::ReadBack),
    (25, Choice::WriteIn),
    (40, Choice::HostAccess),
    (40, Choice::Record),
    (50, Choice::EventWait),
    (15, Choice::EventHostWait),
    (8, Choice::EventDestroy),
    (20, Choice::StreamWait),
    (8, Choice::ContextSync),
    (15, Choice::StreamCreate),
    (15, Choice::StreamDestroy),
    (25, Choice::Hold),
    (20, Choice::Allocate),
    (15, Choice::Free),
    (45, Choice::MakeGraph),
    (15, Choice::Instantiate),
    (120, Choice::GraphLaunch),
    (90, Choice::ChangeExec),
    (10, Choice::GraphDestroy),
    (10, Choice::ExecDestroy),
];

/// The program with that number under that seed, with at most so many threads.
pub(crate) fn program(seed: u64, number: u64, most_threads: usize) -> Program {
    let mut generator = Generator::new(Random::new(seed, number), most_threads.clamp(1, MAX_THREADS));
    let length = 10 + generator.random.below(51);
    while generator.program.steps.len() < length {
        let thread = generator.random.below(generator.program.threads);
        let choice = generator.random.weighted(CHOICES);
        generator.add(thread, choice);
    }
    generator.program
}

struct Generator {
    random: Random,
    model: Model,
    program: Program,
    device: Vec<Access>,
    pinned: Vec<Access>,
    /// With whether the cell is allocated.
    pool: Vec<(Access, bool)>,
    streams: Vec<Object>,
    events: Vec<Event>,
    flags: Vec<Flag>,
    gates: usize,
    graphs: Vec<Graph>,
    execs: Vec<Exec>,
    /// Changed by a capture, during which the context cannot be synchronised.
    context: Object,
    /// The calls into the legacy stream, which look at all blocking streams.
    legacy: Vec<Node>,
    /// A stream waits for a later step of the same thread, so nothing may wait.
    held: bool,
}

impl Generator {
    fn new(mut random: Random, most_threads: usize) -> Self {
        // Half of the programs have one thread: with signals between threads less runs at once.
        let threads = if random.percent(50) { 1 } else { 1 + random.below(most_threads) };
        let device_cells = 8 + random.below(9);
        let mut generator = Self {
            model: Model::new(threads),
            program: Program { threads, device_cells, streams: DEFAULT_STREAMS, ..Program::default() },
            device: (0..device_cells).map(|_| Access::default()).collect(),
            pinned: (0..PINNED_CELLS).map(|_| Access::default()).collect(),
            pool: Vec::new(),
            streams: (0..DEFAULT_STREAMS).map(|_| Object::default()).collect(),
            events: Vec::new(),
            flags: (0..FLAGS).map(|_| Flag::default()).collect(),
            gates: 0,
            graphs: Vec::new(),
            execs: Vec::new(),
            context: Object::default(),
            legacy: Vec::new(),
            held: false,
            random,
        };
        for _ in 0..1 + generator.random.below(5) {
            let create = generator.new_stream();
            generator.program.prepared.push(create);
        }
        for _ in 0..2 + generator.random.below(5) {
            let kind = EventKind { timing: generator.random.percent(40), blocking_sync: generator.random.percent(30) };
            generator.program.events.push(kind);
            generator.events.push(Event { object: Object::default(), recorded: None, alive: true });
        }
        generator
    }

    /// Adds what was chosen, if it fits here.
    fn add(&mut self, thread: usize, choice: Choice) {
        match choice {
            Choice::Work => self.work(thread),
            Choice::ReadBack => self.read_back(thread),
            Choice::WriteIn => self.write_in(thread),
            Choice::HostAccess => self.host_access(thread),
            Choice::Record => {
                let stream = self.stream(thread);
                self.some_event(thread).is_some_and(|event| self.record(thread, event, stream))
            }
            Choice::EventWait => {
                let stream = self.stream(thread);
                self.some_event(thread).is_some_and(|event| self.event_wait(thread, event, stream))
            }
            Choice::EventHostWait => self.some_event(thread).is_some_and(|event| self.event_host_wait(thread, event)),
            Choice::EventDestroy => self.event_destroy(thread),
            Choice::StreamWait => {
                let stream = self.stream(thread);
                self.stream_host_wait(thread, stream)
            }
            Choice::ContextSync => self.context_sync(thread),
            Choice::StreamCreate => self.stream_create(thread),
            Choice::StreamDestroy => self.stream_destroy(thread),
            Choice::Hold => self.hold(thread),
            Choice::Allocate => self.allocate(thread),
            Choice::Free => self.free(thread),
            Choice::MakeGraph => self.make_graph(thread),
            Choice::Instantiate => self.some_graph().is_some_and(|graph| self.instantiate(thread, graph)),
            Choice::GraphLaunch => self.some_exec().is_some_and(|exec| self.graph_launch(thread, exec)),
            Choice::ChangeExec => self.some_exec().is_some_and(|exec| self.change_exec(thread, exec)),
            Choice::GraphDestroy => self.graph_destroy(thread),
            Choice::ExecDestroy => self.some_exec().is_some_and(|exec| self.exec_destroy(thread, exec)),
        };
    }

    fn emit(&mut self, thread: usize, op: Op) {
        self.program.steps.push(Step { thread, op });
    }

    /// Issues the operation into the stream, after these nodes too.
    fn submit(&mut self, thread: usize, stream: StreamId, after: &[Node], op: Op) -> Node {
        let done = self.model.submit(thread, stream, after);
        let call = self.model.origin(done).call;
        self.streams[stream].used.push(call);
        if stream == LEGACY {
            self.legacy.push(call);
        }
        self.emit(thread, op);
        done
    }

    /// A stream that the thread can name.
    fn stream(&mut self, thread: usize) -> StreamId {
        let created: Vec<_> =
            (DEFAULT_STREAMS..self.streams.len()).filter(|stream| self.model.is_alive(*stream)).collect();
        let default = self.random.percent(30);
        match self.random.pick(&created) {
            Some(stream) if !default => stream,
            _ if self.random.percent(60) => LEGACY,
            _ => per_thread(thread),
        }
    }

    /// One of the ways to name the stream.
    fn on(&mut self, stream: StreamId) -> On {
        let on = |per_thread_variant, null| On { stream, per_thread_variant, null };
        let ways: &[On] = match stream {
            LEGACY => &[on(false, true), on(false, true), on(false, false), on(true, false)],
            own if own < DEFAULT_STREAMS => &[on(true, true), on(true, true), on(false, false), on(true, false)],
            _ => &[on(false, false), on(false, false), on(true, false)],
        };
        ways[self.random.below(ways.len())]
    }

    fn device_cell(&mut self) -> Cell {
        Cell::Device(self.random.below(self.device.len()))
    }

    fn pinned_cell(&mut self) -> Cell {
        Cell::Pinned(self.random.below(self.pinned.len()))
    }

    /// A cell that kernels can reach; one from the pool only where it is allocated.
    fn cell(&mut self, pool: bool) -> Cell {
        let allocated: Vec<_> = (0..self.pool.len()).filter(|index| self.pool[*index].1).collect();
        match self.random.pick(&allocated) {
            Some(index) if pool && self.random.percent(25) => Cell::Pool(index),
            _ if self.random.percent(15) => self.pinned_cell(),
            _ => self.device_cell(),
        }
    }

    fn spin(&mut self) -> u32 {
        match self.random.below(4) {
            0 | 1 => 0,
            2 => self.random.word(MAX_SPIN / 10),
            _ => self.random.word(MAX_SPIN),
        }
    }

    /// Any work, on cells of the pool too if they may be used.
    fn some_work(&mut self, pool: bool) -> Work {
        let cell = self.cell(pool);
        let other = loop {
            let other = self.cell(pool);
            if other != cell {
                break other;
            }
        };
        let add = self.random.word(1 << 16);
        match self.random.below(100) {
            0..45 => Work::Step { cell, add, spin: self.spin(), reads_first: self.random.percent(40) },
            45..65 => Work::Mix { from: other, to: cell, spin: self.spin() },
            65..82 => match (other, cell) {
                // Between two places of the host a copy is another thing.
                (Cell::Pinned(_), Cell::Pinned(_)) => Work::Copy { from: self.device_cell(), to: cell },
                _ => Work::Copy { from: other, to: cell },
            },
            82..90 => match cell {
                Cell::Pinned(_) => Work::Set { cell: self.device_cell(), value: add },
                _ => Work::Set { cell, value: add },
            },
            _ => Work::Host { cell: self.pinned_cell(), add },
        }
    }

    fn manner(&mut self, thread: usize, stream: StreamId, work: Work) -> Manner {
        let default = !self.held && (stream == LEGACY || stream == per_thread(thread));
        let manners: &[Manner] = match work {
            Work::Step { .. } | Work::Mix { .. } => {
                &[Manner::Plain, Manner::Plain, Manner::Extended, Manner::Cooperative]
            }
            Work::Copy { .. } if default => &[Manner::Plain, Manner::Untyped, Manner::Synchronous, Manner::Synchronous],
            Work::Copy { .. } => &[Manner::Plain, Manner::Plain, Manner::Untyped],
            Work::Set { .. } if default => &[Manner::Plain, Manner::Synchronous],
            Work::Set { .. } => &[Manner::Plain],
            Work::Host { .. } => &[Manner::Plain, Manner::Plain, Manner::Callback],
        };
        manners[self.random.below(manners.len())]
    }

    fn work(&mut self, thread: usize) -> bool {
        let stream = self.stream(thread);
        let mut work = self.some_work(true);
        // What is ordered already, behind another stream's work, shows an order that nobody asked for here.
        if self.random.percent(60) {
            let before = self.model.before(thread, stream);
            for _ in 0..4 {
                let conflicts = self.conflicts(&[work]);
                let elsewhere = |node: &Node| self.model.origin(*node).stream != Some(stream);
                if conflicts.iter().all(|node| before.has(*node)) && conflicts.iter().any(elsewhere) {
                    break;
                }
                work = self.some_work(true);
            }
        }
        self.issue(thread, stream, work)
    }

    fn issue(&mut self, thread: usize, stream: StreamId, work: Work) -> bool {
        let conflicts = self.conflicts(&[work]);
        if !self.may_use(thread, stream) || !self.order(thread, stream, &conflicts) {
            return false;
        }
        let (manner, mut on) = (self.manner(thread, stream, work), self.on(stream));
        if manner == Manner::Synchronous {
            // Such a call takes no stream: its name says which default stream it means.
            on = On { stream, per_thread_variant: stream != LEGACY, null: true };
        }
        let done = self.submit(thread, stream, &[], Op::Run { on, work, manner });
        self.note(&[work], done);
        let host = |cell| matches!(cell, Some(Cell::Pinned(_)));
        if manner == Manner::Synchronous && (host(work.reads()) || host(Some(work.writes()))) {
            self.model.wait(thread, done);
        }
        true
    }

    /// The default stream of one of the functions without a stream.
    fn default_stream(&mut self, thread: usize) -> On {
        let legacy = self.random.percent(50);
        let stream = if legacy { LEGACY } else { per_thread(thread) };
        On { stream, per_thread_variant: !legacy, null: true }
    }

    fn read_back(&mut self, thread: usize) -> bool {
        let on = self.default_stream(thread);
        let cell = match self.cell(true) {
            Cell::Pinned(_) => self.device_cell(),
            cell => cell,
        };
        let written: Vec<_> = self.access(cell).written.into_iter().collect();
        if self.held || !self.order(thread, on.stream, &written) {
            return false;
        }
        let done = self.submit(thread, on.stream, &[], Op::ReadBack { on, cell });
        self.access(cell).read.push(done);
        self.model.wait(thread, done);
        true
    }

    fn write_in(&mut self, thread: usize) -> bool {
        let (on, cell, value) = (self.default_stream(thread), self.device_cell(), self.random.word(1 << 16));
        let conflicts = self.conflicts(&[Work::Set { cell, value }]);
        if self.held || !self.order(thread, on.stream, &conflicts) {
            return false;
        }
        let done = self.submit(thread, on.stream, &[], Op::WriteIn { on, cell, value });
        self.note(&[Work::Set { cell, value }], done);
        true
    }

    /// The host itself reads or changes pinned memory.
    fn host_access(&mut self, thread: usize) -> bool {
        let (cell, add) = (self.pinned_cell(), self.random.word(1 << 16));
        if self.random.percent(50) {
            let written: Vec<_> = self.access(cell).written.into_iter().collect();
            if !self.order_host(thread, &written) {
                return false;
            }
            self.emit(thread, Op::HostCheck { cell });
            let call = self.model.call(thread);
            self.access(cell).read.push(call);
            return true;
        }
        let conflicts = self.conflicts(&[Work::Host { cell, add }]);
        if !self.order_host(thread, &conflicts) {
            return false;
        }
        self.emit(thread, Op::HostStep { cell, add });
        let call = self.model.call(thread);
        self.note(&[Work::Host { cell, add }], call);
        true
    }
}
