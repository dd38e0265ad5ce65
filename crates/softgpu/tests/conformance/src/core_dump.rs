//! What a program wants to be written about a fault on the device.

use crate::Outcome;
use crate::gpu::{Gpu, text};
use anyhow::{Result, ensure};
use core::ffi::{c_char, c_void};
use core::ptr::null_mut;
use detshare_cuda::Driver;
use detshare_cuda::types::{CUcoredumpSettings as Setting, CUresult};

tests! { core_dump:
    sizes_are_told,
    settings_of_a_context,
    settings_of_all_contexts,
    names_of_files,
    the_pipe_belongs_to_the_process,
    unknown_settings_are_refused,
}

fn flag(gpu: &Gpu<'_>, setting: Setting) -> Result<bool> {
    let (mut value, mut size) = (9_u8, 1);
    ok!(gpu, cuCoredumpGetAttribute(setting, (&raw mut value).cast(), &raw mut size));
    ensure!(value < 2, "{value} is no answer");
    Ok(value == 1)
}

fn sizes_are_told(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let mut size = 0;
    ok!(gpu, cuCoredumpGetAttribute(Setting::CU_COREDUMP_TRIGGER_HOST, null_mut(), &raw mut size));
    ensure!(size == 1, "a flag has {size} bytes");
    ok!(gpu, cuCoredumpGetAttributeGlobal(Setting::CU_COREDUMP_FILE, null_mut(), &raw mut size));
    note!("a name has {size} bytes");
    ensure!(size > 1, "a name has {size} bytes");
    Ok(())
}

fn settings_of_a_context(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let setting = Setting::CU_COREDUMP_ENABLE_ON_EXCEPTION;
    ensure!(!flag(&gpu, setting)?, "dumps are asked for by nobody");
    let (mut yes, mut size) = (1_u8, 1);
    ok!(gpu, cuCoredumpSetAttribute(setting, (&raw mut yes).cast(), &raw mut size));
    ensure!(flag(&gpu, setting)?, "it was set and is not");
    let mut all = 9_u8;
    ok!(gpu, cuCoredumpGetAttributeGlobal(setting, (&raw mut all).cast(), &raw mut size));
    ensure!(all == 0, "one context's setting is everybody's");
    Ok(())
}

fn settings_of_all_contexts(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let setting = Setting::CU_COREDUMP_TRIGGER_HOST;
    let (mut no, mut size) = (0_u8, 1);
    ok!(gpu, cuCoredumpSetAttributeGlobal(setting, (&raw mut no).cast(), &raw mut size));
    let mut all = 9_u8;
    ok!(gpu, cuCoredumpGetAttributeGlobal(setting, (&raw mut all).cast(), &raw mut size));
    ensure!(all == 0, "it was set and is not");
    note!("the context's own: {}", flag(&gpu, setting)?);
    Ok(())
}

fn names_of_files(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let name = *b"/tmp/some.name\0";
    let mut size = name.len();
    let setting = Setting::CU_COREDUMP_FILE;
    ok!(gpu, cuCoredumpSetAttribute(setting, name.as_ptr().cast_mut().cast::<c_void>(), &raw mut size));
    let mut read: [c_char; 1_024] = [1; 1_024];
    size = read.len();
    ok!(gpu, cuCoredumpGetAttribute(setting, read.as_mut_ptr().cast(), &raw mut size));
    ensure!(text(&read) == "/tmp/some.name", "it is {:?}", text(&read));
    Ok(())
}

fn the_pipe_belongs_to_the_process(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (mut yes, mut size) = (1_u8, 1);
    let setting = Setting::CU_COREDUMP_ENABLE_USER_TRIGGER;
    let code =
        noted!(gpu, cuCoredumpSetAttribute(setting, (&raw mut yes).cast(), &raw mut size), "one context's trigger");
    ensure!(code != CUresult::CUDA_SUCCESS, "a context has a pipe of its own");
    Ok(())
}

fn unknown_settings_are_refused(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (mut value, mut size) = (0_u64, 8);
    let setting = Setting(999);
    expect!(gpu, cuCoredumpGetAttribute(setting, (&raw mut value).cast(), &raw mut size) => CUDA_ERROR_INVALID_VALUE);
    expect!(gpu, cuCoredumpSetAttribute(setting, (&raw mut value).cast(), &raw mut size) => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}
