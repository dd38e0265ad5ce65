//! What must not be launched in parts is not, and what is kept for block level has its bounds.

use super::{Company, LEFT_ALONE, TURNAROUND_NS, count, program, run};
use crate::tenants::{Office, SLO_AWARE, until};
use detshare_board::{Class, Tenant, clock};
use serde_json::Value;
use std::fs::File;
use std::rc::Rc;

const IN_SLICES: (&str, &str) = ("DETSHARE_BLOCK_LEVEL", "slices:37");

/// How many launches of a kernel that is loaded so are made in slices; its results are those that it has otherwise.
fn in_slices(loaded: &[&str]) -> u64 {
    let arguments = [&["--blocks", "300", "--launches", "3", "--wait"], loaded].concat();
    let (alone, _) = run(&arguments, &[]);
    let (forced, stats) = run(&arguments, &[IN_SLICES]);
    assert_eq!(alone, forced, "{loaded:?}");
    count(&stats, "sliced")
}

/// The driver would compile a version of it otherwise than the original.
#[test]
fn what_is_compiled_with_options_stays_as_it_is() {
    assert_eq!(in_slices(&[]), 3);
    assert_eq!(in_slices(&["--level", "0"]), 0);
    assert_eq!(in_slices(&["--target", "90"]), 3, "for this very GPU, as a version is");
    assert_eq!(in_slices(&["--target", "80"]), 0);
}

/// What was linked from one text is known by it. Of several pieces none is all of the program, and options count here too.
#[test]
fn what_is_linked_from_several_pieces_stays_as_it_is() {
    assert_eq!(in_slices(&["--pieces", "1"]), 3);
    assert_eq!(in_slices(&["--pieces", "2"]), 0);
    assert_eq!(in_slices(&["--pieces", "1", "--level", "0"]), 0);
    assert_eq!(in_slices(&["--pieces", "1", "--target", "90"]), 3, "as Numba does");
}

/// Of a kernel that fails its launch knows nothing; whoever waits for it does. So it is in parts: those that come after the fault are
/// refused, and the launch has been made all the same.
#[test]
fn a_fault_in_the_middle_is_told_by_the_next_call() {
    let arguments = ["--blocks", "3000", "--fault"];
    let (alone, _) = run(&arguments, &[]);
    assert!(alone.starts_with("launch 0, wait 7"), "{alone}");
    for forced in ["slices:37", "preempt:5"] {
        assert_eq!(alone, run(&arguments, &[("DETSHARE_BLOCK_LEVEL", forced)]).0, "{forced}");
    }
}

/// Whatever its entry says: a latency tenant gives way to nobody.
#[test]
fn a_latency_tenant_has_no_versions() {
    let office = Office::open();
    let mut command = program(&["--blocks", "300", "--launches", "20", "--wait", "--load-again"]);
    command.env("DETSHARE_DIR", office.folder.path()).env("DETSHARE_BLOCK_LEVEL", "on");
    let mut child = command.env("DETSHARE_CLASS", "latency").spawn().expect("it can be started");
    let admitted = office.admit(|entry| entry.turnaround_ns = Some(TURNAROUND_NS));
    assert_eq!(admitted.hello.class, Some(Class::Latency));
    drop(child.stdin.take());
    assert!(child.wait().expect("it ends").success());
    assert!(!office.folder.path().join("block-level").exists(), "nothing was rewritten, and nothing is told");
}

/// A kernel that was let pass beside a step under way has not to give way to that one: it would be stopped before its first block.
#[test]
fn a_step_that_was_there_before_does_not_stop_a_kernel() {
    let office = Office::open();
    let stats = office.folder.path().join("stats.json");
    let mut command = program(&["--blocks", "300", "--rounds", "20", "--until-told", "--wait"]);
    command.env("DETSHARE_DIR", office.folder.path()).env("DETSHARE_CLASS", "best-effort");
    let mut child = command.env(LEFT_ALONE.0, LEFT_ALONE.1).env("DETSHARE_STATS", &stats).spawn().expect("it starts");
    office.daemon.set_policy(SLO_AWARE);
    let admitted = office.admit(|entry| entry.limits.longest_hold_ns = 20_000_000);
    let busy = |other: &Tenant| assert!(other.launch().is_busy());
    let (_other, _place) = office.introduce_one_who_has(&admitted, Class::Latency, busy);
    until("it is held for that step", || admitted.view.is_holding());
    let launched = || admitted.view.read(clock::now()).launched;
    let before = launched();
    until("it has been let pass again and again", || launched() > before + 60);
    drop(child.stdin.take());
    assert!(child.wait().expect("it ends").success());
    let stats: Value = serde_json::from_str(&std::fs::read_to_string(stats).expect("stats")).expect("JSON");
    let stats = &stats["block_level"];
    assert!(count(stats, "preemptible") > 0 && count(stats, "by_others") == 0, "{stats}");
}

/// The oldest go when there is no room for another one.
#[test]
fn rewritten_modules_on_disk_have_a_bound() {
    const ALL_THE_ROOM: u64 = 256 << 20;
    let office = Rc::new(Office::open());
    let folder = office.folder.path().join("block-level");
    std::fs::create_dir(&folder).expect("a new folder");
    let (old, foreign) = (folder.join("00.versions"), folder.join("kept.by-somebody-else"));
    for file in [&old, &foreign] {
        File::create(file).and_then(|file| file.set_len(ALL_THE_ROOM)).expect("a file without content");
    }
    let arguments = ["--blocks", "300", "--rounds", "20", "--until-told", "--wait"];
    let mut company = Company::in_office(office, &arguments, &[]);
    company.until("it has its versions", Company::is_prepared);
    assert!(!old.exists() && foreign.exists());
    assert_eq!(company.report().expect("it is there")["modules"][0]["notes"], Value::Array(vec![]));
    company.ends();
}
