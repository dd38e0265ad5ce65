//! The board between real processes and against pages that lie.

#![cfg(not(loom))]

mod child;
mod filtered;
mod hostile;
mod join;
mod pages;
mod places;
mod processes;
mod socket;
mod table;

use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::sync::atomic::{AtomicU64, Ordering};

/// A group as somebody makes it who does not use this crate: the file, and its words to write anything into.
struct Forged {
    file: OwnedFd,
    words: &'static [AtomicU64],
}

/// Of these sizes the groups are.
const TENANT_BYTES: usize = 130 * 4096;
const DAEMON_BYTES: usize = 133 * 4096;

impl Forged {
    /// The header of a tenant's group (kind 1) or the daemon's (kind 2).
    fn new(bytes: usize, kind: u64) -> Self {
        let forged = Self::unsealed(bytes);
        let header = [u64::from_le_bytes(*b"detshare"), kind << 32 | u64::from(detshare_board::LAYOUT), bytes as u64];
        for (word, value) in forged.words.iter().zip(header) {
            word.store(value, Ordering::Relaxed);
        }
        fcntl_add_seals(&forged.file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE).expect("sealed");
        forged
    }

    fn unsealed(bytes: usize) -> Self {
        let file = memfd_create("forged", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("memfd");
        ftruncate(&file, bytes as u64).expect("memory");
        // SAFETY: a new mapping at an address that the kernel chooses.
        let address = unsafe {
            mmap(core::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0)
        };
        let first = address.expect("mapped").cast::<AtomicU64>();
        // SAFETY: mapped with that size, never unmapped, aligned to a page; any bytes are atomics.
        let words = unsafe { core::slice::from_raw_parts(first, bytes / size_of::<AtomicU64>()) };
        Self { file, words }
    }
}
