//! Values that a stream writes to memory, or waits for there.

use crate::Outcome;
use crate::gpu::{Gpu, NON_BLOCKING, NULL_STREAM, SharedWords, offset};
use anyhow::{Result, ensure};
use core::mem::zeroed;
use detshare_cuda::Driver;
use detshare_cuda::types::{
    CUdevice_attribute, CUdeviceptr, CUfunction, CUstream, CUstreamBatchMemOpParams, CUstreamBatchMemOpType,
    CUstreamWaitValue_flags as Wait, CUstreamWriteValue_flags as Write,
};

tests! { stream_memory:
    writes_a_word,
    writes_after_the_work_before,
    writes_without_a_barrier,
    writes_a_wide_word,
    writes_to_device_memory,
    waits_until_at_least,
    at_least_is_cyclic,
    waits_until_equal,
    waits_for_a_bit,
    waits_for_a_missing_bit,
    waits_for_a_wide_word,
    one_stream_releases_another,
    one_stream_releases_a_kernel,
    works_in_the_default_stream,
    batch_runs_in_order,
    misaligned_is_refused,
}

/// A stream that waits for a word and then fills another.
struct Waiting<'d> {
    gpu: Gpu<'d>,
    words: SharedWords,
    stream: CUstream,
    fill: CUfunction,
}

/// Which word is waited for, and which one is written then.
const FLAG: usize = 0;
const SEEN: usize = 2;

impl<'d> Waiting<'d> {
    fn new(driver: &'d Driver) -> Result<Self> {
        let gpu = Gpu::new(driver)?;
        let [fill] = gpu.kernels([c"fill"])?;
        let (words, stream) = (gpu.shared_words(4)?, gpu.stream(NON_BLOCKING)?);
        Ok(Self { gpu, words, stream, fill })
    }

    fn then_fill(&self) -> Result<()> {
        self.gpu.launch(self.fill, 1, self.stream, &[&self.words.at(SEEN), &1_u32, &1_u32])
    }

    fn is_waiting(&self) -> Result<()> {
        self.gpu.is_pending(self.stream)?;
        ensure!(self.words.get(SEEN) == 0, "the stream did not wait");
        Ok(())
    }

    fn is_released(&self) -> Result<()> {
        self.gpu.wait(self.stream)?;
        ensure!(self.words.get(SEEN) == 1, "the work behind is missing");
        Ok(())
    }

    /// Waits with these flags for this value; the words keep it waiting one after the other, the last releases it.
    fn waits(&self, flags: Wait, value: u32, holding: &[u32], releasing: u32) -> Outcome {
        self.words.set(FLAG, holding[0]);
        ok!(self.gpu, cuStreamWaitValue32_v2(self.stream, self.words.at(FLAG), value, flags.0));
        self.then_fill()?;
        for word in holding {
            self.words.set(FLAG, *word);
            self.is_waiting()?;
        }
        self.words.set(FLAG, releasing);
        self.is_released()
    }
}

fn writes_a_word(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (words, stream) = (gpu.shared_words(2)?, gpu.stream(NON_BLOCKING)?);
    ok!(driver, cuStreamWriteValue32_v2(stream, words.at(0), 0x1234_5678, Write::CU_STREAM_WRITE_VALUE_DEFAULT.0));
    gpu.wait(stream)?;
    ensure!((words.get(0), words.get(1)) == (0x1234_5678, 0), "{:#x}, {:#x}", words.get(0), words.get(1));
    Ok(())
}

fn writes_after_the_work_before(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (gate, words, stream) = (gpu.gate()?, gpu.shared_words(1)?, gpu.stream(NON_BLOCKING)?);
    gpu.hold_at(&gate, stream)?;
    ok!(driver, cuStreamWriteValue32_v2(stream, words.at(0), 1, 0));
    gpu.is_pending(stream)?;
    ensure!(words.get(0) == 0, "written before its turn");
    gate.open();
    gpu.wait(stream)?;
    gate.was_passed()?;
    ensure!(words.get(0) == 1, "not written");
    Ok(())
}

fn writes_without_a_barrier(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (words, stream) = (gpu.shared_words(1)?, gpu.stream(NON_BLOCKING)?);
    let flags = Write::CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER.0;
    expect!(driver, cuStreamWriteValue32_v2(stream, words.at(0), 1, flags) => CUDA_ERROR_INVALID_VALUE);
    gpu.wait(stream)?;
    ensure!(words.get(0) == 0, "written all the same");
    Ok(())
}

fn has_wide_operations(gpu: &Gpu) -> Result<bool> {
    Ok(gpu.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS)? == 1)
}

fn writes_a_wide_word(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    if !has_wide_operations(&gpu)? {
        skip!("no operations on 64 bits");
    }
    let (words, stream) = (gpu.shared_words(4)?, gpu.stream(NON_BLOCKING)?);
    ok!(driver, cuStreamWriteValue64_v2(stream, words.at(0), 0x1111_2222_3333_4444, 0));
    gpu.wait(stream)?;
    let seen: Vec<_> = (0..4).map(|index| words.get(index)).collect();
    ensure!(seen == [0x3333_4444, 0x1111_2222, 0, 0], "{seen:x?}");
    Ok(())
}

fn writes_to_device_memory(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (pointer, stream) = (gpu.zeros(3)?, gpu.stream(NON_BLOCKING)?);
    ok!(driver, cuStreamWriteValue32_v2(stream, offset(pointer, 4), 6, 0));
    gpu.wait(stream)?;
    ensure!(gpu.read(pointer, 3)? == [0, 6, 0], "other words");
    Ok(())
}

fn waits_until_at_least(driver: &Driver) -> Outcome {
    let waiting = Waiting::new(driver)?;
    waiting.waits(Wait::CU_STREAM_WAIT_VALUE_GEQ, 5, &[0, 4], 6)
}

fn at_least_is_cyclic(driver: &Driver) -> Outcome {
    let waiting = Waiting::new(driver)?;
    waiting.waits(Wait::CU_STREAM_WAIT_VALUE_GEQ, u32::MAX, &[u32::MAX - 1, u32::MAX - 2], 1)
}

fn waits_until_equal(driver: &Driver) -> Outcome {
    let waiting = Waiting::new(driver)?;
    waiting.waits(Wait::CU_STREAM_WAIT_VALUE_EQ, 5, &[0, 6, 4], 5)
}

fn waits_for_a_bit(driver: &Driver) -> Outcome {
    let waiting = Waiting::new(driver)?;
    waiting.waits(Wait::CU_STREAM_WAIT_VALUE_AND, 0b0100, &[0, 0b1011], 0b0110)
}

fn waits_for_a_missing_bit(driver: &Driver) -> Outcome {
    let waiting = Waiting::new(driver)?;
    let nor = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR;
    if waiting.gpu.attribute(nor)? == 0 {
        skip!("no wait for a missing bit");
    }
    waiting.waits(Wait::CU_STREAM_WAIT_VALUE_NOR, !0b0100, &[0b0100, 0b1110], 0b1011)
}

fn waits_for_a_wide_word(driver: &Driver) -> Outcome {
    let waiting = Waiting::new(driver)?;
    if !has_wide_operations(&waiting.gpu)? {
        skip!("no operations on 64 bits");
    }
    let flags = Wait::CU_STREAM_WAIT_VALUE_EQ.0;
    ok!(driver, cuStreamWaitValue64_v2(waiting.stream, waiting.words.at(FLAG), 7 << 32 | 5, flags));
    waiting.then_fill()?;
    waiting.words.set(FLAG, 5);
    waiting.is_waiting()?;
    waiting.words.set(FLAG + 1, 7);
    waiting.is_released()
}

fn one_stream_releases_another(driver: &Driver) -> Outcome {
    let waiting = Waiting::new(driver)?;
    let gpu = &waiting.gpu;
    let (flag, other) = (gpu.zeros(1)?, gpu.stream(NON_BLOCKING)?);
    let flags = Wait::CU_STREAM_WAIT_VALUE_GEQ.0;
    ok!(driver, cuStreamWaitValue32_v2(waiting.stream, flag, 1, flags));
    waiting.then_fill()?;
    waiting.is_waiting()?;
    ok!(driver, cuStreamWriteValue32_v2(other, flag, 1, 0));
    waiting.is_released()
}

fn one_stream_releases_a_kernel(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (gate, held, other) = (gpu.gate()?, gpu.stream(NON_BLOCKING)?, gpu.stream(NON_BLOCKING)?);
    gpu.hold_at(&gate, held)?;
    gpu.is_pending(held)?;
    let (flag, ..) = gate.arguments();
    ok!(driver, cuStreamWriteValue32_v2(other, flag, 1, 0));
    gpu.wait(held)?;
    gate.was_passed()
}

fn works_in_the_default_stream(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let words = gpu.shared_words(2)?;
    ok!(driver, cuStreamWriteValue32_v2(NULL_STREAM, words.at(0), 3, 0));
    ok!(driver, cuStreamWaitValue32_v2(NULL_STREAM, words.at(0), 3, Wait::CU_STREAM_WAIT_VALUE_EQ.0));
    ok!(driver, cuStreamWriteValue32_v2_ptsz(NULL_STREAM, words.at(1), 4, 0));
    gpu.synchronise()?;
    ensure!((words.get(0), words.get(1)) == (3, 4), "{}, {}", words.get(0), words.get(1));
    Ok(())
}

fn operation(kind: CUstreamBatchMemOpType, address: CUdeviceptr, value: u32) -> CUstreamBatchMemOpParams {
    // SAFETY: plain values throughout.
    let mut operation: CUstreamBatchMemOpParams = unsafe { zeroed() };
    operation.writeValue.operation = kind;
    operation.writeValue.address = address;
    operation.writeValue.__bindgen_anon_1.value = value;
    operation
}

fn batch_runs_in_order(driver: &Driver) -> Outcome {
    let waiting = Waiting::new(driver)?;
    let words = &waiting.words;
    let (write, wait) = (
        CUstreamBatchMemOpType::CU_STREAM_MEM_OP_WRITE_VALUE_32,
        CUstreamBatchMemOpType::CU_STREAM_MEM_OP_WAIT_VALUE_32,
    );
    // Zero flags mean "at least" for the wait.
    let mut batch =
        [operation(write, words.at(1), 1), operation(wait, words.at(FLAG), 9), operation(write, words.at(3), 1)];
    ok!(driver, cuStreamBatchMemOp_v2(waiting.stream, 3, batch.as_mut_ptr(), 0));
    waiting.then_fill()?;
    waiting.is_waiting()?;
    ensure!(words.get(3) == 0, "the last write did not wait");
    words.set(FLAG, 9);
    waiting.is_released()?;
    ensure!((words.get(1), words.get(3)) == (1, 1), "{}, {}", words.get(1), words.get(3));
    Ok(())
}

fn misaligned_is_refused(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (words, stream) = (gpu.shared_words(2)?, gpu.stream(NON_BLOCKING)?);
    expect!(driver, cuStreamWriteValue32_v2(stream, offset(words.at(0), 2), 1, 0) => CUDA_ERROR_INVALID_VALUE);
    expect!(driver, cuStreamWaitValue32_v2(stream, offset(words.at(0), 1), 1, 0) => CUDA_ERROR_INVALID_VALUE);
    gpu.wait(stream)
}
