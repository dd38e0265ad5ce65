//! Copies by tensor maps of every kind: to several blocks, with cache policies, stored and combined in every number of dimensions.

use crate::Outcome;
use crate::call::describe;
use crate::gpu::{Argument, Gpu, NULL_STREAM};
use crate::processes::in_two_processes;
use crate::tensor_map::{Map, Tensor, count, words};
use anyhow::{Result, ensure};
use detshare_cuda::Driver;
use detshare_cuda::types::{CUdeviceptr, CUresult, CUtensorMapDataType as Element, CUtensorMapSwizzle as Swizzle};
use std::ffi::CString;

tests! { tensor_copies:
    boxes_go_to_several_blocks,
    loads_may_have_a_cache_policy,
    prefetches_change_nothing,
    boxes_of_every_rank_are_stored,
    boxes_of_every_rank_are_added,
    stores_may_have_a_cache_policy,
    every_operation_on_32_bits,
    every_operation_on_64_bits,
    every_operation_on_halves,
    floats_are_added,
    operations_that_the_manual_does_not_name,
}

/// How many dimensions a tensor has at most.
const MOST_DIMENSIONS: usize = 5;
/// How many blocks a cluster has here, and which of them asks for the copy.
const BLOCKS: usize = 4;
const ASKS: usize = 2;

/// `COPY` in a cluster: the third block asks, those of the mask wait for it, and all write what they then have.
const LOAD: &str = "
.version 8.0
.target sm_90
.address_size 64
.visible .entry kernel(.param .align 64 .b8 map[128], .param .u64 out, .param .u32 bytes, .param .u32 mask,
    .param .u32 x, .param .u32 y, .param .u32 z, .param .u32 u, .param .u32 v)
.explicitcluster .reqnctapercluster 4, 1, 1
{
    .reg .pred %p<4>;
    .reg .b16 %mask;
    .reg .b32 %r<16>;
    .reg .b32 %c<5>;
    .reg .b64 %d<5>;
    .reg .b64 %policy;
    .shared .align 1024 .b8 box[4096];
    .shared .align 8 .b64 barrier;
    mov.b64 %d0, map;
    cvta.param.u64 %d0, %d0;
    ld.param.u64 %d1, [out];
    ld.param.u32 %r0, [bytes];
    ld.param.u32 %r1, [mask];
    ld.param.u32 %c0, [x];
    ld.param.u32 %c1, [y];
    ld.param.u32 %c2, [z];
    ld.param.u32 %c3, [u];
    ld.param.u32 %c4, [v];
    cvt.u16.u32 %mask, %r1;
    mov.u32 %r2, box;
    mov.u32 %r3, barrier;
    mov.u32 %r4, %cluster_ctarank;
    mul.lo.u32 %r5, %r4, %r0;
    cvt.u64.u32 %d2, %r5;
    add.u64 %d1, %d1, %d2;
    shr.u32 %r6, %r1, %r4;
    and.b32 %r6, %r6, 1;
    setp.ne.u32 %p0, %r6, 0;
    setp.eq.u32 %p1, %r4, 2;
    createpolicy.fractional.L2::evict_first.b64 %policy, 1.0;
    mov.u32 %r7, 0;
CLEAR:
    add.u32 %r8, %r2, %r7;
    st.shared.u32 [%r8], 0;
    add.u32 %r7, %r7, 4;
    setp.lt.u32 %p2, %r7, %r0;
    @%p2 bra CLEAR;
    mbarrier.init.shared::cta.b64 [%r3], 1;
    fence.mbarrier_init.release.cluster;
    fence.proxy.async;
    @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], %r0;
    barrier.cluster.arrive;
    barrier.cluster.wait;
    @%p1 COPY;
    @!%p0 bra THERE;
WAIT:
    mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [%r3], 0;
    @!%p2 bra WAIT;
THERE:
    barrier.cluster.arrive;
    barrier.cluster.wait;
    mov.u32 %r7, 0;
TELL:
    add.u32 %r8, %r2, %r7;
    ld.shared.u32 %r9, [%r8];
    cvt.u64.u32 %d3, %r7;
    add.u64 %d3, %d1, %d3;
    st.global.u32 [%d3], %r9;
    add.u32 %r7, %r7, 4;
    setp.lt.u32 %p2, %r7, %r0;
    @%p2 bra TELL;
    ret;
}
";

/// `COPY` from shared memory, where the words lie that are at `from`.
const STORE: &str = "
.version 8.0
.target sm_90
.address_size 64
.visible .entry kernel(.param .align 64 .b8 map[128], .param .u64 from, .param .u32 bytes,
    .param .u32 x, .param .u32 y, .param .u32 z, .param .u32 u, .param .u32 v)
{
    .reg .pred %p<2>;
    .reg .b32 %r<8>;
    .reg .b32 %c<5>;
    .reg .b64 %d<4>;
    .reg .b64 %policy;
    .shared .align 1024 .b8 box[4096];
    mov.b64 %d0, map;
    cvta.param.u64 %d0, %d0;
    ld.param.u64 %d1, [from];
    ld.param.u32 %r0, [bytes];
    ld.param.u32 %c0, [x];
    ld.param.u32 %c1, [y];
    ld.param.u32 %c2, [z];
    ld.param.u32 %c3, [u];
    ld.param.u32 %c4, [v];
    createpolicy.fractional.L2::evict_last.b64 %policy, 1.0;
    mov.u32 %r2, box;
    mov.u32 %r3, 0;
FILL:
    add.u32 %r4, %r2, %r3;
    cvt.u64.u32 %d2, %r3;
    add.u64 %d2, %d1, %d2;
    ld.global.u32 %r5, [%d2];
    st.shared.u32 [%r4], %r5;
    add.u32 %r3, %r3, 4;
    setp.lt.u32 %p0, %r3, %r0;
    @%p0 bra FILL;
    fence.proxy.async;
    COPY;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
    ret;
}
";

/// `[map, {x, y}]` for so many dimensions.
fn place(rank: usize) -> String {
    let coordinates = ["%c0", "%c1", "%c2", "%c3", "%c4"];
    format!("[%d0, {{{}}}]", coordinates[..rank].join(", "))
}

/// Launches the program with that instruction: as many blocks as its cluster has.
fn launch(gpu: &Gpu, program: &str, copy: &str, blocks: u32, before: &[&dyn Argument], at: &[i32]) -> Outcome {
    let text = CString::new(program.replace("COPY", copy))?;
    let kernel = gpu.function_of(gpu.module(&text)?, c"kernel")?;
    let mut coordinates = [0_u32; MOST_DIMENSIONS];
    coordinates.iter_mut().zip(at).for_each(|(to, at)| *to = at.cast_unsigned());
    let mut arguments = before.to_vec();
    arguments.extend(coordinates.iter().map(|it| -> &dyn Argument { it }));
    gpu.launch_shaped(kernel, (blocks, 1, 1), (1, 1, 1), 0, NULL_STREAM, &arguments)
}

/// What the blocks have, one after the other.
fn spread(gpu: &Gpu, tensor: &Tensor, at: &[i32], mask: u32, copy: &str) -> Result<Vec<Vec<u32>>> {
    let words = tensor.box_words();
    let (map, out, bytes) = (tensor.map(gpu)?, gpu.zeros(BLOCKS * words)?, u32::try_from(4 * words)?);
    launch(gpu, LOAD, copy, u32::try_from(BLOCKS)?, &[&map, &out, &bytes, &mask], at)?;
    Ok(gpu.read(out, BLOCKS * words)?.chunks(words).map(<[u32]>::to_vec).collect())
}

fn boxes_go_to_several_blocks(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let data = count(&gpu, 32 * 8 * 2)?;
    let plain = Tensor::dense(data, &[32, 8, 2], &[8, 3, 2]);
    let mut swizzled = Tensor::dense(data, &[32, 8, 2], &[32, 8, 1]);
    swizzled.swizzle = Swizzle::CU_TENSOR_MAP_SWIZZLE_128B;
    for (tensor, at) in [(plain, [4, 2, 0]), (swizzled, [0, 0, 1])] {
        let whole = crate::tensor_map::loaded(&gpu, &tensor, &at)?;
        for (mask, policy) in [(0b1111, false), (0b0110, true), (0b1001, false), (0b0100, false), (0b1010, true)] {
            let (modifier, operand) = if policy { (".L2::cache_hint", ", %policy") } else { ("", "") };
            let copy = format!(
                "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes\
                 .multicast::cluster{modifier} [%r2], {}, [%r3], %mask{operand}",
                place(3)
            );
            let seen = spread(&gpu, &tensor, &at, mask, &copy)?;
            for (block, seen) in seen.iter().enumerate() {
                let gets = mask >> block & 1 != 0;
                let expected = if gets { whole.clone() } else { vec![0; whole.len()] };
                ensure!(*seen == expected, "mask {mask:#06b}, block {block}: {seen:?} instead of {expected:?}");
            }
        }
    }
    Ok(())
}

fn loads_may_have_a_cache_policy(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let tensor = shape(count(&gpu, ELEMENTS)?);
    for rank in 1..=MOST_DIMENSIONS {
        let tensor = of_rank(&tensor, rank);
        let copy = format!(
            "cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint \
             [%r2], {}, [%r3], %policy",
            place(rank)
        );
        let seen = spread(&gpu, &tensor, &INSIDE[..rank], 1 << ASKS, &copy)?;
        let expected = crate::tensor_map::loaded(&gpu, &tensor, &INSIDE[..rank])?;
        ensure!(seen[ASKS] == expected, "rank {rank}: {:?} instead of {expected:?}", seen[ASKS]);
    }
    Ok(())
}

/// Nor does the part of a box that is outside of the tensor do any harm.
fn prefetches_change_nothing(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let data = count(&gpu, ELEMENTS)?;
    let tensor = shape(data);
    for rank in 1..=MOST_DIMENSIONS {
        let tensor = of_rank(&tensor, rank);
        let (map, from) = (tensor.map(&gpu)?, gpu.zeros(4)?);
        for (policy, at) in [("", INSIDE), (".L2::cache_hint", PARTLY_OUTSIDE), ("", [-4, -1, -1, -1, -1])] {
            let operand = if policy.is_empty() { "" } else { ", %policy" };
            let copy = format!("cp.async.bulk.prefetch.tensor.{rank}d.L2.global.tile{policy} {}{operand}", place(rank));
            launch(&gpu, STORE, &copy, 1, &[&map, &from, &16_u32], &at[..rank])?;
            gpu.synchronise()?;
        }
    }
    let seen = gpu.read(data, ELEMENTS as usize)?;
    ensure!(seen == (1..=ELEMENTS).collect::<Vec<_>>(), "the tensor was changed");
    Ok(())
}

/// The tensor of most of these tests: how many elements it has in each dimension, and how many of them a box has.
const SIZES: [usize; MOST_DIMENSIONS] = [8, 3, 4, 2, 3];
const EXTENT: [usize; MOST_DIMENSIONS] = [4, 2, 3, 2, 2];
const ELEMENTS: u32 = 8 * 3 * 4 * 2 * 3;
const INSIDE: [i32; MOST_DIMENSIONS] = [4, 1, 1, 0, 1];
/// Whole rows, as those of a box are whole units of 16 bytes.
const PARTLY_OUTSIDE: [i32; MOST_DIMENSIONS] = [4, 2, 2, 1, 2];

fn shape(data: CUdeviceptr) -> Tensor {
    Tensor::dense(data, &SIZES.map(|size| size as u64), &EXTENT.map(|size| u32::try_from(size).unwrap_or(0)))
}

/// The tensor's first dimensions.
fn of_rank(tensor: &Tensor, rank: usize) -> Tensor {
    let mut tensor = tensor.clone();
    tensor.sizes.truncate(rank);
    tensor.strides.truncate(rank - 1);
    tensor.extent.truncate(rank);
    tensor.steps.truncate(rank);
    tensor
}

/// Where the words of a box lie in the tensor, each by its number there; None for those outside.
fn places(rank: usize, at: &[i32]) -> Vec<Option<usize>> {
    let of_word = |word: usize| {
        let (mut left, mut stride, mut place) = (word, 1, Some(0));
        for axis in 0..rank {
            let coordinate = left % EXTENT[axis] + at[axis].unsigned_abs() as usize;
            place = place.filter(|_| coordinate < SIZES[axis]).map(|place| place + coordinate * stride);
            left /= EXTENT[axis];
            stride *= SIZES[axis];
        }
        place
    };
    (0..EXTENT[..rank].iter().product()).map(of_word).collect()
}

/// What the first of these numbers is, so that none of a box is one of the tensor's.
const FIRST_STORED: u32 = 10_000;

/// That a box comes to lie in the tensor, in every number of dimensions: `combine` says what becomes of a word and one of the box.
fn in_every_rank(driver: &Driver, copy: impl Fn(usize) -> String, combine: impl Fn(u32, u32) -> u32) -> Outcome {
    let gpu = Gpu::new(driver)?;
    for rank in 1..=MOST_DIMENSIONS {
        for at in [INSIDE, PARTLY_OUTSIDE] {
            let to = count(&gpu, ELEMENTS)?;
            let map = of_rank(&shape(to), rank).map(&gpu)?;
            let places = places(rank, &at);
            let numbers: Vec<u32> = (FIRST_STORED..).take(places.len()).collect();
            let (from, bytes) = (gpu.upload(&numbers)?, u32::try_from(4 * numbers.len())?);
            launch(&gpu, STORE, &copy(rank), 1, &[&map, &from, &bytes], &at[..rank])?;
            let mut expected: Vec<u32> = (1..=ELEMENTS).collect();
            for (place, number) in places.iter().zip(&numbers) {
                let Some(place) = *place else { continue };
                expected[place] = combine(expected[place], *number);
            }
            let seen = gpu.read(to, ELEMENTS as usize)?;
            ensure!(seen == expected, "rank {rank} at {at:?}: {seen:?} instead of {expected:?}");
        }
    }
    Ok(())
}

fn boxes_of_every_rank_are_stored(driver: &Driver) -> Outcome {
    let copy = |rank| format!("cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group {}, [%r2]", place(rank));
    in_every_rank(driver, copy, |_, new| new)
}

fn boxes_of_every_rank_are_added(driver: &Driver) -> Outcome {
    let copy =
        |rank| format!("cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.add.bulk_group {}, [%r2]", place(rank));
    in_every_rank(driver, copy, |old, new| old + new)
}

fn stores_may_have_a_cache_policy(driver: &Driver) -> Outcome {
    let copy = |rank| {
        let place = place(rank);
        format!("cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group.L2::cache_hint {place}, [%r2], %policy")
    };
    in_every_rank(driver, copy, |_, new| new)?;
    let combine = |rank| {
        let place = place(rank);
        format!(
            "cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.max.tile.bulk_group.L2::cache_hint \
             {place}, [%r2], %policy"
        )
    };
    in_every_rank(driver, combine, u32::max)
}

/// An element type, as these tests compute with it.
#[derive(Clone, Copy)]
struct Kind {
    element: Element,
    size: usize,
    code: fn(i128) -> u64,
    /// What is there, and what comes to it.
    pairs: &'static [(i128, i128)],
}

const UNSIGNED_PAIRS: &[(i128, i128)] =
    &[(0, 5), (5, 5), (7, 5), (0xffff_fffe, 3), (3, 0xffff_ffff), (6, 0), (0x8000_0000, 1)];
const SIGNED_PAIRS: &[(i128, i128)] =
    &[(0, 5), (-1, 1), (5, -7), (-0x8000_0000, -0x7fff_ffff), (0x7fff_ffff, 1), (-3, -3)];
const LONG_PAIRS: &[(i128, i128)] =
    &[(0xffff_ffff, 1), (1 << 63, 1 << 62), (0xffff_ffff_ffff_ffff, 2), (0x1_0000_0005, 0x2_0000_0003)];
const SIGNED_LONG_PAIRS: &[(i128, i128)] =
    &[(-1, 1), (-(1 << 63), 5), (0x1_0000_0000, 0xffff_ffff), (-0x1_0000_0000, -0x1_0000_0001)];
/// Small enough that sums are exact in every type.
const FLOAT_PAIRS: &[(i128, i128)] = &[(3, 5), (-2, 7), (8, -6), (-1, -4), (2, 2)];

const U32: Kind =
    Kind { element: Element::CU_TENSOR_MAP_DATA_TYPE_UINT32, size: 4, code: integer::<4>, pairs: UNSIGNED_PAIRS };
const S32: Kind =
    Kind { element: Element::CU_TENSOR_MAP_DATA_TYPE_INT32, size: 4, code: integer::<4>, pairs: SIGNED_PAIRS };
const U64: Kind =
    Kind { element: Element::CU_TENSOR_MAP_DATA_TYPE_UINT64, size: 8, code: integer::<8>, pairs: LONG_PAIRS };
const S64: Kind =
    Kind { element: Element::CU_TENSOR_MAP_DATA_TYPE_INT64, size: 8, code: integer::<8>, pairs: SIGNED_LONG_PAIRS };
const F16: Kind = Kind { element: Element::CU_TENSOR_MAP_DATA_TYPE_FLOAT16, size: 2, code: f16, pairs: FLOAT_PAIRS };
const BF16: Kind = Kind { element: Element::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, size: 2, code: bf16, pairs: FLOAT_PAIRS };
const F32: Kind = Kind { element: Element::CU_TENSOR_MAP_DATA_TYPE_FLOAT32, size: 4, code: f32, pairs: FLOAT_PAIRS };
const F64: Kind = Kind { element: Element::CU_TENSOR_MAP_DATA_TYPE_FLOAT64, size: 8, code: f64, pairs: FLOAT_PAIRS };

/// The lowest bytes of the number.
fn integer<const BYTES: u32>(number: i128) -> u64 {
    let low = number.cast_unsigned() & u128::from(u64::MAX >> (64 - 8 * BYTES));
    u64::try_from(low).unwrap_or(0)
}

#[expect(clippy::cast_precision_loss, reason = "the numbers are small")]
fn f64(number: i128) -> u64 {
    (number as f64).to_bits()
}

#[expect(clippy::cast_precision_loss, reason = "the numbers are small")]
fn f32(number: i128) -> u64 {
    (number as f32).to_bits().into()
}

/// The upper half of an `f32`, whose lower half is zero for small numbers.
fn bf16(number: i128) -> u64 {
    f32(number) >> 16
}

/// Of small numbers: the exponent counts from another one, the rest is the same.
fn f16(number: i128) -> u64 {
    let bits = f32(number);
    let (sign, rest) = (bits >> 31 << 15, bits & 0x7fff_ffff);
    if rest == 0 { sign } else { sign | ((rest >> 13) - (112 << 10)) }
}

/// Two rows of 16 bytes with numbers of that kind.
fn rows(kind: Kind, numbers: impl Iterator<Item = i128>) -> Vec<u32> {
    let bytes: Vec<u8> = numbers.flat_map(|it| (kind.code)(it).to_le_bytes().into_iter().take(kind.size)).collect();
    let (words, _) = bytes.as_chunks();
    words.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

/// So many bytes have these rows together.
const BYTES: usize = 32;

/// The pairs, again and again.
fn pairs(kind: Kind) -> impl Iterator<Item = (i128, i128)> {
    kind.pairs.iter().copied().cycle().take(BYTES / kind.size)
}

/// Has the operation combine them, and gives the code and what is there then.
fn combined(gpu: &Gpu, kind: Kind, operation: &str) -> Result<(CUresult, Vec<u32>)> {
    let to = gpu.upload(&rows(kind, pairs(kind).map(|(old, _)| old)))?;
    let from = gpu.upload(&rows(kind, pairs(kind).map(|(_, new)| new)))?;
    let width = BYTES / kind.size / 2;
    let mut tensor = Tensor::dense(to, &[width as u64, 2], &[u32::try_from(width)?, 2]);
    (tensor.element, tensor.strides) = (kind.element, vec![BYTES as u64 / 2]);
    let map: Map = tensor.map(gpu)?;
    let place = place(2);
    let copy = format!("cp.reduce.async.bulk.tensor.2d.global.shared::cta.{operation}.tile.bulk_group {place}, [%r2]");
    launch(gpu, STORE, &copy, 1, &[&map, &from, &u32::try_from(BYTES)?], &[0, 0])?;
    let code = cu!(gpu, cuCtxSynchronize());
    let seen = if code == CUresult::CUDA_SUCCESS { gpu.read(to, BYTES / 4)? } else { vec![] };
    Ok((code, seen))
}

/// An operation by its name, and what it makes of what is there and what comes.
type Operation = (&'static str, fn(i128, i128) -> i128);

const ADD: Operation = ("add", |old, new| old + new);
const MIN: Operation = ("min", |old, new| old.min(new));
const MAX: Operation = ("max", |old, new| old.max(new));
const INC: Operation = ("inc", |old, new| if old >= new { 0 } else { old + 1 });
const DEC: Operation = ("dec", |old, new| if old == 0 || old > new { new } else { old - 1 });
const AND: Operation = ("and", |old, new| old & new);
const OR: Operation = ("or", |old, new| old | new);
const XOR: Operation = ("xor", |old, new| old ^ new);

fn operations_of(driver: &Driver, kinds: &[(Kind, &[Operation])]) -> Outcome {
    let gpu = Gpu::new(driver)?;
    for (kind, operations) in kinds {
        for (name, combine) in *operations {
            let (code, seen) = combined(&gpu, *kind, name)?;
            ensure!(code == CUresult::CUDA_SUCCESS, "{:?} {name}: {}", kind.element, describe(code));
            let expected = rows(*kind, pairs(*kind).map(|(old, new)| combine(old, new)));
            ensure!(seen == expected, "{:?} {name}: {seen:x?} instead of {expected:x?}", kind.element);
        }
    }
    Ok(())
}

fn every_operation_on_32_bits(driver: &Driver) -> Outcome {
    operations_of(driver, &[(U32, &[ADD, MIN, MAX, INC, DEC, AND, OR, XOR]), (S32, &[ADD, MIN, MAX])])
}

fn every_operation_on_64_bits(driver: &Driver) -> Outcome {
    operations_of(driver, &[(U64, &[ADD, MIN, MAX, AND, OR, XOR]), (S64, &[MIN, MAX])])
}

fn every_operation_on_halves(driver: &Driver) -> Outcome {
    operations_of(driver, &[(F16, &[ADD, MIN, MAX]), (BF16, &[ADD, MIN, MAX])])
}

fn floats_are_added(driver: &Driver) -> Outcome {
    operations_of(driver, &[(F32, &[ADD]), (F64, &[ADD])])
}

/// A fault is the end of a process's kernels, so each is asked in a process of its own.
fn operations_that_the_manual_does_not_name(driver: &Driver) -> Outcome {
    let u16 =
        Kind { element: Element::CU_TENSOR_MAP_DATA_TYPE_UINT16, size: 2, code: integer::<2>, pairs: FLOAT_PAIRS };
    let tf32 = Kind { element: Element::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32, ..F32 };
    for (kind, operation) in [
        (S32, "inc"),
        (S32, "xor"),
        (S64, "add"),
        (S64, "and"),
        (U64, "inc"),
        (F32, "min"),
        (F32, "or"),
        (F64, "max"),
        (F16, "xor"),
        (BF16, "inc"),
        (tf32, "add"),
        (u16, "add"),
    ] {
        let ask = |driver: &Driver, _| {
            let gpu = Gpu::new(driver)?;
            let (code, seen) = combined(&gpu, kind, operation)?;
            note!("{operation} of {:?}: {} {}", kind.element, describe(code), words(&seen));
            Ok(())
        };
        in_two_processes(driver, |_, _| Ok(()), ask)?;
    }
    Ok(())
}
