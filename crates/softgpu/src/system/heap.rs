//! The heap of `malloc` and `free` in kernels.
//!
//! It is one allocation of device memory, made when the first kernel asks for memory, and stays as long as its
//! context: what one kernel allocates another one may use and free.

use crate::memory;
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// What a context starts with.
pub(crate) const DEFAULT_SIZE: u64 = 8 << 20;
/// `malloc` gives memory for any type.
const ALIGN: u64 = 16;

/// A heap; empty until it is first used.
#[derive(Debug)]
pub(crate) struct Heap {
    size: AtomicU64,
    parts: Mutex<Option<Parts>>,
}

#[derive(Debug)]
struct Parts {
    base: u64,
    /// Size by address.
    taken: BTreeMap<u64, u64>,
    /// Size by address; never two neighbours.
    free: BTreeMap<u64, u64>,
}

impl Default for Heap {
    fn default() -> Self {
        Self { size: AtomicU64::new(DEFAULT_SIZE), parts: Mutex::default() }
    }
}

impl Heap {
    /// Before it is first used.
    pub(crate) fn set_size(&self, size: u64) {
        self.size.store(size, Ordering::Relaxed);
    }

    /// The address of that much memory; 0 where there is not enough left.
    pub(crate) fn allocate(&self, bytes: u64) -> u64 {
        let mut parts = self.parts.lock().expect("no panic while it is held");
        if parts.is_none() {
            *parts = Parts::of(self.size.load(Ordering::Relaxed));
        }
        parts.as_mut().and_then(|parts| parts.allocate(bytes)).unwrap_or(0)
    }

    /// Gives memory back; false for an address that is not allocated here.
    pub(crate) fn free(&self, address: u64) -> bool {
        let mut parts = self.parts.lock().expect("no panic while it is held");
        address == 0 || parts.as_mut().is_some_and(|parts| parts.release(address))
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        if let Ok(Some(parts)) = self.parts.get_mut() {
            memory::free(parts.base);
        }
    }
}

impl Parts {
    fn of(size: u64) -> Option<Self> {
        let base = memory::allocate_for_all(size).filter(|_| size > 0)?;
        Some(Self { base, taken: BTreeMap::new(), free: BTreeMap::from([(base, size / ALIGN * ALIGN)]) })
    }

    fn allocate(&mut self, bytes: u64) -> Option<u64> {
        let size = bytes.max(1).checked_next_multiple_of(ALIGN)?;
        let (&address, &room) = self.free.iter().find(|(_, room)| **room >= size)?;
        self.free.remove(&address);
        if room > size {
            self.free.insert(address + size, room - size);
        }
        self.taken.insert(address, size);
        Some(address)
    }

    fn release(&mut self, address: u64) -> bool {
        let Some(mut size) = self.taken.remove(&address) else { return false };
        if let Some(after) = self.free.remove(&(address + size)) {
            size += after;
        }
        match self.free.range_mut(..address).next_back() {
            Some((&before, room)) if before + *room == address => *room += size,
            _ => {
                self.free.insert(address, size);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_and_comes_back() {
        let heap = Heap::default();
        heap.set_size(256);
        let all: Vec<u64> = [1, 100, 16].map(|bytes| heap.allocate(bytes)).to_vec();
        assert!(all.iter().all(|address| *address != 0 && address % ALIGN == 0));
        assert_eq!(heap.allocate(200), 0, "more than is left");
        assert!(heap.free(all[1]) && heap.free(all[0]) && heap.free(all[2]));
        assert_ne!(heap.allocate(256), 0, "freed parts are one again");
        assert!(!heap.free(all[1]), "nobody has that now");
        assert!(heap.free(0), "NULL is never wrong");
    }

    #[test]
    fn a_heap_of_nothing_gives_nothing() {
        let heap = Heap::default();
        heap.set_size(0);
        assert_eq!((heap.allocate(1), heap.allocate(u64::MAX)), (0, 0));
    }
}
