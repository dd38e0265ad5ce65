//! `cargo xtask demo`: small CUDA programs through the shim, on whatever driver there is; on the software GPU
//! where there is none, two of them side by side, and two as tenants of a daemon.
//!
//! Where there is no cargo, `xtask demo --built FOLDER` shows the same with programs that were built elsewhere: the GPU bundle has
//! them in `bin`.

use crate::build;
use crate::daemon::Daemon;
use anyhow::{Context, Result, bail, ensure};
use detshare_cuda::driver::{Search, find};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Slow enough that the modelled time, not this machine's cores, decides how long a kernel takes.
const SOFTGPU_SPEED: &str = "0.000005";
const LAUNCHES: &str = "6";
/// Longer than tenants take to start.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(5);

pub(crate) fn demo(built: Option<PathBuf>) -> Result<()> {
    match built {
        Some(built) => with(&built),
        None => {
            println!("building the shim, the software GPU and two small CUDA programs …");
            with(&build::here()?)
        }
    }
}

/// With what is built already.
fn with(built: &Path) -> Result<()> {
    // The loader takes no other paths.
    let built = built.canonicalize().with_context(|| format!("no folder {}", built.display()))?;
    let stage = Stage::new(built)?;
    println!("\nthrough the shim, on {}:", stage.driver.display());
    let stats = stage.scratch.path().join("stats.json");
    let mut vector_add = stage.command("vector_add", &[]);
    println!("  {}", finish(spawn(vector_add.env("DETSHARE_STATS", &stats))?)?);
    show(&stats)?;
    stage.side_by_side()?;
    stage.tenants()
}

/// A tenant of the demo, and how its program computes: with more work on a GPU, where what keeps a CPU busy takes no time.
struct Tenant {
    name: &'static str,
    class: &'static str,
    steps: [&'static str; 6],
    work_on_gpu: &'static str,
    work_on_software: &'static str,
}

const TENANTS: [Tenant; 2] = [
    Tenant {
        name: "service",
        class: "latency",
        steps: ["--steps", "3000", "--kernels", "2", "--pause-us", "500"],
        work_on_gpu: "20",
        work_on_software: "20",
    },
    Tenant {
        name: "training",
        class: "best-effort",
        steps: ["--steps", "1500", "--kernels", "4", "--pause-us", "0"],
        work_on_gpu: "100000",
        work_on_software: "1000",
    },
];

/// There is a GPU, whether or not its driver is found.
const GPU: &str = "/dev/nvidia0";

struct Stage {
    built: PathBuf,
    shim: PathBuf,
    driver: PathBuf,
    is_software: bool,
    scratch: TempDir,
}

impl Stage {
    fn new(built: PathBuf) -> Result<Self> {
        // Beside the programs as cargo builds it, or as it is shipped.
        let mut places = [built.join(build::SHIM), built.join("../lib").join(build::SHIM)].into_iter();
        let shim = places.find(|place| place.is_file()).with_context(|| format!("no shim for {}", built.display()))?;
        let found = find(&Search { named: None, library_path: std::env::var_os("LD_LIBRARY_PATH") });
        let is_software = found.is_err();
        let driver = match found {
            Ok(driver) => driver,
            Err(error) => {
                ensure!(!Path::new(GPU).exists(), "there is a GPU, and {error}");
                println!("no CUDA driver on this machine: the software GPU stands in for one");
                built.join(build::SOFTGPU)
            }
        };
        Ok(Self { built, shim, driver, is_software, scratch: tempfile::tempdir()? })
    }

    /// One of our programs through the shim.
    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.built.join(program));
        command.args(arguments).env("LD_PRELOAD", &self.shim).env("DETSHARE_DRIVER", &self.driver);
        command
    }

    /// Two programs alone and together, on the same SMs and on SMs of their own.
    fn side_by_side(&self) -> Result<()> {
        println!("\n  two processes                    first: ms a launch   second: ms a launch   both computed");
        let all: &[&str] = &[LAUNCHES];
        let (front, back): (&[&str], &[&str]) = (&[LAUNCHES, "front", "64"], &[LAUNCHES, "rest", "64"]);
        let mut checksum = None;
        for (name, first, second, together) in [
            ("one after the other", all, all, false),
            ("together on all SMs", all, all, true),
            ("on 64 SMs, then on the others", front, back, false),
            ("together, each on SMs of its own", front, back, true),
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
        let expected = TENANTS.map(|tenant| self.alone(&tenant));
        let daemon = Daemon::start(&self.built, "fair")?;
        let status: serde_json::Value = serde_json::from_str(&daemon.answer(["status", "--format", "json"])?)?;
        let children = TENANTS.map(|tenant| spawn(&mut self.tenant(&daemon, &tenant)));
        // Both begin when both are there, so that they share the GPU for as long as they work.
        let is_ready = |tenant: &Tenant| self.file(tenant, "start.ready").exists();
        until("set up", || Ok(TENANTS.iter().all(is_ready)))?;
        TENANTS.iter().try_for_each(|tenant| std::fs::write(self.file(tenant, "start"), ""))?;
        until("at work", || {
            let tenants: serde_json::Value = serde_json::from_str(&daemon.answer(["ps", "--format", "json"])?)?;
            let works = |tenant: &serde_json::Value| tenant["launches"].as_u64().is_some_and(|launches| launches > 100);
            Ok(tenants.as_array().is_some_and(|tenants| tenants.len() == TENANTS.len() && tenants.iter().all(works)))
        })?;
        daemon.answer(["ps"])?.lines().for_each(|line| println!("  {line}"));
        println!();
        for ((Tenant { name, .. }, child), expected) in TENANTS.into_iter().zip(children).zip(expected) {
            let (computed, expected) = (finish(child?)?, expected?);
            ensure!(computed == expected, "{name} computed {computed} and alone {expected}");
            println!("  {name:10} computed {computed}, as alone");
        }
        // Where SMs cannot be partitioned another policy stands in, which has no sides to give.
        if status["policy"] == "fair" {
            let beside = TENANTS.map(|tenant| launches_beside(&self.file(&tenant, "stats")));
            let beside = beside.into_iter().sum::<Result<u64>>()?;
            ensure!(beside > 0, "under fair no launch of the tenants ran on a side of a split, all on full");
            println!("  {beside} launches ran on a side of a split");
        }
        Ok(())
    }

    /// What it computes without the shim, on the driver itself.
    fn alone(&self, tenant: &Tenant) -> Result<String> {
        let mut command = Command::new(self.built.join("steps"));
        command.args(self.steps(tenant));
        if self.is_software {
            let folder = self.scratch.path().join("driver");
            std::fs::create_dir_all(&folder)?;
            let link = folder.join("libcuda.so.1");
            if !link.exists() {
                std::os::unix::fs::symlink(&self.driver, link)?;
            }
            command.env("LD_LIBRARY_PATH", folder);
        }
        finish(spawn(&mut command)?)
    }

    fn tenant(&self, daemon: &Daemon, tenant: &Tenant) -> Command {
        let mut command = daemon.detshare(["run", "--name", tenant.name, "--class", tenant.class, "--"]);
        command.arg(self.built.join("steps")).args(self.steps(tenant));
        command.arg("--start-file").arg(self.file(tenant, "start"));
        command.env("DETSHARE_DRIVER", &self.driver).env("DETSHARE_STATS", self.file(tenant, "stats"));
        command
    }

    fn steps(&self, tenant: &Tenant) -> Vec<&'static str> {
        let work = if self.is_software { tenant.work_on_software } else { tenant.work_on_gpu };
        [&tenant.steps[..], &["--work", work]].concat()
    }

    /// A file of a tenant's.
    fn file(&self, tenant: &Tenant, what: &str) -> PathBuf {
        self.scratch.path().join(format!("{}.{what}", tenant.name))
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

/// Until the tenants have come so far.
fn until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !is_so()? {
        ensure!(Instant::now() < deadline, "the tenants of the demo were never {what}");
        std::thread::sleep(PAUSE);
    }
    Ok(())
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
