//! What kernels ask of the system that runs them: printing, memory from a heap, and values for graphs.
//!
//! A context has one [`System`]; green contexts share that of the primary context, as they share its memory.

pub(crate) mod conditional;
mod format;
mod heap;
pub(crate) mod output;

pub(crate) use format::{BadAddress, format, text};
pub(crate) use output::{Sink, flush, flush_after, flush_before};

use crate::boundary::Outcome;
use core::sync::atomic::{AtomicBool, Ordering};
use detshare_cuda::types::{CUlimit, CUresult};
use heap::Heap;
use output::Output;
use std::sync::Arc;

/// Which parts of the system a kernel may come to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SystemUse {
    /// `vprintf`.
    pub(crate) prints: bool,
    /// `malloc` and `free`.
    pub(crate) allocates: bool,
    /// Kernels, copies and fills.
    pub(crate) launches: bool,
}

impl SystemUse {
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            prints: self.prints || other.prints,
            allocates: self.allocates || other.allocates,
            launches: self.launches || other.launches,
        }
    }
}

/// What the kernels of one address space share.
#[derive(Debug, Default)]
pub(crate) struct System {
    pub(crate) output: Output,
    pub(crate) heap: Heap,
    /// A kernel that prints was launched: the room for its text is fixed from then on.
    prints: AtomicBool,
    /// A kernel that allocates was launched: the heap's size is fixed from then on.
    allocates: AtomicBool,
}

impl System {
    pub(crate) fn new() -> Arc<Self> {
        let system = Arc::<Self>::default();
        output::register(&system);
        system
    }

    /// A kernel is launched that may use these.
    pub(crate) fn expect(&self, uses: SystemUse) {
        if uses.prints {
            self.prints.store(true, Ordering::Relaxed);
        }
        if uses.allocates {
            self.allocates.store(true, Ordering::Relaxed);
        }
    }

    /// The program sets a limit of its context; those that are not for this are let pass. Returns what it becomes.
    pub(crate) fn set_limit(&self, limit: CUlimit, value: usize) -> Outcome<usize> {
        let fixed = |flag: &AtomicBool| match flag.load(Ordering::Relaxed) {
            true => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
            false => Ok(()),
        };
        match limit {
            CUlimit::CU_LIMIT_PRINTF_FIFO_SIZE => {
                fixed(&self.prints)?;
                let room = value.max(output::LEAST_ROOM);
                self.output.set_room(room);
                return Ok(room);
            }
            CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE => {
                fixed(&self.allocates)?;
                self.heap.set_size(value as u64);
            }
            _ => {}
        }
        Ok(value)
    }
}
