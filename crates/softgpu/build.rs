//! Makes an exported entry for every function of the driver: those written in `src/api` with their arguments
//! and an explicit stream, all others as "not supported".

use detshare_cuda::{DefaultStream, Function, StreamUse, functions};
use std::collections::HashSet;
use std::fmt::Write;
use std::path::Path;

const IMPLEMENTATION: &str = "pub(crate) unsafe fn cu";

fn main() {
    println!("cargo::rerun-if-changed=src/api");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // Threads of the device run until the process ends, so a dlclose must not unmap their code.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    let implemented = implemented();
    let mut text = String::new();
    for function in functions() {
        if implemented.contains(unsuffixed(function.name)) {
            text.push_str(&entry(function));
        } else {
            let name = function.name;
            writeln!(
                text,
                "#[unsafe(no_mangle)]\nextern \"C\" fn {name}() -> CUresult {{ boundary::not_supported({name:?}) }}"
            )
            .expect("a string takes any text");
        }
    }
    let addresses: Vec<_> = functions().iter().map(|it| format!("Address({} as *const c_void)", it.name)).collect();
    let supported: Vec<_> =
        functions().iter().map(|it| implemented.contains(unsuffixed(it.name)).to_string()).collect();
    let count = functions().len();
    write!(
        text,
        "pub(crate) static ADDRESSES: [Address; {count}] = [{}];\n\
         /// Whether each function of the table is there.\npub static SUPPORTED: [bool; {count}] = [{}];\n",
        addresses.join(", "),
        supported.join(", ")
    )
    .expect("a string takes any text");
    let folder = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    std::fs::write(Path::new(&folder).join("exports.rs"), text).expect("cargo's OUT_DIR can be written");
}

fn unsuffixed(name: &str) -> &str {
    name.strip_suffix("_ptsz").or_else(|| name.strip_suffix("_ptds")).unwrap_or(name)
}

/// The functions in `src/api`, by name.
fn implemented() -> HashSet<String> {
    let mut names = HashSet::new();
    for file in std::fs::read_dir("src/api").expect("the folder is there") {
        let path = file.expect("it can be listed").path();
        let source = std::fs::read_to_string(&path).expect("sources are text");
        for line in source.lines().filter_map(|line| line.strip_prefix(IMPLEMENTATION)) {
            let name = line.split(['(', '<']).next().expect("split yields at least one part");
            let name = format!("cu{name}");
            let known = functions().iter().any(|function| unsuffixed(function.name) == name);
            assert!(known, "{}: the driver has no {name}", path.display());
            names.insert(name);
        }
    }
    names
}

/// The exported function: NULL streams become the handle that this variant means by them.
fn entry(function: &Function) -> String {
    let parameters = function.parameters.expect("only functions with known parameters are written");
    let default = match function.default_stream() {
        DefaultStream::Legacy => "LEGACY",
        DefaultStream::PerThread => "PER_THREAD",
    };
    let is_stream = |index: usize| match function.stream {
        StreamUse::Argument(stream) => index == stream,
        StreamUse::Arguments(first, second) => index == first || index == second,
        _ => false,
    };
    let mut arguments: Vec<_> = parameters
        .iter()
        .enumerate()
        .map(|(index, parameter)| {
            if is_stream(index) {
                format!("explicit({}, {default})", parameter.name)
            } else {
                parameter.name.to_string()
            }
        })
        .collect();
    if matches!(function.stream, StreamUse::Implicit | StreamUse::LaunchConfig(_) | StreamUse::InstantiateParams(_)) {
        arguments.insert(0, default.to_string());
    }
    let declared: Vec<_> = parameters.iter().map(|it| format!("{}: {}", it.name, it.ty)).collect();
    format!(
        "#[unsafe(no_mangle)]\nunsafe extern \"C\" fn {name}({}) -> CUresult {{\n    \
         // SAFETY: the caller's own arguments.\n    \
         boundary::call({name:?}, || unsafe {{ api::{}({}) }})\n}}\n",
        declared.join(", "),
        unsuffixed(function.name),
        arguments.join(", "),
        name = function.name,
    )
}
