//! Events.

use super::forward;
use crate::boundary::Outcome;
use crate::types::*;
use core::ffi::c_uint;

forward! {
    fn cudaEventCreateWithFlags(event: *mut cudaEvent_t, flags: c_uint) => cuEventCreate(event, flags);
    fn cudaEventDestroy(event: cudaEvent_t) => cuEventDestroy_v2(event);
    fn cudaEventElapsedTime(milliseconds: *mut f32, start: cudaEvent_t, end: cudaEvent_t)
        => cuEventElapsedTime_v2(milliseconds, start, end);
    fn cudaEventQuery(event: cudaEvent_t) => cuEventQuery(event);
    fn cudaEventRecord(event: cudaEvent_t, stream: cudaStream_t) => cuEventRecord(event, stream);
    fn cudaEventRecordWithFlags(event: cudaEvent_t, stream: cudaStream_t, flags: c_uint)
        => cuEventRecordWithFlags(event, stream, flags);
    fn cudaEventSynchronize(event: cudaEvent_t) => cuEventSynchronize(event);
}

pub unsafe fn cudaEventCreate(event: *mut cudaEvent_t) -> Outcome {
    cudaEventCreateWithFlags(event, 0)
}
