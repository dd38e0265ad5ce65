//! Tensor maps, and what copies make of them.

use crate::Outcome;
use crate::call::describe;
use crate::gpu::{Gpu, NULL_STREAM};
use anyhow::{Result, ensure};
use core::ffi::{CStr, c_void};
use core::mem::zeroed;
use core::ptr::without_provenance_mut;
use detshare_cuda::Driver;
use detshare_cuda::types::{
    CUdeviceptr, CUresult, CUtensorMap, CUtensorMapDataType as Element, CUtensorMapFloatOOBfill as Fill,
    CUtensorMapInterleave as Interleave, CUtensorMapL2promotion as Promotion, CUtensorMapSwizzle as Swizzle,
};

tests! { tensor_map:
    boxes_of_every_rank,
    boxes_are_swizzled,
    outside_is_zero,
    outside_may_be_nan,
    nan_outside_of_other_types,
    what_is_left_of_words,
    steps_leave_elements_out,
    boxes_are_stored,
    boxes_are_added,
    loads_within_16_bytes_are_illegal,
    stores_before_the_tensor_are_illegal,
    address_is_replaced,
    impossible_maps_are_refused,
}

/// `load` copies a box to shared memory, which is zero before, and from there, as it lies, to `out`. `store` does the reverse, `add` adds.
const PROGRAM: &CStr = c"
.version 8.0
.target sm_90
.address_size 64

.visible .entry load(.param .align 64 .b8 map[128], .param .u64 out, .param .u32 bytes, .param .u32 rank,
    .param .u32 x, .param .u32 y, .param .u32 z, .param .u32 u, .param .u32 v)
{
    .reg .pred %p<8>;
    .reg .b32 %r<16>;
    .reg .b64 %d<8>;
    .shared .align 1024 .b8 box[16384];
    .shared .align 8 .b64 barrier;
    mov.b64 %d0, map;
    cvta.param.u64 %d0, %d0;
    ld.param.u64 %d1, [out];
    ld.param.u32 %r0, [bytes];
    ld.param.u32 %r1, [rank];
    ld.param.u32 %r2, [x];
    ld.param.u32 %r3, [y];
    ld.param.u32 %r4, [z];
    ld.param.u32 %r5, [u];
    ld.param.u32 %r6, [v];
    mov.u32 %r7, box;
    mov.u32 %r8, barrier;
    mov.u32 %r9, 0;
CLEAR:
    add.u32 %r10, %r7, %r9;
    st.shared.u32 [%r10], 0;
    add.u32 %r9, %r9, 4;
    setp.lt.u32 %p6, %r9, %r0;
    @%p6 bra CLEAR;
    mbarrier.init.shared::cta.b64 [%r8], 1;
    fence.mbarrier_init.release.cluster;
    fence.proxy.async;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r8], %r0;
    setp.eq.u32 %p1, %r1, 1;
    setp.eq.u32 %p2, %r1, 2;
    setp.eq.u32 %p3, %r1, 3;
    setp.eq.u32 %p4, %r1, 4;
    setp.eq.u32 %p5, %r1, 5;
    @%p1 cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%r7], [%d0, {%r2}], [%r8];
    @%p2 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r7], [%d0, {%r2, %r3}], [%r8];
    @%p3 cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%r7], [%d0, {%r2, %r3, %r4}], [%r8];
    @%p4 cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%r7], [%d0, {%r2, %r3, %r4, %r5}], [%r8];
    @%p5 cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%r7], [%d0, {%r2, %r3, %r4, %r5, %r6}], [%r8];
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p0, [%r8], 0;
    @!%p0 bra WAIT;
    mov.u32 %r9, 0;
COPY:
    add.u32 %r10, %r7, %r9;
    ld.shared.u32 %r11, [%r10];
    cvt.u64.u32 %d2, %r9;
    add.u64 %d2, %d1, %d2;
    st.global.u32 [%d2], %r11;
    add.u32 %r9, %r9, 4;
    setp.lt.u32 %p6, %r9, %r0;
    @%p6 bra COPY;
    ret;
}

.visible .entry store(.param .align 64 .b8 map[128], .param .u64 from, .param .u32 bytes, .param .u32 adds,
    .param .u32 x, .param .u32 y)
{
    .reg .pred %p<8>;
    .reg .b32 %r<16>;
    .reg .b64 %d<8>;
    .shared .align 1024 .b8 box[16384];
    mov.b64 %d0, map;
    cvta.param.u64 %d0, %d0;
    ld.param.u64 %d1, [from];
    ld.param.u32 %r0, [bytes];
    ld.param.u32 %r1, [adds];
    ld.param.u32 %r2, [x];
    ld.param.u32 %r3, [y];
    mov.u32 %r7, box;
    mov.u32 %r9, 0;
COPY:
    add.u32 %r10, %r7, %r9;
    cvt.u64.u32 %d2, %r9;
    add.u64 %d2, %d1, %d2;
    ld.global.u32 %r11, [%d2];
    st.shared.u32 [%r10], %r11;
    add.u32 %r9, %r9, 4;
    setp.lt.u32 %p6, %r9, %r0;
    @%p6 bra COPY;
    fence.proxy.async;
    setp.ne.u32 %p1, %r1, 0;
    @!%p1 cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%d0, {%r2, %r3}], [%r7];
    @%p1 cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%d0, {%r2, %r3}], [%r7];
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
    ret;
}
";

/// A tensor of words, and the box of it that a copy moves.
#[derive(Clone)]
pub(crate) struct Tensor {
    pub(crate) element: Element,
    pub(crate) address: u64,
    pub(crate) sizes: Vec<u64>,
    /// In bytes.
    pub(crate) strides: Vec<u64>,
    pub(crate) extent: Vec<u32>,
    pub(crate) steps: Vec<u32>,
    pub(crate) swizzle: Swizzle,
    pub(crate) fill: Fill,
}

impl Tensor {
    /// Words side by side.
    pub(crate) fn dense(address: CUdeviceptr, sizes: &[u64], extent: &[u32]) -> Self {
        let mut stride = 4;
        let strides = sizes[..sizes.len() - 1].iter().map(|size| {
            stride *= size;
            stride
        });
        Self {
            element: Element::CU_TENSOR_MAP_DATA_TYPE_UINT32,
            address: address.0,
            strides: strides.collect(),
            sizes: sizes.to_vec(),
            extent: extent.to_vec(),
            steps: vec![1; sizes.len()],
            swizzle: Swizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
            fill: Fill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        }
    }

    fn encode(&self, driver: &Driver, map: *mut CUtensorMap) -> Result<CUresult> {
        let rank = u32::try_from(self.sizes.len())?;
        let address: *mut c_void = without_provenance_mut(usize::try_from(self.address)?);
        let (sizes, strides) = (self.sizes.as_ptr(), self.strides.as_ptr());
        let (extent, steps) = (self.extent.as_ptr(), self.steps.as_ptr());
        let (interleave, promotion) =
            (Interleave::CU_TENSOR_MAP_INTERLEAVE_NONE, Promotion::CU_TENSOR_MAP_L2_PROMOTION_NONE);
        let (swizzle, fill) = (self.swizzle, self.fill);
        Ok(cu!(
            driver,
            cuTensorMapEncodeTiled(
                map,
                self.element,
                rank,
                address,
                sizes,
                strides,
                extent,
                steps,
                interleave,
                swizzle,
                promotion,
                fill
            )
        ))
    }

    pub(crate) fn map(&self, driver: &Driver) -> Result<Map> {
        // SAFETY: plain bytes.
        let mut map = unsafe { zeroed::<Map>() };
        let code = self.encode(driver, &raw mut map.0)?;
        ensure!(code == CUresult::CUDA_SUCCESS, "cuTensorMapEncodeTiled returned {}", describe(code));
        Ok(map)
    }

    pub(crate) fn box_words(&self) -> usize {
        let elements: usize =
            self.extent.iter().zip(&self.steps).map(|(extent, step)| extent.div_ceil(*step) as usize).product();
        match self.element {
            Element::CU_TENSOR_MAP_DATA_TYPE_FLOAT16 | Element::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 => elements / 2,
            Element::CU_TENSOR_MAP_DATA_TYPE_FLOAT64 => elements * 2,
            _ => elements,
        }
    }
}

#[repr(transparent)]
pub(crate) struct Map(CUtensorMap);
impl crate::gpu::Argument for Map {}

/// What lies in shared memory after the box at these coordinates was loaded.
pub(crate) fn loaded(gpu: &Gpu, tensor: &Tensor, at: &[i32]) -> Result<Vec<u32>> {
    let map = tensor.map(gpu)?;
    let load = gpu.function_of(gpu.module(PROGRAM)?, c"load")?;
    let words = tensor.box_words();
    let (out, bytes, rank) = (gpu.zeros(words)?, u32::try_from(4 * words)?, u32::try_from(at.len())?);
    let mut place = [0_u32; 5];
    place.iter_mut().zip(at).for_each(|(place, at)| *place = at.cast_unsigned());
    let [x, y, z, u, v] = &place;
    gpu.launch_shaped(load, (1, 1, 1), (1, 1, 1), 0, NULL_STREAM, &[&map, &out, &bytes, &rank, x, y, z, u, v])?;
    gpu.read(out, words)
}

/// The numbers from 1 on.
pub(crate) fn count(gpu: &Gpu, words: u32) -> Result<CUdeviceptr> {
    gpu.upload(&(1..=words).collect::<Vec<_>>())
}

fn boxes_of_every_rank(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let sizes = [8_u64, 3, 4, 2, 3];
    let data = count(&gpu, 8 * 3 * 4 * 2 * 3)?;
    for rank in 1..=5 {
        let extent = [4_u32, 2, 3, 2, 2];
        let at = [4_i32, 1, 1, 0, 1];
        let tensor = Tensor::dense(data, &sizes[..rank], &extent[..rank]);
        let seen = loaded(&gpu, &tensor, &at[..rank])?;
        let expected: Vec<u32> = (0..tensor.box_words())
            .map(|word| {
                let (mut left, mut stride, mut place) = (word, 1, 0);
                for axis in 0..rank {
                    place += (left % extent[axis] as usize + at[axis].unsigned_abs() as usize) * stride;
                    left /= extent[axis] as usize;
                    stride *= usize::try_from(sizes[axis]).unwrap_or(0);
                }
                u32::try_from(place).unwrap_or(0) + 1
            })
            .collect();
        ensure!(seen == expected, "rank {rank}: {seen:?} instead of {expected:?}");
    }
    Ok(())
}

/// 16-byte units change places within their row of 32, 64 or 128 bytes, by bits 7 to 9 of their address.
fn boxes_are_swizzled(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let data = count(&gpu, 32 * 32)?;
    let plain = loaded(&gpu, &Tensor::dense(data, &[32, 32], &[32, 32]), &[0, 0])?;
    ensure!(plain == (1..=1024).collect::<Vec<_>>(), "other words without a swizzle");
    for (swizzle, width, mask) in [
        (Swizzle::CU_TENSOR_MAP_SWIZZLE_32B, 8, 1),
        (Swizzle::CU_TENSOR_MAP_SWIZZLE_64B, 16, 3),
        (Swizzle::CU_TENSOR_MAP_SWIZZLE_128B, 32, 7),
    ] {
        let mut tensor = Tensor::dense(data, &[32, 32], &[width, 32]);
        tensor.swizzle = swizzle;
        let seen = loaded(&gpu, &tensor, &[0, 0])?;
        for (word, value) in (0_u32..).zip(&seen) {
            let byte = 4 * word;
            let from = (byte ^ (byte >> 7 & mask) << 4) / 4;
            let expected = from / width * 32 + from % width + 1;
            ensure!(*value == expected, "{swizzle:?}: word {word} is {value} instead of {expected}");
        }
    }
    Ok(())
}

fn outside_is_zero(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    // 8 of 12 words in each of 3 rows.
    let data = count(&gpu, 36)?;
    let mut tensor = Tensor::dense(data, &[8, 3], &[8, 2]);
    tensor.strides = vec![48];
    let seen = loaded(&gpu, &tensor, &[-4, -1])?;
    ensure!(seen == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4], "{seen:?} at the start");
    let seen = loaded(&gpu, &tensor, &[4, 2])?;
    ensure!(seen == [29, 30, 31, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], "{seen:?} at the end");
    let seen = loaded(&gpu, &tensor, &[1000, -1000])?;
    ensure!(seen == [0; 16], "{seen:?} far away");
    tensor.sizes = vec![5, 3];
    let seen = loaded(&gpu, &tensor, &[4, 0])?;
    note!("behind a row of 5 words lie {:?}", &seen[1..4]);
    Ok(())
}

fn outside_may_be_nan(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let data = count(&gpu, 24)?;
    let mut tensor = Tensor::dense(data, &[8, 3], &[8, 1]);
    tensor.fill = Fill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA;
    tensor.element = Element::CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    // Of two halves: the one that `fma.oob` looks for.
    const OUTSIDE: u32 = 0x7ff7_7ff7;
    let filled = [5, 6, 7, 8, OUTSIDE, OUTSIDE, OUTSIDE, OUTSIDE];
    let seen = loaded(&gpu, &tensor, &[4, 0])?;
    ensure!(seen == filled, "f32: {seen:x?}");
    // Twice as many halves in the same bytes.
    tensor.sizes = vec![16, 3];
    tensor.extent = vec![16, 1];
    for element in [Element::CU_TENSOR_MAP_DATA_TYPE_FLOAT16, Element::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16] {
        tensor.element = element;
        let seen = loaded(&gpu, &tensor, &[8, 0])?;
        ensure!(seen == filled, "{element:?}: {seen:x?}");
    }
    Ok(())
}

/// As `f32`, whose last bits `tf32` does not have.
fn nan_outside_of_other_types(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let words = [1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0].map(f32::to_bits);
    let mut tensor = Tensor::dense(gpu.upload(&words.repeat(3))?, &[8, 3], &[8, 1]);
    tensor.fill = Fill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA;
    for (element, width) in [
        (Element::CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ, 8),
        (Element::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32, 8),
        (Element::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ, 8),
        (Element::CU_TENSOR_MAP_DATA_TYPE_FLOAT64, 4),
    ] {
        (tensor.element, tensor.sizes, tensor.extent) = (element, vec![width.into(), 3], vec![width, 1]);
        let seen = loaded(&gpu, &tensor, &[i32::try_from(width / 2)?, 0])?;
        note!("outside of {element:?} lies {:#010x} {:#010x}", seen[4], seen[5]);
        ensure!(seen[..4] == words[4..], "{element:?}: {seen:x?}");
    }
    Ok(())
}

/// Subnormal numbers, numbers between two of `tf32`, the largest, infinities and NaNs.
const WORDS: [u32; 24] = [
    0x0000_0001,
    0x0000_0fff,
    0x0000_1000,
    0x0000_3000,
    0x007f_efff,
    0x007f_ffff,
    0x8000_0001,
    0x8000_3000, //
    0x3f80_0fff,
    0x3f80_1000,
    0x3f80_1001,
    0x3f80_1fff,
    0x3f80_2fff,
    0x3f80_3000,
    0xbf80_1000,
    0xbf80_3000, //
    0x7f7f_efff,
    0x7f7f_f000,
    0x7f7f_ffff,
    0x7f80_0000,
    0x7f80_0001,
    0x7fc0_1234,
    0xff80_1fff,
    0xffff_ffff,
];

/// Of words that are loaded and stored as floats.
fn what_is_left_of_words(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let from = gpu.upload(&WORDS)?;
    for element in [
        Element::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        Element::CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ,
        Element::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32,
        Element::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ,
    ] {
        let tensor = Tensor { element, ..Tensor::dense(from, &[8, 3], &[8, 3]) };
        let seen = loaded(&gpu, &tensor, &[0, 0])?;
        note!("{element:?} loaded: {}", words(&seen));
        let to = gpu.zeros(WORDS.len())?;
        let map = Tensor { address: to.0, ..tensor }.map(&gpu)?;
        let store = gpu.function_of(gpu.module(PROGRAM)?, c"store")?;
        let (bytes, none) = (u32::try_from(size_of_val(&WORDS))?, 0_u32);
        gpu.launch_shaped(store, (1, 1, 1), (1, 1, 1), 0, NULL_STREAM, &[&map, &from, &bytes, &none, &none, &none])?;
        note!("{element:?} stored: {}", words(&gpu.read(to, WORDS.len())?));
    }
    Ok(())
}

pub(crate) fn words(words: &[u32]) -> String {
    words.iter().map(|word| format!("{word:08x}")).collect::<Vec<_>>().join(" ")
}

fn steps_leave_elements_out(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let data = count(&gpu, 4 * 8)?;
    let mut tensor = Tensor::dense(data, &[4, 8], &[4, 5]);
    tensor.steps = vec![1, 2];
    let seen = loaded(&gpu, &tensor, &[0, 1])?;
    ensure!(seen == [5, 6, 7, 8, 13, 14, 15, 16, 21, 22, 23, 24], "{seen:?}");
    Ok(())
}

/// Stores a box of 4 by 2 words at these coordinates of a tensor of 6 by 3; rows have 8 words.
fn stored(driver: &Driver, adds: u32, at: [i32; 2]) -> Result<Vec<u32>> {
    let gpu = Gpu::new(driver)?;
    let to = store(&gpu, adds, at)?;
    gpu.read(to, 24)
}

/// The tensor that the box is on its way to.
fn store(gpu: &Gpu, adds: u32, [x, y]: [i32; 2]) -> Result<CUdeviceptr> {
    let to = count(gpu, 24)?;
    let from = gpu.upload(&[100, 200, 300, 400, 500, 600, 700, 800])?;
    let mut tensor = Tensor::dense(to, &[6, 3], &[4, 2]);
    tensor.strides = vec![32];
    let map = tensor.map(gpu)?;
    let store = gpu.function_of(gpu.module(PROGRAM)?, c"store")?;
    let (x, y) = (x.cast_unsigned(), y.cast_unsigned());
    gpu.launch_shaped(store, (1, 1, 1), (1, 1, 1), 0, NULL_STREAM, &[&map, &from, &32_u32, &adds, &x, &y])?;
    Ok(to)
}

fn boxes_are_stored(driver: &Driver) -> Outcome {
    let seen = stored(driver, 0, [0, 2])?;
    let mut expected: Vec<u32> = (1..=24).collect();
    expected[16..20].copy_from_slice(&[100, 200, 300, 400]);
    ensure!(seen == expected, "{seen:?}");
    let seen = stored(driver, 0, [4, 2])?;
    note!("at the end of a row of 6 words are stored {:?}", &seen[20..]);
    Ok(())
}

/// Rows end within 16 bytes; the rest of these is added to as well.
fn boxes_are_added(driver: &Driver) -> Outcome {
    let seen = stored(driver, 1, [4, 1])?;
    let mut expected: Vec<u32> = (1..=24).collect();
    for (word, more) in (12..16).chain(20..24).zip([100, 200, 300, 400, 500, 600, 700, 800]) {
        expected[word] += more;
    }
    ensure!(seen == expected, "{seen:?}");
    Ok(())
}

/// Boxes begin at whole units of 16 bytes.
fn loads_within_16_bytes_are_illegal(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let tensor = Tensor::dense(count(&gpu, 24)?, &[8, 3], &[4, 1]);
    let map = tensor.map(&gpu)?;
    let load = gpu.function_of(gpu.module(PROGRAM)?, c"load")?;
    let (out, [bytes, rank, x, none]) = (gpu.zeros(4)?, [16_u32, 2, 3, 0]);
    let arguments: [&dyn crate::gpu::Argument; 9] = [&map, &out, &bytes, &rank, &x, &none, &none, &none, &none];
    gpu.launch_shaped(load, (1, 1, 1), (1, 1, 1), 0, NULL_STREAM, &arguments)?;
    expect!(driver, cuCtxSynchronize() => CUDA_ERROR_ILLEGAL_INSTRUCTION);
    Ok(())
}

/// What is loaded may begin before the tensor.
fn stores_before_the_tensor_are_illegal(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    store(&gpu, 0, [-4, 0])?;
    expect!(driver, cuCtxSynchronize() => CUDA_ERROR_ILLEGAL_INSTRUCTION);
    Ok(())
}

fn address_is_replaced(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (first, second) = (count(&gpu, 8)?, gpu.upload(&[70, 80, 90, 100])?);
    let tensor = Tensor::dense(first, &[4], &[4]);
    let mut map = tensor.map(driver)?;
    let other = without_provenance_mut(usize::try_from(second.0)?);
    ok!(driver, cuTensorMapReplaceAddress(&raw mut map.0, other));
    let load = gpu.function_of(gpu.module(PROGRAM)?, c"load")?;
    let (out, none) = (gpu.zeros(4)?, 0_u32);
    let arguments: [&dyn crate::gpu::Argument; 9] = [&map, &out, &16_u32, &1_u32, &none, &none, &none, &none, &none];
    gpu.launch_shaped(load, (1, 1, 1), (1, 1, 1), 0, NULL_STREAM, &arguments)?;
    ensure!(gpu.read(out, 4)? == [70, 80, 90, 100], "the old address was read");
    Ok(())
}

fn impossible_maps_are_refused(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let good = Tensor::dense(gpu.zeros(64)?, &[8, 8], &[8, 8]);
    let changed = |change: fn(&mut Tensor)| {
        let mut tensor = good.clone();
        change(&mut tensor);
        tensor
    };
    for (what, tensor) in [
        ("an address that is not aligned", changed(|it| it.address += 8)),
        ("a stride that is not aligned", changed(|it| it.strides[0] += 4)),
        ("an empty tensor", changed(|it| it.sizes[1] = 0)),
        ("an empty box", changed(|it| it.extent[1] = 0)),
        ("a box of 257", changed(|it| it.extent[1] = 257)),
        ("rows that are no multiple of 16 bytes", changed(|it| it.extent[0] = 5)),
        (
            "rows longer than the swizzle",
            changed(|it| {
                it.sizes[0] = 64;
                it.strides[0] = 256;
                it.extent[0] = 16;
                it.swizzle = Swizzle::CU_TENSOR_MAP_SWIZZLE_32B;
            }),
        ),
        ("a step of 9", changed(|it| it.steps[1] = 9)),
        ("an unknown type", changed(|it| it.element = Element(99))),
        ("an unknown swizzle", changed(|it| it.swizzle = Swizzle(99))),
        (
            "NaN in a tensor of integers",
            changed(|it| {
                it.fill = Fill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA;
            }),
        ),
    ] {
        // SAFETY: plain bytes.
        let mut map = unsafe { zeroed::<Map>() };
        let code = tensor.encode(driver, &raw mut map.0)?;
        ensure!(code == CUresult::CUDA_ERROR_INVALID_VALUE, "{what} gives {}", describe(code));
    }
    let code = good.encode(driver, core::ptr::null_mut())?;
    ensure!(code == CUresult::CUDA_ERROR_INVALID_VALUE, "no place for the map gives {}", describe(code));
    Ok(())
}
