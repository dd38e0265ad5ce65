//! Why the functions that are not there are not there, and what others refuse. `FUNCTIONS.md` is made from this, and a test sees
//! to it that each of the former has its reason here and that nothing stands here that is there.

use crate::boundary::Outcome;
use crate::types::cudaError_t;

/// A reason with the functions that it holds for, without `_ptsz` and `_ptds`. A name that ends in `*` stands for all that
/// begin so and are not there.
type Reason = (&'static str, &'static [&'static str]);

/// The first that names a function says why.
static REASONS: &[Reason] = &[
    (
        "Textures and surfaces: no PTX of the software GPU can use them.",
        &[
            "cudaCreateSurfaceObject",
            "cudaCreateTextureObject",
            "cudaDestroySurfaceObject",
            "cudaDestroyTextureObject",
            "cudaDeviceGetTexture1DLinearMaxWidth",
            "cudaGetSurfaceObjectResourceDesc",
            "cudaGetTextureObject*",
        ],
    ),
    (
        "Graphics: there is no OpenGL, EGL or VDPAU device to share anything with.",
        &["cudaGraphics*", "cudaGL*", "cudaEGL*", "cudaVDPAU*", "cudaEventCreateFromEGLSync"],
    ),
    (
        "Memory of Vulkan, Direct3D or NvSci: there is no such device. Processes share memory by `cudaIpcGetMemHandle` or by \
         pools.",
        &[
            "cudaImportExternalMemory",
            "cudaDestroyExternalMemory",
            "cudaExternalMemory*",
            "cudaDeviceGetNvSciSyncAttributes",
        ],
    ),
    (
        "What the driver logs, and when it is short of memory: the software GPU tells faults on standard error, and nothing \
         else.",
        &["cudaLogs*", "cudaDeviceRegisterAsyncNotification", "cudaDeviceUnregisterAsyncNotification"],
    ),
    ("Tables that are not documented.", &["cudaGetExportTable"]),
    (
        "Functions that host and device share by their address: the host's code cannot be run by a kernel.",
        &["cudaLibraryGetUnifiedFunction"],
    ),
    (
        "Deprecated by the manual, and only ever worked with one process for each device.",
        &["cudaLaunchCooperativeKernelMultiDevice"],
    ),
];

/// What functions that are there return the code for on the software GPU.
struct Part {
    functions: &'static [&'static str],
    what: &'static str,
    /// The driver's functions that refuse it.
    driver: &'static [&'static str],
}

/// Where they would not on a GPU.
static PARTS: &[Part] = &[
    Part {
        functions: &["cudaMalloc3DArray", "cudaMallocArray", "cudaMallocMipmappedArray"],
        what: "Sparse arrays and deferred mapping.",
        driver: &["cuArray3DCreate_v2", "cuMipmappedArrayCreate"],
    },
    Part {
        functions: &["cudaMemPoolCreate", "cudaMemPoolImportFromShareableHandle"],
        what: "Handles other than file descriptors: those of Windows, and those for other machines (fabric).",
        driver: &["cuMemPoolCreate", "cuMemPoolImportFromShareableHandle"],
    },
    Part {
        functions: &["cudaMemPoolExportToShareableHandle"],
        what: "Pools of the host's and of managed memory.",
        driver: &["cuMemPoolExportToShareableHandle"],
    },
    Part {
        functions: &["cudaIpcGetMemHandle", "cudaMemPoolExportPointer", "cudaMemPoolExportToShareableHandle"],
        what: "Any memory, where the system has given the process none that has a file behind it.",
        driver: &["cuIpcGetMemHandle", "cuMemPoolExportPointer", "cuMemPoolExportToShareableHandle"],
    },
    Part {
        functions: &["cudaImportExternalSemaphore"],
        what: "Semaphores other than opaque file descriptors.",
        driver: &["cuImportExternalSemaphore"],
    },
    Part {
        functions: &["cudaLibraryLoadData", "cudaLibraryLoadFromFile"],
        what: "PTX whose kernels call what the software GPU's [device runtime](../softgpu/DEVICE_RUNTIME.md) has not. In a program's \
               own code the first call that uses a kernel or variable of it returns this.",
        driver: &["cuLibraryLoadData", "cuLibraryLoadFromFile", "cuLinkComplete"],
    },
    Part {
        functions: &[
            "cudaLaunchKernel",
            "cudaLaunchKernelExC",
            "cudaLaunchCooperativeKernel",
            "cudaGraphAddKernelNode",
            "cudaGraphAddNode",
            "cudaGraphKernelNodeSetParams",
            "cudaGraphNodeSetParams",
            "cudaGraphExecKernelNodeSetParams",
            "cudaGraphExecNodeSetParams",
        ],
        what: "Kernels with an [instruction](../softgpu/INSTRUCTIONS.md) that the software GPU has not.",
        driver: &[
            "cuLaunchKernel",
            "cuLaunchKernelEx",
            "cuLaunchCooperativeKernel",
            "cuGraphAddKernelNode_v2",
            "cuGraphAddNode_v2",
            "cuGraphKernelNodeSetParams_v2",
            "cuGraphNodeSetParams",
            "cuGraphExecKernelNodeSetParams_v2",
            "cuGraphExecNodeSetParams",
        ],
    },
    Part {
        functions: &["cudaDeviceFlushGPUDirectRDMAWrites"],
        what: "Always: there is no network card that writes to device memory.",
        driver: &["cuFlushGPUDirectRDMAWrites"],
    },
];

/// Where they do on a GPU, too.
static AS_ON_A_GPU: &[Part] = &[
    Part {
        functions: &["cudaGraphAddChildGraphNode", "cudaGraphAddNode", "cudaGraphClone"],
        what: "A copy of a graph with memory nodes or conditions.",
        driver: &["cuGraphAddChildGraphNode", "cuGraphAddNode_v2", "cuGraphClone"],
    },
    Part {
        functions: &["cudaGraphDestroyNode", "cudaGraphRemoveDependencies"],
        what: "Less of a graph with memory nodes.",
        driver: &["cuGraphDestroyNode", "cuGraphRemoveDependencies", "cuGraphRemoveDependencies_v2"],
    },
    Part {
        functions: &["cudaGraphAddMemAllocNode", "cudaGraphAddMemFreeNode", "cudaGraphAddNode"],
        what: "Memory nodes in a graph that is a part of another.",
        driver: &["cuGraphAddMemAllocNode", "cuGraphAddMemFreeNode", "cuGraphAddNode_v2"],
    },
    Part {
        functions: &["cudaGraphInstantiate", "cudaGraphInstantiateWithFlags", "cudaGraphInstantiateWithParams"],
        what: "A second executable of a graph with memory nodes; a condition's body, or a graph for launches from kernels, with \
               nodes that cannot be in it.",
        driver: &["cuGraphInstantiateWithFlags", "cuGraphInstantiateWithParams"],
    },
];

/// Functions that are there, with what they refuse where they would not on a GPU.
pub fn parts() -> impl Iterator<Item = (&'static [&'static str], &'static str)> {
    PARTS.iter().map(|part| (part.functions, part.what))
}

/// Functions that are there, with what they refuse on a GPU, too.
pub fn as_on_a_gpu() -> impl Iterator<Item = (&'static [&'static str], &'static str)> {
    AS_ON_A_GPU.iter().map(|part| (part.functions, part.what))
}

/// The driver's functions whose refusals are told of.
pub fn refusing() -> impl Iterator<Item = &'static str> {
    PARTS.iter().chain(AS_ON_A_GPU).flat_map(|part| part.driver).copied()
}

/// All reasons.
pub fn reasons() -> impl Iterator<Item = &'static str> {
    REASONS.iter().map(|(reason, _)| *reason)
}

/// The functions that are named one by one.
pub fn named() -> impl Iterator<Item = &'static str> {
    REASONS.iter().flat_map(|(_, names)| *names).copied().filter(|name| !name.ends_with('*'))
}

/// Why the function is not there.
#[must_use]
pub fn reason(function: &str) -> Option<&'static str> {
    let holds_for = |name: &&str| match name.strip_suffix('*') {
        Some(beginning) => function.starts_with(beginning),
        None => *name == function,
    };
    REASONS.iter().find(|(_, names)| names.iter().any(&holds_for)).map(|(reason, _)| *reason)
}

/// What a function returns that is not there. With `DETSHARE_LOG` set, standard error says so.
///
/// # Errors
/// Always.
pub fn refuse(function: &'static str) -> Outcome {
    let is_asked = std::env::var_os("DETSHARE_LOG").is_some_and(|value| !value.is_empty() && value != "0");
    if is_asked {
        let reason = reason(function).unwrap_or_default();
        eprintln!("detshare-cudart[{}]: {function} is not supported. {reason}", std::process::id());
    }
    Err(cudaError_t::cudaErrorNotSupported)
}
