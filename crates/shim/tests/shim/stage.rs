//! A folder for one test, with the shim, the stub driver and the test program, and how to run it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Where `cargo xtask test` put the libraries and programs.
pub(crate) fn built(name: &str) -> PathBuf {
    let folder = std::env::var_os("DETSHARE_BUILT")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release"), PathBuf::from);
    let path = folder.join(name);
    assert!(path.exists(), "{} is missing: run the tests by `cargo xtask test`, which builds it", path.display());
    path.canonicalize().expect("it exists")
}

pub(crate) fn shim() -> PathBuf {
    built("libdetshare_shim.so")
}

pub(crate) fn stub_driver() -> PathBuf {
    built("libdetshare_stub_driver.so")
}

/// How the test program gets to the driver.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Build {
    /// `dlopen("libcuda.so.1")`.
    Opening,
    /// Linked against it, symbols bound at start.
    Linked,
    /// Linked against it and a function that no table knows, bound at start.
    LinkedFuture,
    /// The same, bound at the first call.
    LinkedFutureLazy,
}

/// The compiled test program; compiled once a test run.
pub(crate) fn tenant(build: Build) -> &'static Path {
    static BUILDS: OnceLock<(tempfile::TempDir, [PathBuf; 4])> = OnceLock::new();
    let (_, programs) = BUILDS.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let libraries = folder.path().join("lib");
        std::fs::create_dir(&libraries).expect("a new folder");
        std::os::unix::fs::symlink(stub_driver(), libraries.join("libcuda.so.1")).expect("a link");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/tenant.c");
        let compile = |name: &str, flags: &[&str]| {
            let program = folder.path().join(name);
            let status = Command::new("cc")
                .args(["-O1", "-Wall", "-Werror", "-pthread", "-o"])
                .arg(&program)
                .arg(&source)
                .args(flags)
                .arg("-L")
                .arg(&libraries)
                .args(if flags.is_empty() { &["-ldl"][..] } else { &["-l:libcuda.so.1", "-ldl"] })
                .status()
                .expect("a C compiler named cc");
            assert!(status.success(), "cc could not compile {}", source.display());
            program
        };
        let programs = [
            compile("opening", &[]),
            compile("linked", &["-DLINKED", "-Wl,-z,now"]),
            compile("linked-future", &["-DLINKED", "-DFUTURE", "-Wl,-z,now"]),
            compile("linked-future-lazy", &["-DLINKED", "-DFUTURE", "-Wl,-z,lazy"]),
        ];
        (folder, programs)
    });
    &programs[build as usize]
}

/// One run of the test program.
pub(crate) struct Stage {
    folder: tempfile::TempDir,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a temporary folder") }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A folder whose `libcuda.so.1` is that library.
    pub(crate) fn folder_with(&self, name: &str, library: &Path) -> PathBuf {
        let folder = self.path().join(name);
        std::fs::create_dir_all(&folder).expect("a new folder");
        std::os::unix::fs::symlink(library, folder.join("libcuda.so.1")).expect("a link");
        folder
    }

    /// The program in a bare environment, so that only what the test sets has an effect.
    pub(crate) fn bare(&self, build: Build, scenario: &str) -> Command {
        let mut command = Command::new(tenant(build));
        command.arg(scenario).env_clear().current_dir(self.path());
        command
    }

    /// The program with the shim preloaded, in front of the stub driver.
    pub(crate) fn preloaded(&self, build: Build, scenario: &str) -> Command {
        let mut command = self.bare(build, scenario);
        command.env("LD_PRELOAD", shim()).env("DETSHARE_DRIVER", stub_driver());
        command.env("DETSHARE_STATS", self.path().join("stats.json"));
        command.env("STUB_DRIVER_LOG", self.path().join("calls"));
        command
    }

    /// How often the stub driver was entered at that function.
    pub(crate) fn calls(&self, function: &str) -> usize {
        let calls = std::fs::read_to_string(self.path().join("calls")).unwrap_or_default();
        calls.lines().filter(|line| *line == function).count()
    }

    /// What the shim wrote at exit.
    pub(crate) fn stats(&self) -> serde_json::Value {
        let path = self.path().join("stats.json");
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text}"))
    }
}

/// Runs it; it must exit 0 and say nothing on standard error. Returns what it printed.
pub(crate) fn succeed(command: &mut Command) -> String {
    let output = finish(command);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{command:?} ended with {}: {errors}", output.status);
    String::from_utf8_lossy(&output.stdout).trim().to_string()
}

/// Runs it to its end.
pub(crate) fn finish(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"))
}
