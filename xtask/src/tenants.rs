//! The tenants' part: the GPU bundle's scripts where there is no GPU, and what the daemon and `detshare run` cost.

use crate::bench::write_record;
use crate::process::{root, run, target};
use crate::{build, softgpu};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the figures are recorded by.
const RECORDED_BY: &str = "cargo xtask bench --tenants --record";
/// What the daemon may take of a core beside 16 busy tenants, in percent.
const DAEMON_PERCENT: &str = "1";
/// What every survivor is to go on within, in milliseconds.
pub(crate) const SURVIVORS_GO_ON_MS: &str = "100";
/// As many as CI runs.
const ROUNDS: &str = "1000";

/// Two tenants of which one, or the daemon, is killed, and all ways of being busy: what the bundle checks on a GPU, with the same
/// scripts. It shows that they run and judge; what they find there, they find on a GPU.
pub(crate) fn scripts(built: &Path) -> Result<()> {
    let mut tenants = script(built, "tenants.py");
    // Less work than on a GPU: enough for one to be killed and started again beside the other.
    tenants.args(["--programs", "soft", "--quick", "--scale", "0.2", "--steps-program"]).arg(built.join("steps"));
    run(tenants.arg("--out").arg(target().join("tenants.json")))?;
    let mut busy_idle = script(built, "busy_idle.py");
    run(busy_idle.arg("--program").arg(built.join("step_probe")).arg("--out").arg(target().join("busy-idle.json")))
}

fn script(built: &Path, name: &str) -> Command {
    let mut script = Command::new("python3");
    script.arg(root().join("bench/gpu").join(name)).arg("--detshare").arg(built.join("detshare"));
    script.arg("--softgpu").arg(built.join(build::SOFTGPU));
    script.env("DETSHARE_SHIM", built.join(build::SHIM)).env("DETSHARE_DAEMON", built.join("detshared"));
    script
}

/// Measures with the checks of what is asked for, and records it under `bench/results` if asked to: nothing is recorded where a check
/// fails.
pub(crate) fn bench(record: bool) -> Result<()> {
    let built = build::here()?;
    let idle = chaos(&built, "idle-cost", &["--at-most", DAEMON_PERCENT])?;
    let churn = chaos(&built, "churn", &[])?;
    let starts = run_cost(&built)?;
    let crowd = chaos(&built, "crowd", &[])?;
    let chaos = chaos(&built, "chaos", &["--rounds", ROUNDS, "--seed", "1", "--within-ms", SURVIVORS_GO_ON_MS])?;
    if record {
        write_record(RECORDED_BY, "daemon-cost.json", json!({ "idle_cost": idle, "churn": churn }))?;
        write_record(RECORDED_BY, "run-cost.json", starts)?;
        write_record(RECORDED_BY, "chaos.json", chaos)?;
        write_record(RECORDED_BY, "crowd.json", crowd)?;
    }
    Ok(())
}

/// What a run of the daemon and its tenants found, and by which command.
fn chaos(built: &Path, what: &str, arguments: &[&str]) -> Result<Value> {
    let out = out_file(what);
    let path = out.to_str().context("the target folder has a name that is no text")?;
    softgpu::chaos(built, &[&[what], arguments, &["--out", path]].concat())?;
    let found = read(&out)?;
    Ok(json!({ "program": by(built, &found), "figures": found["figures"], "ran_on": found["machine"] }))
}

fn run_cost(built: &Path) -> Result<Value> {
    let out = out_file("run-cost");
    let mut program = Command::new(built.join("run_cost"));
    program.args(["--check", "--cold"]).arg("--detshare").arg(built.join("detshare"));
    program.arg("--shim").arg(built.join(build::SHIM)).arg("--softgpu").arg(built.join(build::SOFTGPU));
    program.arg("--cuda-program").arg(built.join("steps")).args(["--cuda-argument", "--steps", "--cuda-argument", "1"]);
    run(program.arg("--out").arg(&out))?;
    let found = read(&out)?;
    Ok(json!({ "program": by(built, &found), "cases": found["cases"] }))
}

/// The command of a program, as anybody would give it: where things lie here says nothing.
fn by(built: &Path, found: &Value) -> String {
    let command = found["command"].as_str().unwrap_or_default();
    [built, &target()]
        .iter()
        .fold(command.to_string(), |text, folder| text.replace(&format!("{}/", folder.display()), ""))
}

fn out_file(what: &str) -> PathBuf {
    target().join(format!("tenants-{what}.json"))
}

fn read(file: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(serde_json::from_str(&text)?)
}
