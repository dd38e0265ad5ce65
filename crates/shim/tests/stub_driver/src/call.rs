//! A recorded call, as the stub driver hands it to a test in the same process.

/// Words of the caller's stack that are recorded: more than any function of the driver takes.
pub(crate) const STACK_WORDS: usize = 32;

/// Everything that can carry an argument, as the stub driver found it on entry.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Call {
    /// rdi, rsi, rdx, rcx, r8, r9.
    pub(crate) integers: [u64; 6],
    /// The lower halves of xmm0 to xmm7.
    pub(crate) floats: [u64; 8],
    /// What lies above the return address.
    pub(crate) stack: [u64; STACK_WORDS],
    /// The function's index in the table.
    pub(crate) function: u64,
}

/// What the stub driver does when it is called.
pub(crate) mod mode {
    /// Does nothing and returns success.
    pub(crate) const QUIET: u32 = 0;
    /// Records the call and returns `RECORDED` plus the function's index.
    pub(crate) const RECORD: u32 = 1;
    /// As `RECORD`, from the first answer of `cuDriverGetVersion` on, which opening a driver asks for.
    pub(crate) const RECORD_ONCE_OPEN: u32 = 2;
    /// Does nothing, returns success, and appends the function's name to a file.
    pub(crate) const LOG: u32 = 3;
}

/// Added to the function's index to make the code that a recorded call returns.
pub(crate) const RECORDED: u32 = 100_000;
