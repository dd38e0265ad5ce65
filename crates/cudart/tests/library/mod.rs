//! The libraries as they are built, on the software GPU.

use core::ffi::{CStr, c_void};
use std::ffi::CString;
use std::path::{Path, PathBuf};

/// Built by `cargo xtask test`, or by `cargo build --release`.
fn built(name: &str) -> PathBuf {
    let folder = std::env::var_os("DETSHARE_BUILT")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release"), PathBuf::from);
    folder.join(name)
}

fn open(name: &str) -> *mut c_void {
    let path = CString::new(built(name).into_os_string().into_encoded_bytes()).unwrap();
    // SAFETY: a terminated path of our own library.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_NODELETE) };
    assert!(
        !handle.is_null(),
        "cannot load {}: run the tests by `cargo xtask test`, which builds it",
        built(name).display()
    );
    handle
}

/// The runtime of a release.
pub(crate) struct Runtime {
    handle: *mut c_void,
    version: CString,
}

impl Runtime {
    /// With the software GPU as the driver, which the runtime then finds by its name.
    pub(crate) fn open(release: u32) -> Self {
        open("libdetshare_softgpu.so");
        let version = CString::new(format!("libcudart.so.{release}")).unwrap();
        Self { handle: open(&format!("libdetshare_cudart_{release}.so")), version }
    }

    /// The address of a function, with the version that programs ask for.
    pub(crate) fn address(&self, name: &str) -> *mut c_void {
        let name = CString::new(name).unwrap();
        // SAFETY: an open handle and terminated texts.
        unsafe { libc::dlvsym(self.handle, name.as_ptr(), self.version.as_ptr()) }
    }

    /// A function as that type.
    ///
    /// # Safety
    /// It is of that type.
    pub(crate) unsafe fn function<F: Copy>(&self, name: &CStr) -> F {
        let address = self.address(name.to_str().unwrap());
        assert!(!address.is_null(), "{name:?} is not there");
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        // SAFETY: same size, asserted above; that it is such a function is the caller's promise.
        unsafe { core::mem::transmute_copy(&address) }
    }
}
