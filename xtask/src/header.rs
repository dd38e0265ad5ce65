//! CUDA's headers and libclang.

use crate::pypi::install;
use anyhow::Result;
use std::path::PathBuf;

/// The header that the committed table was made from: the release whose driver the table was compared with.
const HEADER: &str = "nvidia-cuda-runtime==13.0.96";
#[cfg(feature = "generate")]
const LIBCLANG: &str = "libclang==18.1.1";

/// The folder with `cuda.h`.
pub(crate) fn cuda_include() -> Result<PathBuf> {
    Ok(install(&[HEADER])?.join("nvidia/cu13/include"))
}

/// The folder with `libclang.so`.
#[cfg(feature = "generate")]
pub(crate) fn libclang() -> Result<PathBuf> {
    Ok(install(&[LIBCLANG])?.join("clang/native"))
}
