//! Executable graphs that take over what another graph says.

use super::executable::{Executable, Instance, Step, instance, lay_out};
use super::{Content, Graph};
use crate::boundary::Outcome;
use crate::operation::Operation;
use detshare_cuda::types::{CUgraphExecUpdateResult as UpdateResult, CUresult};
use std::collections::HashSet;
use std::sync::Arc;

/// Why an executable stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) result: UpdateResult,
    /// The node in question; 0 for none.
    pub(crate) node: usize,
    /// The node at the other end of the edge in question; 0 for none.
    pub(crate) from: usize,
}

impl Difference {
    fn at(result: UpdateResult, node: usize) -> Self {
        Self { result, node, from: 0 }
    }
}

impl Executable {
    /// Takes over the contents of a graph with the same shape, whose kernels run in the same contexts.
    pub(crate) fn update(&self, graph: &Arc<Graph>) -> Result<(), Difference> {
        let new = instance(graph)
            .map_err(|refusal| Difference::at(UpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR, refusal.node))?;
        let mut content = self.content();
        compare(&content.steps, &new.steps)?;
        take_over(&mut content.steps, new.steps);
        content.conditionals = new.conditionals;
        Ok(())
    }

    /// Takes over the contents of a child graph with the same shape.
    pub(crate) fn update_child(&self, node: usize, child: &Arc<Graph>) -> Outcome {
        let mut content = self.content();
        let position = content.steps.iter().position(|step| step.node == node);
        let position = position.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let step = &content.steps[position];
        if !matches!(step.content, Content::Child(_)) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let start = position - step.inner;
        let old = content.steps[start..position].to_vec();
        // Where the child's own first steps begin.
        let entry = old.first().map_or_else(|| step.after.clone(), |first| first.after.clone());
        let mut new = Instance { steps: content.steps[..start].to_vec(), ..Instance::default() };
        lay_out(child, &entry, false, &mut new, &mut HashSet::new()).map_err(|refusal| refusal.code)?;
        let new = new.steps.split_off(start);
        compare(&old, &new).map_err(|_| CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE)?;
        take_over(&mut content.steps[start..position], new);
        Ok(())
    }
}

/// What keeps the new steps from taking the place of the old ones.
fn compare(old: &[Step], new: &[Step]) -> Result<(), Difference> {
    if old.len() != new.len() {
        return Err(Difference::at(UpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, 0));
    }
    for (is, wanted) in old.iter().zip(new) {
        if type_of(&is.content) != type_of(&wanted.content) {
            return Err(Difference::at(UpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, wanted.node));
        }
        if is.after != wanted.after {
            let other = wanted.after.iter().find(|position| !is.after.contains(position));
            let from = other.and_then(|position| new.get(*position)).map_or(0, |step| step.node);
            let result = UpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
            return Err(Difference { result, node: wanted.node, from });
        }
        compare_contents(is, wanted).map_err(|result| Difference::at(result, wanted.node))?;
        for (body, wanted) in is.bodies.iter().zip(&wanted.bodies) {
            compare(body, wanted)?;
        }
    }
    Ok(())
}

fn compare_contents(is: &Step, wanted: &Step) -> Result<(), UpdateResult> {
    let unless = |same: bool, result: UpdateResult| if same { Ok(()) } else { Err(result) };
    let parameters = UpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    match (&is.content, &wanted.content) {
        (Content::Operation(Operation::Kernel(is)), Content::Operation(Operation::Kernel(wanted))) => {
            let result = UpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
            unless(is.bound.context == wanted.bound.context, result)
        }
        (Content::Semaphores(is, _), Content::Semaphores(wanted, _)) => {
            unless(is.all.len() == wanted.all.len(), parameters)
        }
        (Content::Allocate(is), Content::Allocate(wanted)) => {
            unless(is.bytes == wanted.bytes && is.address == wanted.address, parameters)
        }
        (Content::Free(is), Content::Free(wanted)) => unless(is == wanted, parameters),
        (Content::Conditional(is), Content::Conditional(wanted)) => {
            unless(is.kind == wanted.kind && is.bodies.len() == wanted.bodies.len(), parameters)
        }
        _ => Ok(()),
    }
}

/// Steps stay those of the nodes that they were made from.
fn take_over(old: &mut [Step], new: Vec<Step>) {
    for (step, new) in old.iter_mut().zip(new) {
        step.content = new.content;
        for (body, new) in step.bodies.iter_mut().zip(new.bodies) {
            take_over(Arc::make_mut(body).as_mut_slice(), Arc::unwrap_or_clone(new));
        }
    }
}

/// The type of a node with that content.
pub(crate) fn type_of(content: &Content) -> detshare_cuda::types::CUgraphNodeType {
    use super::parameters::Uses;
    use detshare_cuda::types::CUgraphNodeType as Type;
    match content {
        Content::Operation(Operation::Kernel(_)) => Type::CU_GRAPH_NODE_TYPE_KERNEL,
        Content::Operation(Operation::Host(_) | Operation::Callback(_)) => Type::CU_GRAPH_NODE_TYPE_HOST,
        Content::Empty | Content::Operation(_) => Type::CU_GRAPH_NODE_TYPE_EMPTY,
        Content::Semaphores(semaphores, _) => match semaphores.uses {
            Uses::Wait(_) => Type::CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT,
            Uses::Signal(_) => Type::CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL,
        },
        Content::Batch(..) => Type::CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
        Content::Copy(..) => Type::CU_GRAPH_NODE_TYPE_MEMCPY,
        Content::Fill(..) => Type::CU_GRAPH_NODE_TYPE_MEMSET,
        Content::Child(_) => Type::CU_GRAPH_NODE_TYPE_GRAPH,
        Content::Record(_) => Type::CU_GRAPH_NODE_TYPE_EVENT_RECORD,
        Content::Wait(_) => Type::CU_GRAPH_NODE_TYPE_WAIT_EVENT,
        Content::Allocate(_) => Type::CU_GRAPH_NODE_TYPE_MEM_ALLOC,
        Content::Free(_) => Type::CU_GRAPH_NODE_TYPE_MEM_FREE,
        Content::Conditional(_) => Type::CU_GRAPH_NODE_TYPE_CONDITIONAL,
    }
}
