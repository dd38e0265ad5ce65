//! Capture of streams into graphs.

use super::{as_pointer, graph_edges, require};
use crate::boundary::{Outcome, give, give_if_asked};
use crate::graph::{self, PLAIN, capture};
use crate::stream::{self, Kind};
use core::ffi::c_uint;
use detshare_cuda::types::{
    CUgraph, CUgraphEdgeData, CUgraphNode, CUresult, CUstream, CUstreamCaptureMode as Mode,
    CUstreamCaptureStatus as Status, cuuint64_t,
};
use std::cell::RefCell;

pub(crate) unsafe fn cuStreamBeginCapture_v2(stream: CUstream, mode: Mode) -> Outcome {
    require(mode.0 <= Mode::CU_STREAM_CAPTURE_MODE_RELAXED.0)?;
    capture::begin(&stream::find(stream)?, mode, None)
}

pub(crate) unsafe fn cuStreamBeginCapture(stream: CUstream) -> Outcome {
    cuStreamBeginCapture_v2(stream, Mode::CU_STREAM_CAPTURE_MODE_GLOBAL)
}

pub(crate) unsafe fn cuStreamBeginCaptureToGraph(
    stream: CUstream,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    edges: *const CUgraphEdgeData,
    count: usize,
    mode: Mode,
) -> Outcome {
    require(mode.0 <= Mode::CU_STREAM_CAPTURE_MODE_RELAXED.0)?;
    let (stream, graph) = (stream::find(stream)?, graph::find(graph)?);
    let frontier = graph_edges::dependencies(dependencies, edges, count)?;
    require(frontier.iter().all(|(node, _)| graph.state().find(*node).is_some()))?;
    capture::begin(&stream, mode, Some((graph, frontier)))
}

pub(crate) unsafe fn cuStreamEndCapture(stream: CUstream, captured: *mut CUgraph) -> Outcome {
    require(!captured.is_null())?;
    captured.write(CUgraph(core::ptr::null_mut()));
    let graph = capture::end(&stream::find(stream)?)?;
    give(captured, CUgraph(as_pointer(graph.handle)))
}

pub(crate) unsafe fn cuStreamIsCapturing(stream: CUstream, status: *mut Status) -> Outcome {
    let stream = stream::find(stream)?;
    let state = stream.capturing().as_ref().map(|part| part.capture.is_invalid());
    if state.is_none() && stream.kind == Kind::Legacy {
        let blocked =
            stream.context.living_streams().iter().any(|it| it.kind == Kind::Blocking && it.capturing().is_some());
        if blocked {
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        }
    }
    give(status, status_of(state))
}

fn status_of(invalid: Option<bool>) -> Status {
    match invalid {
        None => Status::CU_STREAM_CAPTURE_STATUS_NONE,
        Some(false) => Status::CU_STREAM_CAPTURE_STATUS_ACTIVE,
        Some(true) => Status::CU_STREAM_CAPTURE_STATUS_INVALIDATED,
    }
}

thread_local! {
    /// What the last query on this thread returned pointers to.
    static FRONTIER: RefCell<(Vec<CUgraphNode>, Vec<CUgraphEdgeData>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}

pub(crate) unsafe fn cuStreamGetCaptureInfo_v3(
    stream: CUstream,
    status: *mut Status,
    id: *mut cuuint64_t,
    graph: *mut CUgraph,
    dependencies: *mut *const CUgraphNode,
    edges: *mut *const CUgraphEdgeData,
    count: *mut usize,
) -> Outcome {
    cuStreamIsCapturing(stream, status)?;
    give_if_asked(edges, core::ptr::null());
    let stream = stream::find(stream)?;
    let part = stream.capturing().clone();
    let Some(part) = part.filter(|part| !part.capture.is_invalid()) else { return Ok(()) };
    give_if_asked(id, part.capture.id);
    give_if_asked(graph, CUgraph(as_pointer(part.capture.graph.handle)));
    give_if_asked(count, part.frontier.len());
    let plain = part.frontier.iter().all(|(_, data)| *data == PLAIN);
    if !dependencies.is_null() && edges.is_null() && !plain {
        return Err(CUresult::CUDA_ERROR_LOSSY_QUERY);
    }
    FRONTIER.with_borrow_mut(|(nodes, data)| {
        *nodes = part.frontier.iter().map(|(node, _)| CUgraphNode(as_pointer(*node))).collect();
        *data = part.frontier.iter().map(|(_, data)| *data).collect();
        give_if_asked(dependencies, nodes.as_ptr());
        // Where there is nothing special to any edge, there is no list of them.
        give_if_asked(edges, if plain { core::ptr::null() } else { data.as_ptr() });
    });
    Ok(())
}

pub(crate) unsafe fn cuStreamGetCaptureInfo_v2(
    stream: CUstream,
    status: *mut Status,
    id: *mut cuuint64_t,
    graph: *mut CUgraph,
    dependencies: *mut *const CUgraphNode,
    count: *mut usize,
) -> Outcome {
    cuStreamGetCaptureInfo_v3(stream, status, id, graph, dependencies, core::ptr::null_mut(), count)
}

pub(crate) unsafe fn cuStreamGetCaptureInfo(stream: CUstream, status: *mut Status, id: *mut cuuint64_t) -> Outcome {
    let (graph, dependencies, edges, count) =
        (core::ptr::null_mut(), core::ptr::null_mut(), core::ptr::null_mut(), core::ptr::null_mut());
    cuStreamGetCaptureInfo_v3(stream, status, id, graph, dependencies, edges, count)
}

pub(crate) unsafe fn cuStreamUpdateCaptureDependencies_v2(
    stream: CUstream,
    dependencies: *mut CUgraphNode,
    edges: *const CUgraphEdgeData,
    count: usize,
    flags: c_uint,
) -> Outcome {
    const SET: c_uint = 1;
    require(flags <= SET)?;
    let stream = stream::find(stream)?;
    let nodes = graph_edges::dependencies(dependencies, edges, count)?;
    let mut capturing = stream.capturing();
    let part = capturing.as_mut().ok_or(CUresult::CUDA_ERROR_ILLEGAL_STATE)?;
    require(nodes.iter().all(|(node, _)| part.capture.graph.state().find(*node).is_some()))?;
    if flags == SET {
        part.frontier.clear();
    }
    for (node, data) in nodes {
        if !part.frontier.iter().any(|(known, _)| *known == node) {
            part.frontier.push((node, data));
        }
    }
    Ok(())
}

pub(crate) unsafe fn cuStreamUpdateCaptureDependencies(
    stream: CUstream,
    dependencies: *mut CUgraphNode,
    count: usize,
    flags: c_uint,
) -> Outcome {
    cuStreamUpdateCaptureDependencies_v2(stream, dependencies, core::ptr::null(), count, flags)
}

pub(crate) unsafe fn cuThreadExchangeStreamCaptureMode(mode: *mut Mode) -> Outcome {
    require(!mode.is_null() && (*mode).0 <= Mode::CU_STREAM_CAPTURE_MODE_RELAXED.0)?;
    mode.write(capture::exchange_mode(*mode));
    Ok(())
}
