//! The runtime's types as the driver's. Most have one layout and two names.

use crate::boundary::Outcome;
use crate::types::{cudaError_t, cudaExtent, cudaMemcpy3DParms, cudaMemcpyKind, cudaPitchedPtr, cudaPos};
use core::ffi::c_void;
use detshare_cuda::types::{CUDA_MEMCPY3D, CUarray, CUdeviceptr, CUdeviceptr_v2, CUmemorytype};

/// A value of one of two types with the same layout as the other.
///
/// # Safety
/// The types have the same layout, and every value of the one is a value of the other.
pub(crate) unsafe fn same<A: Copy, B: Copy>(value: A) -> B {
    const { assert!(size_of::<A>() == size_of::<B>() && align_of::<A>() == align_of::<B>()) };
    // SAFETY: same size, asserted above; the rest is the caller's promise.
    unsafe { core::mem::transmute_copy(&value) }
}

/// A pointer to a value that both types describe.
pub(crate) fn at<A, B>(pointer: *const A) -> *const B {
    const { assert!(size_of::<A>() == size_of::<B>() && align_of::<A>() == align_of::<B>()) };
    pointer.cast()
}

/// As [`at`], for what is written.
pub(crate) fn at_mut<A, B>(pointer: *mut A) -> *mut B {
    at::<A, B>(pointer).cast_mut()
}

/// The device address that a pointer of the program is.
pub(crate) fn address(pointer: *const c_void) -> CUdeviceptr {
    CUdeviceptr_v2(pointer.addr() as u64)
}

/// Where copies come from and go to.
pub(crate) fn memory_types(kind: cudaMemcpyKind) -> Outcome<(CUmemorytype, CUmemorytype)> {
    use CUmemorytype as T;
    match kind {
        cudaMemcpyKind::cudaMemcpyHostToHost => Ok((T::CU_MEMORYTYPE_HOST, T::CU_MEMORYTYPE_HOST)),
        cudaMemcpyKind::cudaMemcpyHostToDevice => Ok((T::CU_MEMORYTYPE_HOST, T::CU_MEMORYTYPE_DEVICE)),
        cudaMemcpyKind::cudaMemcpyDeviceToHost => Ok((T::CU_MEMORYTYPE_DEVICE, T::CU_MEMORYTYPE_HOST)),
        cudaMemcpyKind::cudaMemcpyDeviceToDevice => Ok((T::CU_MEMORYTYPE_DEVICE, T::CU_MEMORYTYPE_DEVICE)),
        cudaMemcpyKind::cudaMemcpyDefault => Ok((T::CU_MEMORYTYPE_UNIFIED, T::CU_MEMORYTYPE_UNIFIED)),
        _ => Err(cudaError_t::cudaErrorInvalidMemcpyDirection),
    }
}

/// One side of a copy of a box.
#[derive(Clone, Copy)]
pub(crate) struct Side {
    pub(crate) array: CUarray,
    pub(crate) pointer: cudaPitchedPtr,
    pub(crate) position: cudaPos,
}

impl Side {
    /// Bytes of one step in x: what the position and width count in.
    fn element(&self) -> Outcome<usize> {
        if self.array.0.is_null() { Ok(1) } else { crate::api::element_size(self.array) }
    }
}

/// A copy of a box as the driver wants it. With an array on either side, widths and positions in it count its elements;
/// positions in plain memory always count bytes.
pub(crate) fn copy_of_box(from: &Side, to: &Side, extent: cudaExtent, kind: cudaMemcpyKind) -> Outcome<CUDA_MEMCPY3D> {
    for side in [from, to] {
        // Either an array or a pointer, never both.
        if side.array.0.is_null() == side.pointer.ptr.is_null() {
            return Err(cudaError_t::cudaErrorInvalidValue);
        }
    }
    let (mut from_type, mut to_type) = memory_types(kind)?;
    if !from.array.0.is_null() {
        from_type = CUmemorytype::CU_MEMORYTYPE_ARRAY;
    }
    if !to.array.0.is_null() {
        to_type = CUmemorytype::CU_MEMORYTYPE_ARRAY;
    }
    let element = from.element()?.max(to.element()?);
    Ok(CUDA_MEMCPY3D {
        srcXInBytes: from.position.x.saturating_mul(from.element()?),
        srcY: from.position.y,
        srcZ: from.position.z,
        srcLOD: 0,
        srcMemoryType: from_type,
        srcHost: from.pointer.ptr,
        srcDevice: address(from.pointer.ptr),
        srcArray: from.array,
        reserved0: core::ptr::null_mut(),
        srcPitch: from.pointer.pitch,
        srcHeight: from.pointer.ysize,
        dstXInBytes: to.position.x.saturating_mul(to.element()?),
        dstY: to.position.y,
        dstZ: to.position.z,
        dstLOD: 0,
        dstMemoryType: to_type,
        dstHost: to.pointer.ptr,
        dstDevice: address(to.pointer.ptr),
        dstArray: to.array,
        reserved1: core::ptr::null_mut(),
        dstPitch: to.pointer.pitch,
        dstHeight: to.pointer.ysize,
        WidthInBytes: extent.width.saturating_mul(element),
        Height: extent.height,
        Depth: extent.depth,
    })
}

/// The same of the structure that a program fills in.
pub(crate) fn copy_of_parameters(wanted: &cudaMemcpy3DParms) -> Outcome<CUDA_MEMCPY3D> {
    let from = Side { array: wanted.srcArray, pointer: wanted.srcPtr, position: wanted.srcPos };
    let to = Side { array: wanted.dstArray, pointer: wanted.dstPtr, position: wanted.dstPos };
    copy_of_box(&from, &to, wanted.extent, wanted.kind)
}

/// Back again, as far as the driver's form says it: what was an array counts elements.
pub(crate) fn parameters_of_copy(copy: &CUDA_MEMCPY3D) -> Outcome<cudaMemcpy3DParms> {
    let host = |memory: CUmemorytype| memory == CUmemorytype::CU_MEMORYTYPE_HOST;
    let side = |memory: CUmemorytype, host_pointer: *mut c_void, device: CUdeviceptr, array: CUarray, pitch, height| {
        let pointer = match memory {
            CUmemorytype::CU_MEMORYTYPE_ARRAY => core::ptr::null_mut(),
            CUmemorytype::CU_MEMORYTYPE_HOST => host_pointer,
            _ => core::ptr::with_exposed_provenance_mut(usize::try_from(device.0).unwrap_or(0)),
        };
        let array = if memory == CUmemorytype::CU_MEMORYTYPE_ARRAY { array } else { CUarray(core::ptr::null_mut()) };
        (array, cudaPitchedPtr { ptr: pointer, pitch, xsize: pitch, ysize: height })
    };
    let (from_array, from) =
        side(copy.srcMemoryType, copy.srcHost.cast_mut(), copy.srcDevice, copy.srcArray, copy.srcPitch, copy.srcHeight);
    let (to_array, to) =
        side(copy.dstMemoryType, copy.dstHost, copy.dstDevice, copy.dstArray, copy.dstPitch, copy.dstHeight);
    let element = |array: CUarray| if array.0.is_null() { Ok(1) } else { crate::api::element_size(array) };
    let kind = match (host(copy.srcMemoryType), host(copy.dstMemoryType)) {
        _ if copy.srcMemoryType == CUmemorytype::CU_MEMORYTYPE_UNIFIED => cudaMemcpyKind::cudaMemcpyDefault,
        (true, true) => cudaMemcpyKind::cudaMemcpyHostToHost,
        (true, false) => cudaMemcpyKind::cudaMemcpyHostToDevice,
        (false, true) => cudaMemcpyKind::cudaMemcpyDeviceToHost,
        (false, false) => cudaMemcpyKind::cudaMemcpyDeviceToDevice,
    };
    Ok(cudaMemcpy3DParms {
        srcArray: from_array,
        srcPos: cudaPos { x: copy.srcXInBytes / element(from_array)?, y: copy.srcY, z: copy.srcZ },
        srcPtr: from,
        dstArray: to_array,
        dstPos: cudaPos { x: copy.dstXInBytes / element(to_array)?, y: copy.dstY, z: copy.dstZ },
        dstPtr: to,
        extent: cudaExtent {
            width: copy.WidthInBytes / element(from_array)?.max(element(to_array)?),
            height: copy.Height,
            depth: copy.Depth,
        },
        kind,
    })
}
