//! Modules that cannot be rewritten, or not as usual: the original runs, and `detshare explain` says why.

use crate::daemon::{DaemonStage, built, until};
use crate::sharing::soft;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// So short that all of them are over at once, and enough to be told apart by their checksum.
const FEW: [&str; 7] = ["--blocks", "300", "--rounds", "20", "--launches", "3", "--wait"];
/// For as long as the test looks at it.
const LASTING: [&str; 7] = ["--blocks", "300", "--rounds", "20", "--for-ms", "600000", "--wait"];

struct House {
    stage: DaemonStage,
    driver: PathBuf,
}

/// A program that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).expect("it runs");
    }
}

impl House {
    fn new() -> Self {
        let stage = DaemonStage::new();
        assert_eq!(stage.detshare(&["up"]).code, Some(0));
        Self { stage, driver: built("libdetshare_softgpu.so") }
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.stage.stage.path(name);
        std::fs::write(&path, bytes).expect("it can be written");
        path.into_os_string().into_string().expect("a name of letters")
    }

    fn command(&self, arguments: &[&str], more: &[&str]) -> Command {
        let mut command =
            self.stage.command(&["run", "--class", "best-effort", "--name", "work", "--block-level", "--"]);
        command.arg(built("long_kernels")).args(arguments).args(more);
        soft(&mut command);
        command.env("DETSHARE_DRIVER", &self.driver).stdout(Stdio::piped());
        command
    }

    fn start(&self, more: &[&str]) -> Running {
        Running(self.command(&LASTING, more).spawn().expect("it can be started"))
    }

    /// Waits until this is told of a program that runs.
    fn explains(&self, words: &str, more: &[&str]) {
        let _running = self.start(more);
        let mut said = String::new();
        until(words, || {
            said = self.stage.detshare(&["explain", "work"]).stdout;
            said.contains(words)
        });
        assert!(said.contains("\nblock level: "), "{said}");
    }

    /// What such a program computes.
    fn computes(&self, more: &[&str]) -> String {
        let output = self.command(&FEW, more).output().expect("it can be started");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }
}

/// A driver that takes more than we understand: it passes over a first line that begins with a question mark. All else is the
/// software GPU's.
const TOLERANT: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
static void *next(const char *name) { return dlsym(dlopen("libsoftg.so1", RTLD_NOW | RTLD_NOLOAD), name); }
int cuInit(unsigned flags) { return ((int (*)(unsigned))next("cuInit"))(flags); }
int cuModuleLoadData(void **module, const void *image) {
    const char *text = image;
    if (*text == '?') text = strchr(text, '\n');
    return ((int (*)(void **, const void *))next("cuModuleLoadData"))(module, text);
}
"#;

/// Such a driver, in the house's folder.
fn tolerant_driver(house: &House) -> PathBuf {
    let mut library = std::fs::read(&house.driver).expect("the software GPU");
    // Under another name: the loader takes libraries of one name for one, and the shim has this one too.
    let (name, other) = (b"\0libcuda.so.1\0", b"\0libsoftg.so1\0");
    let places: Vec<_> = (0..library.len() - name.len()).filter(|at| library[*at..].starts_with(name)).collect();
    places.iter().for_each(|at| library[*at..*at + other.len()].copy_from_slice(other));
    assert!(!places.is_empty(), "it has a name");
    let (soft, source) = (house.file("libsoftg.so1", library), house.file("tolerant.c", TOLERANT));
    let driver = house.stage.stage.path("libtolerant.so");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-Wall", "-Werror", "-Wl,--no-as-needed,-rpath,$ORIGIN", "-o"]);
    let status = compiler.arg(&driver).arg(source).arg(soft).arg("-ldl").status().expect("a C compiler named cc");
    assert!(status.success());
    driver
}

#[test]
fn ptx_that_is_not_understood_runs_as_it_is() {
    let mut house = House::new();
    house.driver = tolerant_driver(&house);
    let strange = house.file("strange", "? a line of another day\n");
    let more = ["--text-before", &strange];
    assert_eq!(house.computes(&more), house.computes(&[]));
    house.explains("a module stays as it is: its PTX is not understood", &more);
}

#[test]
fn ptx_that_is_too_big_runs_as_it_is() {
    let house = House::new();
    let line = format!("//{}\n", " ".repeat(125));
    let long = house.file("long", line.repeat((64 << 20) / line.len() + 1));
    let more = ["--text-before", &long];
    assert_eq!(house.computes(&more), house.computes(&[]));
    house.explains("a module stays as it is: it is too big to rewrite", &more);
}

/// What is kept is broken from outside: what runs next says so, and goes on.
#[test]
fn a_broken_entry_of_the_cache_is_said_and_made_anew() {
    let house = House::new();
    let folder = house.stage.stage.runtime_folder().join("block-level");
    let entries = || -> Vec<PathBuf> {
        let files = std::fs::read_dir(&folder).into_iter().flatten().flatten().map(|file| file.path());
        files.filter(|path| path.extension().is_some_and(|it| it == "versions")).collect()
    };
    {
        let _running = house.start(&[]);
        until("what was rewritten is kept", || !entries().is_empty());
    }
    let entry = entries().pop().expect("one entry");
    let mut bytes = std::fs::read(&entry).expect("it can be read");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&entry, bytes).expect("it can be written");
    house.explains("a module: its entry in the cache was corrupt and was made anew", &[]);
    assert!(entry.exists());
}
