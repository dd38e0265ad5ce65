//! What a graph's copies are made from: a clone of it, with its nodes by those of the program.

use crate::call::is_ok;
use crate::coroutine::Coroutine;
use crate::kernel::{self, Shape};
use core::ptr::null_mut;
use detshare_cuda::types::{
    CUDA_KERNEL_NODE_PARAMS, CUcontext, CUfunction, CUgraph, CUgraphEdgeData, CUgraphExec, CUgraphExecUpdateResultInfo,
    CUgraphNode, CUgraphNodeType, CUkernelNodeAttrID, CUkernelNodeAttrValue, CUresult,
};
use std::collections::{HashMap, HashSet};

/// What copies are made from.
pub(super) struct Template {
    /// A clone of the program's graph as it was; NULL if there can be none.
    pub(super) graph: CUgraph,
    /// The clone's kernels that run in the primary context.
    pub(super) kernels: Vec<CUgraphNode>,
    /// The clone's nodes by those of the program.
    pub(super) nodes: HashMap<usize, CUgraphNode>,
    flags: u64,
    /// Nodes of the clone that the program has switched off.
    pub(super) disabled: HashSet<usize>,
    /// A clone of the graph that the executable was last updated from, and its kernels.
    pub(super) basis: Option<(CUgraph, Vec<CUgraphNode>)>,
    /// Changes that the template could not follow: no further copy can be made.
    pub(super) closed: bool,
}

// SAFETY: handles of the driver, which any thread may use.
unsafe impl Send for Template {}

impl Template {
    pub(super) fn none() -> Self {
        Self {
            graph: CUgraph(null_mut()),
            kernels: Vec::new(),
            nodes: HashMap::new(),
            flags: 0,
            disabled: HashSet::new(),
            basis: None,
            closed: false,
        }
    }

    pub(super) fn of(graph: CUgraph, flags: u64, coroutine: &Coroutine) -> Option<Self> {
        /// `CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH`: such a graph is launched by kernels, which know one of it.
        const DEVICE_LAUNCH: u64 = 4;
        /// `CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD`: of the call, not of the graph.
        const UPLOAD: u64 = 2;
        let mut clone = CUgraph(null_mut());
        if flags & DEVICE_LAUNCH != 0 || !is_ok(cu!(cuGraphClone(&raw mut clone, graph))) {
            return None;
        }
        let mut template = Self { graph: clone, flags: flags & !UPLOAD, ..Self::none() };
        if template.map(graph, clone, coroutine).is_none() {
            template.destroy();
            return None;
        }
        Some(template)
    }

    /// Notes which node became which, in child graphs too.
    fn map(&mut self, graph: CUgraph, clone: CUgraph, coroutine: &Coroutine) -> Option<()> {
        for node in nodes(graph)? {
            let mut own = CUgraphNode(null_mut());
            is_ok(cu!(cuGraphNodeFindInClone(&raw mut own, node, clone))).then_some(())?;
            self.nodes.insert(node.0.addr(), own);
            match type_of(own)? {
                CUgraphNodeType::CU_GRAPH_NODE_TYPE_GRAPH => self.map(child(node)?, child(own)?, coroutine)?,
                CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL if parameters(own)?.ctx == coroutine.context() => {
                    self.kernels.push(own);
                }
                _ => {}
            }
        }
        Some(())
    }

    /// Leaves out all nodes but these, which are the program's.
    fn keep(&mut self, wanted: &HashSet<usize>, all: &[CUgraphNode]) -> Option<()> {
        for node in all.iter().filter(|node| !wanted.contains(&node.0.addr())) {
            let own = self.nodes.remove(&node.0.addr())?;
            is_ok(cu!(cuGraphDestroyNode(own))).then_some(())?;
        }
        // Nodes of child graphs have gone with them.
        let alive: HashSet<usize> = self.nodes.values().map(|node| node.0.addr()).collect();
        self.kernels.retain(|kernel| alive.contains(&kernel.0.addr()));
        Some(())
    }

    pub(super) fn destroy(&mut self) {
        let basis = self.basis.take().map(|(graph, _)| graph);
        for graph in [Some(self.graph), basis].into_iter().flatten().filter(|graph| !graph.0.is_null()) {
            cu!(cuGraphDestroy(graph));
        }
        *self = Self::none();
    }

    /// A fresh copy for a lane, with that lane's context current.
    pub(super) fn instantiate(&self, coroutine: &Coroutine, lane: usize) -> Option<CUgraphExec> {
        let context = coroutine.lanes[lane].context();
        bind(&self.kernels, context)?;
        fits(&self.kernels, coroutine, lane)?;
        let mut copy = CUgraphExec(null_mut());
        is_ok(cu!(cuGraphInstantiateWithFlags(&raw mut copy, self.graph, self.flags))).then_some(())?;
        let followed = self
            .basis
            .as_ref()
            .is_none_or(|(graph, kernels)| bind(kernels, context).is_some() && is_ok(update_from(copy, *graph)))
            && self.disabled.iter().all(|node| {
                let node = CUgraphNode(core::ptr::with_exposed_provenance_mut(*node));
                is_ok(cu!(cuGraphNodeSetEnabled(copy, node, 0)))
            });
        if !followed {
            cu!(cuGraphExecDestroy(copy));
            return None;
        }
        Some(copy)
    }
}

/// A template for each run of so many nodes, in an order in which each comes after those it waits for; None if one
/// is enough.
pub(super) fn cut(graph: CUgraph, flags: u64, coroutine: &Coroutine, size: usize) -> Option<Vec<Template>> {
    let sorted = sorted(graph).filter(|nodes| nodes.len() > size)?;
    let mut templates: Vec<Template> = Vec::new();
    for run in sorted.chunks(size) {
        let wanted = run.iter().map(|node| node.0.addr()).collect();
        let mut template = Template::of(graph, flags, coroutine)?;
        if template.keep(&wanted, &sorted).is_none() {
            template.destroy();
            templates.iter_mut().for_each(Template::destroy);
            return None;
        }
        templates.push(template);
    }
    Some(templates)
}

/// The graph's own nodes, each after those it waits for.
fn sorted(graph: CUgraph) -> Option<Vec<CUgraphNode>> {
    let mut left = nodes(graph)?;
    let mut waits: HashMap<usize, usize> = HashMap::new();
    let (from, to) = edges(graph)?;
    to.iter().for_each(|to| *waits.entry(to.0.addr()).or_default() += 1);
    let mut sorted = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let (ready, waiting): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|node| waits.get(&node.0.addr()).is_none_or(|count| *count == 0));
        if ready.is_empty() {
            return None;
        }
        let done: HashSet<usize> = ready.iter().map(|node| node.0.addr()).collect();
        for (_, to) in from.iter().zip(&to).filter(|(from, _)| done.contains(&from.0.addr())) {
            *waits.entry(to.0.addr()).or_insert(1) -= 1;
        }
        sorted.extend(ready);
        left = waiting;
    }
    Some(sorted)
}

fn edges(graph: CUgraph) -> Option<(Vec<CUgraphNode>, Vec<CUgraphNode>)> {
    let (none, mut count) = (CUgraphNode(null_mut()), 0);
    is_ok(cu!(cuGraphGetEdges_v2(graph, null_mut(), null_mut(), null_mut(), &raw mut count))).then_some(())?;
    let (mut from, mut to) = (vec![none; count], vec![none; count]);
    // SAFETY: bytes, which may be zero.
    let mut data: Vec<CUgraphEdgeData> = vec![unsafe { core::mem::zeroed() }; count];
    let asked = cu!(cuGraphGetEdges_v2(graph, from.as_mut_ptr(), to.as_mut_ptr(), data.as_mut_ptr(), &raw mut count));
    is_ok(asked).then_some((from, to))
}

/// Parameters as they are for a kernel that runs in that context. A kernel of a library is bound by name of the
/// context; one of a module goes where the calling thread is.
pub(crate) fn bound(parameters: &CUDA_KERNEL_NODE_PARAMS, context: CUcontext) -> CUDA_KERNEL_NODE_PARAMS {
    if parameters.kern.0.is_null() {
        CUDA_KERNEL_NODE_PARAMS { ctx: CUcontext(null_mut()), ..*parameters }
    } else {
        CUDA_KERNEL_NODE_PARAMS { func: CUfunction(null_mut()), ctx: context, ..*parameters }
    }
}

/// Runs with another context current.
pub(crate) fn with_current<T>(context: CUcontext, body: impl FnOnce() -> T) -> T {
    let mut before = CUcontext(null_mut());
    let pushed = is_ok(cu!(cuCtxPushCurrent_v2(context)));
    let result = body();
    if pushed {
        cu!(cuCtxPopCurrent_v2(&raw mut before));
    }
    result
}

/// Binds kernels to a context, which must be current.
pub(super) fn bind(kernels: &[CUgraphNode], context: CUcontext) -> Option<()> {
    for node in kernels {
        let there = bound(&parameters(*node)?, context);
        is_ok(cu!(cuGraphKernelNodeSetParams_v2(*node, &raw const there))).then_some(())?;
    }
    Some(())
}

/// Whether a lane can hold all kernels.
fn fits(kernels: &[CUgraphNode], coroutine: &Coroutine, lane: usize) -> Option<()> {
    for node in kernels {
        let launch = parameters(*node)?;
        let mut shape = Shape::new(
            [launch.gridDimX, launch.gridDimY, launch.gridDimZ],
            [launch.blockDimX, launch.blockDimY, launch.blockDimZ],
            launch.sharedMemBytes,
        );
        if let Some(value) = attribute(*node, CUkernelNodeAttrID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE) {
            // SAFETY: the attribute that was asked for.
            shape.cooperative = unsafe { value.cooperative } != 0;
        }
        if let Some(value) = attribute(*node, CUkernelNodeAttrID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
            // SAFETY: the attribute that was asked for.
            let size = unsafe { value.clusterDim };
            shape.cluster = size.x.saturating_mul(size.y).saturating_mul(size.z);
        }
        kernel::fits(launch.func, &shape, coroutine, lane).then_some(())?;
    }
    Some(())
}

fn attribute(node: CUgraphNode, which: CUkernelNodeAttrID) -> Option<CUkernelNodeAttrValue> {
    // SAFETY: plain numbers, which may be zero.
    let mut value: CUkernelNodeAttrValue = unsafe { core::mem::zeroed() };
    is_ok(cu!(cuGraphKernelNodeGetAttribute(node, which, &raw mut value))).then_some(value)
}

pub(super) fn update_from(executable: CUgraphExec, graph: CUgraph) -> CUresult {
    // SAFETY: plain numbers and handles, which may be zero.
    let mut info: CUgraphExecUpdateResultInfo = unsafe { core::mem::zeroed() };
    cu!(cuGraphExecUpdate_v2(executable, graph, &raw mut info))
}

fn nodes(graph: CUgraph) -> Option<Vec<CUgraphNode>> {
    let mut count = 0;
    is_ok(cu!(cuGraphGetNodes(graph, null_mut(), &raw mut count))).then_some(())?;
    let mut nodes = vec![CUgraphNode(null_mut()); count];
    is_ok(cu!(cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count))).then_some(nodes)
}

fn type_of(node: CUgraphNode) -> Option<CUgraphNodeType> {
    let mut kind = CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY;
    is_ok(cu!(cuGraphNodeGetType(node, &raw mut kind))).then_some(kind)
}

fn child(node: CUgraphNode) -> Option<CUgraph> {
    let mut graph = CUgraph(null_mut());
    is_ok(cu!(cuGraphChildGraphNodeGetGraph(node, &raw mut graph))).then_some(graph)
}

fn parameters(node: CUgraphNode) -> Option<CUDA_KERNEL_NODE_PARAMS> {
    // SAFETY: plain numbers and pointers, which may be zero.
    let mut parameters: CUDA_KERNEL_NODE_PARAMS = unsafe { core::mem::zeroed() };
    is_ok(cu!(cuGraphKernelNodeGetParams_v2(node, &raw mut parameters))).then_some(parameters)
}
