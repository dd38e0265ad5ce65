//! The end of a forked child that ran a test: waiting for it, and saying how it came about.
//!
//! What a child reports, and how, is the runner's own business.

use std::io::{Error, ErrorKind};

/// The status that the child ended with.
///
/// # Errors
/// The process is no child of this one, or was waited for already.
pub fn wait_for(process: libc::pid_t) -> std::io::Result<libc::c_int> {
    let mut status = 0;
    loop {
        // SAFETY: a place for the status; a process that is no child is answered with an error.
        if unsafe { libc::waitpid(process, &raw mut status, 0) } == process {
            return Ok(status);
        }
        let error = Error::last_os_error();
        if error.kind() != ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Seconds after which something hangs that takes so many at most on a machine with nothing else to do. Where that is not so, the
/// environment has `DETSHARE_HANGS_AFTER_S`.
#[must_use]
pub fn patience(seconds: u32) -> u32 {
    let told = std::env::var("DETSHARE_HANGS_AFTER_S").ok().and_then(|told| told.parse().ok());
    told.map_or(seconds, |told: u32| told.max(seconds))
}

/// Ends this process with the signal that [`ending`] takes for "not done", unless it is done before.
pub fn limit(seconds: u32) {
    // SAFETY: takes a number. The signal's default action ends the process.
    unsafe { libc::alarm(seconds) };
}

/// How a child ended that did not say so itself, having had that many seconds.
#[must_use]
pub fn ending(status: libc::c_int, limit: u32) -> String {
    if !libc::WIFSIGNALED(status) {
        return format!("ended the process with code {}", libc::WEXITSTATUS(status));
    }
    match libc::WTERMSIG(status) {
        libc::SIGALRM => format!("not done after {limit} s"),
        signal => format!("died of signal {signal}"),
    }
}
