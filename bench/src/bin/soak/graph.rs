//! Graphs: captured or made by hand, made executable, updated, launched and destroyed.

use crate::area::REGION;
use crate::worker::{Worker, call};
use anyhow::Result;
use core::ffi::c_void;
use core::mem::zeroed;
use core::ptr::{null, null_mut};
use core::sync::atomic::Ordering;
use detshare_bench::cu;
use detshare_cuda::types::{
    CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_MEMSET_NODE_PARAMS, CUevent, CUevent_flags, CUgraph,
    CUgraphExec, CUgraphExecUpdateResultInfo, CUgraphNode, CUstream, CUstreamCaptureMode,
};
use std::sync::PoisonError;

/// So many kernels at most.
const KERNELS: u64 = 12;

/// What a graph does each time.
#[derive(Clone, Copy)]
struct Work {
    /// What its kernels add.
    amount: u64,
    /// Its host functions.
    calls: u64,
}

/// Two graphs with the same one can be updated from each other.
#[derive(Clone, Copy, PartialEq)]
struct Shape {
    captured: bool,
    kernels: u64,
    calls: u64,
    forks: bool,
}

/// A graph that can be made executable.
pub(crate) struct Template {
    graph: CUgraph,
    shape: Shape,
    work: Work,
}

/// A graph that can be launched.
pub(crate) struct Executable {
    handle: CUgraphExec,
    shape: Shape,
    work: Work,
}

impl Worker<'_> {
    fn shape(&mut self, captured: bool) -> Shape {
        let calls = if self.allows_host_functions() { self.random.below(2) } else { 0 };
        // Few enough that two of the same come up.
        Shape { captured, kernels: 1 + self.random.below(3) * KERNELS / 3, calls, forks: self.random.below(2) == 0 }
    }

    pub(crate) fn make_graph(&mut self) -> Result<()> {
        let shape = self.shape(false);
        let (driver, program) = (&self.soak.driver, &self.soak.program);
        let mut graph = CUgraph(null_mut());
        cu!(driver, cuGraphCreate(&raw mut graph, 0))?;
        let mut after: Vec<CUgraphNode> = Vec::new();
        let mut work = Work { amount: 0, calls: shape.calls };
        for _ in 0..shape.kernels {
            let (mut counter, mut amount) = (program.counter, 1 + self.random.below(9));
            let mut pointers: [*mut c_void; 2] = [(&raw mut counter).cast(), (&raw mut amount).cast()];
            // SAFETY: numbers and pointers, all of which may be zero.
            let mut parameters: CUDA_KERNEL_NODE_PARAMS = unsafe { zeroed() };
            parameters.func = program.add;
            (parameters.gridDimX, parameters.gridDimY, parameters.gridDimZ) = (1, 1, 1);
            (parameters.blockDimX, parameters.blockDimY, parameters.blockDimZ) = (1, 1, 1);
            parameters.kernelParams = pointers.as_mut_ptr();
            let (mut node, given) = (CUgraphNode(null_mut()), &raw const parameters);
            cu!(driver, cuGraphAddKernelNode_v2(&raw mut node, graph, after.as_ptr(), after.len(), given))?;
            if !shape.forks {
                after.clear();
            }
            after.push(node);
            work.amount += amount;
        }
        let mut node = CUgraphNode(null_mut());
        let dst = self.area.scratch;
        let memset = CUDA_MEMSET_NODE_PARAMS { dst, pitch: 0, value: 7, elementSize: 1, width: REGION, height: 1 };
        let given = &raw const memset;
        cu!(driver, cuGraphAddMemsetNode(&raw mut node, graph, null(), 0, given, program.context))?;
        for _ in 0..shape.calls {
            let user_data = (&raw const self.soak.calls).cast_mut().cast();
            let host = CUDA_HOST_NODE_PARAMS { fn_: Some(call), userData: user_data };
            let given = &raw const host;
            cu!(driver, cuGraphAddHostNode(&raw mut node, graph, after.as_ptr(), after.len(), given))?;
        }
        self.graphs.push(Template { graph, shape, work });
        self.made();
        Ok(())
    }

    /// Only in non-blocking streams: what other threads put into the legacy stream would end the capture.
    pub(crate) fn capture_graph(&mut self) -> Result<()> {
        let free: Vec<CUstream> = self.streams.iter().filter(|own| own.non_blocking).map(|own| own.handle).collect();
        let Some(stream) = self.random.one_of(&free) else { return Ok(()) };
        let beside = free.iter().copied().find(|other| *other != stream);
        let mut shape = self.shape(true);
        shape.forks &= beside.is_some();
        let soak = self.soak;
        let _capturing = soak.captures.read().unwrap_or_else(PoisonError::into_inner);
        let driver = &soak.driver;
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        cu!(driver, cuStreamBeginCapture_v2(stream, mode))?;
        let mut work = Work { amount: 0, calls: shape.calls };
        for _ in 0..shape.kernels {
            work.amount += self.put_kernel(stream)?;
        }
        if let Some(beside) = beside.filter(|_| shape.forks) {
            self.order(stream, beside)?;
            work.amount += self.put_kernel(beside)?;
            cu!(driver, cuMemsetD8Async(self.area.scratch, 3, REGION, beside))?;
            self.order(beside, stream)?;
        }
        for _ in 0..shape.calls {
            self.put_call(stream)?;
        }
        let mut graph = CUgraph(null_mut());
        cu!(driver, cuStreamEndCapture(stream, &raw mut graph))?;
        self.graphs.push(Template { graph, shape, work });
        self.made();
        Ok(())
    }

    /// Has one stream wait for the other, by an event of its own.
    fn order(&self, from: CUstream, to: CUstream) -> Result<()> {
        let driver = &self.soak.driver;
        let mut event = CUevent(null_mut());
        cu!(driver, cuEventCreate(&raw mut event, CUevent_flags::CU_EVENT_DISABLE_TIMING.0))?;
        cu!(driver, cuEventRecord(event, from))?;
        cu!(driver, cuStreamWaitEvent(to, event, 0))?;
        cu!(driver, cuEventDestroy_v2(event))
    }

    pub(crate) fn instantiate(&mut self) -> Result<()> {
        let Some(position) = self.random.position(self.graphs.len()) else { return Ok(()) };
        let Template { graph, shape, work } = self.graphs[position];
        let mut handle = CUgraphExec(null_mut());
        cu!(self.soak.driver, cuGraphInstantiateWithFlags(&raw mut handle, graph, 0))?;
        self.executables.push(Executable { handle, shape, work });
        self.made();
        Ok(())
    }

    /// From another graph of the same shape, if there is one.
    pub(crate) fn update(&mut self) -> Result<()> {
        let Some(position) = self.random.position(self.executables.len()) else { return Ok(()) };
        let executable = &mut self.executables[position];
        let Some(other) = self.graphs.iter().rev().find(|other| other.shape == executable.shape) else {
            return Ok(());
        };
        // SAFETY: numbers and pointers, all of which may be zero; the driver fills it in.
        let mut outcome: CUgraphExecUpdateResultInfo = unsafe { zeroed() };
        let outcome = &raw mut outcome;
        cu!(self.soak.driver, cuGraphExecUpdate_v2(executable.handle, other.graph, outcome))?;
        executable.work = other.work;
        Ok(())
    }

    pub(crate) fn launch_graph(&mut self) -> Result<()> {
        let Some(position) = self.random.position(self.executables.len()) else { return Ok(()) };
        let stream = self.any_stream();
        let Executable { handle, work, .. } = self.executables[position];
        cu!(self.soak.driver, cuGraphLaunch(handle, stream))?;
        self.soak.expected.fetch_add(work.amount, Ordering::Relaxed);
        self.soak.expected_calls.fetch_add(work.calls, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn destroy_graph(&mut self, position: usize) -> Result<()> {
        let template = self.graphs.swap_remove(position);
        cu!(self.soak.driver, cuGraphDestroy(template.graph))?;
        self.destroyed();
        Ok(())
    }

    /// It may still run.
    pub(crate) fn destroy_executable(&mut self, position: usize) -> Result<()> {
        let executable = self.executables.swap_remove(position);
        cu!(self.soak.driver, cuGraphExecDestroy(executable.handle))?;
        self.destroyed();
        Ok(())
    }
}
