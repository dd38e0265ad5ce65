//! Tensor maps that kernels change, field by field: what a copy makes of one that was changed is what it makes of one that
//! the host has encoded so.

use crate::Outcome;
use crate::call::describe;
use crate::gpu::{Gpu, NULL_STREAM};
use crate::tensor_map::{Tensor, count, loaded, words};
use anyhow::{Context, Result, ensure};
use detshare_cuda::Driver;
use detshare_cuda::types::{
    CUdeviceptr, CUresult, CUtensorMapDataType as Element, CUtensorMapFloatOOBfill as Fill,
    CUtensorMapSwizzle as Swizzle,
};
use std::ffi::CString;

tests! { tensor_map_replace:
    address,
    rank,
    box_dimension,
    global_dimension,
    global_stride,
    element_stride,
    element_type,
    tensor_floats_stay_rounded,
    element_type_of_words,
    element_type_of_floats,
    element_type_of_tensor_floats,
    swizzle,
    fill,
    interleave,
}

/// A warp copies a map to shared memory, changes it there, publishes it and loads a box of two dimensions by it. What a swizzled
/// copy leaves out is zero.
fn program(change: &str) -> String {
    format!(
        "
.version 8.3
.target sm_90a
.address_size 64
.visible .entry changed(.param .align 64 .b8 map[128], .param .u64 value, .param .u64 published, .param .u64 out,
    .param .u32 bytes, .param .u32 x, .param .u32 y)
{{
    .reg .pred %p<4>;
    .reg .b32 %r<16>;
    .reg .b64 %d<8>;
    .shared .align 1024 .b8 box[4096];
    .shared .align 128 .b8 own[128];
    .shared .align 8 .b64 barrier;
    mov.b64 %d0, map;
    cvta.param.u64 %d0, %d0;
    ld.param.u64 %d1, [published];
    ld.param.u64 %d2, [out];
    ld.param.u64 %d3, [value];
    ld.param.u32 %r0, [bytes];
    ld.param.u32 %r1, [x];
    ld.param.u32 %r2, [y];
    mov.u32 %r3, box;
    mov.u32 %r4, own;
    mov.u32 %r5, barrier;
    mov.u32 %r6, %tid.x;
    mul.lo.u32 %r7, %r6, 4;
    cvt.u64.u32 %d4, %r7;
    add.u64 %d4, %d0, %d4;
    ld.u32 %r8, [%d4];
    add.u32 %r7, %r4, %r7;
    st.shared.u32 [%r7], %r8;
    bar.warp.sync -1;
    setp.ne.u32 %p0, %r6, 0;
    cvt.u32.u64 %r9, %d3;
    @!%p0 {change};
    bar.warp.sync -1;
    tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%d1], [%r4], 128;
    @%p0 ret;
    fence.proxy.tensormap::generic.acquire.gpu [%d1], 128;
    mov.u32 %r10, 0;
CLEAR:
    add.u32 %r11, %r3, %r10;
    st.shared.u32 [%r11], 0;
    add.u32 %r10, %r10, 4;
    setp.lt.u32 %p2, %r10, %r0;
    @%p2 bra CLEAR;
    mbarrier.init.shared::cta.b64 [%r5], 1;
    fence.mbarrier_init.release.cluster;
    fence.proxy.async;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], %r0;
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r3], [%d1, {{%r1, %r2}}], [%r5];
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r5], 0;
    @!%p1 bra WAIT;
    mov.u32 %r10, 0;
COPY:
    add.u32 %r11, %r3, %r10;
    ld.shared.u32 %r12, [%r11];
    cvt.u64.u32 %d5, %r10;
    add.u64 %d5, %d2, %d5;
    st.global.u32 [%d5], %r12;
    add.u32 %r10, %r10, 4;
    setp.lt.u32 %p2, %r10, %r0;
    @%p2 bra COPY;
    ret;
}}
"
    )
}

/// A tensor's map before the kernel changes it, and after that.
struct Change<'a> {
    before: &'a Tensor,
    after: &'a Tensor,
    at: [i32; 2],
}

/// Changes a field, written as `tensormap.replace` has it; `value` is what its `%d3` and `%r9` are.
fn changes(gpu: &Gpu, field: &str, value: u64, change: &Change) -> Outcome {
    let words = change.after.box_words();
    let out = launched(gpu, field, value, change.before, words, change.at)?;
    let seen = gpu.read(out, words)?;
    let expected = loaded(gpu, change.after, &change.at)?;
    ensure!(seen == expected, "{field}: {seen:x?} instead of {expected:x?}");
    Ok(())
}

/// Where so many words of the box will be that the changed map leads to.
fn launched(gpu: &Gpu, field: &str, value: u64, before: &Tensor, words: usize, at: [i32; 2]) -> Result<CUdeviceptr> {
    let (name, operands) = field.split_once(' ').unwrap_or((field, ""));
    let width = if operands.contains("%d3") { "b64" } else { "b32" };
    let text = program(&format!("tensormap.replace.tile.{name}.shared::cta.b1024.{width} [%r4], {operands}"));
    let kernel = gpu.function_of(gpu.module(&CString::new(text)?)?, c"changed")?;
    let (published, out) = (gpu.zeros(32)?, gpu.zeros(words)?);
    let map = before.map(gpu)?;
    let [x, y] = at.map(i32::cast_unsigned);
    let bytes = u32::try_from(4 * words)?;
    let arguments: [&dyn crate::gpu::Argument; 7] = [&map, &value, &published, &out, &bytes, &x, &y];
    gpu.launch_shaped(kernel, (1, 1, 1), (32, 1, 1), 0, NULL_STREAM, &arguments)?;
    Ok(out)
}

/// 8 rows of 8 words, of which boxes of 8 by 4 are copied.
fn usual(gpu: &Gpu) -> Result<(Tensor, CUdeviceptr)> {
    let data = count(gpu, 256)?;
    Ok((Tensor::dense(data, &[8, 8], &[8, 4]), data))
}

/// A change that the map of the usual tensor can tell.
fn changes_usual(driver: &Driver, field: &str, value: u64, at: [i32; 2], change: impl Fn(&mut Tensor)) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (before, _) = usual(&gpu)?;
    let mut after = before.clone();
    change(&mut after);
    if after.box_words() == before.box_words() && !field.starts_with("interleave") {
        ensure!(loaded(&gpu, &before, &at)? != loaded(&gpu, &after, &at)?, "{field}: the change does not show");
    }
    changes(&gpu, field, value, &Change { before: &before, after: &after, at })
}

fn address(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (before, data) = usual(&gpu)?;
    let mut after = before.clone();
    after.address = data.0 + 512;
    changes(&gpu, "global_address %d3", after.address, &Change { before: &before, after: &after, at: [0, 1] })
}

/// The number is one less than there are dimensions.
fn rank(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let data = count(&gpu, 256)?;
    let before = Tensor::dense(data, &[8, 8, 4], &[8, 4, 1]);
    let after = Tensor::dense(data, &[8, 8], &[8, 4]);
    changes(&gpu, "rank %r9", 1, &Change { before: &before, after: &after, at: [0, 3] })
}

fn box_dimension(driver: &Driver) -> Outcome {
    changes_usual(driver, "box_dim 1, %r9", 3, [0, 2], |it| it.extent[1] = 3)
}

fn global_dimension(driver: &Driver) -> Outcome {
    changes_usual(driver, "global_dim 1, %r9", 3, [0, 1], |it| it.sizes[1] = 3)
}

/// In bytes, as compilers since CUDA 12.5 have it.
fn global_stride(driver: &Driver) -> Outcome {
    changes_usual(driver, "global_stride 0, %d3", 64, [0, 2], |it| it.strides[0] = 64)
}

fn element_stride(driver: &Driver) -> Outcome {
    changes_usual(driver, "element_stride 1, %r9", 2, [0, 1], |it| it.steps[1] = 2)
}

/// Types with their numbers in PTX, some of which have others for the host.
fn element_type(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (usual, _) = usual(&gpu)?;
    let (halves, words) = (Element::CU_TENSOR_MAP_DATA_TYPE_UINT16, Element::CU_TENSOR_MAP_DATA_TYPE_UINT32);
    for (number, old, new) in [
        (6, halves, Element::CU_TENSOR_MAP_DATA_TYPE_FLOAT16),
        (10, halves, Element::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16),
        (7, words, Element::CU_TENSOR_MAP_DATA_TYPE_FLOAT32),
        (8, words, Element::CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ),
        (3, words, Element::CU_TENSOR_MAP_DATA_TYPE_INT32),
        (11, words, Element::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32),
        (12, words, Element::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ),
    ] {
        let of = |element| Tensor { element, ..usual.clone() };
        let field = format!("elemtype {number}");
        changes(&gpu, &field, 0, &Change { before: &of(old), after: &of(new), at: [0, 6] }).context(field)?;
    }
    Ok(())
}

/// A map of `tf32` rounds what is loaded by it, though its type has become another one.
fn tensor_floats_stay_rounded(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let before = eight_floats(&gpu, Element::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32)?;
    changes(&gpu, "elemtype 7", 0, &Change { before: &before, after: &before, at: [0, 0] })
}

fn eight_floats(gpu: &Gpu, element: Element) -> Result<Tensor> {
    const FLOATS: [u32; 8] =
        [0x31, 0x3f80_0fff, 0x3f80_1000, 0x3f80_3000, 0xbf80_1001, 0x7f7f_ffff, 0x7f80_0001, 0x8000_3000];
    Ok(Tensor { element, ..Tensor::dense(gpu.upload(&FLOATS)?, &[8, 1], &[8, 1]) })
}

/// What a box of eight floats is by a map of that type which a kernel gave another one, until a copy is illegal.
fn as_other_types(driver: &Driver, old: Element, numbers: &[u32]) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let before = eight_floats(&gpu, old)?;
    for number in numbers {
        let field = format!("elemtype {number}");
        let out = launched(&gpu, &field, 0, &before, before.box_words(), [0, 0])?;
        let code = cu!(driver, cuCtxSynchronize());
        if code != CUresult::CUDA_SUCCESS {
            note!("{old:?} as {number}: {}", describe(code));
            break;
        }
        note!("{old:?} as {number}: {}", words(&gpu.read(out, before.box_words())?));
    }
    Ok(())
}

fn element_type_of_words(driver: &Driver) -> Outcome {
    as_other_types(driver, Element::CU_TENSOR_MAP_DATA_TYPE_UINT32, &[2, 3, 7, 8, 11, 12])
}

fn element_type_of_floats(driver: &Driver) -> Outcome {
    as_other_types(driver, Element::CU_TENSOR_MAP_DATA_TYPE_FLOAT32, &[2, 3, 7, 8, 11, 12])
}

fn element_type_of_tensor_floats(driver: &Driver) -> Outcome {
    as_other_types(driver, Element::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32, &[7, 8, 11, 12, 2])
}

fn swizzle(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let data = count(&gpu, 32 * 8)?;
    // Rows in shared memory change places from the second 128 bytes on.
    let before = Tensor::dense(data, &[8, 32], &[8, 16]);
    for (number, swizzle) in [
        (1, Swizzle::CU_TENSOR_MAP_SWIZZLE_32B),
        (2, Swizzle::CU_TENSOR_MAP_SWIZZLE_64B),
        (3, Swizzle::CU_TENSOR_MAP_SWIZZLE_128B),
        (0, Swizzle::CU_TENSOR_MAP_SWIZZLE_NONE),
    ] {
        let mut after = before.clone();
        after.swizzle = swizzle;
        changes(&gpu, &format!("swizzle_mode {number}"), 0, &Change { before: &before, after: &after, at: [0, 8] })?;
    }
    Ok(())
}

fn fill(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (mut zero, _) = usual(&gpu)?;
    zero.element = Element::CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    let mut nan = zero.clone();
    nan.fill = Fill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA;
    let at = [0, 6];
    ensure!(loaded(&gpu, &zero, &at)? != loaded(&gpu, &nan, &at)?, "nothing lies outside of the tensor");
    changes(&gpu, "fill_mode 1", 0, &Change { before: &zero, after: &nan, at })?;
    changes(&gpu, "fill_mode 0", 0, &Change { before: &nan, after: &zero, at })
}

/// None, as before.
fn interleave(driver: &Driver) -> Outcome {
    changes_usual(driver, "interleave_layout 0", 0, [0, 2], |_| {})
}
