//! Exit codes; the numbers are those of `sysexits.h`, and mean the same in every program of DetShare.

/// What they mean here, for help and manual.
pub const HELP: &str = "\
Exit codes (0: it was asked to end, or nobody was there for long):
  64   bad usage
  69   isolation is \"mps\", and nvidia-cuda-mps-control is not there
  71   the system refused something, such as shared memory
  74   a file could not be read or written
  75   a daemon runs already in this folder
  77   a folder, file or socket is open to others or belongs to another user
  78   the configuration file is broken";

/// The command line makes no sense.
pub const USAGE: u8 = 64;
/// A program that is needed is not there.
pub const NO_PROGRAM: u8 = 69;
/// The system refused something that it usually grants.
pub const SYSTEM: u8 = 71;
/// A file could not be read or written.
pub const FILES: u8 = 74;
/// A daemon runs already.
pub const RUNS_ALREADY: u8 = 75;
/// A folder, file or socket is another user's, or open to others.
pub const NO_PERMISSION: u8 = 77;
/// The configuration is broken.
pub const CONFIG: u8 = 78;
