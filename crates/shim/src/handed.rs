//! What a program hands over: so many of something, behind a pointer.

/// So many. Of none the pointer may be anything: the driver does not look there, and a program may have left it as it was.
///
/// # Safety
/// They are there, and stay as they are for as long as this is used.
pub(crate) unsafe fn list<'a, T>(first: *const T, count: usize) -> &'a [T] {
    if count == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { core::slice::from_raw_parts(first, count) }
}
