//! Kernels that are launched in parts, on the software GPU: whatever is done to them, every block runs exactly once, results
//! are those of the original, and nothing waits for what comes after it.

mod guards;
mod kept;

use crate::stage::{built, shim};
use crate::tenants::{Admitted, Office, SLO_AWARE, until};
use detshare_board::{Claim, Class, Tenant, clock};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

/// A program that is to give way in time is to do so within this, on any machine.
const TURNAROUND_NS: u64 = 32_000;

fn program(arguments: &[&str]) -> Command {
    on_the_software_gpu(Command::new(built("long_kernels")), arguments)
}

/// One that begins when it is told a line: its process has its number before, and nothing else.
fn program_once_told(arguments: &[&str]) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "read -r _ && exec \"$@\"", "sh"]).arg(built("long_kernels"));
    on_the_software_gpu(shell, arguments)
}

fn on_the_software_gpu(mut command: Command, arguments: &[&str]) -> Command {
    command.args(arguments).env_clear().env("LD_PRELOAD", shim());
    command.env("DETSHARE_DRIVER", built("libdetshare_softgpu.so")).stdout(Stdio::piped()).stdin(Stdio::piped());
    command
}

/// What it prints in the end, and what its stats say of kernels in parts.
fn run(arguments: &[&str], settings: &[(&str, &str)]) -> (String, Value) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let stats = folder.path().join("stats.json");
    let output = program(arguments).env("DETSHARE_STATS", &stats).envs(settings.iter().copied()).output();
    let output = output.expect("it can be started");
    assert!(output.status.success(), "{arguments:?} {settings:?}: {}", String::from_utf8_lossy(&output.stderr));
    let stats = std::fs::read_to_string(stats).expect("the stats are written at exit");
    let stats: Value = serde_json::from_str(&stats).expect("the stats are JSON");
    (String::from_utf8_lossy(&output.stdout).into_owned(), stats["block_level"].clone())
}

fn count(stats: &Value, what: &str) -> u64 {
    stats[what].as_u64().unwrap_or(0)
}

/// Launched by every call, from several threads, into several streams and into the legacy one.
#[test]
fn every_block_runs_once_and_the_bits_are_the_same() {
    let ways: [&[&str]; 5] = [
        &["--blocks", "500"],
        &["--blocks", "970", "--call", "extra"],
        &["--blocks", "97", "--call", "ex", "--wait"],
        &["--threads", "3", "--streams", "2", "--launches", "6"],
        &["--threads", "3", "--streams", "0", "--launches", "6"],
    ];
    for arguments in ways {
        let (alone, none) = run(arguments, &[]);
        assert_eq!(none, Value::Null, "nothing is launched in parts unless somebody asks for it");
        for (forced, what) in [("slices:37", "sliced"), ("preempt:5", "preemptible"), ("random:1", "sliced")] {
            let settings = [("DETSHARE_BLOCK_LEVEL", forced), ("DETSHARE_SCHEDULE", "random:3")];
            let (in_parts, stats) = run(arguments, &settings);
            assert_eq!(alone, in_parts, "{arguments:?} {forced}");
            assert!(count(&stats, what) > 0, "{arguments:?} {forced}: {stats}");
            assert!(forced != "preempt:5" || count(&stats, "stopped") > 0, "{arguments:?} {forced}: {stats}");
        }
    }
}

/// A stream that waits for what the program does after the launch: the launch returns all the same.
#[test]
fn a_launch_does_not_wait_for_what_comes_after_it() {
    for held in ["value", "event", "host-function"] {
        let arguments = ["--launches", "3", "--blocks", "97", "--held", held];
        let (alone, _) = run(&arguments, &[]);
        for forced in ["slices:10", "preempt:4"] {
            assert_eq!(alone, run(&arguments, &[("DETSHARE_BLOCK_LEVEL", forced)]).0, "{held} {forced}");
        }
    }
}

/// What takes far longer than it should goes on without its launch call, as one piece, and the next one runs as it is.
#[test]
fn what_takes_too_long_is_let_go_and_computes_the_same() {
    for (forced, what) in [("others:1", "preemptible"), ("slices:100", "sliced")] {
        // However fast the machine is.
        let let_go = (12..30).step_by(2).any(|rounds| {
            let rounds = (1 << rounds).to_string();
            let arguments = ["--blocks", "300", "--launches", "2", "--wait", "--rounds", &rounds];
            let (in_parts, stats) = run(&arguments, &[("DETSHARE_BLOCK_LEVEL", forced)]);
            assert!(count(&stats, what) > 0 && count(&stats, "let_go") <= 1, "{forced} {stats}");
            let is_let_go = count(&stats, "let_go") == 1;
            assert!(!is_let_go || run(&arguments, &[]).0 == in_parts, "{forced}");
            is_let_go
        });
        assert!(let_go, "{forced}");
    }
}

/// Children of a program that is in the middle of a kernel end as they like.
#[test]
fn forks_in_the_middle_change_nothing() {
    let arguments = ["--blocks", "970", "--launches", "20", "--threads", "2", "--forks", "30"];
    let (alone, _) = run(&arguments, &[]);
    for forced in ["slices:37", "preempt:5", "random:7"] {
        assert_eq!(alone, run(&arguments, &[("DETSHARE_BLOCK_LEVEL", forced)]).0, "{forced}");
    }
}

/// The context goes while kernels are in the middle: every call returns, and the program ends as it would.
#[test]
fn a_context_that_goes_in_the_middle_ends_what_waits() {
    let arguments =
        ["--blocks", "970", "--for-ms", "60000", "--threads", "3", "--ahead", "1", "--reset-after-ms", "300"];
    let (alone, _) = run(&arguments, &[]);
    for forced in ["slices:37", "preempt:5", "random:7", "others:2"] {
        assert_eq!(alone, run(&arguments, &[("DETSHARE_BLOCK_LEVEL", forced)]).0, "{forced}");
    }
}

/// A best-effort program among others, of whom the test plays one.
struct Company {
    office: Rc<Office>,
    admitted: Admitted,
    other: Tenant,
    place: Claim,
    child: Child,
}

impl Company {
    fn new(arguments: &[&str], settings: &[(&str, &str)]) -> Self {
        Self::in_office(Rc::new(Office::open()), arguments, settings)
    }

    fn in_office(office: Rc<Office>, arguments: &[&str], settings: &[(&str, &str)]) -> Self {
        Self::started(office, arguments, settings, Some(TURNAROUND_NS), |_| ())
    }

    /// With something that is done when its process is there.
    fn started(
        office: Rc<Office>,
        arguments: &[&str],
        settings: &[(&str, &str)],
        turnaround_ns: Option<u64>,
        before: impl FnOnce(&mut Child),
    ) -> Self {
        Self::of(program(arguments), office, settings, turnaround_ns, before)
    }

    /// With something that is done before the program begins.
    fn begun(office: Rc<Office>, arguments: &[&str], before: impl FnOnce(&mut Child)) -> Self {
        Self::of(program_once_told(arguments), office, &[], Some(TURNAROUND_NS), |child| {
            before(child);
            writeln!(child.stdin.as_mut().expect("piped"), "begin").expect("it listens");
        })
    }

    fn of(
        mut command: Command,
        office: Rc<Office>,
        settings: &[(&str, &str)],
        turnaround_ns: Option<u64>,
        before: impl FnOnce(&mut Child),
    ) -> Self {
        command.env("DETSHARE_DIR", office.folder.path()).env("DETSHARE_CLASS", "best-effort");
        command.env("DETSHARE_BLOCK_LEVEL", "on").envs(settings.iter().copied());
        let mut child = command.spawn().expect("it can be started");
        before(&mut child);
        office.daemon.set_policy(SLO_AWARE);
        let admitted = office.admit(|entry| {
            entry.turnaround_ns = turnaround_ns;
            entry.limits.longest_hold_ns = 20_000_000;
        });
        let (other, place) = office.introduce_one_who_leaves(&admitted, Class::Latency);
        Self { office, admitted, other, place, child }
    }

    /// The other has a step of a millisecond, and a pause after it: that is the load. Nothing is waited for by it.
    fn step(&self) {
        self.other.launch();
        std::thread::sleep(Duration::from_millis(1));
        assert!(self.other.finish(self.other.launched(), 0));
        std::thread::sleep(Duration::from_millis(4));
    }

    /// How often a step has stopped a kernel before any thread of its process did.
    fn stopped_by_others(&self) -> u64 {
        self.report().and_then(|report| report["by_others"].as_u64()).unwrap_or(0)
    }

    /// What it says of its kernels.
    fn report(&self) -> Option<Value> {
        read_report(self.office.folder.path(), self.child.id())
    }

    /// Whether it has versions of its kernels.
    fn is_prepared(&self) -> bool {
        self.report().is_some_and(|report| report["modules"][0]["kernels"] != Value::Array(vec![]))
    }

    fn launched(&self) -> u64 {
        self.admitted.view.read(clock::now()).launched
    }

    fn shape(&self) -> Option<Value> {
        self.report()?["shapes"].get(0).cloned()
    }

    /// Waits until that holds; a program that ended before would be waited for in vain.
    fn until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        until(what, || {
            let ended = self.child.try_wait().expect("it is ours");
            let holds = holds(self);
            assert!(holds || ended.is_none(), "before {what}: {ended:?}");
            holds
        });
    }

    /// The last line that it says, once it is told to end.
    fn ends(&mut self) -> String {
        drop(self.child.stdin.take());
        let mut said = String::new();
        for line in BufReader::new(self.child.stdout.take().expect("piped")).lines() {
            said = line.expect("text");
        }
        assert!(self.child.wait().expect("it ends").success());
        said
    }
}

impl Drop for Company {
    fn drop(&mut self) {
        // Mostly it has ended.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// What a process says, in the file that is called by the number of its page: its page is the one of its files for which there is one.
fn read_report(folder: &Path, process: u32) -> Option<Value> {
    let files = std::fs::read_dir(format!("/proc/{process}/fd")).ok()?.flatten();
    let numbers = files.filter_map(|file| Some(std::fs::metadata(file.path()).ok()?.ino()));
    let mut reports = numbers.map(|number| folder.join(format!("block-level/{number}.json")));
    let text = reports.find_map(|report| std::fs::read_to_string(report).ok())?;
    Some(serde_json::from_str(&text).expect("the report is JSON"))
}

/// Kernels that are long beside their blocks, and launches enough to try all versions.
const LONG: [&str; 7] = ["--blocks", "1500", "--rounds", "100", "--launches", "60", "--wait"];

/// The compiler gives a version that is to be linked more registers than it needs: it is told how many the original has.
#[test]
fn versions_have_no_more_registers_than_the_original() {
    /// With so many an SM is full of threads.
    const FREE: u64 = 32;
    let mut company = Company::new(&[&LONG[..], &["--until-told"]].concat(), &[]);
    company.until("it has versions", |company| company.is_prepared());
    let report = company.report().expect("it has told");
    let registers = &report["modules"][0]["kernels"][0]["registers"];
    let counts: Vec<u64> = registers.as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
    let &[original, sliced, preemptible] = counts.as_slice() else { panic!("{report}") };
    assert!(original > 0 && sliced > 0 && preemptible > 0, "{report}");
    let most = original.next_multiple_of(8).max(FREE);
    assert!(sliced <= most && preemptible <= most, "{report}");
    company.ends();
}

/// From the first launch to the choice, with a latency tenant that has steps all the while: kernels give way in the middle,
/// and the results are those that the program has alone.
#[test]
fn a_long_kernel_gives_way_to_a_step_and_computes_the_same() {
    let (alone, _) = run(&LONG, &[]);
    let mut company = Company::new(&LONG, &[]);
    assert!(company.admitted.hello.block_level);
    let mut report = Value::Null;
    while company.child.try_wait().expect("it is ours").is_none() {
        company.step();
        report = company.report().unwrap_or(report);
    }
    let gave_way = report["shapes"][0]["preempted"].as_u64().unwrap_or(0);
    assert_eq!(report["modules"][0]["kernels"][0]["preemptible"], Value::Null, "{report}");
    assert!(gave_way > 0, "{report}");
    assert_eq!(alone.trim_end(), company.ends());
}

/// Persistent blocks that no thread of their process ever stops.
const LEFT_ALONE: (&str, &str) = ("DETSHARE_BLOCK_LEVEL", "others:8");
/// Kernels that are long enough to be stopped, until it is told to end; then the program checks that every block ran once in each. Of those
/// that are far longer a part might be let go on a busy machine, and then none is launched in parts any more.
const STOPPABLE: [&str; 6] = ["--blocks", "600", "--rounds", "200", "--until-told", "--wait"];

/// The GPU itself sees the other process's page.
#[test]
fn a_step_stops_a_kernel_that_no_thread_of_its_process_stops() {
    let mut company = Company::new(&STOPPABLE, &[LEFT_ALONE]);
    company.until("a step stops it", |company| {
        company.step();
        company.stopped_by_others() > 0
    });
    assert!(company.ends().starts_with("checksum"));
}

/// Its page says for ever that it is busy. Whoever comes in its place is somebody else.
#[test]
fn one_who_has_left_in_the_middle_of_a_step_stops_nobody() {
    let mut company = Company::new(&STOPPABLE, &[LEFT_ALONE]);
    company.until("a step stops it", |company| {
        company.step();
        company.stopped_by_others() > 0
    });
    company.other.launch();
    assert!(company.office.daemon.release(&company.place));
    let (next, place) = company.office.introduce_one_who_leaves(&company.admitted, Class::Latency);
    assert_eq!(place.slot(), company.place.slot());
    let left = core::mem::replace(&mut company.other, next);
    let before = company.stopped_by_others();
    company.until("the next one's steps stop it", |company| {
        company.step();
        company.stopped_by_others() > before
    });
    assert!(left.step().is_busy());
    assert!(company.ends().starts_with("checksum"));
}

/// Busy and idle again as fast as it can: that costs time, and nothing else.
#[test]
fn a_page_that_lies_costs_nothing_but_time() {
    let (alone, _) = run(&LONG, &[]);
    for setting in [LEFT_ALONE, ("DETSHARE_BLOCK_LEVEL", "on")] {
        let mut company = Company::new(&LONG, &[setting]);
        while company.child.try_wait().expect("it is ours").is_none() {
            company.other.launch();
            assert!(company.other.finish(company.other.launched(), 0));
        }
        assert_eq!(alone.trim_end(), company.ends(), "{setting:?}");
    }
}

/// Without anybody to give way to, kernels run as they are.
#[test]
fn alone_nothing_is_launched_in_parts() {
    let office = Office::open();
    let stats = office.folder.path().join("stats.json");
    let mut command = program(&["--blocks", "1500", "--launches", "5", "--wait"]);
    command.env("DETSHARE_DIR", office.folder.path()).env("DETSHARE_BLOCK_LEVEL", "on").env("DETSHARE_STATS", &stats);
    let mut child = command.spawn().expect("it can be started");
    let _admitted = office.admit(|entry| entry.turnaround_ns = Some(TURNAROUND_NS));
    assert!(child.wait().expect("it ends").success());
    let stats: Value = serde_json::from_str(&std::fs::read_to_string(stats).expect("stats")).expect("JSON");
    assert_eq!(stats["block_level"], Value::Null, "{stats}");
}

/// The one module that was rewritten, on disk.
fn only_entry(folder: &Path) -> PathBuf {
    let files = std::fs::read_dir(folder.join("block-level")).expect("the cache").flatten();
    let mut paths: Vec<_> = files.map(|file| file.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|it| it == "versions"));
    let [entry] = paths.try_into().expect("one entry");
    entry
}

/// What was rewritten is found again; a broken entry is made anew, and said.
#[test]
fn rewritten_modules_are_kept_and_broken_ones_made_anew() {
    let arguments = ["--blocks", "300", "--rounds", "20", "--until-told", "--wait"];
    let mut company = Company::new(&arguments, &[]);
    company.until("the first has its versions", Company::is_prepared);
    company.ends();
    let office = Rc::clone(&company.office);
    let entry = only_entry(office.folder.path());
    let whole = std::fs::read(&entry).expect("it can be read");

    std::fs::write(&entry, &whole[..whole.len() - 1]).expect("it can be cut");
    let mut company = Company::in_office(Rc::clone(&office), &arguments, &[]);
    company.until("the second has its versions", Company::is_prepared);
    let report = company.report().expect("it is there");
    assert!(report["modules"][0]["notes"][0].as_str().is_some_and(|note| note.contains("corrupt")), "{report}");
    company.ends();
    assert_eq!(std::fs::read(&entry).expect("it is there again"), whole);

    // A disk that is full.
    std::fs::remove_file(&entry).expect("it can be removed");
    let fill = |child: &mut Child| {
        let unfinished = entry.with_extension(format!("{}.part", child.id()));
        std::os::unix::fs::symlink("/dev/full", unfinished).expect("a link");
    };
    let mut company = Company::begun(Rc::clone(&office), &arguments, fill);
    company.until("the third has its versions", Company::is_prepared);
    let report = company.report().expect("it is there");
    assert!(report["modules"][0]["notes"][0].as_str().is_some_and(|note| note.contains("No space left")), "{report}");
    company.ends();
    assert!(!entry.exists());

    // Where nothing can be kept, everything goes on.
    std::fs::remove_dir_all(office.folder.path().join("block-level")).expect("it can be removed");
    std::fs::write(office.folder.path().join("block-level"), "in the way").expect("it can be written");
    let mut company = Company::in_office(office, &arguments, &[]);
    company.until("launches go on", |company| company.launched() > 200);
    company.ends();
}

/// Whatever keeps the thread in the background from having versions ready, here a file that nobody reads: the first launches are made,
/// and many more, with the originals.
#[test]
fn no_launch_waits_for_versions_to_be_ready() {
    let arguments = ["--blocks", "300", "--rounds", "20", "--until-told", "--wait"];
    let mut company = Company::new(&arguments, &[]);
    company.until("the first has its versions", Company::is_prepared);
    company.ends();
    let office = Rc::clone(&company.office);
    let entry = only_entry(office.folder.path());
    std::fs::remove_file(&entry).expect("it can be removed");

    let mut unread = entry.clone();
    let block = |child: &mut Child| {
        unread.set_extension(format!("{}.part", child.id()));
        assert!(Command::new("mkfifo").arg(&unread).status().expect("it can be started").success());
    };
    let mut company = Company::begun(office, &arguments, block);
    company.until("launches go on", |company| company.launched() > 200);
    assert!(!company.is_prepared());
    // It waits there: whoever opens it for reading waits for one who writes.
    std::fs::read(&unread).expect("it is there");
    company.until("it has its versions", Company::is_prepared);
}

/// A daemon that takes its time: what was loaded before it answered has versions all the same.
#[test]
fn what_is_loaded_before_the_daemon_answers_gets_its_versions() {
    let arguments = ["--blocks", "300", "--rounds", "20", "--until-told", "--wait", "--progress"];
    let mut company = Company::started(Rc::new(Office::open()), &arguments, &[], Some(TURNAROUND_NS), is_loaded);
    company.until("it has its versions", Company::is_prepared);
}

/// The program says that it has loaded its kernels.
fn is_loaded(child: &mut Child) {
    let mut said = [0; 6];
    child.stdout.as_mut().expect("piped").read_exact(&mut said).expect("it says so");
    assert_eq!(&said, b"ready\n");
}

/// Until the daemon has answered nobody knows whether block level is on. Where it turns out that nobody asked for it, or for a
/// latency tenant, what was loaded by then stays as it is, whatever comes later.
#[test]
fn what_is_loaded_before_the_daemon_answers_stays_as_it_is_where_block_level_is_off() {
    for (class, turnaround_ns) in [(Class::BestEffort, None), (Class::Latency, Some(TURNAROUND_NS))] {
        let office = Office::open();
        let mut command = program(&["--blocks", "300", "--for-ms", "60000", "--wait", "--progress", "--load-again"]);
        let child = command.env("DETSHARE_DIR", office.folder.path()).spawn().expect("it can be started");
        let mut program = Running(child);
        is_loaded(&mut program.0);
        let mut admitted = office.admit(|entry| (entry.class, entry.turnaround_ns) = (class, turnaround_ns));
        until("it has heard the answer", || admitted.view.read(clock::now()).launched > 100);
        assert!(!office.folder.path().join("block-level").exists(), "nothing was rewritten for {class:?}");

        admitted.give(&office, |entry| (entry.class, entry.turnaround_ns) = (Class::BestEffort, Some(TURNAROUND_NS)));
        writeln!(program.0.stdin.take().expect("piped"), "load").expect("it listens");
        let mut modules = Vec::new();
        until("what it loads from then on has versions", || {
            let report = read_report(office.folder.path(), program.0.id());
            modules = report.and_then(|report| report["modules"].as_array().cloned()).unwrap_or_default();
            modules.iter().any(|module| module["kernels"] != Value::Array(vec![]))
        });
        let refused: Vec<_> = modules.iter().filter_map(|module| module["refused"].as_str()).collect();
        assert_eq!(refused, ["block level was off when it was loaded"], "{class:?}: {modules:?}");
    }
}

/// A program that asks for it where there is no daemon, or one that has no room, has no use for versions: nothing is rewritten. When one comes
/// that lets it have them, it has them of what it has loaded by then.
#[test]
fn without_a_daemon_nothing_is_rewritten_until_one_comes() {
    let is_rewritten = |folder: &Path| folder.join("block-level").exists();
    let arguments = ["--blocks", "300", "--rounds", "20", "--wait"];
    let start = |folder: &Path, arguments: &[&str]| {
        let mut command = program(arguments);
        command.env("DETSHARE_DIR", folder).env("DETSHARE_BLOCK_LEVEL", "on").spawn().expect("it can be started")
    };
    let nobody = tempfile::tempdir().expect("a temporary folder");
    let mut alone = start(nobody.path(), &[&arguments[..], &["--launches", "200"]].concat());
    assert!(alone.wait().expect("it ends").success());
    assert!(!is_rewritten(nobody.path()));

    for turnaround_ns in [None, Some(TURNAROUND_NS)] {
        let office = Office::open();
        let folder = office.folder.path();
        let mut program = Running(start(folder, &[&arguments[..], &["--for-ms", "60000", "--progress"]].concat()));
        office.refuse();
        is_loaded(&mut program.0);
        // Who asks again has heard the first answer, and would have acted on it.
        office.refuse();
        assert!(!is_rewritten(folder));
        let admitted = office.admit(|entry| (entry.class, entry.turnaround_ns) = (Class::BestEffort, turnaround_ns));
        let launched = || admitted.view.read(clock::now()).launched;
        let before = launched();
        if turnaround_ns.is_some() {
            until("it has its versions", || {
                let report = read_report(folder, program.0.id());
                report.is_some_and(|report| report["modules"][0]["kernels"] != Value::Array(vec![]))
            });
        } else {
            until("it has heard the answer", || launched() > before + 100);
            assert!(!is_rewritten(folder));
        }
    }
}

/// Ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Mostly it has ended.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// It is never idle, from any of its threads: there is a moment for it all the same.
#[test]
fn a_program_that_always_has_something_to_do_gets_its_versions() {
    let busy = "--blocks 97 --rounds 10 --until-told --ahead 1 --threads 2 --load-again";
    let arguments: Vec<&str> = busy.split(' ').collect();
    // What it has loaded by then stays as it is, and launches of it do not wait for anything.
    let mut company = Company::started(Rc::new(Office::open()), &arguments, &[], None, |_| ());
    company.until("it always has something to do", |company| company.launched() > 100);
    let office = Rc::clone(&company.office);
    company.admitted.give(&office, |entry| entry.turnaround_ns = Some(TURNAROUND_NS));
    writeln!(company.child.stdin.as_mut().expect("piped"), "load").expect("it listens");
    company.until("what it has loaded meanwhile has versions", Company::is_prepared);
}

/// A configuration that changes while a program runs.
#[test]
fn what_the_daemon_says_later_counts_from_then_on() {
    let mut company = Company::new(&["--blocks", "1500", "--rounds", "100", "--until-told", "--wait"], &[]);
    let launches = |company: &Company| company.shape().and_then(|shape| shape["launches"].as_u64()).unwrap_or(0);
    let turnaround = |company: &Company| company.report().and_then(|report| report["turnaround_ns"].as_u64());
    let launch_on = |company: &Company| {
        let before = company.launched();
        until("it goes on", || {
            company.step();
            company.launched() > before + 20
        });
    };
    until("kernels are launched in parts", || {
        company.step();
        launches(&company) > 3
    });
    let office = Rc::clone(&company.office);
    company.admitted.give(&office, |entry| entry.turnaround_ns = None);
    until("it has heard that nothing needs to give way", || turnaround(&company) == Some(0));
    launch_on(&company);
    let before = company.report();
    launch_on(&company);
    assert_eq!(company.report(), before, "nothing is launched in parts any more");
    company.admitted.give(&office, |entry| entry.turnaround_ns = Some(2 * TURNAROUND_NS));
    until("it has heard that kernels are to give way again", || turnaround(&company) == Some(2 * TURNAROUND_NS));
    let before = launches(&company);
    until("kernels are launched in parts again", || {
        company.step();
        launches(&company) > before
    });
}

/// Killed in the middle of a kernel that has been stopped: others go on.
#[test]
fn a_program_that_is_killed_in_the_middle_harms_nobody() {
    let mut company = Company::new(&["--blocks", "3000", "--rounds", "300", "--until-told", "--wait"], &[]);
    company.until("it gives way", |company| {
        company.step();
        company.shape().is_some_and(|shape| shape["preempted"].as_u64() > Some(0))
    });
    company.child.kill().expect("it is ours");
    company.child.wait().expect("it has ended");
    let (said, _) = run(&["--blocks", "97", "--launches", "2"], &[]);
    assert!(said.starts_with("checksum"), "{said}");
}
