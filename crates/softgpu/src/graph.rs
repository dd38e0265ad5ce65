//! Graphs: operations with their dependencies, made by hand or captured from streams, and executables of them.

pub(crate) mod capture;
pub(crate) mod executable;

use crate::boundary::Outcome;
use crate::event::Event;
use crate::handle::{self, Table};
use crate::operation::Operation;
use detshare_cuda::types::{CUDA_MEMCPY3D_v2, CUDA_MEMSET_NODE_PARAMS_v1, CUgraph, CUgraphNode, CUresult};
use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

pub(crate) static GRAPHS: Table<Graph> = Table::new();
pub(crate) static NODES: Table<Node> = Table::new();

/// A graph.
pub(crate) struct Graph {
    pub(crate) handle: usize,
    state: Mutex<State>,
}

/// Its nodes in the order in which they came, and its edges.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) nodes: Vec<Arc<Node>>,
    /// From and to, by handle.
    pub(crate) edges: Vec<(usize, usize)>,
}

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
    /// A kernel, a host function or memory operations.
    Operation(Operation),
    /// With what the program gave.
    Copy(Box<CUDA_MEMCPY3D_v2>, Operation),
    /// With what the program gave.
    Fill(CUDA_MEMSET_NODE_PARAMS_v1, Operation),
    Child(Arc<Graph>),
    Record(Arc<Event>),
    Wait(Arc<Event>),
    /// Holds the memory; there is nothing to do at a launch.
    #[allow(dead_code, reason = "held, not read")]
    Allocate(Arc<GraphMemory>),
    Free(u64),
}

// SAFETY: the pointers inside are the program's, kept as numbers and never followed here.
unsafe impl Send for Content {}

/// Memory that a graph allocates: its address is the same at every launch, so it is kept as long as the graph and
/// its executables are, and a free in the graph leaves it where it is.
pub(crate) struct GraphMemory {
    pub(crate) address: u64,
}

static GRAPH_MEMORY: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());

impl GraphMemory {
    pub(crate) fn new(address: u64) -> Arc<Self> {
        GRAPH_MEMORY.lock().expect("no panic while it is held").insert(address);
        Arc::new(Self { address })
    }

    /// Whether a graph keeps the memory at that address.
    pub(crate) fn holds(address: u64) -> bool {
        GRAPH_MEMORY.lock().expect("no panic while it is held").contains(&address)
    }
}

impl Drop for GraphMemory {
    fn drop(&mut self) {
        GRAPH_MEMORY.lock().expect("no panic while it is held").remove(&self.address);
        crate::memory::free(self.address);
    }
}

impl Graph {
    pub(crate) fn create() -> Arc<Self> {
        let graph = Arc::new(Self { handle: handle::new(), state: Mutex::default() });
        GRAPHS.insert(graph.handle, Arc::clone(&graph));
        graph
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while it is held")
    }

    /// Adds a node behind others of this graph.
    pub(crate) fn add(self: &Arc<Self>, content: Content, after: &[usize]) -> Outcome<Arc<Node>> {
        self.add_clone(content, after, 0)
    }

    fn add_clone(self: &Arc<Self>, content: Content, after: &[usize], cloned_from: usize) -> Outcome<Arc<Node>> {
        let mut state = self.state();
        let known = |handle: &usize| state.nodes.iter().any(|node| node.handle == *handle);
        if !after.iter().all(known) || after.iter().collect::<HashSet<_>>().len() != after.len() {
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
        state.edges.extend(after.iter().map(|from| (*from, node.handle)));
        state.nodes.push(Arc::clone(&node));
        Ok(node)
    }

    /// The same nodes and edges under new handles.
    pub(crate) fn duplicate(&self) -> Outcome<Arc<Self>> {
        let (nodes, edges) = {
            let state = self.state();
            (state.nodes.clone(), state.edges.clone())
        };
        let copy = Self::create();
        let mut handles = std::collections::HashMap::new();
        for node in &nodes {
            let content = match node.content() {
                Content::Child(child) => Content::Child(child.duplicate()?),
                other => other,
            };
            handles.insert(node.handle, copy.add_clone(content, &[], node.handle)?.handle);
        }
        copy.state().edges = edges.iter().map(|(from, to)| (handles[from], handles[to])).collect();
        Ok(copy)
    }

    /// Takes the graph and its nodes out of the program's reach.
    pub(crate) fn destroy(&self) {
        GRAPHS.remove(self.handle);
        for node in &self.state().nodes {
            NODES.remove(node.handle);
            if let Content::Child(child) = node.content() {
                child.destroy();
            }
        }
    }
}

impl State {
    /// The nodes that a node waits for.
    pub(crate) fn before(&self, node: usize) -> Vec<usize> {
        self.edges.iter().filter(|(_, to)| *to == node).map(|(from, _)| *from).collect()
    }

    /// The nodes that wait for a node.
    pub(crate) fn behind(&self, node: usize) -> Vec<usize> {
        self.edges.iter().filter(|(from, _)| *from == node).map(|(_, to)| *to).collect()
    }

    /// All nodes in an order in which each comes after those it waits for; None if there is a cycle.
    pub(crate) fn sorted(&self) -> Option<Vec<Arc<Node>>> {
        let mut placed = HashSet::new();
        let mut order: Vec<Arc<Node>> = Vec::with_capacity(self.nodes.len());
        while order.len() < self.nodes.len() {
            let before = order.len();
            for node in &self.nodes {
                if !placed.contains(&node.handle)
                    && self.edges.iter().filter(|(_, to)| *to == node.handle).all(|(from, _)| placed.contains(from))
                {
                    placed.insert(node.handle);
                    order.push(Arc::clone(node));
                }
            }
            if order.len() == before {
                return None;
            }
        }
        Some(order)
    }

    /// Whether each of `wanted` is among `from` or comes before one of them.
    pub(crate) fn reaches(&self, from: &[usize], wanted: &[usize]) -> bool {
        let mut seen: HashSet<usize> = from.iter().copied().collect();
        let mut open: Vec<usize> = from.to_vec();
        while let Some(node) = open.pop() {
            for before in self.before(node) {
                if seen.insert(before) {
                    open.push(before);
                }
            }
        }
        wanted.iter().all(|node| seen.contains(node))
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
