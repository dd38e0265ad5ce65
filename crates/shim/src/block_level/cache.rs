//! Rewritten modules on disk, by the content of the original.
//!
//! An entry is one file in the daemon's folder. It is written whole or not at all, and begins with a checksum over the rest:
//! one that does not fit is set aside, and made anew. A disk that is full, or a folder that cannot be written, costs the time
//! to rewrite, and is told to those who ask.

use super::natural;
use crate::module::mixed;
use crate::settings;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// What the versions of a module are made of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Parts {
    /// The module that has them; None if there are none.
    pub(super) source: Option<String>,
    /// Variables of the original, and the slots that take their addresses.
    pub(super) borrowed: Vec<(String, String)>,
    pub(super) kernels: Vec<KernelParts>,
}

/// One kernel of the original.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KernelParts {
    pub(super) name: String,
    pub(super) layout: Layout,
    /// Each version, or why there is none.
    pub(super) sliced: Result<VersionParts, String>,
    pub(super) preemptible: Result<VersionParts, String>,
}

/// One version of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VersionParts {
    pub(super) name: String,
    /// Where its extra parameter lies.
    pub(super) work_offset: u32,
    /// Whether the x dimension of a block has to be a multiple of a warp.
    pub(super) whole_rows: bool,
}

/// Where a kernel's parameters lie: offset and size of each, and how many bytes that are.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Layout {
    pub(super) parameters: Vec<(u32, u32)>,
    pub(super) size: u32,
}

/// Entries together take no more; the oldest go.
const MOST_BYTES: u64 = 256 << 20;
const EXTENSION: &str = "versions";
const MAGIC: [u8; 8] = *b"DSparts1";

/// The sources of the rewriter that made an entry.
const REWRITER: &str = env!("DETSHARE_REWRITER");

/// The folder, if there is a daemon's.
pub(super) fn folder() -> Option<PathBuf> {
    settings::get().folder.as_ref().map(|folder| folder.join("block-level"))
}

/// What a module is kept by: its content, the driver and the rewriter.
pub(super) fn key(text: &str) -> u128 {
    let mut version = 0;
    cu!(cuDriverGetVersion(&raw mut version));
    number(&[text.as_bytes(), REWRITER.as_bytes(), &natural(version).to_le_bytes()])
}

/// FNV-1a with 128 bits, over all of these.
pub(super) fn number(texts: &[&[u8]]) -> u128 {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let lengths = texts.iter().fold(BASIS, |hash, text| (hash ^ text.len() as u128).wrapping_mul(PRIME));
    let bytes = texts.iter().flat_map(|text| text.iter());
    bytes.fold(lengths, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME))
}

/// What is kept of a module; and what was wrong with it, where something was.
pub(super) fn read(folder: &Path, key: u128) -> (Option<Parts>, Option<String>) {
    let path = path(folder, key);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return (None, None),
        Err(error) => return (None, Some(format!("the cache could not be read: {error}"))),
    };
    if let Some(parts) = decode(&bytes) {
        return (Some(parts), None);
    }
    // For those who want to know how it came to be; the next one replaces it.
    let aside = path.with_extension("broken");
    if fs::rename(&path, aside).is_err() {
        _ = fs::remove_file(&path);
    }
    (None, Some("its entry in the cache was corrupt and was made anew".to_string()))
}

/// Keeps it; says why that was not possible.
pub(super) fn write(folder: &Path, key: u128, parts: &Parts) -> Result<(), String> {
    let explain = |error: std::io::Error| format!("it could not be kept in the cache: {error}");
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(explain(error)),
        _ => {}
    }
    let bytes = encode(parts);
    make_room(folder, bytes.len() as u64);
    let path = path(folder, key);
    let unfinished = path.with_extension(format!("{}.part", std::process::id()));
    let written = fs::write(&unfinished, bytes).and_then(|()| fs::rename(&unfinished, &path));
    written.map_err(|error| {
        _ = fs::remove_file(&unfinished);
        explain(error)
    })
}

fn path(folder: &Path, key: u128) -> PathBuf {
    folder.join(format!("{key:032x}.{EXTENSION}"))
}

/// Takes the oldest entries away until another one fits.
fn make_room(folder: &Path, bytes: u64) {
    let Ok(files) = fs::read_dir(folder) else { return };
    let ours = files.flatten().filter(|file| file.path().extension().is_some_and(|it| it == EXTENSION));
    let mut entries: Vec<_> = ours
        .filter_map(|file| {
            let found = file.metadata().ok()?;
            Some((found.mtime(), found.size(), file.path()))
        })
        .collect();
    let mut all: u64 = entries.iter().map(|(_, size, _)| size).sum();
    entries.sort();
    for (_, size, path) in entries {
        if all.saturating_add(bytes) <= MOST_BYTES {
            return;
        }
        if fs::remove_file(path).is_ok() {
            all = all.saturating_sub(size);
        }
    }
}

/// Magic, checksum, and then one behind the other.
fn encode(parts: &Parts) -> Vec<u8> {
    let mut body = Vec::new();
    text(&mut body, parts.source.as_deref().unwrap_or_default());
    count(&mut body, parts.borrowed.len());
    for (variable, slot) in &parts.borrowed {
        text(&mut body, variable);
        text(&mut body, slot);
    }
    count(&mut body, parts.kernels.len());
    for kernel in &parts.kernels {
        text(&mut body, &kernel.name);
        body.extend(kernel.layout.size.to_le_bytes());
        count(&mut body, kernel.layout.parameters.len());
        for (offset, size) in &kernel.layout.parameters {
            body.extend(offset.to_le_bytes());
            body.extend(size.to_le_bytes());
        }
        for version in [&kernel.sliced, &kernel.preemptible] {
            let (offset, rows, words) = match version {
                Ok(version) => (version.work_offset, u32::from(version.whole_rows), &version.name),
                Err(reason) => (u32::MAX, 0, reason),
            };
            body.extend(offset.to_le_bytes());
            body.extend(rows.to_le_bytes());
            text(&mut body, words);
        }
    }
    let mut bytes = MAGIC.to_vec();
    bytes.extend(checksum(&body).to_le_bytes());
    bytes.extend(body);
    bytes
}

fn text(bytes: &mut Vec<u8>, text: &str) {
    count(bytes, text.len());
    bytes.extend(text.as_bytes());
}

fn count(bytes: &mut Vec<u8>, count: usize) {
    bytes.extend((count as u64).to_le_bytes());
}

fn checksum(body: &[u8]) -> u64 {
    body.chunks(8).fold(body.len() as u64, |sum, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mixed(sum, u64::from_le_bytes(word))
    })
}

/// None if these are no such bytes.
fn decode(bytes: &[u8]) -> Option<Parts> {
    let (head, rest) = bytes.split_first_chunk::<8>()?;
    let (sum, body) = rest.split_first_chunk::<8>()?;
    if *head != MAGIC || u64::from_le_bytes(*sum) != checksum(body) {
        return None;
    }
    let mut reader = Reader(body);
    let source = Some(reader.text()?).filter(|source| !source.is_empty());
    let borrowed = (0..reader.count()?).map(|_| Some((reader.text()?, reader.text()?))).collect::<Option<_>>()?;
    let kernels = (0..reader.count()?).map(|_| reader.kernel()).collect::<Option<_>>()?;
    reader.0.is_empty().then_some(Parts { source, borrowed, kernels })
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const SIZE: usize>(&mut self) -> Option<[u8; SIZE]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    /// No more than there can be.
    fn count(&mut self) -> Option<usize> {
        usize::try_from(u64::from_le_bytes(self.take()?)).ok().filter(|count| *count <= self.0.len())
    }

    fn text(&mut self) -> Option<String> {
        let length = self.count()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).ok()
    }

    fn word(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn kernel(&mut self) -> Option<KernelParts> {
        let (name, size) = (self.text()?, self.word()?);
        let parameters = (0..self.count()?).map(|_| Some((self.word()?, self.word()?))).collect::<Option<_>>()?;
        let mut version = || {
            let (work_offset, rows, name) = (self.word()?, self.word()?, self.text()?);
            let is_refused = work_offset == u32::MAX;
            Some(if is_refused { Err(name) } else { Ok(VersionParts { name, work_offset, whole_rows: rows != 0 }) })
        };
        let (sliced, preemptible) = (version()?, version()?);
        Some(KernelParts { name, layout: Layout { parameters, size }, sliced, preemptible })
    }
}
