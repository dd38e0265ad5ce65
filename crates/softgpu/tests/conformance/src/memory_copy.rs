//! Copies: between all sides, in lines and in rows, at once and in a stream.

use crate::Outcome;
use crate::gpu::{Gpu, NO_ADDRESS, NON_BLOCKING, NULL_STREAM, offset};
use anyhow::ensure;
use core::ffi::c_void;
use core::mem::zeroed;
use core::ptr::null_mut;
use detshare_cuda::Driver;
use detshare_cuda::types::{CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUdeviceptr, CUdeviceptr_v2, CUmemorytype, CUresult};

tests! { memory_copy:
    there_and_back,
    device_to_device,
    unified_finds_the_sides,
    nothing_is_copied_without_error,
    in_a_stream,
    in_a_stream_from_ordinary_memory,
    unified_in_a_stream,
    per_thread_variants,
    peer_of_the_same_context,
    rows_from_host_to_device,
    rows_from_device_to_host,
    rows_from_device_to_device,
    rows_in_a_stream,
    rows_wider_than_their_pitch_are_refused,
    planes,
    unknown_pointers_are_refused,
    beyond_the_allocation_is_refused,
    freed_memory_is_refused,
    between_contexts,
    large,
}

const MEBIBYTE: usize = 1 << 20;

fn there_and_back(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    for count in [1_usize, 3, 1_000, 100_000] {
        let words: Vec<u32> = (0..u32::try_from(count)?).map(|index| index.wrapping_mul(2_654_435_761)).collect();
        let pointer = gpu.upload(&words)?;
        ensure!(gpu.read(pointer, count)? == words, "{count} words came back changed");
        ok!(driver, cuMemFree_v2(pointer));
    }
    let bytes = gpu.upload(&[0x0403_0201, 0x0807_0605])?;
    ensure!(gpu.read_bytes(offset(bytes, 3), 3)? == [4, 5, 6], "three bytes from an odd address");
    Ok(())
}

fn device_to_device(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (from, to) = (gpu.upload(&[1, 2, 3, 4])?, gpu.zeros(4)?);
    ok!(driver, cuMemcpyDtoD_v2(offset(to, 4), from, 8));
    ensure!(gpu.read(to, 4)? == [0, 1, 2, 0], "other words came over");
    Ok(())
}

/// The host address as the unified functions take it.
fn unified<T>(pointer: *const T) -> CUdeviceptr {
    CUdeviceptr_v2(pointer.expose_provenance() as u64)
}

fn unified_finds_the_sides(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (first, second) = (gpu.zeros(3)?, gpu.zeros(3)?);
    let words = [5_u32, 6, 7];
    let mut back = [0_u32; 3];
    ok!(driver, cuMemcpy(first, unified(words.as_ptr()), 12));
    ok!(driver, cuMemcpy(second, first, 12));
    ok!(driver, cuMemcpy(unified(back.as_mut_ptr()), second, 12));
    // SAFETY: read anew, for the driver wrote it through an address that it was told as a number.
    let back = unsafe { (&raw const back).read_volatile() };
    ensure!(back == words, "{back:?}");
    Ok(())
}

fn nothing_is_copied_without_error(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let pointer = gpu.upload(&[1])?;
    let word = 9_u32;
    ok!(driver, cuMemcpyHtoD_v2(pointer, (&raw const word).cast(), 0));
    ok!(driver, cuMemcpyDtoD_v2(pointer, offset(pointer, 0), 0));
    ok!(driver, cuMemcpyHtoDAsync_v2(pointer, (&raw const word).cast(), 0, NULL_STREAM));
    ensure!(gpu.read(pointer, 1)? == [1], "a copy of nothing has written");
    Ok(())
}

fn in_a_stream(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (gate, stream) = (gpu.gate()?, gpu.stream(NON_BLOCKING)?);
    let host = gpu.shared_words(8)?;
    (0..4).for_each(|index| host.set(index, 40));
    let (first, second) = (gpu.zeros(4)?, gpu.zeros(4)?);
    gpu.hold_at(&gate, stream)?;
    ok!(driver, cuMemcpyHtoDAsync_v2(first, host.host(), 16, stream));
    ok!(driver, cuMemcpyDtoDAsync_v2(second, first, 16, stream));
    ok!(driver, cuMemcpyDtoHAsync_v2(host.host().wrapping_byte_add(16), second, 16, stream));
    gpu.is_pending(stream)?;
    ensure!((4..8).all(|index| host.get(index) == 0), "the copies did not wait for their turn");
    gate.open();
    gpu.wait(stream)?;
    gate.was_passed()?;
    ensure!((4..8).all(|index| host.get(index) == 40), "the words did not come through");
    Ok(())
}

fn in_a_stream_from_ordinary_memory(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let stream = gpu.stream(NON_BLOCKING)?;
    let pointer = gpu.zeros(1_000)?;
    let mut words = vec![3_u32; 1_000];
    ok!(driver, cuMemcpyHtoDAsync_v2(pointer, words.as_ptr().cast(), 4_000, stream));
    // The driver has taken the words before it returned: ordinary memory is staged.
    words.fill(4);
    let mut back = vec![0_u32; 1_000];
    ok!(driver, cuMemcpyDtoHAsync_v2(back.as_mut_ptr().cast(), pointer, 4_000, stream));
    gpu.wait(stream)?;
    ensure!(back == [3; 1_000], "the words did not come through as they were");
    Ok(())
}

fn unified_in_a_stream(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let stream = gpu.stream(NON_BLOCKING)?;
    let host = gpu.shared_words(2)?;
    host.set(0, 12);
    let pointer = gpu.zeros(1)?;
    ok!(driver, cuMemcpyAsync(pointer, unified(host.host().cast_const()), 4, stream));
    ok!(driver, cuMemcpyAsync(unified(host.host().wrapping_byte_add(4).cast_const()), pointer, 4, stream));
    gpu.wait(stream)?;
    ensure!(host.get(1) == 12, "{}", host.get(1));
    Ok(())
}

fn per_thread_variants(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (first, second) = (gpu.zeros(2)?, gpu.zeros(2)?);
    let words = [8_u32, 9];
    let mut back = [0_u32; 2];
    ok!(driver, cuMemcpyHtoD_v2_ptds(first, words.as_ptr().cast(), 8));
    ok!(driver, cuMemcpyDtoDAsync_v2_ptsz(second, first, 8, NULL_STREAM));
    ok!(driver, cuMemsetD32Async_ptsz(second, 7, 1, NULL_STREAM));
    ok!(driver, cuMemcpyDtoH_v2_ptds(back.as_mut_ptr().cast(), second, 8));
    ensure!(back == [7, 9], "{back:?}");
    Ok(())
}

fn peer_of_the_same_context(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (from, to) = (gpu.upload(&[1, 2])?, gpu.zeros(2)?);
    ok!(driver, cuMemcpyPeer(to, gpu.context, from, gpu.context, 8));
    ensure!(gpu.read(to, 2)? == [1, 2], "other words came over");
    let stream = gpu.stream(NON_BLOCKING)?;
    ok!(driver, cuMemcpyPeerAsync(offset(to, 4), gpu.context, from, gpu.context, 4, stream));
    gpu.wait(stream)?;
    ensure!(gpu.read(to, 2)? == [1, 1], "other words came over in a stream");
    Ok(())
}

/// One side of a copy in rows: where, its pitch, and the first byte and row.
#[derive(Clone, Copy)]
struct Side {
    host: *mut c_void,
    device: CUdeviceptr,
    pitch: usize,
    at: (usize, usize),
}

impl Side {
    fn host<T>(words: &mut [T], pitch: usize, at: (usize, usize)) -> Self {
        Self { host: words.as_mut_ptr().cast(), device: NO_ADDRESS, pitch, at }
    }

    fn device(device: CUdeviceptr, pitch: usize, at: (usize, usize)) -> Self {
        Self { host: null_mut(), device, pitch, at }
    }

    fn kind(self) -> CUmemorytype {
        if self.host.is_null() { CUmemorytype::CU_MEMORYTYPE_DEVICE } else { CUmemorytype::CU_MEMORYTYPE_HOST }
    }
}

fn rows(from: Side, to: Side, width: usize, height: usize) -> CUDA_MEMCPY2D {
    // SAFETY: plain values throughout, where zero means none.
    let nothing: CUDA_MEMCPY2D = unsafe { zeroed() };
    CUDA_MEMCPY2D {
        srcXInBytes: from.at.0,
        srcY: from.at.1,
        srcMemoryType: from.kind(),
        srcHost: from.host,
        srcDevice: from.device,
        srcPitch: from.pitch,
        dstXInBytes: to.at.0,
        dstY: to.at.1,
        dstMemoryType: to.kind(),
        dstHost: to.host,
        dstDevice: to.device,
        dstPitch: to.pitch,
        WidthInBytes: width,
        Height: height,
        ..nothing
    }
}

/// A host picture of 4 by 4 words that count up.
fn picture() -> Vec<u32> {
    (0..16).collect()
}

fn rows_from_host_to_device(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let pointer = gpu.zeros(12)?;
    let mut picture = picture();
    let copy = rows(Side::host(&mut picture, 16, (4, 1)), Side::device(pointer, 12, (0, 1)), 8, 2);
    ok!(driver, cuMemcpy2D_v2(&raw const copy));
    let seen = gpu.read(pointer, 12)?;
    ensure!(seen == [0, 0, 0, 5, 6, 0, 9, 10, 0, 0, 0, 0], "{seen:?}");
    Ok(())
}

fn rows_from_device_to_host(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let pointer = gpu.upload(&picture())?;
    let mut back = vec![0_u32; 6];
    let copy = rows(Side::device(pointer, 16, (8, 2)), Side::host(&mut back, 12, (4, 0)), 8, 2);
    ok!(driver, cuMemcpy2D_v2(&raw const copy));
    ensure!(back == [0, 10, 11, 0, 14, 15], "{back:?}");
    Ok(())
}

fn rows_from_device_to_device(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (from, to) = (gpu.upload(&picture())?, gpu.zeros(8)?);
    let copy = rows(Side::device(from, 16, (0, 0)), Side::device(to, 8, (4, 0)), 4, 4);
    ok!(driver, cuMemcpy2DUnaligned_v2(&raw const copy));
    let seen = gpu.read(to, 8)?;
    ensure!(seen == [0, 0, 0, 4, 0, 8, 0, 12], "{seen:?}");
    Ok(())
}

fn rows_in_a_stream(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (gate, stream) = (gpu.gate()?, gpu.stream(NON_BLOCKING)?);
    let (from, to) = (gpu.upload(&picture())?, gpu.zeros(4)?);
    let copy = rows(Side::device(from, 16, (12, 0)), Side::device(to, 4, (0, 0)), 4, 4);
    gpu.hold_at(&gate, stream)?;
    ok!(driver, cuMemcpy2DAsync_v2(&raw const copy, stream));
    gpu.is_pending(stream)?;
    gate.open();
    gpu.wait(stream)?;
    gate.was_passed()?;
    let seen = gpu.read(to, 4)?;
    ensure!(seen == [3, 7, 11, 15], "{seen:?}");
    Ok(())
}

fn rows_wider_than_their_pitch_are_refused(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (from, to) = (gpu.zeros(64)?, gpu.zeros(64)?);
    let copy = rows(Side::device(from, 16, (0, 0)), Side::device(to, 32, (0, 0)), 24, 2);
    expect!(driver, cuMemcpy2D_v2(&raw const copy) => CUDA_ERROR_INVALID_VALUE);
    let copy = rows(Side::device(from, 32, (0, 0)), Side::device(to, 16, (0, 0)), 24, 2);
    expect!(driver, cuMemcpy2D_v2(&raw const copy) => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

fn planes(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let words: Vec<u32> = (0..24).collect();
    let (from, to) = (gpu.upload(&words)?, gpu.zeros(8)?);
    // SAFETY: plain values throughout, where zero means none.
    let nothing: CUDA_MEMCPY3D = unsafe { zeroed() };
    // Out of 2 planes of 3 rows of 4 words, into 2 planes of 2 rows of 2 words.
    let copy = CUDA_MEMCPY3D {
        srcXInBytes: 8,
        srcY: 1,
        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        srcDevice: from,
        srcPitch: 16,
        srcHeight: 3,
        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        dstDevice: to,
        dstPitch: 8,
        dstHeight: 2,
        WidthInBytes: 8,
        Height: 2,
        Depth: 2,
        ..nothing
    };
    ok!(driver, cuMemcpy3D_v2(&raw const copy));
    let seen = gpu.read(to, 8)?;
    ensure!(seen == [6, 7, 10, 11, 18, 19, 22, 23], "{seen:?}");
    Ok(())
}

fn unknown_pointers_are_refused(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let pointer = gpu.upload(&[1])?;
    let unknown = CUdeviceptr_v2(0x1234_5600);
    let mut word = 0_u32;
    let host = (&raw mut word).cast::<c_void>();
    expect!(driver, cuMemcpyHtoD_v2(unknown, host, 4) => CUDA_ERROR_INVALID_VALUE);
    expect!(driver, cuMemcpyDtoH_v2(host, unknown, 4) => CUDA_ERROR_INVALID_VALUE);
    expect!(driver, cuMemcpyDtoD_v2(pointer, unknown, 4) => CUDA_ERROR_INVALID_VALUE);
    expect!(driver, cuMemcpyHtoD_v2(NO_ADDRESS, host, 4) => CUDA_ERROR_INVALID_VALUE);
    ensure!(gpu.read(pointer, 1)? == [1], "a refused copy has written");
    Ok(())
}

fn beyond_the_allocation_is_refused(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let pointer = gpu.alloc(MEBIBYTE)?;
    let words = vec![0_u8; 256 * MEBIBYTE];
    let code = noted!(driver, cuMemcpyHtoD_v2(pointer, words.as_ptr().cast(), words.len()), "256 times the allocation");
    ensure!(code == CUresult::CUDA_ERROR_INVALID_VALUE, "a copy far beyond its allocation was not refused");
    Ok(())
}

fn freed_memory_is_refused(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let pointer = gpu.alloc(64 * MEBIBYTE)?;
    ok!(driver, cuMemFree_v2(pointer));
    let mut word = 0_u32;
    expect!(driver, cuMemcpyDtoH_v2((&raw mut word).cast(), pointer, 4) => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

/// With one address space, a pointer of another context can be copied from.
fn between_contexts(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let from = gpu.upload(&[1, 2, 3])?;
    let mut other = gpu.context;
    ok!(driver, cuCtxCreate_v2(&raw mut other, 0, gpu.device));
    let to = gpu.zeros(3)?;
    ok!(driver, cuMemcpyPeer(to, other, from, gpu.context, 12));
    ensure!(gpu.read(to, 3)? == [1, 2, 3], "other words came over");
    let mut back = [0_u32; 3];
    noted!(driver, cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), from, 12), "memory of another context");
    Ok(())
}

fn large(driver: &Driver) -> Outcome {
    const WORDS: usize = 16 << 20;
    let gpu = Gpu::new(driver)?;
    let words: Vec<u32> = (0..u32::try_from(WORDS)?).collect();
    let pointer = gpu.upload(&words)?;
    let copy = gpu.alloc(4 * WORDS)?;
    ok!(driver, cuMemcpyDtoD_v2(copy, pointer, 4 * WORDS));
    ensure!(gpu.read(copy, WORDS)? == words, "64 MiB came back changed");
    Ok(())
}
