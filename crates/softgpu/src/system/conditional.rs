//! Values that kernels set and conditional nodes of graphs look at.

use core::sync::atomic::{AtomicU32, Ordering};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, RwLock, Weak};

/// By handle.
static CONDITIONALS: LazyLock<RwLock<HashMap<u64, Weak<Conditional>>>> = LazyLock::new(RwLock::default);

/// A value, which a program holds as a number and kernels set by it. It goes with its graph and what was made of that.
#[derive(Debug)]
pub(crate) struct Conditional {
    pub(crate) handle: usize,
    value: AtomicU32,
    /// What it is at the start of every launch, where the program asked for that.
    default: Option<u32>,
}

impl Conditional {
    pub(crate) fn new(default: Option<u32>) -> Arc<Self> {
        let handle = crate::handle::new();
        let value = AtomicU32::new(default.unwrap_or(0));
        let conditional = Arc::new(Self { handle, value, default });
        let mut all = CONDITIONALS.write().expect("no panic while it is held");
        all.insert(handle as u64, Arc::downgrade(&conditional));
        conditional
    }

    pub(crate) fn get(&self) -> u32 {
        self.value.load(Ordering::Acquire)
    }

    /// A launch begins.
    pub(crate) fn reset(&self) {
        if let Some(default) = self.default {
            self.value.store(default, Ordering::Release);
        }
    }
}

impl Drop for Conditional {
    fn drop(&mut self) {
        CONDITIONALS.write().expect("no panic while it is held").remove(&(self.handle as u64));
    }
}

/// The value that a program holds as that number.
pub(crate) fn find(handle: u64) -> Option<Arc<Conditional>> {
    CONDITIONALS.read().expect("no panic while it is held").get(&handle)?.upgrade()
}

/// `cudaGraphSetConditional` in a kernel; false where there is no such value.
pub(crate) fn set(handle: u64, value: u32) -> bool {
    // The graph looks after the kernel is over.
    find(handle).map(|it| it.value.store(value, Ordering::Release)).is_some()
}
