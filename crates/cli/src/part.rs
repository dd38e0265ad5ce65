//! The parts of DetShare that are files of their own, and where they lie: where the environment says, else beside the
//! `detshare` executable as cargo builds them, else where they are installed, and a program also on `PATH`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A file that is needed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    /// For messages.
    pub(crate) name: &'static str,
    /// Names the file to use.
    pub(crate) variable: &'static str,
    file: &'static str,
    /// Seen from the folder of the `detshare` executable.
    folders: &'static [&'static str],
    /// Whether it is also looked for on `PATH`.
    on_path: bool,
}

const LIBRARY_FOLDERS: &[&str] = &["", "../lib", "../lib/detshare"];

/// The library that stands in for the driver.
pub(crate) const SHIM: Part = Part {
    name: "shim library",
    variable: "DETSHARE_SHIM",
    file: "libdetshare_shim.so",
    folders: LIBRARY_FOLDERS,
    on_path: false,
};

/// The driver that needs no GPU.
pub(crate) const SOFTGPU: Part = Part {
    name: "software GPU library",
    variable: "DETSHARE_SOFTGPU",
    file: "libdetshare_softgpu.so",
    folders: LIBRARY_FOLDERS,
    on_path: false,
};

/// The daemon's program.
pub(crate) const DAEMON: Part =
    Part { name: "daemon", variable: "DETSHARE_DAEMON", file: "detshared", folders: &[""], on_path: true };

/// Why a part cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FindError {
    /// The environment names a file that is not there.
    #[error(
        "{variable} names {}, which is not a file: set it to the {name}'s path, or unset it to have it searched",
        .path.display()
    )]
    Named { name: &'static str, variable: &'static str, path: PathBuf },
    /// It is at none of its places.
    #[error(
        "no {name}: looked for {}{}; put it there, or set {variable} to its path",
        .places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", "),
        if *.on_path { " and on PATH" } else { "" }
    )]
    Nowhere { name: &'static str, variable: &'static str, places: Vec<PathBuf>, on_path: bool },
}

impl Part {
    /// Its absolute path.
    pub(crate) fn find(&self) -> Result<PathBuf, FindError> {
        let executable = std::env::current_exe().unwrap_or_default();
        let named = std::env::var_os(self.variable).filter(|name| !name.is_empty());
        let path = std::env::var_os("PATH").unwrap_or_default();
        self.search(named.as_deref(), executable.parent().unwrap_or(Path::new("/")), &path)
    }

    pub(crate) fn search(&self, named: Option<&OsStr>, beside: &Path, path: &OsStr) -> Result<PathBuf, FindError> {
        let Self { name, variable, .. } = *self;
        if let Some(named) = named {
            return file(Path::new(named)).ok_or_else(|| FindError::Named { name, variable, path: named.into() });
        }
        let places: Vec<_> = self.folders.iter().map(|folder| beside.join(folder).join(self.file)).collect();
        let on_path = std::env::split_paths(path).filter(|_| self.on_path && !path.is_empty());
        let on_path = on_path.map(|folder| folder.join(self.file));
        let found = places.iter().cloned().chain(on_path).find_map(|place| file(&place));
        found.ok_or(FindError::Nowhere { name, variable, places, on_path: self.on_path })
    }
}

/// The file's absolute path, since it may be used in another folder; it stays a link if it is one.
fn file(path: &Path) -> Option<PathBuf> {
    path.is_file().then(|| std::path::absolute(path).ok())?
}

/// Whether the loader would take the path for several in `LD_PRELOAD`.
pub(crate) fn breaks_in_list(path: &Path) -> bool {
    path.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b' ' | b':'))
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

    fn search(part: &Part, named: Option<&OsStr>, beside: &Path) -> Result<PathBuf, FindError> {
        part.search(named, beside, OsStr::new(""))
    }

    #[test]
    fn the_environment_goes_first() {
        let folder = folder_with(&["bin/libdetshare_shim.so", "mine.so"]);
        let mine = folder.path().join("mine.so");
        assert_eq!(search(&SHIM, Some(mine.as_os_str()), &folder.path().join("bin")).unwrap(), mine);
    }

    #[test]
    fn a_named_library_that_is_missing_is_no_reason_to_take_another() {
        let folder = folder_with(&["bin/libdetshare_shim.so"]);
        let found = search(&SHIM, Some(OsStr::new("/nowhere/shim.so")), &folder.path().join("bin"));
        assert!(matches!(found, Err(FindError::Named { path, .. }) if path == Path::new("/nowhere/shim.so")));
    }

    #[test]
    fn beside_the_executable_before_lib() {
        let folder = folder_with(&["bin/libdetshare_shim.so", "lib/libdetshare_shim.so"]);
        let bin = folder.path().join("bin");
        assert_eq!(search(&SHIM, None, &bin).unwrap(), bin.join("libdetshare_shim.so"));
    }

    #[test]
    fn where_it_is_installed() {
        for place in ["lib/libdetshare_softgpu.so", "lib/detshare/libdetshare_softgpu.so"] {
            let folder = folder_with(&[place]);
            let found = search(&SOFTGPU, None, &folder.path().join("bin")).unwrap();
            assert_eq!(found.canonicalize().unwrap(), folder.path().canonicalize().unwrap().join(place));
        }
    }

    #[test]
    fn a_program_is_looked_for_on_the_path_too_but_last() {
        let folder = folder_with(&["elsewhere/detshared", "elsewhere/libdetshare_shim.so"]);
        let (bin, elsewhere) = (folder.path().join("bin"), folder.path().join("elsewhere"));
        assert_eq!(DAEMON.search(None, &bin, elsewhere.as_os_str()).unwrap(), elsewhere.join("detshared"));
        assert!(SHIM.search(None, &bin, elsewhere.as_os_str()).is_err());
        std::fs::write(bin.join("detshared"), "").unwrap();
        assert_eq!(DAEMON.search(None, &bin, elsewhere.as_os_str()).unwrap(), bin.join("detshared"));
    }

    #[test]
    fn nowhere_names_all_places() {
        let folder = folder_with(&[]);
        let message = search(&SHIM, None, &folder.path().join("bin")).unwrap_err().to_string();
        let named = ["bin/libdetshare_shim.so", "lib/libdetshare_shim.so", "lib/detshare/libdetshare_shim.so"];
        assert!(named.iter().all(|place| message.contains(place)), "{message}");
        let message = search(&DAEMON, None, &folder.path().join("bin")).unwrap_err().to_string();
        assert!(message.contains("on PATH") && message.contains("DETSHARE_DAEMON"), "{message}");
    }
}
