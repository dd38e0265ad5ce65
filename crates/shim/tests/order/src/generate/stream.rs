//! Streams that come and go, that are held, and that memory is allocated in.

use super::{Access, Choice, Generator, MAX_CREATED, MAX_POOL, Object, PRIORITIES};
use crate::model::Kind;
use crate::program::{Cell, DEFAULT_STREAMS, GATES, Manner, Op, Work};

impl Generator {
    pub(super) fn new_stream(&mut self) -> Op {
        let blocking = self.random.percent(55);
        let priority = -i32::try_from(self.random.below(PRIORITIES)).unwrap_or_default();
        let stream = self.model.create(if blocking { Kind::Blocking } else { Kind::NonBlocking });
        self.streams.push(Object::default());
        self.program.streams += 1;
        Op::StreamCreate { stream, blocking, priority }
    }

    pub(super) fn stream_create(&mut self, thread: usize) -> bool {
        if self.streams.len() == DEFAULT_STREAMS + MAX_CREATED {
            return false;
        }
        let create = self.new_stream();
        self.emit(thread, create);
        let call = self.model.call(thread);
        if let Some(stream) = self.streams.last_mut() {
            stream.change(call);
        }
        true
    }

    pub(super) fn stream_destroy(&mut self, thread: usize) -> bool {
        let stream = self.stream(thread);
        if stream < DEFAULT_STREAMS {
            return false;
        }
        let mut uses = self.streams[stream].before_change();
        if self.model.kind(stream) == Kind::Blocking {
            uses.extend(&self.legacy);
        }
        if !self.reach(thread, &uses) {
            return false;
        }
        self.emit(thread, Op::StreamDestroy { stream });
        self.model.call(thread);
        self.model.destroy(stream);
        true
    }

    /// Holds a stream, issues work that must not wait on the host, and lets the stream go.
    pub(super) fn hold(&mut self, thread: usize) -> bool {
        let (gate, stream) = (self.gates, self.stream(thread));
        if gate == GATES || !self.may_use(thread, stream) {
            return false;
        }
        self.gates += 1;
        let on = self.on(stream);
        self.submit(thread, stream, &[], Op::Hold { on, gate });
        self.held = true;
        for _ in 0..1 + self.random.below(5) {
            match self.random.below(6) {
                0 => self.add(thread, Choice::Record),
                1 => self.add(thread, Choice::EventWait),
                2 => {
                    let work = self.some_work(true);
                    self.issue(thread, stream, work);
                }
                _ => self.add(thread, Choice::Work),
            }
        }
        self.held = false;
        self.emit(thread, Op::Open { gate });
        self.model.call(thread);
        true
    }

    pub(super) fn allocate(&mut self, thread: usize) -> bool {
        let stream = self.stream(thread);
        if self.pool.len() == MAX_POOL || !self.may_use(thread, stream) {
            return false;
        }
        let (cell, on) = (Cell::Pool(self.pool.len()), self.on(stream));
        self.program.pool_cells += 1;
        // The allocation itself may need nothing of the device, so it orders no other streams.
        let call = self.model.call(thread);
        self.streams[stream].used.push(call);
        self.emit(thread, Op::Allocate { on, cell });
        self.pool.push((Access { written: None, read: Vec::new() }, true));
        let value = self.random.word(1 << 16);
        let (work, on) = (Work::Set { cell, value }, self.on(stream));
        let done = self.submit(thread, stream, &[], Op::Run { on, work, manner: Manner::Plain });
        self.note(&[work], done);
        true
    }

    pub(super) fn free(&mut self, thread: usize) -> bool {
        let allocated: Vec<_> = (0..self.pool.len()).filter(|index| self.pool[*index].1).collect();
        let (Some(index), stream) = (self.random.pick(&allocated), self.stream(thread)) else { return false };
        let cell = Cell::Pool(index);
        let conflicts = self.conflicts(&[Work::Set { cell, value: 0 }]);
        if !self.may_use(thread, stream) || !self.order(thread, stream, &conflicts) {
            return false;
        }
        let on = self.on(stream);
        let call = self.model.call(thread);
        self.streams[stream].used.push(call);
        self.emit(thread, Op::Free { on, cell });
        self.pool[index].1 = false;
        true
    }
}
