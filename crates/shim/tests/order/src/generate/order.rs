//! What must not be overtaken, and what puts it in order.

use super::{Access, Generator};
use crate::model::Node;
use crate::program::{Cell, DEFAULT_STREAMS, EventId, LEGACY, Op, StreamId, Work};

/// How often to add something before choosing other work.
const REPAIRS: usize = 8;

/// How one stream is put behind another.
#[derive(Clone, Copy)]
enum Connection {
    Event,
    Value,
    StreamWait,
    EventHostWait,
    ContextSync,
}

const CONNECTIONS: &[(usize, Connection)] = &[
    (68, Connection::Event),
    (16, Connection::Value),
    (8, Connection::StreamWait),
    (6, Connection::EventHostWait),
    (2, Connection::ContextSync),
];

impl Generator {
    pub(super) fn access(&mut self, cell: Cell) -> &mut Access {
        match cell {
            Cell::Device(index) => &mut self.device[index],
            Cell::Pinned(index) => &mut self.pinned[index],
            Cell::Pool(index) => &mut self.pool[index].0,
        }
    }

    /// What these must not overtake.
    pub(super) fn conflicts(&mut self, works: &[Work]) -> Vec<Node> {
        let mut nodes = Vec::new();
        for work in works {
            if let Some(cell) = work.reads() {
                nodes.extend(self.access(cell).written);
            }
            let access = self.access(work.writes());
            nodes.extend(access.written);
            nodes.extend(&access.read);
        }
        nodes
    }

    /// Writes down that these are what touched their cells last, in this order.
    pub(super) fn note(&mut self, works: &[Work], done: Node) {
        for work in works {
            if let Some(cell) = work.reads() {
                self.access(cell).read.push(done);
            }
            let access = self.access(work.writes());
            access.written = Some(done);
            access.read.clear();
        }
    }

    /// Makes these calls happen before the thread's next one, by signals from the threads that made them.
    pub(super) fn reach(&mut self, thread: usize, calls: &[Node]) -> bool {
        for call in calls {
            if self.model.knows(thread, *call) {
                continue;
            }
            if self.held {
                return false;
            }
            self.signal(self.model.origin(*call).thread, thread);
        }
        true
    }

    fn signal(&mut self, from: usize, to: usize) {
        let number = self.program.signals;
        self.program.signals += 1;
        self.emit(from, Op::Signal { number });
        self.emit(to, Op::Await { number });
        self.model.signal(from, to);
    }

    /// Makes sure that the stream is there, and is not being captured.
    pub(super) fn may_use(&mut self, thread: usize, stream: StreamId) -> bool {
        let calls = self.streams[stream].before_use();
        self.reach(thread, &calls)
    }

    /// Makes these nodes happen before what the thread issues next into the stream.
    pub(super) fn order(&mut self, thread: usize, stream: StreamId, nodes: &[Node]) -> bool {
        for _ in 0..REPAIRS {
            let before = self.model.before(thread, stream);
            let Some(missing) = nodes.iter().copied().find(|node| !before.has(*node)) else { return true };
            let origin = self.model.origin(missing);
            if !self.model.knows(thread, origin.call) {
                if !self.reach(thread, &[origin.call]) {
                    return false;
                }
                continue;
            }
            let Some(from) = origin.stream else { return false };
            if !self.connect(thread, from, stream) {
                return false;
            }
        }
        false
    }

    /// Makes these nodes happen before the thread's next call.
    pub(super) fn order_host(&mut self, thread: usize, nodes: &[Node]) -> bool {
        for _ in 0..REPAIRS {
            let Some(missing) = nodes.iter().copied().find(|node| !self.model.knows(thread, *node)) else {
                return true;
            };
            let origin = self.model.origin(missing);
            let done = match origin.stream {
                _ if self.held => false,
                _ if !self.model.knows(thread, origin.call) => self.reach(thread, &[origin.call]),
                Some(stream) => self.wait_on_host(thread, stream),
                None => false,
            };
            if !done {
                return false;
            }
        }
        false
    }

    /// Makes the thread wait for what is in the stream.
    fn wait_on_host(&mut self, thread: usize, stream: StreamId) -> bool {
        let owner = self.owner(thread, stream);
        if !self.model.is_alive(stream) || self.random.percent(8) {
            return self.context_sync(thread);
        }
        if owner == thread && self.random.percent(60) {
            return self.stream_host_wait(thread, stream);
        }
        let Some(event) = self.some_event(owner) else { return self.context_sync(thread) };
        self.record(owner, event, stream) && self.event_host_wait(thread, event)
    }

    /// Who can issue into that stream: a thread's own default stream has no name elsewhere.
    fn owner(&self, thread: usize, stream: StreamId) -> usize {
        if stream != LEGACY && stream < DEFAULT_STREAMS { stream - 1 } else { thread }
    }

    /// Puts one stream behind the other, or the thread behind the first.
    fn connect(&mut self, thread: usize, from: StreamId, to: StreamId) -> bool {
        let owner = self.owner(thread, from);
        let alive = self.model.is_alive(from);
        if self.held && (!alive || owner != thread) {
            return false;
        }
        if !alive {
            return self.context_sync(thread);
        }
        match self.random.weighted(CONNECTIONS) {
            Connection::Value if self.connect_by_value(thread, owner, from, to) => true,
            Connection::StreamWait if !self.held && owner == thread => self.stream_host_wait(thread, from),
            Connection::EventHostWait if !self.held => self.wait_on_host(thread, from),
            Connection::ContextSync if !self.held => self.context_sync(thread),
            _ => {
                let Some(event) = self.some_event(owner) else { return false };
                self.record(owner, event, from) && self.event_wait(thread, event, to)
            }
        }
    }

    /// The first stream writes a word for which the second waits.
    fn connect_by_value(&mut self, thread: usize, owner: usize, from: StreamId, to: StreamId) -> bool {
        let flag = self.random.below(self.flags.len());
        let before = self.model.before(owner, from);
        if self.flags[flag].written.is_some_and(|node| !before.has(node)) || !self.may_use(owner, from) {
            return false;
        }
        self.flags[flag].value += 1;
        let (value, on, batch) = (self.flags[flag].value, self.on(from), self.random.percent(25));
        let written = self.submit(owner, from, &[], Op::WriteValue { on, flag, value, batch });
        self.flags[flag].written = Some(written);
        // The write must be issued first, or a stream could wait for what stands behind it.
        let issued = self.model.origin(written).call;
        if !self.reach(thread, &[issued]) || !self.may_use(thread, to) {
            return false;
        }
        let (on, batch) = (self.on(to), self.random.percent(25));
        self.submit(thread, to, &[written], Op::WaitValue { on, flag, value, batch });
        true
    }

    /// An event, rather one that needs no signal.
    pub(super) fn some_event(&mut self, thread: usize) -> Option<EventId> {
        let alive: Vec<_> = (0..self.events.len()).filter(|event| self.events[*event].alive).collect();
        let near = |event: &EventId| self.events[*event].object.changed.is_none_or(|it| self.model.knows(thread, it));
        let near: Vec<_> = alive.iter().copied().filter(near).collect();
        let anywhere = self.random.percent(15) || near.is_empty();
        self.random.pick(if anywhere { &alive } else { &near })
    }

    fn reach_event(&mut self, thread: usize, event: EventId) -> bool {
        let calls = self.events[event].object.before_change();
        self.reach(thread, &calls)
    }

    pub(super) fn record(&mut self, thread: usize, event: EventId, stream: StreamId) -> bool {
        if !self.reach_event(thread, event) || !self.may_use(thread, stream) {
            return false;
        }
        let on = self.on(stream);
        let done = self.submit(thread, stream, &[], Op::EventRecord { event, on });
        let call = self.model.origin(done).call;
        self.events[event].recorded = Some(done);
        self.events[event].object.change(call);
        true
    }

    pub(super) fn event_wait(&mut self, thread: usize, event: EventId, stream: StreamId) -> bool {
        if !self.reach_event(thread, event) || !self.may_use(thread, stream) {
            return false;
        }
        let on = self.on(stream);
        let call = match self.events[event].recorded {
            Some(recorded) => {
                let done = self.submit(thread, stream, &[recorded], Op::EventWait { event, on });
                self.model.origin(done).call
            }
            // Without a record the call does nothing, so it orders nothing.
            None => {
                self.emit(thread, Op::EventWait { event, on });
                let call = self.model.call(thread);
                self.streams[stream].used.push(call);
                call
            }
        };
        self.events[event].object.change(call);
        true
    }

    pub(super) fn event_host_wait(&mut self, thread: usize, event: EventId) -> bool {
        if self.held || !self.reach_event(thread, event) {
            return false;
        }
        let query = self.random.percent(35);
        self.emit(thread, if query { Op::EventQuery { event } } else { Op::EventSync { event } });
        if let Some(recorded) = self.events[event].recorded {
            self.model.wait(thread, recorded);
        }
        let call = self.model.call(thread);
        self.events[event].object.change(call);
        true
    }

    pub(super) fn event_destroy(&mut self, thread: usize) -> bool {
        // Enough must be left to order by.
        if self.events.iter().filter(|event| event.alive).count() < 3 {
            return false;
        }
        let Some(event) = self.some_event(thread) else { return false };
        if !self.reach_event(thread, event) {
            return false;
        }
        self.emit(thread, Op::EventDestroy { event });
        self.model.call(thread);
        self.events[event].alive = false;
        true
    }

    pub(super) fn stream_host_wait(&mut self, thread: usize, stream: StreamId) -> bool {
        if self.held || !self.may_use(thread, stream) {
            return false;
        }
        let on = self.on(stream);
        let query = self.random.percent(35);
        self.emit(thread, if query { Op::StreamQuery { on } } else { Op::StreamSync { on } });
        self.model.wait_for_stream(thread, stream);
        let call = self.model.call(thread);
        self.streams[stream].used.push(call);
        true
    }

    pub(super) fn context_sync(&mut self, thread: usize) -> bool {
        let calls = self.context.before_use();
        if self.held || !self.reach(thread, &calls) {
            return false;
        }
        self.emit(thread, Op::ContextSync);
        self.model.wait_for_context(thread);
        let call = self.model.call(thread);
        self.context.used.push(call);
        true
    }
}
