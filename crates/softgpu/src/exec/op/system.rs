//! Calls of functions that the system brings.

use super::Place;

/// A function that every device has without a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum SystemFunction {
    /// `int vprintf(const char *format, void *values)`.
    Print,
    /// `void *malloc(size_t size)`.
    Allocate,
    /// `void free(void *pointer)`.
    Free,
    /// `void __assertfail(message, file, line, function, size of a character)`.
    AssertFail,
    /// `void cudaGraphSetConditional(handle, value)`.
    SetConditional,
}

/// A call of one.
#[derive(Debug, Clone)]
pub(in crate::exec) struct SystemCall {
    pub(in crate::exec) function: SystemFunction,
    pub(in crate::exec) arguments: Box<[Place]>,
    /// None where the caller does not want it.
    pub(in crate::exec) result: Option<Place>,
}

impl SystemFunction {
    /// By name, with the number of arguments and results.
    pub(in crate::exec) fn find(name: &str) -> Option<(Self, usize, usize)> {
        Some(match name {
            "vprintf" => (Self::Print, 2, 1),
            "malloc" => (Self::Allocate, 1, 1),
            "free" => (Self::Free, 1, 0),
            "__assertfail" => (Self::AssertFail, 5, 0),
            "cudaGraphSetConditional" => (Self::SetConditional, 2, 0),
            _ => return None,
        })
    }
}
