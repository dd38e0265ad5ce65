//! Exit codes that mean the same in every subcommand; the numbers are those of `sysexits.h`. A subcommand's own results
//! have small numbers and stand with it.

/// What every subcommand may return, for the help.
pub(crate) const HELP: &str = "\
Exit codes of all commands (0 is success; `run` ends with the program's own):
  64   bad usage
  66   the program was not found, or cannot be run through the shim
  69   a part of DetShare is missing, no daemon runs or could be started, or it is in another container
  71   the system refused something, such as a new process
  74   a file could not be read or written
  75   a daemon runs already (from detshared itself; `detshare up` is content with it)
  76   the daemon gave an answer that makes no sense: another version?
  77   a folder, file or socket is open to others or belongs to another user
  78   the configuration file is broken
  128+N  ended by signal N";

/// The command line makes no sense.
pub(crate) const USAGE: u8 = 64;
/// The program is not there, or cannot be executed through the shim.
pub(crate) const NO_PROGRAM: u8 = 66;
/// A part of DetShare is not there, or no daemon runs.
pub(crate) const UNAVAILABLE: u8 = 69;
/// The system refused something that it usually grants, such as a new process.
pub(crate) const SYSTEM: u8 = 71;
/// A file could not be read or written, or does not hold what it should.
pub(crate) const FILES: u8 = 74;
/// A daemon runs already: what a second one ends with.
pub(crate) const RUNS_ALREADY: u8 = 75;
/// The daemon's answer makes no sense.
pub(crate) const NONSENSE: u8 = 76;
/// A folder, file or socket is not ours alone.
pub(crate) const PERMISSION: u8 = 77;
/// The configuration file is broken: what the daemon ends with.
pub(crate) const CONFIGURATION: u8 = 78;

/// Ended by a signal, as shells count it.
pub(crate) fn by_signal(signal: i32) -> u8 {
    const SIGNALLED: u8 = 128;
    SIGNALLED.saturating_add(u8::try_from(signal).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_names_every_code() {
        let codes = [USAGE, NO_PROGRAM, UNAVAILABLE, SYSTEM, FILES, RUNS_ALREADY, NONSENSE, PERMISSION, CONFIGURATION];
        for code in codes {
            assert!(HELP.lines().any(|line| line.trim_start().starts_with(&format!("{code} "))), "{code}");
        }
    }
}
