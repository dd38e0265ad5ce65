//! What a library file says of itself, read without loading it.

use object::LittleEndian as LE;
use object::elf::{EM_X86_64, ET_DYN, FileHeader64, STT_FUNC};
use object::read::elf::{FileHeader, ProgramHeader, Sym};
use object::read::{ReadCache, ReadRef};
use std::fs::File;
use std::path::Path;

/// Why a file cannot be loaded into this process.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ElfError {
    /// It could not be opened or read.
    #[error("cannot read it: {0}")]
    Unreadable(String),
    /// No ELF file, or a damaged one.
    #[error("it is not an ELF library")]
    NotElf,
    /// ELF for 32-bit processes.
    #[error("it is a 32-bit library, this process is 64-bit")]
    ThirtyTwoBit,
    /// ELF for another processor.
    #[error("it is built for another processor")]
    OtherMachine,
    /// An executable or an object file.
    #[error("it is not a shared library")]
    NotShared,
}

/// What matters of a library before it is loaded.
#[derive(Debug)]
pub(crate) struct Library {
    /// The owners named in its notes.
    pub(crate) note_owners: Vec<String>,
    /// The functions that it defines and exports.
    pub(crate) functions: Vec<String>,
}

const ELF_MAGIC: &[u8; 4] = b"\x7fELF";
const CLASS_OFFSET: u64 = 4;
const CLASS_32: u8 = 1;

pub(crate) fn inspect(path: &Path) -> Result<Library, ElfError> {
    let file = File::open(path).map_err(|error| ElfError::Unreadable(error.to_string()))?;
    let data = &ReadCache::new(file);
    let magic = data.read_bytes_at(0, 5).map_err(|()| ElfError::NotElf)?;
    if !magic.starts_with(ELF_MAGIC) {
        return Err(ElfError::NotElf);
    }
    if data.read_bytes_at(CLASS_OFFSET, 1) == Ok(&[CLASS_32]) {
        return Err(ElfError::ThirtyTwoBit);
    }
    let damaged = |_: object::Error| ElfError::NotElf;
    let header = FileHeader64::<LE>::parse(data).map_err(damaged)?;
    let endian = header.endian().map_err(damaged)?;
    if header.e_machine(endian) != EM_X86_64 {
        return Err(ElfError::OtherMachine);
    }
    if header.e_type(endian) != ET_DYN {
        return Err(ElfError::NotShared);
    }
    let mut note_owners = Vec::new();
    for segment in header.program_headers(endian, data).map_err(damaged)? {
        let Ok(Some(mut notes)) = segment.notes(endian, data) else { continue };
        while let Ok(Some(note)) = notes.next() {
            note_owners.push(String::from_utf8_lossy(note.name()).into_owned());
        }
    }
    let sections = header.sections(endian, data).map_err(damaged)?;
    let symbols = sections.symbols(endian, data, object::elf::SHT_DYNSYM).map_err(damaged)?;
    let functions = symbols
        .iter()
        .filter(|symbol| symbol.st_type() == STT_FUNC && !symbol.is_undefined(endian))
        .filter_map(|symbol| symbol.name(endian, symbols.strings()).ok())
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect();
    Ok(Library { note_owners, functions })
}
