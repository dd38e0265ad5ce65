//! Writes to memory and waits for it, in a stream's order.

use super::require;
use crate::boundary::Outcome;
use crate::context;
use crate::memory::access::is_mapped;
use crate::operation::{Condition, MemoryOperation, Operation};
use crate::stream;
use core::ffi::c_uint;
use detshare_cuda::types::{
    CUdeviceptr, CUresult, CUstream, CUstreamBatchMemOpParams, CUstreamBatchMemOpType as Kind, cuuint32_t, cuuint64_t,
};

fn condition(flags: c_uint) -> Outcome<Condition> {
    // The flush flag on top asks for remote writes to be seen, which they are.
    match flags & !(1 << 30) {
        0 => Ok(Condition::AtLeast),
        1 => Ok(Condition::Equal),
        2 => Ok(Condition::And),
        3 => Ok(Condition::Nor),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

fn check(address: CUdeviceptr, wide: bool) -> Outcome<u64> {
    let size = if wide { 8 } else { 4 };
    require(address.0.is_multiple_of(size) && is_mapped(address.0, size))?;
    Ok(address.0)
}

fn write(address: CUdeviceptr, value: u64, wide: bool, flags: c_uint) -> Outcome<MemoryOperation> {
    // The flag that leaves the barrier out is refused, as a driver does.
    require(flags == 0)?;
    Ok(MemoryOperation::Write { address: check(address, wide)?, value, wide })
}

fn wait(address: CUdeviceptr, value: u64, wide: bool, flags: c_uint) -> Outcome<MemoryOperation> {
    Ok(MemoryOperation::Wait { address: check(address, wide)?, value, wide, condition: condition(flags)? })
}

unsafe fn perform(stream: CUstream, operation: MemoryOperation) -> Outcome {
    context::healthy()?;
    stream::find(stream)?.perform(Operation::Memory(vec![operation]))
}

pub(crate) unsafe fn cuStreamWriteValue32_v2(
    stream: CUstream,
    address: CUdeviceptr,
    value: cuuint32_t,
    flags: c_uint,
) -> Outcome {
    perform(stream, write(address, value.into(), false, flags)?)
}

pub(crate) unsafe fn cuStreamWriteValue64_v2(
    stream: CUstream,
    address: CUdeviceptr,
    value: cuuint64_t,
    flags: c_uint,
) -> Outcome {
    perform(stream, write(address, value, true, flags)?)
}

pub(crate) unsafe fn cuStreamWaitValue32_v2(
    stream: CUstream,
    address: CUdeviceptr,
    value: cuuint32_t,
    flags: c_uint,
) -> Outcome {
    perform(stream, wait(address, value.into(), false, flags)?)
}

pub(crate) unsafe fn cuStreamWaitValue64_v2(
    stream: CUstream,
    address: CUdeviceptr,
    value: cuuint64_t,
    flags: c_uint,
) -> Outcome {
    perform(stream, wait(address, value, true, flags)?)
}

pub(crate) unsafe fn cuStreamWriteValue32(
    stream: CUstream,
    address: CUdeviceptr,
    value: cuuint32_t,
    flags: c_uint,
) -> Outcome {
    cuStreamWriteValue32_v2(stream, address, value, flags)
}

pub(crate) unsafe fn cuStreamWriteValue64(
    stream: CUstream,
    address: CUdeviceptr,
    value: cuuint64_t,
    flags: c_uint,
) -> Outcome {
    cuStreamWriteValue64_v2(stream, address, value, flags)
}

pub(crate) unsafe fn cuStreamWaitValue32(
    stream: CUstream,
    address: CUdeviceptr,
    value: cuuint32_t,
    flags: c_uint,
) -> Outcome {
    cuStreamWaitValue32_v2(stream, address, value, flags)
}

pub(crate) unsafe fn cuStreamWaitValue64(
    stream: CUstream,
    address: CUdeviceptr,
    value: cuuint64_t,
    flags: c_uint,
) -> Outcome {
    cuStreamWaitValue64_v2(stream, address, value, flags)
}

/// The operations of a batch.
pub(super) unsafe fn batch(
    count: c_uint,
    parameters: *const CUstreamBatchMemOpParams,
) -> Outcome<Vec<MemoryOperation>> {
    const MOST: c_uint = 256;
    require(!parameters.is_null() && (1..=MOST).contains(&count))?;
    (0..count as usize)
        .map(|index| {
            let it = &*parameters.add(index);
            match it.operation {
                Kind::CU_STREAM_MEM_OP_WAIT_VALUE_32 => {
                    wait(it.waitValue.address, it.waitValue.__bindgen_anon_1.value.into(), false, it.waitValue.flags)
                }
                Kind::CU_STREAM_MEM_OP_WAIT_VALUE_64 => {
                    wait(it.waitValue.address, it.waitValue.__bindgen_anon_1.value64, true, it.waitValue.flags)
                }
                Kind::CU_STREAM_MEM_OP_WRITE_VALUE_32 => write(
                    it.writeValue.address,
                    it.writeValue.__bindgen_anon_1.value.into(),
                    false,
                    it.writeValue.flags,
                ),
                Kind::CU_STREAM_MEM_OP_WRITE_VALUE_64 => {
                    write(it.writeValue.address, it.writeValue.__bindgen_anon_1.value64, true, it.writeValue.flags)
                }
                Kind::CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES | Kind::CU_STREAM_MEM_OP_BARRIER => {
                    Ok(MemoryOperation::Barrier)
                }
                _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
            }
        })
        .collect()
}

pub(crate) unsafe fn cuStreamBatchMemOp_v2(
    stream: CUstream,
    count: c_uint,
    parameters: *mut CUstreamBatchMemOpParams,
    flags: c_uint,
) -> Outcome {
    context::healthy()?;
    require(flags == 0)?;
    stream::find(stream)?.perform(Operation::Memory(batch(count, parameters)?))
}

pub(crate) unsafe fn cuStreamBatchMemOp(
    stream: CUstream,
    count: c_uint,
    parameters: *mut CUstreamBatchMemOpParams,
    flags: c_uint,
) -> Outcome {
    cuStreamBatchMemOp_v2(stream, count, parameters, flags)
}
