//! How a program is made to load the shim library.

use crate::part::{self, SHIM};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Why there is no shim library to use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FindError {
    #[error(transparent)]
    Part(#[from] part::FindError),
    /// The loader would take the path for several.
    #[error(
        "the shim library's path, {}, has a space or a colon in it, at which LD_PRELOAD would break it: \
         link it to a path without, and set DETSHARE_SHIM to that",
        .0.display()
    )]
    Unloadable(PathBuf),
}

/// The shim library: the one that the environment names, or else the first of its places.
pub(crate) fn find() -> Result<PathBuf, FindError> {
    loadable(SHIM.find()?)
}

/// The path, if the loader would not break it.
pub(crate) fn loadable(path: PathBuf) -> Result<PathBuf, FindError> {
    if part::breaks_in_list(&path) { Err(FindError::Unloadable(path)) } else { Ok(path) }
}

/// The value of `LD_PRELOAD` that loads these before whatever was to be loaded already, and each once.
pub(crate) fn preload<P: AsRef<Path>>(first: &[P], already: Option<&OsStr>) -> OsString {
    let first = first.iter().map(|library| library.as_ref().as_os_str().as_bytes());
    let already = already.unwrap_or_default().as_bytes().split(|byte| matches!(byte, b' ' | b':'));
    let already = already.filter(|library| !library.is_empty() && !first.clone().any(|it| it == *library));
    let all: Vec<_> = first.clone().chain(already).collect();
    OsStr::from_bytes(&all.join(&b':')).to_os_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_the_loader_would_break() {
        assert!(matches!(loadable("/my libraries/shim.so".into()), Err(FindError::Unloadable(_))));
        assert!(matches!(loadable("/a:b/shim.so".into()), Err(FindError::Unloadable(_))));
        assert_eq!(loadable("/lib/shim.so".into()).unwrap(), Path::new("/lib/shim.so"));
    }

    #[test]
    fn what_was_to_be_loaded_already_stays() {
        assert_eq!(preload(&["/a.so"], None), "/a.so");
        assert_eq!(preload(&["/a.so"], Some(OsStr::new(""))), "/a.so");
        assert_eq!(preload(&["/a.so"], Some(OsStr::new("/b.so:/c.so"))), "/a.so:/b.so:/c.so");
        assert_eq!(preload(&["/a.so"], Some(OsStr::new("/a.so /b.so"))), "/a.so:/b.so", "a tenant's child");
        assert_eq!(preload(&["/a.so", "/c.so"], Some(OsStr::new("/b.so:/c.so"))), "/a.so:/c.so:/b.so");
    }
}
