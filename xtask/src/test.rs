//! `cargo xtask test`: everything that must hold, in the order in which it fails fastest.

use crate::process::{cargo, root, run, target};
use crate::{build, demo, generate, gpu_bundle, header};
use anyhow::{Context, Result};
use std::process::Command;
use std::time::Instant;

pub(crate) fn test() -> Result<()> {
    let started = Instant::now();
    let mut skipped = Vec::new();
    step("format", || run(cargo().args(["fmt", "--all", "--check"])))?;
    step("lints", || {
        run(cargo().args(["clippy", "--quiet", "--workspace", "--all-targets", "--", "--deny", "warnings"]))
    })?;
    match header::cuda_include() {
        Ok(_) => step("generated files are what the generator yields", || generate::run(true))?,
        Err(error) => skipped.push(format!("generated files: {error:#}")),
    }
    step("tools", install_valgrind)?;
    let built = step("build of what the tests load", build::here)?;
    step("tests", || run(cargo().args(["test", "--quiet", "--workspace"]).env("DETSHARE_BUILT", &built)))?;
    step("model checker", model_checker)?;
    match build::portable() {
        Ok(portable) => {
            step("tests of the shim as it is shipped", || {
                let mut command = cargo();
                command.args(["test", "--quiet", "--package", "detshare-shim"]).env("DETSHARE_BUILT", &portable);
                run(&mut command)
            })?;
            step("GPU bundle", gpu_bundle_runs)?;
        }
        Err(error) => skipped.push(format!("the shim as it is shipped, and the GPU bundle: {error:#}")),
    }
    step("demo", demo::demo)?;
    for what in &skipped {
        println!("skipped: {what}");
    }
    println!("== all passed in {} s", started.elapsed().as_secs());
    Ok(())
}

fn step<T>(name: &str, body: impl FnOnce() -> Result<T>) -> Result<T> {
    println!("== {name}");
    let started = Instant::now();
    let result = body().with_context(|| format!("failed: {name}"))?;
    println!("   {name}: {:.1} s", started.elapsed().as_secs_f64());
    Ok(result)
}

/// In a build folder of its own: the flag would rebuild everything else.
fn model_checker() -> Result<()> {
    run(cargo()
        .args(["test", "--quiet", "--release", "--package", "detshare-shim", "--test", "published"])
        .env("RUSTFLAGS", "--cfg loom")
        .env("CARGO_TARGET_DIR", target().join("loom")))
}

/// Puts the bundle together and starts its script; without a GPU that counts its checks as skipped.
fn gpu_bundle_runs() -> Result<()> {
    let folder = target().join("gpu-bundle");
    gpu_bundle::run(&folder)?;
    run(Command::new("python3").arg("run.py").arg("--out").arg(target().join("gpu-results")).current_dir(&folder))
}

/// The memory checker that a test runs under; it is on most machines that build software.
fn install_valgrind() -> Result<()> {
    if Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    println!("installing valgrind");
    run(Command::new("apt-get").args(["update", "-qq"]).current_dir(root()))?;
    run(Command::new("apt-get").args(["install", "-y", "-qq", "valgrind"]).current_dir(root()))
        .context("install valgrind: a test runs the shim under it")
}
