//! The libraries and programs that the tests, the demo and the GPU bundle load.

use crate::process::{cargo, root, run, target};
use crate::{init_first, pypi};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Packages that are built together, and the files that come of them.
struct Part {
    packages: &'static [&'static str],
    files: &'static [&'static str],
}

/// What a user installs; always built as it is shipped.
const SHIPPED: Part = Part {
    packages: &[
        "detshare-shim",
        "detshare-softgpu",
        "detshare-cudart-12",
        "detshare-cudart-13",
        "detshare-cli",
        "detshare-daemon",
    ],
    files: &[SHIM, SOFTGPU, CUDART_12, CUDART_13, "detshare", "detshared"],
};

/// Programs that judge, and what they load.
const TOOLS: Part = Part {
    packages: &[
        "detshare-stub-driver",
        "detshare-surface",
        "detshare-conformance",
        "detshare-instructions",
        "detshare-kernel-fuzz",
        "detshare-block-level",
        "detshare-cudarc",
        "detshare-order",
        "detshare-chaos",
        "xtask",
    ],
    files: &[
        STUB_DRIVER,
        "surface",
        "conformance",
        "instructions",
        "kernel_fuzz",
        "block_level",
        "cudarc_programs",
        "order",
        "chaos",
        "xtask",
    ],
};

/// Programs that measure, or that are measured.
const MEASURED: Part = Part {
    packages: &["detshare-bench", "detshare-workloads"],
    files: &[
        "call_cost",
        "move_cost",
        "ptx_rate",
        "run_cost",
        "soak",
        "softgpu_rate",
        "softgpu_start",
        "tenant_latency",
        "fma_loop",
        "llm_probe",
        "long_kernels",
        "managed_probe",
        "quota_probe",
        "slow_once",
        "step_probe",
        "steps",
        "vector_add",
    ],
};

/// How a part is built: with all that makes it fast, or soon (`profile.tools`).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Profile {
    Release,
    Tools,
}

impl Profile {
    fn name(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Tools => "tools",
        }
    }
}

/// What everything is built for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Machine {
    /// This one, by its own linker.
    This,
    /// Any with glibc 2.28 or newer.
    Any,
}

pub(crate) const SHIM: &str = "libdetshare_shim.so";
pub(crate) const SOFTGPU: &str = "libdetshare_softgpu.so";
pub(crate) const CUDART_12: &str = "libdetshare_cudart_12.so";
pub(crate) const CUDART_13: &str = "libdetshare_cudart_13.so";
pub(crate) const STUB_DRIVER: &str = "libdetshare_stub_driver.so";

/// They look at programs before these have begun.
const RUNTIMES: [(&str, &str); 2] = [("detshare-cudart-12", CUDART_12), ("detshare-cudart-13", CUDART_13)];

/// The oldest glibc that what we ship runs on.
const OLDEST_GLIBC: (u32, u32) = (2, 28);
const TRIPLE: &str = "x86_64-unknown-linux-gnu";
const ZIG: [&str; 2] = ["cargo-zigbuild==0.24.0", "ziglang==0.15.1"];
const LARGEST_SHIM: u64 = 2 << 20;

/// Builds all of it for this machine; returns the folder that holds it.
pub(crate) fn here() -> Result<PathBuf> {
    let packages: Vec<_> = [SHIPPED, TOOLS, MEASURED].iter().flat_map(|part| part.packages).copied().collect();
    build(&packages, Profile::Release, Machine::This)
}

/// Builds the software GPU alone, and the runtimes for it; returns the folder that holds them.
pub(crate) fn softgpu() -> Result<PathBuf> {
    build(&["detshare-softgpu", "detshare-cudart-12", "detshare-cudart-13"], Profile::Release, Machine::This)
}

/// The linker for old systems, fetched from PyPI.
pub(crate) fn zig() -> Result<PathBuf> {
    pypi::install(&ZIG)
}

/// Builds what is shipped for any machine with glibc 2.28 or newer; returns the folder that holds it.
pub(crate) fn shipped() -> Result<PathBuf> {
    let folder = build(SHIPPED.packages, Profile::Release, Machine::Any)?;
    check_shim(&folder.join(SHIM))?;
    [CUDART_12, CUDART_13].into_iter().try_for_each(|name| check_glibc(&folder.join(name)).map(drop))?;
    Ok(folder)
}

/// The same with all that a GPU machine is sent beside it; returns the folder that holds both. What is measured there is built as
/// what is shipped.
pub(crate) fn for_gpu_machine() -> Result<PathBuf> {
    shipped()?;
    let measured = build(MEASURED.packages, Profile::Release, Machine::Any)?;
    let tools = build(TOOLS.packages, Profile::Tools, Machine::Any)?;
    let folder = target().join("built-for-gpu");
    gather(&folder, &[(&SHIPPED, &measured), (&MEASURED, &measured), (&TOOLS, &tools)])?;
    Ok(folder)
}

/// What is shipped, for any machine or, where that cannot be built, for this one, with all that tests it. Nothing is measured there, and
/// what measures is built as soon as the rest.
pub(crate) fn for_tests(is_for_any: bool) -> Result<()> {
    let (release, machine) = match is_for_any {
        true => (shipped()?, Machine::Any),
        false => (build(SHIPPED.packages, Profile::Release, Machine::This)?, Machine::This),
    };
    let tools = build(&[TOOLS.packages, MEASURED.packages].concat(), Profile::Tools, machine)?;
    gather(&for_tests_folder(), &[(&SHIPPED, &release), (&TOOLS, &tools), (&MEASURED, &tools)])
}

/// The folder that holds both.
pub(crate) fn for_tests_folder() -> PathBuf {
    target().join("built")
}

/// Builds packages; returns the folder that holds what came of them, and of others before.
fn build(packages: &[&str], profile: Profile, machine: Machine) -> Result<PathBuf> {
    let (mut command, above) = match machine {
        Machine::This => {
            let mut command = cargo();
            command.arg("build");
            (command, target())
        }
        Machine::Any => {
            let zig = zig()?;
            let (major, minor) = OLDEST_GLIBC;
            // Started by its path, not through cargo: nothing is installed where cargo would look.
            let mut command = Command::new(zig.join("bin/cargo-zigbuild"));
            command.current_dir(root()).env("PYTHONPATH", &zig);
            command.args(["zigbuild", "--target", &format!("{TRIPLE}.{major}.{minor}")]);
            (command, target().join(TRIPLE))
        }
    };
    command.args(["--quiet", "--profile", profile.name()]);
    run(command.args(packages.iter().flat_map(|package| ["--package", package])))?;
    let folder = above.join(profile.name());
    for (package, library) in RUNTIMES {
        if packages.contains(&package) {
            init_first::mark(&folder.join(library))?;
        }
    }
    Ok(folder)
}

/// Puts the files of parts together in one folder: tests look in one, and programs look beside themselves.
fn gather(folder: &Path, parts: &[(&Part, &Path)]) -> Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    std::fs::create_dir_all(folder)?;
    for (part, from) in parts {
        for file in part.files {
            std::fs::hard_link(from.join(file), folder.join(file)).with_context(|| format!("{file} was not built"))?;
        }
    }
    Ok(())
}

/// What we promise of the shipped library.
fn check_shim(path: &Path) -> Result<()> {
    let size = check_glibc(path)?;
    ensure!(size < LARGEST_SHIM, "{} has {size} bytes", path.display());
    Ok(())
}

/// That a library runs on old systems too; returns its size.
fn check_glibc(path: &Path) -> Result<u64> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let newest = newest_glibc(&bytes);
    ensure!(newest <= OLDEST_GLIBC, "{} needs glibc {}.{}", path.display(), newest.0, newest.1);
    Ok(bytes.len() as u64)
}

/// The newest `GLIBC_x.y` among the names in the file.
fn newest_glibc(bytes: &[u8]) -> (u32, u32) {
    const PREFIX: &[u8] = b"\0GLIBC_";
    bytes
        .windows(PREFIX.len())
        .enumerate()
        .filter(|(_, window)| *window == PREFIX)
        .filter_map(|(at, _)| bytes[at + PREFIX.len()..].split(|byte| *byte == 0).next())
        .filter_map(|version| std::str::from_utf8(version).ok()?.split_once('.'))
        .filter_map(|(major, minor)| Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?)))
        .max()
        .unwrap_or((0, 0))
}
