//! `libcudart.so.13`: the runtime that programs of CUDA 13 are linked against (`nvcc -cudart shared`), on top of whatever
//! driver the loader finds. Everything stands in `detshare_cudart`; here are only the exported names, made by the build
//! script from the table of that release.

#![allow(non_snake_case, clippy::too_many_arguments, reason = "names and arguments are the C API's")]

use core::ffi::*;
use detshare_cudart::types::*;
use detshare_cudart::{api, boundary, direct, unsupported};

include!(concat!(env!("OUT_DIR"), "/exports.rs"));
