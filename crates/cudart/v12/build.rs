//! Makes an exported entry for every function of CUDA 12's runtime.

#[path = "../build/exports.rs"]
mod exports;

fn main() {
    exports::write(12, detshare_cudart::function::RELEASE_12);
}
