//! The libraries and programs that the tests, the demo and the GPU bundle load.

use crate::process::{cargo, root, run, target};
use crate::pypi;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Everything that is loaded or started by tests, apart from the tests themselves.
const PACKAGES: [&str; 18] = [
    "detshare-shim",
    "detshare-softgpu",
    "detshare-cudart-12",
    "detshare-cudart-13",
    "detshare-stub-driver",
    "detshare-surface",
    "detshare-conformance",
    "detshare-instructions",
    "detshare-kernel-fuzz",
    "detshare-block-level",
    "detshare-bench",
    "detshare-cudarc",
    "detshare-workloads",
    "detshare-order",
    "detshare-cli",
    "detshare-daemon",
    "detshare-chaos",
    "xtask",
];
pub(crate) const SHIM: &str = "libdetshare_shim.so";
pub(crate) const SOFTGPU: &str = "libdetshare_softgpu.so";
pub(crate) const CUDART_12: &str = "libdetshare_cudart_12.so";
pub(crate) const CUDART_13: &str = "libdetshare_cudart_13.so";
pub(crate) const STUB_DRIVER: &str = "libdetshare_stub_driver.so";

/// The oldest glibc that what we ship runs on.
const OLDEST_GLIBC: (u32, u32) = (2, 28);
const TRIPLE: &str = "x86_64-unknown-linux-gnu";
const ZIG: [&str; 2] = ["cargo-zigbuild==0.24.0", "ziglang==0.15.1"];
const LARGEST_SHIM: u64 = 2 << 20;

fn package_arguments(packages: &[&'static str]) -> impl Iterator<Item = &'static str> {
    packages.iter().flat_map(|package| ["--package", package])
}

/// Builds all of it for this machine; returns the folder that holds it.
pub(crate) fn here() -> Result<PathBuf> {
    for_this_machine(&PACKAGES)
}

/// Builds the software GPU alone, and the runtimes for it; returns the folder that holds them.
pub(crate) fn softgpu() -> Result<PathBuf> {
    for_this_machine(&["detshare-softgpu", "detshare-cudart-12", "detshare-cudart-13"])
}

fn for_this_machine(packages: &[&'static str]) -> Result<PathBuf> {
    let mut command = cargo();
    command.args(["build", "--quiet", "--release"]);
    command.args(package_arguments(packages));
    run(&mut command)?;
    Ok(target().join("release"))
}

/// The linker for old systems, fetched from PyPI.
pub(crate) fn zig() -> Result<PathBuf> {
    pypi::install(&ZIG)
}

/// Builds all of it for any machine with glibc 2.28 or newer; returns the folder that holds it.
pub(crate) fn portable() -> Result<PathBuf> {
    let zig = zig()?;
    let (major, minor) = OLDEST_GLIBC;
    // Started by its path, not through cargo: nothing is installed where cargo would look.
    let mut zigbuild = Command::new(zig.join("bin/cargo-zigbuild"));
    zigbuild.current_dir(root()).env("PYTHONPATH", &zig);
    zigbuild.args(["zigbuild", "--quiet", "--release", "--target", &format!("{TRIPLE}.{major}.{minor}")]);
    zigbuild.args(package_arguments(&PACKAGES));
    run(&mut zigbuild)?;
    let folder = target().join(TRIPLE).join("release");
    check_shim(&folder.join(SHIM))?;
    [CUDART_12, CUDART_13].into_iter().try_for_each(|name| check_glibc(&folder.join(name)).map(drop))?;
    Ok(folder)
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
