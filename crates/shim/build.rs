//! Makes an exported entry for every function of the driver, as `src/treatment.rs` says.

use detshare_cuda::{Function, functions};
use std::fmt::Write;
use std::path::Path;

#[path = "src/treatment.rs"]
mod treatment;

use treatment::Treatment;

fn main() {
    println!("cargo::rerun-if-changed=src/treatment.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // Pointers to the entries are all over the process, so a dlclose must not unmap them.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    for name in treatment::named() {
        assert!(
            functions().iter().any(|function| function.base == name),
            "treatment.rs names {name}: no such function"
        );
    }
    let folder = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    std::fs::write(Path::new(&folder).join("entries.rs"), entries()).expect("cargo's OUT_DIR can be written");
}

fn entries() -> String {
    let mut text = String::new();
    let mut observed = Vec::new();
    let mut write = |arguments: std::fmt::Arguments<'_>| text.write_fmt(arguments).expect("a string takes any text");
    for (index, function) in functions().iter().enumerate() {
        match treatment::of(function.base) {
            Treatment::Forward => write(format_args!("forward!({}, {index});\n", function.name)),
            Treatment::Observe(kind) => {
                write(format_args!("observe!({}({}), {});\n", function.name, parameters(function), observed.len()));
                observed.push(format!("({index}, Kind::{kind:?})"));
            }
            Treatment::Replace => {}
        }
        write(format_args!("lazy!(lazy_{index}, {index});\n"));
    }
    let count = functions().len();
    let lazy: Vec<_> = (0..count).map(|index| format!("slot(lazy_{index})")).collect();
    let own: Vec<_> = functions()
        .iter()
        .map(|function| match treatment::of(function.base) {
            Treatment::Replace => format!("own(crate::replace::{} as *const c_void)", function.name),
            _ => format!("own({} as *const c_void)", function.name),
        })
        .collect();
    write(format_args!("pub(crate) static SLOTS: [Slot; {count}] = [{}];\n", lazy.join(", ")));
    write(format_args!("static OWN: [Own; {count}] = [{}];\n", own.join(", ")));
    write(format_args!(
        "pub(crate) static OBSERVED: [(usize, Kind); {}] = [{}];\n",
        observed.len(),
        observed.join(", ")
    ));
    text
}

fn parameters(function: &Function) -> String {
    let parameters = function.parameters.expect("only functions with known parameters are observed");
    let list: Vec<_> = parameters.iter().map(|parameter| format!("{}: {}", parameter.name, parameter.ty)).collect();
    list.join(", ")
}
