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

/// What the device runtime needs of the system. Streams and events are numbers, and errors those of the runtime. What gives a value
/// gives [`NOTHING`] where there is none, and the error is the thread's last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum Runtime {
    /// `void *prepare(kernel, grid x, y, z, block x, y, z, dynamic shared memory)`: where its arguments go.
    Prepare,
    /// `int launch(what prepare gave, stream)`.
    Launch,
    /// `void *room(bytes)` for the arguments of a kernel that is not named yet.
    Room,
    /// `int launch_with(kernel, what room gave, grid x, y, z, block x, y, z, dynamic shared memory, stream)`.
    LaunchWith,
    /// `int copy(to, its pitch, bytes from slice to slice, from, its pitch, bytes from slice to slice, width, height, depth, stream)`.
    Copy,
    /// `int fill(to, its pitch, bytes from slice to slice, value, width, height, depth, stream)`.
    Fill,
    /// `handle create()`: a stream or an event.
    Create,
    /// `int record(event, stream)`.
    Record,
    /// `int wait(stream, event)`.
    Wait,
    /// `int last_error(whether to forget it)`.
    LastError,
    /// `int fail(error)`: it is the thread's last one.
    Fail,
    /// `const char *error_text(error, whether its name)`.
    ErrorText,
    /// `int device()`.
    Device,
    /// `int device_count()`.
    DeviceCount,
    /// `int attribute(its number, device)`.
    Attribute,
    /// `size_t limit(its number)`.
    Limit,
    /// `int cache_preference()`.
    CachePreference,
    /// `int kernel_attribute(kernel, its number)`, as the driver numbers them.
    KernelAttribute,
    /// `int resident(kernel, threads of a block, dynamic shared memory, flags)`: how many of its blocks one SM can have.
    Resident,
}

/// In place of a value.
pub(in crate::exec) const NOTHING: u64 = u64::MAX;

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
            "__detshare_room" => (Self::Runtime(Runtime::Room), 1, 1),
            "__detshare_launch_with" => (Self::Runtime(Runtime::LaunchWith), 10, 1),
            "__detshare_copy" => (Self::Runtime(Runtime::Copy), 10, 1),
            "__detshare_fill" => (Self::Runtime(Runtime::Fill), 8, 1),
            "__detshare_create" => (Self::Runtime(Runtime::Create), 0, 1),
            "__detshare_record" => (Self::Runtime(Runtime::Record), 2, 1),
            "__detshare_wait" => (Self::Runtime(Runtime::Wait), 2, 1),
            "__detshare_last_error" => (Self::Runtime(Runtime::LastError), 1, 1),
            "__detshare_fail" => (Self::Runtime(Runtime::Fail), 1, 1),
            "__detshare_error_text" => (Self::Runtime(Runtime::ErrorText), 2, 1),
            "__detshare_device" => (Self::Runtime(Runtime::Device), 0, 1),
            "__detshare_device_count" => (Self::Runtime(Runtime::DeviceCount), 0, 1),
            "__detshare_attribute" => (Self::Runtime(Runtime::Attribute), 2, 1),
            "__detshare_limit" => (Self::Runtime(Runtime::Limit), 1, 1),
            "__detshare_cache_preference" => (Self::Runtime(Runtime::CachePreference), 0, 1),
            "__detshare_kernel_attribute" => (Self::Runtime(Runtime::KernelAttribute), 2, 1),
            "__detshare_resident" => (Self::Runtime(Runtime::Resident), 4, 1),
            _ => return None,
        })
    }
}
