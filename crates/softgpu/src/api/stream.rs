//! Streams, and the program's functions in them.

use super::{as_pointer, require};
use crate::boundary::{Outcome, give, give_if_asked};
use crate::context::{self, Kind as ContextKind};
use crate::device::PRIORITIES;
use crate::event;
use crate::graph::{Content, capture};
use crate::operation::{Callback, HostFunction, Operation};
use crate::stream::{self, Kind, Stream};
use core::ffi::{c_int, c_uint, c_ulonglong, c_void};
use detshare_cuda::types::{
    CUcontext, CUdevice, CUevent, CUgreenCtx, CUhostFn, CUresult, CUstream, CUstreamAttrID, CUstreamAttrValue,
    CUstreamCallback,
};

/// `CU_STREAM_NON_BLOCKING`.
pub(super) const NON_BLOCKING: c_uint = 1;

pub(crate) unsafe fn cuStreamCreate(created: *mut CUstream, flags: c_uint) -> Outcome {
    cuStreamCreateWithPriority(created, flags, 0)
}

pub(crate) unsafe fn cuStreamCreateWithPriority(created: *mut CUstream, flags: c_uint, priority: c_int) -> Outcome {
    let context = context::healthy()?;
    require(!created.is_null() && flags <= NON_BLOCKING)?;
    let green = context.kind == ContextKind::Green;
    let kind = if flags == NON_BLOCKING || green { Kind::NonBlocking } else { Kind::Blocking };
    let stream = Stream::create(&context, kind, priority.clamp(PRIORITIES.1, PRIORITIES.0));
    give(created, CUstream(as_pointer(stream.handle)))
}

/// It goes in any case, and after a fault the program is told of that.
pub(crate) unsafe fn cuStreamDestroy_v2(stream: CUstream) -> Outcome {
    let found = stream::STREAMS.get(stream.0.addr()).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    found.destroy();
    found.context.fate.check()
}

pub(crate) unsafe fn cuStreamDestroy(stream: CUstream) -> Outcome {
    cuStreamDestroy_v2(stream)
}

pub(crate) unsafe fn cuStreamQuery(stream: CUstream) -> Outcome {
    let stream = stream::find(stream)?;
    capture::forbid(&stream)?;
    capture::forbid_unsafe_call()?;
    stream.context.fate.check()?;
    let complete = if stream.kind == Kind::Legacy {
        stream
            .context
            .living_streams()
            .iter()
            .filter(|it| it.kind != Kind::NonBlocking)
            .all(|it| it.tail().is_complete())
    } else {
        stream.tail().is_complete()
    };
    stream.context.fate.check()?;
    if complete { Ok(()) } else { Err(CUresult::CUDA_ERROR_NOT_READY) }
}

pub(crate) unsafe fn cuStreamSynchronize(stream: CUstream) -> Outcome {
    let stream = stream::find(stream)?;
    capture::forbid(&stream)?;
    capture::forbid_unsafe_call()?;
    stream.perform_and_wait(Operation::Nothing)
}

pub(crate) unsafe fn cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint) -> Outcome {
    const EXTERNAL: c_uint = 1;
    require(flags <= EXTERNAL)?;
    let stream = stream::find(stream)?;
    let event = event::find(event)?;
    if flags == EXTERNAL {
        let added = capture::add(&stream, || Content::Wait(event))?;
        return if added { Ok(()) } else { Err(CUresult::CUDA_ERROR_ILLEGAL_STATE) };
    }
    event.wait_in(&stream)
}

pub(crate) unsafe fn cuStreamGetPriority(stream: CUstream, priority: *mut c_int) -> Outcome {
    give(priority, stream::find(stream)?.priority)
}

pub(crate) unsafe fn cuStreamGetFlags(stream: CUstream, flags: *mut c_uint) -> Outcome {
    give(flags, c_uint::from(stream::find(stream)?.kind == Kind::NonBlocking))
}

pub(crate) unsafe fn cuStreamGetId(stream: CUstream, id: *mut c_ulonglong) -> Outcome {
    give(id, stream::find(stream)?.id)
}

pub(crate) unsafe fn cuStreamGetDevice(stream: CUstream, device: *mut CUdevice) -> Outcome {
    give(device, super::device::handle_of(stream::find(stream)?.context.device))
}

pub(crate) unsafe fn cuStreamGetCtx(stream: CUstream, context: *mut CUcontext) -> Outcome {
    give(context, CUcontext(as_pointer(stream::find(stream)?.context.handle)))
}

pub(crate) unsafe fn cuStreamGetCtx_v2(stream: CUstream, context: *mut CUcontext, green: *mut CUgreenCtx) -> Outcome {
    let owner = &stream::find(stream)?.context;
    let is_green = owner.kind == ContextKind::Green;
    give_if_asked(green, CUgreenCtx(as_pointer(if is_green { super::green_context::of(owner) } else { 0 })));
    give_if_asked(context, CUcontext(as_pointer(if is_green { 0 } else { owner.handle })));
    Ok(())
}

pub(crate) unsafe fn cuStreamGetGreenCtx(stream: CUstream, green: *mut CUgreenCtx) -> Outcome {
    let owner = &stream::find(stream)?.context;
    let is_green = owner.kind == ContextKind::Green;
    give(green, CUgreenCtx(as_pointer(if is_green { super::green_context::of(owner) } else { 0 })))
}

/// The policy of a stream that nobody has given one.
const UNSET: [u8; 64] = {
    let mut bytes = [0; 64];
    let (policy, _) = bytes.split_at_mut(size_of::<c_int>());
    policy.copy_from_slice(&(-1_i32).to_ne_bytes());
    bytes
};

pub(crate) unsafe fn cuStreamGetAttribute(
    stream: CUstream,
    attribute: CUstreamAttrID,
    value: *mut CUstreamAttrValue,
) -> Outcome {
    let stream = stream::find(stream)?;
    require(!value.is_null())?;
    let attributes = stream.attributes.lock().expect("no panic while it is held");
    let first = if attribute == CUstreamAttrID::CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY { UNSET } else { [0; 64] };
    let bytes = attributes.get(&attribute.0).copied().unwrap_or(first);
    value.cast::<[u8; 64]>().write_unaligned(bytes);
    if attribute == CUstreamAttrID::CU_LAUNCH_ATTRIBUTE_PRIORITY {
        (*value).priority = stream.priority;
    }
    Ok(())
}

pub(crate) unsafe fn cuStreamSetAttribute(
    stream: CUstream,
    attribute: CUstreamAttrID,
    value: *const CUstreamAttrValue,
) -> Outcome {
    let stream = stream::find(stream)?;
    require(!value.is_null())?;
    let bytes = value.cast::<[u8; 64]>().read_unaligned();
    stream.attributes.lock().expect("no panic while it is held").insert(attribute.0, bytes);
    Ok(())
}

pub(crate) unsafe fn cuStreamCopyAttributes(to: CUstream, from: CUstream) -> Outcome {
    let (to, from) = (stream::find(to)?, stream::find(from)?);
    let attributes = from.attributes.lock().expect("no panic while it is held").clone();
    *to.attributes.lock().expect("no panic while it is held") = attributes;
    Ok(())
}

pub(crate) unsafe fn cuLaunchHostFunc(stream: CUstream, function: CUhostFn, data: *mut c_void) -> Outcome {
    let function = function.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    stream::find(stream)?.perform(Operation::Host(HostFunction { function, data: data.expose_provenance() }))
}

pub(crate) unsafe fn cuStreamAddCallback(
    stream: CUstream,
    callback: CUstreamCallback,
    data: *mut c_void,
    flags: c_uint,
) -> Outcome {
    require(flags == 0)?;
    let function = callback.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let found = stream::find(stream)?;
    capture::forbid(&found)?;
    let callback = Callback { function, stream: stream.0.addr(), data: data.expose_provenance() };
    found.perform(Operation::Callback(callback))
}
