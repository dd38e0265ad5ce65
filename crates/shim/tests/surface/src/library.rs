//! A library opened by its path.

use anyhow::{Context, Result, bail};
use core::ffi::{CStr, c_void};
use detshare_cuda::driver::as_function;
use detshare_cuda::entry::Entry;
use detshare_cuda::functions;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// An open library and where it came from.
pub(crate) struct Library {
    handle: *mut c_void,
    pub(crate) path: PathBuf,
}

impl Library {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: a terminated path; libraries' constructors are made to be run by the loader.
        let handle = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            // SAFETY: takes nothing.
            let reason = unsafe { libc::dlerror() };
            // SAFETY: the loader has just failed, so it has a reason, and it is terminated.
            let reason = unsafe { CStr::from_ptr(reason) };
            bail!("cannot load {}: {}", path.display(), reason.to_string_lossy());
        }
        Ok(Self { handle, path: path.to_path_buf() })
    }

    /// The address of an exported symbol, NULL if there is none.
    pub(crate) fn symbol(&self, name: &str) -> *mut c_void {
        let name = CString::new(name).expect("symbols have no NUL");
        // SAFETY: an open handle and a terminated name.
        unsafe { libc::dlsym(self.handle, name.as_ptr()) }
    }

    /// A function of the driver API.
    pub(crate) fn function<F: Copy>(&self, entry: Entry<F>) -> Result<F> {
        let name = functions()[entry.index()].name;
        let address = self.symbol(name);
        if address.is_null() {
            bail!("{} exports no {name}", self.path.display());
        }
        // SAFETY: the driver API's function of that name, which has the entry's type.
        Ok(unsafe { as_function(entry, address) })
    }

    /// Any other function.
    ///
    /// # Safety
    /// The symbol is a function of type `F`.
    pub(crate) unsafe fn own_function<F: Copy>(&self, name: &str) -> Result<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let address = self.symbol(name);
        if address.is_null() {
            bail!("{} exports no {name}: it is not the stub driver", self.path.display());
        }
        // SAFETY: same size; that it is such a function is the caller's promise.
        Ok(unsafe { core::mem::transmute_copy(&address) })
    }
}

/// Adds a name to an error.
pub(crate) fn of<T>(name: &str, result: Result<T>) -> Result<T> {
    result.with_context(|| name.to_string())
}
