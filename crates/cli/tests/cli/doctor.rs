//! `detshare doctor` where things are and where they are not.

use crate::fake::{FakeDaemon, tenants};
use crate::stage::{Stage, outcome};
use serde_json::Value;
use std::process::Command;

fn findings(command: &mut Command) -> (Vec<Value>, Option<i32>) {
    let outcome = outcome(command.args(["doctor", "--format", "json"]));
    let findings = serde_json::from_str(&outcome.stdout);
    (findings.unwrap_or_else(|error| panic!("{error}: {}{}", outcome.stdout, outcome.stderr)), outcome.code)
}

fn finding<'a>(findings: &'a [Value], check: &str) -> &'a Value {
    findings.iter().find(|finding| finding["check"] == check).unwrap_or_else(|| panic!("no {check}"))
}

/// Whether the code is that of the findings.
fn agrees(findings: &[Value], code: Option<i32>) -> bool {
    code == Some(i32::from(findings.iter().any(|finding| finding["verdict"] == "problem")))
}

#[test]
fn all_that_is_wrong_has_advice() {
    let stage = Stage::new();
    let (found, code) = findings(&mut stage.detshare());
    assert!(agrees(&found, code), "{code:?} {found:?}");
    for finding in &found {
        assert_eq!(finding["advice"].is_null(), finding["verdict"] == "ok", "{finding}");
    }
    assert_eq!(finding(&found, "shim library")["verdict"], "ok");
    assert_eq!(finding(&found, "daemon")["verdict"], "ok", "one that does not run is started when it is needed");
}

#[test]
fn a_shim_that_cannot_be_loaded_is_a_problem() {
    let stage = Stage::new();
    std::fs::write(stage.path("broken.so"), "not a library").unwrap();
    let (found, code) = findings(stage.detshare().env("DETSHARE_SHIM", stage.path("broken.so")));
    let shim = finding(&found, "shim library");
    assert_eq!((&shim["verdict"], code), (&"problem".into(), Some(1)), "{shim}");
    assert!(shim["found"].as_str().unwrap().contains("cannot be loaded"), "{shim}");
}

#[test]
fn a_running_daemon_is_looked_at() {
    let stage = Stage::new();
    let _daemon = FakeDaemon::start(&stage);
    let (found, _) = findings(&mut stage.detshare());
    assert!(finding(&found, "daemon")["found"].as_str().unwrap().starts_with("runs (pid "));
    assert_eq!(finding(&found, "isolation")["verdict"], "warning");
    let configuration = finding(&found, "configuration");
    assert_eq!(configuration["verdict"], "warning");
    assert!(configuration["found"].as_str().unwrap().contains("line 3: unknown key"), "{configuration}");
}

#[test]
fn a_tenant_that_is_no_client_of_mps_is_told_of() {
    for (clients, verdict, word) in [
        ([Some(true), Some(false)], "warning", "train (pid 4002)"),
        ([Some(true), Some(true)], "ok", "2 of 2 tenants"),
        ([None, None], "ok", "no tenant needs MPS"),
    ] {
        let stage = Stage::new();
        let mut tenants = tenants();
        tenants.iter_mut().zip(clients).for_each(|(tenant, is_client)| tenant.mps_client = is_client);
        let _daemon = FakeDaemon::start_with(&stage, tenants);
        let (found, _) = findings(&mut stage.detshare());
        let clients = finding(&found, "MPS clients");
        assert_eq!(clients["verdict"], verdict, "{clients}");
        assert!(clients["found"].as_str().unwrap().contains(word), "{clients}");
        assert_eq!(
            clients["advice"].as_str().is_some_and(|advice| advice.contains("detshare run")),
            verdict == "warning"
        );
    }
}

#[test]
fn people_get_a_line_for_each_check() {
    let stage = Stage::new();
    let (found, code) = findings(&mut stage.detshare());
    let table = outcome(stage.detshare().arg("doctor"));
    assert_eq!((table.code, table.stderr.as_str()), (code, ""));
    assert_eq!(table.stdout.lines().count(), found.len() + 1, "{}", table.stdout);
    let csv = outcome(stage.detshare().args(["doctor", "--format", "csv"])).stdout;
    assert!(csv.starts_with("check,verdict,found,advice\n"), "{csv}");
}
