//! Initialisation, versions, devices and what they say of themselves.

use crate::Outcome;
use crate::gpu::{Gpu, NO_ADDRESS, NO_CONTEXT, NO_DEVICE, first_device, text};
use anyhow::ensure;
use core::ffi::CStr;
use core::ptr::null_mut;
use detshare_cuda::Driver;
use detshare_cuda::types::{CUdevice_attribute, CUdevice_v1, CUresult, CUuuid};

tests! { device:
    nothing_works_before_init,
    init_takes_no_flags_and_can_be_repeated,
    version_is_known_before_init,
    devices_are_counted_from_zero,
    has_a_name,
    name_is_cut_to_the_buffer,
    attributes_are_sane,
    unknown_attributes_and_devices_are_refused,
    compute_capability_agrees_with_attributes,
    has_memory,
    has_a_uuid,
    is_found_by_its_pci_id,
    is_no_peer_of_itself,
}

/// Far beyond any attribute and any device.
const NONE_SUCH: u16 = 9_999;

fn nothing_works_before_init(driver: &Driver) -> Outcome {
    let mut count = -1;
    expect!(driver, cuDeviceGetCount(&raw mut count) => CUDA_ERROR_NOT_INITIALIZED);
    let mut device = NO_DEVICE;
    expect!(driver, cuDeviceGet(&raw mut device, 0) => CUDA_ERROR_NOT_INITIALIZED);
    let mut pointer = NO_ADDRESS;
    expect!(driver, cuMemAlloc_v2(&raw mut pointer, 64) => CUDA_ERROR_NOT_INITIALIZED);
    let mut context = NO_CONTEXT;
    expect!(driver, cuDevicePrimaryCtxRetain(&raw mut context, CUdevice_v1(0)) => CUDA_ERROR_NOT_INITIALIZED);
    noted!(driver, cuCtxGetCurrent(&raw mut context), "before cuInit");
    Ok(())
}

fn init_takes_no_flags_and_can_be_repeated(driver: &Driver) -> Outcome {
    expect!(driver, cuInit(1) => CUDA_ERROR_INVALID_VALUE);
    ok!(driver, cuInit(0));
    ok!(driver, cuInit(0));
    Ok(())
}

fn version_is_known_before_init(driver: &Driver) -> Outcome {
    let mut version = 0;
    ok!(driver, cuDriverGetVersion(&raw mut version));
    ensure!(version >= 12_040, "the version is {version}");
    expect!(driver, cuDriverGetVersion(null_mut()) => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

fn devices_are_counted_from_zero(driver: &Driver) -> Outcome {
    ok!(driver, cuInit(0));
    let mut count = -1;
    ok!(driver, cuDeviceGetCount(&raw mut count));
    ensure!(count >= 1, "{count} devices");
    let mut device = NO_DEVICE;
    for ordinal in 0..count {
        ok!(driver, cuDeviceGet(&raw mut device, ordinal));
        ensure!(device.0 == ordinal, "device {ordinal} has the handle {device:?}");
    }
    for ordinal in [-1, count, i32::MAX] {
        expect!(driver, cuDeviceGet(&raw mut device, ordinal) => CUDA_ERROR_INVALID_DEVICE);
    }
    expect!(driver, cuDeviceGetCount(null_mut()) => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

fn has_a_name(driver: &Driver) -> Outcome {
    let device = first_device(driver)?;
    let mut name = [1; 256];
    ok!(driver, cuDeviceGetName(name.as_mut_ptr(), 256, device));
    ensure!(name.contains(&0), "the name is not terminated");
    let name = text(&name);
    ensure!(!name.is_empty(), "the name is empty");
    note!("{name}");
    expect!(driver, cuDeviceGetName(null_mut(), 256, device) => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

fn name_is_cut_to_the_buffer(driver: &Driver) -> Outcome {
    const ROOM: i32 = 4;
    let device = first_device(driver)?;
    let mut whole = [1; 256];
    ok!(driver, cuDeviceGetName(whole.as_mut_ptr(), 256, device));
    let mut short = [1; 8];
    let code = noted!(driver, cuDeviceGetName(short.as_mut_ptr(), ROOM, device), "room for 4 characters");
    ensure!(short[4..] == [1; 4], "wrote beyond the buffer: {short:?}");
    if code == CUresult::CUDA_SUCCESS {
        ensure!(text(&whole).starts_with(&text(&short[..3])), "{short:?} is not the name's beginning");
    }
    Ok(())
}

fn attributes_are_sane(driver: &Driver) -> Outcome {
    use CUdevice_attribute as Attribute;
    let gpu = Gpu::new(driver)?;
    let exact = [
        (Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, i32::MAX),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65_535),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65_535),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 48 << 10),
        (Attribute::CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 64 << 10),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 64 << 10),
        (Attribute::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1),
    ];
    for (attribute, expected) in exact {
        let value = gpu.attribute(attribute)?;
        ensure!(value == expected, "{attribute:?} is {value} instead of {expected}");
    }
    let positive = [
        Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
        Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
        Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR,
        Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
        Attribute::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR,
        Attribute::CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT,
        Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE,
        Attribute::CU_DEVICE_ATTRIBUTE_MAX_PITCH,
    ];
    for attribute in positive {
        let value = gpu.attribute(attribute)?;
        ensure!(value > 0, "{attribute:?} is {value}");
    }
    let opt_in = gpu.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
    ensure!(opt_in >= 48 << 10, "a block may opt in to {opt_in} bytes of shared memory");
    let noted = [
        Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
        Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE,
        Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED,
        Attribute::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS,
        Attribute::CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH,
        Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
    ];
    for attribute in noted {
        note!("{attribute:?} is {}", gpu.attribute(attribute)?);
    }
    Ok(())
}

fn unknown_attributes_and_devices_are_refused(driver: &Driver) -> Outcome {
    let device = first_device(driver)?;
    let mut value = -1;
    let unknown = CUdevice_attribute(NONE_SUCH.into());
    expect!(driver, cuDeviceGetAttribute(&raw mut value, unknown, device) => CUDA_ERROR_INVALID_VALUE);
    let warp_size = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE;
    let none = CUdevice_v1(NONE_SUCH.into());
    expect!(driver, cuDeviceGetAttribute(&raw mut value, warp_size, none) => CUDA_ERROR_INVALID_DEVICE);
    expect!(driver, cuDeviceGetAttribute(null_mut(), warp_size, device) => CUDA_ERROR_INVALID_VALUE);
    let mut bytes = 0;
    expect!(driver, cuDeviceTotalMem_v2(&raw mut bytes, none) => CUDA_ERROR_INVALID_DEVICE);
    let mut context = NO_CONTEXT;
    expect!(driver, cuDevicePrimaryCtxRetain(&raw mut context, none) => CUDA_ERROR_INVALID_DEVICE);
    Ok(())
}

fn compute_capability_agrees_with_attributes(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (mut major, mut minor) = (-1, -1);
    ok!(driver, cuDeviceComputeCapability(&raw mut major, &raw mut minor, gpu.device));
    let from_attributes = (
        gpu.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
        gpu.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
    );
    ensure!((major, minor) == from_attributes, "{major}.{minor} and {from_attributes:?}");
    ensure!(major >= 7, "compute capability {major}.{minor}");
    Ok(())
}

fn has_memory(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (mut of_device, mut free, mut total) = (0, 0, 0);
    ok!(driver, cuDeviceTotalMem_v2(&raw mut of_device, gpu.device));
    ok!(driver, cuMemGetInfo_v2(&raw mut free, &raw mut total));
    ensure!(of_device > 0, "the device has no memory");
    ensure!(free > 0 && free <= total, "{free} of {total} bytes are free");
    ensure!(total <= of_device, "the device has {of_device} bytes, the context says {total}");
    note!("the context has {} bytes less than the device", of_device - total);
    Ok(())
}

fn has_a_uuid(driver: &Driver) -> Outcome {
    let device = first_device(driver)?;
    let (mut first, mut second) = (CUuuid { bytes: [0; 16] }, CUuuid { bytes: [0; 16] });
    ok!(driver, cuDeviceGetUuid_v2(&raw mut first, device));
    ok!(driver, cuDeviceGetUuid_v2(&raw mut second, device));
    ensure!(first.bytes != [0; 16], "the UUID is zero");
    ensure!(first == second, "two questions, two UUIDs");
    Ok(())
}

fn is_found_by_its_pci_id(driver: &Driver) -> Outcome {
    let device = first_device(driver)?;
    let mut id = [1; 32];
    ok!(driver, cuDeviceGetPCIBusId(id.as_mut_ptr(), 32, device));
    ensure!(id.contains(&0), "the id is not terminated");
    let shown = text(&id);
    ensure!(shown.matches(':').count() == 2 && shown.contains('.'), "{shown} is not domain:bus:device.function");
    let mut found = NO_DEVICE;
    ok!(driver, cuDeviceGetByPCIBusId(&raw mut found, id.as_ptr()));
    ensure!(found == device, "{shown} is {found:?}");
    let nonsense: &CStr = c"nonsense";
    expect!(driver, cuDeviceGetByPCIBusId(&raw mut found, nonsense.as_ptr())
        => CUDA_ERROR_INVALID_VALUE | CUDA_ERROR_INVALID_DEVICE);
    Ok(())
}

fn is_no_peer_of_itself(driver: &Driver) -> Outcome {
    let device = first_device(driver)?;
    let mut can_access = -1;
    ok!(driver, cuDeviceCanAccessPeer(&raw mut can_access, device, device));
    note!("cuDeviceCanAccessPeer of a device with itself says {can_access}");
    Ok(())
}
