//! Nothing of ours panics into a program.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs code of ours that a program called; a panic becomes the fallback, with a line in the log.
pub(crate) fn guarded<T>(fallback: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(fallback)
}

/// Panics of this library go to the log instead of the program's standard error.
pub(crate) fn silence_panics() {
    std::panic::set_hook(Box::new(|panic| crate::log::line(format_args!("internal error: {panic}"))));
}
