//! Executable graphs: a copy of the nodes as they were, ready to be submitted.

use super::{Content, Graph, GraphMemory};
use crate::boundary::Outcome;
use crate::engine::{self, Done, Work};
use crate::handle::{self, Table};
use crate::operation::{Copy, Fill, Operation};
use crate::stream::Stream;
use detshare_cuda::types::{
    CUDA_MEMCPY3D_v2, CUgraphExec, CUgraphExecUpdateResult as UpdateResult, CUmemorytype, CUresult,
};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

pub(crate) static EXECUTABLES: Table<Executable> = Table::new();

/// An executable graph.
pub(crate) struct Executable {
    pub(crate) handle: usize,
    pub(crate) flags: u64,
    steps: Mutex<Vec<Step>>,
    /// Of its last launch: one launch follows the other.
    last: Mutex<Arc<Done>>,
}

/// One node, in an order in which each comes after those it waits for.
#[derive(Clone)]
pub(crate) struct Step {
    /// The node that it was made from.
    pub(crate) node: usize,
    pub(crate) content: Content,
    /// Positions of those it waits for.
    after: Vec<usize>,
    pub(crate) enabled: bool,
}

impl Executable {
    pub(crate) fn create(graph: &Arc<Graph>, flags: u64) -> Outcome<Arc<Self>> {
        let executable = Arc::new(Self {
            handle: handle::new(),
            flags,
            steps: Mutex::new(steps(graph)?),
            last: Mutex::new(Done::already()),
        });
        EXECUTABLES.insert(executable.handle, Arc::clone(&executable));
        Ok(executable)
    }

    pub(crate) fn steps(&self) -> MutexGuard<'_, Vec<Step>> {
        self.steps.lock().expect("no panic while it is held")
    }

    /// Changes one step, found by the node that it was made from.
    pub(crate) fn change(&self, node: usize, change: impl FnOnce(&mut Step)) -> Outcome {
        let mut steps = self.steps();
        let step = steps.iter_mut().find(|step| step.node == node).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        change(step);
        Ok(())
    }

    /// Takes over the contents of a graph with the same shape, whose kernels run in the same contexts.
    pub(crate) fn update(&self, graph: &Arc<Graph>) -> Outcome<UpdateResult> {
        let new = steps(graph)?;
        let mut old = self.steps();
        let same = new.len() == old.len()
            && new.iter().zip(old.iter()).all(|(new, old)| {
                new.after == old.after && core::mem::discriminant(&new.content) == core::mem::discriminant(&old.content)
            });
        if !same {
            return Ok(UpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
        }
        if new.iter().zip(old.iter()).any(|(new, old)| new.content.context() != old.content.context()) {
            return Ok(UpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE);
        }
        for (old, new) in old.iter_mut().zip(new) {
            old.content = new.content;
        }
        Ok(UpdateResult::CU_GRAPH_EXEC_UPDATE_SUCCESS)
    }

    /// Runs it in the stream.
    pub(crate) fn launch(&self, stream: &Arc<Stream>) {
        let mut last = self.last.lock().expect("no panic while it is held");
        let begin = stream.submit(Work::Nothing, &[Arc::clone(&last)]);
        let mut done: Vec<Arc<Done>> = Vec::new();
        for step in self.steps().iter() {
            let mut after: Vec<_> = step.after.iter().map(|position| Arc::clone(&done[*position])).collect();
            after.push(Arc::clone(&begin));
            done.push(step.submit(stream, &mut after));
        }
        *last = stream.submit(Work::Nothing, &done);
    }
}

impl Step {
    fn submit(&self, stream: &Arc<Stream>, after: &mut Vec<Arc<Done>>) -> Arc<Done> {
        let fate = &stream.context.fate;
        let nothing = |after: &[Arc<Done>]| engine::submit(Work::Nothing, after, fate);
        if !self.enabled {
            return nothing(after);
        }
        match &self.content {
            Content::Operation(operation) | Content::Copy(_, operation) | Content::Fill(_, operation) => {
                let work = operation.clone().into_work(stream.priority);
                engine::submit(work, after, fate)
            }
            Content::Record(event) => {
                let done = nothing(after);
                event.remember(Arc::clone(&done));
                done
            }
            Content::Wait(event) => {
                after.extend(event.done());
                nothing(after)
            }
            Content::Free(address) if !GraphMemory::holds(*address) => {
                engine::submit(Operation::Free(*address).into_work(0), after, fate)
            }
            Content::Empty | Content::Child(_) | Content::Allocate(_) | Content::Free(_) => nothing(after),
        }
    }
}

/// The graph's nodes, child graphs laid out in their place.
fn steps(graph: &Arc<Graph>) -> Outcome<Vec<Step>> {
    let mut steps = Vec::new();
    lay_out(graph, &[], &mut steps)?;
    Ok(steps)
}

/// Appends the graph's nodes behind `entry`; returns the positions of those that nothing comes after.
fn lay_out(graph: &Arc<Graph>, entry: &[usize], steps: &mut Vec<Step>) -> Outcome<Vec<usize>> {
    let state = graph.state();
    let order = state.sorted().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let mut position: HashMap<usize, usize> = HashMap::new();
    for node in &order {
        let mut after: Vec<usize> = state.before(node.handle).iter().map(|before| position[before]).collect();
        if after.is_empty() {
            after = entry.to_vec();
        }
        after.sort_unstable();
        if let Content::Child(child) = node.content() {
            after = lay_out(&child, &after, steps)?;
        }
        position.insert(node.handle, steps.len());
        steps.push(Step { node: node.handle, content: node.content(), after, enabled: true });
    }
    let ends = order.iter().filter(|node| state.behind(node.handle).is_empty());
    Ok(ends.map(|node| position[&node.handle]).collect())
}

pub(crate) fn find(executable: CUgraphExec) -> Outcome<Arc<Executable>> {
    EXECUTABLES.get(executable.0.addr()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

impl Content {
    /// The context that a kernel runs in.
    pub(crate) fn context(&self) -> Option<usize> {
        match self {
            Self::Operation(Operation::Kernel(launch)) => Some(launch.bound.context),
            _ => None,
        }
    }

    /// What a captured operation becomes.
    pub(crate) fn of(operation: &Operation) -> Self {
        match operation {
            Operation::Nothing => Self::Empty,
            Operation::Copy(copy) => Self::Copy(Box::new(copy_parameters(copy)), operation.clone()),
            Operation::Fill(fill) => Self::Fill(fill_parameters(fill), operation.clone()),
            Operation::Free(address) => Self::Free(*address),
            _ => Self::Operation(operation.clone()),
        }
    }
}

/// A captured copy as the program would have written it.
fn copy_parameters(copy: &Copy) -> CUDA_MEMCPY3D_v2 {
    // SAFETY: numbers, pointers and enums, all of which may be zero.
    let mut parameters: CUDA_MEMCPY3D_v2 = unsafe { core::mem::zeroed() };
    let unified = CUmemorytype::CU_MEMORYTYPE_UNIFIED;
    (parameters.srcMemoryType, parameters.dstMemoryType) = (unified, unified);
    parameters.srcDevice.0 = copy.from.address;
    parameters.dstDevice.0 = copy.to.address;
    (parameters.srcPitch, parameters.dstPitch) = (copy.from.pitch, copy.to.pitch);
    (parameters.WidthInBytes, parameters.Height, parameters.Depth) = (copy.width, copy.height, copy.depth);
    parameters
}

fn fill_parameters(fill: &Fill) -> detshare_cuda::types::CUDA_MEMSET_NODE_PARAMS_v1 {
    detshare_cuda::types::CUDA_MEMSET_NODE_PARAMS_v1 {
        dst: detshare_cuda::types::CUdeviceptr_v2(fill.address),
        pitch: fill.pitch,
        value: fill.value,
        elementSize: u32::try_from(fill.element).unwrap_or(1),
        width: fill.width,
        height: fill.height,
    }
}
