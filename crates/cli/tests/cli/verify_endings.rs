//! Programs that end badly, too late or not at all, and programs that leave no record.

use crate::stage::{Stage, outcome};
use std::process::Command;

const ONE_COPY: &str = "process $$ 100 /bin/train; copy 1 0 64 1";

#[test]
fn a_program_that_fails_by_itself() {
    let outcome = Stage::new().verify(&[], &format!("{ONE_COPY}; echo out of memory >&2; exit 5"));
    assert_eq!(outcome.code, Some(3));
    let summary = "the program failed by itself: its plain run ended with exit code 5\n";
    assert!(outcome.stdout.starts_with(summary), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("out of memory"), "{}", outcome.stdout);
    assert!(!outcome.stderr.contains("run 2"), "{}", outcome.stderr);
}

#[test]
fn another_exit_code_is_a_difference() {
    let outcome = Stage::new().verify(&[], &format!("{ONE_COPY}; moved && {{ echo no luck >&2; exit 7; }}; true"));
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.stdout.contains("the endings: exit code 0 in run 1, exit code 7 in run 2"), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("run 2 said last on standard error:\n  no luck\n"), "{}", outcome.stdout);
}

#[test]
fn a_program_that_is_killed_leaves_half_a_line() {
    let half_a_line = r#"printf '{"number":3,"kind":"co' >>"$file"; kill -9 $$"#;
    let script = format!("{ONE_COPY}; moved && {{ {half_a_line}; }}; copy 2 4 128 2");
    let outcome = Stage::new().verify(&[], &script);
    assert_eq!(outcome.code, Some(1));
    for expected in [
        "copy 2 on stream 4, 128 bytes (process 1, train): run 2 has none to match it",
        "the endings: exit code 0 in run 1, signal 9 in run 2",
        "a record ends in the middle of a line",
    ] {
        assert!(outcome.stdout.contains(expected), "{}", outcome.stdout);
    }
    let outcome = Stage::new().verify(&[], &format!("{ONE_COPY}; {half_a_line}"));
    assert_eq!(outcome.code, Some(3));
    assert!(outcome.stdout.contains("its plain run ended with signal 9"), "{}", outcome.stdout);
}

#[test]
fn a_program_without_a_record() {
    let (json, code) = Stage::new().verify_json("echo hello");
    assert_eq!((code, &json["verdict"]), (Some(3), &"not_seen".into()));
    assert!(json["summary"].as_str().unwrap().contains("did not use CUDA through the shim"));
    assert!(json["advice"].to_string().contains("dynamically linked"), "{json}");
    let (json, code) = Stage::new().verify_json("stats 10 '{}'");
    assert_eq!((code, &json["verdict"]), (Some(3), &"not_seen".into()));
    assert!(json["advice"].to_string().contains("the shim library that came with this command"), "{json}");
}

#[test]
fn a_record_that_makes_no_sense_is_74() {
    let outcome = Stage::new().verify(&[], "process 10 100 /bin/train; echo nonsense >>\"$file\"; copy 1 0 64 1");
    assert_eq!(outcome.code, Some(74));
    assert!(outcome.stderr.contains("line 2 of") && outcome.stderr.contains("10.digest"), "{}", outcome.stderr);
}

#[test]
fn a_run_that_does_not_end_is_ended() {
    // Nobody ever writes to the pipe.
    let outcome = Stage::new().verify(&["--timeout", "50ms"], "mkfifo pipe; cat pipe");
    assert_eq!(outcome.code, Some(3));
    assert!(outcome.stdout.contains("ended with timeout"), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("raise --timeout"), "{}", outcome.stdout);
}

#[test]
fn a_signal_ends_the_program_and_its_workers() {
    for (signal, code) in [("SIGINT", 130), ("SIGTERM", 143)] {
        let stage = Stage::new();
        let pipe = stage.path("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        // The program and its worker both hold the pipe and wait for ever; the program asks its parent to end.
        let program = format!(
            "import os, signal
signal.signal(signal.{signal}, signal.SIG_DFL)
pipe = os.open('pipe', os.O_WRONLY)
if os.fork():
    os.kill(os.getppid(), signal.{signal})
while True:
    signal.pause()"
        );
        let all_gone = std::thread::spawn(move || std::fs::read(pipe));
        let outcome = outcome(stage.interruptible(&program).env("TMPDIR", stage.path("")));
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(code), ""), "{}", outcome.stderr);
        assert!(outcome.stderr.contains("and the program with it"), "{}", outcome.stderr);
        assert_eq!(all_gone.join().unwrap().unwrap(), b"");
        let left: Vec<_> = stage.path("").read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["pipe"]);
    }
}

#[test]
fn a_second_signal_ends_a_program_that_ignores_the_first() {
    // Two of a kind could arrive as one.
    let program = "import os, signal
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
    os.kill(os.getppid(), number)
while True:
    signal.pause()";
    let outcome = outcome(&mut Stage::new().interruptible(program));
    assert!(matches!(outcome.code, Some(130 | 143)), "{}", outcome.stderr);
}
