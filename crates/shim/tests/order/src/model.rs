//! What happens before what, by CUDA's rules, and nothing that is only likely.
//!
//! A node is a call's return on the host or the end of work on the device. Of each the model keeps everything that
//! happens before it, so that one look answers whether two nodes are ordered. Where the rules leave open whether
//! something is ordered, it is not:
//! * a copy or memset without a stream runs in the default stream; only one that brings data to the host, or takes
//!   it from pinned memory, is over when it returns;
//! * work of a stream that was destroyed is waited for by the context, and no longer by the legacy stream;
//! * synchronising the legacy stream waits for what was issued into it, and for what that waited for.

use crate::program::{DEFAULT_STREAMS, LEGACY, StreamId};

pub(crate) type Node = usize;

/// A set of nodes.
#[derive(Clone, Default)]
pub(crate) struct Past(Vec<u64>);

impl Past {
    pub(crate) fn has(&self, node: Node) -> bool {
        self.0.get(node / 64).is_some_and(|word| word >> (node % 64) & 1 == 1)
    }

    fn add(&mut self, node: Node) {
        if self.0.len() <= node / 64 {
            self.0.resize(node / 64 + 1, 0);
        }
        self.0[node / 64] |= 1 << (node % 64);
    }

    fn join(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(mine, theirs)| *mine |= theirs);
    }
}

/// How a stream stands to the legacy one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Legacy,
    Blocking,
    NonBlocking,
}

/// Work in a stream: the call and the end.
struct Submitted {
    call: Node,
    done: Node,
}

struct Stream {
    kind: Kind,
    alive: bool,
    work: Vec<Submitted>,
}

/// Where a node comes from.
#[derive(Clone, Copy)]
pub(crate) struct Origin {
    /// The thread that called.
    pub(crate) thread: usize,
    /// The call; the node itself where it is one.
    pub(crate) call: Node,
    /// Where the work ran.
    pub(crate) stream: Option<StreamId>,
}

/// The order so far.
pub(crate) struct Model {
    past: Vec<Past>,
    origins: Vec<Origin>,
    /// What has happened before the next call of each thread.
    threads: Vec<Past>,
    streams: Vec<Stream>,
}

impl Model {
    pub(crate) fn new(threads: usize) -> Self {
        let stream = |index| Stream {
            kind: if index == LEGACY { Kind::Legacy } else { Kind::Blocking },
            alive: true,
            work: Vec::new(),
        };
        Self {
            past: Vec::new(),
            origins: Vec::new(),
            threads: vec![Past::default(); threads],
            streams: (0..DEFAULT_STREAMS).map(stream).collect(),
        }
    }

    pub(crate) fn origin(&self, node: Node) -> Origin {
        self.origins[node]
    }

    pub(crate) fn kind(&self, stream: StreamId) -> Kind {
        self.streams[stream].kind
    }

    pub(crate) fn is_alive(&self, stream: StreamId) -> bool {
        self.streams[stream].alive
    }

    /// Whether that node happens before the thread's next call.
    pub(crate) fn knows(&self, thread: usize, node: Node) -> bool {
        self.threads[thread].has(node)
    }

    /// Whether the first node happens before the second, or is it.
    pub(crate) fn is_before(&self, first: Node, second: Node) -> bool {
        first == second || self.past[second].has(first)
    }

    fn node(&mut self, past: Past, origin: impl FnOnce(Node) -> Origin) -> Node {
        let node = self.past.len();
        self.past.push(past);
        self.origins.push(origin(node));
        node
    }

    /// A call of a thread, which does not wait.
    pub(crate) fn call(&mut self, thread: usize) -> Node {
        let past = self.threads[thread].clone();
        let node = self.node(past, |call| Origin { thread, call, stream: None });
        self.threads[thread].add(node);
        node
    }

    /// What happens before work that the thread would issue now into that stream.
    pub(crate) fn before(&self, thread: usize, stream: StreamId) -> Past {
        let known = &self.threads[thread];
        let mut past = known.clone();
        let kind = self.streams[stream].kind;
        for (other, order) in self.streams.iter().enumerate() {
            let ordered = match (kind, order.kind) {
                (Kind::Legacy, Kind::Blocking) => order.alive,
                (Kind::Blocking, Kind::Legacy) => true,
                _ => other == stream,
            };
            for work in order.work.iter().filter(|work| ordered && known.has(work.call)) {
                past.join(&self.past[work.done]);
                past.add(work.done);
            }
        }
        past
    }

    /// Work that a thread issues into a stream and that waits for these nodes too. Gives its end.
    pub(crate) fn submit(&mut self, thread: usize, stream: StreamId, after: &[Node]) -> Node {
        let mut past = self.before(thread, stream);
        for node in after {
            past.join(&self.past[*node]);
            past.add(*node);
        }
        let call = self.call(thread);
        past.add(call);
        let done = self.node(past, |_| Origin { thread, call, stream: Some(stream) });
        self.streams[stream].work.push(Submitted { call, done });
        done
    }

    /// The thread goes on after that node.
    pub(crate) fn wait(&mut self, thread: usize, node: Node) {
        self.threads[thread].join(&self.past[node]);
        self.threads[thread].add(node);
    }

    /// The thread waits for what it knows to be in that stream.
    pub(crate) fn wait_for_stream(&mut self, thread: usize, stream: StreamId) {
        let known = &self.threads[thread];
        let works = self.streams[stream].work.iter();
        let done: Vec<_> = works.filter(|work| known.has(work.call)).map(|work| work.done).collect();
        done.into_iter().for_each(|node| self.wait(thread, node));
    }

    /// The thread waits for everything that it knows to be issued.
    pub(crate) fn wait_for_context(&mut self, thread: usize) {
        (0..self.streams.len()).for_each(|stream| self.wait_for_stream(thread, stream));
    }

    /// Everything that `from` has called happens before what `to` calls next.
    pub(crate) fn signal(&mut self, from: usize, to: usize) {
        let past = self.threads[from].clone();
        self.threads[to].join(&past);
    }

    pub(crate) fn create(&mut self, kind: Kind) -> StreamId {
        self.streams.push(Stream { kind, alive: true, work: Vec::new() });
        self.streams.len() - 1
    }

    pub(crate) fn destroy(&mut self, stream: StreamId) {
        self.streams[stream].alive = false;
    }
}
