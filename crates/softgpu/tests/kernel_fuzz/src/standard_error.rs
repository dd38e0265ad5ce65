//! What a driver writes to standard error: the software GPU names there what it does not support.

use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::{Error, Read, Seek, SeekFrom};
use std::os::fd::FromRawFd;
use std::sync::Mutex;

/// A file in memory in place of standard error.
pub(crate) struct StandardError(Mutex<File>);

impl StandardError {
    /// From now on everything goes there.
    pub(crate) fn catch() -> Result<Self> {
        // SAFETY: a name with a NUL behind it.
        let descriptor = unsafe { libc::memfd_create(c"complaints".as_ptr(), libc::MFD_CLOEXEC) };
        if descriptor < 0 {
            return Err(Error::last_os_error()).context("no memory for standard error");
        }
        // SAFETY: two descriptors that are open.
        if unsafe { libc::dup2(descriptor, libc::STDERR_FILENO) } < 0 {
            bail!("standard error cannot be caught: {}", Error::last_os_error());
        }
        // SAFETY: a new descriptor that nobody else owns.
        Ok(Self(Mutex::new(unsafe { File::from_raw_fd(descriptor) })))
    }

    /// The last line that was written.
    pub(crate) fn latest(&self) -> String {
        /// Far more than a line has.
        const TAIL: i64 = 4096;
        let Ok(mut file) = self.0.lock() else { return String::new() };
        let mut bytes = Vec::new();
        // Both descriptors share one position: it is put back to the end for what comes next.
        let length = file.seek(SeekFrom::End(0)).unwrap_or_default();
        let back = i64::try_from(length).unwrap_or(TAIL).min(TAIL);
        if file.seek(SeekFrom::End(-back)).is_err() || file.read_to_end(&mut bytes).is_err() {
            return String::new();
        }
        String::from_utf8_lossy(&bytes).lines().next_back().unwrap_or_default().into()
    }
}
