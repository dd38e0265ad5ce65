//! The shim under valgrind: no access where there is nothing, and nothing lost.

use crate::stage::{Build, Stage, shim, stub_driver, tenant};
use std::process::Command;

/// Valgrind's own exit code for what it found.
const FOUND: &str = "--error-exitcode=99";

fn clean(scenario: &str) {
    let stage = Stage::new();
    let mut command = Command::new("valgrind");
    command
        .args(["--quiet", FOUND, "--leak-check=full", "--errors-for-leak-kinds=definite,indirect"])
        .arg(tenant(Build::Opening))
        .arg(scenario)
        .env("LD_PRELOAD", shim())
        .env("DETSHARE_DRIVER", stub_driver())
        .env("DETSHARE_STATS", stage.path().join("stats.json"));
    match command.output() {
        Err(_) => eprintln!("skipped: valgrind is not installed"),
        Ok(output) => {
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && errors.is_empty(), "{scenario}: {} {errors}", output.status);
        }
    }
}

#[test]
fn start_up_from_many_threads() {
    clean("threads");
}

#[test]
fn work_and_exit() {
    clean("exit");
}

#[test]
fn forking() {
    clean("fork-beside-first-call");
}
