//! The device runtime: functions that programs take from NVIDIA's `libcudadevrt.a`. That is machine code; ours is PTX.
//! `DEVICE_RUNTIME.md` is made from what the header declares, what is here and why the rest is not.

use crate::exec;
use crate::memory;
use core::sync::atomic::{AtomicU8, Ordering};
use detshare_cuda::{runtime_error_name, runtime_errors};
use std::collections::HashMap;
use std::ffi::CStr;
use std::sync::Mutex;

#[rustfmt::skip]
mod generated {
    include!("generated/device_runtime.rs");
}

/// What takes the library's place.
pub(crate) const TEXT: &str = include_str!("device_runtime.ptx");

/// What a static library begins with.
const ARCHIVE: &[u8] = b"!<arch>\n";
/// The library's one object.
const OBJECT: &[u8] = b"cuda_device_runtime.o";
/// How the functions of the second version begin, where the header has those of the first beside them.
const SECOND: &str = "__cudaCDP2";

/// A reason with the functions that it holds for.
type Reason = (&'static str, &'static [&'static str]);

/// The first version, by its functions' names alone.
const FIRST_VERSION: &str = "The first version of kernels that launch kernels: programs have it by `-DCUDA_FORCE_CDP1_IF_SUPPORTED` \
     alone, and devices from compute capability 9.0 on do not.";

const WAITING: &str =
    "The header says that modules which wait for their kernels do not load on devices from compute capability 9.0 on.";

const UNDEFINED: &str = "The header declares it, and NVIDIA's library does not define it (CUDA 12.9, 13.0 and 13.5): no program that calls it \
     can be linked.";

static REASONS: &[Reason] = &[
    (
        "Not written: graphs that kernels launch, and nodes that kernels change; the host instantiates graphs for that as on a GPU.",
        &[
            "cudaGraphLaunch",
            "cudaGraphKernelNodeSetEnabled",
            "cudaGraphKernelNodeSetGridDim",
            "cudaGraphKernelNodeSetParam",
            "cudaGraphKernelNodeUpdatesApply",
        ],
    ),
    (
        "For one grid over several devices, which nothing launches here (`cuLaunchCooperativeKernelMultiDevice`).",
        &["cudaCGGetRank", "cudaCGGetSize"],
    ),
    (
        "The headers of CUDA 12 and 13 declare it and never call it; what it does is documented nowhere.",
        &["cudaCGSynchronizeGrid"],
    ),
    (WAITING, &["cudaDeviceSynchronize", "__cudaDeviceSynchronizeDeprecationAvoidance"]),
    (UNDEFINED, &["__cudaCDP2EventRecordWithFlags", "__cudaCDP2EventRecordWithFlags_ptsz"]),
    (FIRST_VERSION, &[]),
];

/// What functions that are there do not do, or otherwise than NVIDIA's.
static PARTS: &[Reason] = &[
    ("Arrays: `cudaErrorNotSupported`.", &["__cudaCDP2Memcpy3DAsync", "__cudaCDP2Memcpy3DAsync_ptsz"]),
    (
        "As the kernel was compiled; what the host has set of it by `cudaFuncSetAttribute` is not looked at.",
        &[
            "__cudaCDP2FuncGetAttributes",
            "__cudaCDP2OccupancyMaxActiveBlocksPerMultiprocessor",
            "__cudaCDP2OccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
        ],
    ),
    (
        "Values other than 0 are taken as they are given, as the manual has it; with NVIDIA's library (CUDA 13.0) an H200 fills with 0.",
        &["__cudaCDP2MemsetAsync", "__cudaCDP2MemsetAsync_ptsz"],
    ),
    (
        "Kernels with an instruction that is not in [INSTRUCTIONS.md](INSTRUCTIONS.md): `cudaErrorNotSupported`.",
        &[
            "__cudaCDP2LaunchDevice",
            "__cudaCDP2LaunchDeviceV2",
            "__cudaCDP2LaunchDeviceV2_ptsz",
            "__cudaCDP2LaunchDevice_ptsz",
        ],
    ),
    (
        "A thread's own default stream is that of its block: more order than there has to be.",
        &["__cudaCDP2LaunchDeviceV2_ptsz", "__cudaCDP2LaunchDevice_ptsz"],
    ),
];

/// Whether these bytes are that library: the names of an archive's members are at its beginning.
pub(crate) fn is_it(bytes: &[u8]) -> bool {
    const NAMES: usize = 64 << 10;
    let names = &bytes[..bytes.len().min(NAMES)];
    names.starts_with(ARCHIVE) && names.windows(OBJECT.len()).any(|name| name == OBJECT)
}

/// Whether these texts need it: nvcc has programs linked with it that launch kernels from kernels, and a text alone says so by
/// what it declares. One that was compiled for no such library has functions of these names, which fail, in itself.
pub(crate) fn is_needed(texts: &[String]) -> bool {
    let declares = |text: &String| {
        let mut declarations = text.split(".extern").skip(1).filter_map(|rest| rest.split(';').next());
        declarations.any(|declaration| declaration.contains(SECOND))
    };
    texts.iter().any(declares) && !texts.iter().any(|text| text.starts_with(TEXT))
}

/// What the header declares for kernels.
pub fn declared() -> impl Iterator<Item = &'static str> {
    generated::DECLARED.into_iter()
}

/// Whether kernels can call that.
#[must_use]
pub fn has(function: &str) -> bool {
    let defines = |line: &str| {
        let rest = line.strip_prefix(".visible .func ").and_then(|rest| rest.split_once(") "));
        let name = rest.and_then(|(_, rest)| rest.split('(').next());
        let alias = || line.strip_prefix(".alias ").and_then(|rest| rest.split(',').next());
        name.or_else(alias) == Some(function)
    };
    exec::is_of_the_system(function) || TEXT.lines().any(defines)
}

/// Why the function is not there; None for one that has no entry.
#[must_use]
pub fn reason(function: &str) -> Option<&'static str> {
    let named = REASONS.iter().find(|(_, names)| names.contains(&function)).map(|(reason, _)| *reason);
    named.or_else(|| is_of_first_version(function).then_some(FIRST_VERSION))
}

/// `cudaMalloc`, as there is `__cudaCDP2Malloc`.
fn is_of_first_version(function: &str) -> bool {
    let plain = |second: &str| second.strip_prefix(SECOND).map(str::to_string);
    let name = function.strip_prefix("cuda");
    name.is_some() && declared().filter_map(plain).any(|second| Some(second.as_str()) == name)
}

/// All reasons in the order that they are told in.
pub fn reasons() -> impl Iterator<Item = &'static str> {
    REASONS.iter().map(|(reason, _)| *reason)
}

/// Every function that has an entry of its own, which therefore must not be there.
pub fn named() -> impl Iterator<Item = &'static str> {
    REASONS.iter().flat_map(|(_, names)| *names).copied()
}

/// Functions that are there, with what is otherwise.
pub fn parts() -> impl Iterator<Item = (&'static [&'static str], &'static str)> {
    PARTS.iter().map(|(what, names)| (*names, *what))
}

/// Whether a device of this kind has that function and we have not.
pub(crate) fn lacks(function: &str) -> bool {
    let is_gone = || matches!(reason(function), Some(FIRST_VERSION | WAITING | UNDEFINED));
    declared().any(|name| name == function) && !has(function) && !is_gone()
}

/// Where kernels find what an error is called, or what it means; 0 where there is no memory for that.
pub(crate) fn error_text(error: u32, wants_name: bool) -> u64 {
    static TEXTS: Mutex<Option<HashMap<(u32, bool), u64>>> = Mutex::new(None);
    // What no error is called is called by every number that is none.
    const NO_ERROR: u32 = u32::MAX;
    let mut texts = TEXTS.lock().expect("no panic while it is held");
    if texts.is_none() {
        let none = runtime_error_name(NO_ERROR);
        let all = runtime_errors().chain([(NO_ERROR, none, none)]);
        *texts = in_device_memory(all.flat_map(|(error, name, text)| [((error, true), name), ((error, false), text)]));
    }
    let Some(texts) = &*texts else { return 0 };
    texts.get(&(error, wants_name)).or_else(|| texts.get(&(NO_ERROR, wants_name))).copied().unwrap_or(0)
}

/// Puts texts one behind the other where kernels of all devices can read them, for as long as there is the process.
fn in_device_memory<K: Eq + std::hash::Hash>(
    texts: impl Iterator<Item = (K, &'static CStr)>,
) -> Option<HashMap<K, u64>> {
    let mut bytes = Vec::new();
    let mut places = HashMap::new();
    for (key, text) in texts {
        places.insert(key, bytes.len() as u64);
        bytes.extend_from_slice(text.to_bytes_with_nul());
    }
    let start = memory::allocate_for_all(bytes.len() as u64)?;
    let place = core::ptr::with_exposed_provenance_mut::<u8>(usize::try_from(start).ok()?);
    for (at, byte) in bytes.into_iter().enumerate() {
        // SAFETY: a byte of an allocation of that many, which nobody else knows of yet; kernels read it by atomic accesses.
        unsafe { AtomicU8::from_ptr(place.wrapping_add(at)) }.store(byte, Ordering::Relaxed);
    }
    places.values_mut().for_each(|place| *place += start);
    Some(places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::module::Module;

    #[test]
    fn the_library_is_known_by_its_object() {
        assert!(is_it(b"!<arch>\n//    24    `\ncuda_device_runtime.o/\n"));
        assert!(!is_it(b"!<arch>\n//    24    `\nother.o/\n"));
        assert!(!is_it(b"cuda_device_runtime.o"));
        assert!(!is_it(b""));
    }

    #[test]
    fn it_comes_along_once() {
        let caller = ".extern .func (.param .b32 r) __cudaCDP2GetLastError();".to_string();
        assert!(is_needed(std::slice::from_ref(&caller)));
        assert!(!is_needed(&[caller, TEXT.to_string()]));
        assert!(!is_needed(&[".version 8.0".to_string()]));
        let own = ".extern .func f(); .weak .func (.param .b32 r) __cudaCDP2GetLastError() { ret; }";
        assert!(
            !is_needed(&[own.to_string()]),
            "without a library for kernels, nvcc puts functions that fail into the program"
        );
    }

    #[test]
    fn our_functions_load() {
        let module = Module::load(&[TEXT.to_string()], None);
        assert!(module.is_ok_and(|module| {
            module.unload();
            true
        }));
    }

    #[test]
    fn what_a_gpu_has_and_what_no_gpu_has_are_told_apart() {
        assert!(lacks("cudaGraphLaunch"), "an H200 has it");
        assert!(!lacks("__cudaCDP2Malloc") && !lacks("cudaGraphSetConditional"), "they are there");
        assert!(!lacks("cudaMalloc") && !lacks("cudaDeviceSynchronize"), "a GPU of this kind does not have them");
        assert!(!lacks("__cudaCDP2EventRecordWithFlags"), "no GPU has it");
        assert!(!lacks("cudaSomethingElse"));
    }

    #[test]
    fn errors_have_their_texts_where_kernels_can_read_them() {
        let text = |error, wants_name| {
            let place = error_text(error, wants_name);
            let text = core::ptr::with_exposed_provenance(usize::try_from(place).unwrap());
            // SAFETY: a text that ends with zero, and stays.
            unsafe { CStr::from_ptr(text) }
        };
        assert_eq!(text(9, true), c"cudaErrorInvalidConfiguration");
        assert_eq!(text(9, false), c"invalid configuration");
        assert_eq!(text(4_711, true), c"unrecognized error code");
        assert_eq!(text(4_711, false), c"unrecognized error code");
    }
}
