//! Makes an exported entry for every function of the driver.

use detshare_cuda::functions;
use std::fmt::Write;
use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    let mut text = String::new();
    for (index, function) in functions().iter().enumerate() {
        writeln!(text, "entry!({}, {index});", function.name).expect("a string takes any text");
    }
    let addresses: Vec<_> = functions().iter().map(|function| format!("Address({})", function.name)).collect();
    writeln!(text, "static ADDRESSES: [Address; {}] = [{}];", addresses.len(), addresses.join(", "))
        .expect("a string takes any text");
    let folder = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    std::fs::write(Path::new(&folder).join("entries.rs"), text).expect("cargo's OUT_DIR can be written");
}
