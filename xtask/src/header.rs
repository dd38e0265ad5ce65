//! CUDA's headers and libclang.

use crate::pypi::install;
use anyhow::Result;
use std::path::PathBuf;

/// The header that the committed table was made from: the release whose driver the table was compared with.
const HEADER: &str = "nvidia-cuda-runtime==13.0.96";
/// The last release before it, for its runtime's functions.
#[cfg(feature = "generate")]
const HEADER_12: &str = "nvidia-cuda-runtime-cu12==12.9.79";
#[cfg(feature = "generate")]
const LIBCLANG: &str = "libclang==18.1.1";

/// The folder with `cuda.h`.
pub(crate) fn cuda_include() -> Result<PathBuf> {
    Ok(install(&[HEADER])?.join("nvidia/cu13/include"))
}

/// The folder with the older release's `cuda_runtime_api.h`.
#[cfg(feature = "generate")]
pub(crate) fn runtime_12_include() -> Result<PathBuf> {
    Ok(install(&[HEADER_12])?.join("nvidia/cuda_runtime/include"))
}

/// The folder with `libclang.so`.
#[cfg(feature = "generate")]
pub(crate) fn libclang() -> Result<PathBuf> {
    Ok(install(&[LIBCLANG])?.join("clang/native"))
}
