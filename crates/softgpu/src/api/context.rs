//! Contexts.

use super::{as_pointer, device, device::number, require};
use crate::boundary::{Outcome, give, give_if_asked};
use crate::context::{self, Context, Kind};
use crate::device::PRIORITIES;
use crate::graph::capture;
use crate::handle;
use crate::sm::Lane;
use crate::system::System;
use core::ffi::{c_int, c_uint, c_ulonglong};
use core::sync::atomic::Ordering;
use detshare_cuda::types::{
    CUcontext, CUctxCreateParams, CUdevice, CUexecAffinityParam, CUexecAffinityType, CUfunc_cache, CUlimit, CUresult,
    CUsharedconfig,
};
use std::sync::Arc;

pub(super) const ALL_FLAGS: c_uint = 0xff;

/// The context that a program names, or the current one for NULL. What was never a context is the current one too: programs that take
/// the newest symbol for an older one (`cuCtxSynchronize_v2` for `cuCtxSynchronize`) leave whatever was in the register, such as the
/// stream of the call before.
pub(super) fn named_or_current(context: CUcontext) -> Outcome<Arc<Context>> {
    if handle::was_context(context.0.addr()) { context::find(context.0.addr()) } else { context::current() }
}

pub(crate) unsafe fn cuCtxCreate_v2(context: *mut CUcontext, flags: c_uint, device: CUdevice) -> Outcome {
    let device = number(device)?;
    require(!context.is_null() && flags & !ALL_FLAGS == 0)?;
    let created = Context::new(Kind::Created, flags, Arc::new(Lane::full(device)), Arc::default(), System::new());
    give(context, CUcontext(as_pointer(created.handle)))?;
    context::push(created);
    Ok(())
}

pub(crate) unsafe fn cuCtxCreate(context: *mut CUcontext, flags: c_uint, device: CUdevice) -> Outcome {
    cuCtxCreate_v2(context, flags, device)
}

pub(crate) unsafe fn cuCtxCreate_v3(
    context: *mut CUcontext,
    _affinities: *mut CUexecAffinityParam,
    count: c_int,
    flags: c_uint,
    device: CUdevice,
) -> Outcome {
    if count != 0 {
        return Err(CUresult::CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
    }
    cuCtxCreate_v2(context, flags, device)
}

pub(crate) unsafe fn cuCtxGetExecAffinity(affinity: *mut CUexecAffinityParam, _kind: CUexecAffinityType) -> Outcome {
    context::current()?;
    require(!affinity.is_null())?;
    Err(CUresult::CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY)
}

/// One more hold on the current context, which must be one that the program made.
pub(crate) unsafe fn cuCtxAttach(context: *mut CUcontext, flags: c_uint) -> Outcome {
    let current = context::current()?;
    require(!context.is_null() && flags == 0)?;
    if current.kind != Kind::Created {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    current.attached.fetch_add(1, Ordering::Relaxed);
    give(context, CUcontext(as_pointer(current.handle)))
}

/// One hold less; the last one ends the context.
pub(crate) unsafe fn cuCtxDetach(context: CUcontext) -> Outcome {
    let found = context::find(context.0.addr())?;
    if found.kind != Kind::Created || context::top().is_none_or(|top| top.handle != found.handle) {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    if found.attached.fetch_sub(1, Ordering::Relaxed) == 1 { cuCtxDestroy_v2(context) } else { Ok(()) }
}

pub(crate) unsafe fn cuCtxCreate_v4(
    context: *mut CUcontext,
    parameters: *mut CUctxCreateParams,
    flags: c_uint,
    device: CUdevice,
) -> Outcome {
    if !parameters.is_null() && ((*parameters).numExecAffinityParams != 0 || !(*parameters).cigParams.is_null()) {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    cuCtxCreate_v2(context, flags, device)
}

pub(crate) unsafe fn cuCtxDestroy_v2(context: CUcontext) -> Outcome {
    let found = context::find(context.0.addr())?;
    if found.kind != Kind::Created {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    if context::top().is_some_and(|top| top.handle == found.handle) {
        context::pop();
    }
    found.destroy();
    Ok(())
}

pub(crate) unsafe fn cuCtxDestroy(context: CUcontext) -> Outcome {
    cuCtxDestroy_v2(context)
}

pub(crate) unsafe fn cuCtxPushCurrent_v2(context: CUcontext) -> Outcome {
    context::push(context::find(context.0.addr())?);
    Ok(())
}

pub(crate) unsafe fn cuCtxPushCurrent(context: CUcontext) -> Outcome {
    cuCtxPushCurrent_v2(context)
}

pub(crate) unsafe fn cuCtxPopCurrent_v2(context: *mut CUcontext) -> Outcome {
    let popped = context::pop().ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
    give_if_asked(context, CUcontext(as_pointer(popped.handle)));
    Ok(())
}

pub(crate) unsafe fn cuCtxPopCurrent(context: *mut CUcontext) -> Outcome {
    cuCtxPopCurrent_v2(context)
}

pub(crate) unsafe fn cuCtxSetCurrent(context: CUcontext) -> Outcome {
    // What is current may be set again, dead or alive.
    if context::top().is_some_and(|top| top.handle == context.0.addr()) {
        return Ok(());
    }
    let wanted = if context.0.is_null() { None } else { Some(context::find(context.0.addr())?) };
    context::set(wanted);
    Ok(())
}

pub(crate) unsafe fn cuCtxGetCurrent(context: *mut CUcontext) -> Outcome {
    give(context, CUcontext(as_pointer(context::top().map_or(0, |top| top.handle))))
}

pub(crate) unsafe fn cuCtxGetDevice(place: *mut CUdevice) -> Outcome {
    give(place, device::handle_of(context::current()?.device))
}

pub(crate) unsafe fn cuCtxGetDevice_v2(place: *mut CUdevice, context: CUcontext) -> Outcome {
    give(place, device::handle_of(named_or_current(context)?.device))
}

pub(crate) unsafe fn cuCtxGetFlags(flags: *mut c_uint) -> Outcome {
    give(flags, context::current()?.flags.load(Ordering::Relaxed))
}

pub(crate) unsafe fn cuCtxSetFlags(flags: c_uint) -> Outcome {
    context::current()?.flags.store(flags, Ordering::Relaxed);
    Ok(())
}

pub(crate) unsafe fn cuCtxGetId(context: CUcontext, id: *mut c_ulonglong) -> Outcome {
    give(id, named_or_current(context)?.id)
}

pub(crate) unsafe fn cuCtxGetApiVersion(context: CUcontext, version: *mut c_uint) -> Outcome {
    named_or_current(context)?;
    give(version, 3020)
}

pub(crate) unsafe fn cuCtxSynchronize() -> Outcome {
    let context = context::current()?;
    capture::forbid_unsafe_call()?;
    context.synchronise()
}

pub(crate) unsafe fn cuCtxSynchronize_v2(context: CUcontext) -> Outcome {
    let context = named_or_current(context)?;
    capture::forbid_unsafe_call()?;
    context.synchronise()
}

pub(crate) unsafe fn cuCtxGetLimit(value: *mut usize, limit: CUlimit) -> Outcome {
    give(value, context::current()?.system.limit(limit)?)
}

pub(crate) unsafe fn cuCtxSetLimit(limit: CUlimit, value: usize) -> Outcome {
    context::current()?.system.set_limit(limit, value)
}

pub(crate) unsafe fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> Outcome {
    context::current()?;
    give_if_asked(least, PRIORITIES.0);
    give_if_asked(greatest, PRIORITIES.1);
    Ok(())
}

pub(crate) unsafe fn cuCtxGetCacheConfig(config: *mut CUfunc_cache) -> Outcome {
    give(config, CUfunc_cache(context::current()?.system.cache_preference.load(Ordering::Relaxed)))
}

/// Kept for who asks: there is no such cache.
pub(crate) unsafe fn cuCtxSetCacheConfig(config: CUfunc_cache) -> Outcome {
    context::current()?.system.cache_preference.store(config.0, Ordering::Relaxed);
    Ok(())
}

pub(crate) unsafe fn cuCtxGetSharedMemConfig(config: *mut CUsharedconfig) -> Outcome {
    context::current()?;
    give(config, CUsharedconfig::CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE)
}

pub(crate) unsafe fn cuCtxSetSharedMemConfig(_config: CUsharedconfig) -> Outcome {
    context::current().map(|_| ())
}

pub(crate) unsafe fn cuCtxResetPersistingL2Cache() -> Outcome {
    context::current().map(|_| ())
}
