//! One daemon in a folder: the lock that it has for life.

use detshare_api::RuntimeFolder;
use rustix::fs::{FileType, FlockOperation, Mode, OFlags, flock, fstat, ftruncate, open};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;

/// Digits of the largest pid, and then some.
const LONGEST_PID: u64 = 32;

/// Why the folder is not ours.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another daemon has it.
    #[error("a daemon runs already{}; use `detshare status` or `detshare down`", .pid.map_or_else(String::new, |pid| format!(" (pid {pid})")))]
    Taken {
        /// Its process, if it wrote that down.
        pid: Option<u32>,
    },
    /// Something else lies at its place.
    #[error("{} is not a file of yours: remove it, or choose another folder with DETSHARE_DIR", .0.display())]
    NotOurs(PathBuf),
    /// The system refused.
    #[error("cannot {what} {}: {source}", path.display())]
    Os {
        /// What was tried.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// The system's answer.
        source: Errno,
    },
}

/// Held until it is dropped, or the process ends however it does. The file stays: removing it would let two daemons each
/// lock a file of that name.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

impl Lock {
    /// Takes it, and writes our pid into it.
    pub(crate) fn take(folder: &RuntimeFolder) -> Result<Self, LockError> {
        let path = folder.lock();
        let os = |what| {
            let path = path.clone();
            move |source| LockError::Os { what, path, source }
        };
        // Not blocking: somebody may have put a pipe there.
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = open(&path, flags, Mode::RUSR | Mode::WUSR).map_err(|error| match error {
            Errno::LOOP | Errno::ISDIR | Errno::NXIO => LockError::NotOurs(path.clone()),
            source => os("open")(source),
        })?;
        let found = fstat(&file).map_err(os("look at"))?;
        let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
        if !is_file || found.st_uid != rustix::process::geteuid().as_raw() {
            return Err(LockError::NotOurs(path));
        }
        let mut file = File::from(file);
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(LockError::Taken { pid: pid_in(&file) }),
            Err(source) => return Err(os("lock")(source)),
        }
        ftruncate(&file, 0).map_err(os("write"))?;
        let written = writeln!(file, "{}", std::process::id());
        written.map_err(|error| os("write")(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
        Ok(Self { file })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A pid that is no daemon's any more would mislead; that it stays misleads nobody but readers.
        _ = ftruncate(&self.file, 0);
    }
}

fn pid_in(file: &File) -> Option<u32> {
    let mut text = String::new();
    file.take(LONGEST_PID).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn one_at_a_time() {
        let place = tempfile::tempdir().unwrap();
        let folder = RuntimeFolder::make(&place.path().join("run")).unwrap();
        let lock = Lock::take(&folder).unwrap();
        let second = Lock::take(&folder).unwrap_err();
        assert!(matches!(second, LockError::Taken { pid } if pid == Some(std::process::id())));
        assert!(second.to_string().contains("detshare down"), "{second}");
        drop(lock);
        Lock::take(&folder).unwrap();
    }

    #[test]
    fn a_link_is_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let folder = RuntimeFolder::make(&place.path().join("run")).unwrap();
        let target = place.path().join("precious");
        std::fs::write(&target, "content").unwrap();
        symlink(&target, folder.lock()).unwrap();
        assert!(matches!(Lock::take(&folder), Err(LockError::NotOurs(_))));
        assert_eq!(std::fs::read_to_string(target).unwrap(), "content");
    }
}
