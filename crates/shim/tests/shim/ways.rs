//! However a program gets to the driver, it gets to the shim, and the shim to the real driver.

use crate::stage::{Build, Stage, shim, stub_driver, succeed};
use std::ffi::OsString;
use std::path::Path;

/// What `work` does, seen from both ends.
fn assert_worked(stage: &Stage) {
    for function in ["cuInit", "cuLaunchKernel", "cuLaunchKernel_ptsz", "cuLaunchKernelEx", "cuMemcpyHtoD_v2"] {
        assert_eq!(stage.calls(function), 1, "{function} at the driver");
    }
    let stats = stage.stats();
    assert_eq!(stats["counts"]["launches"], 3, "{stats}");
    assert_eq!(stats["by_function"]["cuLaunchKernel_ptsz"], 1, "{stats}");
}

fn joined(folders: &[&Path]) -> OsString {
    std::env::join_paths(folders).expect("temporary folders have no colon")
}

#[test]
fn preloaded_into_a_program_that_opens_the_driver() {
    let stage = Stage::new();
    succeed(&mut stage.preloaded(Build::Opening, "work"));
    assert_worked(&stage);
}

#[test]
fn preloaded_into_a_program_that_is_linked() {
    let stage = Stage::new();
    succeed(&mut stage.preloaded(Build::Linked, "work"));
    assert_worked(&stage);
}

#[test]
fn first_on_the_library_path() {
    for build in [Build::Opening, Build::Linked] {
        let stage = Stage::new();
        let folder = stage.folder_with("shim", &shim());
        let mut program = stage.preloaded(build, "work");
        succeed(program.env_remove("LD_PRELOAD").env("LD_LIBRARY_PATH", folder));
        assert_worked(&stage);
    }
}

#[test]
fn finds_the_driver_behind_itself_and_behind_its_copies() {
    let stage = Stage::new();
    let copy = stage.path().join("copy.so");
    std::fs::copy(shim(), &copy).expect("the shim can be copied");
    let folders = [
        stage.folder_with("shim", &shim()),
        stage.folder_with("copy", &copy),
        stage.folder_with("broken", Path::new("/nowhere")),
        stage.folder_with("driver", &stub_driver()),
    ];
    let path = joined(&folders.each_ref().map(std::path::PathBuf::as_path));
    let mut program = stage.preloaded(Build::Linked, "work");
    succeed(program.env_remove("LD_PRELOAD").env_remove("DETSHARE_DRIVER").env("LD_LIBRARY_PATH", path));
    assert_worked(&stage);
    let found = stage.stats()["driver"]["path"].as_str().map(String::from);
    assert_eq!(found, Some(folders[3].join("libcuda.so.1").display().to_string()));
}

#[test]
fn a_global_lookup_never_finds_the_driver_behind_the_shim() {
    let stage = Stage::new();
    assert_eq!(succeed(&mut stage.preloaded(Build::Opening, "global-lookup")), "the same");
    let folder = stage.folder_with("shim", &shim());
    let mut program = stage.preloaded(Build::Opening, "global-lookup");
    let found = succeed(program.env_remove("LD_PRELOAD").env("LD_LIBRARY_PATH", folder));
    assert_eq!(found, "not visible", "as with the bare driver");
}

#[test]
fn by_query_as_the_runtime_does_it() {
    for build in [Build::Opening, Build::Linked] {
        let stage = Stage::new();
        succeed(&mut stage.preloaded(build, "query"));
        assert_eq!(stage.stats()["counts"]["launches"], 2);
        assert_eq!((stage.calls("cuLaunchKernel"), stage.calls("cuLaunchKernel_ptsz")), (1, 1));
    }
}

#[test]
fn export_tables_are_the_drivers_own() {
    let stage = Stage::new();
    assert_eq!(succeed(&mut stage.preloaded(Build::Opening, "export-table")), "8");
}

#[test]
fn forked_before_touching_the_driver() {
    let stage = Stage::new();
    let mut program = stage.preloaded(Build::Linked, "fork");
    succeed(program.env("DETSHARE_STATS", stage.path().join("stats-%p.json")));
    assert_eq!(stage.calls("cuLaunchKernel"), 1);
    let written = std::fs::read_dir(stage.path()).expect("the folder is there");
    let stats =
        written.filter(|entry| entry.as_ref().is_ok_and(|it| it.file_name().to_string_lossy().starts_with("stats-")));
    assert_eq!(stats.count(), 1, "the child writes, the parent that did nothing does not");
}

#[test]
fn forked_while_another_thread_opens_the_driver() {
    // The moment is short: without care for it about one run in fifty fails.
    for _ in 0..300 {
        let stage = Stage::new();
        succeed(&mut stage.preloaded(Build::Opening, "fork-beside-first-call"));
    }
}

#[test]
fn many_threads_at_once_during_start_up() {
    for round in 0..20 {
        let stage = Stage::new();
        succeed(stage.preloaded(Build::Opening, "threads").env_remove("STUB_DRIVER_LOG"));
        assert_eq!(stage.stats()["counts"]["launches"], 48_000, "round {round}");
    }
}
