//! What tenants say of their kernels where block level is on: a file of each in our folder, which only its user can write. It is called
//! by the number of its page: a tenant in a container does not know its pid here.

use detshare_api::{BlockLevel, RuntimeFolder};
use detshare_board::number_of;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsFd;
use std::path::PathBuf;

/// A tenant has a few thousand kernels at most.
const LONGEST_FILE: u64 = 16 << 20;

fn path(folder: &RuntimeFolder, page: impl AsFd) -> Option<PathBuf> {
    Some(folder.path().join("block-level").join(format!("{}.json", number_of(page)?)))
}

/// What a tenant says, if it says anything that makes sense.
pub(crate) fn read(folder: &RuntimeFolder, page: impl AsFd) -> Option<BlockLevel> {
    let file = File::open(path(folder, page)?).ok()?;
    let mut text = Vec::new();
    file.take(LONGEST_FILE + 1).read_to_end(&mut text).ok()?;
    let is_whole = text.len() as u64 <= LONGEST_FILE;
    serde_json::from_slice(&text).ok().filter(|_| is_whole)
}

/// The tenant is gone; another one's page may get its number.
pub(crate) fn forget(folder: &RuntimeFolder, page: impl AsFd) {
    if let Some(path) = path(folder, page) {
        // Mostly there is none.
        _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_tenant_says_is_read_until_it_is_gone() {
        let place = tempfile::tempdir().unwrap();
        let folder = RuntimeFolder::make(&place.path().join("run")).unwrap();
        let tenant = detshare_board::Tenant::create(detshare_board::Class::BestEffort).unwrap();
        let page = tenant.file();
        assert_eq!(read(&folder, page), None);
        let said_in = path(&folder, page).unwrap();
        fs::create_dir(folder.path().join("block-level")).unwrap();
        fs::write(&said_in, r#"{"turnaround_ns":32000,"modules":[{"refused":"no PTX"}],"shapes":[]}"#).unwrap();
        let said = read(&folder, page).unwrap();
        assert_eq!((said.turnaround_ns, said.modules[0].refused.as_deref()), (32_000, Some("no PTX")));
        fs::write(&said_in, "{").unwrap();
        assert_eq!(read(&folder, page), None);
        forget(&folder, page);
        assert!(!said_in.exists());
    }
}
