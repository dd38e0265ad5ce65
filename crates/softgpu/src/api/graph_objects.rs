//! User objects: what a program has destroyed when no graph needs it any more.

use super::{as_pointer, require};
use crate::boundary::{Outcome, give};
use crate::graph;
use crate::graph::user_object::UserObject;
use core::ffi::{c_uint, c_void};
use detshare_cuda::types::{CUgraph, CUhostFn, CUresult, CUuserObject};

/// `CU_USER_OBJECT_NO_DESTRUCTOR_SYNC`: nobody waits for the destructor. The only way there is, and to be asked for.
const NO_DESTRUCTOR_SYNC: c_uint = 1;
/// `CU_GRAPH_USER_OBJECT_MOVE`: the caller's references become the graph's.
const MOVE: c_uint = 1;

/// How many references a call is about.
fn references(count: c_uint) -> Outcome<usize> {
    require(count > 0 && i32::try_from(count).is_ok())?;
    Ok(count as usize)
}

pub(crate) unsafe fn cuUserObjectCreate(
    created: *mut CUuserObject,
    data: *mut c_void,
    destroy: CUhostFn,
    count: c_uint,
    flags: c_uint,
) -> Outcome {
    let destroy = destroy.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    require(!created.is_null() && flags == NO_DESTRUCTOR_SYNC)?;
    let object = UserObject::create(destroy, data.expose_provenance(), references(count)?);
    give(created, CUuserObject(as_pointer(object.handle)))
}

pub(crate) unsafe fn cuUserObjectRetain(object: CUuserObject, count: c_uint) -> Outcome {
    UserObject::find(object.0.addr())?.retain(references(count)?);
    Ok(())
}

pub(crate) unsafe fn cuUserObjectRelease(object: CUuserObject, count: c_uint) -> Outcome {
    UserObject::find(object.0.addr())?.release(references(count)?)
}

pub(crate) unsafe fn cuGraphRetainUserObject(
    graph: CUgraph,
    object: CUuserObject,
    count: c_uint,
    flags: c_uint,
) -> Outcome {
    require(flags <= MOVE)?;
    let (graph, object) = (graph::find(graph)?, UserObject::find(object.0.addr())?);
    let count = references(count)?;
    if flags != MOVE {
        object.retain(count);
    }
    graph.state().objects.add(object, count);
    Ok(())
}

pub(crate) unsafe fn cuGraphReleaseUserObject(graph: CUgraph, object: CUuserObject, count: c_uint) -> Outcome {
    let (graph, object) = (graph::find(graph)?, UserObject::find(object.0.addr())?);
    let count = references(count)?;
    graph.state().objects.remove(&object, count)
}
