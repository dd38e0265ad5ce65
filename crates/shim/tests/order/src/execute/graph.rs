//! Graphs: captured or built, made executable, changed.

use super::work::{Kernel, data, host_function};
use super::{Run, WORD, get, put};
use crate::machine::Break;
use crate::program::{Cell, ExecId, GraphId, Manner, NodeId, On, Op, Part, Work};
use anyhow::{Context, Result, bail, ensure};
use core::ffi::c_void;
use core::mem::zeroed;
use core::ptr::{null, null_mut};
use detshare_cuda::types::{
    CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUcontext, CUevent,
    CUevent_flags, CUgraph, CUgraphExec, CUgraphExecUpdateResultInfo, CUgraphNode, CUkernel, CUmemorytype,
    CUstreamCaptureMode, CUstreamCaptureStatus,
};

const NO_NODE: CUgraphNode = CUgraphNode(null_mut());

/// A launch as a node's parameters. The pointers must outlive them.
fn parameters(kernel: &Kernel, pointers: &mut [*mut c_void]) -> CUDA_KERNEL_NODE_PARAMS {
    CUDA_KERNEL_NODE_PARAMS {
        func: kernel.function,
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 1,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        kernelParams: pointers.as_mut_ptr(),
        extra: null_mut(),
        kern: CUkernel(null_mut()),
        ctx: CUcontext(null_mut()),
    }
}

impl Run<'_> {
    pub(super) fn capture(&self, graph: GraphId, on: On, aside: Option<On>, parts: &[Part]) -> Result<()> {
        let machine = self.machine;
        let edges = parts.iter().filter(|part| !matches!(part, Part::Work { .. })).count();
        let flags = CUevent_flags::CU_EVENT_DISABLE_TIMING.0;
        let events: Vec<CUevent> = (0..edges).map(|_| self.new_event(flags)).collect::<Result<_>>()?;
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        ok_on!(machine, on, cuStreamBeginCapture_v2 | cuStreamBeginCapture_v2_ptsz(self.stream(on)?, mode));
        let (mut nodes, mut unused) = (Vec::new(), events.iter());
        for part in parts {
            let second = || aside.context("a fork without a second stream");
            let (from, to) = match part {
                Part::Work { aside } => {
                    let on = if *aside { second()? } else { on };
                    let index = nodes.len();
                    let call = self.graph_host_calls[graph][index].as_ref();
                    self.work(on, self.program.graphs[graph][index].work, Manner::Plain, call)?;
                    nodes.push(self.captured_node(on)?);
                    continue;
                }
                Part::Fork => (on, second()?),
                Part::Join => (second()?, on),
            };
            let event = *unused.next().context("an event for each edge")?;
            ok_on!(machine, from, cuEventRecord | cuEventRecord_ptsz(event, self.stream(from)?));
            ok_on!(machine, to, cuStreamWaitEvent | cuStreamWaitEvent_ptsz(self.stream(to)?, event, 0));
        }
        let mut handle = CUgraph(null_mut());
        ok_on!(machine, on, cuStreamEndCapture | cuStreamEndCapture_ptsz(self.stream(on)?, &raw mut handle));
        for event in events {
            ok!(machine, cuEventDestroy_v2(event));
        }
        put(&self.graphs, graph, handle)?;
        put(&self.nodes, graph, nodes)
    }

    /// The node that was captured last in that stream: the only one that the next one would wait for.
    fn captured_node(&self, on: On) -> Result<CUgraphNode> {
        let stream = self.stream(on)?;
        let (mut status, mut nodes, mut count) = (CUstreamCaptureStatus(0), null(), 0);
        let (no_id, no_graph) = (null_mut(), null_mut());
        let (status_at, nodes_at, count_at) = (&raw mut status, &raw mut nodes, &raw mut count);
        ok_on!(
            self.machine,
            on,
            cuStreamGetCaptureInfo_v2
                | cuStreamGetCaptureInfo_v2_ptsz(stream, status_at, no_id, no_graph, nodes_at, count_at)
        );
        ensure!(count == 1 && !nodes.is_null(), "{count} nodes at the end of a captured stream");
        // SAFETY: the driver's list of `count` nodes, which lives until the stream captures more.
        Ok(unsafe { *nodes })
    }

    pub(super) fn build(&self, graph: GraphId) -> Result<()> {
        let mut handle = CUgraph(null_mut());
        ok!(self.machine, cuGraphCreate(&raw mut handle, 0));
        let mut nodes = Vec::new();
        for (index, node) in self.program.graphs[graph].iter().enumerate() {
            let broken = self.machine.is_broken(Break::GraphEdges);
            let after: Vec<_> = node.after.iter().filter(|_| !broken).map(|other| nodes[*other]).collect();
            nodes.push(match node.work {
                Work::Host { .. } => self.add_host(handle, &after, graph, index)?,
                work => self.add_node(handle, &after, work)?,
            });
        }
        put(&self.graphs, graph, handle)?;
        put(&self.nodes, graph, nodes)
    }

    fn add_node(&self, graph: CUgraph, after: &[CUgraphNode], work: Work) -> Result<CUgraphNode> {
        let (machine, context) = (self.machine, self.machine.context);
        let (mut node, others, count) = (NO_NODE, after.as_ptr(), after.len());
        match work {
            Work::Step { .. } | Work::Mix { .. } => {
                let mut kernel = self.kernel(work)?;
                let mut pointers = kernel.pointers();
                let parameters = parameters(&kernel, &mut pointers);
                ok!(machine, cuGraphAddKernelNode_v2(&raw mut node, graph, others, count, &raw const parameters));
            }
            Work::Copy { from, to } => {
                let parameters = self.copy_parameters(from, to)?;
                let parameters = &raw const parameters;
                ok!(machine, cuGraphAddMemcpyNode(&raw mut node, graph, others, count, parameters, context));
            }
            Work::Set { cell, value } => {
                let dst = self.address(cell)?;
                let parameters = CUDA_MEMSET_NODE_PARAMS { dst, pitch: 0, value, elementSize: 4, width: 1, height: 1 };
                let parameters = &raw const parameters;
                ok!(machine, cuGraphAddMemsetNode(&raw mut node, graph, others, count, parameters, context));
            }
            Work::Host { .. } => bail!("a host function has data"),
        }
        Ok(node)
    }

    fn add_host(&self, graph: CUgraph, after: &[CUgraphNode], number: GraphId, index: NodeId) -> Result<CUgraphNode> {
        let call = self.graph_host_calls[number][index].as_ref().context("a host function without data")?;
        let parameters = CUDA_HOST_NODE_PARAMS { fn_: Some(host_function), userData: data(call) };
        let (mut node, parameters) = (NO_NODE, &raw const parameters);
        ok!(self.machine, cuGraphAddHostNode(&raw mut node, graph, after.as_ptr(), after.len(), parameters));
        Ok(node)
    }

    fn copy_parameters(&self, from: Cell, to: Cell) -> Result<CUDA_MEMCPY3D> {
        // SAFETY: plain values throughout, where zero means none.
        let mut parameters: CUDA_MEMCPY3D = unsafe { zeroed() };
        match from {
            Cell::Pinned(index) => {
                parameters.srcMemoryType = CUmemorytype::CU_MEMORYTYPE_HOST;
                parameters.srcHost = self.machine.pinned.address(index).cast_const();
            }
            cell => {
                parameters.srcMemoryType = CUmemorytype::CU_MEMORYTYPE_DEVICE;
                parameters.srcDevice = self.address(cell)?;
            }
        }
        match to {
            Cell::Pinned(index) => {
                parameters.dstMemoryType = CUmemorytype::CU_MEMORYTYPE_HOST;
                parameters.dstHost = self.machine.pinned.address(index);
            }
            cell => {
                parameters.dstMemoryType = CUmemorytype::CU_MEMORYTYPE_DEVICE;
                parameters.dstDevice = self.address(cell)?;
            }
        }
        parameters.WidthInBytes = WORD;
        parameters.Height = 1;
        parameters.Depth = 1;
        Ok(parameters)
    }

    pub(super) fn instantiate(&self, graph: GraphId, exec: ExecId) -> Result<()> {
        let mut handle = CUgraphExec(null_mut());
        ok!(self.machine, cuGraphInstantiateWithFlags(&raw mut handle, get(&self.graphs, graph)?, 0));
        put(&self.execs, exec, handle)
    }

    pub(super) fn update(&self, exec: ExecId, graph: GraphId) -> Result<()> {
        if self.machine.is_broken(Break::SetParameters) {
            return Ok(());
        }
        // SAFETY: plain values throughout, which the driver fills in.
        let mut outcome: CUgraphExecUpdateResultInfo = unsafe { zeroed() };
        let (exec, graph, outcome) = (get(&self.execs, exec)?, get(&self.graphs, graph)?, &raw mut outcome);
        ok!(self.machine, cuGraphExecUpdate_v2(exec, graph, outcome));
        Ok(())
    }

    /// The node of the graph that the executable graph was made from.
    fn node_of(&self, exec: ExecId, node: NodeId) -> Result<CUgraphNode> {
        let made_from = self.program.steps.iter().find_map(|step| match step.op {
            Op::Instantiate { graph, exec: made } if made == exec => Some(graph),
            _ => None,
        });
        let nodes = self.nodes[made_from.context("an executable graph from nowhere")?].get();
        Ok(nodes.context("a graph without nodes")?.0[node])
    }

    pub(super) fn set_parameters(&self, exec: ExecId, node: NodeId, work: Work) -> Result<()> {
        if self.machine.is_broken(Break::SetParameters) {
            return Ok(());
        }
        let (handle, node, mut kernel) = (get(&self.execs, exec)?, self.node_of(exec, node)?, self.kernel(work)?);
        let mut pointers = kernel.pointers();
        let parameters = parameters(&kernel, &mut pointers);
        ok!(self.machine, cuGraphExecKernelNodeSetParams_v2(handle, node, &raw const parameters));
        Ok(())
    }

    pub(super) fn set_enabled(&self, exec: ExecId, node: NodeId, enabled: bool) -> Result<()> {
        if self.machine.is_broken(Break::SetEnabled) {
            return Ok(());
        }
        let (handle, node) = (get(&self.execs, exec)?, self.node_of(exec, node)?);
        ok!(self.machine, cuGraphNodeSetEnabled(handle, node, u32::from(enabled)));
        Ok(())
    }
}
