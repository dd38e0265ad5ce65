//! One line on standard error, for those who set `DETSHARE_LOG` or started the process by `detshare run`.

use crate::settings;
use core::fmt::Arguments;
use std::io::Write;

/// Writes one line, in one write, if the user asked for a log.
pub(crate) fn line(text: Arguments<'_>) {
    if settings::get().log {
        write(&format!("detshare[{}]: {text}\n", std::process::id()));
    }
}

/// One line for whoever started the process by `detshare run`.
pub(crate) fn for_the_user(text: Arguments<'_>) {
    write(&format!("detshare: {text}\n"));
}

fn write(line: &str) {
    // A closed standard error is not our program's problem.
    let _ = std::io::stderr().write_all(line.as_bytes());
}
