//! What can be mapped, and how.

use crate::child::Child;
use crate::{DAEMON_BYTES, Forged, TENANT_BYTES};
use detshare_board::{Class, Daemon, DaemonView, LAYOUT, MapError, Tenant, TenantView, receive_fds};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, ftruncate, open};
use rustix::io::{Errno, pwrite};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mprotect, munmap};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

fn map(file: BorrowedFd<'_>, protection: ProtFlags) -> Result<*mut core::ffi::c_void, Errno> {
    // SAFETY: a new mapping at an address that the kernel chooses.
    unsafe { mmap(core::ptr::null_mut(), TENANT_BYTES, protection, MapFlags::SHARED, file, 0) }
}

fn cannot_be_written(file: BorrowedFd<'_>) {
    assert_eq!(map(file, ProtFlags::READ | ProtFlags::WRITE), Err(Errno::PERM));
    assert_eq!(map(file, ProtFlags::WRITE), Err(Errno::PERM));
    assert_eq!(pwrite(file, b"x", 0), Err(Errno::PERM));
    assert_eq!(ftruncate(file, 0), Err(Errno::PERM));
    assert_eq!(ftruncate(file, 1 << 20), Err(Errno::PERM));
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    assert_eq!(fallocate(file, hole, 0, TENANT_BYTES as u64), Err(Errno::PERM));

    let address = map(file, ProtFlags::READ).expect("can be read");
    // SAFETY: a mapping of our own that nothing refers to.
    let writable = unsafe { mprotect(address, TENANT_BYTES, MprotectFlags::READ | MprotectFlags::WRITE) };
    assert_eq!(writable, Err(Errno::ACCESS));
    // SAFETY: as above.
    unsafe { munmap(address, TENANT_BYTES) }.expect("unmapped");
}

#[test]
fn who_gets_a_group_cannot_write_it() {
    let child = Child::start("tenant");
    let received = receive_fds(&child.stream, &mut [0]).expect("a group");
    let file = received.files[0].as_fd();
    cannot_be_written(file);
    // Nor by opening it again.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    if let Ok(again) = open(path, OFlags::RDWR, Mode::empty()) {
        cannot_be_written(again.as_fd());
    }
    cannot_be_written(Daemon::create().expect("a group").file());
}

/// What is wrong with a tenant's group in which one word of the header is another.
fn refused(word: usize, value: u64) -> MapError {
    let forged = Forged::new(TENANT_BYTES, 1);
    TenantView::map(&forged.file).expect("as it should be");
    forged.words[word].store(value, Ordering::Relaxed);
    TenantView::map(&forged.file).expect_err("as it should not be")
}

#[test]
fn a_wrong_header_is_refused_by_name() {
    assert!(matches!(refused(0, 7), MapError::Magic { found: 7 }));
    let (next, layout) = (u64::from(LAYOUT) + 1, u64::from(LAYOUT));
    let error = refused(1, 1 << 32 | next);
    assert!(matches!(error, MapError::Layout { .. }));
    assert_eq!(
        error.to_string(),
        format!("the page group has layout {next}, this is layout {LAYOUT}: restart the older of the two programs")
    );
    assert!(matches!(refused(1, 2 << 32 | layout), MapError::Kind { expected: 1, found: 2 }));
    assert!(matches!(refused(2, 1 << 40), MapError::Size { expected: 532_480, .. }));
}

#[test]
fn a_wrong_file_is_refused_by_name() {
    let short = Forged::new(TENANT_BYTES / 2, 1);
    assert!(matches!(TenantView::map(&short.file), Err(MapError::Size { expected: 532_480, found: 266_240 })));
    let long = Forged::new(2 * TENANT_BYTES, 1);
    assert!(matches!(TenantView::map(&long.file), Err(MapError::Size { expected: 532_480, found: 1_064_960 })));
    let unsealed = Forged::unsealed(TENANT_BYTES);
    assert!(matches!(TenantView::map(&unsealed.file), Err(MapError::NotSealed)));
    let plain = tempfile::tempfile().expect("a file");
    assert!(matches!(TenantView::map(&plain), Err(MapError::NotSealed)));

    let tenant = Tenant::create(Class::Latency).expect("a group");
    assert!(matches!(DaemonView::map(tenant.file()), Err(MapError::Size { .. })));
    let forged = Forged::new(DAEMON_BYTES, 1);
    assert!(matches!(DaemonView::map(&forged.file), Err(MapError::Kind { expected: 2, found: 1 })));
}
