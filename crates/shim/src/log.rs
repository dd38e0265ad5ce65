//! One line on standard error, for those who set `DETSHARE_LOG`.

use crate::settings;
use core::fmt::Arguments;
use std::io::Write;

/// Writes one line, in one write, if the user asked for a log.
pub(crate) fn line(text: Arguments<'_>) {
    if settings::get().log {
        let line = format!("detshare[{}]: {text}\n", std::process::id());
        // A closed standard error is not our program's problem.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}
