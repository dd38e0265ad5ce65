//! Where the shim library is, and how a program is made to load it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Names the library to use.
pub(crate) const VARIABLE: &str = "DETSHARE_SHIM";

/// Where the library lies, seen from the folder of the `detshare` executable: beside it as cargo builds it, and as it is
/// installed.
const PLACES: [&str; 3] = ["libdetshare_shim.so", "../lib/libdetshare_shim.so", "../lib/detshare/libdetshare_shim.so"];

/// Why there is no shim library to use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FindError {
    /// The environment names a file that is not there.
    #[error(
        "{VARIABLE} names {}, which is not a file: set it to the shim library's path, or unset it to have it searched",
        .0.display()
    )]
    Named(PathBuf),
    /// It is at none of its places.
    #[error(
        "no shim library: looked for {}; put it there, or set {VARIABLE} to its path",
        .0.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", ")
    )]
    Nowhere(Vec<PathBuf>),
    /// The loader would take the path for several.
    #[error(
        "the shim library's path, {}, has a space or a colon in it, at which LD_PRELOAD would break it: \
         link it to a path without, and set {VARIABLE} to that",
        .0.display()
    )]
    Unloadable(PathBuf),
}

/// The shim library: the one that the environment names, or else the first of its places.
pub(crate) fn find() -> Result<PathBuf, FindError> {
    let executable = std::env::current_exe().unwrap_or_default();
    let named = std::env::var_os(VARIABLE).filter(|name| !name.is_empty());
    search(named.as_deref(), executable.parent().unwrap_or(Path::new("/")))
}

fn search(named: Option<&OsStr>, beside: &Path) -> Result<PathBuf, FindError> {
    let found = match named {
        Some(named) => file(Path::new(named)).ok_or_else(|| FindError::Named(named.into()))?,
        None => PLACES
            .iter()
            .find_map(|place| file(&beside.join(place)))
            .ok_or_else(|| FindError::Nowhere(PLACES.iter().map(|place| beside.join(place)).collect()))?,
    };
    if found.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b' ' | b':')) {
        return Err(FindError::Unloadable(found));
    }
    Ok(found)
}

/// The file's absolute path, since the program may run in another folder; it stays a link if it is one.
fn file(path: &Path) -> Option<PathBuf> {
    path.is_file().then(|| std::path::absolute(path).ok())?
}

/// The value of `LD_PRELOAD` that loads the shim before whatever was to be loaded already.
pub(crate) fn preload(shim: &Path, already: Option<&OsStr>) -> OsString {
    let mut libraries = shim.as_os_str().to_os_string();
    if let Some(already) = already.filter(|already| !already.is_empty()) {
        libraries.push(":");
        libraries.push(already);
    }
    libraries
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder_with(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let file = folder.path().join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "").unwrap();
        }
        std::fs::create_dir_all(folder.path().join("bin")).unwrap();
        folder
    }

    #[test]
    fn the_environment_goes_first() {
        let folder = folder_with(&["bin/libdetshare_shim.so", "mine.so"]);
        let mine = folder.path().join("mine.so");
        assert_eq!(search(Some(mine.as_os_str()), &folder.path().join("bin")).unwrap(), mine);
    }

    #[test]
    fn a_named_library_that_is_missing_is_no_reason_to_take_another() {
        let folder = folder_with(&["bin/libdetshare_shim.so"]);
        let found = search(Some(OsStr::new("/nowhere/shim.so")), &folder.path().join("bin"));
        assert!(matches!(found, Err(FindError::Named(path)) if path == Path::new("/nowhere/shim.so")));
    }

    #[test]
    fn beside_the_executable_before_lib() {
        let folder = folder_with(&["bin/libdetshare_shim.so", "lib/libdetshare_shim.so"]);
        let bin = folder.path().join("bin");
        assert_eq!(search(None, &bin).unwrap(), bin.join("libdetshare_shim.so"));
    }

    #[test]
    fn where_it_is_installed() {
        for place in ["lib/libdetshare_shim.so", "lib/detshare/libdetshare_shim.so"] {
            let folder = folder_with(&[place]);
            let found = search(None, &folder.path().join("bin")).unwrap();
            assert_eq!(found.canonicalize().unwrap(), folder.path().canonicalize().unwrap().join(place));
        }
    }

    #[test]
    fn nowhere_names_all_places() {
        let folder = folder_with(&[]);
        let message = search(None, &folder.path().join("bin")).unwrap_err().to_string();
        assert!(PLACES.iter().all(|place| message.contains(place)), "{message}");
    }

    #[test]
    fn a_path_that_the_loader_would_break() {
        let folder = folder_with(&["my libraries/shim.so"]);
        let named = folder.path().join("my libraries/shim.so");
        assert!(matches!(search(Some(named.as_os_str()), Path::new("/")), Err(FindError::Unloadable(_))));
    }

    #[test]
    fn what_was_to_be_loaded_already_stays() {
        assert_eq!(preload(Path::new("/a.so"), None), "/a.so");
        assert_eq!(preload(Path::new("/a.so"), Some(OsStr::new(""))), "/a.so");
        assert_eq!(preload(Path::new("/a.so"), Some(OsStr::new("/b.so:/c.so"))), "/a.so:/b.so:/c.so");
    }
}
