//! CUDA arrays and copies to, from and between them.

use crate::Outcome;
use crate::gpu::{Gpu, NON_BLOCKING, offset};
use anyhow::{Result, ensure};
use core::mem::zeroed;
use core::ptr::null_mut;
use detshare_cuda::Driver;
use detshare_cuda::types::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY_MEMORY_REQUIREMENTS, CUDA_ARRAY_SPARSE_PROPERTIES, CUDA_ARRAY3D_DESCRIPTOR,
    CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUarray, CUarray_format as Format, CUmemorytype as Memory, CUmipmappedArray,
    CUresult,
};

tests! { array:
    descriptors_are_kept,
    shapes_are_checked,
    a_row_goes_there_and_back,
    rectangles_go_there_and_back,
    volumes_go_there_and_back,
    layers_are_slices,
    asynchronous_copies_keep_their_order,
    copies_beyond_the_array_are_refused,
    a_destroyed_array_is_refused,
    memory_is_given_back,
    mipmaps_get_smaller,
    only_special_arrays_have_planes_and_tiles,
}

const NO_ARRAY: CUarray = CUarray(null_mut());
/// `CUDA_ARRAY3D_LAYERED`.
const LAYERED: u32 = 1;

fn flat(width: usize, height: usize) -> CUDA_ARRAY_DESCRIPTOR {
    let format = Format::CU_AD_FORMAT_UNSIGNED_INT32;
    CUDA_ARRAY_DESCRIPTOR { Width: width, Height: height, Format: format, NumChannels: 1 }
}

fn solid([width, height, depth]: [usize; 3], flags: u32) -> CUDA_ARRAY3D_DESCRIPTOR {
    let format = Format::CU_AD_FORMAT_UNSIGNED_INT32;
    CUDA_ARRAY3D_DESCRIPTOR { Width: width, Height: height, Depth: depth, Format: format, NumChannels: 1, Flags: flags }
}

fn make(gpu: &Gpu, wanted: &CUDA_ARRAY3D_DESCRIPTOR) -> Result<CUarray> {
    let mut array = NO_ARRAY;
    ok!(gpu, cuArray3DCreate_v2(&raw mut array, wanted));
    ensure!(array != NO_ARRAY, "cuArray3DCreate gave no array");
    Ok(array)
}

fn descriptors_are_kept(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    for (format, channels) in [(Format::CU_AD_FORMAT_FLOAT, 4), (Format::CU_AD_FORMAT_UNSIGNED_INT8, 1)] {
        let wanted = CUDA_ARRAY_DESCRIPTOR { Format: format, NumChannels: channels, ..flat(20, 10) };
        let mut array = NO_ARRAY;
        ok!(driver, cuArrayCreate_v2(&raw mut array, &raw const wanted));
        // SAFETY: plain values throughout.
        let mut kept: CUDA_ARRAY_DESCRIPTOR = unsafe { zeroed() };
        ok!(driver, cuArrayGetDescriptor_v2(&raw mut kept, array));
        ensure!((kept.Width, kept.Height) == (20, 10), "{} times {}", kept.Width, kept.Height);
        ensure!(kept.Format == format && kept.NumChannels == channels, "{:?}", kept.Format);
        ok!(driver, cuArrayDestroy(array));
    }
    let array = make(&gpu, &solid([8, 4, 3], LAYERED))?;
    // SAFETY: plain values throughout.
    let mut kept: CUDA_ARRAY3D_DESCRIPTOR = unsafe { zeroed() };
    ok!(driver, cuArray3DGetDescriptor_v2(&raw mut kept, array));
    ensure!((kept.Width, kept.Height, kept.Depth) == (8, 4, 3) && kept.Flags == LAYERED, "{} flags", kept.Flags);
    ok!(driver, cuArrayDestroy(array));
    Ok(())
}

fn shapes_are_checked(driver: &Driver) -> Outcome {
    Gpu::new(driver)?;
    let mut array = NO_ARRAY;
    for (what, wrong) in [
        ("no width", flat(0, 4)),
        ("three channels", CUDA_ARRAY_DESCRIPTOR { NumChannels: 3, ..flat(4, 4) }),
        ("no such format", CUDA_ARRAY_DESCRIPTOR { Format: Format(0x77), ..flat(4, 4) }),
        ("too wide", flat(1 << 30, 4)),
    ] {
        let code = noted!(driver, cuArrayCreate_v2(&raw mut array, &raw const wrong), what);
        ensure!(code != CUresult::CUDA_SUCCESS, "{what} made an array");
    }
    for (what, wrong) in [("no layers", solid([4, 4, 0], LAYERED)), ("depth without height", solid([4, 0, 4], 0))] {
        let code = noted!(driver, cuArray3DCreate_v2(&raw mut array, &raw const wrong), what);
        ensure!(code != CUresult::CUDA_SUCCESS, "{what} made an array");
    }
    expect!(driver, cuArrayCreate_v2(null_mut(), &flat(4, 4)) => CUDA_ERROR_INVALID_VALUE);
    expect!(driver, cuArrayCreate_v2(&raw mut array, core::ptr::null()) => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

fn a_row_goes_there_and_back(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (mut first, mut second) = (NO_ARRAY, NO_ARRAY);
    let wanted = flat(64, 0);
    ok!(driver, cuArrayCreate_v2(&raw mut first, &raw const wanted));
    ok!(driver, cuArrayCreate_v2(&raw mut second, &raw const wanted));
    let words: Vec<u32> = (0..64).collect();
    ok!(driver, cuMemcpyHtoA_v2(first, 0, words.as_ptr().cast(), 256));
    ok!(driver, cuMemcpyAtoA_v2(second, 16, first, 0, 240));
    let device = gpu.zeros(64)?;
    ok!(driver, cuMemcpyAtoD_v2(device, second, 16, 64));
    ensure!(gpu.read(device, 17)? == (0..16).chain([0]).collect::<Vec<_>>(), "{:?}", gpu.read(device, 17)?);
    ok!(driver, cuMemcpyDtoA_v2(first, 128, device, 64));
    let mut back = [0_u32; 64];
    ok!(driver, cuMemcpyAtoH_v2(back.as_mut_ptr().cast(), first, 0, 256));
    let expected: Vec<u32> = (0..32).chain(0..16).chain(48..64).collect();
    ensure!(back[..] == expected[..], "{back:?}");
    expect!(driver, cuMemcpyHtoA_v2(first, 200, words.as_ptr().cast(), 100) => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

fn rectangles_go_there_and_back(driver: &Driver) -> Outcome {
    Gpu::new(driver)?;
    let mut array = NO_ARRAY;
    ok!(driver, cuArrayCreate_v2(&raw mut array, &flat(6, 4)));
    let all: Vec<u32> = (0..24).collect();
    // SAFETY: plain values throughout, where zero means none.
    let mut copy: CUDA_MEMCPY2D = unsafe { zeroed() };
    (copy.srcMemoryType, copy.srcHost) = (Memory::CU_MEMORYTYPE_HOST, all.as_ptr().cast());
    (copy.dstMemoryType, copy.dstArray) = (Memory::CU_MEMORYTYPE_ARRAY, array);
    (copy.WidthInBytes, copy.Height) = (24, 4);
    ok!(driver, cuMemcpy2D_v2(&raw const copy));
    let mut part = [0_u32; 4];
    // SAFETY: as above.
    let mut copy: CUDA_MEMCPY2D = unsafe { zeroed() };
    (copy.srcMemoryType, copy.srcArray) = (Memory::CU_MEMORYTYPE_ARRAY, array);
    (copy.srcXInBytes, copy.srcY) = (8, 1);
    (copy.dstMemoryType, copy.dstHost) = (Memory::CU_MEMORYTYPE_HOST, part.as_mut_ptr().cast());
    (copy.WidthInBytes, copy.Height) = (8, 2);
    ok!(driver, cuMemcpy2DUnaligned_v2(&raw const copy));
    ensure!(part == [8, 9, 14, 15], "{part:?}");
    Ok(())
}

/// A copy of a box between host memory without gaps and an array.
fn box_copy(array: CUarray, at: [usize; 3], [width, height, depth]: [usize; 3]) -> CUDA_MEMCPY3D {
    // SAFETY: plain values throughout, where zero means none.
    let mut copy: CUDA_MEMCPY3D = unsafe { zeroed() };
    (copy.srcArray, copy.dstArray) = (array, array);
    [copy.srcXInBytes, copy.srcY, copy.srcZ] = [at[0] * 4, at[1], at[2]];
    [copy.dstXInBytes, copy.dstY, copy.dstZ] = [at[0] * 4, at[1], at[2]];
    (copy.WidthInBytes, copy.Height, copy.Depth) = (width * 4, height, depth);
    copy
}

fn write(gpu: &Gpu, array: CUarray, at: [usize; 3], extent: [usize; 3], words: &[u32]) -> Result<CUresult> {
    let mut copy = box_copy(array, at, extent);
    (copy.srcMemoryType, copy.srcHost) = (Memory::CU_MEMORYTYPE_HOST, words.as_ptr().cast());
    (copy.srcXInBytes, copy.srcY, copy.srcZ) = (0, 0, 0);
    (copy.srcPitch, copy.srcHeight) = (extent[0] * 4, extent[1]);
    copy.dstMemoryType = Memory::CU_MEMORYTYPE_ARRAY;
    Ok(cu!(gpu, cuMemcpy3D_v2(&raw const copy)))
}

fn read(gpu: &Gpu, array: CUarray, at: [usize; 3], extent: [usize; 3]) -> Result<Vec<u32>> {
    let mut words = vec![0; extent.iter().product()];
    let mut copy = box_copy(array, at, extent);
    copy.srcMemoryType = Memory::CU_MEMORYTYPE_ARRAY;
    (copy.dstMemoryType, copy.dstHost) = (Memory::CU_MEMORYTYPE_HOST, words.as_mut_ptr().cast());
    (copy.dstXInBytes, copy.dstY, copy.dstZ) = (0, 0, 0);
    (copy.dstPitch, copy.dstHeight) = (extent[0] * 4, extent[1]);
    ok!(gpu, cuMemcpy3D_v2(&raw const copy));
    Ok(words)
}

fn volumes_go_there_and_back(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let array = make(&gpu, &solid([5, 4, 3], 0))?;
    let all: Vec<u32> = (0..60).collect();
    ensure!(write(&gpu, array, [0; 3], [5, 4, 3], &all)? == CUresult::CUDA_SUCCESS, "the whole is not written");
    ensure!(read(&gpu, array, [0; 3], [5, 4, 3])? == all, "the whole is another");
    let inner = read(&gpu, array, [1, 2, 1], [2, 2, 2])?;
    ensure!(inner == [31, 32, 36, 37, 51, 52, 56, 57], "{inner:?}");
    ensure!(write(&gpu, array, [4, 3, 2], [1, 1, 1], &[99])? == CUresult::CUDA_SUCCESS, "the last is not written");
    ensure!(read(&gpu, array, [3, 3, 2], [2, 1, 1])? == [58, 99], "the last is another");
    // Between an array and device memory with a pitch of its own.
    let device = gpu.zeros(64)?;
    let mut copy = box_copy(array, [0; 3], [5, 4, 1]);
    copy.srcMemoryType = Memory::CU_MEMORYTYPE_ARRAY;
    (copy.dstMemoryType, copy.dstDevice, copy.dstPitch) = (Memory::CU_MEMORYTYPE_DEVICE, device, 32);
    ok!(driver, cuMemcpy3D_v2(&raw const copy));
    ensure!(gpu.read(offset(device, 32), 6)? == [5, 6, 7, 8, 9, 0], "{:?}", gpu.read(offset(device, 32), 6)?);
    Ok(())
}

fn layers_are_slices(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    for extent in [[4, 2, 3], [4, 0, 3]] {
        let array = make(&gpu, &solid(extent, LAYERED))?;
        let layer = [4, extent[1].max(1), 1];
        for z in 0..3 {
            let words = vec![u32::try_from(z)? + 1; layer.iter().product()];
            ensure!(write(&gpu, array, [0, 0, z], layer, &words)? == CUresult::CUDA_SUCCESS, "layer {z}");
        }
        let second = read(&gpu, array, [0, 0, 1], layer)?;
        ensure!(second.iter().all(|word| *word == 2), "{second:?}");
        ok!(driver, cuArrayDestroy(array));
    }
    Ok(())
}

fn asynchronous_copies_keep_their_order(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let gate = gpu.gate()?;
    let mut array = NO_ARRAY;
    ok!(driver, cuArrayCreate_v2(&raw mut array, &flat(4, 0)));
    let (words, back) = (gpu.shared_words(4)?, gpu.shared_words(4)?);
    let stream = gpu.stream(NON_BLOCKING)?;
    gpu.hold_at(&gate, stream)?;
    ok!(driver, cuMemcpyHtoAAsync_v2(array, 0, words.host(), 16, stream));
    ok!(driver, cuMemcpyAtoHAsync_v2(back.host(), array, 0, 16, stream));
    (0..4).for_each(|index| words.set(index, 7));
    gpu.is_pending(stream)?;
    gate.open();
    gpu.wait(stream)?;
    gate.was_passed()?;
    ensure!((0..4).all(|index| back.get(index) == 7), "the copies were early");
    Ok(())
}

fn copies_beyond_the_array_are_refused(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let array = make(&gpu, &solid([4, 4, 4], 0))?;
    let words = vec![1; 200];
    for (at, extent) in [([1, 0, 0], [4, 1, 1]), ([0, 1, 0], [1, 4, 1]), ([0, 0, 4], [1, 1, 1])] {
        let code = write(&gpu, array, at, extent, &words)?;
        ensure!(code == CUresult::CUDA_ERROR_INVALID_VALUE, "{at:?} and {extent:?} give {code:?}");
    }
    Ok(())
}

fn a_destroyed_array_is_refused(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    // SAFETY: plain values throughout.
    let mut kept: CUDA_ARRAY3D_DESCRIPTOR = unsafe { zeroed() };
    let code = noted!(driver, cuArray3DGetDescriptor_v2(&raw mut kept, NO_ARRAY), "NULL");
    ensure!(code != CUresult::CUDA_SUCCESS, "NULL is an array");
    noted!(driver, cuArrayDestroy(NO_ARRAY), "NULL");
    let array = make(&gpu, &solid([4, 0, 0], 0))?;
    ok!(driver, cuArrayDestroy(array));
    Ok(())
}

/// Judged by what can be had, as the free memory is that of all who use the device: in turn, more than there is.
fn memory_is_given_back(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let side = 16_384;
    for _ in 0..=gpu.total_memory()? / (4 * side * side) {
        let array = make(&gpu, &solid([side, side, 0], 0))?;
        ok!(driver, cuArrayDestroy(array));
    }
    Ok(())
}

fn mipmaps_get_smaller(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let mut mipmap = CUmipmappedArray(null_mut());
    ok!(driver, cuMipmappedArrayCreate(&raw mut mipmap, &solid([16, 8, 0], 0), 3));
    for (level, (width, height)) in [(16, 8), (8, 4), (4, 2)].into_iter().enumerate() {
        let mut array = NO_ARRAY;
        ok!(driver, cuMipmappedArrayGetLevel(&raw mut array, mipmap, u32::try_from(level)?));
        // SAFETY: plain values throughout.
        let mut kept: CUDA_ARRAY3D_DESCRIPTOR = unsafe { zeroed() };
        ok!(driver, cuArray3DGetDescriptor_v2(&raw mut kept, array));
        ensure!((kept.Width, kept.Height) == (width, height), "level {level}: {} times {}", kept.Width, kept.Height);
        let words = vec![u32::try_from(level)?; width * height];
        let code = write(&gpu, array, [0; 3], [width, height, 1], &words)?;
        ensure!(code == CUresult::CUDA_SUCCESS, "level {level} is not written");
        ensure!(read(&gpu, array, [0; 3], [width, height, 1])? == words, "level {level} is another");
    }
    let mut array = NO_ARRAY;
    expect!(driver, cuMipmappedArrayGetLevel(&raw mut array, mipmap, 9) => CUDA_ERROR_INVALID_VALUE);
    ok!(driver, cuMipmappedArrayDestroy(mipmap));
    Ok(())
}

fn only_special_arrays_have_planes_and_tiles(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (array, mut plane, mut mipmap) = (make(&gpu, &solid([16, 8, 0], 0))?, NO_ARRAY, CUmipmappedArray(null_mut()));
    ok!(driver, cuMipmappedArrayCreate(&raw mut mipmap, &solid([16, 8, 0], 0), 3));
    // SAFETY: plain values throughout.
    let mut memory: CUDA_ARRAY_MEMORY_REQUIREMENTS = unsafe { zeroed() };
    // SAFETY: as above.
    let mut tiles: CUDA_ARRAY_SPARSE_PROPERTIES = unsafe { zeroed() };
    let device = crate::gpu::first_device(driver)?;
    expect!(driver, cuArrayGetPlane(&raw mut plane, array, 0) => CUDA_ERROR_INVALID_VALUE);
    expect!(driver, cuArrayGetSparseProperties(&raw mut tiles, array) => CUDA_ERROR_INVALID_VALUE);
    expect!(driver, cuArrayGetMemoryRequirements(&raw mut memory, array, device) => CUDA_ERROR_INVALID_VALUE);
    expect!(driver, cuMipmappedArrayGetSparseProperties(&raw mut tiles, mipmap) => CUDA_ERROR_INVALID_VALUE);
    expect!(driver, cuMipmappedArrayGetMemoryRequirements(&raw mut memory, mipmap, device) => CUDA_ERROR_INVALID_VALUE);
    ok!(driver, cuMipmappedArrayDestroy(mipmap));
    ok!(driver, cuArrayDestroy(array));
    Ok(())
}
