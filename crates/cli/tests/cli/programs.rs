//! Programs that `detshare run` refuses, before it starts anything.

use crate::stage::{Stage, outcome};
use std::os::unix::fs::PermissionsExt;

/// A program for x86-64 that consists of a header: without a loader, so static.
fn static_program() -> Vec<u8> {
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    let (executable, x86_64, header) = (2_u16, 62_u16, 64_u16);
    file.extend([executable, x86_64].into_iter().flat_map(u16::to_le_bytes));
    file.extend(1_u32.to_le_bytes());
    file.extend([0_u64, 0, 0].into_iter().flat_map(u64::to_le_bytes));
    file.extend(0_u32.to_le_bytes());
    file.extend([header, 56, 0, 64, 0, 0].into_iter().flat_map(u16::to_le_bytes));
    file
}

fn put(stage: &Stage, name: &str, bytes: &[u8], mode: u32) {
    std::fs::write(stage.path(name), bytes).unwrap();
    std::fs::set_permissions(stage.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
}

/// What is said of the program, in one line; no daemon may have been started for it.
fn refusal(stage: &Stage, program: &str) -> String {
    let refused = outcome(stage.detshare().args(["run", "--", program]));
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(66), ""), "{program}: {}", refused.stderr);
    assert!(refused.stderr.starts_with("detshare: ") && refused.stderr.lines().count() == 1, "{}", refused.stderr);
    assert!(!stage.runtime_folder().exists());
    refused.stderr
}

#[test]
fn missing() {
    let stage = Stage::new();
    for program in ["no-such-program", "./no-such-program", ""] {
        assert!(refusal(&stage, program).contains("was not found"), "{program}");
    }
}

#[test]
fn not_executable() {
    let stage = Stage::new();
    put(&stage, "notes.txt", b"text", 0o644);
    assert!(refusal(&stage, "./notes.txt").contains("chmod +x"));
    assert!(refusal(&stage, "/usr").contains("it is a folder"));
}

#[test]
fn statically_linked() {
    let stage = Stage::new();
    put(&stage, "static", &static_program(), 0o755);
    let said = refusal(&stage, "./static");
    assert!(said.contains("./static is statically linked: the shim cannot be loaded into it"), "{said}");
}

#[test]
fn for_another_machine() {
    let stage = Stage::new();
    let mut program = static_program();
    let arm = 183;
    program[18] = arm;
    put(&stage, "foreign", &program, 0o755);
    assert!(refusal(&stage, "./foreign").contains("built for another processor"));
}

#[test]
fn a_script_without_its_interpreter() {
    let stage = Stage::new();
    put(&stage, "script", b"#!/no/such/interpreter\n", 0o755);
    assert!(refusal(&stage, "./script").contains("is a script for /no/such/interpreter, which was not found"));
    put(&stage, "script", b"#!/usr/bin/env no-such-interpreter\n", 0o755);
    assert!(refusal(&stage, "./script").contains("is a script for no-such-interpreter, which was not found"));
    put(&stage, "static", &static_program(), 0o755);
    put(&stage, "script", format!("#!{}\n", stage.path("static").display()).as_bytes(), 0o755);
    assert!(refusal(&stage, "./script").contains("is statically linked"));
}

/// Of a system's own set-user-ID programs, or one that only root can make.
#[test]
fn with_more_rights_than_its_caller() {
    let stage = Stage::new();
    if std::os::unix::fs::chown(stage.path(""), Some(0), None).is_ok() {
        std::fs::copy("/bin/true", stage.path("privileged")).unwrap();
        let nobody = 65534;
        std::os::unix::fs::chown(stage.path("privileged"), Some(nobody), None).unwrap();
        std::fs::set_permissions(stage.path("privileged"), std::fs::Permissions::from_mode(0o4755)).unwrap();
        assert!(refusal(&stage, "./privileged").contains("would ignore LD_PRELOAD"));
    } else {
        let su = ["/bin/su", "/usr/bin/su"].into_iter().find(|su| std::fs::exists(su).unwrap());
        assert!(su.is_none_or(|su| refusal(&stage, su).contains("would ignore LD_PRELOAD")));
    }
}

#[test]
fn flags_that_make_no_sense_are_64_and_one_line() {
    let stage = Stage::new();
    for (flags, reason) in [
        (&["--class", "fast"][..], "latency, best-effort"),
        (&["--mem", "0"], "40GiB"),
        (&["--mem", "999999999TiB"], "40GiB"),
        (&["--p99", "5"], "5ms"),
        (&["--ttft", "never"], "5ms"),
        (&["--tpot", "0ms"], "5ms"),
        (&["--name", "a b"], "letters"),
        (&["--device", "hard"], "soft"),
    ] {
        let refused = outcome(stage.detshare().arg("run").args(flags).args(["--", "true"]));
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(64), ""), "{flags:?}");
        assert!(refused.stderr.starts_with("detshare: ") && refused.stderr.contains(reason), "{}", refused.stderr);
        assert!(refused.stderr.ends_with("see `detshare run --help`\n"), "{}", refused.stderr);
        assert_eq!(refused.stderr.lines().count(), 1, "{}", refused.stderr);
    }
    assert!(!stage.runtime_folder().exists());
}

/// As flags are: a program whose class was ignored would be a tenant of another one, and nobody would know.
#[test]
fn variables_that_make_no_sense_are_64_and_one_line() {
    let stage = Stage::new();
    for (variable, value, reason) in [
        ("DETSHARE_CLASS", "fast", "latency or best-effort"),
        ("DETSHARE_NAME", "a b", "letters"),
        ("DETSHARE_MEM", "0", "40GiB"),
        ("DETSHARE_P99", "5ms", "nanoseconds"),
        ("DETSHARE_TTFT", "-1", "nanoseconds"),
        ("DETSHARE_TPOT", "0", "nanoseconds"),
        ("DETSHARE_BLOCK_LEVEL", "off", "on, "),
    ] {
        let refused = outcome(stage.detshare().env(variable, value).args(["run", "--", "true"]));
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(64), ""), "{variable}: {}", refused.stderr);
        let named = format!("detshare: invalid value \"{value}\" for {variable} in the environment: ");
        assert!(refused.stderr.starts_with(&named) && refused.stderr.contains(reason), "{}", refused.stderr);
        assert!(refused.stderr.ends_with("see `detshare run --help`\n"), "{}", refused.stderr);
        assert_eq!(refused.stderr.lines().count(), 1, "{}", refused.stderr);
    }
    assert!(!stage.runtime_folder().exists());
}

#[test]
fn without_parts_it_is_69() {
    let stage = Stage::new();
    for (variable, flags) in
        [("DETSHARE_SHIM", &[][..]), ("DETSHARE_DAEMON", &[]), ("DETSHARE_SOFTGPU", &["--device", "soft"])]
    {
        let refused =
            outcome(stage.detshare().env(variable, "/no/such/file").arg("run").args(flags).args(["--", "true"]));
        assert_eq!(refused.code, Some(69), "{variable}: {}", refused.stderr);
        assert!(refused.stderr.contains(&format!("{variable} names /no/such/file")), "{}", refused.stderr);
        assert_eq!(refused.stderr.lines().count(), 1, "{}", refused.stderr);
    }
}
