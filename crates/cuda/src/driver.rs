//! Finding a real driver and opening it.
//!
//! A driver is opened by its absolute path, never by its name: a library that stands in for the driver has
//! the same name and would be found instead. Files that carry the stand-in's note are passed over wherever
//! they lie.

use crate::elf::{self, ElfError};
use crate::entry::{self, Entry};
use crate::types::CUresult;
use crate::{functions, library_cache, release};
use core::ffi::{CStr, c_char, c_int, c_void};
use std::collections::HashSet;
use std::ffi::{CString, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The owner of the ELF note that a library carries which stands in for a driver.
pub const STAND_IN_NOTE: &str = "DetShare";

/// The oldest driver that has everything the shim builds on (green contexts), as `cuDriverGetVersion` says it.
pub const OLDEST_VERSION: i32 = 12_040;

const LIBRARY_NAME: &str = "libcuda.so.1";
const LOADER_CACHE: &str = "/etc/ld.so.cache";

/// Where installers put the driver when neither the search path nor the loader's cache knows it.
const USUAL_FOLDERS: [&str; 7] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/lib64",
    "/usr/local/nvidia/lib64",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
];

/// Why there is no driver.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// Nothing was named and nothing was found.
    #[error("no CUDA driver found (looked for {LIBRARY_NAME} in {0}); set DETSHARE_DRIVER to its absolute path")]
    NotFound(String),
    /// The named path is relative.
    #[error("DETSHARE_DRIVER is {0:?}: give the driver's absolute path")]
    NotAbsolute(PathBuf),
    /// The named file cannot be loaded.
    #[error("{path:?} is not a CUDA driver: {reason}")]
    NotLoadable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: ElfError,
    },
    /// The named file is a library, but not a driver.
    #[error("{0:?} is not a CUDA driver: it exports no cuInit")]
    NotADriver(PathBuf),
    /// The named file is DetShare itself.
    #[error("{0:?} is DetShare's own library, not a CUDA driver: set DETSHARE_DRIVER to the real one")]
    StandIn(PathBuf),
    /// The loader would not have it.
    #[error("cannot load the CUDA driver {path:?}: {reason}")]
    Refused {
        /// The file.
        path: PathBuf,
        /// The loader's words.
        reason: String,
    },
    /// It is too old, or does not say how old it is.
    #[error("the CUDA driver {path:?} has version {version}, older than {OLDEST_VERSION}: install a newer one")]
    TooOld {
        /// The file.
        path: PathBuf,
        /// As `cuDriverGetVersion` says it; 0 where it says nothing.
        version: i32,
    },
}

/// What decides where to look.
#[derive(Debug, Default)]
pub struct Search {
    /// The driver's absolute path, where the user named it.
    pub named: Option<OsString>,
    /// Folders to look in first, as in `LD_LIBRARY_PATH`.
    pub library_path: Option<OsString>,
}

/// Whether the driver's symbols become visible to the whole process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    /// Only through the handle.
    Local,
    /// To every library loaded before and after.
    Global,
}

/// An open driver. It is never closed: pointers into it are all over the process.
#[derive(Debug)]
pub struct Driver {
    path: PathBuf,
    version: i32,
    addresses: Box<[*mut c_void]>,
    by_address: Box<[(usize, usize)]>,
    release: Option<String>,
}

// SAFETY: the addresses are those of functions, which never move and may be called from any thread.
unsafe impl Send for Driver {}
// SAFETY: as above; nothing is changed after opening.
unsafe impl Sync for Driver {}

/// Finds the driver's file: the named one, or the first in the usual order that is not a stand-in.
pub fn find(search: &Search) -> Result<PathBuf, DriverError> {
    if let Some(named) = &search.named {
        let path = PathBuf::from(named);
        if !path.is_absolute() {
            return Err(DriverError::NotAbsolute(path));
        }
        return check(&path).map(|()| path);
    }
    let mut seen = HashSet::new();
    for path in candidates(search) {
        // The file itself, so that the loader and a later reader of maps agree on the name.
        let Ok(real) = path.canonicalize() else { continue };
        if seen.insert(real) && check(&path).is_ok() {
            return Ok(path);
        }
    }
    let folders =
        search.library_path.iter().filter(|path| !path.is_empty()).map(|path| path.to_string_lossy().into_owned());
    let looked_in: Vec<_> = folders.chain([LOADER_CACHE.into()]).chain(USUAL_FOLDERS.map(String::from)).collect();
    Err(DriverError::NotFound(looked_in.join(", ")))
}

/// Every place where the loader would look, in its order, then the usual folders.
fn candidates(search: &Search) -> Vec<PathBuf> {
    let from_path = search.library_path.iter().flat_map(|list| {
        list.as_bytes()
            .split(|byte| *byte == b':' || *byte == b';')
            .filter(|folder| !folder.is_empty())
            .map(|folder| PathBuf::from(OsString::from_vec(folder.to_vec())).join(LIBRARY_NAME))
    });
    let cached = std::fs::read(LOADER_CACHE).map(|cache| library_cache::paths_of(&cache, LIBRARY_NAME));
    let from_cache = cached.unwrap_or_default().into_iter().map(PathBuf::from);
    let usual = USUAL_FOLDERS.iter().map(|folder| Path::new(folder).join(LIBRARY_NAME));
    from_path.chain(from_cache).chain(usual).filter_map(|path| std::path::absolute(path).ok()).collect()
}

/// Whether the file is a driver, as far as can be seen without loading it.
fn check(path: &Path) -> Result<(), DriverError> {
    let library = elf::inspect(path).map_err(|reason| DriverError::NotLoadable { path: path.to_path_buf(), reason })?;
    if library.note_owners.iter().any(|owner| owner == STAND_IN_NOTE) {
        return Err(DriverError::StandIn(path.to_path_buf()));
    }
    if !library.functions.iter().any(|name| name == "cuInit") {
        return Err(DriverError::NotADriver(path.to_path_buf()));
    }
    Ok(())
}

impl Driver {
    /// Opens the driver at that path.
    pub fn open(path: &Path, visibility: Visibility) -> Result<Self, DriverError> {
        let handle = load(path, visibility)?;
        let addresses: Box<[_]> = functions().iter().map(|function| address(handle, function.name)).collect();
        let mut by_address: Vec<_> = addresses
            .iter()
            .enumerate()
            .filter(|(_, address)| !address.is_null())
            .map(|(index, address)| (address.addr(), index))
            .collect();
        by_address.sort_unstable();
        let by_address = by_address.into();
        let release = software_release(handle);
        let mut driver = Self { path: path.to_path_buf(), version: 0, addresses, by_address, release };
        driver.version = driver.ask_version();
        if driver.version < OLDEST_VERSION {
            return Err(DriverError::TooOld { path: path.to_path_buf(), version: driver.version });
        }
        Ok(driver)
    }

    /// The file it was opened from.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// As `cuDriverGetVersion` says it: 13000 for CUDA 13.0.
    #[must_use]
    pub fn version(&self) -> i32 {
        self.version
    }

    /// Which release it is, such as `580.82.07`, where it or its kernel module says so. Reads a file.
    #[must_use]
    pub fn release(&self) -> Option<String> {
        self.release.clone().or_else(release::of_kernel_module)
    }

    /// The address of the function with that index, NULL where this driver lacks it.
    #[must_use]
    pub fn address(&self, index: usize) -> *mut c_void {
        self.addresses[index]
    }

    /// The function, where this driver has it.
    #[must_use]
    pub fn function<F: Copy>(&self, entry: Entry<F>) -> Option<F> {
        let address = self.address(entry.index());
        // SAFETY: the address is that of the exported function whose type the entry carries, and a function
        // pointer has the size of an address.
        (!address.is_null()).then(|| unsafe { as_function(entry, address) })
    }

    /// Which function of the table lies at that address.
    #[must_use]
    pub fn index_of(&self, address: *const c_void) -> Option<usize> {
        let found = self.by_address.binary_search_by_key(&address.addr(), |(address, _)| *address).ok()?;
        Some(self.by_address[found].1)
    }

    /// The functions that the driver's file exports and the table does not name.
    #[must_use]
    pub fn unknown_functions(&self) -> Vec<String> {
        let known: HashSet<_> = functions().iter().map(|function| function.name).collect();
        let exported = elf::inspect(&self.path).map(|library| library.functions).unwrap_or_default();
        let mut unknown: Vec<_> = exported.into_iter().filter(|name| !known.contains(name.as_str())).collect();
        unknown.sort_unstable();
        unknown
    }

    fn ask_version(&self) -> i32 {
        let mut version: c_int = 0;
        let Some(get_version) = self.function(entry::cuDriverGetVersion) else { return 0 };
        // SAFETY: takes a pointer to an int, and may be called before cuInit.
        let result = unsafe { get_version(&raw mut version) };
        if result == CUresult::CUDA_SUCCESS { version } else { 0 }
    }
}

/// The address as a function of the entry's type.
///
/// # Safety
/// The address must be that of a function of the entry's type.
#[must_use]
pub unsafe fn as_function<F: Copy>(_: Entry<F>, address: *mut c_void) -> F {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: same size, asserted above; that it is such a function is the caller's promise.
    unsafe { core::mem::transmute_copy(&address) }
}

fn load(path: &Path, visibility: Visibility) -> Result<*mut c_void, DriverError> {
    let refused = |reason: String| DriverError::Refused { path: path.to_path_buf(), reason };
    let file = CString::new(path.as_os_str().as_bytes()).map_err(|error| refused(error.to_string()))?;
    let scope = match visibility {
        Visibility::Local => libc::RTLD_LOCAL,
        Visibility::Global => libc::RTLD_GLOBAL,
    };
    // SAFETY: a terminated path; the driver's constructors are written to be run by the loader.
    let handle = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_NODELETE | scope) };
    if handle.is_null() {
        return Err(refused(loader_error()));
    }
    Ok(handle)
}

fn loader_error() -> String {
    // SAFETY: no arguments; the text belongs to this thread until its next call of the loader.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the loader gives no reason".into();
    }
    // SAFETY: not NULL, and terminated by the loader.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// What the loader did not find for whoever opened a driver is no error of the program's: its `dlerror` is to know nothing of it, and
/// the text is given back.
pub fn forget_loader_errors() {
    // The call after the one that hands the text out gives it back.
    // SAFETY: no arguments, and nobody here holds a text from before.
    while !unsafe { libc::dlerror() }.is_null() {}
}

fn address(handle: *mut c_void, name: &str) -> *mut c_void {
    let Ok(name) = CString::new(name) else { return core::ptr::null_mut() };
    // SAFETY: an open handle and a terminated name.
    unsafe { libc::dlsym(handle, name.as_ptr()) }
}

/// What a software GPU says of itself.
fn software_release(handle: *mut c_void) -> Option<String> {
    let text = address(handle, release::SOFTWARE_RELEASE).cast::<c_char>();
    // SAFETY: a terminated text where the name is exported, and never unloaded.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn named(path: &Path) -> Result<PathBuf, DriverError> {
        find(&Search { named: Some(path.into()), library_path: None })
    }

    fn file(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
        let path = folder.join(name);
        std::fs::File::create(&path).and_then(|mut file| file.write_all(bytes)).expect("the folder can be written");
        path
    }

    #[test]
    fn a_relative_path_is_refused() {
        assert_eq!(named(Path::new("libcuda.so.1")), Err(DriverError::NotAbsolute("libcuda.so.1".into())));
    }

    #[test]
    fn what_is_no_library_is_named_as_such() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let reason = |path: &Path| match named(path) {
            Err(DriverError::NotLoadable { reason, .. }) => reason,
            other => panic!("{other:?}"),
        };
        assert_eq!(reason(&file(folder.path(), "empty", b"")), ElfError::NotElf);
        assert_eq!(reason(&file(folder.path(), "text", b"#!/bin/sh\necho no driver\n")), ElfError::NotElf);
        assert_eq!(reason(&file(folder.path(), "cut", b"\x7fELF\x02\x01\x01")), ElfError::NotElf);
        assert_eq!(reason(&file(folder.path(), "narrow", b"\x7fELF\x01\x01\x01\0\0\0\0\0")), ElfError::ThirtyTwoBit);
        assert!(matches!(reason(&folder.path().join("none")), ElfError::Unreadable(_)));
        assert!(matches!(reason(folder.path()), ElfError::Unreadable(_) | ElfError::NotElf));
    }

    #[test]
    fn a_library_without_cu_init_is_no_driver() {
        let libc = std::fs::read("/etc/ld.so.cache").map(|cache| library_cache::paths_of(&cache, "libc.so.6"));
        let path = PathBuf::from(&libc.expect("a loader cache")[0]);
        assert_eq!(named(&path), Err(DriverError::NotADriver(path)));
    }

    #[test]
    fn not_found_says_where_it_looked() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let search = Search { named: None, library_path: Some(folder.path().into()) };
        if let Err(error) = find(&search) {
            assert!(error.to_string().contains(&folder.path().display().to_string()), "{error}");
        }
    }
}
