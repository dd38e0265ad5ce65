//! A real daemon: started, found, stopped.

use crate::stage::{Outcome, Stage, outcome};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Nothing here takes long; this is for a machine with much else to do.
pub(crate) const LONGEST: Duration = Duration::from_secs(60);

/// A stage with the real daemon's program; the daemon of it ends with the test, whatever happens.
pub(crate) struct DaemonStage {
    pub(crate) stage: Stage,
    daemon: PathBuf,
}

impl DaemonStage {
    pub(crate) fn new() -> Self {
        let stage = Stage::new();
        // Without MPS, whatever machine this is.
        std::fs::create_dir_all(stage.path(".config/detshare")).unwrap();
        std::fs::write(stage.path(".config/detshare/detshare.toml"), "isolation = \"process\"\n").unwrap();
        Self { stage, daemon: built("detshared") }
    }

    /// `detshare` with these arguments.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.stage.detshare();
        command.args(arguments).env("DETSHARE_DAEMON", &self.daemon);
        command
    }

    /// Another program that runs `detshare`.
    pub(crate) fn prepare(&self, command: &mut Command) {
        self.stage.prepare(command);
        command.env("DETSHARE_DAEMON", &self.daemon);
    }

    pub(crate) fn detshare(&self, arguments: &[&str]) -> Outcome {
        outcome(&mut self.command(arguments))
    }

    /// The daemon's process, as its lock says.
    pub(crate) fn pid(&self) -> Option<u32> {
        std::fs::read_to_string(self.stage.runtime_folder().join("lock")).ok()?.trim().parse().ok()
    }
}

impl Drop for DaemonStage {
    fn drop(&mut self) {
        let Some(pid) = self.pid() else { return };
        let _ = self.command(&["down"]).output();
        // If it did not listen: by its number, which the lock's file shows even after its end.
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if name.trim() == "detshared" {
            let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).output();
        }
    }
}

/// Built by `cargo xtask test`, by `cargo test --workspace` beside the command line, or by `cargo build --release`.
pub(crate) fn built(file: &str) -> PathBuf {
    let built = std::env::var_os("DETSHARE_BUILT").map(PathBuf::from);
    let beside = Path::new(env!("CARGO_BIN_EXE_detshare")).parent().map(Path::to_path_buf);
    let release = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release");
    let folders = [built, beside, Some(release)].into_iter().flatten();
    let found = folders.map(|folder| folder.join(file)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{file} is built: cargo build --release --workspace"))
}

/// Waits for what another process does.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONGEST;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what} did not come to be");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn up_status_and_down() {
    let stage = DaemonStage::new();
    assert_eq!(stage.detshare(&["status"]).code, Some(69));
    let up = stage.detshare(&["up"]);
    assert_eq!((up.code, up.stderr.as_str()), (Some(0), ""));
    let pid = stage.pid().unwrap();
    assert_eq!(
        up.stdout,
        format!("started the daemon: pid {pid}, folder {}\n", stage.stage.runtime_folder().display())
    );
    let again = stage.detshare(&["up"]);
    assert_eq!(again.code, Some(0));
    assert!(again.stdout.starts_with(&format!("a daemon runs already: pid {pid}, ")), "{}", again.stdout);
    let status = stage.detshare(&["status", "--format", "json"]);
    let status: detshare_api::Status = serde_json::from_str(&status.stdout).unwrap();
    assert_eq!((status.pid, status.tenants), (pid, 0));
    assert!(stage.detshare(&["ps"]).stdout.starts_with("no tenants"));
    assert_eq!(stage.detshare(&["ps", "--format", "json"]).stdout, "[]\n");
    let down = stage.detshare(&["down"]);
    assert_eq!((down.code, down.stdout), (Some(0), format!("stopped the daemon: pid {pid}\n")), "{}", down.stderr);
    assert_eq!(stage.detshare(&["status"]).code, Some(69));
    let none = stage.detshare(&["down"]);
    assert_eq!(none.code, Some(0));
    assert!(none.stdout.starts_with("no daemon runs in "), "{}", none.stdout);
    assert!(stage.detshare(&["up"]).stdout.starts_with("started the daemon"), "another one can start at once");
}

#[test]
fn a_daemon_that_was_killed_is_no_obstacle() {
    let stage = DaemonStage::new();
    stage.detshare(&["up"]);
    let first = stage.pid().unwrap();
    assert!(Command::new("kill").args(["-KILL", &first.to_string()]).status().unwrap().success());
    let status = || stage.detshare(&["status"]).code;
    until("its end", || status() == Some(69));
    let up = stage.detshare(&["up"]);
    assert!(up.stdout.starts_with("started the daemon"), "{}{}", up.stdout, up.stderr);
    assert_ne!(stage.pid().unwrap(), first);
}

#[test]
fn a_broken_configuration_is_78() {
    let stage = DaemonStage::new();
    std::fs::write(stage.stage.path("mine.toml"), "polcy = \"fair\"\n").unwrap();
    let refused = stage.detshare(&["up", "--config", "mine.toml"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(78), ""), "{}", refused.stderr);
    assert!(refused.stderr.contains("polcy"), "{}", refused.stderr);
    assert_eq!(refused.stderr.lines().count(), 1, "{}", refused.stderr);
    let run = outcome(stage.command(&["run", "--", "true"]).env("DETSHARE_CONFIG", "mine.toml"));
    assert_eq!(run.code, Some(78), "{}", run.stderr);
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
}

#[test]
fn a_configuration_is_named_from_where_we_are() {
    let stage = DaemonStage::new();
    std::fs::write(stage.stage.path("mine.toml"), "isolation = \"process\"\n").unwrap();
    assert_eq!(stage.detshare(&["up", "--config", "mine.toml"]).code, Some(0));
    let status = stage.detshare(&["status", "--format", "json"]);
    let status: detshare_api::Status = serde_json::from_str(&status.stdout).unwrap();
    let file = status.config.file.unwrap();
    assert_eq!(file.canonicalize().unwrap(), stage.stage.path("mine.toml").canonicalize().unwrap());
}

#[test]
fn a_program_that_is_no_daemon() {
    let stage = DaemonStage::new();
    let refused = outcome(stage.command(&["up"]).env("DETSHARE_DAEMON", "/bin/false"));
    assert_eq!(refused.code, Some(69), "{}", refused.stderr);
    assert!(refused.stderr.contains("the daemon ended at its start"), "{}", refused.stderr);
    let refused = outcome(stage.command(&["up"]).env("DETSHARE_DAEMON", "/etc/passwd"));
    assert_eq!(refused.code, Some(71), "{}", refused.stderr);
}

/// A shell script that starts a daemon with its own lock open must not hold it for the daemon's life.
#[test]
fn the_daemon_keeps_nobodys_files_open() {
    let stage = DaemonStage::new();
    let program = "
import os, select, subprocess, sys
reader, writer = os.pipe()
os.set_inheritable(writer, True)
subprocess.run(sys.argv[1:], close_fds=False, check=True, stdout=subprocess.DEVNULL)
os.close(writer)
print(bool(select.select([reader], [], [], 60)[0]))";
    let mut python = Command::new("python3");
    stage.prepare(&mut python);
    let closed = outcome(python.args(["-c", program, env!("CARGO_BIN_EXE_detshare"), "up"]));
    assert_eq!(closed.stdout, "True\n", "{}", closed.stderr);
}

#[test]
fn policies_are_switched() {
    let stage = DaemonStage::new();
    // Any isolation but process, under which `fair` is refused; `auto` without an NVIDIA device is none.
    if Path::new("/dev/nvidiactl").exists() {
        // To where the harness does not keep it: who reads the output must not take it for passed.
        _ = writeln!(std::io::stderr(), "policies_are_switched: SKIPPED, an NVIDIA device is here");
        return;
    }
    std::fs::remove_file(stage.stage.path(".config/detshare/detshare.toml")).unwrap();
    stage.detshare(&["up"]);
    for policy in ["exclusive", "fair"] {
        let switched = stage.detshare(&["policy", policy]);
        assert_eq!(switched.code, Some(0), "{}", switched.stderr);
        assert!(stage.detshare(&["policy"]).stdout.starts_with(policy));
    }
    let refused = stage.detshare(&["policy", "anarchy"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(64), ""));
    let policies = detshare_policy::POLICIES.iter().map(|policy| policy.name).collect::<Vec<_>>().join(", ");
    let said = format!(
        "detshare: invalid value 'anarchy' for '[POLICY]' [possible values: {policies}]; see `detshare policy --help`\n"
    );
    assert_eq!(refused.stderr, said);
    assert!(stage.detshare(&["policy"]).stdout.starts_with("fair"), "it is still in force");
}

#[test]
fn a_policy_that_needs_partitions_is_bad_usage_without_mps() {
    let stage = DaemonStage::new();
    stage.detshare(&["up"]);
    for policy in ["slo-aware", "tpot-first", "exclusive"] {
        let switched = stage.detshare(&["policy", policy]);
        assert_eq!((switched.code, switched.stderr.as_str()), (Some(0), ""), "{policy}");
    }
    for policy in ["fair", "throughput"] {
        let refused = stage.detshare(&["policy", policy]);
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(64), ""), "{policy}: {}", refused.stderr);
        assert!(refused.stderr.contains(policy) && refused.stderr.contains("MPS"), "{}", refused.stderr);
        assert_eq!(refused.stderr.lines().count(), 1, "{}", refused.stderr);
        assert!(stage.detshare(&["policy"]).stdout.starts_with("exclusive "), "it is still in force");
    }
}
