//! The libraries have every function that programs are linked against, with the version that they ask for.

#[allow(dead_code, reason = "shared with other tests")]
mod library;

use detshare_cudart::function::{ALSO, DIRECT, Function, GRAPHICS, RELEASE_12, RELEASE_13};
use library::Runtime;

fn missing(release: u32, functions: &[Function]) -> Vec<String> {
    let runtime = Runtime::open(release);
    let variants = functions.iter().chain(ALSO).flat_map(|function| {
        let suffix = Some(function.per_thread).filter(|suffix| !suffix.is_empty());
        [Some(function.name.to_string()), suffix.map(|suffix| format!("{}{suffix}", function.name))]
    });
    let plain = DIRECT.iter().chain(GRAPHICS).map(|name| Some((*name).to_string()));
    variants.chain(plain).flatten().filter(|name| runtime.address(name).is_null()).collect()
}

#[test]
fn cuda_12() {
    assert_eq!(missing(12, RELEASE_12), Vec::<String>::new());
}

#[test]
fn cuda_13() {
    assert_eq!(missing(13, RELEASE_13), Vec::<String>::new());
    assert!(Runtime::open(13).address("cudaNoSuchFunction").is_null());
}
