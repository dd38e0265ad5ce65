//! CUDA arrays: device memory with a shape. Rows lie one behind the other, and slices too.

use crate::boundary::Outcome;
use crate::device;
use crate::handle::{self, Table};
use crate::memory::{self, Kind, Wanted};
use detshare_cuda::types::{CUDA_ARRAY3D_DESCRIPTOR, CUarray, CUarray_format as Format, CUdevice_attribute, CUresult};
use std::sync::Arc;

pub(crate) static ARRAYS: Table<Array> = Table::new();

/// `CUDA_ARRAY3D_…` flags.
const LAYERED: u32 = 1;
const CUBEMAP: u32 = 4;
/// The last one that there is.
const ALL_FLAGS: u32 = 0x1ff;
const SPARSE: u32 = 0x40;
const DEFERRED_MAPPING: u32 = 0x80;
/// The sides of a cube.
const SIDES: usize = 6;

/// An array.
pub(crate) struct Array {
    pub(crate) handle: usize,
    pub(crate) context: usize,
    pub(crate) descriptor: CUDA_ARRAY3D_DESCRIPTOR,
    /// Bytes of a row.
    pub(crate) pitch: usize,
    /// Rows of a slice, and slices.
    pub(crate) height: usize,
    pub(crate) depth: usize,
    pub(crate) address: u64,
    /// The mipmapped array that it is a level of.
    pub(crate) level_of: Option<usize>,
}

impl Drop for Array {
    fn drop(&mut self) {
        memory::free(self.address);
    }
}

impl Array {
    /// Bytes from one slice to the next.
    pub(crate) fn slice(&self) -> usize {
        self.pitch * self.height
    }

    /// Memory for an array of that shape on the context's device.
    pub(crate) fn create(
        descriptor: CUDA_ARRAY3D_DESCRIPTOR,
        context: &crate::context::Context,
        level_of: Option<usize>,
    ) -> Outcome<Arc<Self>> {
        check(&descriptor)?;
        let too_large = CUresult::CUDA_ERROR_INVALID_VALUE;
        let element = element_bytes(descriptor.Format, descriptor.NumChannels).ok_or(too_large)?;
        let (height, depth) = (descriptor.Height.max(1), descriptor.Depth.max(1));
        let pitch = descriptor.Width.checked_mul(element).ok_or(too_large)?;
        let bytes = pitch.checked_mul(height).and_then(|it| it.checked_mul(depth)).ok_or(too_large)?;
        let wanted = Wanted {
            bytes: bytes as u64,
            kind: Kind::Device,
            device: context.device,
            context: context.handle,
            align: 1,
            access: 0,
        };
        let range = memory::take(&wanted).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        let (handle, address) = (handle::new(), range.start);
        let array =
            Arc::new(Self { handle, context: context.handle, descriptor, pitch, height, depth, address, level_of });
        ARRAYS.insert(handle, Arc::clone(&array));
        Ok(array)
    }
}

pub(crate) fn find(array: CUarray) -> Outcome<Arc<Array>> {
    ARRAYS.get(array.0.addr()).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
}

/// The arrays of a context that ends go with it.
pub(crate) fn end_all_of(context: usize) {
    ARRAYS.retain(|array| array.context != context);
}

/// Bytes of one element; None for formats and numbers of channels that there are not.
fn element_bytes(format: Format, channels: u32) -> Option<usize> {
    let channels = channels as usize;
    let of_channel = match format {
        Format::CU_AD_FORMAT_UNSIGNED_INT8 | Format::CU_AD_FORMAT_SIGNED_INT8 => 1,
        Format::CU_AD_FORMAT_UNSIGNED_INT16 | Format::CU_AD_FORMAT_SIGNED_INT16 | Format::CU_AD_FORMAT_HALF => 2,
        Format::CU_AD_FORMAT_UNSIGNED_INT32 | Format::CU_AD_FORMAT_SIGNED_INT32 | Format::CU_AD_FORMAT_FLOAT => 4,
        // The number of channels is part of these formats' names.
        Format::CU_AD_FORMAT_UNORM_INT8X1 | Format::CU_AD_FORMAT_SNORM_INT8X1 if channels == 1 => 1,
        Format::CU_AD_FORMAT_UNORM_INT8X2 | Format::CU_AD_FORMAT_SNORM_INT8X2 if channels == 2 => 1,
        Format::CU_AD_FORMAT_UNORM_INT8X4 | Format::CU_AD_FORMAT_SNORM_INT8X4 if channels == 4 => 1,
        Format::CU_AD_FORMAT_UNORM_INT16X1 | Format::CU_AD_FORMAT_SNORM_INT16X1 if channels == 1 => 2,
        Format::CU_AD_FORMAT_UNORM_INT16X2 | Format::CU_AD_FORMAT_SNORM_INT16X2 if channels == 2 => 2,
        Format::CU_AD_FORMAT_UNORM_INT16X4 | Format::CU_AD_FORMAT_SNORM_INT16X4 if channels == 4 => 2,
        _ => return None,
    };
    matches!(channels, 1 | 2 | 4).then_some(of_channel * channels)
}

fn check(it: &CUDA_ARRAY3D_DESCRIPTOR) -> Outcome {
    use CUdevice_attribute as A;
    let invalid = Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    if it.Flags & !ALL_FLAGS != 0 || it.Width == 0 || element_bytes(it.Format, it.NumChannels).is_none() {
        return invalid;
    }
    if it.Flags & (SPARSE | DEFERRED_MAPPING) != 0 {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    let layered = it.Flags & LAYERED != 0;
    let limits = if it.Flags & CUBEMAP != 0 {
        if it.Width != it.Height || !it.Depth.is_multiple_of(SIDES) || it.Depth == 0 || (!layered && it.Depth != SIDES)
        {
            return invalid;
        }
        let layers = A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS;
        let width = A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH;
        [Some(width), Some(width), layered.then_some(layers)]
    } else if layered && it.Depth == 0 {
        return invalid;
    } else if layered && it.Height == 0 {
        let width = A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH;
        [Some(width), None, Some(A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS)]
    } else if layered {
        let width = A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH;
        let height = A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT;
        [Some(width), Some(height), Some(A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS)]
    } else if it.Depth != 0 {
        if it.Height == 0 {
            return invalid;
        }
        let edge = Some(A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH);
        [edge, edge, edge]
    } else if it.Height != 0 {
        let height = A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT;
        [Some(A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH), Some(height), None]
    } else {
        [Some(A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH), None, None]
    };
    let most = |limit| usize::try_from(device::attribute(0, limit).unwrap_or(0)).unwrap_or(0);
    let extents = [it.Width, it.Height, it.Depth];
    if extents.iter().zip(limits).any(|(extent, limit)| limit.is_some_and(|limit| *extent > most(limit))) {
        return invalid;
    }
    Ok(())
}
