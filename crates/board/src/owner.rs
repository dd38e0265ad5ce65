//! Who is at the other end of a socket, and whether that process still lives.

use core::mem::MaybeUninit;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::os::unix::net::UnixStream;

/// `SO_PEERPIDFD`, since Linux 6.5: the process that connected, even if its pid has been used again.
const SO_PEERPIDFD: libc::c_int = 77;

/// Who made the other end of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its process.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
}

/// Why nobody could be made out.
#[derive(Debug, thiserror::Error)]
pub enum OwnerError {
    /// The kernel refused a step.
    #[error("cannot {what}: {source}")]
    Os {
        /// What was tried.
        what: &'static str,
        /// The kernel's answer.
        source: Errno,
    },
    /// It is not a process of this pid namespace, nor of one below.
    #[error("it has no pid here: start the daemon outside of the tenant's container, or in its pid namespace")]
    NotVisible,
    /// It has ended meanwhile.
    #[error("process {pid} has ended")]
    Dead {
        /// Which.
        pid: u32,
    },
}

fn os(what: &'static str) -> impl FnOnce(Errno) -> OwnerError {
    move |source| OwnerError::Os { what, source }
}

/// Who made the other end of this socket, as the kernel noted it then.
pub fn peer(stream: &UnixStream) -> Result<Peer, OwnerError> {
    let libc::ucred { pid, uid, .. } = credentials(stream)?;
    match u32::try_from(pid) {
        Ok(pid) if pid != 0 => Ok(Peer { pid, uid }),
        _ => Err(OwnerError::NotVisible),
    }
}

/// Whose process that is. In a container, processes outside of it have a user but no pid.
pub fn user_of_peer(stream: &UnixStream) -> Result<u32, OwnerError> {
    Ok(credentials(stream)?.uid)
}

fn credentials(stream: &UnixStream) -> Result<libc::ucred, OwnerError> {
    let none = libc::ucred { pid: 0, uid: libc::uid_t::MAX, gid: libc::gid_t::MAX };
    // SAFETY: SO_PEERCRED writes a `ucred`.
    unsafe { option(stream, libc::SO_PEERCRED, none) }.map_err(os("ask who the peer is"))
}

/// A process that something belongs to. It is held by a pidfd: another process with the same pid is not taken for it.
#[derive(Debug)]
pub struct Owner {
    process: OwnedFd,
    pid: u32,
    start_time: u64,
}

impl Owner {
    /// The process that made the other end of this socket.
    pub fn of_peer(stream: &UnixStream) -> Result<Self, OwnerError> {
        let pid = peer(stream)?.pid;
        // SAFETY: SO_PEERPIDFD writes a file descriptor.
        match unsafe { option(stream, SO_PEERPIDFD, -1) } {
            // SAFETY: just opened for us, and nobody else has it.
            Ok(process) => Self::new(unsafe { OwnedFd::from_raw_fd(process) }, pid),
            Err(Errno::SRCH) => Err(OwnerError::Dead { pid }),
            // An older kernel. If the peer has ended by now and its pid was used again, its slot is taken back when that
            // process ends.
            Err(_) => Self::of_process(pid),
        }
    }

    /// The process that has this pid now.
    pub fn of_process(pid: u32) -> Result<Self, OwnerError> {
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(OwnerError::NotVisible)?;
        match pidfd_open(number, PidfdFlags::empty()) {
            Ok(process) => Self::new(process, pid),
            Err(Errno::SRCH) => Err(OwnerError::Dead { pid }),
            Err(source) => Err(os("open a pidfd")(source)),
        }
    }

    fn new(process: OwnedFd, pid: u32) -> Result<Self, OwnerError> {
        let mut owner = Self { process, pid, start_time: 0 };
        let start_time = start_time(pid);
        // Looked at afterwards: while it lives, its pid is its own.
        match start_time {
            Some(start_time) if !owner.is_dead() => owner.start_time = start_time,
            _ => return Err(OwnerError::Dead { pid }),
        }
        Ok(owner)
    }

    /// Its pid.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// When it was started, in the kernel's ticks since boot.
    #[must_use]
    pub const fn start_time(&self) -> u64 {
        self.start_time
    }

    /// Whether it has ended, waited for by its parent or not. If the kernel will not say, it lives.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut process = [PollFd::new(&self.process, PollFlags::IN)];
        loop {
            match poll(&mut process, Some(&now)) {
                Err(Errno::INTR) => {}
                Err(_) => return false,
                Ok(_) => return process[0].revents().intersects(PollFlags::IN | PollFlags::HUP),
            }
        }
    }
}

impl AsFd for Owner {
    /// Readable when the process has ended: to be polled with others.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }
}

/// The 22nd field of `/proc/PID/stat`, counted after the name, which may hold anything.
fn start_time(pid: u32) -> Option<u64> {
    const AFTER_NAME: usize = 22 - 3;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(AFTER_NAME)?.parse().ok()
}

/// A socket option.
///
/// # Safety
/// The option's value is a `T`, and any bytes are one.
unsafe fn option<T: Copy>(stream: &UnixStream, name: libc::c_int, initial: T) -> Result<T, Errno> {
    let mut value = MaybeUninit::new(initial);
    let mut length = libc::socklen_t::try_from(size_of::<T>()).map_err(|_| Errno::INVAL)?;
    let place = value.as_mut_ptr().cast();
    // SAFETY: writes at most `length` bytes to `place`, which has as many.
    let answer = unsafe { libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, name, place, &raw mut length) };
    if answer != 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    // SAFETY: initialised above, and any bytes are a `T`.
    Ok(unsafe { value.assume_init() })
}
