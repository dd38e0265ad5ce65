//! A driver newer than the table exports functions that the shim does not.

use crate::stage::{Build, Stage, shim, stub_driver, succeed};

#[test]
fn stats_name_them() {
    let stage = Stage::new();
    succeed(&mut stage.preloaded(Build::Opening, "work"));
    let unknown = stage.stats()["driver"]["unknown_functions"].to_string();
    assert!(unknown.contains("cuFunctionOfAnotherDay"), "{unknown}");
}

#[test]
fn a_program_bound_at_the_first_call_gets_them_from_the_driver() {
    let stage = Stage::new();
    assert_eq!(succeed(&mut stage.preloaded(Build::LinkedFutureLazy, "future")), "42");
    assert_eq!(stage.calls("cuInit"), 1, "and the rest through the shim");
}

#[test]
fn a_program_bound_at_start_gets_them_with_the_driver_preloaded_behind() {
    let stage = Stage::new();
    let both = std::env::join_paths([shim(), stub_driver()]).expect("paths without a colon");
    let mut program = stage.preloaded(Build::LinkedFuture, "future");
    assert_eq!(
        succeed(program.env("LD_PRELOAD", both).env_remove("DETSHARE_DRIVER").env("DETSHARE_DRIVER", stub_driver())),
        "42"
    );
    assert!(stage.path().join("stats.json").exists(), "the rest came through the shim");
}

#[test]
fn dlsym_finds_none_and_nothing_breaks() {
    let stage = Stage::new();
    assert_eq!(succeed(&mut stage.preloaded(Build::Opening, "dlsym-unknown")), "not found");
}

#[test]
fn a_query_hands_them_out_untouched_and_says_so() {
    let stage = Stage::new();
    let mut program = stage.preloaded(Build::Opening, "untouched");
    assert_eq!(succeed(program.env("STUB_DRIVER_LACKS", "cuNewLaunch")), "7");
    assert_eq!(stage.stats()["handed_out_untouched"], serde_json::json!(["cuNewLaunch"]));
}
