//! Exit codes that mean the same in every subcommand; the numbers are those of `sysexits.h`. A subcommand's own results
//! have small numbers and stand with it.

/// The command line makes no sense.
pub(crate) const USAGE: u8 = 64;
/// The program is not there, or cannot be executed.
pub(crate) const NO_PROGRAM: u8 = 66;
/// The shim library is not there.
pub(crate) const NO_SHIM: u8 = 69;
/// The system refused something that it usually grants, such as a new process.
pub(crate) const SYSTEM: u8 = 71;
/// A file could not be read or written, or does not hold what it should.
pub(crate) const FILES: u8 = 74;

/// Ended by a signal, as shells count it.
pub(crate) fn by_signal(signal: i32) -> u8 {
    const SIGNALLED: u8 = 128;
    SIGNALLED.saturating_add(u8::try_from(signal).unwrap_or(0))
}
