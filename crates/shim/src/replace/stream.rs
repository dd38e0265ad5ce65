//! Streams are made and destroyed, and captured; events are waited for.

use super::replace;
use crate::bind::{self, capture_begins, capture_may_have_ended};
use crate::call::is_ok;
use crate::coroutine::{self, STREAMS, active};
use crate::digest;
use crate::entries::counter;
use crate::stats::count;
use crate::steps;
use crate::stream::Kind;
use core::ffi::{c_int, c_uint};
use detshare_cuda::DefaultStream;
use detshare_cuda::types::{
    CUcontext, CUevent, CUgraph, CUgraphEdgeData, CUgraphNode, CUresult, CUstream, CUstream_flags, CUstreamAttrID,
    CUstreamAttrValue, CUstreamCaptureMode,
};

replace! {
    fn cuStreamCreate(stream: *mut CUstream, flags: c_uint) {
        let code = cu!(cuStreamCreate(stream, flags));
        adopt(code, stream, flags);
        code
    }
    fn cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int) {
        let code = cu!(cuStreamCreateWithPriority(stream, flags, priority));
        adopt(code, stream, flags);
        code
    }
    fn cuStreamDestroy(stream: CUstream) {
        destroy(stream, |stream| cu!(cuStreamDestroy(stream)))
    }
    fn cuStreamDestroy_v2(stream: CUstream) {
        destroy(stream, |stream| cu!(cuStreamDestroy_v2(stream)))
    }
    fn cuEventSynchronize(event: CUevent) {
        count(counter::cuEventSynchronize);
        steps::waited_for(event, || cu!(cuEventSynchronize(event)))
    }
}

/// A stream that was made in a primary context becomes a logical one.
fn adopt(code: CUresult, stream: *mut CUstream, flags: c_uint) {
    if !(active() || digest::active()) || !is_ok(code) || stream.is_null() {
        return;
    }
    // SAFETY: the driver has written there.
    let stream = unsafe { *stream };
    digest::stream_made(stream);
    let (mut context, mut priority) = (CUcontext(core::ptr::null_mut()), 0);
    if !is_ok(cu!(cuStreamGetCtx(stream, &raw mut context)))
        || !is_ok(cu!(cuStreamGetPriority(stream, &raw mut priority)))
    {
        return;
    }
    let Some(coroutine) = coroutine::of(context) else { return };
    let blocking = flags & CUstream_flags::CU_STREAM_NON_BLOCKING.0 == 0;
    coroutine.adopt(stream, if blocking { Kind::Blocking } else { Kind::NonBlocking }, priority);
}

/// Everything that the stream has been given is done all the same, at home. It is forgotten before the driver can
/// give its handle to another one.
fn destroy(stream: CUstream, call: impl FnOnce(CUstream) -> CUresult) -> CUresult {
    if !active() {
        return call(stream);
    }
    drop(bind::home(stream, DefaultStream::Legacy));
    let Some(logical) = STREAMS.remove(stream.0.addr()) else { return call(stream) };
    let (coroutine, kind, priority) = (logical.coroutine(), logical.kind(), logical.priority());
    logical.retire();
    let code = call(stream);
    if is_ok(code) {
        bind::capture_has_ended(stream);
    } else if let Some(coroutine) = coroutine {
        coroutine.adopt(stream, kind, priority);
    }
    code
}

/// Begins a capture: from before the driver's call on no stream moves.
fn begin(stream: CUstream, default: DefaultStream, call: impl FnOnce(CUstream) -> CUresult) -> CUresult {
    if !active() {
        return call(stream);
    }
    let explicit = explicit(stream, default);
    capture_begins(explicit);
    let bound = bind::home(stream, default);
    let code = call(bound.handle());
    drop(bound);
    if !is_ok(code) {
        capture_may_have_ended(explicit);
    }
    code
}

fn end(stream: CUstream, default: DefaultStream, call: impl FnOnce(CUstream) -> CUresult) -> CUresult {
    let code = call(stream);
    if active() {
        capture_may_have_ended(explicit(stream, default));
    }
    code
}

/// The handle that means the same in every variant of a function.
fn explicit(stream: CUstream, default: DefaultStream) -> CUstream {
    match (stream.0.is_null(), default) {
        (false, _) => stream,
        (true, DefaultStream::Legacy) => Kind::LEGACY_HANDLE,
        (true, DefaultStream::PerThread) => Kind::PER_THREAD_HANDLE,
    }
}

macro_rules! captures {
    ($($function:ident $ptsz:ident ($($parameter:ident: $ty:ty),*) $how:ident;)+) => {
        replace! {$(
            fn $function(stream: CUstream, $($parameter: $ty),*) {
                $how(stream, DefaultStream::Legacy, |stream| cu!($function(stream, $($parameter),*)))
            }
            fn $ptsz(stream: CUstream, $($parameter: $ty),*) {
                $how(stream, DefaultStream::PerThread, |stream| cu!($ptsz(stream, $($parameter),*)))
            }
        )+}
    };
}

captures! {
    cuStreamBeginCapture cuStreamBeginCapture_ptsz() begin;
    cuStreamBeginCapture_v2 cuStreamBeginCapture_v2_ptsz(mode: CUstreamCaptureMode) begin;
    cuStreamBeginCaptureToGraph cuStreamBeginCaptureToGraph_ptsz(
        graph: CUgraph, after: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize,
        mode: CUstreamCaptureMode) begin;
    cuStreamEndCapture cuStreamEndCapture_ptsz(graph: *mut CUgraph) end;
}

/// The program has given a stream attributes, if the code says so.
fn attributed(code: CUresult, stream: CUstream, default: DefaultStream) -> CUresult {
    if active()
        && is_ok(code)
        && let Some(logical) = bind::find(stream, default)
    {
        logical.give_attributes();
    }
    code
}

replace! {
    fn cuStreamSetAttribute(stream: CUstream, which: CUstreamAttrID, value: *const CUstreamAttrValue) {
        attributed(cu!(cuStreamSetAttribute(stream, which, value)), stream, DefaultStream::Legacy)
    }
    fn cuStreamSetAttribute_ptsz(stream: CUstream, which: CUstreamAttrID, value: *const CUstreamAttrValue) {
        attributed(cu!(cuStreamSetAttribute_ptsz(stream, which, value)), stream, DefaultStream::PerThread)
    }
    fn cuStreamCopyAttributes(to: CUstream, from: CUstream) {
        attributed(cu!(cuStreamCopyAttributes(to, from)), to, DefaultStream::Legacy)
    }
    fn cuStreamCopyAttributes_ptsz(to: CUstream, from: CUstream) {
        attributed(cu!(cuStreamCopyAttributes_ptsz(to, from)), to, DefaultStream::PerThread)
    }
}
