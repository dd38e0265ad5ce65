//! `cargo xtask bench`: what a call through the shim costs, on the stub driver, and how fast the software GPU is. It fails below what is
//! asked of the software GPU.

use crate::process::{cargo, root, run, target};
use crate::{build, softgpu};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The runner must have the version of the library that the benchmark is built with.
const RUNNER: &str = "gungraun-runner@0.20.0";
/// Calls in each gungraun benchmark, as in `bench/benches/instructions.rs`.
const CALLS: f64 = 1000.0;
const CALLS_PER_BATCH: &str = "10000";

/// Measures, prints a table and, if asked, records it under `bench/results`: nothing is recorded where something is below what is asked.
pub(crate) fn bench(record: bool) -> Result<()> {
    let built = build::here()?;
    let mut rows = Vec::new();
    instructions(&built)?;
    for call in ["forward", "observed"] {
        let nanoseconds = nanoseconds(&built, call)?;
        let through_shim = instruction_count(call, "through_shim")? - instruction_count(call, "direct")?;
        rows.push(json!({ "call": call, "instructions_added": through_shim / CALLS, "time": nanoseconds }));
    }
    println!("\n  call       instructions added   nanoseconds added   (bare, through the shim)");
    for row in &rows {
        let time = |key: &str| row["time"][key].as_f64().unwrap_or(f64::NAN);
        let (bare, through_shim) = (time("bare_ns"), time("through_shim_ns"));
        println!(
            "  {:10} {:>18.2} {:>19.2}   ({bare:.2}, {through_shim:.2})",
            row["call"].as_str().unwrap_or(""),
            row["instructions_added"].as_f64().unwrap_or(f64::NAN),
            through_shim - bare,
        );
    }
    println!();
    let rate = softgpu_figures(&built, "softgpu_rate", None);
    let start = softgpu_figures(&built, "softgpu_start", Some(("--detshare", built.join("detshare"))));
    let corpus = root().join("crates/ptx/tests/corpus");
    let ptx = softgpu_figures(&built, "ptx_rate", Some(("--corpus", corpus)));
    let numba = numba_simulator(&built);
    let sim = simulated_rate();
    // All are measured before the first one that is too slow ends it.
    let (rate, start, ptx, numba, sim) = (rate?, start?, ptx?, numba?, sim?);
    if record {
        let records = [
            ("call-cost-stub.json", json!({ "calls": rows })),
            ("softgpu-rate.json", rate),
            ("softgpu-start.json", json!({ "start": start })),
            ("softgpu-memory.json", footprint(&built)?),
            ("softgpu-numba.json", numba),
            ("ptx-rate.json", ptx),
            ("sim-rate.json", sim),
        ];
        records.into_iter().try_for_each(|(name, report)| write_record("cargo xtask bench --record", name, report))?;
    }
    Ok(())
}

/// Writes figures with the command, the commit, the machine and the date.
pub(crate) fn write_record(command: &str, name: &str, mut report: Value) -> Result<()> {
    report["command"] = command.into();
    report["commit"] = commit()?.into();
    report["machine"] = machine().into();
    report["date"] = date()?.into();
    let path = root().join("bench/results").join(name);
    std::fs::create_dir_all(path.parent().context("results lie in a folder")?)?;
    std::fs::write(&path, format!("{report:#}\n"))?;
    println!("recorded in {}", path.display());
    Ok(())
}

/// What a benchmark of the software GPU measures, with one more option of its own. It fails by itself below what is asked.
fn softgpu_figures(built: &Path, benchmark: &str, option: Option<(&str, PathBuf)>) -> Result<Value> {
    let out = target().join(format!("{benchmark}.json"));
    let mut command = Command::new(built.join(benchmark));
    command.arg("--check").arg("--driver").arg(built.join(build::SOFTGPU)).arg("--out").arg(&out);
    if let Some((flag, value)) = option {
        command.arg(flag).arg(value);
    }
    run(&mut command)?;
    Ok(serde_json::from_str(&std::fs::read_to_string(out)?)?)
}

/// How much faster than Numba's simulator the software GPU is, for small matrices and larger ones; it fails by itself where that is too
/// little.
fn numba_simulator(built: &Path) -> Result<Value> {
    let packages = softgpu::numba()?;
    let measured = ["64", "128"].map(|size| {
        let out = target().join(format!("softgpu-numba-{size}.json"));
        let mut script = Command::new("python3");
        script.args(["-W", "ignore", "bench/numba_simulator.py", "--check", "--size", size]);
        script.arg("--driver").arg(built.join(build::SOFTGPU)).arg("--out").arg(&out);
        run(softgpu::numba_environment(&mut script, &packages))?;
        Ok::<Value, anyhow::Error>(serde_json::from_str(&std::fs::read_to_string(out)?)?)
    });
    Ok(json!({ "multiplies": measured.into_iter().collect::<Result<Value>>()? }))
}

/// How fast the simulator is; it fails by itself where it is too slow.
fn simulated_rate() -> Result<Value> {
    let out = target().join("sim-rate.json");
    let mut example = cargo();
    example.args(["run", "--quiet", "--release", "--package", "detshare-sim", "--example", "ways", "--", "--out"]);
    run(example.arg(&out)).context("the simulator is slower than a million launches a second")?;
    Ok(serde_json::from_str(&std::fs::read_to_string(out)?)?)
}

/// The memory of programs on the software GPU, which its test measures.
fn footprint(built: &Path) -> Result<Value> {
    let out = target().join("softgpu-memory.json");
    let mut test = cargo();
    test.args(["test", "--quiet", "--package", "detshare-softgpu", "--test", "footprint"]);
    run(test.env("DETSHARE_BUILT", built).env("DETSHARE_FOOTPRINT", &out))?;
    Ok(serde_json::from_str(&std::fs::read_to_string(out)?)?)
}

fn nanoseconds(built: &Path, call: &str) -> Result<Value> {
    let out = target().join(format!("call-cost-{call}.json"));
    run(Command::new(built.join("call_cost"))
        .args([call, "--calls", CALLS_PER_BATCH, "--shim"])
        .arg(built.join(build::SHIM))
        .arg("--driver")
        .arg(built.join(build::STUB_DRIVER))
        .arg("--out")
        .arg(&out))?;
    Ok(serde_json::from_str(&std::fs::read_to_string(out)?)?)
}

fn instructions(built: &Path) -> Result<()> {
    let tools = target().join("tools");
    if !tools.join("bin/gungraun-runner").exists() {
        run(cargo().args(["install", "--quiet", "--locked", RUNNER, "--root"]).arg(&tools))?;
    }
    run(cargo()
        .args(["bench", "--quiet", "--package", "detshare-bench", "--bench", "instructions", "--"])
        .arg("--save-summary=json")
        .env("GUNGRAUN_RUNNER", tools.join("bin/gungraun-runner"))
        .env("DETSHARE_BUILT", built))
    .context("counting instructions needs valgrind")
}

/// The instructions that gungraun counted.
fn instruction_count(benchmark: &str, side: &str) -> Result<f64> {
    let folder = format!("gungraun/detshare-bench/instructions/calls/{benchmark}.{side}/summary.json");
    let path = target().join(folder);
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    find_instructions(&serde_json::from_str(&text)?)
        .with_context(|| format!("no instruction count in {}", path.display()))
}

/// The first number below a key `Ir`, wherever gungraun puts it.
fn find_instructions(value: &Value) -> Option<f64> {
    match value {
        Value::Object(fields) => {
            fields.get("Ir").and_then(first_number).or_else(|| fields.values().find_map(find_instructions))
        }
        Value::Array(items) => items.iter().find_map(find_instructions),
        _ => None,
    }
}

fn first_number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::Object(fields) => fields.values().find_map(first_number),
        Value::Array(items) => items.iter().find_map(first_number),
        _ => None,
    }
}

/// What was measured: the commit, and whether files differ from it. (Other records, of a minute ago, are no difference.)
fn commit() -> Result<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).current_dir(root()).output().context("git")?;
        ensure!(output.status.success(), "git {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
        anyhow::Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--untracked-files=no", "--", ".", ":!bench/results"])?;
    Ok(if changed.is_empty() { commit } else { format!("{commit} with changes") })
}

fn machine() -> String {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let count = cpus.lines().filter(|line| line.starts_with("processor")).count();
    format!("{}, {count} cores", model.map_or("unknown processor", |(_, name)| name.trim()))
}

fn date() -> Result<String> {
    let output = Command::new("date").arg("+%F").output().context("date")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
}
