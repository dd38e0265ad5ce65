//! The devices, which are all alike: what they say of themselves, and what the environment makes of them.

mod attributes;

pub(crate) use attributes::attribute;

use crate::check::Check;
use crate::memory::MOST_DEVICES;
use std::sync::OnceLock;

/// As `cuDriverGetVersion` says it.
pub(crate) const DRIVER_VERSION: i32 = 13_000;
pub(crate) const NAME: &str = "DetShare Software GPU";
pub(crate) const WARP: u32 = 32;
pub(crate) const MOST_THREADS_PER_BLOCK: u32 = 1024;
pub(crate) const MOST_THREADS_PER_SM: u32 = 2048;
pub(crate) const MOST_BLOCKS_PER_SM: u32 = 32;
/// What every device with clusters can run,
pub(crate) const PORTABLE_BLOCKS_PER_CLUSTER: u32 = 8;
/// and what this one can where a kernel allows it.
pub(crate) const MOST_BLOCKS_PER_CLUSTER: u32 = 16;
pub(crate) const SHARED_PER_BLOCK: u32 = 48 << 10;
pub(crate) const SHARED_PER_BLOCK_OPTIN: u32 = 227 << 10;
pub(crate) const SHARED_PER_SM: u32 = 228 << 10;
pub(crate) const RESERVED_SHARED_PER_BLOCK: u32 = 1 << 10;
pub(crate) const REGISTERS_PER_SM: u32 = 65_536;
pub(crate) const MOST_GRID: [u32; 3] = [0x7fff_ffff, 65_535, 65_535];
pub(crate) const MOST_BLOCK: [u32; 3] = [1024, 1024, 64];
/// Least and greatest stream priority.
pub(crate) const PRIORITIES: (i32, i32) = (0, -5);

/// What can be set.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Number of devices.
    pub(crate) devices: usize,
    /// Number of SMs of each.
    pub(crate) sms: u32,
    /// Bytes of memory of each.
    pub(crate) memory: u64,
    /// How much faster than the model's GPU the device is.
    pub(crate) speed: f64,
    /// Decides another order of a block's warps.
    pub(crate) order: Option<u64>,
    /// Whether kernels are checked, and what becomes of those that do something wrong.
    pub(crate) check: Option<Check>,
}

/// The settings, read once.
pub(crate) fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| Settings {
        devices: number("DETSHARE_SOFTGPU_DEVICES").filter(|it| (1..=MOST_DEVICES).contains(it)).unwrap_or(1),
        sms: number("DETSHARE_SOFTGPU_SMS").filter(|sms| (1..=1024).contains(sms)).unwrap_or(132),
        memory: text("DETSHARE_SOFTGPU_MEMORY").and_then(|text| bytes(&text)).unwrap_or(139 << 30),
        speed: number("DETSHARE_SOFTGPU_SPEED").filter(|speed| *speed > 0.0).unwrap_or(1.0),
        order: number("DETSHARE_SOFTGPU_ORDER"),
        check: Check::from_environment(),
    })
}

fn text(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn number<T: std::str::FromStr>(name: &str) -> Option<T> {
    text(name)?.trim().parse().ok()
}

/// `1000000`, `512MiB`, `40GiB`.
fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let (digits, shift) = match text.strip_suffix("GiB") {
        Some(digits) => (digits, 30),
        None => text.strip_suffix("MiB").map_or((text, 0), |digits| (digits, 20)),
    };
    digits.trim().parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// The identity that `cuDeviceGetUuid` gives: the same in every process.
pub(crate) fn uuid(device: usize) -> [u8; 16] {
    let mut uuid = *b"detshare-softgpu";
    uuid[15] = uuid[15].wrapping_add(u8::try_from(device).unwrap_or(0));
    uuid
}

/// Where on the bus a device says that it is.
pub(crate) fn bus(device: usize) -> usize {
    const FIRST: usize = 0x53;
    FIRST + device
}
