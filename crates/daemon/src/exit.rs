//! Exit codes; the numbers are those of `sysexits.h`, and mean the same in every program of DetShare.

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
