//! User objects: what a program wants to have destroyed when no graph needs it any more.

use crate::boundary::Outcome;
use crate::engine::{self, Done, Work};
use crate::handle::{self, Table};
use core::ffi::c_void;
use detshare_cuda::types::CUresult;
use std::sync::{Arc, Mutex};

static OBJECTS: Table<UserObject> = Table::new();

/// A function of the program with its data, called when the last reference is released.
pub(crate) struct UserObject {
    pub(crate) handle: usize,
    references: Mutex<usize>,
    destroy: unsafe extern "C" fn(*mut c_void),
    data: usize,
}

impl UserObject {
    pub(crate) fn create(destroy: unsafe extern "C" fn(*mut c_void), data: usize, references: usize) -> Arc<Self> {
        let object = Arc::new(Self { handle: handle::new(), references: Mutex::new(references), destroy, data });
        OBJECTS.insert(object.handle, Arc::clone(&object));
        object
    }

    pub(crate) fn find(handle: usize) -> Outcome<Arc<Self>> {
        OBJECTS.get(handle).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    pub(crate) fn retain(&self, count: usize) {
        *self.references.lock().expect("no panic while it is held") += count;
    }

    /// The last release has the program's function called, in a thread that may not call the driver.
    pub(crate) fn release(&self, count: usize) -> Outcome {
        let mut references = self.references.lock().expect("no panic while it is held");
        *references = references.checked_sub(count).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        if *references == 0 {
            OBJECTS.remove(self.handle);
            let (destroy, data) = (self.destroy, self.data);
            let call = move |_| {
                // SAFETY: the program's own function and data, called once.
                unsafe { destroy(core::ptr::with_exposed_provenance_mut(data)) };
            };
            engine::submit(Work::Host(Box::new(call)), &[], &Arc::default());
        }
        Ok(())
    }
}

/// References that a graph or an executable has. A copy has references of its own.
#[derive(Default)]
pub(crate) struct References(Vec<(Arc<UserObject>, usize)>);

impl References {
    pub(crate) fn add(&mut self, object: Arc<UserObject>, count: usize) {
        match self.0.iter_mut().find(|(known, _)| known.handle == object.handle) {
            Some((_, held)) => *held += count,
            None => self.0.push((object, count)),
        }
    }

    pub(crate) fn remove(&mut self, object: &UserObject, count: usize) -> Outcome {
        let found = self.0.iter_mut().find(|(known, _)| known.handle == object.handle);
        let (_, held) = found.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        *held = held.checked_sub(count).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        object.release(count)
    }

    /// Gives them back once that is over.
    pub(crate) fn release_after(self, done: &Arc<Done>) {
        if !self.0.is_empty() {
            engine::submit(Work::Host(Box::new(move |_| drop(self))), &[Arc::clone(done)], &Arc::default());
        }
    }
}

impl Clone for References {
    fn clone(&self) -> Self {
        for (object, count) in &self.0 {
            object.retain(*count);
        }
        Self(self.0.clone())
    }
}

impl Drop for References {
    fn drop(&mut self) {
        for (object, count) in &self.0 {
            // They are held, so there are as many.
            let _ = object.release(*count);
        }
    }
}
