//! The one device: what it says of itself, and what the environment makes of it.

use crate::check::Check;
use detshare_cuda::types::CUdevice_attribute as Attribute;
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
    /// Number of SMs.
    pub(crate) sms: u32,
    /// Bytes of device memory.
    pub(crate) memory: u64,
    /// How much faster than the model's GPU the device is.
    pub(crate) speed: f64,
    /// Whether kernels are checked, and what becomes of those that do something wrong.
    pub(crate) check: Option<Check>,
}

/// The settings, read once.
pub(crate) fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| Settings {
        sms: number("DETSHARE_SOFTGPU_SMS").filter(|sms| (1..=1024).contains(sms)).unwrap_or(132),
        memory: text("DETSHARE_SOFTGPU_MEMORY").and_then(|text| bytes(&text)).unwrap_or(139 << 30),
        speed: number("DETSHARE_SOFTGPU_SPEED").filter(|speed| *speed > 0.0).unwrap_or(1.0),
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
pub(crate) const UUID: [u8; 16] = *b"detshare-softgpu";

/// The value of an attribute; None for one that there is not.
pub(crate) fn attribute(attribute: Attribute) -> Option<i32> {
    let signed = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
    #[allow(clippy::match_same_arms, reason = "one line for each attribute")]
    Some(match attribute {
        Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK => signed(MOST_THREADS_PER_BLOCK),
        Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X => signed(MOST_BLOCK[0]),
        Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y => signed(MOST_BLOCK[1]),
        Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z => signed(MOST_BLOCK[2]),
        Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X => signed(MOST_GRID[0]),
        Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y => signed(MOST_GRID[1]),
        Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z => signed(MOST_GRID[2]),
        Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK => signed(SHARED_PER_BLOCK),
        Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN => signed(SHARED_PER_BLOCK_OPTIN),
        Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR => signed(SHARED_PER_SM),
        Attribute::CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK => signed(RESERVED_SHARED_PER_BLOCK),
        Attribute::CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY => 65_536,
        Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE => signed(WARP),
        Attribute::CU_DEVICE_ATTRIBUTE_MAX_PITCH => i32::MAX,
        Attribute::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK => signed(REGISTERS_PER_SM),
        Attribute::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR => signed(REGISTERS_PER_SM),
        Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE => 1_980_000,
        Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE => 3_201_000,
        Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH => 6144,
        Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE => 60 << 20,
        Attribute::CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT => 512,
        Attribute::CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT => 32,
        Attribute::CU_DEVICE_ATTRIBUTE_GPU_OVERLAP => 1,
        Attribute::CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT => 3,
        Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT => signed(settings().sms),
        Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR => signed(MOST_THREADS_PER_SM),
        Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR => signed(MOST_BLOCKS_PER_SM),
        Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => 9,
        Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR => 0,
        Attribute::CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY => 1,
        Attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS => 1,
        Attribute::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING => 1,
        Attribute::CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED => 1,
        Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED => 1,
        Attribute::CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED => 1,
        Attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH => 1,
        Attribute::CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH => 1,
        Attribute::CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED => 1,
        Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED => 1,
        Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM => 1,
        Attribute::CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED => 1,
        Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED => 1,
        Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS => 1,
        Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR => 1,
        Attribute::CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO => 2,
        Attribute::CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED => 1,
        Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID => 0x53,
        // Textures, managed memory, peers and the like: not here, and a program that asks is told so.
        Attribute(value) if (1..150).contains(&value) => 0,
        _ => return None,
    })
}
