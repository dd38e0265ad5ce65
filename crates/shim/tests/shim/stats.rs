//! What is written at exit.

use crate::stage::{Build, Stage, finish, stub_driver, succeed};

#[test]
fn counts_every_kind_once() {
    let stage = Stage::new();
    succeed(&mut stage.preloaded(Build::Opening, "work"));
    let stats = stage.stats();
    let expected = serde_json::json!({ "launches": 3, "graph_launches": 1, "copies": 1, "synchronisations": 1 });
    assert_eq!(stats["counts"], expected);
    assert_eq!(stats["driver"]["version"], 13_000);
    assert_eq!(stats["driver"]["path"], stub_driver().display().to_string());
    assert_eq!(stats["handed_out_untouched"], serde_json::json!([]));
}

#[test]
fn a_program_that_calls_nothing_writes_nothing() {
    let stage = Stage::new();
    succeed(&mut stage.preloaded(Build::Linked, "nothing"));
    assert!(!stage.path().join("stats.json").exists());
}

#[test]
fn a_forked_child_leaves_its_parents_file_alone() {
    let stage = Stage::new();
    succeed(&mut stage.preloaded(Build::Linked, "fork-after-work"));
    assert_eq!(stage.stats()["counts"]["launches"], 3, "the parent's own");
    let names = std::fs::read_dir(stage.path()).expect("the folder is there").flatten();
    let names: Vec<_> = names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    assert_eq!(names.iter().filter(|name| name.starts_with("stats.json.")).count(), 1, "{names:?}");
}

#[test]
fn a_file_that_cannot_be_written_is_only_a_line_in_the_log() {
    let stage = Stage::new();
    let mut program = stage.preloaded(Build::Opening, "work");
    program.env("DETSHARE_STATS", "/nowhere/at/all/stats.json");
    succeed(&mut program);
    let output = finish(program.env("DETSHARE_LOG", "1"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.contains("/nowhere/at/all/stats.json"), "{errors}");
}
