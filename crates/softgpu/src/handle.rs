//! Handles: numbers that stand for objects.
//!
//! A handle is never used twice and never followed, so a program that uses a destroyed or foreign one gets an
//! error.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, RwLock};

/// Looks like an address to programs that print it, and lies where no memory is.
const FIRST: usize = 0x0000_6a00_0000_0000;
const STEP: usize = 64;
/// What handles of contexts have more than others, so that they can be told apart when the context is gone.
const CONTEXT: usize = STEP / 2;

static NEXT: AtomicUsize = AtomicUsize::new(FIRST);

/// A number for a new object.
pub(crate) fn new() -> usize {
    NEXT.fetch_add(STEP, Ordering::Relaxed)
}

/// A number for a new context.
pub(crate) fn new_of_context() -> usize {
    new() + CONTEXT
}

/// Whether that number was ever given to a context, living or not.
pub(crate) fn was_context(handle: usize) -> bool {
    (FIRST..NEXT.load(Ordering::Relaxed)).contains(&handle) && handle % STEP == CONTEXT
}

/// The objects of one kind.
pub(crate) struct Table<T>(LazyLock<RwLock<HashMap<usize, Arc<T>>>>);

impl<T> Table<T> {
    pub(crate) const fn new() -> Self {
        Self(LazyLock::new(|| RwLock::new(HashMap::new())))
    }

    pub(crate) fn insert(&self, handle: usize, object: Arc<T>) {
        self.0.write().expect("no panic while it is held").insert(handle, object);
    }

    pub(crate) fn get(&self, handle: usize) -> Option<Arc<T>> {
        self.0.read().expect("no panic while it is held").get(&handle).cloned()
    }

    /// Removes all but these.
    pub(crate) fn retain(&self, keep: impl Fn(&T) -> bool) {
        self.0.write().expect("no panic while it is held").retain(|_, object| keep(object));
    }

    pub(crate) fn remove(&self, handle: usize) -> Option<Arc<T>> {
        self.0.write().expect("no panic while it is held").remove(&handle)
    }
}
