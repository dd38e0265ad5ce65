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
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use detshare_cuda::types::{CUlimit, CUresult};
use heap::Heap;
use output::Output;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Limits that there are, with their values before a program sets others.
const LIMITS: [(CUlimit, usize); 5] = [
    (CUlimit::CU_LIMIT_STACK_SIZE, 1024),
    (CUlimit::CU_LIMIT_PRINTF_FIFO_SIZE, output::DEFAULT_ROOM),
    (CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE, 8 << 20),
    (CUlimit::CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 64),
    (CUlimit::CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0),
];

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
    /// What the program has set.
    limits: Mutex<HashMap<u32, usize>>,
    /// What the program wants more of, first-level cache or shared memory.
    pub(crate) cache_preference: AtomicU32,
}

/// The value that a limit has at first. The error says whether there is none of that number, or not on this device.
fn first_value(limit: CUlimit) -> Outcome<usize> {
    let none = if limit.0 < CUlimit::CU_LIMIT_MAX.0 {
        CUresult::CUDA_ERROR_UNSUPPORTED_LIMIT
    } else {
        CUresult::CUDA_ERROR_INVALID_VALUE
    };
    LIMITS.iter().find(|(known, _)| *known == limit).map(|(_, value)| *value).ok_or(none)
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

    /// What a limit is.
    pub(crate) fn limit(&self, limit: CUlimit) -> Outcome<usize> {
        let first = first_value(limit)?;
        Ok(self.limits.lock().expect("no panic while it is held").get(&limit.0).copied().unwrap_or(first))
    }

    /// The program sets a limit, which may become another one than it asks for.
    pub(crate) fn set_limit(&self, limit: CUlimit, value: usize) -> Outcome {
        first_value(limit)?;
        let fixed = |flag: &AtomicBool| match flag.load(Ordering::Relaxed) {
            true => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
            false => Ok(()),
        };
        let value = match limit {
            CUlimit::CU_LIMIT_PRINTF_FIFO_SIZE => {
                fixed(&self.prints)?;
                let room = value.max(output::LEAST_ROOM);
                self.output.set_room(room);
                room
            }
            CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE => {
                fixed(&self.allocates)?;
                self.heap.set_size(value as u64);
                value
            }
            _ => value,
        };
        self.limits.lock().expect("no panic while it is held").insert(limit.0, value);
        Ok(())
    }
}
