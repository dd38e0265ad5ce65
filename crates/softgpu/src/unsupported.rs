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
        "Sparse arrays serve textures, which are not there; `CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED` and \
         `…_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED` are 0.",
        &["cuMemMapArrayAsync"],
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

/// What functions that are there return `CUDA_ERROR_NOT_SUPPORTED` for.
struct Part {
    functions: &'static [&'static str],
    what: &'static str,
    /// Where the sources return it, file and function.
    places: &'static [&'static str],
}

/// Where a GPU's driver would not.
static PARTS: &[Part] = &[
    Part {
        functions: &["cuTensorMapEncodeTiled"],
        what: "Interleaved layouts (channels in groups of 16 or 32 bytes): as for maps of windows, nothing that was tried uses \
               them, and there are no results of an H200 to compare with.",
        places: &["api/tensor_map.rs: cuTensorMapEncodeTiled"],
    },
    Part {
        functions: &["cuCtxCreate_v4"],
        what: "A number of SMs for the context, which a GPU has under MPS only, and contexts shared with graphics.",
        places: &["api/context.rs: cuCtxCreate_v4"],
    },
    Part {
        functions: &[
            "cuMemCreate",
            "cuMemGetAllocationGranularity",
            "cuMemImportFromShareableHandle",
            "cuMemPoolCreate",
            "cuMemPoolImportFromShareableHandle",
        ],
        what: "Handles other than file descriptors: those of Windows, and those for other machines (fabric).",
        places: &[
            "api/pool.rs: cuMemPoolCreate",
            "api/pool_sharing.rs: cuMemPoolImportFromShareableHandle",
            "api/virtual_memory.rs: cuMemImportFromShareableHandle",
            "api/virtual_memory.rs: properties",
        ],
    },
    Part {
        functions: &["cuMemPoolExportToShareableHandle"],
        what: "Pools of the host's and of managed memory: other processes map what lies on a device.",
        places: &["api/pool_sharing.rs: cuMemPoolExportToShareableHandle"],
    },
    Part {
        functions: &["cuIpcGetMemHandle", "cuMemPoolExportPointer", "cuMemPoolExportToShareableHandle"],
        what: "Any memory, where the system has given the process none that has a file behind it (`memfd_create`): nobody else \
               could map it.",
        places: &["api/ipc.rs: of", "api/pool_sharing.rs: cuMemPoolExportToShareableHandle"],
    },
    Part {
        functions: &["cuImportExternalSemaphore"],
        what: "Semaphores other than opaque file descriptors: there is no device they could be of.",
        places: &["api/external_semaphore.rs: cuImportExternalSemaphore"],
    },
    Part {
        functions: &["cuArray3DCreate_v2", "cuMipmappedArrayCreate"],
        what: "Sparse arrays and deferred mapping, as below.",
        places: &["array.rs: check"],
    },
    Part {
        functions: &["cuPointerGetAttribute"],
        what: "Tokens for the driver of a network card.",
        places: &["api/pointer.rs: value"],
    },
    Part {
        functions: &[
            "cuModuleLoad",
            "cuModuleLoadData",
            "cuModuleLoadDataEx",
            "cuModuleLoadFatBinary",
            "cuLibraryLoadData",
            "cuLibraryLoadFromFile",
            "cuLinkComplete",
        ],
        what: "PTX whose kernels call what a GPU's device runtime has and this one has not \
               ([DEVICE_RUNTIME.md](DEVICE_RUNTIME.md)); `DETSHARE_LOG=1` names it.",
        places: &["module.rs: load_for"],
    },
    Part {
        functions: &[
            "cuLaunchKernel",
            "cuLaunchKernelEx",
            "cuLaunchCooperativeKernel",
            "cuLaunch",
            "cuLaunchGrid",
            "cuLaunchGridAsync",
            "cuGraphAddKernelNode",
            "cuGraphAddKernelNode_v2",
            "cuGraphAddNode",
            "cuGraphAddNode_v2",
            "cuGraphKernelNodeSetParams",
            "cuGraphKernelNodeSetParams_v2",
            "cuGraphNodeSetParams",
            "cuGraphExecKernelNodeSetParams",
            "cuGraphExecKernelNodeSetParams_v2",
            "cuGraphExecNodeSetParams",
        ],
        what: "Kernels with an instruction that is not in [INSTRUCTIONS.md](INSTRUCTIONS.md); `DETSHARE_LOG=1` names it.",
        places: &["api/launch.rs: shape"],
    },
];

/// Where a GPU's driver does, too.
static AS_ON_A_GPU: &[Part] = &[
    Part { functions: &["cuMemMap"], what: "More than was made.", places: &["api/virtual_memory.rs: cuMemMap"] },
    Part {
        functions: &["cuGraphAddChildGraphNode", "cuGraphAddNode", "cuGraphAddNode_v2", "cuGraphClone"],
        what: "A copy of a graph with memory nodes or conditions, or a graph that is a part of another already.",
        places: &["api/graph_any.rs: child_content", "graph.rs: duplicate"],
    },
    Part {
        functions: &["cuGraphDestroyNode", "cuGraphRemoveDependencies", "cuGraphRemoveDependencies_v2"],
        what: "Less of a graph with memory nodes.",
        places: &["api/graph.rs: cuGraphDestroyNode", "api/graph_edges.rs: cuGraphRemoveDependencies_v2"],
    },
    Part {
        functions: &["cuGraphAddMemAllocNode", "cuGraphAddMemFreeNode", "cuGraphAddNode", "cuGraphAddNode_v2"],
        what: "Memory nodes in a graph that is a part of another.",
        places: &["api/graph_memory.rs: refuse_in_owned"],
    },
    Part {
        functions: &[
            "cuGraphInstantiate",
            "cuGraphInstantiateWithFlags",
            "cuGraphInstantiateWithParams",
            "cuGraphInstantiate_v2",
        ],
        what: "A second executable of a graph with memory nodes; a condition's body, or a graph for launches from kernels, with \
               nodes that cannot be in it.",
        places: &["graph/executable.rs: create", "graph/executable.rs: not_supported"],
    },
];

/// Functions that are there, and do less than a GPU's driver without saying so by a code.
static LESS: &[(&[&str], &str)] = &[
    (
        &[
            "cuArrayGetMemoryRequirements",
            "cuArrayGetPlane",
            "cuArrayGetSparseProperties",
            "cuMipmappedArrayGetMemoryRequirements",
            "cuMipmappedArrayGetSparseProperties",
        ],
        "`CUDA_ERROR_INVALID_VALUE`, as the manual says of arrays that are not sparse, have their memory and one plane: there are \
         no others.",
    ),
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

/// Functions that are there, with what they refuse where a GPU's driver would not.
pub fn parts() -> impl Iterator<Item = (&'static [&'static str], &'static str)> {
    PARTS.iter().map(|part| (part.functions, part.what))
}

/// Functions that are there, with what they refuse as a GPU's driver does.
pub fn as_on_a_gpu() -> impl Iterator<Item = (&'static [&'static str], &'static str)> {
    AS_ON_A_GPU.iter().map(|part| (part.functions, part.what))
}

/// All places in the sources where a function that is there returns the code.
pub fn places() -> impl Iterator<Item = &'static str> {
    PARTS.iter().chain(AS_ON_A_GPU).flat_map(|part| part.places).copied()
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
