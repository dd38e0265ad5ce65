//! What the command line makes of bad and incomplete ones.

use crate::stage::{Stage, outcome};
use std::process::Command;

#[test]
fn nonsense_is_64() {
    let stage = Stage::new();
    for arguments in [&["conjure"][..], &["verify"], &["verify", "--runs", "many", "--", "true"], &[]] {
        assert_eq!(outcome(stage.detshare().args(arguments)).code, Some(64), "{arguments:?}");
    }
}

#[test]
fn help_is_a_result() {
    let help = outcome(Stage::new().detshare().args(["verify", "--help"]));
    assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""));
    assert!(help.stdout.contains("Exit codes:") && help.stdout.contains("-- PROGRAM [ARGS]"), "{}", help.stdout);
}

#[test]
fn a_missing_program_is_66() {
    let stage = Stage::new();
    for program in ["no-such-program", "./no-such-program", "./no-such-folder/program"] {
        let missing = outcome(stage.detshare().args(["verify", "--", program]));
        assert_eq!((missing.code, missing.stdout.as_str()), (Some(66), ""));
        assert!(missing.stderr.contains(&format!("{program} was not found")), "{}", missing.stderr);
    }
}

#[test]
fn a_file_that_does_not_run_is_66() {
    let stage = Stage::new();
    std::fs::write(stage.path("notes.txt"), "text").unwrap();
    let refused = outcome(stage.detshare().args(["verify", "--", "./notes.txt"]));
    assert_eq!(refused.code, Some(66));
    assert!(refused.stderr.contains("./notes.txt cannot be executed"), "{}", refused.stderr);
}

#[test]
fn no_shim_is_69() {
    // A folder without a shim beside the executable; a link, because a fresh copy may still be open for writing in a
    // child that another test just forked.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let detshare = folder.path().join("detshare");
    std::fs::hard_link(env!("CARGO_BIN_EXE_detshare"), &detshare).unwrap();
    let verify = ["verify", "--", "true"];
    let lost = outcome(Command::new(&detshare).args(verify).env_remove("DETSHARE_SHIM"));
    assert_eq!(lost.code, Some(69));
    assert!(lost.stderr.contains("set DETSHARE_SHIM"), "{}", lost.stderr);
    let misled = outcome(Command::new(&detshare).args(verify).env("DETSHARE_SHIM", "/no/such/shim.so"));
    assert_eq!(misled.code, Some(69));
    assert!(misled.stderr.contains("/no/such/shim.so"), "{}", misled.stderr);
}

#[test]
fn records_are_not_kept_among_other_files() {
    let stage = Stage::new();
    std::fs::write(stage.path("mine"), "").unwrap();
    for (folder, reason) in [(".", "is not empty"), ("a%p", "%p")] {
        let refused = outcome(stage.detshare().args(["verify", "--keep", folder, "--", "true"]));
        assert_eq!(refused.code, Some(64));
        assert!(refused.stderr.contains(reason), "{}", refused.stderr);
    }
}
