//! `cargo xtask demo`: a small CUDA program through the shim, on whatever driver there is.

use crate::build;
use crate::process::{run, target};
use anyhow::{Context, Result};
use detshare_cuda::driver::{Search, find};
use std::path::Path;
use std::process::Command;

pub(crate) fn demo() -> Result<()> {
    println!("building the shim and a small CUDA program …");
    let built = build::here()?;
    let program = built.join("vector_add");
    let search = Search { named: None, library_path: std::env::var_os("LD_LIBRARY_PATH") };
    let driver = match find(&search) {
        Ok(driver) => {
            println!("\nwithout the shim, on the driver {}:", driver.display());
            run(&mut Command::new(&program))?;
            driver
        }
        Err(_) => {
            println!("\nno CUDA driver on this machine: the stub driver answers, and computes nothing");
            built.join(build::STUB_DRIVER)
        }
    };
    println!("\nthrough the shim:");
    let stats = target().join("demo-stats.json");
    run(Command::new(&program)
        .env("LD_PRELOAD", built.join(build::SHIM))
        .env("DETSHARE_DRIVER", &driver)
        .env("DETSHARE_STATS", &stats))?;
    show(&stats)
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
