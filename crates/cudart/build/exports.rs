//! Entries for the functions of one release. Those written in `../src/api` get their arguments with an explicit
//! stream; all others return "not supported".
//!
//! An exported name is one jump, written in assembly. So it can carry the version that NVIDIA's library gives all its
//! names (the library's own name): the loader complains on standard error where a program asks for a version and the
//! library has none. The list of names that rustc hands to the linker does not have these, and cannot take it away.

use detshare_cudart::function::{ALSO, DIRECT, Function, GRAPHICS, written_in};
use std::collections::HashSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

pub(crate) fn write(release: u32, functions: &[Function]) {
    let sources = Path::new("../src/api");
    println!("cargo::rerun-if-changed=../src/api");
    let older = implemented(&sources.join("release_12.rs"));
    let shared: HashSet<String> = std::fs::read_dir(sources)
        .expect("the folder is there")
        .map(|file| file.expect("it can be listed").path())
        .filter(|path| !path.ends_with("release_12.rs"))
        .flat_map(|path| implemented(&path))
        .collect();
    let implementation = |name: &str| {
        if release == 12 && older.contains(name) {
            return Some(format!("release_12::{name}"));
        }
        // What the newer release calls by the plain name, the older one calls by its second or third version.
        let plain = [name, name.trim_end_matches("_v2"), name.trim_end_matches("_v3")];
        let plain = plain[..if release == 12 { 3 } else { 1 }].iter().find(|name| shared.contains(**name))?;
        Some((*plain).to_string())
    };
    let mut exports = Exports { version: format!("libcudart.so.{release}"), ..Exports::default() };
    for function in functions.iter().chain(ALSO).filter(|function| !DIRECT.contains(&function.name)) {
        let variants = [
            (function.name.to_string(), "LEGACY"),
            (format!("{}{}", function.name, function.per_thread), "PER_THREAD"),
        ];
        let variants = &variants[..if function.per_thread.is_empty() { 1 } else { 2 }];
        for (name, default) in variants {
            match implementation(function.name) {
                Some(path) => exports.written(function, name, default, &path),
                None => exports.unsupported(name, function.name),
            }
        }
    }
    DIRECT.iter().for_each(|name| exports.export(name, &format!("direct::{name}")));
    GRAPHICS.iter().for_each(|name| exports.unsupported(name, name));
    exports.finish();
}

/// The functions that a file of `src/api` has, by name.
fn implemented(path: &Path) -> HashSet<String> {
    let source = std::fs::read_to_string(path).expect("sources are text");
    written_in(&source).map(str::to_string).collect()
}

#[derive(Default)]
struct Exports {
    version: String,
    entries: String,
    jumps: String,
    operands: String,
}

impl Exports {
    /// NULL streams become the handle that this variant means by them; what works on the default stream without taking
    /// one gets it as its first argument.
    fn written(&mut self, function: &Function, name: &str, default: &str, path: &str) {
        let mut arguments: Vec<_> = function
            .parameters
            .iter()
            .map(|(name, ty)| match *ty {
                "cudaStream_t" if !function.per_thread.is_empty() => {
                    format!("boundary::explicit({name}, boundary::{default})")
                }
                _ => (*name).to_string(),
            })
            .collect();
        let takes_stream = function.parameters.iter().any(|(_, ty)| *ty == "cudaStream_t");
        if !function.per_thread.is_empty() && !takes_stream {
            arguments.insert(0, format!("boundary::{default}"));
        }
        let declared: Vec<_> = function.parameters.iter().map(|(name, ty)| format!("{name}: {ty}")).collect();
        writeln!(
            self.entries,
            "unsafe extern \"C\" fn entry_{name}({}) -> cudaError_t {{\n    \
             // SAFETY: the caller's own arguments.\n    \
             boundary::call(|| unsafe {{ api::{path}({}) }})\n}}",
            declared.join(", "),
            arguments.join(", ")
        )
        .expect("a string takes any text");
        self.export(name, &format!("entry_{name}"));
    }

    fn unsupported(&mut self, name: &str, listed: &str) {
        writeln!(
            self.entries,
            "extern \"C\" fn entry_{name}() -> cudaError_t {{ boundary::call(|| unsupported::refuse({listed:?})) }}"
        )
        .expect("a string takes any text");
        self.export(name, &format!("entry_{name}"));
    }

    fn export(&mut self, name: &str, path: &str) {
        let version = &self.version;
        writeln!(
            self.jumps,
            "    \".globl {name}\", \".type {name}, @function\", \"{name}: jmp {{{name}}}\", \
             \".size {name}, . - {name}\", \".symver {name}, {name}@@{version}\","
        )
        .expect("a string takes any text");
        writeln!(self.operands, "    {name} = sym {path},").expect("a string takes any text");
    }

    fn finish(self) {
        let folder = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
        let versions = folder.join("versions");
        let Self { version, entries, jumps, operands } = self;
        // One of the linkers takes one script only, and then this one: everything else stays inside.
        let script = format!("{version} {{ global: cuda*; __cuda*; local: *; }};\n");
        std::fs::write(&versions, script).expect("cargo's OUT_DIR can be written");
        let text = format!(
            "{entries}\n#[used]\n#[unsafe(link_section = \".init_array\")]\nstatic ON_LOAD: extern \"C\" fn() = {{\n    \
             extern \"C\" fn on_load() {{\n        detshare_cudart::carried::replace();\n    }}\n    on_load\n}};\n\
             core::arch::global_asm!(\n    \".section .text.exports, \\\"ax\\\", @progbits\",\n{jumps}    \
             \".text\",\n{operands});\n"
        );
        std::fs::write(folder.join("exports.rs"), text).expect("cargo's OUT_DIR can be written");
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,{version}");
        println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={}", versions.display());
        // Destructors and exit handlers of other libraries still call.
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
