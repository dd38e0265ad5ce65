//! What tenants say of their kernels where block level is on: a file of each in our folder, which only its user can write.

use detshare_api::{BlockLevel, RuntimeFolder};
use std::fs::{self, File};
use std::io::Read;
use std::path::PathBuf;

/// A tenant has a few thousand kernels at most.
const LONGEST_FILE: u64 = 16 << 20;

fn path(folder: &RuntimeFolder, pid: u32) -> PathBuf {
    folder.path().join("block-level").join(format!("{pid}.json"))
}

/// What a tenant says, if it says anything that makes sense.
pub(crate) fn read(folder: &RuntimeFolder, pid: u32) -> Option<BlockLevel> {
    let file = File::open(path(folder, pid)).ok()?;
    let mut text = Vec::new();
    file.take(LONGEST_FILE + 1).read_to_end(&mut text).ok()?;
    let is_whole = text.len() as u64 <= LONGEST_FILE;
    serde_json::from_slice(&text).ok().filter(|_| is_whole)
}

/// The tenant is gone; another one may get its number.
pub(crate) fn forget(folder: &RuntimeFolder, pid: u32) {
    // Mostly there is none.
    _ = fs::remove_file(path(folder, pid));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_tenant_says_is_read_until_it_is_gone() {
        let place = tempfile::tempdir().unwrap();
        let folder = RuntimeFolder::make(&place.path().join("run")).unwrap();
        assert_eq!(read(&folder, 7), None);
        fs::create_dir(folder.path().join("block-level")).unwrap();
        fs::write(path(&folder, 7), r#"{"turnaround_ns":32000,"modules":[{"refused":"no PTX"}],"shapes":[]}"#).unwrap();
        let said = read(&folder, 7).unwrap();
        assert_eq!((said.turnaround_ns, said.modules[0].refused.as_deref()), (32_000, Some("no PTX")));
        fs::write(path(&folder, 7), "{").unwrap();
        assert_eq!(read(&folder, 7), None);
        forget(&folder, 7);
        assert!(!path(&folder, 7).exists());
    }
}
