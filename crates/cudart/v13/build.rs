//! Makes an exported entry for every function of CUDA 13's runtime.

#[path = "../build/exports.rs"]
mod exports;

fn main() {
    exports::write(13, detshare_cudart::function::RELEASE_13);
}
