//! Events.

use super::{as_pointer, require};
use crate::boundary::{Outcome, give};
use crate::context::{self, Context};
use crate::event::{self, DISABLE_TIMING, EVENTS, Event, SharedPoint};
use crate::graph::{Content, capture};
use crate::handle;
use crate::stream;
use core::ffi::c_uint;
use detshare_cuda::types::{CUevent, CUresult, CUstream};
use std::sync::{Arc, Mutex};

const ALL_FLAGS: c_uint = 7;
/// `CU_EVENT_INTERPROCESS`, which asks for no timing too.
pub(super) const INTERPROCESS: c_uint = 4;

pub(crate) unsafe fn cuEventCreate(created: *mut CUevent, flags: c_uint) -> Outcome {
    let context = context::healthy()?;
    require(!created.is_null() && flags & !ALL_FLAGS == 0)?;
    let mut shared = None;
    if flags & INTERPROCESS != 0 {
        require(flags & DISABLE_TIMING != 0)?;
        shared = Some(SharedPoint::create().ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?);
    }
    give(created, insert(context, flags, shared))
}

/// A new event.
pub(super) fn insert(context: Arc<Context>, flags: c_uint, shared: Option<SharedPoint>) -> CUevent {
    let event = Arc::new(Event {
        handle: handle::new(),
        context,
        flags,
        recorded: Mutex::default(),
        shared: shared.map(Arc::new),
        captured: Mutex::default(),
    });
    EVENTS.insert(event.handle, Arc::clone(&event));
    CUevent(as_pointer(event.handle))
}

pub(crate) unsafe fn cuEventDestroy_v2(event: CUevent) -> Outcome {
    EVENTS.remove(event.0.addr()).map(|_| ()).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
}

pub(crate) unsafe fn cuEventDestroy(event: CUevent) -> Outcome {
    cuEventDestroy_v2(event)
}

pub(crate) unsafe fn cuEventRecord(event: CUevent, stream: CUstream) -> Outcome {
    let stream = stream::find(stream)?;
    let event = event::find(event)?;
    if !Arc::ptr_eq(&event.context.fate, &stream.context.fate) {
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    event.record(&stream)
}

pub(crate) unsafe fn cuEventRecordWithFlags(event: CUevent, stream: CUstream, flags: c_uint) -> Outcome {
    const EXTERNAL: c_uint = 1;
    require(flags <= EXTERNAL)?;
    if flags == EXTERNAL {
        let event = event::find(event)?;
        let added = capture::add(&stream::find(stream)?, || Content::Record(event))?;
        return if added { Ok(()) } else { Err(CUresult::CUDA_ERROR_ILLEGAL_STATE) };
    }
    cuEventRecord(event, stream)
}

pub(crate) unsafe fn cuEventQuery(event: CUevent) -> Outcome {
    let event = event::find(event)?;
    event.forbid_if_captured()?;
    capture::forbid_unsafe_call()?;
    event.context.fate.check()?;
    if event.is_complete() { event.context.fate.check() } else { Err(CUresult::CUDA_ERROR_NOT_READY) }
}

pub(crate) unsafe fn cuEventSynchronize(event: CUevent) -> Outcome {
    let event = event::find(event)?;
    event.forbid_if_captured()?;
    capture::forbid_unsafe_call()?;
    if let Some(done) = event.done() {
        done.wait();
    }
    event.context.fate.check()
}

pub(crate) unsafe fn cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent) -> Outcome {
    let (start, end) = (event::find(start)?, event::find(end)?);
    require(!milliseconds.is_null())?;
    if (start.flags | end.flags) & DISABLE_TIMING != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    let recorded = |event: &Event| event.done().ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE);
    let (began, ended) = (recorded(&start)?, recorded(&end)?);
    if !began.is_complete() || !ended.is_complete() {
        return Err(CUresult::CUDA_ERROR_NOT_READY);
    }
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "milliseconds as the API gives them"
    )]
    let elapsed = ((ended.time() as f64 - began.time() as f64) / 1e6) as f32;
    give(milliseconds, elapsed)
}

pub(crate) unsafe fn cuEventElapsedTime_v2(milliseconds: *mut f32, start: CUevent, end: CUevent) -> Outcome {
    cuEventElapsedTime(milliseconds, start, end)
}
