//! What nodes were given, kept where a program that asks can read it: as long as the node has it.

use super::{Content, Operation};
use crate::operation::{Condition, Copy, Fill, MemoryOperation, SemaphoreUse};
use detshare_cuda::types::{
    CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS, CUDA_MEMCPY3D_v2,
    CUDA_MEMSET_NODE_PARAMS_v1, CUdeviceptr_v2, CUexternalSemaphore, CUmemorytype, CUstreamBatchMemOpParams,
    CUstreamBatchMemOpType as Kind,
};
use std::sync::Arc;

/// A batch of memory operations.
pub(crate) struct Batch {
    /// A context's handle.
    pub(crate) context: usize,
    pub(crate) operations: Box<[CUstreamBatchMemOpParams]>,
}

/// Signals to semaphores of others, or waits for them.
pub(crate) struct Semaphores {
    pub(crate) all: Box<[CUexternalSemaphore]>,
    pub(crate) uses: Uses,
}

// SAFETY: the program's handles and numbers, which are never followed here.
unsafe impl Send for Semaphores {}
// SAFETY: as above.
unsafe impl Sync for Semaphores {}

/// What is done with each.
pub(crate) enum Uses {
    Signal(Box<[CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS]>),
    Wait(Box<[CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS]>),
}

impl Content {
    /// What a captured operation becomes.
    pub(crate) fn of(operation: &Operation) -> Self {
        let own = operation.clone();
        match operation {
            Operation::Nothing => Self::Empty,
            Operation::Copy(copy) => Self::Copy(Box::new(copy_parameters(copy)), own),
            Operation::Fill(fill) => Self::Fill(fill_parameters(fill), own),
            Operation::Memory(operations) => {
                let operations = operations.iter().map(|it| memory_parameters(*it)).collect();
                Self::Batch(Arc::new(Batch { context: 0, operations }), own)
            }
            Operation::Semaphores(uses) => Self::Semaphores(Arc::new(semaphore_parameters(uses)), own),
            Operation::Free(address, _) => Self::Free(*address),
            _ => Self::Operation(own),
        }
    }
}

/// A captured copy as the program would have written it.
fn copy_parameters(copy: &Copy) -> CUDA_MEMCPY3D_v2 {
    // SAFETY: numbers, pointers and enums, all of which may be zero.
    let mut parameters: CUDA_MEMCPY3D_v2 = unsafe { core::mem::zeroed() };
    let unified = CUmemorytype::CU_MEMORYTYPE_UNIFIED;
    (parameters.srcMemoryType, parameters.dstMemoryType) = (unified, unified);
    parameters.srcDevice.0 = copy.from.address;
    parameters.dstDevice.0 = copy.to.address;
    (parameters.srcPitch, parameters.dstPitch) = (copy.from.pitch, copy.to.pitch);
    (parameters.WidthInBytes, parameters.Height, parameters.Depth) = (copy.width, copy.height, copy.depth);
    parameters
}

fn fill_parameters(fill: &Fill) -> CUDA_MEMSET_NODE_PARAMS_v1 {
    CUDA_MEMSET_NODE_PARAMS_v1 {
        dst: CUdeviceptr_v2(fill.address),
        pitch: fill.pitch,
        value: fill.value,
        elementSize: u32::try_from(fill.element).unwrap_or(1),
        width: fill.width,
        height: fill.height,
    }
}

fn memory_parameters(operation: MemoryOperation) -> CUstreamBatchMemOpParams {
    // SAFETY: numbers and enums, all of which may be zero.
    let mut parameters: CUstreamBatchMemOpParams = unsafe { core::mem::zeroed() };
    match operation {
        MemoryOperation::Barrier => parameters.operation = Kind::CU_STREAM_MEM_OP_BARRIER,
        MemoryOperation::Write { address, value, wide } => {
            let kind = if wide { Kind::CU_STREAM_MEM_OP_WRITE_VALUE_64 } else { Kind::CU_STREAM_MEM_OP_WRITE_VALUE_32 };
            parameters.writeValue.operation = kind;
            parameters.writeValue.address = CUdeviceptr_v2(address);
            parameters.writeValue.__bindgen_anon_1.value64 = value;
        }
        MemoryOperation::Wait { address, value, wide, condition } => {
            let kind = if wide { Kind::CU_STREAM_MEM_OP_WAIT_VALUE_64 } else { Kind::CU_STREAM_MEM_OP_WAIT_VALUE_32 };
            parameters.waitValue.operation = kind;
            parameters.waitValue.address = CUdeviceptr_v2(address);
            parameters.waitValue.__bindgen_anon_1.value64 = value;
            parameters.waitValue.flags = match condition {
                Condition::AtLeast => 0,
                Condition::Equal => 1,
                Condition::And => 2,
                Condition::Nor => 3,
            };
        }
    }
    parameters
}

fn semaphore_parameters(uses: &[SemaphoreUse]) -> Semaphores {
    let all = uses.iter().map(|it| CUexternalSemaphore(core::ptr::without_provenance_mut(it.handle))).collect();
    // SAFETY: numbers and pointers, all of which may be zero: nothing special is asked of a captured use.
    let uses = if uses.first().is_some_and(|it| it.waits) {
        // SAFETY: as above.
        Uses::Wait(uses.iter().map(|_| unsafe { core::mem::zeroed() }).collect())
    } else {
        // SAFETY: as above.
        Uses::Signal(uses.iter().map(|_| unsafe { core::mem::zeroed() }).collect())
    };
    Semaphores { all, uses }
}
