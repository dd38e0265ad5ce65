//! Devices that touch each other's memory. All of them can.

use super::device::number;
use super::require;
use crate::boundary::{Outcome, give};
use crate::context::{self, Context};
use core::ffi::{c_int, c_uint};
use detshare_cuda::types::{
    CUatomicOperation, CUatomicOperationCapability as Capability, CUcontext, CUdevice,
    CUdevice_P2PAttribute as Attribute, CUresult,
};
use std::sync::Arc;

pub(crate) unsafe fn cuDeviceCanAccessPeer(can: *mut c_int, device: CUdevice, peer: CUdevice) -> Outcome {
    give(can, c_int::from(number(device)? != number(peer)?))
}

pub(crate) unsafe fn cuDeviceGetP2PAttribute(
    value: *mut c_int,
    attribute: Attribute,
    from: CUdevice,
    to: CUdevice,
) -> Outcome {
    // A device is no peer of itself.
    if number(from)? == number(to)? {
        return Err(CUresult::CUDA_ERROR_INVALID_DEVICE);
    }
    let found = match attribute {
        Attribute::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK
        | Attribute::CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED => 0,
        Attribute::CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED
        | Attribute::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED
        | Attribute::CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED => 1,
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    };
    give(value, found)
}

/// All memory is memory of one processor, so what is atomic on a device is atomic everywhere.
unsafe fn atomic_capabilities(
    capabilities: *mut c_uint,
    operations: *const CUatomicOperation,
    count: c_uint,
) -> Outcome {
    require(!capabilities.is_null() && !operations.is_null() && count > 0)?;
    let words = Capability::CU_ATOMIC_CAPABILITY_SCALAR_32.0 | Capability::CU_ATOMIC_CAPABILITY_SCALAR_64.0;
    let of_integers = Capability::CU_ATOMIC_CAPABILITY_SIGNED.0 | Capability::CU_ATOMIC_CAPABILITY_UNSIGNED.0;
    let reduction = Capability::CU_ATOMIC_CAPABILITY_REDUCTION.0;
    for index in 0..count as usize {
        let found = match *operations.add(index) {
            CUatomicOperation::CU_ATOMIC_OPERATION_INTEGER_ADD
            | CUatomicOperation::CU_ATOMIC_OPERATION_INTEGER_MIN
            | CUatomicOperation::CU_ATOMIC_OPERATION_INTEGER_MAX => words | of_integers | reduction,
            CUatomicOperation::CU_ATOMIC_OPERATION_INTEGER_INCREMENT
            | CUatomicOperation::CU_ATOMIC_OPERATION_INTEGER_DECREMENT => {
                Capability::CU_ATOMIC_CAPABILITY_SCALAR_32.0 | Capability::CU_ATOMIC_CAPABILITY_UNSIGNED.0 | reduction
            }
            CUatomicOperation::CU_ATOMIC_OPERATION_AND
            | CUatomicOperation::CU_ATOMIC_OPERATION_OR
            | CUatomicOperation::CU_ATOMIC_OPERATION_XOR
            | CUatomicOperation::CU_ATOMIC_OPERATION_FLOAT_ADD => words | reduction,
            CUatomicOperation::CU_ATOMIC_OPERATION_EXCHANGE | CUatomicOperation::CU_ATOMIC_OPERATION_CAS => words,
            CUatomicOperation::CU_ATOMIC_OPERATION_FLOAT_MIN | CUatomicOperation::CU_ATOMIC_OPERATION_FLOAT_MAX => 0,
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        };
        capabilities.add(index).write(found);
    }
    Ok(())
}

pub(crate) unsafe fn cuDeviceGetP2PAtomicCapabilities(
    capabilities: *mut c_uint,
    operations: *const CUatomicOperation,
    count: c_uint,
    from: CUdevice,
    to: CUdevice,
) -> Outcome {
    if number(from)? == number(to)? {
        return Err(CUresult::CUDA_ERROR_INVALID_DEVICE);
    }
    atomic_capabilities(capabilities, operations, count)
}

pub(crate) unsafe fn cuDeviceGetHostAtomicCapabilities(
    capabilities: *mut c_uint,
    operations: *const CUatomicOperation,
    count: c_uint,
    device: CUdevice,
) -> Outcome {
    number(device)?;
    atomic_capabilities(capabilities, operations, count)
}

/// The current context and its peer, which is on another device.
fn pair(peer: CUcontext) -> Outcome<(Arc<Context>, Arc<Context>)> {
    let (current, peer) = (context::healthy()?, context::find(peer.0.addr())?);
    if current.handle == peer.handle {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    Ok((current, peer))
}

pub(crate) unsafe fn cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint) -> Outcome {
    let (current, peer) = pair(peer)?;
    require(flags == 0)?;
    if current.device == peer.device {
        return Err(CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    }
    if current.add_peer(&peer) { Ok(()) } else { Err(CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) }
}

pub(crate) unsafe fn cuCtxDisablePeerAccess(peer: CUcontext) -> Outcome {
    let (current, peer) = pair(peer)?;
    if current.remove_peer(&peer) { Ok(()) } else { Err(CUresult::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED) }
}
