//! Makes an exported entry for every function of the driver, as `src/treatment.rs` says.

use detshare_cuda::StreamUse;
use detshare_cuda::{Function, functions};
use std::fmt::Write;
use std::path::{Path, PathBuf};

#[path = "src/treatment.rs"]
mod treatment;

use treatment::{Action, Kind, Treatment};

fn main() {
    println!("cargo::rerun-if-changed=src/treatment.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    // Pointers to the entries are all over the process, so a dlclose must not unmap them.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Every loader since 2006 knows this table of symbols; the older one beside it would be some kilobytes of every process.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--hash-style=gnu");
    for name in treatment::named() {
        assert!(
            functions().iter().any(|function| function.base == name),
            "treatment.rs names {name}: no such function"
        );
    }
    println!("cargo::rustc-env=DETSHARE_REWRITER={:016x}", rewriter());
    let folder = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    std::fs::write(Path::new(&folder).join("entries.rs"), entries()).expect("cargo's OUT_DIR can be written");
}

/// A number of the sources that rewrite kernels: what they made is kept on disk, and must not outlive them.
fn rewriter() -> u64 {
    const SOURCES: &str = "../ptx/src";
    println!("cargo::rerun-if-changed={SOURCES}");
    let mut folders = vec![PathBuf::from(SOURCES)];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("the workspace has its sources").flatten() {
            let list = if entry.path().is_dir() { &mut folders } else { &mut files };
            list.push(entry.path());
        }
    }
    files.sort();
    let bytes = files.iter().flat_map(|file| std::fs::read(file).expect("a source can be read"));
    // FNV-1a.
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn entries() -> String {
    let mut text = String::new();
    let (mut observed, mut counters) = (Vec::new(), Vec::new());
    let mut write = |arguments: std::fmt::Arguments<'_>| text.write_fmt(arguments).expect("a string takes any text");
    for (index, function) in functions().iter().enumerate() {
        let Treatment { action, kind } = treatment::of(function);
        let name = function.name;
        if let Some(kind) = kind {
            counters.push(format!("pub(crate) const {name}: usize = {};", observed.len()));
            observed.push(format!("({index}, Kind::{kind:?})"));
        }
        let mut count = if kind.is_some() { format!("crate::stats::count(counter::{name});") } else { String::new() };
        if let Some(event) = recorded(function) {
            count += &format!("steps::marks({event});");
        }
        match (action, kind) {
            // Without known parameters there is no stream to be seen.
            _ if function.parameters.is_none() => write(format_args!("forward!({name}, {index});\n")),
            (Action::Replace, _) => {}
            (Action::Forward, None) => write(format_args!("forward!({name}, {index});\n")),
            (Action::Forward, Some(_)) => {
                write(format_args!("entry!({name}({}), {{ {count} }}, {{}});\n", parameters(function)));
            }
            (Action::Everything, _) => {
                let before = "bind::everything();";
                write(format_args!("entry!({name}({}), {{ {count} }}, {{ {before} }});\n", parameters(function)));
            }
            (Action::Ask, _) => {
                write(format_args!("ask!({name}({}), {{ {count} }}, {});\n", parameters(function), after(kind)));
            }
            (Action::Look, _) => {
                let default = format!("DefaultStream::{:?}", function.default_stream());
                let (list, after) = (parameters(function), after(kind));
                write(format_args!("look!({name}({list}), {{ {count} }}, {default}, {after});\n"));
            }
            (Action::Follow | Action::Home, _) => {
                let how = match (action, kind) {
                    (Action::Home, Some(Kind::Launch)) => "launch_at_home",
                    (Action::Home, _) => "home",
                    _ => "follow",
                };
                let default = format!("DefaultStream::{:?}", function.default_stream());
                let list = parameters(function);
                let after = treatment::digested(function).map_or_else(String::new, |call| format!(", {call}"));
                match function.stream {
                    StreamUse::Argument(argument) => {
                        let stream = function.parameters.expect("seen above")[argument].name;
                        write(format_args!(
                            "bind!({name}({list}), {{ {count} }}, {how}, {stream}, {default}{after});\n"
                        ));
                    }
                    _ => write(format_args!("bind!({name}({list}), {{ {count} }}, {how}, {default}{after});\n")),
                }
            }
        }
        write(format_args!("lazy!(lazy_{index}, {index});\n"));
    }
    let count = functions().len();
    let lazy: Vec<_> = (0..count).map(|index| format!("slot(lazy_{index})")).collect();
    let own: Vec<_> = functions()
        .iter()
        .map(|function| match treatment::of(function).action {
            Action::Replace => format!("own(crate::replace::{} as *const c_void)", function.name),
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
    write(format_args!(
        "/// The numbers of the functions that are counted.\n#[allow(non_upper_case_globals)]\npub(crate) mod counter {{ {} }}\n",
        counters.join(" ")
    ));
    text
}

/// The parameter with the event that a function records.
fn recorded(function: &Function) -> Option<&'static str> {
    let of = |base: &str| ["cuEventRecord", "cuEventRecordWithFlags"].contains(&base);
    let parameters = function.parameters.filter(|_| of(function.base))?;
    parameters.iter().find(|parameter| parameter.ty == "CUevent").map(|parameter| parameter.name)
}

/// What is done when a call has waited for something, or has only asked.
fn after(kind: Option<Kind>) -> &'static str {
    if kind == Some(Kind::Synchronise) { "waited" } else { "asked" }
}

fn parameters(function: &Function) -> String {
    let parameters = function.parameters.expect("only functions with known parameters are looked at");
    let list: Vec<_> = parameters.iter().map(|parameter| format!("{}: {}", parameter.name, parameter.ty)).collect();
    list.join(", ")
}
