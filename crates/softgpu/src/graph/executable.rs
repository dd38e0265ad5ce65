//! Executable graphs: a copy of the nodes as they were, ready to be submitted.

use super::conditional::{self, Run};
use super::user_object::References;
use super::{Content, Graph, memory};
use crate::boundary::Outcome;
use crate::engine::{self, Done, Work};
use crate::handle::{self, Table};
use crate::operation::Operation;
use crate::stream::Stream;
use crate::system::conditional::Conditional;
use detshare_cuda::types::{
    CUgraphExec, CUgraphInstantiate_flags as Flags, CUgraphInstantiateResult as InstantiateResult, CUresult,
};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

pub(crate) static EXECUTABLES: Table<Executable> = Table::new();

/// An executable graph.
pub(crate) struct Executable {
    pub(crate) handle: usize,
    pub(crate) flags: u64,
    pub(super) content: Mutex<Instance>,
    /// Of its last launch: one launch follows the other.
    last: Mutex<Arc<Done>>,
    objects: Mutex<References>,
}

/// What was made of a graph.
#[derive(Clone, Default)]
pub(crate) struct Instance {
    pub(crate) steps: Vec<Step>,
    /// The values that its conditional nodes look at.
    pub(super) conditionals: Vec<Arc<Conditional>>,
}

/// One node, in an order in which each comes after those it waits for.
#[derive(Clone)]
pub(crate) struct Step {
    /// The node that it was made from.
    pub(crate) node: usize,
    pub(crate) content: Content,
    /// Positions of those it waits for.
    pub(super) after: Vec<usize>,
    /// How many steps right before it are those of its child graph.
    pub(super) inner: usize,
    /// What a conditional node runs.
    pub(super) bodies: Vec<Arc<Vec<Step>>>,
    pub(crate) enabled: bool,
}

/// Why a graph was not instantiated.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refusal {
    pub(crate) code: CUresult,
    pub(crate) result: InstantiateResult,
    /// The node in question; 0 for none.
    pub(crate) node: usize,
}

impl Executable {
    pub(crate) fn create(graph: &Arc<Graph>, flags: u64) -> Result<Arc<Self>, Refusal> {
        let content = instance(graph)?;
        if flags & u64::from(Flags::CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH.0) != 0 {
            check_device_launch(&content.steps)?;
        }
        let objects = graph.state().objects.clone();
        let executable = Arc::new(Self {
            handle: handle::new(),
            flags,
            content: Mutex::new(content),
            last: Mutex::new(Done::already()),
            objects: Mutex::new(objects),
        });
        let mut state = graph.state();
        if state.has_memory() && state.executable.strong_count() > 0 {
            let result = InstantiateResult::CUDA_GRAPH_INSTANTIATE_ERROR;
            return Err(Refusal { code: CUresult::CUDA_ERROR_NOT_SUPPORTED, result, node: 0 });
        }
        state.executable = Arc::downgrade(&executable);
        EXECUTABLES.insert(executable.handle, Arc::clone(&executable));
        Ok(executable)
    }

    fn has(&self, flag: Flags) -> bool {
        self.flags & u64::from(flag.0) != 0
    }

    pub(crate) fn content(&self) -> MutexGuard<'_, Instance> {
        self.content.lock().expect("no panic while it is held")
    }

    /// Looks at one step or changes it, found by the node that it was made from, wherever in the graph.
    pub(crate) fn change<T>(&self, node: usize, change: impl FnOnce(&mut Step) -> Outcome<T>) -> Outcome<T> {
        let mut content = self.content();
        let step = find_step(&mut content.steps, node).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        change(step)
    }

    /// Runs it in the stream.
    pub(crate) fn launch(&self, stream: &Arc<Stream>) -> Outcome {
        let mut last = self.last.lock().expect("no panic while it is held");
        let content = self.content();
        memory::launch(&content.steps, self.has(Flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH))?;
        let conditionals = content.conditionals.clone();
        let start = match conditionals.is_empty() {
            true => Work::Nothing,
            false => Work::Quick(Box::new(move || conditionals.iter().for_each(|it| it.reset()))),
        };
        let begin = stream.submit(start, &[Arc::clone(&last)]);
        let run = Run {
            fate: Arc::clone(&stream.context.fate),
            priority: stream.priority,
            use_node_priority: self.has(Flags::CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY),
        };
        let done = submit_steps(&content.steps, &[begin], &run);
        *last = stream.submit(Work::Nothing, &done);
        Ok(())
    }
}

impl Drop for Executable {
    /// What it kept for the program is kept until its last launch is over.
    fn drop(&mut self) {
        if let (Ok(objects), Ok(last)) = (self.objects.get_mut(), self.last.get_mut()) {
            std::mem::take(objects).release_after(last);
        }
    }
}

fn find_step(steps: &mut [Step], node: usize) -> Option<&mut Step> {
    let holds = |step: &Step| step.node == node || step.bodies.iter().any(|body| contains(body, node));
    let step = steps.iter_mut().find(|step| holds(step))?;
    if step.node == node {
        return Some(step);
    }
    let body = step.bodies.iter_mut().find(|body| contains(body, node))?;
    find_step(Arc::make_mut(body).as_mut_slice(), node)
}

fn contains(steps: &[Step], node: usize) -> bool {
    steps.iter().any(|step| step.node == node || step.bodies.iter().any(|body| contains(body, node)))
}

/// Submits steps behind `begin`; returns the completion of each.
pub(super) fn submit_steps(steps: &[Step], begin: &[Arc<Done>], run: &Run) -> Vec<Arc<Done>> {
    let mut done: Vec<Arc<Done>> = Vec::with_capacity(steps.len());
    for step in steps {
        let mut after: Vec<_> = step.after.iter().map(|position| Arc::clone(&done[*position])).collect();
        if after.is_empty() {
            after.extend_from_slice(begin);
        }
        done.push(step.submit(&mut after, run));
    }
    done
}

impl Step {
    fn submit(&self, after: &mut Vec<Arc<Done>>, run: &Run) -> Arc<Done> {
        let nothing = |after: &[Arc<Done>]| engine::submit(Work::Nothing, after, &run.fate);
        if !self.enabled {
            return nothing(after);
        }
        match &self.content {
            Content::Operation(operation)
            | Content::Copy(_, operation)
            | Content::Fill(_, operation)
            | Content::Batch(_, operation)
            | Content::Semaphores(_, operation) => {
                let mut operation = operation.clone();
                if let Operation::Kernel(launch) = &mut operation
                    && !run.use_node_priority
                {
                    launch.priority = None;
                }
                engine::submit(operation.into_work(run.priority), after, &run.fate)
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
            Content::Free(address) if !memory::holds(*address) => {
                engine::submit(Operation::Free(*address, None).into_work(0), after, &run.fate)
            }
            Content::Conditional(branching) => conditional::submit(branching, &self.bodies, after, run),
            Content::Empty | Content::Child(_) | Content::Allocate(_) | Content::Free(_) => nothing(after),
        }
    }
}

/// A graph as it is run.
pub(super) fn instance(graph: &Arc<Graph>) -> Result<Instance, Refusal> {
    let mut instance = Instance::default();
    let mut used = HashSet::new();
    lay_out(graph, &[], false, &mut instance, &mut used)?;
    if instance.conditionals.iter().any(|it| !used.contains(&it.handle)) {
        let result = InstantiateResult::CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED;
        return Err(Refusal { code: CUresult::CUDA_ERROR_INVALID_VALUE, result, node: 0 });
    }
    Ok(instance)
}

/// Appends the graph's nodes behind `entry`, child graphs in their place; returns the positions of those that nothing
/// comes after. `used` collects the conditions that nodes look at.
pub(super) fn lay_out(
    graph: &Arc<Graph>,
    entry: &[usize],
    in_body: bool,
    instance: &mut Instance,
    used: &mut HashSet<usize>,
) -> Result<Vec<usize>, Refusal> {
    let state = graph.state();
    instance.conditionals.extend(state.conditionals.iter().cloned());
    let result = InstantiateResult::CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
    let order = state.sorted().ok_or(Refusal { code: CUresult::CUDA_ERROR_INVALID_VALUE, result, node: 0 })?;
    let mut position: HashMap<usize, usize> = HashMap::new();
    for node in &order {
        let content = node.content();
        if in_body && !conditional::may_be_in_a_body(&content) {
            return Err(not_supported(node.handle));
        }
        let mut after: Vec<usize> = state.before(node.handle).iter().map(|(before, _)| position[before]).collect();
        if after.is_empty() {
            after = entry.to_vec();
        }
        after.sort_unstable();
        let start = instance.steps.len();
        let mut bodies = Vec::new();
        match &content {
            Content::Child(child) => {
                let ends = lay_out(child, &after, in_body, instance, used)?;
                if instance.steps.len() > start {
                    after = ends;
                }
            }
            Content::Conditional(branching) => {
                used.insert(branching.condition.handle);
                for body in &branching.bodies {
                    let mut inner = Instance::default();
                    lay_out(body, &[], true, &mut inner, used)?;
                    instance.conditionals.extend(inner.conditionals);
                    bodies.push(Arc::new(inner.steps));
                }
            }
            _ => {}
        }
        position.insert(node.handle, instance.steps.len());
        let inner = instance.steps.len() - start;
        instance.steps.push(Step { node: node.handle, content, after, inner, bodies, enabled: true });
    }
    let ends = order.iter().filter(|node| state.behind(node.handle).is_empty());
    Ok(ends.map(|node| position[&node.handle]).collect())
}

fn not_supported(node: usize) -> Refusal {
    let result = InstantiateResult::CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
    Refusal { code: CUresult::CUDA_ERROR_NOT_SUPPORTED, result, node }
}

/// A graph that kernels may launch has kernels, copies and fills only.
fn check_device_launch(steps: &[Step]) -> Result<(), Refusal> {
    let allowed = |content: &Content| {
        matches!(
            content,
            Content::Operation(Operation::Kernel(_)) | Content::Copy(..) | Content::Fill(..) | Content::Child(_)
        )
    };
    match steps.iter().find(|step| !allowed(&step.content)) {
        Some(step) => Err(not_supported(step.node)),
        None => Ok(()),
    }
}

pub(crate) fn find(executable: CUgraphExec) -> Outcome<Arc<Executable>> {
    EXECUTABLES.get(executable.0.addr()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}
