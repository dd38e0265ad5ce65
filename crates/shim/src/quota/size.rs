//! How many bytes: what a setting's text means, and what an array takes.

use core::ffi::c_uint;
use detshare_cuda::types::{CUDA_ARRAY3D_DESCRIPTOR, CUarray_format};

/// Reads a size: a whole number of bytes, or of one of the units that people write. They mean powers of two by
/// all of them, as GPUs are sold. None for anything else, and for none at all.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    let shift = match unit.trim_start() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift).filter(|bytes| *bytes > 0)
}

/// `CUDA_ARRAY3D_LAYERED`: the depth counts layers, which all levels have.
const LAYERED: c_uint = 0x01;
/// `CUDA_ARRAY3D_CUBEMAP`: the depth counts faces.
const CUBEMAP: c_uint = 0x04;
/// `CUDA_ARRAY3D_SPARSE`: memory is mapped into it later.
const SPARSE: c_uint = 0x40;
/// `CUDA_ARRAY3D_DEFERRED_MAPPING`: likewise.
const DEFERRED: c_uint = 0x80;

/// What an array with that many levels takes, without what the driver adds to lay it out. Nothing for one that gets
/// its memory later: that is counted where it is made.
pub(crate) fn of_array(array: &CUDA_ARRAY3D_DESCRIPTOR, levels: c_uint) -> u64 {
    if array.Flags & (SPARSE | DEFERRED) != 0 || array.Width == 0 {
        return 0;
    }
    let [width, height, depth] = [array.Width, array.Height, array.Depth].map(|extent| (extent as u64).max(1));
    let flat = array.Flags & (LAYERED | CUBEMAP) != 0;
    // A side of 2^63 has 64 levels; the driver makes no more than there are.
    let levels = levels.min(64 - width.max(height).max(if flat { 1 } else { depth }).leading_zeros());
    let level = |number: c_uint| {
        let [width, height] = [width, height].map(|extent| (extent >> number).max(1));
        let depth = if flat { depth } else { (depth >> number).max(1) };
        let bits = texel_bits(array.Format, array.NumChannels);
        width.saturating_mul(height).saturating_mul(depth).saturating_mul(bits).div_ceil(8)
    };
    (0..levels.max(1)).map(level).fold(0, u64::saturating_add)
}

/// Bits of one element with all its channels, on average where several share a block or a plane.
fn texel_bits(format: CUarray_format, channels: c_uint) -> u64 {
    type Format = CUarray_format;
    let channels = u64::from(channels);
    match format {
        Format::CU_AD_FORMAT_UNSIGNED_INT8
        | Format::CU_AD_FORMAT_SIGNED_INT8
        | Format::CU_AD_FORMAT_UNORM_INT8X1
        | Format::CU_AD_FORMAT_UNORM_INT8X2
        | Format::CU_AD_FORMAT_UNORM_INT8X4
        | Format::CU_AD_FORMAT_SNORM_INT8X1
        | Format::CU_AD_FORMAT_SNORM_INT8X2
        | Format::CU_AD_FORMAT_SNORM_INT8X4 => 8 * channels,
        Format::CU_AD_FORMAT_UNSIGNED_INT16
        | Format::CU_AD_FORMAT_SIGNED_INT16
        | Format::CU_AD_FORMAT_HALF
        | Format::CU_AD_FORMAT_UNORM_INT16X1
        | Format::CU_AD_FORMAT_UNORM_INT16X2
        | Format::CU_AD_FORMAT_UNORM_INT16X4
        | Format::CU_AD_FORMAT_SNORM_INT16X1
        | Format::CU_AD_FORMAT_SNORM_INT16X2
        | Format::CU_AD_FORMAT_SNORM_INT16X4 => 16 * channels,
        // 4 x 4 elements in 8 bytes.
        Format::CU_AD_FORMAT_BC1_UNORM
        | Format::CU_AD_FORMAT_BC1_UNORM_SRGB
        | Format::CU_AD_FORMAT_BC4_UNORM
        | Format::CU_AD_FORMAT_BC4_SNORM => 4,
        // 4 x 4 elements in 16 bytes.
        Format::CU_AD_FORMAT_BC2_UNORM
        | Format::CU_AD_FORMAT_BC2_UNORM_SRGB
        | Format::CU_AD_FORMAT_BC3_UNORM
        | Format::CU_AD_FORMAT_BC3_UNORM_SRGB
        | Format::CU_AD_FORMAT_BC5_UNORM
        | Format::CU_AD_FORMAT_BC5_SNORM
        | Format::CU_AD_FORMAT_BC6H_UF16
        | Format::CU_AD_FORMAT_BC6H_SF16
        | Format::CU_AD_FORMAT_BC7_UNORM
        | Format::CU_AD_FORMAT_BC7_UNORM_SRGB => 8,
        // Colour at half the resolution.
        Format::CU_AD_FORMAT_NV12 => 12,
        Format::CU_AD_FORMAT_P010 | Format::CU_AD_FORMAT_P016 => 24,
        Format::CU_AD_FORMAT_NV16 | Format::CU_AD_FORMAT_YUY2 => 16,
        Format::CU_AD_FORMAT_Y444_PLANAR8 | Format::CU_AD_FORMAT_YUV444_8bit_SemiPlanar => 24,
        Format::CU_AD_FORMAT_Y444_PLANAR10 | Format::CU_AD_FORMAT_YUV444_16bit_SemiPlanar => 48,
        Format::CU_AD_FORMAT_P210
        | Format::CU_AD_FORMAT_P216
        | Format::CU_AD_FORMAT_Y210
        | Format::CU_AD_FORMAT_Y216
        | Format::CU_AD_FORMAT_AYUV
        | Format::CU_AD_FORMAT_Y410
        | Format::CU_AD_FORMAT_UNORM_INT_101010_2 => 32,
        Format::CU_AD_FORMAT_Y416 => 64,
        // Whole numbers and floats of 32 bits; a format of another day is taken for one of them.
        _ => 32 * channels,
    }
}
