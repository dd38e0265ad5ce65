//! A value that any thread may make and all threads then share, without a lock.
//!
//! Several threads may make it at once; one wins and the others drop theirs. There is nothing to wait for,
//! so nothing can hang: not when a thread forks while another is making the value, not when making it comes
//! back here on the same thread.

#[cfg(not(loom))]
use core::sync::atomic::{AtomicPtr, Ordering};
#[cfg(loom)]
use loom::sync::atomic::{AtomicPtr, Ordering};

/// Holds nothing, then one value for the rest of the process.
pub(crate) struct Published<T>(AtomicPtr<T>);

impl<T: Send + Sync> Published<T> {
    /// Nothing yet.
    #[cfg(not(loom))]
    #[must_use]
    pub(crate) const fn nothing() -> Self {
        Self(AtomicPtr::new(core::ptr::null_mut()))
    }

    /// Nothing yet.
    #[cfg(loom)]
    #[must_use]
    pub(crate) fn nothing() -> Self {
        Self(AtomicPtr::new(core::ptr::null_mut()))
    }

    /// The value, if one was published.
    pub(crate) fn get(&self) -> Option<&T> {
        // Pairs with the release in `publish`.
        let value = self.0.load(Ordering::Acquire);
        // SAFETY: NULL, or a box that was leaked for good and is only shared from then on.
        unsafe { value.as_ref() }
    }

    /// The value; made now if there is none yet.
    pub(crate) fn get_or_make(&self, make: impl FnOnce() -> T) -> &T {
        match self.get() {
            Some(value) => value,
            None => self.publish(make()),
        }
    }

    /// Publishes this value unless another came first; returns the one that is there.
    fn publish(&self, value: T) -> &T {
        let mine = Box::into_raw(Box::new(value));
        let first = self.0.compare_exchange(
            core::ptr::null_mut(),
            mine,
            // Pairs with the acquire in `get`.
            Ordering::Release,
            Ordering::Acquire,
        );
        match first {
            // SAFETY: just made from a box, and never freed from now on.
            Ok(_) => unsafe { &*mine },
            Err(theirs) => {
                // SAFETY: just made from a box, and never published.
                drop(unsafe { Box::from_raw(mine) });
                // SAFETY: not NULL, or the exchange had succeeded; published values are never freed.
                unsafe { &*theirs }
            }
        }
    }
}
