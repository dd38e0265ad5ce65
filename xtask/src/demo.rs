//! `cargo xtask demo`: small CUDA programs through the shim, on whatever driver there is; on the software GPU
//! where there is none, two of them side by side, and two as tenants of a daemon.

use crate::build;
use crate::daemon::Daemon;
use crate::process::target;
use anyhow::{Context, Result, bail, ensure};
use detshare_cuda::driver::{Search, find};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Slow enough that the modelled time, not this machine's cores, decides how long a kernel takes.
const SOFTGPU_SPEED: &str = "0.000005";
const LAUNCHES: &str = "6";
/// Longer than tenants take to start.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn demo() -> Result<()> {
    println!("building the shim, the software GPU and two small CUDA programs …");
    with(build::here()?)
}

/// With what is built already.
pub(crate) fn with(built: PathBuf) -> Result<()> {
    let search = Search { named: None, library_path: std::env::var_os("LD_LIBRARY_PATH") };
    let driver = find(&search).unwrap_or_else(|_| {
        println!("no CUDA driver on this machine: the software GPU stands in for one");
        built.join(build::SOFTGPU)
    });
    let stage = Stage { built, driver };
    println!("\nthrough the shim, on {}:", stage.driver.display());
    let stats = target().join("demo-stats.json");
    let mut vector_add = stage.command("vector_add", &[]);
    println!("  {}", finish(spawn(vector_add.env("DETSHARE_STATS", &stats))?)?);
    show(&stats)?;
    stage.side_by_side()?;
    stage.tenants()
}

/// A tenant of the demo: name, class, and how its program computes.
const TENANTS: [(&str, &str, &[&str]); 2] = [
    ("service", "latency", &["--steps", "3000", "--kernels", "2", "--pause-us", "500"]),
    ("training", "best-effort", &["--steps", "1500", "--kernels", "4", "--work", "1000"]),
];

struct Stage {
    built: PathBuf,
    driver: PathBuf,
}

impl Stage {
    /// One of our programs through the shim.
    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.built.join(program));
        command.args(arguments).env("LD_PRELOAD", self.built.join(build::SHIM)).env("DETSHARE_DRIVER", &self.driver);
        command
    }

    /// Two programs alone and together, on the same SMs and on SMs of their own.
    fn side_by_side(&self) -> Result<()> {
        println!("\n  two processes                    first: ms a launch   second: ms a launch   both computed");
        let all: &[&str] = &[LAUNCHES];
        let (front, back): (&[&str], &[&str]) = (&[LAUNCHES, "0", "64"], &[LAUNCHES, "64", "64"]);
        let mut checksum = None;
        for (name, first, second, together) in [
            ("one after the other", all, all, false),
            ("together on all SMs", all, all, true),
            ("on 64 SMs, one after the other", front, back, false),
            ("together, each on its own 64 SMs", front, back, true),
        ] {
            let (first, second) = self.pair(first, second, together)?;
            ensure!(first.0 == second.0, "they computed {} and {}", first.0, second.0);
            ensure!(*checksum.get_or_insert(first.0.clone()) == first.0, "not the same bits as before: {}", first.0);
            println!("  {name:32} {:>19} {:>21}   {}", first.1, second.1, first.0);
        }
        Ok(())
    }

    /// Two programs through `detshare run`, which share the GPU by the policy `fair`.
    fn tenants(&self) -> Result<()> {
        println!("\n  two tenants by `detshare run`, policy fair; `detshare ps` meanwhile:");
        let alone = |arguments: &[&str]| {
            let mut command = Command::new(self.built.join("steps"));
            // Without the shim: what the driver itself computes.
            command.args(arguments).env("LD_LIBRARY_PATH", self.driver_folder()?);
            finish(spawn(&mut command)?)
        };
        let expected = TENANTS.map(|(_, _, arguments)| alone(arguments));
        let daemon = Daemon::start(&self.built, "fair")?;
        let counts = tempfile::tempdir()?;
        let start = |(name, class, arguments): (&str, &str, &[&str])| {
            let mut command = daemon.detshare(["run", "--name", name, "--class", class, "--"]);
            command.arg(self.built.join("steps")).args(arguments).env("DETSHARE_DRIVER", &self.driver);
            spawn(command.env("DETSHARE_STATS", counts.path().join(name)))
        };
        let status: serde_json::Value = serde_json::from_str(&daemon.answer(["status", "--format", "json"])?)?;
        let children = TENANTS.map(start);
        let both_work = || -> Result<bool> {
            let tenants: serde_json::Value = serde_json::from_str(&daemon.answer(["ps", "--format", "json"])?)?;
            let works = |tenant: &serde_json::Value| tenant["launches"].as_u64().is_some_and(|launches| launches > 100);
            Ok(tenants.as_array().is_some_and(|tenants| tenants.len() == TENANTS.len() && tenants.iter().all(works)))
        };
        let deadline = Instant::now() + PATIENCE;
        while !both_work()? {
            ensure!(Instant::now() < deadline, "the tenants of the demo did not come to work");
        }
        daemon.answer(["ps"])?.lines().for_each(|line| println!("  {line}"));
        println!();
        for (((name, ..), child), expected) in TENANTS.into_iter().zip(children).zip(expected) {
            let (computed, expected) = (finish(child?)?, expected?);
            ensure!(computed == expected, "{name} computed {computed} and alone {expected}");
            println!("  {name:10} computed {computed}, as alone");
        }
        // Where SMs cannot be partitioned another policy stands in, which has no sides to give.
        if status["policy"] == "fair" {
            let beside = TENANTS.map(|(name, ..)| launches_beside(&counts.path().join(name)));
            let beside = beside.into_iter().sum::<Result<u64>>()?;
            ensure!(beside > 0, "under fair no launch of the tenants ran on a side of a split, all on full");
            println!("  {beside} launches ran on a side of a split");
        }
        Ok(())
    }

    /// A folder in which the driver is called `libcuda.so.1`.
    fn driver_folder(&self) -> Result<PathBuf> {
        let folder = target().join("demo-driver");
        std::fs::create_dir_all(&folder)?;
        let link = folder.join("libcuda.so.1");
        // It may be of an earlier run.
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(&self.driver, link)?;
        Ok(folder)
    }

    fn pair(&self, first: &[&str], second: &[&str], together: bool) -> Result<((String, String), (String, String))> {
        let start = |arguments| spawn(self.command("fma_loop", arguments).env("DETSHARE_SOFTGPU_SPEED", SOFTGPU_SPEED));
        let first = start(first)?;
        if together {
            let second = start(second)?;
            return Ok((figures(first)?, figures(second)?));
        }
        Ok((figures(first)?, figures(start(second)?)?))
    }
}

fn spawn(command: &mut Command) -> Result<Child> {
    command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start {command:?}"))
}

/// What it printed, once it has ended well.
fn finish(child: Child) -> Result<String> {
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("a program of the demo ended with {}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
}

/// The checksum and the time that `fma_loop` printed.
fn figures(child: Child) -> Result<(String, String)> {
    let line = finish(child)?;
    let (checksum, time) = line.split_once(' ').with_context(|| format!("fma_loop printed {line:?}"))?;
    Ok((checksum.to_string(), time.to_string()))
}

/// How many launches ran on another lane than `full`.
fn launches_beside(stats: &Path) -> Result<u64> {
    let text = std::fs::read_to_string(stats).with_context(|| format!("the shim wrote no {}", stats.display()))?;
    let stats: serde_json::Value = serde_json::from_str(&text)?;
    let lanes = stats["lanes"]["each"].as_array().context("counts by lane")?;
    Ok(lanes.iter().filter(|lane| lane["name"] != "full").filter_map(|lane| lane["launches"].as_u64()).sum())
}

/// What the shim saw, as a table.
fn show(stats: &Path) -> Result<()> {
    let text = std::fs::read_to_string(stats).with_context(|| format!("the shim wrote no {}", stats.display()))?;
    let stats: serde_json::Value = serde_json::from_str(&text)?;
    println!("\n  what came through     calls");
    for (name, count) in stats["by_function"].as_object().context("counts by function")? {
        println!("  {name:20} {:>6}", count.to_string());
    }
    Ok(())
}
