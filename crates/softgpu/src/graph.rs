//! Graphs: operations with their dependencies, made by hand or captured from streams, and executables of them.
//!
//! * `capture`: graphs out of streams. `executable`, `update`: graphs that can be launched.
//! * `conditional`, `memory`, `user_object`: nodes that decide, memory that graphs allocate, objects that they keep.
//! * `parameters`: what nodes were given, where a program can ask for it. `dot`: graphs as pictures.

pub(crate) mod capture;
pub(crate) mod conditional;
pub(crate) mod dot;
pub(crate) mod executable;
pub(crate) mod memory;
pub(crate) mod parameters;
pub(crate) mod update;
pub(crate) mod user_object;

use crate::boundary::Outcome;
use crate::event::Event;
use crate::handle::{self, Table};
use crate::operation::Operation;
use crate::system::conditional::Conditional;
use conditional::Branching;
use core::sync::atomic::{AtomicBool, Ordering};
use detshare_cuda::types::{
    CUDA_MEMCPY3D_v2, CUDA_MEMSET_NODE_PARAMS_v1, CUgraph, CUgraphEdgeData, CUgraphNode, CUresult,
};
use executable::Executable;
use memory::GraphMemory;
use parameters::{Batch, Semaphores};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use user_object::References;

pub(crate) static GRAPHS: Table<Graph> = Table::new();
pub(crate) static NODES: Table<Node> = Table::new();

/// A graph.
pub(crate) struct Graph {
    pub(crate) handle: usize,
    /// Whether it belongs to a node: the program can neither destroy nor instantiate it.
    owned: AtomicBool,
    state: Mutex<State>,
}

/// Its nodes in the order in which they came, and its edges.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) nodes: Vec<Arc<Node>>,
    pub(crate) edges: Vec<Edge>,
    /// Values that its conditional nodes, or those of graphs within it, look at.
    pub(crate) conditionals: Vec<Arc<Conditional>>,
    pub(crate) objects: References,
    /// What was made of it last, which matters for graphs that allocate.
    pub(crate) executable: Weak<Executable>,
}

/// A dependency, by the handles of the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Edge {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) data: CUgraphEdgeData,
}

/// A node to come after, and how.
pub(crate) type Dependency = (usize, CUgraphEdgeData);

/// After the whole node: what edges are unless a program says otherwise.
pub(crate) const PLAIN: CUgraphEdgeData = CUgraphEdgeData { from_port: 0, to_port: 0, type_: 0, reserved: [0; 5] };

/// A node.
pub(crate) struct Node {
    pub(crate) handle: usize,
    pub(crate) graph: Weak<Graph>,
    content: Mutex<Content>,
    /// Pointers to a kernel's arguments that were handed to the program.
    pub(crate) pointers: Mutex<Vec<Box<[usize]>>>,
    /// The node of the graph that this one's graph was cloned from.
    pub(crate) cloned_from: usize,
}

/// What a node does.
#[derive(Clone)]
pub(crate) enum Content {
    Empty,
    /// A kernel or a host function.
    Operation(Operation),
    /// With what the program gave.
    Copy(Box<CUDA_MEMCPY3D_v2>, Operation),
    /// With what the program gave.
    Fill(CUDA_MEMSET_NODE_PARAMS_v1, Operation),
    /// With what the program gave.
    Batch(Arc<Batch>, Operation),
    /// With what the program gave.
    Semaphores(Arc<Semaphores>, Operation),
    Child(Arc<Graph>),
    Record(Arc<Event>),
    Wait(Arc<Event>),
    Allocate(Arc<GraphMemory>),
    Free(u64),
    Conditional(Arc<Branching>),
}

// SAFETY: the pointers inside are the program's, kept as numbers and never followed here.
unsafe impl Send for Content {}
// SAFETY: as above.
unsafe impl Sync for Content {}

impl Content {
    /// Whether it allocates or frees.
    pub(crate) fn is_memory(&self) -> bool {
        matches!(self, Self::Allocate(_) | Self::Free(_))
    }

    /// The graphs within it.
    pub(crate) fn inner(&self) -> &[Arc<Graph>] {
        match self {
            Self::Child(child) => core::slice::from_ref(child),
            Self::Conditional(branching) => &branching.bodies,
            _ => &[],
        }
    }
}

impl Graph {
    pub(crate) fn create() -> Arc<Self> {
        Self::make(false)
    }

    /// A graph that a node will have.
    pub(crate) fn create_owned() -> Arc<Self> {
        Self::make(true)
    }

    fn make(owned: bool) -> Arc<Self> {
        let graph = Arc::new(Self { handle: handle::new(), owned: AtomicBool::new(owned), state: Mutex::default() });
        GRAPHS.insert(graph.handle, Arc::clone(&graph));
        graph
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while it is held")
    }

    pub(crate) fn is_owned(&self) -> bool {
        self.owned.load(Ordering::Relaxed)
    }

    /// Becomes a node's; false if it is one's already.
    pub(crate) fn own(&self) -> bool {
        !self.owned.swap(true, Ordering::Relaxed)
    }

    /// Adds a node behind others of this graph.
    pub(crate) fn add(self: &Arc<Self>, content: Content, after: &[Dependency]) -> Outcome<Arc<Node>> {
        self.add_clone(content, after, 0)
    }

    fn add_clone(self: &Arc<Self>, content: Content, after: &[Dependency], cloned_from: usize) -> Outcome<Arc<Node>> {
        let mut state = self.state();
        let distinct = after.iter().map(|(node, _)| node).collect::<HashSet<_>>().len() == after.len();
        let fits =
            |(from, data): &Dependency| state.find(*from).is_some_and(|from| fits(data, &from.content(), &content));
        if !distinct || !after.iter().all(fits) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let node = Arc::new(Node {
            handle: handle::new(),
            graph: Arc::downgrade(self),
            content: Mutex::new(content),
            pointers: Mutex::default(),
            cloned_from,
        });
        NODES.insert(node.handle, Arc::clone(&node));
        state.edges.extend(after.iter().map(|(from, data)| Edge { from: *from, to: node.handle, data: *data }));
        state.nodes.push(Arc::clone(&node));
        Ok(node)
    }

    /// The same nodes and edges under new handles. Memory and conditions are one graph's own.
    pub(crate) fn duplicate(&self) -> Outcome<Arc<Self>> {
        let (nodes, edges, objects) = {
            let state = self.state();
            let alone = |node: &Arc<Node>| {
                let content = node.content();
                content.is_memory() || matches!(content, Content::Conditional(_))
            };
            if state.nodes.iter().any(alone) || !state.conditionals.is_empty() {
                return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
            }
            (state.nodes.clone(), state.edges.clone(), state.objects.clone())
        };
        let copy = Self::create();
        copy.state().objects = objects;
        let mut handles = HashMap::new();
        for node in &nodes {
            let content = match node.content() {
                Content::Child(child) => {
                    let child = child.duplicate()?;
                    child.own();
                    Content::Child(child)
                }
                other => other,
            };
            handles.insert(node.handle, copy.add_clone(content, &[], node.handle)?.handle);
        }
        copy.state().edges =
            edges.iter().map(|edge| Edge { from: handles[&edge.from], to: handles[&edge.to], ..*edge }).collect();
        Ok(copy)
    }

    /// Takes the graph and its nodes out of the program's reach.
    pub(crate) fn destroy(&self) {
        GRAPHS.remove(self.handle);
        let mut state = self.state();
        for node in &state.nodes {
            NODES.remove(node.handle);
            node.content().inner().iter().for_each(|inner| inner.destroy());
        }
        let objects = std::mem::take(&mut state.objects);
        drop(state);
        drop(objects);
    }
}

/// Whether an edge may be of that kind between such nodes: one that lets a kernel begin early has kernels at both ends.
pub(crate) fn fits(data: &CUgraphEdgeData, from: &Content, to: &Content) -> bool {
    const DEFAULT: u8 = 0;
    const PROGRAMMATIC: u8 = 1;
    let is_kernel = |content: &Content| matches!(content, Content::Operation(Operation::Kernel(_)));
    let ports = data.to_port == 0 && data.reserved == [0; 5];
    match (data.type_, data.from_port) {
        (DEFAULT, 0) => ports,
        (DEFAULT | PROGRAMMATIC, 1 | 2) => ports && is_kernel(from) && (data.type_ == DEFAULT || is_kernel(to)),
        _ => false,
    }
}

impl State {
    /// The node with that handle.
    pub(crate) fn find(&self, node: usize) -> Option<&Arc<Node>> {
        self.nodes.iter().find(|other| other.handle == node)
    }

    /// Whether it has nodes that allocate or free.
    pub(crate) fn has_memory(&self) -> bool {
        self.nodes.iter().any(|node| node.content().is_memory())
    }

    /// The nodes that a node waits for.
    pub(crate) fn before(&self, node: usize) -> Vec<Dependency> {
        self.edges.iter().filter(|edge| edge.to == node).map(|edge| (edge.from, edge.data)).collect()
    }

    /// The nodes that wait for a node.
    pub(crate) fn behind(&self, node: usize) -> Vec<Dependency> {
        self.edges.iter().filter(|edge| edge.from == node).map(|edge| (edge.to, edge.data)).collect()
    }

    /// All nodes in an order in which each comes after those it waits for; None if there is a cycle.
    pub(crate) fn sorted(&self) -> Option<Vec<Arc<Node>>> {
        let mut missing: HashMap<usize, usize> = HashMap::new();
        let mut behind: HashMap<usize, Vec<usize>> = HashMap::new();
        for edge in &self.edges {
            *missing.entry(edge.to).or_default() += 1;
            behind.entry(edge.from).or_default().push(edge.to);
        }
        let place: HashMap<usize, usize> = self.nodes.iter().enumerate().map(|(at, node)| (node.handle, at)).collect();
        // Those that came first go first, wherever there is a choice.
        let mut ready: std::collections::BTreeSet<usize> =
            place.iter().filter(|(node, _)| !missing.contains_key(node)).map(|(_, at)| *at).collect();
        let mut order = Vec::with_capacity(self.nodes.len());
        while let Some(at) = ready.pop_first() {
            let node = &self.nodes[at];
            order.push(Arc::clone(node));
            for next in behind.get(&node.handle).into_iter().flatten() {
                if let Some(left) = missing.get_mut(next) {
                    *left -= 1;
                    if *left == 0 {
                        ready.insert(place[next]);
                    }
                }
            }
        }
        (order.len() == self.nodes.len()).then_some(order)
    }

    /// Whether each of `wanted` is among `from` or comes before one of them.
    pub(crate) fn reaches(&self, from: &[Dependency], wanted: &[Dependency]) -> bool {
        let mut open: Vec<usize> = from.iter().map(|(node, _)| *node).collect();
        let mut seen: HashSet<usize> = open.iter().copied().collect();
        while let Some(node) = open.pop() {
            for (before, _) in self.before(node) {
                if seen.insert(before) {
                    open.push(before);
                }
            }
        }
        wanted.iter().all(|(node, _)| seen.contains(node))
    }
}

impl Node {
    pub(crate) fn content(&self) -> Content {
        self.content.lock().expect("no panic while it is held").clone()
    }

    pub(crate) fn set(&self, content: Content) {
        *self.content.lock().expect("no panic while it is held") = content;
        self.pointers.lock().expect("no panic while it is held").clear();
    }
}

pub(crate) fn find(graph: CUgraph) -> Outcome<Arc<Graph>> {
    GRAPHS.get(graph.0.addr()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

pub(crate) fn find_node(node: CUgraphNode) -> Outcome<Arc<Node>> {
    NODES.get(node.0.addr()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}
