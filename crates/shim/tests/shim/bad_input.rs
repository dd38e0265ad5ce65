//! Where there is no usable driver, `cuInit` says so in the driver's own codes, and nothing else happens.

use crate::stage::{Build, Stage, finish, shim, stub_driver, succeed};
use std::path::{Path, PathBuf};
use std::process::Command;

const NO_DEVICE: &str = "100 0 CUDA_ERROR_NO_DEVICE 100";
const NOT_READY: &str = "802 0 CUDA_ERROR_SYSTEM_NOT_READY 802";

/// Quiet without `DETSHARE_LOG`; one line with it, which names what is wrong.
fn refused(program: &mut Command, answer: &str, line: &str) {
    assert_eq!(succeed(program), answer);
    let output = finish(program.env("DETSHARE_LOG", "1"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(errors.lines().count(), 1, "one clear line: {errors}");
    assert!(errors.starts_with("detshare[") && errors.contains(line), "{errors}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), answer);
}

fn with_driver(stage: &Stage, driver: &Path) -> Command {
    let mut program = stage.preloaded(Build::Opening, "init");
    program.env("DETSHARE_DRIVER", driver);
    program
}

fn file(stage: &Stage, name: &str, bytes: &[u8]) -> PathBuf {
    let path = stage.path().join(name);
    std::fs::write(&path, bytes).expect("the folder can be written");
    path
}

#[test]
fn no_driver_anywhere() {
    if detshare_cuda::driver::find(&detshare_cuda::driver::Search::default()).is_ok() {
        eprintln!("skipped: this machine has a driver");
        return;
    }
    let stage = Stage::new();
    for build in [Build::Opening, Build::Linked] {
        let mut program = stage.preloaded(build, "init");
        refused(program.env_remove("DETSHARE_DRIVER"), NO_DEVICE, "no CUDA driver found");
    }
}

#[test]
fn a_path_that_is_not_a_driver() {
    let stage = Stage::new();
    let text = file(&stage, "text.so", b"not a library at all");
    refused(&mut with_driver(&stage, &text), NOT_READY, "it is not an ELF library");
    let cut = std::fs::read(stub_driver()).expect("the stub driver is there");
    let cut = file(&stage, "cut.so", &cut[..cut.len() / 3]);
    refused(&mut with_driver(&stage, &cut), NOT_READY, "it is not an ELF library");
    let folder = stage.path().to_path_buf();
    refused(&mut with_driver(&stage, &folder), NOT_READY, "not a CUDA driver");
    refused(&mut with_driver(&stage, Path::new("/nowhere/libcuda.so.1")), NOT_READY, "cannot read it");
    refused(&mut with_driver(&stage, Path::new("libcuda.so.1")), NOT_READY, "absolute path");
}

#[test]
fn a_library_that_is_not_a_driver() {
    let stage = Stage::new();
    let source = file(&stage, "other.c", b"int other(void) { return 1; }\n");
    let library = stage.path().join("other.so");
    let status = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).status();
    assert!(status.expect("a C compiler named cc").success());
    refused(&mut with_driver(&stage, &library), NOT_READY, "it exports no cuInit");
}

#[test]
fn a_32_bit_library() {
    let stage = Stage::new();
    let mut bytes = std::fs::read(stub_driver()).expect("the stub driver is there");
    bytes[4] = 1;
    let narrow = file(&stage, "narrow.so", &bytes);
    refused(&mut with_driver(&stage, &narrow), NOT_READY, "32-bit library");
}

#[test]
fn a_library_for_another_processor() {
    let stage = Stage::new();
    let mut bytes = std::fs::read(stub_driver()).expect("the stub driver is there");
    bytes[18] = 183;
    let foreign = file(&stage, "foreign.so", &bytes);
    refused(&mut with_driver(&stage, &foreign), NOT_READY, "another processor");
}

#[test]
fn the_shim_itself() {
    let stage = Stage::new();
    refused(&mut with_driver(&stage, &shim()), NOT_READY, "DetShare's own library");
}

#[test]
fn a_driver_older_than_12_4() {
    let stage = Stage::new();
    let mut program = with_driver(&stage, &stub_driver());
    refused(program.env("STUB_DRIVER_VERSION", "12030"), NOT_READY, "version 12030, older than 12040");
    assert_eq!(succeed(with_driver(&stage, &stub_driver()).env("STUB_DRIVER_VERSION", "12040")), "0 0 ? 0");
}
