//! Calling the real driver from our own code.

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
