//! Telling whoever started us that we are ready: systemd, or the command line.

use rustix::fd::{FromRawFd, OwnedFd, RawFd};
use rustix::fs::OFlags;
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use sd_notify::NotifyState;
use std::fs::File;
use std::io::Write;
use std::time::Duration;

/// Names the file descriptor that gets one byte when the daemon is ready. It is closed then, or when the daemon ends
/// before.
pub const FD_VARIABLE: &str = "DETSHARE_READY_FD";

/// Whoever waits for us.
#[derive(Debug, Default)]
pub struct Waiting(Option<File>);

impl Waiting {
    /// Takes over the descriptor that the environment names.
    ///
    /// # Safety
    /// Nothing else in this process uses the descriptor that [`FD_VARIABLE`] names: to be called once, at the start.
    #[must_use]
    pub unsafe fn from_environment() -> Self {
        let named = std::env::var(FD_VARIABLE).ok().and_then(|number| number.parse::<RawFd>().ok());
        // The standard ones are not given away.
        let Some(number) = named.filter(|number| *number > 2) else { return Self(None) };
        // SAFETY: only asked whether it is open, which is harmless for any number but -1, which this is not.
        let borrowed = unsafe { rustix::fd::BorrowedFd::borrow_raw(number) };
        if fcntl_getfd(borrowed).is_err() {
            return Self(None);
        }
        // Programs that we start must not keep it open.
        _ = fcntl_setfd(borrowed, FdFlags::CLOEXEC);
        // Somebody who does not read must not hold us up.
        _ = rustix::fs::fcntl_getfl(borrowed)
            .and_then(|flags| rustix::fs::fcntl_setfl(borrowed, flags | OFlags::NONBLOCK));
        // SAFETY: open, and the caller says that nothing else uses it.
        Self(Some(File::from(unsafe { OwnedFd::from_raw_fd(number) })))
    }

    /// Says that we are.
    pub fn ready(self, status: &str) {
        if let Some(mut file) = self.0 {
            // Whoever has gone need not be told.
            _ = file.write_all(b"\n");
        }
        notify(&[NotifyState::Ready, NotifyState::Status(status)]);
    }
}

/// Says that we are about to end.
pub fn stopping() {
    notify(&[NotifyState::Stopping]);
}

/// How often systemd wants to hear from us, if it does; half of that is soon enough.
#[must_use]
pub fn watchdog() -> Option<Duration> {
    sd_notify::watchdog_enabled()
}

/// Says that we are alive.
pub fn alive(status: &str) {
    notify(&[NotifyState::Watchdog, NotifyState::Status(status)]);
}

fn notify(states: &[NotifyState<'_>]) {
    // Not started by systemd: then there is nobody to tell, and that is no error.
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the service manager could not be told");
    }
}
