//! Memory of one process in another: by the number of the process that has it, the number of its file there, and
//! where in the file it lies.

use super::arena::{self, Kind, Wanted};
use super::space::{SYSTEM_PAGE, space};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;

/// A file of a process, as others find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileOf {
    pub(crate) process: u32,
    number: i32,
    /// Says whether the process, and its file, are still those that were meant.
    inode: u64,
}

impl FileOf {
    /// A file of this process.
    pub(crate) fn own(file: BorrowedFd<'_>) -> Option<Self> {
        let inode = File::from(file.try_clone_to_owned().ok()?).metadata().ok()?.ino();
        Some(Self { process: std::process::id(), number: file.as_raw_fd(), inode })
    }

    /// The file itself; None where it is there no more.
    pub(crate) fn open(&self) -> Option<File> {
        let path = format!("/proc/{}/fd/{}", self.process, self.number);
        let file = File::options().read(true).write(true).open(path).ok()?;
        (file.metadata().ok()?.ino() == self.inode).then_some(file)
    }

    pub(crate) fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&self.process.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..].copy_from_slice(&self.inode.to_le_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: [u8; 16]) -> Self {
        let (first, inode) = bytes.split_at(8);
        let (process, number) = first.split_at(4);
        Self {
            process: u32::from_le_bytes(process.try_into().unwrap_or_default()),
            number: i32::from_le_bytes(number.try_into().unwrap_or_default()),
            inode: u64::from_le_bytes(inode.try_into().unwrap_or_default()),
        }
    }
}

/// The file that all memory of this process lies in.
pub(crate) fn own_file() -> Option<FileOf> {
    FileOf::own(space().file()?)
}

/// Where in that file an address lies.
pub(crate) fn offset(address: u64) -> u64 {
    address - space().base
}

/// Maps a part of a file of another process; returns its address.
pub(crate) fn import(file: &File, offset: u64, bytes: u64, device: usize, context: usize) -> Option<u64> {
    let length = file.metadata().ok()?.len();
    if bytes == 0 || offset.checked_add(bytes)? > length {
        return None;
    }
    let lead = offset % SYSTEM_PAGE;
    let wanted = Wanted { bytes: lead + bytes, kind: Kind::Imported, device, context, align: 1, access: 0 };
    let range = arena::take(&wanted)?;
    let mapped = (lead + bytes).next_multiple_of(SYSTEM_PAGE);
    if !space().overlay(range.start, mapped, file.as_fd(), offset - lead) {
        arena::free(range.start);
        return None;
    }
    arena::grant(&range, super::ALL);
    Some(range.start + lead)
}
