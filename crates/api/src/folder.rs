//! The runtime folder: private to its user, and where the sockets are.

use rustix::fs::{Mode, OFlags, Stat, fstat, mkdir, open};
use rustix::io::Errno;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Only its user may list, enter or change it.
const PRIVATE: Mode = Mode::RWXU;
/// A Unix socket's address has 108 bytes; the last is 0.
const LONGEST_ADDRESS: usize = 107;

const DAEMON_SOCKET: &str = "daemon.sock";
const TENANTS_SOCKET: &str = "tenants.sock";
const LOCK: &str = "lock";
const LOG: &str = "detshared.log";
const MPS: &str = "mps";

/// Why a runtime folder is not used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// It is not there.
    #[error("{} does not exist: no daemon has run there; start one with `detshare up`", .0.display())]
    Missing(PathBuf),
    /// A link could lead anywhere.
    #[error(
        "{} is a symbolic link or no directory: remove it, or choose another folder with DETSHARE_DIR",
        .0.display()
    )]
    NotADirectory(PathBuf),
    /// Another user made it.
    #[error(
        "{} belongs to user {owner}, not to you (user {user}): choose another folder with DETSHARE_DIR",
        folder.display()
    )]
    Foreign {
        /// The folder.
        folder: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who asks.
        user: u32,
    },
    /// Others can enter it.
    #[error("{} is open to others (mode {mode:04o}): run `chmod 700` on it", folder.display())]
    Open {
        /// The folder.
        folder: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// Sockets in it would have no address.
    #[error(
        "the path {} is too long for a socket in it ({LONGEST_ADDRESS} bytes in all): choose a shorter one with \
         DETSHARE_DIR",
        .0.display()
    )]
    TooLong(PathBuf),
    /// The system refused.
    #[error("cannot {what} {}: {source}", folder.display())]
    Os {
        /// What was tried.
        what: &'static str,
        /// The folder.
        folder: PathBuf,
        /// The system's answer.
        source: Errno,
    },
}

impl FolderError {
    /// Whether it is a question of whose it is and who may enter.
    #[must_use]
    pub const fn is_about_permissions(&self) -> bool {
        match self {
            Self::NotADirectory(_) | Self::Foreign { .. } | Self::Open { .. } => true,
            Self::Os { source, .. } => matches!(*source, Errno::ACCESS | Errno::PERM),
            Self::Missing(_) | Self::TooLong(_) => false,
        }
    }
}

/// A folder that was found to be ours and closed to others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeFolder(PathBuf);

impl RuntimeFolder {
    /// One that is there.
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        if path.as_os_str().as_bytes().len() + "/".len() + TENANTS_SOCKET.len() > LONGEST_ADDRESS {
            return Err(FolderError::TooLong(path.to_path_buf()));
        }
        check(path)?;
        Ok(Self(path.to_path_buf()))
    }

    /// As [`RuntimeFolder::open`]; makes it, but not the folders above it, if it is not there.
    pub fn make(path: &Path) -> Result<Self, FolderError> {
        match mkdir(path, PRIVATE) {
            Ok(()) | Err(Errno::EXIST) => Self::open(path),
            Err(source) => Err(FolderError::Os { what: "make the folder", folder: path.to_path_buf(), source }),
        }
    }

    /// Where it is; absolute if it was opened by an absolute path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The socket of the HTTP interface.
    #[must_use]
    pub fn daemon_socket(&self) -> PathBuf {
        self.0.join(DAEMON_SOCKET)
    }

    /// The socket that tenants join by.
    #[must_use]
    pub fn tenants_socket(&self) -> PathBuf {
        self.0.join(TENANTS_SOCKET)
    }

    /// Locked by the daemon for its life; holds its pid.
    #[must_use]
    pub fn lock(&self) -> PathBuf {
        self.0.join(LOCK)
    }

    /// Where the daemon's log goes if the command line started it.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.0.join(LOG)
    }

    /// Where MPS has its pipes and logs.
    #[must_use]
    pub fn mps(&self) -> PathBuf {
        self.0.join(MPS)
    }
}

fn check(path: &Path) -> Result<(), FolderError> {
    let folder = || path.to_path_buf();
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    // Opened and then looked at: both are of one folder, whatever is put at its path meanwhile.
    let opened = open(path, flags, Mode::empty()).map_err(|error| match error {
        Errno::NOENT => FolderError::Missing(folder()),
        Errno::LOOP | Errno::NOTDIR => FolderError::NotADirectory(folder()),
        source => FolderError::Os { what: "open", folder: folder(), source },
    })?;
    let found: Stat = fstat(&opened).map_err(|source| FolderError::Os { what: "look at", folder: folder(), source })?;
    let user = rustix::process::geteuid().as_raw();
    if found.st_uid != user {
        return Err(FolderError::Foreign { folder: folder(), owner: found.st_uid, user });
    }
    let mode = Mode::from_raw_mode(found.st_mode);
    if mode.intersects(Mode::RWXG | Mode::RWXO) {
        return Err(FolderError::Open { folder: folder(), mode: mode.as_raw_mode() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_new_folder_is_private() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("detshare");
        assert!(matches!(RuntimeFolder::open(&path), Err(FolderError::Missing(_))));
        let folder = RuntimeFolder::make(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(RuntimeFolder::make(&path).unwrap(), folder, "it may be there already");
        assert_eq!(folder.daemon_socket(), path.join("daemon.sock"));
    }

    #[test]
    fn one_that_others_can_enter_is_refused() {
        let place = tempfile::tempdir().unwrap();
        for mode in [0o750, 0o701, 0o777] {
            fs::set_permissions(place.path(), Permissions::from_mode(mode)).unwrap();
            let refused = RuntimeFolder::make(place.path()).unwrap_err();
            assert!(matches!(refused, FolderError::Open { mode: found, .. } if found == mode), "{refused}");
            assert!(refused.is_about_permissions());
        }
    }

    #[test]
    fn links_and_files_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let (real, link, file) = (place.path().join("real"), place.path().join("link"), place.path().join("file"));
        RuntimeFolder::make(&real).unwrap();
        symlink(&real, &link).unwrap();
        fs::write(&file, "").unwrap();
        for path in [link, file] {
            assert!(matches!(RuntimeFolder::make(&path), Err(FolderError::NotADirectory(_))), "{}", path.display());
        }
    }

    #[test]
    fn a_path_must_leave_room_for_the_socket() {
        let long = PathBuf::from(format!("/tmp/{}", "x".repeat(LONGEST_ADDRESS)));
        assert!(matches!(RuntimeFolder::open(&long), Err(FolderError::TooLong(_))));
    }
}
