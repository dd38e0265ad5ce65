//! Where things lie if nobody says otherwise.

use std::env;
use std::path::{Path, PathBuf};

/// Names the runtime folder.
pub const FOLDER_VARIABLE: &str = "DETSHARE_DIR";
/// Names the configuration file.
pub const CONFIG_VARIABLE: &str = "DETSHARE_CONFIG";

/// The runtime folder: the one that is named, or `$DETSHARE_DIR`, or `$XDG_RUNTIME_DIR/detshare`, or
/// `/tmp/detshare-UID`. Absolute, since tenants run in other folders.
#[must_use]
pub fn runtime_folder(named: Option<&Path>) -> PathBuf {
    let chosen = named.map(Path::to_path_buf).or_else(|| variable(FOLDER_VARIABLE));
    let chosen = chosen.or_else(|| Some(absolute_variable("XDG_RUNTIME_DIR")?.join("detshare")));
    let user = rustix::process::geteuid().as_raw();
    absolute(chosen.unwrap_or_else(|| format!("/tmp/detshare-{user}").into()))
}

/// The configuration file: the one that is named, or `$DETSHARE_CONFIG`, or `detshare/detshare.toml` in the user's folder
/// for such. Nothing if the user has none. It need not exist.
#[must_use]
pub fn config_file(named: Option<&Path>) -> Option<PathBuf> {
    let chosen = named.map(Path::to_path_buf).or_else(|| variable(CONFIG_VARIABLE));
    let usual = || Some(user_folder("XDG_CONFIG_HOME", ".config")?.join("detshare/detshare.toml"));
    chosen.or_else(usual).map(absolute)
}

/// Where profiles are kept. Nothing if the user has no folder for such.
#[must_use]
pub fn profiles_folder() -> Option<PathBuf> {
    Some(user_folder("XDG_STATE_HOME", ".local/state")?.join("detshare/profiles"))
}

/// The user's folder by an XDG variable, or at its usual place.
fn user_folder(name: &str, usual: &str) -> Option<PathBuf> {
    absolute_variable(name).or_else(|| Some(absolute_variable("HOME")?.join(usual)))
}

fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Relative ones are to be ignored, the XDG specification says.
fn absolute_variable(name: &str) -> Option<PathBuf> {
    variable(name).filter(|path| path.is_absolute())
}

/// It stays as it is if there is no current folder; then whoever uses it says so.
fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_goes_first_and_is_absolute() {
        assert_eq!(runtime_folder(Some(Path::new("/a/b"))), Path::new("/a/b"));
        let relative = runtime_folder(Some(Path::new("here")));
        assert_eq!(relative, env::current_dir().unwrap().join("here"));
        assert_eq!(config_file(Some(Path::new("/c.toml"))), Some("/c.toml".into()));
    }
}
