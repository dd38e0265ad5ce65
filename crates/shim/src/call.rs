//! Calling the real driver from our own code.

use core::time::Duration;
use detshare_cuda::types::CUevent;

/// Calls a function of the real driver by name and gives its code.
macro_rules! cu {
    ($function:ident($($argument:expr),* $(,)?)) => {{
        let function = $crate::entries::real(detshare_cuda::entry::$function);
        // SAFETY: handles that the driver gave, or that the program gave and the driver judges; everything that is
        // pointed to is alive. The driver answers with a code.
        unsafe { function($($argument),*) }
    }};
}

/// Whether a call succeeded.
pub(crate) fn is_ok(code: detshare_cuda::types::CUresult) -> bool {
    code == detshare_cuda::types::CUresult::CUDA_SUCCESS
}

/// What is between two events, where both have happened.
pub(crate) fn elapsed(start: CUevent, end: CUevent) -> Option<Duration> {
    let mut milliseconds = 0.0;
    let asked = cu!(cuEventElapsedTime_v2(&raw mut milliseconds, start, end));
    is_ok(asked).then(|| Duration::from_secs_f32(milliseconds.max(0.0) / 1000.0))
}
