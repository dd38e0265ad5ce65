//! Graphs: captured or built node by node, launched, changed and destroyed.

use super::{Generator, Object};
use crate::model::{Kind, Node};
use crate::program::{
    Cell, DEFAULT_STREAMS, ExecId, GraphId, GraphNode, Op, Part, StreamId, Work, captured_edges, per_thread,
};

/// How many graphs a program may have.
const MAX_GRAPHS: usize = 3;
/// How many executable graphs it may have.
const MAX_EXECS: usize = 4;
/// How often to look for work that fits into a graph.
const TRIES: usize = 8;

pub(super) struct Graph {
    object: Object,
    captured: bool,
    alive: bool,
}

pub(super) struct Exec {
    object: Object,
    graph: usize,
    works: Vec<Work>,
    /// A node was switched on or off: what an update from another graph makes of that, nobody says.
    switched: bool,
    launched: Option<Node>,
    alive: bool,
}

/// Whether every two of these whose order shows are ordered by the edges.
fn is_ordered(works: &[Work], edges: &[Vec<usize>]) -> bool {
    // One bit for each earlier node.
    let mut before: Vec<u64> = Vec::new();
    for (index, work) in works.iter().enumerate() {
        let past = edges[index].iter().fold(0, |past, edge| past | before[*edge] | 1 << edge);
        if (0..index).any(|other| past >> other & 1 == 0 && works[other].conflicts(work)) {
            return false;
        }
        before.push(past);
    }
    true
}

impl Generator {
    /// Work without cells that may be gone when the graph is launched.
    fn graph_work(&mut self) -> Work {
        self.some_work(false)
    }

    pub(super) fn make_graph(&mut self, thread: usize) -> bool {
        if self.graphs.len() >= MAX_GRAPHS {
            return false;
        }
        let graph = self.graphs.len();
        let made = if self.random.percent(60) { self.capture(thread) } else { self.build(thread) };
        if made && self.random.percent(80) && self.instantiate(thread, graph) && self.random.percent(80) {
            self.graph_launch(thread, self.execs.len() - 1);
        }
        made
    }

    fn add_graph(&mut self, thread: usize, works: &[Work], edges: Vec<Vec<usize>>, captured: bool) {
        let nodes = works.iter().zip(edges).map(|(work, after)| GraphNode { work: *work, after });
        self.program.graphs.push(nodes.collect());
        let call = self.model.call(thread);
        let object = Object { changed: Some(call), used: Vec::new() };
        self.graphs.push(Graph { object, captured, alive: true });
    }

    /// Node by node.
    fn build(&mut self, thread: usize) -> bool {
        let (mut works, mut edges) = (Vec::new(), Vec::new());
        for index in 0..2 + self.random.below(6) {
            let work = self.graph_work();
            let mut after: Vec<_> = (0..index).filter(|_| self.random.percent(25)).collect();
            works.push(work);
            edges.push(after.clone());
            // From the nearest on, so that what is behind it already gets no edge.
            for other in (0..index).rev() {
                if is_ordered(&works, &edges) {
                    break;
                }
                if works[other].conflicts(&work) && !after.contains(&other) {
                    after.push(other);
                    edges[index].clone_from(&after);
                }
            }
        }
        let graph = self.graphs.len();
        self.emit(thread, Op::Build { graph });
        self.add_graph(thread, &works, edges, false);
        true
    }

    /// Streams that can be captured: not beside other threads' legacy work where they are blocking.
    fn capturable(&mut self, thread: usize) -> Vec<StreamId> {
        let alone = self.program.threads == 1;
        let created = (DEFAULT_STREAMS..self.streams.len()).filter(|stream| self.model.is_alive(*stream));
        let mut streams: Vec<_> =
            created.filter(|stream| alone || self.model.kind(*stream) == Kind::NonBlocking).collect();
        if alone {
            streams.push(per_thread(thread));
        }
        streams
    }

    /// From one stream, or from two.
    fn capture(&mut self, thread: usize) -> bool {
        let streams = self.capturable(thread);
        let Some(stream) = self.random.pick(&streams) else { return false };
        let others: Vec<_> = streams.into_iter().filter(|other| *other != stream).collect();
        let aside = self.random.pick(&others).filter(|_| self.random.percent(60));
        // Nobody else uses these streams meanwhile, nor synchronises the context.
        let mut calls = self.streams[stream].before_change();
        calls.extend(self.context.before_change());
        calls.extend(aside.iter().flat_map(|aside| self.streams[*aside].before_change()));
        if !self.reach(thread, &calls) {
            return false;
        }
        let (works, parts) = self.captured_parts(aside.is_some());
        let graph = self.graphs.len();
        let (edges, on) = (captured_edges(&parts), self.on(stream));
        let aside_on = aside.map(|aside| self.on(aside));
        self.emit(thread, Op::Capture { graph, on, aside: aside_on, parts });
        self.add_graph(thread, &works, edges, true);
        let call = self.model.call(thread);
        self.streams[stream].change(call);
        self.context.change(call);
        if let Some(aside) = aside {
            self.streams[aside].change(call);
        }
        true
    }

    fn captured_parts(&mut self, two: bool) -> (Vec<Work>, Vec<Part>) {
        let (mut works, mut parts) = (Vec::new(), Vec::new());
        let mut forked = false;
        for _ in 0..2 + self.random.below(6) {
            if two && self.random.percent(30) {
                let join = forked && self.random.percent(50);
                parts.push(if join { Part::Join } else { Part::Fork });
                forked = true;
            }
            let aside = forked && self.random.percent(50);
            parts.push(Part::Work { aside });
            let edges = captured_edges(&parts);
            let fits = (0..TRIES).any(|_| {
                works.push(self.graph_work());
                let fits = is_ordered(&works, &edges);
                if !fits {
                    works.pop();
                }
                fits
            });
            if !fits {
                parts.pop();
            }
        }
        if works.is_empty() {
            parts.push(Part::Work { aside: false });
            works.push(self.graph_work());
        }
        if forked {
            parts.push(Part::Join);
        }
        (works, parts)
    }

    pub(super) fn some_graph(&mut self) -> Option<GraphId> {
        let alive: Vec<_> = (0..self.graphs.len()).filter(|graph| self.graphs[*graph].alive).collect();
        self.random.pick(&alive)
    }

    pub(super) fn instantiate(&mut self, thread: usize, graph: GraphId) -> bool {
        let calls = self.graphs[graph].object.before_use();
        if self.execs.len() == MAX_EXECS || !self.reach(thread, &calls) {
            return false;
        }
        let exec = self.execs.len();
        self.program.execs += 1;
        self.emit(thread, Op::Instantiate { graph, exec });
        let call = self.model.call(thread);
        self.graphs[graph].object.used.push(call);
        let works = self.program.graphs[graph].iter().map(|node| node.work).collect();
        let object = Object { changed: Some(call), used: Vec::new() };
        self.execs.push(Exec { object, graph, works, switched: false, launched: None, alive: true });
        true
    }

    pub(super) fn some_exec(&mut self) -> Option<ExecId> {
        let alive: Vec<_> = (0..self.execs.len()).filter(|exec| self.execs[*exec].alive).collect();
        self.random.pick(&alive)
    }

    /// Passes the executable graph on to this thread: no two may use it at once.
    fn reach_exec(&mut self, thread: usize, exec: ExecId) -> bool {
        let calls = self.execs[exec].object.before_change();
        self.reach(thread, &calls)
    }

    pub(super) fn graph_launch(&mut self, thread: usize, exec: ExecId) -> bool {
        let stream = self.stream(thread);
        if !self.reach_exec(thread, exec) {
            return false;
        }
        let works = self.execs[exec].works.clone();
        let (mut conflicts, previous) = (self.conflicts(&works), self.execs[exec].launched);
        // One executable graph's launches come one after the other, in whatever streams.
        if let Some(previous) = previous {
            conflicts.retain(|node| !self.model.is_before(*node, previous));
        }
        if !self.may_use(thread, stream) || !self.order(thread, stream, &conflicts) {
            return false;
        }
        let on = self.on(stream);
        let done = self.submit(thread, stream, previous.as_slice(), Op::GraphLaunch { exec, on });
        self.note(&works, done);
        let call = self.model.origin(done).call;
        self.execs[exec].launched = Some(done);
        self.execs[exec].object.change(call);
        true
    }

    /// Changes the executable graph in one of the ways that there are, and mostly launches it then.
    pub(super) fn change_exec(&mut self, thread: usize, exec: ExecId) -> bool {
        let changed = match self.random.below(10) {
            0..2 => self.update(thread, exec),
            2 => self.upload(thread, exec),
            _ => self.change_node(thread, exec),
        };
        if changed && self.random.percent(60) {
            self.graph_launch(thread, exec);
        }
        changed
    }

    /// Nothing that shows: the launch after it does.
    fn upload(&mut self, thread: usize, exec: ExecId) -> bool {
        let stream = self.stream(thread);
        if !self.reach_exec(thread, exec) || !self.may_use(thread, stream) {
            return false;
        }
        let on = self.on(stream);
        self.emit(thread, Op::Upload { exec, on });
        let call = self.model.call(thread);
        self.streams[stream].used.push(call);
        self.execs[exec].object.change(call);
        true
    }

    /// A new graph of the same shape, and the executable graph made like it.
    fn update(&mut self, thread: usize, exec: ExecId) -> bool {
        let first = self.execs[exec].graph;
        if self.execs[exec].switched || self.graphs[first].captured || !self.reach_exec(thread, exec) {
            return false;
        }
        let edges: Vec<_> = self.program.graphs[first].iter().map(|node| node.after.clone()).collect();
        for node in 0..edges.len() {
            let work = self.execs[exec].works[node];
            if let Some(other) = work.is_kernel().then(|| self.other_parameters(exec, node, work)).flatten() {
                self.execs[exec].works[node] = other;
            }
        }
        let (graph, works) = (self.graphs.len(), self.execs[exec].works.clone());
        self.emit(thread, Op::Build { graph });
        self.add_graph(thread, &works, edges, false);
        self.emit(thread, Op::Update { exec, graph });
        let call = self.model.call(thread);
        self.graphs[graph].object.used.push(call);
        self.execs[exec].object.change(call);
        true
    }

    /// Other parameters of a kernel, or a node switched on or off.
    fn change_node(&mut self, thread: usize, exec: ExecId) -> bool {
        if !self.reach_exec(thread, exec) {
            return false;
        }
        let graph = self.execs[exec].graph;
        // The graph's own nodes name those of the executable graph.
        let calls = self.graphs[graph].object.before_use();
        if !self.graphs[graph].alive || !self.reach(thread, &calls) {
            return false;
        }
        let node = self.random.below(self.execs[exec].works.len());
        let op = match self.execs[exec].works[node] {
            Work::Host { .. } => return false,
            work if work.is_kernel() && self.random.percent(60) => {
                let Some(work) = self.other_parameters(exec, node, work) else { return false };
                self.execs[exec].works[node] = work;
                Op::SetParameters { exec, node, work }
            }
            _ => {
                self.execs[exec].switched = true;
                Op::SetEnabled { exec, node, enabled: self.random.percent(50) }
            }
        };
        self.emit(thread, op);
        let call = self.model.call(thread);
        self.graphs[graph].object.used.push(call);
        self.execs[exec].object.change(call);
        true
    }

    /// The same kind of kernel with other arguments, and still in order in its graph.
    fn other_parameters(&mut self, exec: ExecId, node: usize, work: Work) -> Option<Work> {
        let mut works = self.execs[exec].works.clone();
        let graph = &self.program.graphs[self.execs[exec].graph];
        let edges: Vec<_> = graph.iter().map(|node| node.after.clone()).collect();
        (0..TRIES).find_map(|_| {
            let (cell, spin): (Cell, u32) = (self.cell(false), self.spin());
            works[node] = match work {
                Work::Step { .. } => {
                    let (add, reads_first) = (self.random.word(1 << 16), self.random.percent(40));
                    Work::Step { cell, add, spin, reads_first }
                }
                _ => Work::Mix { from: self.cell(false), to: cell, spin },
            };
            let apart = works[node].reads() != Some(cell);
            (apart && is_ordered(&works, &edges)).then_some(works[node])
        })
    }

    pub(super) fn graph_destroy(&mut self, thread: usize) -> bool {
        let Some(graph) = self.some_graph() else { return false };
        let calls = self.graphs[graph].object.before_change();
        if !self.reach(thread, &calls) {
            return false;
        }
        self.emit(thread, Op::GraphDestroy { graph });
        self.model.call(thread);
        self.graphs[graph].alive = false;
        true
    }

    pub(super) fn exec_destroy(&mut self, thread: usize, exec: ExecId) -> bool {
        if !self.reach_exec(thread, exec) {
            return false;
        }
        self.emit(thread, Op::ExecDestroy { exec });
        self.model.call(thread);
        self.execs[exec].alive = false;
        true
    }
}
