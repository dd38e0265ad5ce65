//! Which options of the driver's compiler a version of a kernel may have been loaded with.

#[path = "../src/block_level/options.rs"]
mod options;

use core::ffi::c_void;
use core::ptr::{null, without_provenance, without_provenance_mut};
use detshare_cuda::types::CUjit_option;

const ARCHITECTURE: u32 = 90;

fn are_harmless(of: &[(CUjit_option, usize)]) -> bool {
    let (options, values): (Vec<_>, Vec<_>) =
        of.iter().map(|(option, value)| (*option, without_provenance_mut::<c_void>(*value))).unzip();
    let count = of.len().try_into().expect("a few");
    // SAFETY: so many of both.
    unsafe { options::are_harmless(options.as_ptr(), values.as_ptr(), count, || ARCHITECTURE) }
}

#[test]
fn what_changes_the_code_is_told_from_what_does_not() {
    use CUjit_option as Is;
    assert!(are_harmless(&[(Is::CU_JIT_LOG_VERBOSE, 1), (Is::CU_JIT_TARGET, 90)]));
    assert!(!are_harmless(&[(Is::CU_JIT_LOG_VERBOSE, 1), (Is::CU_JIT_TARGET, 80)]));
    assert!(!are_harmless(&[(Is::CU_JIT_OPTIMIZATION_LEVEL, 0), (Is::CU_JIT_LOG_VERBOSE, 1)]));
}

/// A program that has no options may hand over whatever its variables held.
#[test]
fn of_no_options_the_pointers_may_be_anything() {
    for address in [0, 1, 3, usize::MAX] {
        // SAFETY: there are none.
        let none = unsafe { options::are_harmless(without_provenance(address), without_provenance(address), 0, || 0) };
        assert!(none, "{address:#x}");
    }
    // SAFETY: nothing is behind NULL.
    assert!(!unsafe { options::are_harmless(null(), null(), 1, || 0) }, "the driver would have refused it");
}
