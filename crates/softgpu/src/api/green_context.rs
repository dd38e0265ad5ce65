//! Green contexts: parts of the device's SMs.

use super::{as_pointer, context::named_or_current, device::number, require};
use crate::boundary::{Outcome, give};
use crate::context::{self, Context, Kind as ContextKind};
use crate::device::{PRIORITIES, settings};
use crate::engine::{Done, Work};
use crate::event;
use crate::handle::{self, Table};
use crate::sm::Lane;
use crate::stream::{Kind, Stream};
use core::ffi::{c_int, c_uint, c_ulonglong};
use detshare_cuda::types::{
    CUcontext, CUdevResource, CUdevResourceDesc, CUdevResourceType as ResourceType, CUdevice, CUevent, CUgreenCtx,
    CUresult, CUstream,
};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

/// SMs come in groups of so many; with the flag that ignores co-scheduling, of fewer.
const GROUP: u32 = 8;
const SMALLEST_GROUP: u32 = 2;
/// `CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING`.
const IGNORE_COSCHEDULING: c_uint = 1;
/// `CU_GREEN_CTX_DEFAULT_STREAM`, which must be given.
const DEFAULT_STREAM: c_uint = 1;

static DESCRIPTIONS: Table<Lane> = Table::new();
static GREEN: Table<Arc<Context>> = Table::new();
/// A green context's own handle, by that of its context.
static HANDLES: LazyLock<Mutex<HashMap<usize, usize>>> = LazyLock::new(Mutex::default);

/// The green context behind a context.
pub(super) fn of(context: &Context) -> usize {
    HANDLES.lock().expect("no panic while it is held").get(&context.handle).copied().unwrap_or(0)
}

fn find(green: CUgreenCtx) -> Outcome<Arc<Context>> {
    let context = GREEN.get(green.0.addr()).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    Ok(Arc::clone(&context))
}

/// Where a resource says that it is what a split left: such a one is not split again, as by an H200's driver.
const IS_REST: usize = 8;

/// A resource carries its first SM and its device behind the public fields: SM sets are ranges, so that the same split is the
/// same SMs in every process.
fn resource(device: u32, first: u32, count: u32) -> CUdevResource {
    // SAFETY: numbers and bytes, all of which may be zero.
    let mut resource: CUdevResource = unsafe { core::mem::zeroed() };
    resource.type_ = ResourceType::CU_DEV_RESOURCE_TYPE_SM;
    resource._internal_padding[..4].copy_from_slice(&first.to_le_bytes());
    resource._internal_padding[4..8].copy_from_slice(&device.to_le_bytes());
    resource.__bindgen_anon_1.sm.smCount = count;
    resource.__bindgen_anon_1.sm.minSmPartitionSize = GROUP;
    resource.__bindgen_anon_1.sm.smCoscheduledAlignment = GROUP;
    resource
}

/// Its device, its first SM, and how many they are.
unsafe fn range(resource: &CUdevResource) -> Outcome<(u32, u32, u32)> {
    if resource.type_ != ResourceType::CU_DEV_RESOURCE_TYPE_SM {
        return Err(CUresult::CUDA_ERROR_INVALID_RESOURCE_TYPE);
    }
    let [a, b, c, d, e, f, g, h, ..] = resource._internal_padding;
    let (first, device) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
    let count = resource.__bindgen_anon_1.sm.smCount;
    require((device as usize) < settings().devices)?;
    require(count > 0 && first.checked_add(count).is_some_and(|end| end <= settings().sms))?;
    Ok((device, first, count))
}

pub(crate) unsafe fn cuDeviceGetDevResource(
    device: CUdevice,
    place: *mut CUdevResource,
    kind: ResourceType,
) -> Outcome {
    let device = number(device)?;
    if kind != ResourceType::CU_DEV_RESOURCE_TYPE_SM {
        return Err(CUresult::CUDA_ERROR_INVALID_RESOURCE_TYPE);
    }
    give(place, resource(u32::try_from(device).unwrap_or(0), 0, settings().sms))
}

pub(crate) unsafe fn cuCtxGetDevResource(context: CUcontext, place: *mut CUdevResource, kind: ResourceType) -> Outcome {
    if kind != ResourceType::CU_DEV_RESOURCE_TYPE_SM {
        return Err(CUresult::CUDA_ERROR_INVALID_RESOURCE_TYPE);
    }
    let context = named_or_current(context)?;
    let sms = context.lane.sms();
    let device = u32::try_from(context.device).unwrap_or(0);
    give(place, resource(device, sms.first().copied().unwrap_or(0), u32::try_from(sms.len()).unwrap_or(0)))
}

pub(crate) unsafe fn cuGreenCtxGetDevResource(
    green: CUgreenCtx,
    place: *mut CUdevResource,
    kind: ResourceType,
) -> Outcome {
    let context = find(green)?;
    cuCtxGetDevResource(CUcontext(as_pointer(context.handle)), place, kind)
}

pub(crate) unsafe fn cuDevSmResourceSplitByCount(
    groups: *mut CUdevResource,
    count: *mut c_uint,
    input: *const CUdevResource,
    remaining: *mut CUdevResource,
    flags: c_uint,
    smallest: c_uint,
) -> Outcome {
    require(!count.is_null() && !input.is_null() && flags & !IGNORE_COSCHEDULING == 0)?;
    let (device, first, sms) = range(&*input)?;
    let unit = if flags & IGNORE_COSCHEDULING != 0 { SMALLEST_GROUP } else { GROUP };
    let size = smallest.max(1).checked_next_multiple_of(unit).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    if size > sms || (*input)._internal_padding[IS_REST] != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    }
    let possible = sms / size;
    if groups.is_null() {
        count.write(possible);
        return Ok(());
    }
    let made = (*count).min(possible);
    for index in 0..made {
        groups.add(index as usize).write(resource(device, first + index * size, size));
    }
    count.write(made);
    if !remaining.is_null() {
        let left = sms - made * size;
        let mut rest = if left == 0 { core::mem::zeroed() } else { resource(device, first + made * size, left) };
        rest._internal_padding[IS_REST] = 1;
        remaining.write(rest);
    }
    Ok(())
}

pub(crate) unsafe fn cuDevResourceGenerateDesc(
    description: *mut CUdevResourceDesc,
    resources: *mut CUdevResource,
    count: c_uint,
) -> Outcome {
    require(!description.is_null() && !resources.is_null() && count > 0)?;
    let mut sms = Vec::new();
    let (device, ..) = range(&*resources)?;
    for index in 0..count as usize {
        let (of, first, size) = range(&*resources.add(index))?;
        require(of == device)?;
        sms.extend(first..first + size);
    }
    sms.sort_unstable();
    let all = sms.len();
    sms.dedup();
    require(sms.len() == all)?;
    let handle = handle::new();
    DESCRIPTIONS.insert(handle, Arc::new(Lane::of(device as usize, sms)));
    give(description, CUdevResourceDesc(as_pointer(handle)))
}

pub(crate) unsafe fn cuGreenCtxCreate(
    created: *mut CUgreenCtx,
    description: CUdevResourceDesc,
    device: CUdevice,
    flags: c_uint,
) -> Outcome {
    let device = number(device)?;
    require(!created.is_null() && flags == DEFAULT_STREAM)?;
    let lane = DESCRIPTIONS.get(description.0.addr()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    require(lane.device == device)?;
    // A green context keeps the primary one alive.
    let primary = context::retain_primary(device)?;
    let context = Context::new(ContextKind::Green, 0, lane, Arc::clone(&primary.fate), Arc::clone(&primary.system));
    let handle = handle::new();
    HANDLES.lock().expect("no panic while it is held").insert(context.handle, handle);
    GREEN.insert(handle, Arc::new(context));
    give(created, CUgreenCtx(as_pointer(handle)))
}

pub(crate) unsafe fn cuGreenCtxDestroy(green: CUgreenCtx) -> Outcome {
    let context = find(green)?;
    GREEN.remove(green.0.addr());
    HANDLES.lock().expect("no panic while it is held").remove(&context.handle);
    context.destroy();
    context::release_primary(context.device)
}

pub(crate) unsafe fn cuCtxFromGreenCtx(place: *mut CUcontext, green: CUgreenCtx) -> Outcome {
    give(place, CUcontext(as_pointer(find(green)?.handle)))
}

pub(crate) unsafe fn cuGreenCtxStreamCreate(
    created: *mut CUstream,
    green: CUgreenCtx,
    flags: c_uint,
    priority: c_int,
) -> Outcome {
    let context = find(green)?;
    require(!created.is_null() && flags == super::stream::NON_BLOCKING)?;
    let stream = Stream::create(&context, Kind::NonBlocking, priority.clamp(PRIORITIES.1, PRIORITIES.0));
    give(created, CUstream(as_pointer(stream.handle)))
}

/// Everything in a context so far, as one completion.
fn all_of(context: &Arc<Context>) -> Arc<Done> {
    crate::engine::submit(Work::Nothing, &context.tails(), &context.fate)
}

pub(crate) unsafe fn cuGreenCtxRecordEvent(green: CUgreenCtx, event: CUevent) -> Outcome {
    let done = all_of(&find(green)?);
    event::find(event)?.remember(done);
    Ok(())
}

pub(crate) unsafe fn cuGreenCtxWaitEvent(green: CUgreenCtx, event: CUevent) -> Outcome {
    let context = find(green)?;
    let event = event::find(event)?;
    for stream in context.living_streams() {
        event.wait_in(&stream)?;
    }
    Ok(())
}

pub(crate) unsafe fn cuCtxRecordEvent(context: CUcontext, event: CUevent) -> Outcome {
    let done = all_of(&named_or_current(context)?);
    event::find(event)?.remember(done);
    Ok(())
}

pub(crate) unsafe fn cuCtxWaitEvent(context: CUcontext, event: CUevent) -> Outcome {
    let context = named_or_current(context)?;
    let event = event::find(event)?;
    for stream in context.living_streams() {
        event.wait_in(&stream)?;
    }
    Ok(())
}

pub(crate) unsafe fn cuGreenCtxGetId(green: CUgreenCtx, id: *mut c_ulonglong) -> Outcome {
    give(id, find(green)?.id)
}
