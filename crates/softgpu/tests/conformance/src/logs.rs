//! The driver's log. Which messages are in it is its own affair.

use crate::Outcome;
use crate::gpu::Gpu;
use anyhow::{Context, ensure};
use core::ffi::{c_char, c_void};
use core::ptr::null_mut;
use detshare_cuda::Driver;
use detshare_cuda::types::{CUlogLevel, CUlogsCallbackHandle};
use std::ffi::CString;

tests! { logs:
    nothing_is_said_after_the_end,
    dumped_to_a_file,
    callbacks_come_and_go,
    reserved_flags_are_taken,
}

fn nothing_is_said_after_the_end(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let mut end = 0;
    ok!(gpu, cuLogsCurrent(&raw mut end, 0));
    let mut buffer: [c_char; 256] = [1; 256];
    let mut size = buffer.len();
    ok!(gpu, cuLogsDumpToMemory(&raw mut end, buffer.as_mut_ptr(), &raw mut size, 0));
    ensure!(size == 0, "{size} bytes of a log to which nothing was added");
    Ok(())
}

fn dumped_to_a_file(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let path = std::env::temp_dir().join(format!("detshare-conformance-log-{}", std::process::id()));
    let name = CString::new(path.to_str().context("the temporary folder has a name")?)?;
    ok!(gpu, cuLogsDumpToFile(null_mut(), name.as_ptr(), 0));
    let text = std::fs::read(&path)?;
    std::fs::remove_file(&path)?;
    note!("{} bytes", text.len());
    Ok(())
}

unsafe extern "C" fn hear(_data: *mut c_void, _level: CUlogLevel, _message: *mut c_char, _length: usize) {}

fn callbacks_come_and_go(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (mut first, mut second) = (CUlogsCallbackHandle(null_mut()), CUlogsCallbackHandle(null_mut()));
    ok!(gpu, cuLogsRegisterCallback(Some(hear), null_mut(), &raw mut first));
    ok!(gpu, cuLogsRegisterCallback(Some(hear), null_mut(), &raw mut second));
    ensure!(!first.0.is_null() && first.0 != second.0, "two callbacks with one handle");
    ok!(gpu, cuLogsUnregisterCallback(first));
    ok!(gpu, cuLogsUnregisterCallback(second));
    expect!(gpu, cuLogsRegisterCallback(None, null_mut(), &raw mut first) => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

fn reserved_flags_are_taken(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let mut end = 0;
    ok!(gpu, cuLogsCurrent(&raw mut end, 1));
    expect!(gpu, cuLogsCurrent(null_mut(), 0) => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}
