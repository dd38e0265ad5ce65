//! A folder to work in, and a way to run `detshare` on a script.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What scripts say of themselves, in the shim's place.
const WORDS: &str = r#"
moved() { [ -n "${DETSHARE_SCHEDULE-}" ]; }
file_of() { printf %s "$1" | sed "s/%p/$2/"; }
# process NUMBER STARTED PROGRAM
process() {
    file=$(file_of "$DETSHARE_DIGEST" "$1")
    printf '{"process":%d,"started":%d,"program":"%s"}\n' "$1" "$2" "$3" >>"$file"
}
# copy NUMBER STREAM BYTES DIGEST
copy() { printf '{"number":%d,"kind":"copy","stream":%d,"bytes":%d,"digest":"%016x"}\n' "$1" "$2" "$3" "$4" >>"$file"; }
# memory NUMBER ALLOCATION BYTES DIGEST
memory() {
    printf '{"number":%d,"kind":"memory","allocation":%d,"bytes":%d,"digest":"%016x"}\n' "$1" "$2" "$3" "$4" >>"$file"
}
# stats NUMBER TEXT
stats() { printf '%s\n' "$2" >"$(file_of "$DETSHARE_STATS" "$1")"; }
"#;

pub(crate) struct Stage {
    folder: tempfile::TempDir,
    /// What `detshare` takes for the shim.
    shim: PathBuf,
}

#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), shim: harmless_library() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Where a daemon of this stage would be.
    pub(crate) fn runtime_folder(&self) -> PathBuf {
        self.path("run")
    }

    pub(crate) fn shim(&self) -> &Path {
        &self.shim
    }

    /// `detshare` in this folder, with an environment that says nothing else.
    pub(crate) fn detshare(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_detshare"));
        self.prepare(&mut command);
        command
    }

    /// Gives a command the environment of this stage.
    pub(crate) fn prepare(&self, command: &mut Command) {
        // Nothing of the user's own: no configuration, no runtime folder, no settings.
        for (variable, _) in std::env::vars_os() {
            if ["DETSHARE_", "XDG_", "CUDA_"].iter().any(|prefix| variable.as_bytes().starts_with(prefix.as_bytes())) {
                command.env_remove(variable);
            }
        }
        command.current_dir(self.folder.path()).stdin(Stdio::null()).env_remove("LD_PRELOAD");
        command.env("HOME", self.folder.path()).env("DETSHARE_SHIM", &self.shim);
        command.env("DETSHARE_DIR", self.runtime_folder());
    }

    /// `detshare verify FLAGS -- sh -c SCRIPT`.
    pub(crate) fn verify_command(&self, flags: &[&str], script: &str) -> Command {
        let mut command = self.detshare();
        command.arg("verify").args(flags).args(["--", "sh", "-c", &format!("{WORDS}\n{script}")]);
        command
    }

    /// `detshare verify -- python3 -c PROGRAM`, which signals end even where the tests were started to ignore them. (A
    /// shell that just starts a child may lose a signal; Python does not.)
    pub(crate) fn interruptible(&self, program: &str) -> Command {
        const START: &str = "import os, signal, sys
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])";
        let mut command = Command::new("python3");
        command.args(["-c", START, env!("CARGO_BIN_EXE_detshare"), "verify", "--", "python3", "-c", program]);
        self.prepare(&mut command);
        command
    }

    pub(crate) fn verify(&self, flags: &[&str], script: &str) -> Outcome {
        outcome(&mut self.verify_command(flags, script))
    }

    /// The object that `--format json` prints, and the exit code.
    pub(crate) fn verify_json(&self, script: &str) -> (serde_json::Value, Option<i32>) {
        let outcome = self.verify(&["--format", "json"], script);
        let json = serde_json::from_str(&outcome.stdout);
        (json.unwrap_or_else(|error| panic!("{error}: {}{}", outcome.stdout, outcome.stderr)), outcome.code)
    }
}

pub(crate) fn outcome(command: &mut Command) -> Outcome {
    let output = command.output().unwrap();
    assert_eq!(output.status.signal(), None);
    Outcome {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A script that can be executed. It is written by a process of its own: what is open for writing here may be so in a child that another
/// test just forked, and is not executed then.
pub(crate) fn write_program(program: &Path, text: &str) {
    let written = program.with_extension("written");
    std::fs::write(&written, text).unwrap();
    assert!(Command::new("install").args(["-m", "755"]).args([written.as_path(), program]).status().unwrap().success());
    std::fs::remove_file(written).unwrap();
}

/// A library that can be preloaded without any effect: one that every program has loaded already.
fn harmless_library() -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let paths = maps.lines().filter_map(|line| Some(&line[line.find('/')?..]));
    paths.map(PathBuf::from).find(|path| path.ends_with("libc.so.6")).expect("this test has the C library loaded")
}
