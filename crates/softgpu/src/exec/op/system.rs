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
    /// One of those that the device runtime's own text calls.
    Runtime(Runtime),
}

/// What the device runtime needs of the system. Streams and events are numbers, and errors those of the runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum Runtime {
    /// `void *prepare(kernel, grid x, y, z, block x, y, z, dynamic shared memory)`: where its arguments go.
    Prepare,
    /// `int launch(what prepare gave, stream)`.
    Launch,
    /// `int copy(to, from, bytes, stream)`.
    Copy,
    /// `int fill(to, value, bytes, stream)`.
    Fill,
    /// `handle create()`: a stream or an event.
    Create,
    /// `int record(event, stream)`.
    Record,
    /// `int wait(stream, event)`.
    Wait,
    /// `int last_error(whether to forget it)`.
    LastError,
    /// `int device()`.
    Device,
    /// `int device_count()`.
    DeviceCount,
    /// `int attribute(its number)`, of the device; 0 for one that is not known.
    Attribute,
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
            "__detshare_prepare" => (Self::Runtime(Runtime::Prepare), 8, 1),
            "__detshare_launch" => (Self::Runtime(Runtime::Launch), 2, 1),
            "__detshare_copy" => (Self::Runtime(Runtime::Copy), 4, 1),
            "__detshare_fill" => (Self::Runtime(Runtime::Fill), 4, 1),
            "__detshare_create" => (Self::Runtime(Runtime::Create), 0, 1),
            "__detshare_record" => (Self::Runtime(Runtime::Record), 2, 1),
            "__detshare_wait" => (Self::Runtime(Runtime::Wait), 2, 1),
            "__detshare_last_error" => (Self::Runtime(Runtime::LastError), 1, 1),
            "__detshare_device" => (Self::Runtime(Runtime::Device), 0, 1),
            "__detshare_attribute" => (Self::Runtime(Runtime::Attribute), 1, 1),
            "__detshare_device_count" => (Self::Runtime(Runtime::DeviceCount), 0, 1),
            _ => return None,
        })
    }
}
