//! Will the shim be in the program? What can be seen of its file before it is started.
//!
//! A program that cannot load the shim would run all the same, alone and unshared, and nobody would notice. So it is
//! refused with the reason: the loader preloads into dynamically linked programs of its own kind, and not into those
//! that run with more rights than their caller. What runs of a script is its interpreter.

use crate::exit;
use object::LittleEndian as LE;
use object::elf::{EM_X86_64, ET_DYN, ET_EXEC, FileHeader64, PT_INTERP};
use object::read::elf::{FileHeader, ProgramHeader};
use object::read::{ReadCache, ReadRef};
use rustix::fs::{Access, StatVfsMountFlags};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Why a program is not started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExecutableError {
    /// No such file, here or on `PATH`.
    #[error("{program} was not found: check its name and PATH")]
    NotFound { program: String },
    /// There is something, but not a file that may be executed.
    #[error("{program} cannot be executed: {reason}")]
    NotExecutable { program: String, reason: &'static str },
    /// It could not be looked at.
    #[error("{program} cannot be read ({source}): make it readable, so that it can be seen what it is")]
    Unreadable { program: String, source: std::io::Error },
    /// Starts like a program, but is none.
    #[error("{program} is a damaged program, or none at all: look at it with `file {program}`")]
    Damaged { program: String },
    /// For a machine that this is not.
    #[error("{program} is built for another processor: the shim is for x86-64 programs only")]
    OtherMachine { program: String },
    /// Nobody loads libraries into it.
    #[error("{program} is statically linked: the shim cannot be loaded into it; build it against shared libraries")]
    Static { program: String },
    /// The shim needs another C library.
    #[error("{program} uses the C library musl ({loader}), the shim needs glibc: use a build for glibc")]
    Musl { program: String, loader: String },
    /// What is to load it is not there.
    #[error("{program} needs the loader {loader}, which is not there: install it, or use a build for this system")]
    NoLoader { program: String, loader: String },
    /// The loader would forget the shim.
    #[error("{program} {how}: the system would ignore LD_PRELOAD, and with it the shim; use a copy without that")]
    Privileged { program: String, how: &'static str },
    /// The first line of a script names a file that is not there.
    #[error("{script} is a script for {interpreter}, which was not found: install it, or correct the first line")]
    NoInterpreter { script: String, interpreter: String },
    /// A script for a script for a script.
    #[error("{script} is a script for a script, too many times over: name the program that really runs")]
    EndlessScript { script: String },
}

impl ExecutableError {
    pub(crate) fn exit_code(&self) -> u8 {
        exit::NO_PROGRAM
    }
}

/// As many scripts as Linux follows, one the interpreter of the other.
const MOST_SCRIPTS: usize = 4;
/// As much of a first line as Linux reads.
const FIRST_LINE: u64 = 256;
const ELF_MAGIC: &[u8] = b"\x7fELF";
/// Where the search goes without `PATH`, as in the C library.
const DEFAULT_PATH: &str = "/bin:/usr/bin";
const SETUID: u32 = 0o4000;
/// Set-group-ID; without the group's right to execute it means something else.
const SETGID: u32 = 0o2010;
const CAPABILITIES: &str = "security.capability";

/// The file to execute for that name, once it is clear that the shim will be in it.
pub(crate) fn find(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, ExecutableError> {
    let found = locate(name, path)?;
    check(&found, path, MOST_SCRIPTS)?;
    Ok(found)
}

/// What `execvp` would take: the name itself if it has a slash, else the first on `PATH` that may be executed.
fn locate(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, ExecutableError> {
    let program = || name.to_string_lossy().into_owned();
    if name.as_bytes().contains(&b'/') {
        runnable(Path::new(name))?;
        return Ok(name.into());
    }
    if name.is_empty() {
        return Err(ExecutableError::NotFound { program: "a program without a name".to_string() });
    }
    let mut refused = None;
    for folder in std::env::split_paths(path.unwrap_or(OsStr::new(DEFAULT_PATH))) {
        // Nothing between two colons is the current folder.
        let folder = if folder.as_os_str().is_empty() { Path::new(".").to_path_buf() } else { folder };
        let candidate = folder.join(name);
        match runnable(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(ExecutableError::NotFound { .. }) => {}
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    Err(refused.unwrap_or_else(|| ExecutableError::NotFound { program: program() }))
}

/// Whether there is a file that we may execute.
fn runnable(file: &Path) -> Result<(), ExecutableError> {
    let program = || file.display().to_string();
    let Ok(metadata) = file.metadata() else { return Err(ExecutableError::NotFound { program: program() }) };
    let not_executable = |reason| Err(ExecutableError::NotExecutable { program: program(), reason });
    if metadata.is_dir() {
        return not_executable("it is a folder; name the program in it");
    }
    if !metadata.is_file() {
        return not_executable("it is not a regular file");
    }
    // Not by the mode's bits: root, lists of rights and mounts have their say too.
    if rustix::fs::access(file, Access::EXEC_OK).is_err() {
        return not_executable("it may not be executed; use chmod +x, or name the interpreter before it");
    }
    Ok(())
}

fn check(file: &Path, path: Option<&OsStr>, scripts_left: usize) -> Result<(), ExecutableError> {
    let program = || file.display().to_string();
    let unreadable = |source| ExecutableError::Unreadable { program: program(), source };
    let mut start = Vec::new();
    let opened = File::open(file).map_err(unreadable)?;
    (&opened).take(FIRST_LINE).read_to_end(&mut start).map_err(unreadable)?;
    if start.starts_with(ELF_MAGIC) {
        check_linkage(&program(), opened)?;
        let metadata = file.metadata().map_err(unreadable)?;
        return match gains_rights(file, &metadata) {
            Some(how) => Err(ExecutableError::Privileged { program: program(), how }),
            None => Ok(()),
        };
    }
    let Some(left) = scripts_left.checked_sub(1) else {
        return Err(ExecutableError::EndlessScript { script: program() });
    };
    let Some(shebang) = Shebang::of(&start) else {
        // `execvp` gives what it does not know to the shell; but nobody means that for bytes that are no text.
        if start.contains(&0) {
            return Err(ExecutableError::Damaged { program: program() });
        }
        return check(Path::new("/bin/sh"), path, left);
    };
    let missing = |interpreter: &OsStr| ExecutableError::NoInterpreter {
        script: program(),
        interpreter: interpreter.to_string_lossy().into_owned(),
    };
    let interpreter = Path::new(&shebang.interpreter);
    runnable(interpreter).map_err(|_| missing(&shebang.interpreter))?;
    check(interpreter, path, left)?;
    match shebang.by_env() {
        Some(name) => check(&locate(&name, path).map_err(|_| missing(&name))?, path, left),
        None => Ok(()),
    }
}

/// The first line of a script.
#[derive(Debug, PartialEq, Eq)]
struct Shebang {
    interpreter: OsString,
    argument: OsString,
}

impl Shebang {
    fn of(start: &[u8]) -> Option<Self> {
        let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?.trim_ascii();
        let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
        let (interpreter, argument) = line.split_at(end);
        let text = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        Some(Self { interpreter: text(interpreter), argument: text(argument.trim_ascii()) })
    }

    /// What `env NAME` or `env -S VARIABLE=value NAME argument…` starts; none where that takes more knowledge of `env`.
    fn by_env(&self) -> Option<OsString> {
        if Path::new(&self.interpreter).file_name() != Some(OsStr::new("env")) {
            return None;
        }
        let argument = self.argument.as_bytes();
        let words = argument.strip_prefix(b"-S").or_else(|| argument.strip_prefix(b"--split-string="));
        // Without -S the whole rest is one word.
        let name = match words {
            Some(words) => {
                words.split(u8::is_ascii_whitespace).find(|word| !word.is_empty() && !word.contains(&b'='))?
            }
            None => argument,
        };
        let is_plain = !name.is_empty() && !name.starts_with(b"-") && !name.iter().any(|byte| b"\"'\\$".contains(byte));
        is_plain.then(|| OsString::from_vec(name.to_vec()))
    }
}

/// Whether the loader will be there to load the shim into it.
fn check_linkage(program: &str, file: File) -> Result<(), ExecutableError> {
    let program = || program.to_string();
    let damaged = |_: object::Error| ExecutableError::Damaged { program: program() };
    let data = &ReadCache::new(file);
    if !is_64_bit_little_endian(data) {
        return Err(ExecutableError::OtherMachine { program: program() });
    }
    let header = FileHeader64::<LE>::parse(data).map_err(damaged)?;
    let endian = header.endian().map_err(damaged)?;
    if header.e_machine(endian) != EM_X86_64 {
        return Err(ExecutableError::OtherMachine { program: program() });
    }
    if !matches!(header.e_type(endian), ET_EXEC | ET_DYN) {
        return Err(ExecutableError::Damaged { program: program() });
    }
    let segments = header.program_headers(endian, data).map_err(damaged)?;
    let Some(loader) = segments.iter().find(|segment| segment.p_type(endian) == PT_INTERP) else {
        // The loader itself, given a program, preloads as ever.
        let is_loader = Path::new(&program()).file_name().is_some_and(|name| name.as_bytes().starts_with(b"ld-linux"));
        return if is_loader { Ok(()) } else { Err(ExecutableError::Static { program: program() }) };
    };
    let loader = loader.data(endian, data).map_err(|()| ExecutableError::Damaged { program: program() })?;
    let loader = OsStr::from_bytes(loader.split(|byte| *byte == 0).next().unwrap_or(loader));
    let name = loader.to_string_lossy().into_owned();
    if name.contains("ld-musl") {
        return Err(ExecutableError::Musl { program: program(), loader: name });
    }
    if !Path::new(loader).exists() {
        return Err(ExecutableError::NoLoader { program: program(), loader: name });
    }
    Ok(())
}

/// By the bytes of the file's identification, where 32-bit and big-endian files differ from what is read after it.
fn is_64_bit_little_endian<'data>(data: impl ReadRef<'data>) -> bool {
    const CLASS_AND_ORDER: (u64, u64) = (4, 2);
    const CLASS_64_LITTLE_ENDIAN: &[u8] = &[2, 1];
    data.read_bytes_at(CLASS_AND_ORDER.0, CLASS_AND_ORDER.1) == Ok(CLASS_64_LITTLE_ENDIAN)
}

/// Whether a process gets rights by executing the file; then the loader listens to nothing that the caller says.
fn gains_rights(file: &Path, metadata: &Metadata) -> Option<&'static str> {
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    let changes_identity = changes_identity(metadata, user.as_raw(), group.as_raw());
    let has_capabilities = !user.is_root() && rustix::fs::getxattr(file, CAPABILITIES, &mut [0_u8; 0][..]).is_ok();
    let how = changes_identity.or(has_capabilities.then_some("has capabilities of its own"))?;
    let heeded = rustix::fs::statvfs(file).map_or(true, |mount| !mount.f_flag.contains(StatVfsMountFlags::NOSUID));
    heeded.then_some(how)
}

fn changes_identity(metadata: &Metadata, user: u32, group: u32) -> Option<&'static str> {
    if metadata.mode() & SETUID == SETUID && metadata.uid() != user {
        return Some("is set-user-ID");
    }
    (metadata.mode() & SETGID == SETGID && metadata.gid() != group).then_some("is set-group-ID")
}

#[cfg(test)]
#[path = "executable_tests.rs"]
mod tests;
