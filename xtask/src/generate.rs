//! Makes the `generated` folders of `crates/cuda`, `crates/cudart` and `crates/softgpu` from CUDA's headers.
//!
//! bindgen reads the header once with every version of every function visible; what it says of the types
//! becomes `types.rs`, what it says of the functions becomes the table. Which version of `cuGetProcAddress`
//! leads to a function stands in another header, `cudaTypedefs.h`.

#[cfg(feature = "generate")]
mod bindings;
#[cfg(feature = "generate")]
mod device_runtime;
#[cfg(feature = "generate")]
mod runtime;
#[cfg(feature = "generate")]
mod table;

use anyhow::Result;

/// Compiles the generator, which is not part of the everyday xtask, and runs it.
#[cfg(not(feature = "generate"))]
pub(crate) fn run(check: bool) -> Result<()> {
    let mut command = crate::process::cargo();
    command.args(["run", "--quiet", "--package", "xtask", "--features", "generate", "--", "generate"]);
    if check {
        command.arg("--check");
    }
    crate::process::run(&mut command)
}

#[cfg(feature = "generate")]
pub(crate) fn run(check: bool) -> Result<()> {
    use anyhow::{Context, bail};

    let include = crate::header::cuda_include()?;
    let bindings = bindings::read(&include)?;
    let table = table::build(&bindings.functions, &include)?;
    let runtime = runtime::read()?;
    let driver = vec![
        ("types.rs", bindings.types),
        ("functions.rs", table::functions(&table)),
        ("entries.rs", table::entries(&table)),
        ("results.rs", table::results(&bindings.results)),
        ("runtime_errors.rs", runtime.errors),
    ];
    let device = vec![("device_runtime.rs", device_runtime::names()?)];
    let crates = [("cuda", driver), ("cudart", runtime.files), ("softgpu", device)];
    let mut differing = Vec::new();
    for (name, text) in crates.into_iter().flat_map(|(name, files)| {
        files.into_iter().map(move |(file, text)| (format!("crates/{name}/src/generated/{file}"), text))
    }) {
        let path = crate::process::root().join(&name);
        if check {
            if std::fs::read_to_string(&path).ok().as_deref() != Some(&text) {
                differing.push(name);
            }
        } else {
            std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    if !differing.is_empty() {
        bail!("{} differ from what the generator yields: run `cargo xtask generate` and commit", differing.join(", "));
    }
    println!("{} functions {}", table.len(), if check { "as committed" } else { "written" });
    Ok(())
}
