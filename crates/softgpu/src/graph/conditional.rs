//! Conditional nodes: bodies that run once, again and again, or not at all, as a kernel has decided.

use super::executable::{Step, submit_steps};
use super::{Content, Graph};
use crate::engine::{self, Done, Fate, Work};
use crate::system::conditional::Conditional;
use core::sync::atomic::AtomicPtr;
use detshare_cuda::types::{CUgraph, CUgraphConditionalNodeType as Kind};
use std::sync::Arc;

/// What a conditional node has.
pub(crate) struct Branching {
    pub(crate) condition: Arc<Conditional>,
    pub(crate) kind: Kind,
    pub(crate) bodies: Vec<Arc<Graph>>,
    /// Their handles, as the program reads them as long as the node lives.
    handles: Box<[AtomicPtr<core::ffi::c_void>]>,
}

impl Branching {
    pub(crate) fn new(condition: Arc<Conditional>, kind: Kind, count: usize) -> Arc<Self> {
        let bodies: Vec<_> = (0..count).map(|_| Graph::create_owned()).collect();
        let handles =
            bodies.iter().map(|body| AtomicPtr::new(core::ptr::without_provenance_mut(body.handle))).collect();
        Arc::new(Self { condition, kind, bodies, handles })
    }

    /// Where the program finds the handles of the bodies.
    pub(crate) fn handles(&self) -> *mut CUgraph {
        // A handle is one pointer, in the array as to the program.
        self.handles.as_ptr().cast_mut().cast()
    }

    /// How many bodies a node of that kind may have.
    pub(crate) fn may_have(kind: Kind, count: u32) -> bool {
        match kind {
            Kind::CU_GRAPH_COND_TYPE_IF => (1..=2).contains(&count),
            Kind::CU_GRAPH_COND_TYPE_WHILE => count == 1,
            Kind::CU_GRAPH_COND_TYPE_SWITCH => count > 0,
            _ => false,
        }
    }

    /// The body that runs now.
    fn chosen(&self) -> Option<usize> {
        let value = self.condition.get() as usize;
        match self.kind {
            Kind::CU_GRAPH_COND_TYPE_SWITCH => Some(value),
            Kind::CU_GRAPH_COND_TYPE_IF => Some(usize::from(value == 0)),
            _ => (value != 0).then_some(0),
        }
        .filter(|body| *body < self.bodies.len())
    }
}

/// How a graph's steps are submitted, wherever in it they are.
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) fate: Arc<Fate>,
    /// The stream's, for kernels without one of their own.
    pub(crate) priority: i32,
    pub(crate) use_node_priority: bool,
}

/// A conditional node of an executable, with its bodies as steps.
pub(super) fn submit(
    branching: &Arc<Branching>,
    bodies: &[Arc<Vec<Step>>],
    after: &[Arc<Done>],
    run: &Run,
) -> Arc<Done> {
    let (branching, bodies, own) = (Arc::clone(branching), bodies.to_vec(), run.clone());
    let work = Work::Expand(Box::new(move |healthy, done| match healthy {
        Ok(()) => turn(branching, bodies, own, done),
        Err(_) => engine::finish(&done),
    }));
    engine::submit(work, after, &run.fate)
}

/// Looks at the condition and runs the body that it asks for; a loop then looks again.
fn turn(branching: Arc<Branching>, bodies: Vec<Arc<Vec<Step>>>, run: Run, done: Arc<Done>) {
    let Some(body) = branching.chosen() else { return engine::finish(&done) };
    let ends = submit_steps(&bodies[body], &[], &run);
    let fate = Arc::clone(&run.fate);
    let behind = Work::Expand(Box::new(move |healthy, own| {
        engine::finish(&own);
        if healthy.is_ok() && branching.kind == Kind::CU_GRAPH_COND_TYPE_WHILE {
            turn(branching, bodies, run, done);
        } else {
            engine::finish(&done);
        }
    }));
    engine::submit(behind, &ends, &fate);
}

/// Whether a body may have such a node.
pub(super) fn may_be_in_a_body(content: &Content) -> bool {
    use crate::operation::Operation;
    matches!(
        content,
        Content::Empty
            | Content::Operation(Operation::Kernel(_))
            | Content::Copy(..)
            | Content::Fill(..)
            | Content::Child(_)
            | Content::Conditional(_)
    )
}
