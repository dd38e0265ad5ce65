//! Programs still call the driver while the process ends.

use crate::stage::{Build, Stage, succeed};

#[test]
fn destructors_and_exit_handlers_still_reach_the_driver() {
    for build in [Build::Opening, Build::Linked] {
        let stage = Stage::new();
        succeed(&mut stage.preloaded(build, "exit"));
        assert_eq!(stage.calls("cuLaunchKernel"), 3, "one launch, one in atexit, one in a destructor");
        assert_eq!(stage.stats()["by_function"]["cuLaunchKernel"], 3, "and they are counted");
    }
}

#[test]
fn the_first_call_may_come_while_the_process_ends() {
    for build in [Build::Opening, Build::Linked] {
        let stage = Stage::new();
        succeed(&mut stage.preloaded(build, "exit-without-work"));
        assert_eq!(stage.calls("cuLaunchKernel"), 2);
    }
}

#[test]
fn entries_outlive_a_dlclose() {
    let stage = Stage::new();
    succeed(&mut stage.preloaded(Build::Opening, "dlclose"));
    assert_eq!(stage.calls("cuLaunchKernel"), 2);
}
