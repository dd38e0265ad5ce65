//! Files that are programs, or look like some.

use super::*;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::fs::chown;

const ARM: u16 = 183;
const X86_64: u16 = 62;

/// A program that consists of its headers, with that loader if any.
fn elf(machine: u16, loader: Option<&str>) -> Vec<u8> {
    const HEADER: u64 = 64;
    const SEGMENT: u64 = 56;
    const EXECUTABLE: u16 = 2;
    const INTERP: u32 = 3;
    let loader = loader.map(|loader| format!("{loader}\0"));
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    file.extend([EXECUTABLE, machine].into_iter().flat_map(u16::to_le_bytes));
    file.extend(1_u32.to_le_bytes());
    file.extend([0, HEADER, 0].into_iter().flat_map(u64::to_le_bytes));
    file.extend(0_u32.to_le_bytes());
    file.extend([64, 56, u16::from(loader.is_some()), 64, 0, 0].into_iter().flat_map(u16::to_le_bytes));
    if let Some(loader) = loader {
        let size = loader.len() as u64;
        file.extend([INTERP, 4].into_iter().flat_map(u32::to_le_bytes));
        file.extend([HEADER + SEGMENT, 0, 0, size, size, 1].into_iter().flat_map(u64::to_le_bytes));
        file.extend(loader.as_bytes());
    }
    file
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>, mode: u32) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    /// What is found for an executable file with these bytes.
    fn check(&self, bytes: impl AsRef<[u8]>) -> Result<PathBuf, ExecutableError> {
        find(self.file("program", bytes, 0o755).as_os_str(), std::env::var_os("PATH").as_deref())
    }
}

fn loader() -> String {
    let loader = "/lib64/ld-linux-x86-64.so.2";
    assert!(Path::new(loader).exists(), "this test knows one loader");
    loader.to_string()
}

#[test]
fn a_dynamically_linked_program() {
    assert!(Folder::new().check(elf(X86_64, Some(&loader()))).is_ok());
    assert!(find(OsStr::new("sh"), None).unwrap().is_absolute());
}

#[test]
fn a_static_program() {
    let found = Folder::new().check(elf(X86_64, None));
    assert!(matches!(&found, Err(ExecutableError::Static { .. })), "{found:?}");
    let message = found.unwrap_err().to_string();
    assert!(message.contains("is statically linked: the shim cannot be loaded into it"), "{message}");
}

#[test]
fn the_loader_itself_may_be_given_a_program() {
    assert!(find(OsStr::new(&loader()), None).is_ok());
}

#[test]
fn programs_for_other_machines() {
    let folder = Folder::new();
    assert!(matches!(folder.check(elf(ARM, Some(&loader()))), Err(ExecutableError::OtherMachine { .. })));
    let mut narrow = elf(X86_64, None);
    narrow[4] = 1;
    assert!(matches!(folder.check(narrow), Err(ExecutableError::OtherMachine { .. })));
}

#[test]
fn another_c_library() {
    let found = Folder::new().check(elf(X86_64, Some("/lib/ld-musl-x86_64.so.1")));
    assert!(matches!(found, Err(ExecutableError::Musl { .. })), "{found:?}");
}

#[test]
fn a_loader_that_is_not_there() {
    let found = Folder::new().check(elf(X86_64, Some("/nix/store/none/ld-linux-x86-64.so.2")));
    assert!(matches!(found, Err(ExecutableError::NoLoader { .. })), "{found:?}");
}

#[test]
fn a_program_that_is_cut_off() {
    let whole = elf(X86_64, Some(&loader()));
    for length in [4, 20, 64, 100] {
        assert!(Folder::new().check(&whole[..length]).is_err(), "{length}");
    }
}

#[test]
fn bytes_that_are_no_text() {
    assert!(matches!(Folder::new().check(b"GIF89a\0\0"), Err(ExecutableError::Damaged { .. })));
}

#[test]
fn scripts_run_by_their_interpreter() {
    let folder = Folder::new();
    for script in
        ["#!/bin/sh\nexit 0", "#! /bin/sh -e\n", "#!/usr/bin/env sh\n", "#!/usr/bin/env -S A=1 sh -e\n", "exit 0"]
    {
        assert!(folder.check(script).is_ok(), "{script}");
    }
    let fixed = folder.file("fixed", elf(X86_64, None), 0o755);
    let found = folder.check(format!("#!{}\n", fixed.display()));
    assert!(matches!(found, Err(ExecutableError::Static { program }) if program == fixed.display().to_string()));
}

#[test]
fn a_script_without_its_interpreter() {
    for (script, named) in [
        ("#!/no/such/python -u\n", "/no/such/python"),
        ("#!/usr/bin/env no-such-python\n", "no-such-python"),
        ("#!\n", ""),
    ] {
        let found = Folder::new().check(script);
        let Err(ExecutableError::NoInterpreter { interpreter, .. }) = found else { panic!("{script}: {found:?}") };
        assert_eq!(interpreter, named);
    }
}

#[test]
fn a_script_for_itself() {
    let folder = Folder::new();
    let path = folder.0.path().join("program");
    let found = folder.check(format!("#!{}\n", path.display()));
    assert!(matches!(found, Err(ExecutableError::EndlessScript { .. })), "{found:?}");
}

#[test]
fn the_first_that_may_be_executed_on_the_path() {
    let folder = Folder::new();
    for (name, mode) in [("a", 0o644), ("b", 0o755)] {
        std::fs::create_dir(folder.0.path().join(name)).unwrap();
        folder.file(&format!("{name}/tool"), "#!/bin/sh\n", mode);
    }
    let path = |names: &[&str]| std::env::join_paths(names.iter().map(|name| folder.0.path().join(name))).unwrap();
    let found = find(OsStr::new("tool"), Some(&path(&["none", "a", "b"])));
    assert_eq!(found.unwrap(), folder.0.path().join("b/tool"));
    let found = find(OsStr::new("tool"), Some(&path(&["a"])));
    assert!(matches!(found, Err(ExecutableError::NotExecutable { .. })), "{found:?}");
    let found = find(OsStr::new("tool"), Some(&path(&["none"])));
    assert!(matches!(found, Err(ExecutableError::NotFound { .. })), "{found:?}");
    let found = find(folder.0.path().join("a").as_os_str(), None);
    assert!(matches!(found, Err(ExecutableError::NotExecutable { .. })), "{found:?}");
}

#[test]
fn rights_that_make_the_loader_deaf() {
    let folder = Folder::new();
    let (us, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    for (mode, identity) in
        [(0o4755, Some("is set-user-ID")), (0o2755, Some("is set-group-ID")), (0o2745, None), (0o755, None)]
    {
        let file = folder.file("program", elf(X86_64, Some(&loader())), mode);
        let metadata = file.metadata().unwrap();
        assert_eq!(changes_identity(&metadata, us + 1, group + 1), identity, "{mode:o}");
        assert_eq!(changes_identity(&metadata, us, group), None, "one's own identity is no change");
    }
}

/// Only root can give a file away.
#[test]
fn a_file_of_another_user_with_the_bit() {
    if !rustix::process::getuid().is_root() {
        return;
    }
    let folder = Folder::new();
    let file = folder.file("program", elf(X86_64, Some(&loader())), 0o755);
    chown(&file, Some(1), Some(1)).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o4755)).unwrap();
    let found = find(file.as_os_str(), None);
    let ignored = rustix::fs::statvfs(&file).unwrap().f_flag.contains(StatVfsMountFlags::NOSUID);
    assert_eq!(matches!(found, Err(ExecutableError::Privileged { .. })), !ignored, "{found:?}");
}

#[test]
fn first_lines() {
    let shebang = |line: &str| Shebang::of(line.as_bytes()).unwrap();
    assert_eq!(Shebang::of(b"echo"), None);
    let python = shebang("#! \t/usr/bin/python3 -u -B \nrest");
    assert_eq!((python.interpreter.to_str(), python.argument.to_str()), (Some("/usr/bin/python3"), Some("-u -B")));
    let by_env = |line: &str| shebang(line).by_env().map(|name| name.into_string().unwrap());
    assert_eq!(by_env("#!/usr/bin/env python3").as_deref(), Some("python3"));
    assert_eq!(by_env("#!/bin/env -S LANG=C python3 -u").as_deref(), Some("python3"));
    assert_eq!(by_env("#!/usr/bin/env -S -i sh"), None);
    assert_eq!(by_env("#!/usr/bin/env"), None);
    assert_eq!(by_env("#!/bin/sh -e"), None);
}
