//! What `detshare verify` makes of what left the GPU and of what was printed.

use crate::stage::Stage;
use std::io::Write;
use std::process::Stdio;

/// One process with three copies on two streams.
const THREE_COPIES: &str = "process 10 100 /bin/train; copy 1 0 64 1; copy 2 3 4096 2; copy 3 0 64 3";

#[test]
fn identical() {
    let counts = r#"{"counts":{"launches":30,"graph_launches":4},"lanes":{"moves":29}}"#;
    let script = format!("{THREE_COPIES}; memory 4 1 16 4; stats 10 '{counts}'; echo done");
    let outcome = Stage::new().verify(&["--runs", "2"], &script);
    assert_eq!(outcome.code, Some(0), "{}{}", outcome.stdout, outcome.stderr);
    let summary = "identical: 2 moved runs, 6 copies (8480 bytes), 2 changes of mapped memory, 60 launches, \
                   8 graph launches, 58 moves compared; standard output and exit code too\n";
    assert!(outcome.stdout.starts_with(summary), "{}", outcome.stdout);
    let progress: Vec<_> = outcome.stderr.lines().filter_map(|line| Some(line.split_once(" … ")?.0)).collect();
    assert_eq!(progress, ["run 1 of 3: plain", "run 2 of 3: moved, seed 1", "run 3 of 3: moved, seed 2"]);
}

/// The first run fills a cache and copies something else; with a warm-up nobody sees that.
#[test]
fn what_a_program_keeps_from_run_to_run() {
    let stage = Stage::new();
    let cache = stage.path("cache");
    let cache = cache.display();
    let script = format!("process 10 100 /bin/train; d=2; [ -e {cache} ] || d=1; touch {cache}; copy 1 0 64 $d");
    assert_eq!(stage.verify(&["--warm-up"], &script).code, Some(0));
    std::fs::remove_file(cache.to_string()).expect("the runs have made it");
    assert_eq!(stage.verify(&[], &script).code, Some(2));
}

#[test]
fn a_copy_that_differs_is_named() {
    let script = "process 10 100 /bin/train; copy 1 0 64 1; d=2; moved && d=255; copy 2 3 4096 $d; copy 3 0 64 3";
    let outcome = Stage::new().verify(&[], script);
    assert_eq!(outcome.code, Some(1), "{}", outcome.stdout);
    let [summary, first, ..] = outcome.stdout.lines().collect::<Vec<_>>()[..] else { panic!("{}", outcome.stdout) };
    assert_eq!(summary, "different: run 2 (moved, seed 1) differs from run 1 (plain), and a second plain run does not");
    assert_eq!(
        first.trim(),
        "copy 2 on stream 3, 4096 bytes (process 1, train): \
         digest 0000000000000002 in run 1, 00000000000000ff in run 2"
    );
    assert!(outcome.stderr.contains("run 3 of 3: plain … "), "{}", outcome.stderr);
}

#[test]
fn json_names_it_too() {
    let (json, code) =
        Stage::new().verify_json("process 10 100 /bin/train; d=1; moved && d=2; memory 1 7 64 $d; stats 10 '{}'");
    assert_eq!((code, &json["verdict"], &json["exit_code"]), (Some(1), &"different".into(), &1.into()));
    let gpu = &json["moved_difference"]["gpu"];
    assert_eq!((&json["moved_difference"]["run"], &gpu["different"]), (&2.into(), &1.into()));
    let expected = serde_json::json!({
        "process": 1, "program": "/bin/train", "process_missing": false, "kind": "memory", "allocation": 7,
        "plain": {"number": 1, "bytes": 64, "digest": "0000000000000001"},
        "other": {"number": 1, "bytes": 64, "digest": "0000000000000002"},
    });
    assert_eq!(gpu["first"], expected);
    assert_eq!(json["plain_difference"], serde_json::Value::Null);
    let kinds: Vec<_> = json["runs"].as_array().unwrap().iter().map(|run| (&run["kind"], &run["seed"])).collect();
    let (plain, moved, none) = ("plain".into(), "moved".into(), serde_json::Value::Null);
    assert_eq!(kinds, [(&plain, &none), (&moved, &1.into()), (&plain, &none)]);
}

#[test]
fn csv_has_a_row_for_each_run() {
    let counts = r#"{"counts":{"launches":3,"graph_launches":0},"lanes":{"moves":2}}"#;
    let outcome =
        Stage::new().verify(&["--seed", "7", "--format", "csv"], &format!("{THREE_COPIES}; stats 10 '{counts}'"));
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let rows: Vec<Vec<&str>> = outcome.stdout.lines().map(|line| line.split(',').collect()).collect();
    let headings = "verdict,number,kind,seed,seconds,ending,processes,copies,memory_changes,bytes,launches,graph_launches,\
                    moves,truncated";
    assert_eq!(rows[0].join(","), headings);
    let [_, plain, moved] = &rows[..] else { panic!("{}", outcome.stdout) };
    assert_eq!(
        (&plain[..4], &moved[..4]),
        (&["identical", "1", "plain", ""][..], &["identical", "2", "moved", "7"][..])
    );
    for run in [plain, moved] {
        assert_eq!(run[5..], ["exit code 0", "1", "3", "0", "4224", "3", "0", "2", "false"], "{}", outcome.stdout);
    }
}

#[test]
fn how_streams_interleave_is_no_difference() {
    let script = "process 10 100 /bin/train
        if moved; then copy 1 2 8 20; copy 2 1 8 10; else copy 1 1 8 10; copy 2 2 8 20; fi";
    assert_eq!(Stage::new().verify(&[], script).code, Some(0));
}

#[test]
fn a_missing_copy_is_named() {
    let script = "process 10 100 /bin/train; copy 1 0 64 1; moved || copy 2 5 128 2; copy 3 0 64 3";
    let outcome = Stage::new().verify(&[], script);
    assert_eq!(outcome.code, Some(1));
    let named = "copy 2 on stream 5, 128 bytes (process 1, train): run 2 has none to match it";
    assert!(outcome.stdout.contains(named), "{}", outcome.stdout);
}

#[test]
fn a_copy_too_many_is_named() {
    let outcome = Stage::new().verify(&[], "process 10 100 /bin/train; copy 1 0 64 1; moved && copy 2 0 32 2; true");
    assert_eq!(outcome.code, Some(1));
    let named = "copy 2 on stream 0 of run 2, 32 bytes (process 1, train): run 1 has none to match it";
    assert!(outcome.stdout.contains(named), "{}", outcome.stdout);
}

#[test]
fn output_that_differs_is_shown() {
    let outcome = Stage::new().verify(&[], &format!("{THREE_COPIES}; echo same; moved && echo loss 2 || echo loss 1"));
    assert_eq!(outcome.code, Some(1));
    let shown = r#"standard output, line 2: "loss 1" in run 1, "loss 2" in run 2"#;
    assert!(outcome.stdout.contains(shown), "{}", outcome.stdout);
}

#[test]
fn standard_error_is_not_compared() {
    let outcome = Stage::new().verify(&[], &format!("{THREE_COPIES}; moved && echo warning >&2; true"));
    assert_eq!(outcome.code, Some(0));
    assert!(!outcome.stderr.contains("warning"));
}

#[test]
fn a_program_that_differs_from_itself() {
    let script = "process 10 100 /bin/train; copy 1 0 64 1; echo x >>runs; copy 2 4 32 $(wc -l <runs)";
    let outcome = Stage::new().verify(&[], script);
    assert_eq!(outcome.code, Some(2));
    let summary = "the program differs from itself in two plain runs: copy 2 on stream 4, 32 bytes (process 1, train): \
                   digest 0000000000000001 in run 1, 0000000000000003 in run 3\n";
    assert!(outcome.stdout.starts_with(summary), "{}", outcome.stdout);
}

#[test]
fn output_that_never_repeats_itself() {
    let output = "echo x >>runs; wc -l <runs";
    let outcome = Stage::new().verify(&[], &format!("{THREE_COPIES}; {output}"));
    assert_eq!(outcome.code, Some(2));
    let summary =
        "the program differs from itself in two plain runs: standard output, line 1: \"1\" in run 1, \"3\" in run 3\n";
    assert!(outcome.stdout.starts_with(summary), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("what left the GPU was the same in all runs"), "{}", outcome.stdout);
    let outcome = Stage::new().verify(&[], &format!("{THREE_COPIES}; moved && copy 4 0 64 4; {output}"));
    assert_eq!(outcome.code, Some(2));
    let also = "what left the GPU was the same in both plain runs, not in the moved one";
    assert!(outcome.stdout.contains(also), "{}", outcome.stdout);
}

#[test]
fn several_processes_are_matched_by_program_and_start() {
    let workers = "
        if moved; then
            process 31 300 /bin/worker; copy 1 0 8 1
            process 30 400 /bin/worker; copy 1 0 8 2
            process 32 100 /bin/main; copy 1 0 8 3
        else
            process 10 100 /bin/main; copy 1 0 8 3
            process 11 200 /bin/worker; copy 1 0 8 1
            process 12 300 /bin/worker; copy 1 0 8 2
        fi";
    let (json, code) = Stage::new().verify_json(workers);
    assert_eq!((code, &json["compared"]["processes"]), (Some(0), &3.into()));
    let swapped = Stage::new().verify(&[], &workers.replace("process 31 300", "process 31 500"));
    assert_eq!(swapped.code, Some(1));
    assert!(swapped.stdout.contains("copy 1 on stream 0, 8 bytes (process 2, worker)"), "{}", swapped.stdout);
}

#[test]
fn a_process_that_is_missing() {
    let script = "process 10 100 /bin/main; copy 1 0 8 1; moved || { process 11 200 /bin/worker; copy 1 2 16 1; }";
    let outcome = Stage::new().verify(&[], script);
    assert_eq!(outcome.code, Some(1));
    let named = "copy 1 on stream 2, 16 bytes (process 2, worker): run 2 has no such process";
    assert!(outcome.stdout.contains(named), "{}", outcome.stdout);
}

#[test]
fn nothing_moved_is_said() {
    let script = format!(r#"{THREE_COPIES}; stats 10 '{{"counts":{{"launches":3}},"lanes":{{"moves":0}}}}'"#);
    let outcome = Stage::new().verify(&[], &script);
    assert_eq!(outcome.code, Some(0));
    assert!(outcome.stdout.contains("no launch was moved"), "{}", outcome.stdout);
}

#[test]
fn every_run_reads_the_same_input() {
    let stage = Stage::new();
    let mut command = stage.verify_command(&["--keep", "kept"], &format!("{THREE_COPIES}; cat"));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"a question").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    for run in ["1-plain", "2-moved-1"] {
        assert_eq!(std::fs::read_to_string(stage.path("kept").join(run).join("stdout")).unwrap(), "a question");
    }
}

#[test]
fn runs_differ_in_nothing_but_the_schedule() {
    let stage = Stage::new();
    let script = format!("{THREE_COPIES}; echo \"${{DETSHARE_SCHEDULE-none}} $LD_PRELOAD\" >&2");
    let mut command = stage.verify_command(&["--keep", "kept", "--seed", "41"], &script);
    let already = stage.path("already.so");
    std::os::unix::fs::symlink(stage.shim(), &already).unwrap();
    command.env("DETSHARE_SCHEDULE", "random:7").env("LD_PRELOAD", &already);
    assert!(command.output().unwrap().status.success());
    let shim = stage.shim().display();
    for (run, schedule) in [("1-plain", "none"), ("2-moved-41", "random:41")] {
        let said = std::fs::read_to_string(stage.path("kept").join(run).join("stderr")).unwrap();
        assert_eq!(said, format!("{schedule} {shim}:{}\n", already.display()));
    }
}

#[test]
fn nothing_is_left_behind_unless_asked() {
    let stage = Stage::new();
    std::fs::create_dir(stage.path("temporary")).unwrap();
    let mut command = stage.verify_command(&[], THREE_COPIES);
    assert!(command.env("TMPDIR", stage.path("temporary")).output().unwrap().status.success());
    assert_eq!(stage.path("temporary").read_dir().unwrap().count(), 0);
}
