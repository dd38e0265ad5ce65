//! Arrays, which take device memory too: how much is estimated from what they are to be.

use super::memory::{allocate, freed};
use super::replace;
use crate::bind;
use crate::quota::{self, Key, active};
use core::ffi::c_uint;
use detshare_cuda::types::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY_DESCRIPTOR_v1, CUDA_ARRAY3D_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR_v1, CUarray,
    CUmipmappedArray, CUresult,
};

replace! {
    fn cuArrayCreate(array: *mut CUarray, description: *const CUDA_ARRAY_DESCRIPTOR_v1) {
        let call = || cu!(cuArrayCreate(array, description));
        if !active() || array.is_null() || description.is_null() {
            return call();
        }
        // SAFETY: not NULL, and the caller's promise that it is one.
        let CUDA_ARRAY_DESCRIPTOR_v1 { Width, Height, Format, NumChannels } = unsafe { *description };
        let (Width, Height) = (Width as usize, Height as usize);
        let flat = CUDA_ARRAY3D_DESCRIPTOR { Width, Height, Depth: 0, Format, NumChannels, Flags: 0 };
        array_made(array, &flat, call)
    }
    fn cuArrayCreate_v2(array: *mut CUarray, description: *const CUDA_ARRAY_DESCRIPTOR) {
        let call = || cu!(cuArrayCreate_v2(array, description));
        if !active() || array.is_null() || description.is_null() {
            return call();
        }
        // SAFETY: not NULL, and the caller's promise that it is one.
        let CUDA_ARRAY_DESCRIPTOR { Width, Height, Format, NumChannels } = unsafe { *description };
        let flat = CUDA_ARRAY3D_DESCRIPTOR { Width, Height, Depth: 0, Format, NumChannels, Flags: 0 };
        array_made(array, &flat, call)
    }
    fn cuArray3DCreate(array: *mut CUarray, description: *const CUDA_ARRAY3D_DESCRIPTOR_v1) {
        let call = || cu!(cuArray3DCreate(array, description));
        if !active() || array.is_null() || description.is_null() {
            return call();
        }
        // SAFETY: not NULL, and the caller's promise that it is one.
        let old = unsafe { *description };
        let CUDA_ARRAY3D_DESCRIPTOR_v1 { Format, NumChannels, Flags, .. } = old;
        let [Width, Height, Depth] = [old.Width, old.Height, old.Depth].map(|extent| extent as usize);
        array_made(array, &CUDA_ARRAY3D_DESCRIPTOR { Width, Height, Depth, Format, NumChannels, Flags }, call)
    }
    fn cuArray3DCreate_v2(array: *mut CUarray, description: *const CUDA_ARRAY3D_DESCRIPTOR) {
        let call = || cu!(cuArray3DCreate_v2(array, description));
        if !active() || array.is_null() || description.is_null() {
            return call();
        }
        // SAFETY: not NULL, and the caller's promise that it is one.
        array_made(array, unsafe { &*description }, call)
    }
    fn cuMipmappedArrayCreate(
        array: *mut CUmipmappedArray, description: *const CUDA_ARRAY3D_DESCRIPTOR, levels: c_uint,
    ) {
        let call = || cu!(cuMipmappedArrayCreate(array, description, levels));
        if !active() || array.is_null() || description.is_null() {
            return call();
        }
        // SAFETY: not NULL, and the caller's promise that it is one.
        let bytes = quota::of_array(unsafe { &*description }, levels);
        // SAFETY: the driver has written there.
        allocate(bytes, call, || Key::Mipmap(unsafe { *array }.0.addr()))
    }
    fn cuArrayDestroy(array: CUarray) {
        bind::everything();
        freed(Key::Array(array.0.addr()), || cu!(cuArrayDestroy(array)))
    }
    fn cuMipmappedArrayDestroy(array: CUmipmappedArray) {
        bind::everything();
        freed(Key::Mipmap(array.0.addr()), || cu!(cuMipmappedArrayDestroy(array)))
    }
}

fn array_made(array: *mut CUarray, description: &CUDA_ARRAY3D_DESCRIPTOR, call: impl FnOnce() -> CUresult) -> CUresult {
    // SAFETY: the driver has written there.
    allocate(quota::of_array(description, 1), call, || Key::Array(unsafe { *array }.0.addr()))
}
