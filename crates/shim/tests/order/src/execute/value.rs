//! Values that a stream writes to memory, or waits for there.

use super::Run;
use crate::program::On;
use anyhow::Result;
use core::mem::zeroed;
use detshare_cuda::types::{
    CUdeviceptr, CUstreamBatchMemOpParams, CUstreamBatchMemOpType, CUstreamWaitValue_flags, CUstreamWriteValue_flags,
};

/// A stream goes on when the word is at least the value.
const AT_LEAST: u32 = CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_GEQ.0;
/// What came before is seen by whoever sees the value.
const WITH_BARRIER: u32 = CUstreamWriteValue_flags::CU_STREAM_WRITE_VALUE_DEFAULT.0;

impl Run<'_> {
    pub(super) fn write_value(&self, on: On, address: CUdeviceptr, value: u32, batch: bool) -> Result<()> {
        if batch {
            return self.batch(on, CUstreamBatchMemOpType::CU_STREAM_MEM_OP_WRITE_VALUE_32, address, value);
        }
        let (stream, flags) = (self.stream(on)?, WITH_BARRIER);
        ok_on!(self.machine, on, cuStreamWriteValue32_v2 | cuStreamWriteValue32_v2_ptsz(stream, address, value, flags));
        Ok(())
    }

    pub(super) fn wait_value(&self, on: On, address: CUdeviceptr, value: u32, batch: bool) -> Result<()> {
        if batch {
            return self.batch(on, CUstreamBatchMemOpType::CU_STREAM_MEM_OP_WAIT_VALUE_32, address, value);
        }
        let (stream, flags) = (self.stream(on)?, AT_LEAST);
        ok_on!(self.machine, on, cuStreamWaitValue32_v2 | cuStreamWaitValue32_v2_ptsz(stream, address, value, flags));
        Ok(())
    }

    /// A batch of one. Both flags are zero, as in a fresh operation.
    fn batch(&self, on: On, kind: CUstreamBatchMemOpType, address: CUdeviceptr, value: u32) -> Result<()> {
        // SAFETY: plain values throughout.
        let mut operation: CUstreamBatchMemOpParams = unsafe { zeroed() };
        operation.writeValue.operation = kind;
        operation.writeValue.address = address;
        operation.writeValue.__bindgen_anon_1.value = value;
        let (stream, operations) = (self.stream(on)?, &raw mut operation);
        ok_on!(self.machine, on, cuStreamBatchMemOp_v2 | cuStreamBatchMemOp_v2_ptsz(stream, 1, operations, 0));
        Ok(())
    }
}
