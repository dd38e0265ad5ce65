//! Many copies in one call, as CUDA 13 has it and as CUDA 12 had it, and copies in three dimensions between contexts.

use crate::Outcome;
use crate::call::describe;
use crate::gpu::{Gpu, NO_ADDRESS, NON_BLOCKING, NULL_STREAM, offset};
use anyhow::{Result, ensure};
use core::mem::zeroed;
use core::ptr::null_mut;
use detshare_cuda::Driver;
use detshare_cuda::types::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_MEMCPY3D_BATCH_OP, CUDA_MEMCPY3D_PEER, CUarray, CUarray_format, CUcontext, CUdeviceptr,
    CUdeviceptr_v2, CUmemcpy3DOperandType as Operand, CUmemcpyAttributes, CUmemcpySrcAccessOrder as Order,
    CUmemorytype as Memory, CUresult, CUstream,
};

tests! { copy_batch:
    all_copies_are_made,
    the_call_may_read_the_source_at_once,
    batches_wait_for_their_turn,
    batches_are_checked,
    boxes_in_a_batch,
    arrays_in_a_batch,
    older_batches_are_made,
    older_batches_name_the_copy_that_is_wrong,
    older_batches_of_boxes_are_made,
    older_batches_end_at_the_box_that_is_wrong,
    boxes_between_contexts,
}

fn attributes(order: Order) -> CUmemcpyAttributes {
    // SAFETY: plain values throughout, where zero means none.
    let nothing: CUmemcpyAttributes = unsafe { zeroed() };
    CUmemcpyAttributes { srcAccessOrder: order, ..nothing }
}

fn all_copies_are_made(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let stream = gpu.stream(NON_BLOCKING)?;
    let words = gpu.shared_words(8)?;
    (0..4).for_each(|index| words.set(index, 40 + u32::try_from(index).unwrap_or(0)));
    let (first, second) = (gpu.zeros(4)?, gpu.zeros(4)?);
    let source = gpu.upload(&[1, 2, 3, 4])?;
    let mut to = [first, second, words.at(4)];
    let mut from = [words.at(0), source, offset(source, 8)];
    let mut sizes = [16, 8, 8];
    let mut how =
        [attributes(Order::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM), attributes(Order::CU_MEMCPY_SRC_ACCESS_ORDER_ANY)];
    let mut firsts = [0, 2];
    let (to, from, sizes) = (to.as_mut_ptr(), from.as_mut_ptr(), sizes.as_mut_ptr());
    ok!(driver, cuMemcpyBatchAsync_v2(to, from, sizes, 3, how.as_mut_ptr(), firsts.as_mut_ptr(), 2, stream));
    gpu.wait(stream)?;
    ensure!(gpu.read(first, 4)? == [40, 41, 42, 43], "{:?}", gpu.read(first, 4)?);
    ensure!(gpu.read(second, 4)? == [1, 2, 0, 0], "{:?}", gpu.read(second, 4)?);
    ensure!((words.get(4), words.get(5), words.get(6)) == (3, 4, 0), "the host has {}", words.get(4));
    Ok(())
}

/// Whether it takes a copy or waits until the stream is there is the driver's own affair.
fn the_call_may_read_the_source_at_once(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let stream = gpu.stream(NON_BLOCKING)?;
    let words = gpu.shared_words(4)?;
    (0..4).for_each(|index| words.set(index, 6));
    let memory = gpu.zeros(4)?;
    let (mut to, mut from, mut size, mut first) = (memory, words.at(0), 16, 0);
    let mut how = attributes(Order::CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL);
    let (to, from, size) = (&raw mut to, &raw mut from, &raw mut size);
    ok!(driver, cuMemcpyBatchAsync_v2(to, from, size, 1, &raw mut how, &raw mut first, 1, stream));
    (0..4).for_each(|index| words.set(index, 99));
    gpu.wait(stream)?;
    ensure!(gpu.read(memory, 4)? == [6; 4], "{:?}", gpu.read(memory, 4)?);
    Ok(())
}

fn batches_wait_for_their_turn(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let gate = gpu.gate()?;
    let stream = gpu.stream(NON_BLOCKING)?;
    let (source, memory) = (gpu.zeros(4)?, gpu.zeros(4)?);
    let [fill] = gpu.kernels([c"fill"])?;
    gpu.hold_at(&gate, stream)?;
    gpu.launch(fill, 4, stream, &[&source, &8_u32, &4_u32])?;
    let (mut to, mut from, mut size, mut first) = (memory, source, 16, 0);
    let mut how = attributes(Order::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM);
    let (to, from, size) = (&raw mut to, &raw mut from, &raw mut size);
    ok!(driver, cuMemcpyBatchAsync_v2(to, from, size, 1, &raw mut how, &raw mut first, 1, stream));
    gpu.is_pending(stream)?;
    gate.open();
    gpu.wait(stream)?;
    gate.was_passed()?;
    ensure!(gpu.read(memory, 4)? == [8; 4], "the batch came before the kernel");
    Ok(())
}

fn batches_are_checked(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let stream = gpu.stream(NON_BLOCKING)?;
    let memory = gpu.zeros(8)?;
    let mut to = [memory, offset(memory, 16)];
    let mut from = [offset(memory, 16), memory];
    let mut sizes = [4, 4];
    let mut how = [attributes(Order::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM)];
    let mut firsts = [0];
    let (to, from, sizes) = (to.as_mut_ptr(), from.as_mut_ptr(), sizes.as_mut_ptr());
    let (with, first) = (how.as_mut_ptr(), firsts.as_mut_ptr());
    expect!(driver, cuMemcpyBatchAsync_v2(to, from, sizes, 0, with, first, 1, stream) => CUDA_ERROR_INVALID_VALUE);
    expect!(driver, cuMemcpyBatchAsync_v2(null_mut(), from, sizes, 2, with, first, 1, stream)
        => CUDA_ERROR_INVALID_VALUE);
    expect!(driver, cuMemcpyBatchAsync_v2(to, from, sizes, 2, with, first, 0, stream) => CUDA_ERROR_INVALID_VALUE);
    noted!(driver, cuMemcpyBatchAsync_v2(to, from, sizes, 2, with, first, 1, NULL_STREAM), "the default stream");
    firsts[0] = 1;
    let first = firsts.as_mut_ptr();
    expect!(driver, cuMemcpyBatchAsync_v2(to, from, sizes, 2, with, first, 1, stream) => CUDA_ERROR_INVALID_VALUE);
    let mut wrong = [attributes(Order::CU_MEMCPY_SRC_ACCESS_ORDER_INVALID)];
    let mut zero = [0];
    let code = noted!(
        driver,
        cuMemcpyBatchAsync_v2(to, from, sizes, 2, wrong.as_mut_ptr(), zero.as_mut_ptr(), 1, stream),
        "no order"
    );
    ensure!(code != CUresult::CUDA_SUCCESS, "copies without an order are made");
    gpu.wait(stream)
}

/// A box of words without gaps.
fn packed(pointer: CUdeviceptr, row: usize) -> detshare_cuda::types::CUmemcpy3DOperand {
    // SAFETY: plain values throughout, where zero means none.
    let mut operand: detshare_cuda::types::CUmemcpy3DOperand = unsafe { zeroed() };
    operand.type_ = Operand::CU_MEMCPY_OPERAND_TYPE_POINTER;
    // SAFETY: all fields of the union are plain values.
    let side = unsafe { &mut operand.op.ptr };
    (side.ptr, side.rowLength, side.layerHeight) = (pointer, row, 0);
    operand
}

fn boxes_in_a_batch(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let stream = gpu.stream(NON_BLOCKING)?;
    let source = gpu.upload(&(0..16).collect::<Vec<_>>())?;
    let memory = gpu.zeros(16)?;
    // SAFETY: plain values throughout, where zero means none.
    let mut copy: CUDA_MEMCPY3D_BATCH_OP = unsafe { zeroed() };
    (copy.src, copy.dst) = (packed(offset(source, 4), 16), packed(memory, 8));
    (copy.extent.width, copy.extent.height, copy.extent.depth) = (8, 4, 1);
    copy.srcAccessOrder = Order::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    ok!(driver, cuMemcpy3DBatchAsync_v2(1, &raw mut copy, 0, stream));
    gpu.wait(stream)?;
    let seen = gpu.read(memory, 9)?;
    ensure!(seen == [1, 2, 5, 6, 9, 10, 13, 14, 0], "{seen:?}");
    expect!(driver, cuMemcpy3DBatchAsync_v2(0, &raw mut copy, 0, stream) => CUDA_ERROR_INVALID_VALUE);
    expect!(driver, cuMemcpy3DBatchAsync_v2(1, null_mut(), 0, stream) => CUDA_ERROR_INVALID_VALUE);
    noted!(driver, cuMemcpy3DBatchAsync_v2(1, &raw mut copy, 1, stream), "an unknown flag");
    Ok(())
}

fn arrays_in_a_batch(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let stream = gpu.stream(NON_BLOCKING)?;
    let shape = CUDA_ARRAY_DESCRIPTOR {
        Width: 4,
        Height: 4,
        Format: CUarray_format::CU_AD_FORMAT_UNSIGNED_INT32,
        NumChannels: 1,
    };
    let mut array = CUarray(null_mut());
    ok!(driver, cuArrayCreate_v2(&raw mut array, &raw const shape));
    let (source, memory) = (gpu.upload(&(0..16).collect::<Vec<_>>())?, gpu.zeros(16)?);
    let in_array = |x: usize, y: usize| {
        // SAFETY: plain values throughout, where zero means none.
        let mut operand: detshare_cuda::types::CUmemcpy3DOperand = unsafe { zeroed() };
        operand.type_ = Operand::CU_MEMCPY_OPERAND_TYPE_ARRAY;
        // SAFETY: all fields of the union are plain values.
        let side = unsafe { &mut operand.op.array };
        (side.array, side.offset.x, side.offset.y) = (array, x, y);
        operand
    };
    // SAFETY: plain values throughout, where zero means none.
    let mut copies: [CUDA_MEMCPY3D_BATCH_OP; 2] = unsafe { zeroed() };
    (copies[0].src, copies[0].dst) = (packed(source, 4), in_array(0, 0));
    (copies[0].extent.width, copies[0].extent.height, copies[0].extent.depth) = (4, 4, 1);
    (copies[1].src, copies[1].dst) = (in_array(1, 2), packed(memory, 2));
    (copies[1].extent.width, copies[1].extent.height, copies[1].extent.depth) = (2, 2, 1);
    for copy in &mut copies {
        copy.srcAccessOrder = Order::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
        // One after the other: copies of one batch have no order.
        ok!(driver, cuMemcpy3DBatchAsync_v2(1, core::ptr::from_mut(copy), 0, stream));
        gpu.wait(stream)?;
    }
    ensure!(gpu.read(memory, 5)? == [9, 10, 13, 14, 0], "{:?}", gpu.read(memory, 5)?);
    Ok(())
}

/// What a number of a copy is before the driver has said anything.
const UNTOLD: usize = 77;
/// What it is where the driver has no single copy to blame.
const NO_COPY: usize = usize::MAX;

/// Three copies of four words each, by the function of CUDA 12, which says what is wrong: two ordinary ones, and whatever becomes of
/// the one between them.
struct Batch {
    from: CUdeviceptr,
    memory: CUdeviceptr,
    to: [CUdeviceptr; 3],
    sources: [CUdeviceptr; 3],
    sizes: [usize; 3],
    how: [CUmemcpyAttributes; 3],
    firsts: [usize; 3],
}

impl Batch {
    fn new(gpu: &Gpu) -> Result<Self> {
        let (from, memory) = (gpu.upload(&(1..=12).collect::<Vec<_>>())?, gpu.zeros(12)?);
        Ok(Self {
            from,
            memory,
            to: [0, 16, 32].map(|bytes| offset(memory, bytes)),
            sources: [0, 16, 32].map(|bytes| offset(from, bytes)),
            sizes: [16; 3],
            how: [attributes(Order::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM); 3],
            firsts: [0, 1, 2],
        })
    }

    /// The code, the number of the copy that is wrong, and what has arrived.
    fn start(&mut self, gpu: &Gpu, stream: CUstream) -> Result<(CUresult, usize, Vec<u32>)> {
        let mut failed = UNTOLD;
        let (to, from, sizes) = (self.to.as_mut_ptr(), self.sources.as_mut_ptr(), self.sizes.as_mut_ptr());
        let (how, firsts) = (self.how.as_mut_ptr(), self.firsts.as_mut_ptr());
        let code = cu!(gpu, cuMemcpyBatchAsync(to, from, sizes, 3, how, firsts, 3, &raw mut failed, stream));
        gpu.wait(stream)?;
        Ok((code, failed, gpu.read(self.memory, 12)?))
    }
}

/// A mistake, whether the manual promises that its copy is refused and named, and how it is made.
type Wrong<T> = (&'static str, bool, fn(&mut T));

/// As a reader of the results knows it.
fn name(failed: usize) -> String {
    match failed {
        NO_COPY => "no copy".into(),
        UNTOLD => "nothing".into(),
        copy => format!("copy {copy}"),
    }
}

fn older_batches_are_made(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let stream = gpu.stream(NON_BLOCKING)?;
    let mut batch = Batch::new(&gpu)?;
    let (code, failed, seen) = batch.start(&gpu, stream)?;
    ensure!(code == CUresult::CUDA_SUCCESS, "{}", describe(code));
    note!("of three copies that are right {} is named", name(failed));
    ensure!(seen == (1..=12).collect::<Vec<_>>(), "{seen:?}");
    // Nobody has to ask which one failed.
    let other = gpu.zeros(4)?;
    let (mut to, mut from, mut size, mut first) = (other, offset(batch.from, 16), 16, 0);
    let mut how = attributes(Order::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM);
    let (to, from, size) = (&raw mut to, &raw mut from, &raw mut size);
    let code = noted!(
        driver,
        cuMemcpyBatchAsync(to, from, size, 1, &raw mut how, &raw mut first, 1, null_mut(), stream),
        "unasked"
    );
    gpu.wait(stream)?;
    let seen = gpu.read(other, 4)?;
    ensure!(seen == if code == CUresult::CUDA_SUCCESS { [5, 6, 7, 8] } else { [0; 4] }, "{seen:?}");
    Ok(())
}

fn older_batches_name_the_copy_that_is_wrong(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let stream = gpu.stream(NON_BLOCKING)?;
    let wrong: [Wrong<Batch>; 5] = [
        ("a copy to nowhere", true, |batch| batch.to[1] = NO_ADDRESS),
        ("a copy from nowhere", true, |batch| batch.sources[1] = NO_ADDRESS),
        ("a copy of more than there is", true, |batch| batch.sizes[1] = 1 << 40),
        ("a copy of nothing", false, |batch| batch.sizes[1] = 0),
        ("a copy in no order", false, |batch| batch.how[1] = attributes(Order::CU_MEMCPY_SRC_ACCESS_ORDER_INVALID)),
    ];
    for (what, is_promised, change) in wrong {
        let mut batch = Batch::new(&gpu)?;
        change(&mut batch);
        let (code, failed, seen) = batch.start(&gpu, stream)?;
        note!("{what}: {}, {} is named, {seen:?}", describe(code), name(failed));
        ensure!(!is_promised || code != CUresult::CUDA_SUCCESS, "{what} is made");
        ensure!(!is_promised || failed == 1, "{what}: {} is named", name(failed));
        let copied = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
        ensure!(seen.iter().zip(copied).all(|(seen, copied)| [0, copied].contains(seen)), "{what}: {seen:?}");
    }
    let mut batch = Batch::new(&gpu)?;
    batch.firsts[0] = 1;
    let (code, failed, _) = batch.start(&gpu, stream)?;
    ensure!(
        code == CUresult::CUDA_ERROR_INVALID_VALUE,
        "attributes that begin with the second copy: {}",
        describe(code)
    );
    note!("attributes that begin with the second copy: {} is named", name(failed));
    Ok(())
}

/// Three rows of four words, each by a copy of its own.
fn three_boxes(from: CUdeviceptr, to: CUdeviceptr) -> [CUDA_MEMCPY3D_BATCH_OP; 3] {
    [0, 16, 32].map(|bytes| {
        // SAFETY: plain values throughout, where zero means none.
        let mut copy: CUDA_MEMCPY3D_BATCH_OP = unsafe { zeroed() };
        (copy.src, copy.dst) = (packed(offset(from, bytes), 16), packed(offset(to, bytes), 16));
        (copy.extent.width, copy.extent.height, copy.extent.depth) = (16, 1, 1);
        copy.srcAccessOrder = Order::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
        copy
    })
}

fn older_batches_of_boxes_are_made(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let stream = gpu.stream(NON_BLOCKING)?;
    let (from, memory) = (gpu.upload(&(1..=12).collect::<Vec<_>>())?, gpu.zeros(12)?);
    let (mut copies, mut failed) = (three_boxes(from, memory), UNTOLD);
    ok!(driver, cuMemcpy3DBatchAsync(3, copies.as_mut_ptr(), &raw mut failed, 0, stream));
    gpu.wait(stream)?;
    note!("of three boxes that are right {} is named", name(failed));
    ensure!(gpu.read(memory, 12)? == (1..=12).collect::<Vec<_>>(), "{:?}", gpu.read(memory, 12)?);
    Ok(())
}

fn older_batches_end_at_the_box_that_is_wrong(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let stream = gpu.stream(NON_BLOCKING)?;
    let wrong: [Wrong<CUDA_MEMCPY3D_BATCH_OP>; 4] = [
        ("a box to nowhere", true, |copy| copy.dst = packed(NO_ADDRESS, 16)),
        ("a box of more than there is", true, |copy| (copy.extent.height, copy.extent.depth) = (1 << 18, 1 << 18)),
        ("a box of nothing", false, |copy| copy.extent.height = 0),
        ("a box in no order", false, |copy| copy.srcAccessOrder = Order::CU_MEMCPY_SRC_ACCESS_ORDER_INVALID),
    ];
    for (what, is_promised, change) in wrong {
        let (from, memory) = (gpu.upload(&(1..=12).collect::<Vec<_>>())?, gpu.zeros(12)?);
        let (mut copies, mut failed) = (three_boxes(from, memory), UNTOLD);
        change(&mut copies[1]);
        let code = cu!(driver, cuMemcpy3DBatchAsync(3, copies.as_mut_ptr(), &raw mut failed, 0, stream));
        gpu.wait(stream)?;
        let seen = gpu.read(memory, 12)?;
        // An H200's driver names none.
        note!("{what}: {}, {} is named, {seen:?}", describe(code), name(failed));
        ensure!(!is_promised || code != CUresult::CUDA_SUCCESS, "{what} is made");
    }
    let (mut failed, mut copy) = (UNTOLD, three_boxes(gpu.zeros(4)?, gpu.zeros(4)?)[0]);
    expect!(driver, cuMemcpy3DBatchAsync(0, &raw mut copy, &raw mut failed, 0, stream) => CUDA_ERROR_INVALID_VALUE);
    note!("of no boxes {} is named", name(failed));
    Ok(())
}

fn boxes_between_contexts(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let source = gpu.upload(&(0..16).collect::<Vec<_>>())?;
    let mut own = CUcontext(null_mut());
    ok!(driver, cuCtxCreate_v2(&raw mut own, 0, gpu.device));
    let memory = gpu.zeros(16)?;
    // SAFETY: plain values throughout, where zero means none.
    let mut copy: CUDA_MEMCPY3D_PEER = unsafe { zeroed() };
    (copy.srcMemoryType, copy.srcDevice, copy.srcContext) = (Memory::CU_MEMORYTYPE_DEVICE, source, gpu.context);
    (copy.dstMemoryType, copy.dstDevice, copy.dstContext) = (Memory::CU_MEMORYTYPE_DEVICE, memory, own);
    (copy.srcXInBytes, copy.srcPitch, copy.dstPitch) = (4, 16, 8);
    (copy.WidthInBytes, copy.Height, copy.Depth) = (8, 4, 1);
    ok!(driver, cuMemcpy3DPeer(&raw const copy));
    ok!(driver, cuCtxSynchronize());
    ensure!(gpu.read(memory, 9)? == [1, 2, 5, 6, 9, 10, 13, 14, 0], "{:?}", gpu.read(memory, 9)?);
    ok!(driver, cuMemcpy3DPeerAsync(&raw const copy, NULL_STREAM));
    ok!(driver, cuCtxSynchronize());
    ok!(driver, cuMemcpyPeer(memory, own, source, gpu.context, 64));
    ok!(driver, cuCtxSynchronize());
    ensure!(gpu.read(memory, 4)? == [0, 1, 2, 3], "{:?}", gpu.read(memory, 4)?);
    let nowhere = CUdeviceptr_v2(NO_ADDRESS.0 + 0x1000);
    let code = noted!(driver, cuMemcpyPeer(memory, own, nowhere, gpu.context, 64), "no memory");
    ensure!(code != CUresult::CUDA_SUCCESS, "what is not there was copied");
    Ok(())
}
