//! What `ps`, `set`, `pause`, `resume`, `policy` and `status` ask of a daemon, and how they print its answers.

use crate::fake::{FakeDaemon, tenants};
use crate::stage::{Outcome, Stage, outcome};
use detshare_api::{Status, Tenant};

fn detshare(stage: &Stage, arguments: &[&str]) -> Outcome {
    outcome(stage.detshare().args(arguments))
}

/// What it printed, which must be all that it said.
fn printed(stage: &Stage, arguments: &[&str]) -> String {
    let outcome = detshare(stage, arguments);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{arguments:?}");
    outcome.stdout
}

#[test]
fn ps_for_people() {
    let stage = Stage::new();
    let _daemon = FakeDaemon::start(&stage);
    let expected = "\
name    pid  class        state  lane    steps/s      p50      p99  launches/s  holds/s    memory     limit  objectives
serve  4001  latency      busy   full       20.5  1.23 ms  4.56 ms       1.02k        0  40.0 GiB         -  -
train  4002  best-effort  idle   rest16        0        -        -       1.02k        0  40.0 GiB  64.0 GiB  -
";
    assert_eq!(printed(&stage, &["ps"]), expected);
}

#[test]
fn ps_for_programs() {
    let stage = Stage::new();
    let _daemon = FakeDaemon::start(&stage);
    let listed: Vec<Tenant> = serde_json::from_str(&printed(&stage, &["ps", "--format", "json"])).unwrap();
    assert_eq!(listed, tenants());
    let csv = printed(&stage, &["ps", "--format", "csv"]);
    let lines: Vec<_> = csv.lines().collect();
    assert!(lines[0].starts_with("name,pid,slot,class,paused,busy,lane,"), "{csv}");
    assert!(lines[1].contains("\"python3 serve.py, --port 80\""), "{csv}");
    assert_eq!(lines.len(), 3, "{csv}");
}

#[test]
fn status_in_every_form() {
    let stage = Stage::new();
    let _daemon = FakeDaemon::start(&stage);
    let text = printed(&stage, &["status"]);
    for part in ["up 1m 01s", "exclusive (isolation is process)", "2 of at most 64", "broken", "line 3: unknown key"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let status: Status = serde_json::from_str(&printed(&stage, &["status", "--format", "json"])).unwrap();
    assert_eq!((status.tenants, status.policy.as_str()), (2, "exclusive"));
    let csv = printed(&stage, &["status", "--format", "csv"]);
    let [headings, fields] = csv.lines().collect::<Vec<_>>()[..] else { panic!("{csv}") };
    let [headings, fields]: [Vec<&str>; 2] = [headings, fields].map(|line| line.split(',').collect());
    let pid = std::process::id().to_string();
    for (heading, field) in [
        ("pid", pid.as_str()),
        ("version", env!("CARGO_PKG_VERSION")),
        ("uptime_s", "61"),
        ("policy", "exclusive"),
        ("policy_reason", "isolation is process"),
        ("config_error", "line 3: unknown key"),
        ("tenants", "2"),
        ("slots", "64"),
        ("mps_state", ""),
        ("profiles_files", "0"),
    ] {
        let column = headings.iter().position(|one| *one == heading).unwrap_or_else(|| panic!("no {heading}: {csv}"));
        assert_eq!(fields[column], field, "{heading}: {csv}");
    }
}

#[test]
fn policy_shows_and_switches() {
    let stage = Stage::new();
    let daemon = FakeDaemon::start(&stage);
    assert_eq!(printed(&stage, &["policy"]), "exclusive (isolation is process)\naggressiveness 0.25\n");
    printed(&stage, &["policy", "fair"]);
    printed(&stage, &["policy", "--aggressiveness", "0.5"]);
    assert_eq!(daemon.changes(), [r#"PUT /v1/policy {"policy":"fair"}"#, r#"PUT /v1/policy {"aggressiveness":0.5}"#]);
    let json: serde_json::Value = serde_json::from_str(&printed(&stage, &["policy", "--format", "json"])).unwrap();
    assert_eq!(
        json,
        serde_json::json!({"policy": "exclusive", "policy_reason": "isolation is process", "aggressiveness": 0.25})
    );
    let csv = printed(&stage, &["policy", "--format", "csv"]);
    assert_eq!(csv, "policy,policy_reason,aggressiveness\nexclusive,isolation is process,0.25\n");
}

#[test]
fn set_sends_what_is_named_and_nothing_else() {
    let stage = Stage::new();
    let daemon = FakeDaemon::start(&stage);
    let text = printed(&stage, &["set", "train", "--class", "latency", "--weight", "7", "--no-mem", "--p99", "none"]);
    assert_eq!(text, "train (pid 4002): latency, weight 7\n");
    let text = printed(&stage, &["set", "4001", "--mem", "2GiB"]);
    assert_eq!(text, "serve (pid 4001): latency, weight 100, at most 2.0 GiB, p99 5.00 ms\n");
    assert_eq!(
        daemon.changes(),
        [
            r#"PATCH /v1/tenants/train {"class":"latency","weight":7,"memory":null,"p99_ns":null}"#,
            r#"PATCH /v1/tenants/4001 {"memory":2147483648}"#,
        ]
    );
}

#[test]
fn pause_and_resume() {
    let stage = Stage::new();
    let daemon = FakeDaemon::start(&stage);
    assert_eq!(printed(&stage, &["pause", "train"]), "paused train (pid 4002)\n");
    assert_eq!(printed(&stage, &["resume", "train"]), "resumed train (pid 4002)\n");
    assert_eq!(
        daemon.changes(),
        [r#"PATCH /v1/tenants/train {"paused":true}"#, r#"PATCH /v1/tenants/train {"paused":false}"#]
    );
}

#[test]
fn a_tenant_that_is_not_there_is_bad_usage() {
    let stage = Stage::new();
    let _daemon = FakeDaemon::start(&stage);
    let refused = detshare(&stage, &["pause", "nobody"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(64), ""));
    assert_eq!(refused.stderr, "detshare: there is no tenant nobody: see `detshare ps`\n");
}

#[test]
fn without_a_daemon_they_say_how_to_start_one() {
    let stage = Stage::new();
    for arguments in [
        &["ps"][..],
        &["status"],
        &["policy"],
        &["policy", "fair"],
        &["set", "x", "--weight", "1"],
        &["pause", "x"],
        &["resume", "x"],
        &["top", "--once"],
    ] {
        let refused = detshare(&stage, arguments);
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(69), ""), "{arguments:?}");
        assert!(refused.stderr.ends_with("start one with `detshare up`\n"), "{}", refused.stderr);
        assert_eq!(refused.stderr.lines().count(), 1, "{}", refused.stderr);
    }
}

#[test]
fn a_folder_that_others_can_enter_is_77() {
    use std::os::unix::fs::PermissionsExt;
    let stage = Stage::new();
    std::fs::create_dir(stage.runtime_folder()).unwrap();
    std::fs::set_permissions(stage.runtime_folder(), std::fs::Permissions::from_mode(0o755)).unwrap();
    for arguments in [&["ps"][..], &["up"], &["down"], &["run", "--", "true"], &["top", "--once"]] {
        let refused = detshare(&stage, arguments);
        assert_eq!(refused.code, Some(77), "{arguments:?}: {}", refused.stderr);
        assert!(refused.stderr.contains("chmod 700"), "{}", refused.stderr);
    }
}

#[test]
fn an_answer_that_makes_no_sense_is_76() {
    use detshare_api::RuntimeFolder;
    use std::io::{Read, Write};
    let stage = Stage::new();
    let folder = RuntimeFolder::make(&stage.runtime_folder()).unwrap();
    let listener = std::os::unix::net::UnixListener::bind(folder.daemon_socket()).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}");
    });
    let refused = detshare(&stage, &["status"]);
    assert_eq!(refused.code, Some(76), "{}", refused.stderr);
}
