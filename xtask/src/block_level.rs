//! Kernels that are launched in parts: the suite on the software GPU, and its corpus.

use crate::build;
use crate::process::{root, run, target};
use crate::samples::{self, Sample};
use crate::softgpu::{self, Way, command, summarised};
use anyhow::{Result, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn folder() -> PathBuf {
    root().join("crates/ptx/tests/block_level")
}

/// The corpus.
pub(crate) fn cases() -> PathBuf {
    folder().join("cases")
}

/// The suite on the software GPU, whose warps take turns in the order that a number decides.
fn suite(built: &Path, verb: &str, order: Option<&str>) -> Command {
    let mut program = command(built.join("block_level"), built, Way::Directly);
    match order {
        Some(order) => program.env("DETSHARE_SOFTGPU_ORDER", order),
        None => program.env_remove("DETSHARE_SOFTGPU_ORDER"),
    };
    program.arg(verb).arg("--driver").arg(built.join(build::SOFTGPU));
    program
}

/// The corpus whole and in parts.
pub(crate) fn corpus(built: &Path) -> Result<()> {
    summarised(suite(built, "run", None).arg(cases()), "block_level")?;
    summarised(suite(built, "run", Some("1")).arg(cases()), "block_level-order")
}

/// Generated kernels whole and in parts.
pub(crate) fn fuzz(built: &Path) -> Result<()> {
    summarised(suite(built, "fuzz", Some("1")).args(["--count", "1000"]), "block_level-fuzz")
}

/// That the suite notices what is broken on purpose.
pub(crate) fn mutants(built: &Path) -> Result<()> {
    summarised(suite(built, "mutants", Some("2")).arg(cases()).arg("hand/whole_"), "block_level-mutants")
}

/// What runs on GPUs beside others, here with small kernels and a program that stands for the server: that it runs, and that bits are the
/// same in all ways.
pub(crate) fn sharing(built: &Path, samples: &[Sample]) -> Result<()> {
    keeps_attributes(built, samples)?;
    through_the_shim(built)?;
    let mut script = command("python3", built, Way::Directly);
    script.arg(root().join("bench/gpu/block_level_sharing.py")).args(["--small", "--isolation", "none"]);
    script.arg("--work").arg(samples::program(samples, "long_work")?).arg("--runtime").arg(runtime_folder(built)?);
    script.arg("--steps").arg(built.join("steps")).arg("--idle").arg(built.join("steps"));
    script.arg("--detshare").arg(built.join("detshare")).arg("--softgpu").arg(built.join(build::SOFTGPU));
    // Few SMs, so that there are versions for grids that a CPU gets done.
    script.args(["--softgpu-sms", "8", "--lengths", "8", "--rounds", "1"]);
    script.args(["--seconds", "0.3", "--reference", "0.1", "--limit", "240"]);
    script.args(["--step-kernels", "2", "--step-work", "200"]);
    script.arg("--out").arg(target().join("block_level-sharing.json"));
    // What it measures of a CPU is nobody's business.
    run(script.stdout(Stdio::null()))
}

/// That a kernel which needs leave for its shared memory has it in parts too: by what the shim counts.
fn keeps_attributes(built: &Path, samples: &[Sample]) -> Result<()> {
    /// It launches a kernel of a few blocks, and one with 100 KB of dynamic shared memory; first without leave, which fails.
    const PROGRAM: &str = "dynamic_shared";
    const LAUNCHES: u64 = 2;
    let (stats, results) =
        (target().join("block_level-attributes.json"), target().join("block_level-attributes-results.json"));
    for way in ["slices:1", "preempt:2"] {
        let mut program = command(samples::program(samples, PROGRAM)?, built, Way::ThroughShim);
        program.env("LD_LIBRARY_PATH", softgpu::driver_folder(built, Way::ThroughShim)?).arg(&results);
        program.env("DETSHARE_BLOCK_LEVEL", way).env("DETSHARE_STATS", &stats).stdout(Stdio::null());
        run(&mut program)?;
        let in_parts = softgpu::launched_in_parts(&stats)?;
        ensure!(in_parts == LAUNCHES, "{PROGRAM}, {way}: {in_parts} launches in parts instead of {LAUNCHES}");
    }
    Ok(())
}

/// Kernels in parts through the shim, beside a tenant whose steps stop them: the script that does so on GPUs.
fn through_the_shim(built: &Path) -> Result<()> {
    let mut script = command("python3", built, Way::Directly);
    script.arg(root().join("bench/gpu/block_level_shim.py")).args(["--isolation", "none", "--softgpu"]);
    script.arg(built.join(build::SOFTGPU)).arg("--shim").arg(built.join(build::SHIM));
    for (flag, name) in [("--detshare", "detshare"), ("--program", "long_kernels"), ("--steps", "steps")] {
        script.arg(flag).arg(built.join(name));
    }
    script.args([
        "--step-kernels",
        "2",
        "--step-work",
        "200",
        "--blocks",
        "3000",
        "--rounds",
        "200",
        "--persistent",
        "8",
    ]);
    run(script.arg("--out").arg(target().join("block_level-shim.json")))
}

/// A folder for the loader's search path that has the runtime for the software GPU, and no driver.
fn runtime_folder(built: &Path) -> Result<PathBuf> {
    let folder = target().join("block_level-runtime");
    std::fs::create_dir_all(&folder)?;
    softgpu::replace_link(&folder.join("libcudart.so.13"), &built.join(build::CUDART_13))?;
    Ok(folder)
}

/// Compiles the benchmark's program with NVIDIA's own runtime in it, as programs on GPUs have it.
pub(crate) fn compile_long_work(program: &Path) -> Result<()> {
    let toolkit = samples::toolkit()?;
    let mut nvcc = Command::new(toolkit.join("bin/nvcc"));
    nvcc.args(["-std=c++17", "-O2", "-cudart", "static", "-arch=compute_90", "-code=compute_90", "-Xcompiler"]);
    nvcc.args(["-static-libstdc++,-static-libgcc", "-L"]).arg(toolkit.join("lib"));
    run(nvcc.arg(root().join("workloads/samples/long_work.cu")).arg("-o").arg(program))
}

/// Compiles the corpus anew, with compilers from PyPI, and writes the verdicts into its files.
pub(crate) fn compile() -> Result<()> {
    let (toolkit, numba, built) = (samples::toolkit()?, softgpu::numba()?, build::here()?);
    let mut script = Command::new("python3");
    script.args(["-W", "ignore"]).arg(folder().join("sources/compile.py"));
    script.arg("--nvcc").arg(toolkit.join("bin/nvcc")).arg("--nvrtc").arg(numba.join("nvidia/cuda_nvrtc/lib"));
    for headers in [
        numba.join("nvidia/cuda_runtime/include"),
        numba.join("nvidia/cuda_nvcc/include"),
        toolkit.join("include/cccl"),
    ] {
        script.arg("--include").arg(headers);
    }
    // Numba asks a driver what there is to compile for.
    script.arg("--numba").env("NUMBA_CUDA_DRIVER", built.join(build::SOFTGPU));
    run(script.env("PYTHONPATH", &numba).env("CUDA_HOME", numba.join("cuda-home")))?;
    run(Command::new(built.join("block_level")).arg("bless").arg(cases()))
}
