//! Asking the driver while anything is being captured.
//!
//! While a thread captures in global mode, the driver refuses whatever another thread asks of a stream or an event, and the
//! capture is void from then on. What the program asks is its own affair; what we ask of our own accord must not do that.

use detshare_cuda::types::CUstreamCaptureMode;

/// What this thread asks the driver ends no capture of another one, until it is dropped.
pub(crate) struct Relaxed(CUstreamCaptureMode);

impl Relaxed {
    pub(crate) fn new() -> Self {
        let mut mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        cu!(cuThreadExchangeStreamCaptureMode(&raw mut mode));
        Self(mode)
    }

    /// For as long as the thread is there. For threads of ours.
    pub(crate) fn for_good() {
        core::mem::forget(Self::new());
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        cu!(cuThreadExchangeStreamCaptureMode(&raw mut self.0));
    }
}
