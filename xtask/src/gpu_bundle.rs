//! `cargo xtask gpu-bundle DIR`: all that a GPU machine without Rust needs to check DetShare.

use crate::process::{root, run as run_command};
use crate::{block_level, build, samples, softgpu};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAMS: [&str; 27] = [
    "surface",
    "conformance",
    "instructions",
    "kernel_fuzz",
    "block_level",
    "order",
    "call_cost",
    "move_cost",
    "tenant_latency",
    "vector_add",
    "fma_loop",
    "slow_once",
    "managed_probe",
    "step_probe",
    "steps",
    "long_kernels",
    "quota_probe",
    "run_cost",
    "soak",
    "softgpu_rate",
    "softgpu_start",
    "ptx_rate",
    "detshare",
    "detshared",
    "xtask",
    build::SOFTGPU,
    build::STUB_DRIVER,
];

/// Programs that must compute the same bits with another lane at every launch.
const VERIFIED: [&str; 9] = [
    "torch_eager",
    "torch_graphs",
    "torch_compile",
    "llm_decode",
    "train_transformer",
    "train_resnet",
    "generate_text",
    "jax_train",
    "cupy_kernels",
];

/// The programs' checks; `run.py` fills in what stands in braces, and runs the timed ones alone. Kernels that call themselves make a
/// context take gigabytes of the GPU, so few of those that load such kernels run at once.
const CHECKS: &str = r#"[
 {"name": "surface_exports", "timeout_s": 60,
  "command": ["bin/surface", "--shim", "{shim}", "--driver", "{driver}", "--out", "{out}", "exports"]},
 {"name": "surface_answers", "timeout_s": 120,
  "command": ["bin/surface", "--shim", "{shim}", "--driver", "{driver}", "--out", "{out}", "answers"]},
 {"name": "conformance", "timeout_s": 580,
  "command": ["python3", "conformance.py", "--driver", "{driver}", "--shim", "{shim}", "--out", "{out}"]},
 {"name": "move_cost", "timed": true, "timeout_s": 240,
  "command": ["sh", "-c", "D=$(mktemp -d); export DETSHARE_DIR=$D/run; echo 'isolation = \"process\"' > $D/c.toml; bin/detshare up --config $D/c.toml; bin/move_cost --driver {driver} --shim {shim} --daemon $DETSHARE_DIR --out {out}; code=$?; bin/detshare down; rm -r $D; exit $code"]},
 {"name": "decode_cost", "timed": true, "timeout_s": 240,
  "command": ["python3", "decode_cost.py", "--shim", "{shim}", "--out", "{out}"]},
 {"name": "profile_accuracy", "timed": true, "timeout_s": 240,
  "command": ["python3", "profile_accuracy.py", "--detshare", "bin/detshare", "--out", "{out}"]},
 {"name": "phase_accuracy", "timeout_s": 240,
  "command": ["python3", "phase_accuracy.py", "--detshare", "bin/detshare", "--out", "{out}"]},
 {"name": "tenant_latency", "timed": true, "timeout_s": 120,
  "command": ["bin/tenant_latency", "--check", "--driver", "{driver}", "--shim", "{shim}", "--out", "{out}"]},
 {"name": "tenant_latency_asleep", "timed": true, "timeout_s": 120,
  "command": ["bin/tenant_latency", "--check", "--held-us", "5000", "--holds", "1000", "--steps", "2000",
              "--driver", "{driver}", "--shim", "{shim}", "--out", "{out}"]},
 {"name": "tenants", "timed": true, "timeout_s": 300,
  "command": ["python3", "tenants.py", "--detshare", "bin/detshare", "--out", "{out}"]},
 {"name": "busy_idle", "timeout_s": 90,
  "command": ["python3", "busy_idle.py", "--detshare", "bin/detshare", "--program", "bin/step_probe", "--out", "{out}"]},
 {"name": "mps_restart", "timed": true, "timeout_s": 90,
  "command": ["python3", "mps_restart.py", "--detshare", "bin/detshare", "--shim", "{shim}", "--program", "bin/step_probe", "--out", "{out}"]},
 {"name": "kernel_fuzz", "timeout_s": 240,
  "command": ["bin/kernel_fuzz", "replay", "--all", "--jobs", "6", "--driver", "{driver}", "kernels.corpus"]},
 {"name": "block_level", "timeout_s": 600,
  "command": ["bin/block_level", "run", "--jobs", "6", "--driver", "{driver}", "--limit", "570", "--out", "{out}", "block-level"]},
 {"name": "block_level_shim", "timeout_s": 240,
  "command": ["python3", "block_level_shim.py", "--out", "{out}"]},
 {"name": "block_level_sharing", "timed": true, "timeout_s": 500,
  "command": ["python3", "block_level_sharing.py", "--limit", "450", "--out", "{out}"]},
 {"name": "quota", "timeout_s": 60,
  "command": ["env", "LD_PRELOAD={shim}", "DETSHARE_MEM=1GiB", "sh", "-c",
              "bin/quota_probe init managed:1000000 create:2097152 map:1 retain:1 free:1 free:2 info unmap:1 info array:512:512 cube:64:64:64 mipmap:512:512:4 info free:3 free:4 free:5 node:1000000 any-node:1000000 info graph-free:6 graph-free:7 info && bin/quota_probe init capture:1000000 info graph-free:0 info alloc:2000000000"]},
 {"name": "verify_managed", "timeout_s": 180,
  "command": ["sh", "-c", "bin/managed_probe || exit; bin/detshare verify --format json --timeout 60s -- bin/managed_probe > {out} && grep -q '\"memory_changes\": 24,' {out}"]},
 {"name": "instructions", "timeout_s": 120,
  "command": ["bin/instructions", "--driver", "{driver}", "--out", "{out}", "cases"]},
 {"name": "rounding", "timeout_s": 120,
  "command": ["bin/instructions", "--driver", "{driver}", "--rounding-as", "rounding.answers"]},
 {"name": "approximations", "timeout_s": 60,
  "command": ["bin/instructions", "--driver", "{driver}", "--approximations-as", "approximations.digests"]},
 {"name": "samples", "timeout_s": 300,
  "command": ["env", "LD_LIBRARY_PATH=runtime", "python3", "samples.py", "--programs", "samples", "--out", "{out}"]},
 {"name": "workloads_tests", "timeout_s": 240, "command": ["python3", "-m", "unittest", "discover", "workloads/tests"]},
 {"name": "softgpu_rate", "timed": true, "timeout_s": 120,
  "command": ["bin/softgpu_rate", "--check", "--driver", "bin/libdetshare_softgpu.so", "--out", "{out}"]},
 {"name": "softgpu_start", "timed": true, "timeout_s": 60,
  "command": ["bin/softgpu_start", "--check", "--driver", "bin/libdetshare_softgpu.so", "--out", "{out}"]},
 {"name": "ptx_rate", "timed": true, "timeout_s": 60,
  "command": ["bin/ptx_rate", "--check", "--driver", "bin/libdetshare_softgpu.so", "--out", "{out}"]},
 {"name": "vector_add", "timeout_s": 60, "command": ["bin/vector_add"]},
 {"name": "run_cost", "timed": true, "timeout_s": 120,
  "command": ["bin/run_cost", "--check", "--detshare", "bin/detshare", "--shim", "{shim}", "--cuda-program", "bin/vector_add",
              "--starts", "20", "--out", "{out}"]},
 {"name": "vector_add_shim", "timeout_s": 60, "command": ["env", "LD_PRELOAD={shim}", "bin/vector_add"]},
 {"name": "demo", "timed": true, "timeout_s": 120, "command": ["bin/xtask", "demo", "--built", "bin"]},
 {"name": "cost_forward", "timed": true, "timeout_s": 60,
  "command": ["bin/call_cost", "forward", "--shim", "{shim}", "--driver", "{stub}", "--out", "{out}", "--calls", "10000",
              "--added-at-most", "15"]},
 {"name": "cost_observed", "timed": true, "timeout_s": 60,
  "command": ["bin/call_cost", "observed", "--shim", "{shim}", "--driver", "{stub}", "--out", "{out}", "--calls", "10000",
              "--added-at-most", "15"]},
 {"name": "cost_launch", "timed": true, "timeout_s": 120,
  "command": ["bin/call_cost", "launch", "--shim", "{shim}", "--driver", "{driver}", "--out", "{out}", "--batches", "2000",
              "--ratio-at-most", "1.02"]},
 {"name": "cost_launch_again", "timed": true, "timeout_s": 120,
  "command": ["bin/call_cost", "launch", "--shim", "{shim}", "--driver", "{driver}", "--out", "{out}", "--batches", "2000",
              "--ratio-at-most", "1.02"]}
]
"#;

/// Generated kernels that are launched in parts: how many in all, and by one check, so that each of them fits beside others into a
/// few minutes.
const FUZZED: usize = 20_000;
const FUZZED_AT_ONCE: usize = 5_000;

/// The checks, one for each program that is verified, and those of generated kernels.
fn checks() -> String {
    let fuzzed = (0..FUZZED).step_by(FUZZED_AT_ONCE).map(|first| {
        let numbers = [first.to_string(), FUZZED_AT_ONCE.to_string()];
        let mut command = vec!["bin/block_level", "fuzz", "--driver", "{driver}", "--limit", "240", "--patience", "10"];
        command.extend(["--out", "{out}", "--first", &numbers[0], "--count", &numbers[1]]);
        let name = format!("block_level_fuzz_{first}");
        let check = serde_json::json!({ "name": name, "timeout_s": 270, "command": command });
        format!(",\n {check}")
    });
    let verified = VERIFIED.map(|name| {
        // It keeps compiled kernels from run to run.
        let warm_up = if name == "torch_compile" { "--warm-up " } else { "" };
        let program = format!("python3 workloads/{name}.py");
        let command = format!("bin/detshare verify {warm_up}--format json --timeout 120s -- {program} > {{out}}");
        let check =
            serde_json::json!({ "name": format!("verify_{name}"), "timeout_s": 300, "command": ["sh", "-c", command] });
        format!(",\n {check}")
    });
    format!(
        "{}{}\n]\n",
        CHECKS.trim_end().trim_end_matches(']').trim_end(),
        verified.into_iter().chain(fuzzed).collect::<String>()
    )
}

pub(crate) fn run(folder: &Path) -> Result<()> {
    lay_out(&build::for_gpu_machine()?, folder)?;
    let packed = pack(folder)?;
    println!("{}: the same as one file, {} MB", packed.display(), packed.metadata()?.len() / 1_000_000);
    Ok(())
}

/// The folder as one file beside it, a third of its size: what is copied to a GPU machine, and unpacked there by `tar xzf`.
fn pack(folder: &Path) -> Result<PathBuf> {
    let folder = folder.canonicalize().with_context(|| format!("cannot find {}", folder.display()))?;
    let (parent, name) = folder.parent().zip(folder.file_name()).context("a bundle is a folder in another one")?;
    let packed = folder.with_added_extension("tar.gz");
    run_command(Command::new("tar").arg("-C").arg(parent).arg("-czf").arg(&packed).arg(name))?;
    Ok(packed)
}

/// With what is built already.
pub(crate) fn lay_out(built: &Path, folder: &Path) -> Result<()> {
    for inner in ["lib", "bin", "workloads", "workloads/tests", "cases"] {
        let inner = folder.join(inner);
        std::fs::create_dir_all(&inner).with_context(|| format!("cannot make {}", inner.display()))?;
    }
    for name in [build::SHIM, "libcuda.so.1"] {
        std::fs::copy(built.join(build::SHIM), folder.join("lib").join(name))?;
    }
    // The samples are linked against it.
    std::fs::create_dir_all(folder.join("runtime"))?;
    std::fs::copy(built.join(build::CUDART_13), folder.join("runtime/libcudart.so.13"))?;
    for name in PROGRAMS {
        std::fs::copy(built.join(name), folder.join("bin").join(name))?;
    }
    copy_all(&root().join("crates/softgpu/tests/instructions/cases"), "ptx", &folder.join("cases"))?;
    for (answers, name) in [
        (softgpu::rounding_answers(), "rounding.answers"),
        (softgpu::approximation_digests(), "approximations.digests"),
        (softgpu::kernel_corpus(), "kernels.corpus"),
    ] {
        std::fs::copy(&answers, folder.join(name)).with_context(|| format!("cannot copy {}", answers.display()))?;
    }
    for inner in ["hand", "nvcc", "nvrtc", "numba"] {
        let to = folder.join("block-level").join(inner);
        std::fs::create_dir_all(&to)?;
        copy_all(&block_level::cases().join(inner), "ptx", &to)?;
    }
    std::fs::write(folder.join("bin/checks.json"), checks())?;
    std::fs::write(folder.join("source"), source())?;
    let scripts = [
        "run.py",
        "decode_cost.py",
        "profile_accuracy.py",
        "phase_accuracy.py",
        "tenants.py",
        "mps_restart.py",
        "busy_idle.py",
        "block_level_sharing.py",
        "block_level_figures.py",
        "block_level_shim.py",
        "daemon_under_test.py",
        "records.py",
        "sharing.py",
        "llm.py",
        "llm_plan.py",
        "samples.py",
        "conformance.py",
        "approximations.py",
    ];
    for script in scripts {
        std::fs::copy(root().join("bench/gpu").join(script), folder.join(script))?;
    }
    copy_traces(&root().join(TRACES), &folder.join("traces"))?;
    samples::copy_to(&folder.join("samples"))?;
    block_level::compile_long_work(&folder.join("bin/long_work"))?;
    copy_all(&root().join("workloads"), "py", &folder.join("workloads"))?;
    copy_all(&root().join("workloads/tests"), "py", &folder.join("workloads/tests"))?;
    println!("{}: run it on the GPU machine by `python3 run.py`", folder.display());
    Ok(())
}

/// Traces of requests, where they lie beside the checkout: data from elsewhere, which is never in it. Without them LLM servers
/// make requests up.
const TRACES: &str = "../shared/traces";

fn copy_traces(from: &Path, to: &Path) -> Result<()> {
    if !from.is_dir() {
        println!("no {}: LLM servers will make requests up", from.display());
        return Ok(());
    }
    std::fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    copy_all(from, "csv", to)
}

/// What all of it is built from, so that what was measured can be told from what came later.
fn source() -> String {
    let ask = |arguments: &[&str]| {
        let answer = Command::new("git").args(arguments).current_dir(root()).output().ok()?;
        answer.status.success().then(|| String::from_utf8_lossy(&answer.stdout).trim().to_string())
    };
    match (ask(&["rev-parse", "HEAD"]), ask(&["status", "--porcelain", "--untracked-files=no"])) {
        (Some(commit), Some(changes)) if changes.is_empty() => commit,
        (Some(commit), _) => format!("{commit}, changed"),
        (None, _) => "unknown".to_string(),
    }
}

/// Copies the files with that extension.
fn copy_all(from: &Path, extension: &str, to: &Path) -> Result<()> {
    for entry in std::fs::read_dir(from)? {
        let path = entry?.path();
        if path.extension().is_some_and(|it| it == extension) {
            std::fs::copy(&path, to.join(path.file_name().context("a file has a name")?))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn checks_are_json_with_names_of_their_own() {
        let checks: Vec<serde_json::Value> = serde_json::from_str(&checks()).expect("JSON");
        let names: BTreeSet<_> = checks.iter().map(|check| check["name"].as_str().expect("a name")).collect();
        assert_eq!(names.len(), checks.len());
        let first = |name: &str| name.strip_prefix("block_level_fuzz_").and_then(|first| first.parse::<usize>().ok());
        let fuzzed: BTreeSet<usize> = names.iter().filter_map(|name| first(name)).collect();
        assert_eq!(fuzzed.into_iter().collect::<Vec<_>>(), [0, 5_000, 10_000, 15_000]);
        // None takes so long that others could not run beside it in one go.
        assert!(checks.iter().all(|check| check["timeout_s"].as_u64().is_some_and(|limit| limit <= 600)));
    }

    #[test]
    fn one_file_has_all_of_it() {
        let place = std::env::temp_dir().join(format!("detshare-packed-{}", std::process::id()));
        let bundle = place.join("a bundle.d");
        std::fs::create_dir_all(bundle.join("bin")).unwrap();
        std::fs::write(bundle.join("bin/xtask"), "program").unwrap();
        let packed = pack(&bundle).unwrap();
        assert_eq!(packed, place.canonicalize().unwrap().join("a bundle.d.tar.gz"));
        let elsewhere = place.join("elsewhere");
        std::fs::create_dir_all(&elsewhere).unwrap();
        run_command(Command::new("tar").arg("-C").arg(&elsewhere).arg("-xzf").arg(packed)).unwrap();
        assert_eq!(std::fs::read_to_string(elsewhere.join("a bundle.d/bin/xtask")).unwrap(), "program");
        std::fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn traces_are_in_the_bundle_where_there_are_any() {
        let place = std::env::temp_dir().join(format!("detshare-traces-{}", std::process::id()));
        let (from, to) = (place.join("shared"), place.join("bundle/traces"));
        copy_traces(&from, &to).unwrap();
        assert!(!to.exists(), "there are none");
        std::fs::create_dir_all(&from).unwrap();
        for file in ["azure-llm-2023-conv.csv", "azure-llm-2023-code.csv", "README.md"] {
            std::fs::write(from.join(file), "TIMESTAMP").unwrap();
        }
        copy_traces(&from, &to).unwrap();
        let mut copied: Vec<_> = to.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        copied.sort();
        assert_eq!(copied, ["azure-llm-2023-code.csv", "azure-llm-2023-conv.csv"]);
        std::fs::remove_dir_all(place).unwrap();
    }
}
