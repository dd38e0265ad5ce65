//! What figures were taken on, as every record says it.

use crate::cu;
use anyhow::{Context, Result};
use core::ffi::CStr;
use detshare_cuda::Driver;
use detshare_cuda::types::{CUdevice, CUdevice_attribute};
use serde_json::{Value, json};
use std::process::Command;

/// The machine, the device, the driver, the command and the date. The driver must be initialised.
pub fn facts(driver: &Driver, device: CUdevice) -> Result<Value> {
    let mut name = [0; 128];
    cu!(driver, cuDeviceGetName(name.as_mut_ptr(), 128, device))?;
    // SAFETY: the driver has written a terminated text.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy();
    let command: Vec<String> = std::env::args().collect();
    Ok(json!({
        "machine": processor(),
        "device": name,
        "sms": sms(driver, device)?,
        "driver": driver.path().display().to_string(),
        "driver_version": driver.version(),
        "command": command.join(" "),
        "date": date()?,
    }))
}

/// How many SMs the device has.
pub fn sms(driver: &Driver, device: CUdevice) -> Result<u32> {
    let mut count = 0;
    let attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
    cu!(driver, cuDeviceGetAttribute(&raw mut count, attribute, device))?;
    Ok(u32::try_from(count)?)
}

/// The processor and how many cores it has.
#[must_use]
pub fn processor() -> String {
    let processors = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let count = processors.lines().filter(|line| line.starts_with("processor")).count();
    format!("{}, {count} cores", model.map_or("unknown processor", |(_, name)| name.trim()))
}

/// Today.
pub fn date() -> Result<String> {
    let output = Command::new("date").arg("+%F").output().context("date")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
}
