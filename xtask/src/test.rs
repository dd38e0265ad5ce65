//! `cargo xtask test`: everything that must hold, in the order in which it fails fastest.

use crate::process::{cargo, root, run, target};
use crate::softgpu::{self, Way};
use crate::{block_level, build, generate, gpu_bundle, header, package, ptxas, samples, tenants};
use anyhow::{Context, Result};
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

/// Counts what was run, for the closing line.
#[derive(Default)]
struct Steps {
    passed: usize,
    skipped: Vec<String>,
}

pub(crate) fn test() -> Result<()> {
    let started = Instant::now();
    let mut steps = Steps::default();
    steps.run("format", || run(cargo().args(["fmt", "--all", "--check"])))?;
    steps.run("lints", || {
        run(cargo().args(["clippy", "--quiet", "--workspace", "--all-targets", "--", "--deny", "warnings"]))
    })?;
    match header::cuda_include() {
        Ok(_) => steps.run("generated files are what the generator yields", || generate::run(true))?,
        Err(error) => steps.skip("generated files", &error),
    }
    steps.run("tools", install_valgrind)?;
    let built = match build::zig() {
        Ok(_) => steps.run("build as it is shipped", build::portable)?,
        Err(error) => {
            steps.skip("the build as it is shipped, and the GPU bundle", &error);
            steps.run("build for this machine", build::here)?
        }
    };
    steps.run("tests", || run(cargo().args(["test", "--quiet", "--workspace"]).env("DETSHARE_BUILT", &built)))?;
    steps.run("workloads, without a GPU or PyTorch", workloads)?;
    for way in Way::ALL.into_iter().chain([Way::AsTenant]) {
        steps.run(&format!("driver API on the software GPU, {way:?}"), || softgpu::conformance(&built, way))?;
    }
    for way in Way::ALL {
        steps.run(&format!("instructions on the software GPU, {way:?}"), || softgpu::instructions(&built, way))?;
    }
    steps.run("generated kernels against their definition", || softgpu::kernels_by_definition(&built))?;
    match softgpu::kernel_corpus() {
        Some(corpus) => {
            steps.run("generated kernels on the software GPU", || softgpu::kernel_fuzz(&built, &corpus))?;
        }
        None => steps.skip("generated kernels on the software GPU", &anyhow::anyhow!("no corpus")),
    }
    steps.run("kernels in parts", || block_level::corpus(&built))?;
    steps.run("kernels in parts: generated ones", || block_level::fuzz(&built))?;
    steps.run("kernels in parts: broken on purpose", || block_level::mutants(&built))?;
    for way in Way::ALL.into_iter().chain([Way::AsTenant]) {
        steps.run(&format!("order on the software GPU, {way:?}"), || softgpu::order(&built, way))?;
    }
    steps.run("order with graphs in segments", || softgpu::order_in_segments(&built))?;
    steps.run("the checker finds nothing in what is right", || softgpu::checked(&built))?;
    // On a machine that others use, one that is woken late now and then is no failure; `bench --tenants` allows none.
    let chaos = ["chaos", "--rounds", "1000", "--seed", "1", "--mostly-within-ms", tenants::SURVIVORS_GO_ON_MS];
    steps.run("tenants: chaos", || softgpu::chaos(&built, &chaos))?;
    steps.run("tenants: a crowd", || softgpu::chaos(&built, &["crowd", "--waves", "1"]))?;
    steps.run("tenants: coming and going", || softgpu::chaos(&built, &["churn"]))?;
    steps.run("tenants: the GPU's scripts", || tenants::scripts(&built))?;
    steps
        .run("tenants: a page that lies", || softgpu::chaos(&built, &["hostile", "--tenants", "6", "--liars", "1"]))?;
    steps.run("the same bits: driver API", || softgpu::verify_driver_api(&built))?;
    match ptxas::compilers() {
        Ok(compilers) => steps.run("ptxas accepts rewritten kernels", || ptxas::accepts_versions(&compilers))?,
        Err(error) => steps.skip("ptxas on rewritten kernels", &error),
    }
    match samples::toolkit() {
        Ok(toolkit) => {
            let compiled = steps.run("samples: nvcc", || samples::compile(&toolkit))?;
            steps.run("samples: as a person starts them", || {
                samples::started_by_detshare(&toolkit, &compiled, &built)
            })?;
            for way in Way::ALL {
                let name = format!("samples on the software GPU, {way:?}");
                steps.run(&name, || samples::check(&compiled, &built, way))?;
            }
            steps.run("samples, every kernel checked", || samples::check_checked(&compiled, &built))?;
            steps.run("kernels in parts beside a server", || block_level::sharing(&built, &compiled))?;
        }
        Err(error) => steps.skip("samples", &error),
    }
    match softgpu::numba() {
        Ok(packages) => {
            steps.run("the same bits: Numba", || softgpu::verify_numba(&packages, &built))?;
            for way in Way::ALL {
                let name = format!("Numba on the software GPU, {way:?}");
                steps.run(&name, || softgpu::numba_programs(&packages, &built, way))?;
                let name = format!("examples of Numba's documentation, {way:?}");
                steps.run(&name, || softgpu::numba_examples(&packages, &built, way))?;
            }
            steps.run("Numba, every kernel checked", || softgpu::numba_checked(&packages, &built))?;
        }
        Err(error) => steps.skip("Numba on the software GPU", &error),
    }
    match softgpu::nvrtc() {
        Ok(nvrtc) => {
            steps.run("the same bits: cudarc", || softgpu::verify_cudarc(&nvrtc, &built))?;
            for way in Way::ALL {
                let name = format!("cudarc and NVRTC on the software GPU, {way:?}");
                steps.run(&name, || softgpu::cudarc_programs(&nvrtc, &built, way))?;
            }
        }
        Err(error) => steps.skip("cudarc and NVRTC on the software GPU", &error),
    }
    steps.run("model checker", model_checker)?;
    steps.run("package", || package::lay_out(&built, &target().join("package")))?;
    // The demo as a machine without cargo runs it.
    let programs = if build::zig().is_ok() { steps.run("GPU bundle", gpu_bundle_runs)?.join("bin") } else { built };
    steps.run("demo", || run(Command::new(programs.join("xtask")).args(["demo", "--built"]).arg(&programs)))?;
    println!("== done in {} s", started.elapsed().as_secs());
    for what in &steps.skipped {
        println!("skipped: {what}");
    }
    println!("steps: {} passed, 0 failed, {} skipped", steps.passed, steps.skipped.len());
    Ok(())
}

impl Steps {
    fn run<T>(&mut self, name: &str, body: impl FnOnce() -> Result<T>) -> Result<T> {
        println!("== {name}");
        let started = Instant::now();
        let result = body().with_context(|| format!("failed: {name}"))?;
        println!("   {name}: {:.1} s", started.elapsed().as_secs_f64());
        self.passed += 1;
        Ok(result)
    }

    fn skip(&mut self, name: &str, reason: &anyhow::Error) {
        self.skipped.push(format!("{name}: {reason:#}"));
    }
}

/// What of them can be tested anywhere; the rest says that it is skipped.
fn workloads() -> Result<()> {
    run(Command::new("python3").args(["-m", "unittest", "discover", "workloads/tests"]).current_dir(root()))
}

/// In a build folder of its own: the flag would rebuild everything else.
fn model_checker() -> Result<()> {
    let tests = [
        ("detshare-board", "models"),
        ("detshare-shim", "published"),
        ("detshare-shim", "handles"),
        ("detshare-shim", "unfinished"),
        ("detshare-shim", "freedom"),
        ("detshare-softgpu", "done"),
    ];
    for (package, test) in tests {
        run(cargo()
            .args(["test", "--quiet", "--release", "--package", package, "--test", test])
            .env("RUSTFLAGS", "--cfg loom")
            // What is shipped is built as one; here that would only take minutes.
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
            .env("CARGO_TARGET_DIR", target().join("loom")))?;
    }
    Ok(())
}

/// Puts the bundle together and starts its script; without a GPU that counts its checks as skipped. Returns its folder.
fn gpu_bundle_runs() -> Result<PathBuf> {
    let folder = target().join("gpu-bundle");
    gpu_bundle::run(&folder)?;
    run(Command::new("python3").arg("run.py").arg("--out").arg(target().join("gpu-results")).current_dir(&folder))?;
    Ok(folder)
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
