//! Why the functions that are not there are not there. `FUNCTIONS.md` is made from this, and a test sees to it that
//! each of them has its reason here and that nothing stands here that is there.

/// A reason with the functions that it holds for, without `_ptsz` and `_ptds`. A name that ends in `*` stands for all
/// that begin so and are not there.
type Reason = (&'static str, &'static [&'static str]);

/// The first that names a function says why.
static REASONS: &[Reason] = &[
    (
        "Not written: textures and surfaces are left out, and no PTX of the software GPU can use them.",
        &[
            "cuTex*",
            "cuSurf*",
            "cuModuleGetTexRef",
            "cuModuleGetSurfRef",
            "cuParamSetTexRef",
            "cuDeviceGetTexture1DLinearMaxWidth",
        ],
    ),
    (
        "Graphics: there is no OpenGL, EGL or VDPAU device to share anything with.",
        &["cuGL*", "cuEGL*", "cuVDPAU*", "cuGraphics*"],
    ),
    (
        "Memory of Vulkan, Direct3D or NvSci: there is no such device. Processes share memory by \
         `cuMemExportToShareableHandle` or `cuIpcGetMemHandle`.",
        &["cuImportExternalMemory", "cuDestroyExternalMemory", "cuExternalMemory*", "cuDeviceGetNvSciSyncAttributes"],
    ),
    (
        "Not written: one grid over several devices, whose blocks wait for each other. The manual deprecates it since CUDA 11.3, \
         and CUDA 13's runtime has it no more.",
        &["cuLaunchCooperativeKernelMultiDevice"],
    ),
    (
        "The 32-bit addresses and sizes of CUDA before 3.2; programs built since then call the `_v2` of the same name.",
        &[
            "cuMemAlloc",
            "cuMemAllocHost",
            "cuMemAllocPitch",
            "cuMemFree",
            "cuMemGetAddressRange",
            "cuMemGetInfo",
            "cuMemHostGetDevicePointer",
            "cuMemcpy2D",
            "cuMemcpy2DAsync",
            "cuMemcpy2DUnaligned",
            "cuMemcpy3D",
            "cuMemcpy3DAsync",
            "cuMemcpyAtoA",
            "cuMemcpyAtoD",
            "cuMemcpyAtoH",
            "cuMemcpyAtoHAsync",
            "cuMemcpyDtoA",
            "cuMemcpyDtoD",
            "cuMemcpyDtoDAsync",
            "cuMemcpyDtoH",
            "cuMemcpyDtoHAsync",
            "cuMemcpyHtoA",
            "cuMemcpyHtoAAsync",
            "cuMemcpyHtoD",
            "cuMemcpyHtoDAsync",
            "cuMemsetD16",
            "cuMemsetD2D16",
            "cuMemsetD2D32",
            "cuMemsetD2D8",
            "cuMemsetD32",
            "cuMemsetD8",
            "cuArray3DCreate",
            "cuArray3DGetDescriptor",
            "cuArrayCreate",
            "cuArrayGetDescriptor",
            "cuDeviceTotalMem",
            "cuModuleGetGlobal",
        ],
    ),
    (
        "Multicast joins the memory of several devices behind an NVSwitch; the attribute \
         `CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED` is 0 here.",
        &["cuMulticast*"],
    ),
    (
        "Needs the decompression engine that came after the H200; `CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK` is 0.",
        &["cuMemBatchDecompressAsync"],
    ),
    (
        "Needs a network card that writes to device memory; `CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED` is 0.",
        &["cuFlushGPUDirectRDMAWrites"],
    ),
    (
        "Hands device memory to other drivers of the system as a dma-buf; the software GPU is no driver of the system, \
         and `CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED` is 0.",
        &["cuMemGetHandleForAddressRange"],
    ),
    (
        "Sparse arrays, deferred mapping and planar formats serve textures, which are not there; \
         `CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED` and `…_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED` are 0.",
        &[
            "cuMemMapArrayAsync",
            "cuArrayGetSparseProperties",
            "cuArrayGetMemoryRequirements",
            "cuArrayGetPlane",
            "cuMipmappedArrayGetSparseProperties",
            "cuMipmappedArrayGetMemoryRequirements",
        ],
    ),
    ("Windows only.", &["cuDeviceGetLuid"]),
    ("For the vendor's debugger, by a protocol that no public header describes.", &["cudbg*"]),
    (
        "Not written: they put a process's device memory aside so that a tool such as CRIU can save the process.",
        &["cuCheckpoint*"],
    ),
    ("Returns that on a GPU too: the manual says so of all drivers since CUDA 12.", &["cuProfilerInitialize"]),
    (
        "Notes on the budget of a virtual GPU: there is none.",
        &["cuDeviceRegisterAsyncNotification", "cuDeviceUnregisterAsyncNotification"],
    ),
    ("No public header describes it.", &["cuMemGetAttribute", "cuMemGetAttribute_v2"]),
    ("Functions that kernels and the host share by address: PTX modules have none.", &["cuLibraryGetUnifiedFunction"]),
    (
        "Copies of windows as convolutions take them. No program that the software GPU was tried with makes such maps: they \
         serve libraries whose kernels are machine code. What an H200 does at the edges of a window is not recorded, so \
         nothing could be compared with it.",
        &["cuTensorMapEncodeIm2col"],
    ),
    (
        "PTX has the copies of such maps (`.im2col::w`) for devices after the H200 only.",
        &["cuTensorMapEncodeIm2colWide"],
    ),
];

/// What functions that are there return `CUDA_ERROR_NOT_SUPPORTED` for, where a GPU would not.
static PARTS: &[(&[&str], &str)] = &[
    (
        &["cuTensorMapEncodeTiled"],
        "Interleaved layouts (channels in groups of 16 or 32 bytes): as for maps of windows, nothing that was tried uses \
         them, and there are no results of an H200 to compare with.",
    ),
    (
        &["cuCtxCreate_v4"],
        "A number of SMs for the context, which a GPU has under MPS only, and contexts shared with graphics.",
    ),
    (
        &["cuMemCreate", "cuMemImportFromShareableHandle", "cuMemPoolCreate", "cuMemPoolImportFromShareableHandle"],
        "Handles other than file descriptors: those of Windows, and those for other machines (fabric).",
    ),
    (
        &["cuImportExternalSemaphore"],
        "Semaphores other than opaque file descriptors: there is no device they could be of.",
    ),
    (&["cuArray3DCreate_v2", "cuMipmappedArrayCreate"], "Sparse arrays and deferred mapping, as below."),
    (&["cuPointerGetAttribute"], "Tokens for the driver of a network card."),
    (
        &["cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel"],
        "Kernels with an instruction that is not in [INSTRUCTIONS.md](INSTRUCTIONS.md); `DETSHARE_LOG=1` names it.",
    ),
];

/// Functions that are there, and do less than a GPU's driver without saying so by a code.
static LESS: &[(&[&str], &str)] = &[
    (
        &[
            "cuLogsCurrent",
            "cuLogsDumpToFile",
            "cuLogsDumpToMemory",
            "cuLogsRegisterCallback",
            "cuLogsUnregisterCallback",
        ],
        "The log is always empty, and nobody is called back: with `DETSHARE_LOG=1` standard error has what there is to say.",
    ),
    (
        &[
            "cuCoredumpGetAttribute",
            "cuCoredumpGetAttributeGlobal",
            "cuCoredumpSetAttribute",
            "cuCoredumpSetAttributeGlobal",
        ],
        "Settings are kept, but no core dump is written: standard error tells of a fault.",
    ),
];

/// Why the function is not there; None for one that has no entry.
pub fn reason(name: &str) -> Option<&'static str> {
    let name = name.strip_suffix("_ptsz").or_else(|| name.strip_suffix("_ptds")).unwrap_or(name);
    let names = |pattern: &str| match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == pattern,
    };
    REASONS.iter().find(|(_, patterns)| patterns.iter().any(|pattern| names(pattern))).map(|(reason, _)| *reason)
}

/// Functions that are there, with what they refuse.
pub fn parts() -> impl Iterator<Item = (&'static [&'static str], &'static str)> {
    PARTS.iter().copied()
}

/// Functions that are there, with what they leave undone.
pub fn less() -> impl Iterator<Item = (&'static [&'static str], &'static str)> {
    LESS.iter().copied()
}

/// All reasons in the order that they are told in.
pub fn reasons() -> impl Iterator<Item = &'static str> {
    REASONS.iter().map(|(reason, _)| *reason)
}

/// Every function that has an entry of its own, which therefore must not be there.
pub fn named() -> impl Iterator<Item = &'static str> {
    REASONS.iter().flat_map(|(_, patterns)| *patterns).copied().filter(|pattern| !pattern.ends_with('*'))
}
