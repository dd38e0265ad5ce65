//! The daemon's sockets: nobody else can ever connect, and nothing that is not a socket of ours is removed for them.

use detshare_api::RuntimeFolder;
use rustix::fs::{AtFlags, CWD, FileType, Mode, chmod, statat};
use rustix::io::Errno;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub enum SocketsError {
    /// Something else lies at its place.
    #[error(
        "{} is not a socket of yours and is left as it is: remove it, or choose another folder with DETSHARE_DIR",
        .0.display()
    )]
    Foreign(PathBuf),
    /// The system refused.
    #[error("cannot {what} the socket {}: {source}", path.display())]
    Os {
        /// What was tried.
        what: &'static str,
        /// Which.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
}

/// A socket that listens, and whose file goes with it.
#[derive(Debug)]
pub(crate) struct Listening {
    /// Not blocking.
    pub(crate) listener: UnixListener,
    /// To be dropped when no new connections are wanted.
    pub(crate) file: SocketFile,
}

/// A socket's file; removed when this is dropped.
#[derive(Debug)]
pub(crate) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // A file that somebody has removed, or put something else in its place, is no concern of ours any more.
        _ = remove_ours(&self.0);
    }
}

/// The daemon's socket and the tenants', in this order. To be called with the lock, since a socket that is there is taken
/// for a dead daemon's.
pub(crate) fn bind(folder: &RuntimeFolder) -> Result<[Listening; 2], SocketsError> {
    Ok([bind_one(&folder.daemon_socket())?, bind_one(&folder.tenants_socket())?])
}

fn bind_one(path: &Path) -> Result<Listening, SocketsError> {
    let os = |what| move |source| SocketsError::Os { what, path: path.to_path_buf(), source };
    remove_ours(path)?;
    // Nobody else can reach it: the folder is closed to others, and so is what the daemon makes (`run.rs`).
    let listener = UnixListener::bind(path).map_err(os("make"))?;
    let file = SocketFile(path.to_path_buf());
    chmod(path, Mode::RUSR | Mode::WUSR).map_err(|source| os("close")(source.into()))?;
    listener.set_nonblocking(true).map_err(os("set up"))?;
    Ok(Listening { listener, file })
}

/// Removes a socket of ours, if there is one; refuses if there is anything else.
fn remove_ours(path: &Path) -> Result<(), SocketsError> {
    let os = |what, source: Errno| SocketsError::Os { what, path: path.to_path_buf(), source: source.into() };
    let found = match statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => found,
        Err(Errno::NOENT) => return Ok(()),
        Err(source) => return Err(os("look at", source)),
    };
    let is_socket = FileType::from_raw_mode(found.st_mode) == FileType::Socket;
    if !is_socket || found.st_uid != rustix::process::geteuid().as_raw() {
        return Err(SocketsError::Foreign(path.to_path_buf()));
    }
    rustix::fs::unlink(path).map_err(|source| os("remove", source))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixStream;

    #[test]
    fn sockets_are_private_and_go_with_the_daemon() {
        let place = tempfile::tempdir().unwrap();
        let folder = RuntimeFolder::make(&place.path().join("run")).unwrap();
        drop(UnixListener::bind(folder.daemon_socket()).unwrap());
        let both = bind(&folder).expect("one that was left is replaced");
        for path in [folder.daemon_socket(), folder.tenants_socket()] {
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
            UnixStream::connect(&path).unwrap();
        }
        drop(both);
        assert!(!folder.daemon_socket().exists() && !folder.tenants_socket().exists());
    }

    #[test]
    fn what_is_not_ours_stays() {
        let place = tempfile::tempdir().unwrap();
        let folder = RuntimeFolder::make(&place.path().join("run")).unwrap();
        let elsewhere = place.path().join("elsewhere.sock");
        let _listener = UnixListener::bind(&elsewhere).unwrap();
        symlink(&elsewhere, folder.tenants_socket()).unwrap();
        assert!(matches!(bind(&folder), Err(SocketsError::Foreign(path)) if path == folder.tenants_socket()));
        assert!(elsewhere.exists() && folder.tenants_socket().is_symlink());
        assert!(!folder.daemon_socket().exists(), "the first is not left behind");
        std::fs::write(folder.daemon_socket(), "content").unwrap();
        assert!(matches!(bind(&folder), Err(SocketsError::Foreign(_))));
        assert_eq!(std::fs::read_to_string(folder.daemon_socket()).unwrap(), "content");
    }
}
