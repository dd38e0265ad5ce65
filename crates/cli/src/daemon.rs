//! Reaching the daemon of the user's runtime folder.

use crate::exit;
use detshare_api::{Client, ClientError, FolderError, RuntimeFolder, places};
use std::path::PathBuf;

/// Why the daemon was not asked, or gave no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DaemonError {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// The first HTTP status that blames the server.
const SERVER_ERRORS: u16 = 500;

impl DaemonError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Folder(error) if error.is_about_permissions() => exit::PERMISSION,
            Self::Folder(FolderError::Missing(_)) => exit::UNAVAILABLE,
            Self::Folder(FolderError::TooLong(_)) => exit::USAGE,
            Self::Folder(_) => exit::SYSTEM,
            Self::Client(ClientError::NotRunning(_) | ClientError::TimedOut(_) | ClientError::Broken { .. }) => {
                exit::UNAVAILABLE
            }
            Self::Client(ClientError::NotOurs(_)) => exit::PERMISSION,
            Self::Client(ClientError::Nonsense(_)) => exit::NONSENSE,
            Self::Client(ClientError::Refused { status, .. }) if *status >= SERVER_ERRORS => exit::SYSTEM,
            Self::Client(ClientError::Refused { .. }) => exit::USAGE,
        }
    }

    /// Whether there is no daemon, which can be helped by starting one.
    pub(crate) fn is_absence(&self) -> bool {
        matches!(self, Self::Folder(FolderError::Missing(_)) | Self::Client(ClientError::NotRunning(_)))
    }
}

/// Where the daemon is looked for.
pub(crate) fn folder() -> PathBuf {
    places::runtime_folder(None)
}

/// Ready to ask it; whether it is there shows at the first question.
pub(crate) fn client() -> Result<Client, DaemonError> {
    Ok(Client::new(&RuntimeFolder::open(&folder())?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_user_asked_wrongly_is_bad_usage() {
        let refused = |status| {
            DaemonError::from(ClientError::Refused { status, error: "no tenant x".to_string(), hint: None }).exit_code()
        };
        assert_eq!((refused(404), refused(422), refused(500)), (exit::USAGE, exit::USAGE, exit::SYSTEM));
    }

    #[test]
    fn no_folder_and_no_listener_are_both_no_daemon() {
        for error in [
            DaemonError::from(FolderError::Missing("/run/x".into())),
            DaemonError::from(ClientError::NotRunning("/run/x".into())),
        ] {
            assert!(error.is_absence());
            assert_eq!(error.exit_code(), exit::UNAVAILABLE);
        }
        let foreign = DaemonError::from(FolderError::Foreign { folder: "/run/x".into(), owner: 1, user: 2 });
        assert!(!foreign.is_absence());
        assert_eq!(foreign.exit_code(), exit::PERMISSION);
    }
}
