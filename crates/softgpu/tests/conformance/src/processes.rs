//! A test in two processes, each with the driver for itself.

use crate::Outcome;
use crate::call::Skipped;
use anyhow::{Context, Result, ensure};
use core::ffi::c_int;
use detshare_cuda::Driver;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;

/// Bytes of a message that carries a file.
const ONE_FILE: u32 = 4;

/// What one process has of the other.
pub(crate) struct Other(UnixStream);

impl Other {
    /// Tells the other to go on.
    pub(crate) fn say(&mut self) -> Outcome {
        self.send(&[1])
    }

    /// Waits until it is told to go on.
    pub(crate) fn hear(&mut self) -> Outcome {
        self.receive::<1>().map(|_| ())
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> Outcome {
        self.0.write_all(bytes).context("the other process is gone")
    }

    pub(crate) fn receive<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes).context("the other process is gone")?;
        Ok(bytes)
    }

    /// Has the other process have this file, too.
    pub(crate) fn send_file(&mut self, file: RawFd) -> Outcome {
        self.with_file(file, |socket, message| {
            // SAFETY: a whole message with room for one file.
            unsafe { libc::sendmsg(socket, message, 0) }
        })
        .map(|_| ())
    }

    pub(crate) fn receive_file(&mut self) -> Result<RawFd> {
        self.with_file(-1, |socket, message| {
            // SAFETY: a whole message with room for one file.
            unsafe { libc::recvmsg(socket, message, libc::MSG_CMSG_CLOEXEC) }
        })
    }

    fn with_file(&mut self, file: RawFd, act: impl Fn(RawFd, *mut libc::msghdr) -> isize) -> Result<RawFd> {
        let mut byte = 1_u8;
        let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        // Room for one file, aligned as its header must be.
        let mut room = [0_u64; 4];
        // SAFETY: plain values throughout, where zero means none.
        let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        // SAFETY: computes a number.
        message.msg_controllen = unsafe { libc::CMSG_SPACE(ONE_FILE) } as usize;
        message.msg_control = room.as_mut_ptr().cast();
        // SAFETY: the message has room for a header.
        let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
        // SAFETY: within the room above.
        let data = unsafe { libc::CMSG_DATA(header) }.cast::<c_int>();
        // SAFETY: computes a number.
        let length = unsafe { libc::CMSG_LEN(ONE_FILE) } as usize;
        let filled = libc::cmsghdr { cmsg_len: length, cmsg_level: libc::SOL_SOCKET, cmsg_type: libc::SCM_RIGHTS };
        // SAFETY: within the room above.
        unsafe { header.write(filled) };
        // SAFETY: within the room above.
        unsafe { data.write_unaligned(file) };
        ensure!(act(self.0.as_raw_fd(), &raw mut message) == 1, "no file goes from one process to the other");
        // SAFETY: within the room above.
        Ok(unsafe { data.read_unaligned() })
    }
}

/// Runs the second function in a process that is forked before the driver is initialised; both must succeed.
pub(crate) fn in_two_processes(
    driver: &Driver,
    first: impl FnOnce(&Driver, Other) -> Outcome,
    second: impl FnOnce(&Driver, Other) -> Outcome,
) -> Outcome {
    let (ours, theirs) = UnixStream::pair().context("no way to talk to another process")?;
    let (mut verdict, report) = std::io::pipe().context("no pipe")?;
    // SAFETY: this process has one thread, so the child may go on as if nothing had happened.
    let child = unsafe { libc::fork() };
    ensure!(child >= 0, "no process");
    if child == 0 {
        drop((ours, verdict));
        let words = match second(driver, Other(theirs)) {
            Ok(()) => String::new(),
            Err(error) => format!("{error:#}"),
        };
        // Who is gone cannot be told.
        let _ = (&report).write_all(words.as_bytes());
        // SAFETY: ends the process at once: what is left of the test is the parent's.
        unsafe { libc::_exit(0) };
    }
    drop((theirs, report));
    let outcome = first(driver, Other(ours));
    let mut words = String::new();
    verdict.read_to_string(&mut words).context("the other process is gone")?;
    let status = detshare_test_child::wait_for(child).context("the other process is lost")?;
    match outcome {
        Err(error) if error.is::<Skipped>() || words.is_empty() => return Err(error),
        Err(error) => return Err(error.context(format!("in the other process: {words}"))),
        Ok(()) => {}
    }
    ensure!(words.is_empty(), "in the other process: {words}");
    ensure!(status == 0, "the other process ended with {status}");
    Ok(())
}
