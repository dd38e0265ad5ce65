//! A tenant's connection, from its first word to its end.

use crate::readiness;
use crate::registry::{Applicant, Connection};
use crate::service::{Leaving, Service};
use detshare_board::join::{Hello, JoinError, Refusal, Welcome};
use detshare_board::{Owner, OwnerError, SocketError, peer, receive_fds};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// How long a tenant may take to say hello.
const HELLO_LIMIT: Duration = Duration::from_secs(2);
/// Connections at a time, those that have not said hello among them.
const MOST_CONNECTIONS: usize = 256;
/// How long we wait after the system had no room for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why somebody who connected is not attended to.
#[derive(Debug, thiserror::Error)]
enum Turned {
    #[error("it has not said hello within {HELLO_LIMIT:?}")]
    Silent,
    #[error(transparent)]
    Garbled(#[from] JoinError),
    #[error("it cannot be made out who it is: {0}")]
    Unknown(#[from] OwnerError),
    #[error("its connection cannot be watched: {0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Refused(#[from] crate::registry::JoinRefused),
}

impl Turned {
    /// What it is told.
    const fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::Refused(refused) => refused.refusal(),
            Self::Silent | Self::Garbled(_) | Self::Unknown(_) | Self::Io(_) => Some(Refusal::Unknown),
        }
    }
}

/// Takes connections for as long as it is polled.
pub(crate) async fn accept(service: Arc<Service>, listener: UnixListener) {
    let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let stream = match listener.accept().await.and_then(|(stream, _)| stream.into_std()) {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, "a tenant's connection could not be taken");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&room).try_acquire_owned() else {
            service.note_refused(None, &"there are too many connections");
            continue;
        };
        match peer(&stream) {
            Ok(peer) if peer.uid == rustix::process::geteuid().as_raw() => {
                let service = Arc::clone(&service);
                tokio::spawn(async move {
                    attend(&service, stream, peer.pid).await;
                    drop(permit);
                });
            }
            Ok(peer) => service.note_refused(Some(peer.pid), &format_args!("it is user {}'s", peer.uid)),
            Err(error) => service.note_refused(None, &error),
        }
    }
}

async fn attend(service: &Service, stream: UnixStream, pid: u32) {
    let connection: Connection = match readiness::of_stream(stream) {
        Ok(connection) => Arc::new(connection),
        Err(error) => return service.note_refused(Some(pid), &Turned::Io(error)),
    };
    if let Err(turned) = stay(service, &connection).await {
        if let Turned::Garbled(JoinError::Socket(SocketError::Closed)) = turned {
            // Somebody looked whether we are here, or has ended before it said anything.
            return tracing::debug!(pid, "gone without a word");
        }
        service.note_refused(Some(pid), &turned);
        if let Some(refusal) = turned.refusal() {
            // It may have gone; then it need not know.
            _ = Welcome::Refused(refusal).send(connection.get_ref(), service.board().file());
        }
    }
}

async fn stay(service: &Service, connection: &Connection) -> Result<(), Turned> {
    let (hello, page) = timeout(HELLO_LIMIT, hear(connection)).await.map_err(|_| Turned::Silent)??;
    let owner = Owner::of_peer(connection.get_ref())?;
    let pid = owner.pid();
    let process = readiness::of_process(owner.as_fd().try_clone_to_owned()?)?;
    let joined = service.join(Applicant { hello, page, owner, connection: Arc::clone(connection) })?;
    let leaving = tokio::select! {
        _ = process.readable() => Leaving::Ended,
        leaving = until_closed(connection, pid) => leaving,
        // It has been forgotten already.
        _ = joined.sent_away => return Ok(()),
        never = service.find_out_about_mps(joined.stay, pid) => match never {},
    };
    service.leave(joined.stay, leaving);
    Ok(())
}

/// The first word. It is sent in one go, so it is there as a whole or it is none of ours.
async fn hear(connection: &Connection) -> Result<(Hello, OwnedFd), Turned> {
    let _ready = connection.readable().await?;
    Ok(Hello::receive(connection.get_ref())?)
}

/// Nothing more is to be heard of a tenant but the end.
async fn until_closed(connection: &Connection, pid: u32) -> Leaving {
    loop {
        let Ok(mut ready) = connection.readable().await else { return Leaving::Closed };
        match receive_fds(connection.get_ref(), &mut [0]) {
            Err(SocketError::Os { source, .. }) if source == rustix::io::Errno::AGAIN => ready.clear_ready(),
            Ok(_) => return Leaving::SpokeUp,
            Err(_) => return if is_ending(pid) { Leaving::Ended } else { Leaving::Closed },
        }
    }
}

/// Whether the process has ended or is about to: its connections are closed a little before its end can be seen.
fn is_ending(pid: u32) -> bool {
    /// `PF_EXITING` of the kernel's flags, and the place of those behind the name in `/proc/PID/stat`.
    const EXITING: u64 = 4;
    const FLAGS_AFTER_NAME: usize = 9 - 3;
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    let flags = stat.rsplit_once(')').and_then(|(_, fields)| fields.split_ascii_whitespace().nth(FLAGS_AFTER_NAME));
    flags.and_then(|flags| flags.parse::<u64>().ok()).is_none_or(|flags| flags & EXITING != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_living_are_not_ending() {
        assert!(!is_ending(std::process::id()));
        assert!(is_ending(u32::MAX));
    }
}
