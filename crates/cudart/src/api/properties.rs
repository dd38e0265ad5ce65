//! What a device is, as one structure and attribute by attribute.

use crate::boundary::{Outcome, give, require};
use crate::context;
use crate::driver::driver;
use crate::types::*;
use core::ffi::{c_int, c_uint};
use detshare_cuda::types::{CUdevice, CUdevice_attribute as Attribute};

/// The numbers of the attributes are the driver's.
pub unsafe fn cudaDeviceGetAttribute(value: *mut c_int, attribute: cudaDeviceAttr, device: c_int) -> Outcome {
    driver!(cuDeviceGetAttribute(value, Attribute(attribute.0), context::handle(device)?))
}

/// An attribute; one that the driver does not know is 0.
unsafe fn attribute(device: CUdevice, which: Attribute) -> Outcome<c_int> {
    let mut value = 0;
    match driver!(cuDeviceGetAttribute(&raw mut value, which, device)) {
        Ok(()) => Ok(value),
        Err(cudaError_t::cudaErrorInvalidValue | cudaError_t::cudaErrorNotSupported) => Ok(0),
        Err(error) => Err(error),
    }
}

/// A number of the structure, as whatever type it has there.
trait Field: Sized {
    fn of(value: c_int) -> Self;
}

impl Field for c_int {
    fn of(value: c_int) -> Self {
        value
    }
}

impl Field for c_uint {
    fn of(value: c_int) -> Self {
        value.cast_unsigned()
    }
}

impl Field for usize {
    fn of(value: c_int) -> Self {
        Self::try_from(value).unwrap_or(0)
    }
}

/// The fields that both releases have, with the attributes that they are.
macro_rules! fill {
    ($properties:ident, $device:ident) => {
        fields!($properties, $device,
            sharedMemPerBlock: CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK,
            regsPerBlock: CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK,
            warpSize: CU_DEVICE_ATTRIBUTE_WARP_SIZE,
            memPitch: CU_DEVICE_ATTRIBUTE_MAX_PITCH,
            maxThreadsPerBlock: CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
            maxThreadsDim [0]: CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X,
            maxThreadsDim [1]: CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y,
            maxThreadsDim [2]: CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z,
            maxGridSize [0]: CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X,
            maxGridSize [1]: CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y,
            maxGridSize [2]: CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z,
            totalConstMem: CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY,
            major: CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            minor: CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            textureAlignment: CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT,
            texturePitchAlignment: CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT,
            multiProcessorCount: CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
            integrated: CU_DEVICE_ATTRIBUTE_INTEGRATED,
            canMapHostMemory: CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY,
            maxTexture1D: CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH,
            maxTexture1DMipmap: CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH,
            maxTexture2D [0]: CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH,
            maxTexture2D [1]: CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT,
            maxTexture2DMipmap [0]: CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH,
            maxTexture2DMipmap [1]: CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT,
            maxTexture2DLinear [0]: CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH,
            maxTexture2DLinear [1]: CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT,
            maxTexture2DLinear [2]: CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH,
            maxTexture2DGather [0]: CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH,
            maxTexture2DGather [1]: CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT,
            maxTexture3D [0]: CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH,
            maxTexture3D [1]: CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT,
            maxTexture3D [2]: CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH,
            maxTexture3DAlt [0]: CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE,
            maxTexture3DAlt [1]: CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE,
            maxTexture3DAlt [2]: CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE,
            maxTextureCubemap: CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH,
            maxTexture1DLayered [0]: CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH,
            maxTexture1DLayered [1]: CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS,
            maxTexture2DLayered [0]: CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH,
            maxTexture2DLayered [1]: CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT,
            maxTexture2DLayered [2]: CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS,
            maxTextureCubemapLayered [0]: CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH,
            maxTextureCubemapLayered [1]: CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS,
            maxSurface1D: CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH,
            maxSurface2D [0]: CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH,
            maxSurface2D [1]: CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT,
            maxSurface3D [0]: CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH,
            maxSurface3D [1]: CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT,
            maxSurface3D [2]: CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH,
            maxSurface1DLayered [0]: CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH,
            maxSurface1DLayered [1]: CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS,
            maxSurface2DLayered [0]: CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH,
            maxSurface2DLayered [1]: CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT,
            maxSurface2DLayered [2]: CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS,
            maxSurfaceCubemap: CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_WIDTH,
            maxSurfaceCubemapLayered [0]: CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH,
            maxSurfaceCubemapLayered [1]: CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS,
            surfaceAlignment: CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT,
            concurrentKernels: CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS,
            ECCEnabled: CU_DEVICE_ATTRIBUTE_ECC_ENABLED,
            pciBusID: CU_DEVICE_ATTRIBUTE_PCI_BUS_ID,
            pciDeviceID: CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID,
            pciDomainID: CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID,
            tccDriver: CU_DEVICE_ATTRIBUTE_TCC_DRIVER,
            asyncEngineCount: CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT,
            unifiedAddressing: CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING,
            memoryBusWidth: CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH,
            l2CacheSize: CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE,
            persistingL2CacheMaxSize: CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE,
            maxThreadsPerMultiProcessor: CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
            streamPrioritiesSupported: CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED,
            globalL1CacheSupported: CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED,
            localL1CacheSupported: CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED,
            sharedMemPerMultiprocessor: CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
            regsPerMultiprocessor: CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR,
            managedMemory: CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY,
            isMultiGpuBoard: CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD,
            multiGpuBoardGroupID: CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID,
            hostNativeAtomicSupported: CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED,
            pageableMemoryAccess: CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS,
            concurrentManagedAccess: CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
            computePreemptionSupported: CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED,
            canUseHostPointerForRegisteredMem: CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
            cooperativeLaunch: CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH,
            sharedMemPerBlockOptin: CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
            pageableMemoryAccessUsesHostPageTables: CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES,
            directManagedMemAccessFromHost: CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST,
            maxBlocksPerMultiProcessor: CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR,
            accessPolicyMaxWindowSize: CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE,
            reservedSharedMemPerBlock: CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK,
            hostRegisterSupported: CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED,
            sparseCudaArraySupported: CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED,
            hostRegisterReadOnlySupported: CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED,
            timelineSemaphoreInteropSupported: CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED,
            memoryPoolsSupported: CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED,
            gpuDirectRDMASupported: CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED,
            gpuDirectRDMAFlushWritesOptions: CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS,
            gpuDirectRDMAWritesOrdering: CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING,
            memoryPoolSupportedHandleTypes: CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES,
            deferredMappingCudaArraySupported: CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED,
            ipcEventSupported: CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED,
            clusterLaunch: CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH,
            unifiedFunctionPointers: CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS,
        );
        driver!(cuDeviceGetName($properties.name.as_mut_ptr(), NAME_LENGTH, $device))?;
        driver!(cuDeviceGetUuid_v2(&raw mut $properties.uuid, $device))?;
        driver!(cuDeviceTotalMem_v2(&raw mut $properties.totalGlobalMem, $device))?;
    };
}

macro_rules! fields {
    ($properties:ident, $device:ident, $($field:ident $([$index:literal])?: $attribute:ident),* $(,)?) => {
        $($properties.$field$([$index])? = Field::of(attribute($device, Attribute::$attribute)?);)*
    };
}

const NAME_LENGTH: c_int = 256;

pub unsafe fn cudaGetDeviceProperties(properties: *mut cudaDeviceProp, device: c_int) -> Outcome {
    require(!properties.is_null())?;
    let device = context::handle(device)?;
    // SAFETY: numbers and letters, all of which may be zero.
    let mut found: cudaDeviceProp = unsafe { core::mem::zeroed() };
    fill!(found, device);
    fields!(found, device,
        deviceNumaConfig: CU_DEVICE_ATTRIBUTE_NUMA_CONFIG,
        deviceNumaId: CU_DEVICE_ATTRIBUTE_NUMA_ID,
        mpsEnabled: CU_DEVICE_ATTRIBUTE_MPS_ENABLED,
        hostNumaId: CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID,
        gpuPciDeviceID: CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID,
        gpuPciSubsystemID: CU_DEVICE_ATTRIBUTE_GPU_PCI_SUBSYSTEM_ID,
        hostNumaMultinodeIpcSupported: CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED,
    );
    give(properties, found)
}

/// The structure of CUDA 12, which has clocks and a few more.
pub(super) unsafe fn properties_12(properties: *mut cudaDeviceProp_12, device: c_int) -> Outcome {
    require(!properties.is_null())?;
    let device = context::handle(device)?;
    // SAFETY: numbers and letters, all of which may be zero.
    let mut found: cudaDeviceProp_12 = unsafe { core::mem::zeroed() };
    fill!(found, device);
    fields!(found, device,
        clockRate: CU_DEVICE_ATTRIBUTE_CLOCK_RATE,
        deviceOverlap: CU_DEVICE_ATTRIBUTE_GPU_OVERLAP,
        kernelExecTimeoutEnabled: CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT,
        computeMode: CU_DEVICE_ATTRIBUTE_COMPUTE_MODE,
        maxTexture1DLinear: CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH,
        memoryClockRate: CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE,
        singleToDoublePrecisionPerfRatio: CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO,
        cooperativeMultiDeviceLaunch: CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH,
    );
    give(properties, found)
}

/// All devices of the software GPU are alike, and those of one machine mostly are: the one with most of the properties
/// that were asked for is the first that has the compute capability, or the first.
pub(super) fn best_for(major: c_int, minor: c_int) -> Outcome<c_int> {
    use Attribute as A;
    for device in 0..context::count()? {
        let handle = context::handle(device)?;
        // SAFETY: a device and a place for a number.
        let (has_major, has_minor) = unsafe {
            (
                attribute(handle, A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                attribute(handle, A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            )
        };
        if (has_major, has_minor) >= (major, minor) {
            return Ok(device);
        }
    }
    Ok(0)
}

pub unsafe fn cudaChooseDevice(device: *mut c_int, properties: *const cudaDeviceProp) -> Outcome {
    require(!properties.is_null())?;
    give(device, best_for((*properties).major, (*properties).minor)?)
}
