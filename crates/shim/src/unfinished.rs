//! A list of things that are still to be looked at: any thread adds, one at a time goes through all of them.
//!
//! Adding takes no lock, so that launches in different streams share none. A thing is in the list at most once: its link
//! says whether it is. Things live for ever; only what they stand for changes.

#[cfg(not(loom))]
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use core::ptr::null_mut;

/// A thing's place in the list.
pub(crate) struct Link<T> {
    next: AtomicPtr<T>,
    listed: AtomicBool,
}

/// A thing that can be in the list.
pub(crate) trait Linked: Sized + 'static {
    fn link(&self) -> &Link<Self>;
}

impl<T> Link<T> {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Self { next: AtomicPtr::new(null_mut()), listed: AtomicBool::new(false) }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self { next: AtomicPtr::new(null_mut()), listed: AtomicBool::new(false) }
    }

    /// For whoever goes through the list and is about to drop the thing from it: from now on it can be added again.
    pub(crate) fn leave(&self) {
        // Pairs with the acquire in `List::add`.
        self.listed.store(false, Ordering::Release);
    }
}

/// The list.
pub(crate) struct List<T> {
    head: AtomicPtr<T>,
}

impl<T: Linked> List<T> {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Self { head: AtomicPtr::new(null_mut()) }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self { head: AtomicPtr::new(null_mut()) }
    }

    /// Adds it, unless it is there.
    pub(crate) fn add(&self, thing: &'static T) {
        if !thing.link().listed.swap(true, Ordering::AcqRel) {
            self.push(thing);
        }
    }

    fn push(&self, thing: &'static T) {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            thing.link().next.store(head, Ordering::Relaxed);
            // Release: pairs with the acquire in `retain`. Things are only ever taken all at once, so a head that came
            // back to what it was is the same list.
            let own = core::ptr::from_ref(thing).cast_mut();
            match self.head.compare_exchange_weak(head, own, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Goes through all that are there, and keeps those for which `keep` says so; it must have them [`leave`](Link::leave)
    /// otherwise. Says whether all were dropped. One thread at a time.
    pub(crate) fn retain(&self, mut keep: impl FnMut(&'static T) -> bool) -> bool {
        let mut next = self.head.swap(null_mut(), Ordering::Acquire);
        let mut dropped_all = true;
        // SAFETY: NULL, or a thing that was added, which lives for ever.
        while let Some(thing) = unsafe { next.as_ref() } {
            // Before it can be added again.
            next = thing.link().next.load(Ordering::Relaxed);
            if keep(thing) {
                dropped_all = false;
                self.push(thing);
            }
        }
        dropped_all
    }
}
