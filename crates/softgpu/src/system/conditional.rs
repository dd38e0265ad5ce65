//! Values that kernels set and conditional nodes of graphs look at.

#![allow(dead_code, reason = "conditional nodes make them")]

use crate::handle::{self, Table};
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

static VALUES: Table<AtomicU32> = Table::new();

/// A value, which a program holds as a number and kernels set by it. It goes with its graph.
#[derive(Debug)]
pub(crate) struct Conditional {
    pub(crate) handle: usize,
    value: Arc<AtomicU32>,
    /// What it is at the start of every launch, where the program asked for that.
    default: Option<u32>,
}

impl Conditional {
    pub(crate) fn new(first: u32, default: Option<u32>) -> Arc<Self> {
        let handle = handle::new();
        let value = Arc::new(AtomicU32::new(first));
        VALUES.insert(handle, Arc::clone(&value));
        Arc::new(Self { handle, value, default })
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
        VALUES.remove(self.handle);
    }
}

/// `cudaGraphSetConditional` in a kernel; false where there is no such value.
pub(crate) fn set(handle: u64, value: u32) -> bool {
    let found = usize::try_from(handle).ok().and_then(|handle| VALUES.get(handle));
    // The graph looks after the kernel is over.
    found.map(|it| it.store(value, Ordering::Release)).is_some()
}
