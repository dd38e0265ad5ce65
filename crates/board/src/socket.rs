//! Handing out files over a Unix socket.

use core::mem::MaybeUninit;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use std::os::unix::net::UnixStream;

/// Files in one message: a group for every slot, and the daemon's.
pub const MOST_FILES: usize = crate::layout::SLOTS + 1;

/// Why files could not be handed over.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The kernel refused.
    #[error("cannot {what} the board's files: {source}")]
    Os {
        /// What was tried.
        what: &'static str,
        /// The kernel's answer.
        source: Errno,
    },
    /// Files travel with bytes.
    #[error("a message with files needs a byte at least")]
    Empty,
    /// More than fit a message.
    #[error("a message carries at most {MOST_FILES} files")]
    TooMany,
    /// The other end has closed the socket.
    #[error("the other end has closed the socket")]
    Closed,
}

/// Sends bytes and files as one message.
pub fn send_fds(stream: &UnixStream, bytes: &[u8], files: &[BorrowedFd<'_>]) -> Result<(), SocketError> {
    if bytes.is_empty() {
        return Err(SocketError::Empty);
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
    let mut left = bytes;
    let mut files = files;
    while !left.is_empty() {
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() && (files.len() > MOST_FILES || !control.push(SendAncillaryMessage::ScmRights(files))) {
            return Err(SocketError::TooMany);
        }
        match sendmsg(stream, &[IoSlice::new(left)], &mut control, SendFlags::NOSIGNAL) {
            Ok(sent) => {
                // They went with the first byte.
                left = &left[sent..];
                files = &[];
            }
            Err(Errno::INTR) => {}
            Err(Errno::PIPE | Errno::CONNRESET) => return Err(SocketError::Closed),
            Err(source) => return Err(SocketError::Os { what: "send", source }),
        }
    }
    Ok(())
}

/// What came in one go.
#[derive(Debug)]
pub struct Received {
    /// How many bytes.
    pub bytes: usize,
    /// The files that came with them; not inherited by programs that this one starts.
    pub files: Vec<OwnedFd>,
}

/// Receives what is there, waiting for a byte at least. Bytes that were sent later with other files do not come along;
/// a long message may come in parts, its files with the first.
pub fn receive_fds(stream: &UnixStream, bytes: &mut [u8]) -> Result<Received, SocketError> {
    if bytes.is_empty() {
        return Err(SocketError::Empty);
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = loop {
        match recvmsg(stream, &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) => return Err(SocketError::Closed),
            Err(source) => return Err(SocketError::Os { what: "receive", source }),
            Ok(message) => break message,
        }
    };
    let mut files = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            files.extend(received);
        }
    }
    if message.flags.contains(ReturnFlags::CTRUNC) {
        return Err(SocketError::TooMany);
    }
    if message.bytes == 0 {
        return Err(SocketError::Closed);
    }
    Ok(Received { bytes: message.bytes, files })
}
