//! Marks a library as one that the loader initialises before all others (`DF_1_INITFIRST`).
//!
//! Linkers have an option for it (`-z initfirst`), which the one for old systems does not know.

use anyhow::{Context, Result};
use object::Endianness;
use object::elf::{self, Dyn64};
use object::read::elf::{Dyn, ElfFile64, ProgramHeader};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The flag in the last byte of its little-endian word.
const FLAG: u8 = 0x20;

pub(crate) fn mark(library: &Path) -> Result<()> {
    let bytes = std::fs::read(library).with_context(|| format!("cannot read {}", library.display()))?;
    let place = flags(&bytes).with_context(|| format!("{} has no flags to set", library.display()))?;
    let found = bytes[place];
    if found & FLAG != 0 {
        return Ok(());
    }
    let file = File::options().write(true).open(library)?;
    file.write_all_at(&[found | FLAG], u64::try_from(place)?)
        .with_context(|| format!("cannot write {}", library.display()))
}

/// Where the lowest byte of the library's `DT_FLAGS_1` stands.
fn flags(bytes: &[u8]) -> Option<usize> {
    let file = ElfFile64::<Endianness>::parse(bytes).ok()?;
    let endian = file.endian();
    file.elf_program_headers().iter().find_map(|header| {
        let entries: &[Dyn64<Endianness>] = header.dynamic(endian, bytes).ok()??;
        let index = entries.iter().position(|entry| entry.tag(endian) == elf::DT_FLAGS_1)?;
        let value = index * size_of::<Dyn64<Endianness>>() + size_of::<u64>();
        Some(usize::try_from(header.p_offset(endian)).ok()? + value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_library_is_marked_once_and_nothing_else_in_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("library.so");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-nostdlib", "-x", "c", "-Wl,-z,nodelete", "/dev/null", "-o"]).arg(&library);
        assert!(compiler.status().unwrap().success());
        let before = std::fs::read(&library).unwrap();
        mark(&library).unwrap();
        let after = std::fs::read(&library).unwrap();
        let changed: Vec<_> = (0..before.len()).filter(|at| before[*at] != after[*at]).collect();
        assert_eq!(changed, [flags(&before).unwrap()]);
        assert_eq!((before[changed[0]], after[changed[0]]), (8, 8 | FLAG), "nodelete stays");
        mark(&library).unwrap();
        assert_eq!(std::fs::read(&library).unwrap(), after);
    }

    #[test]
    fn what_cannot_be_marked_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "no library").unwrap();
        assert!(mark(&file).unwrap_err().to_string().contains("no flags to set"));
    }
}
