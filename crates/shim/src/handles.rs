//! What we know of a handle that the program holds, found without a lock.
//!
//! A bucket is a list that only grows. An entry whose handle is gone stays where it is, with its value, and serves the
//! next handle that falls into its bucket: so a reader that comes late finds memory that is still there, and a bucket
//! is as long as the most handles that were alive in it at once.

#[cfg(not(loom))]
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
#[cfg(loom)]
use loom::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard};
use std::sync::PoisonError;
#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard};

#[cfg(not(loom))]
const BUCKETS: usize = 1024;
#[cfg(loom)]
const BUCKETS: usize = 1;

/// Values by handle. Handle 0 is none.
pub(crate) struct Handles<T: 'static> {
    buckets: [AtomicPtr<Entry<T>>; BUCKETS],
    /// Held by those who insert and remove.
    changing: Mutex<()>,
}

/// With the beginning of its value it lies in one cache line.
#[repr(C, align(64))]
struct Entry<T: 'static> {
    handle: AtomicUsize,
    next: *const Self,
    value: T,
}

// SAFETY: `next` is set before the entry is shared and points to an entry that is never freed.
unsafe impl<T: Send + Sync> Sync for Entry<T> {}

impl<T: Default + Send + Sync> Handles<T> {
    /// No handles.
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Self { buckets: [const { AtomicPtr::new(core::ptr::null_mut()) }; BUCKETS], changing: Mutex::new(()) }
    }

    /// No handles.
    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self { buckets: [AtomicPtr::new(core::ptr::null_mut())], changing: Mutex::new(()) }
    }

    /// The handle's value.
    pub(crate) fn find(&self, handle: usize) -> Option<&'static T> {
        self.entry(handle).map(|entry| &entry.value)
    }

    /// Gives a handle a value, which `prepare` makes out of whatever was there; the handle can be found afterwards.
    pub(crate) fn insert(&self, handle: usize, prepare: impl FnOnce(&'static T)) -> &'static T {
        let _changing = self.lock();
        let bucket = &self.buckets[bucket(handle)];
        let entry = self.entry(handle).or_else(|| self.vacant(bucket)).unwrap_or_else(|| {
            let next = bucket.load(Ordering::Relaxed).cast_const();
            let new: &'static mut Entry<T> =
                Box::leak(Box::new(Entry { handle: AtomicUsize::new(0), next, value: T::default() }));
            // Pairs with the acquire in `entries`.
            bucket.store(new, Ordering::Release);
            new
        });
        prepare(&entry.value);
        // Pairs with the acquire in `entry`: who finds the handle finds what was prepared.
        entry.handle.store(handle, Ordering::Release);
        &entry.value
    }

    /// Forgets a handle; its value stays until the next one needs the place.
    pub(crate) fn remove(&self, handle: usize) -> Option<&'static T> {
        let _changing = self.lock();
        let entry = self.entry(handle)?;
        entry.handle.store(0, Ordering::Release);
        Some(&entry.value)
    }

    /// Forgets all handles for whose value this holds; gives their values.
    #[cfg(not(loom))]
    pub(crate) fn remove_if(&self, mut gone: impl FnMut(&'static T) -> bool) -> Vec<&'static T> {
        let _changing = self.lock();
        let mut removed = Vec::new();
        for bucket in &self.buckets {
            for entry in entries(bucket) {
                if entry.handle.load(Ordering::Acquire) != 0 && gone(&entry.value) {
                    entry.handle.store(0, Ordering::Release);
                    removed.push(&entry.value);
                }
            }
        }
        removed
    }

    /// Shows all values that a handle has.
    #[cfg(not(loom))]
    pub(crate) fn for_each(&self, mut show: impl FnMut(&'static T)) {
        for entry in self.buckets.iter().flat_map(entries) {
            if entry.handle.load(Ordering::Acquire) != 0 {
                show(&entry.value);
            }
        }
    }

    fn entry(&self, handle: usize) -> Option<&'static Entry<T>> {
        if handle == 0 {
            return None;
        }
        entries(&self.buckets[bucket(handle)]).find(|entry| entry.handle.load(Ordering::Acquire) == handle)
    }

    fn vacant(&self, bucket: &AtomicPtr<Entry<T>>) -> Option<&'static Entry<T>> {
        entries(bucket).find(|entry| entry.handle.load(Ordering::Relaxed) == 0)
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn entries<T>(bucket: &AtomicPtr<Entry<T>>) -> impl Iterator<Item = &'static Entry<T>> {
    let mut next = bucket.load(Ordering::Acquire).cast_const();
    core::iter::from_fn(move || {
        // SAFETY: NULL, or an entry that was leaked for good.
        let entry = unsafe { next.as_ref() }?;
        next = entry.next;
        Some(entry)
    })
}

/// Handles are addresses: their lowest bits say nothing.
fn bucket(handle: usize) -> usize {
    const GOLDEN: usize = 0x9e37_79b9_7f4a_7c15;
    (handle >> 4).wrapping_mul(GOLDEN) >> 32 & (BUCKETS - 1)
}
