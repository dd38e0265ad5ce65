//! Why the functions that are not there are not there. `FUNCTIONS.md` is made from this, and a test sees to it that each of
//! them has its reason here and that nothing stands here that is there.

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
            "cudaMallocMipmappedArray",
            "cudaFreeMipmappedArray",
            "cudaGetMipmappedArrayLevel",
            "cudaMipmappedArray*",
            "cudaArrayGetMemoryRequirements",
            "cudaArrayGetPlane",
            "cudaArrayGetSparseProperties",
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
