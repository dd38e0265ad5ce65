//! Files that can be awaited.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A process that can be awaited: readable when it has ended.
pub(crate) fn of_process(pidfd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: owned by the result, and an `OwnedFd` is the same open file for as long as it lives.
    Ok(unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) }?)
}

/// A connection that can be awaited, and still be given to functions that know nothing of it. It does not block.
pub(crate) fn of_stream(stream: UnixStream) -> io::Result<AsyncFd<UnixStream>> {
    stream.set_nonblocking(true)?;
    // SAFETY: owned by the result, and a `UnixStream` is the same open file for as long as it lives.
    Ok(unsafe { AsyncFd::register_with_interest(stream, Interest::READABLE) }?)
}
