//! Page groups as sealed memory files: written by who made them, only read by everybody else.

use crate::layout::{Group, Header, LAYOUT, MAGIC};
use crate::sync::Ordering;
use core::ffi::c_void;
use core::ops::Deref;
use core::ptr::NonNull;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mmap, mmap_anonymous, mremap, munmap};

/// `SHRINK`: or an owner could cut the file and readers would get `SIGBUS`. `FUTURE_WRITE`: whoever gets the file, even
/// through `/proc`, cannot write to it or map it writable; the mapping that the owner has by then stays.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE);

/// Why a page group could not be made or mapped.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// The kernel refused a step.
    #[error("cannot {what} a page group of the board: {source}")]
    Os {
        /// What was tried.
        what: &'static str,
        /// The kernel's answer.
        source: Errno,
    },
    /// Its owner could still cut it short or hand it out writable.
    #[error("not a page group of the board: it is not sealed against shrinking, growing and writing")]
    NotSealed,
    /// The file has another size than the group.
    #[error("the page group has {found} bytes instead of {expected}: made by another version of DetShare?")]
    Size {
        /// What this version's group has.
        expected: u64,
        /// What the file has, or its header says.
        found: u64,
    },
    /// The header does not begin as it should.
    #[error("not a page group of the board: it begins with {found:#018x}")]
    Magic {
        /// What is there instead.
        found: u64,
    },
    /// Made by another version.
    #[error("the page group has layout {found}, this is layout {LAYOUT}: restart the older of the two programs")]
    Layout {
        /// What the header says.
        found: u32,
    },
    /// A tenant's group where the daemon's was expected, or the other way round.
    #[error("a page group of kind {found} where {expected} was expected")]
    Kind {
        /// What was expected.
        expected: u32,
        /// What the header says.
        found: u32,
    },
}

fn os(what: &'static str) -> impl FnOnce(Errno) -> MapError {
    move |source| MapError::Os { what, source }
}

/// The number of a group's file: the same for all who have it, whatever container they are in, and no other file's while it is there.
#[must_use]
pub fn number_of(file: impl AsFd) -> Option<u64> {
    fstat(file).ok().map(|found| found.st_ino)
}

/// A group in this process's memory.
struct Mapping<T: Group>(NonNull<T>);

// SAFETY: a mapping belongs to the process, not to a thread, and holds atomics only.
unsafe impl<T: Group> Send for Mapping<T> {}
// SAFETY: as above.
unsafe impl<T: Group> Sync for Mapping<T> {}

impl<T: Group> Mapping<T> {
    /// Maps a file that has at least the group's size.
    fn new(file: BorrowedFd<'_>, protection: ProtFlags) -> Result<Self, Errno> {
        // Populated: nobody should meet a page fault at the first look.
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let address = unsafe { mmap(core::ptr::null_mut(), size_of::<T>(), protection, flags, file, 0)? };
        Ok(Self(NonNull::new(address.cast()).ok_or(Errno::NOMEM)?))
    }
}

impl<T: Group> Mapping<T> {
    /// Nothing but zeros, read-only.
    fn none() -> Result<Self, Errno> {
        // SAFETY: a new mapping at an address that the kernel chooses.
        let address =
            unsafe { mmap_anonymous(core::ptr::null_mut(), size_of::<T>(), ProtFlags::READ, MapFlags::PRIVATE)? };
        Ok(Self(NonNull::new(address.cast()).ok_or(Errno::NOMEM)?))
    }

    /// Maps zeros over this one.
    fn clear(&self) -> Result<(), Errno> {
        let (place, flags) = (self.0.as_ptr().cast(), MapFlags::PRIVATE | MapFlags::FIXED);
        // SAFETY: this very mapping, of this size, is replaced in one step; who reads meanwhile finds the one or the
        // other, and any bytes are a group of atomics.
        unsafe { mmap_anonymous(place, size_of::<T>(), ProtFlags::READ, flags) }.map(|_| ())
    }

    /// Maps the file over this one, read-only.
    fn cover(&self, file: BorrowedFd<'_>) -> Result<(), Errno> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE | MapFlags::FIXED;
        // SAFETY: as in `clear`.
        unsafe { mmap(self.0.as_ptr().cast(), size_of::<T>(), ProtFlags::READ, flags, file, 0) }.map(|_| ())
    }
}

impl<T: Group> Deref for Mapping<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: mapped with the group's size, aligned to a page, until the drop; the file cannot shrink; any bytes are
        // a value of a group of atomics, and who has a read-only mapping only loads.
        unsafe { self.0.as_ref() }
    }
}

impl<T: Group> Drop for Mapping<T> {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this size; references to it borrow `self`.
        _ = unsafe { munmap(self.0.as_ptr().cast(), size_of::<T>()) };
    }
}

/// A group that this process made and alone may write.
pub(crate) struct Own<T: Group> {
    pages: Mapping<T>,
    file: OwnedFd,
}

impl<T: Group> Own<T> {
    pub(crate) fn create() -> Result<Self, MapError> {
        let file =
            memfd_create(T::NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).map_err(os("make the file of"))?;
        ftruncate(&file, size_of::<T>() as u64).map_err(os("give memory to"))?;
        let pages: Mapping<T> = Mapping::new(file.as_fd(), ProtFlags::READ | ProtFlags::WRITE).map_err(os("map"))?;
        // Nobody else has the file yet: no order needed.
        let Header { magic, layout, kind, size } = pages.header();
        magic.store(MAGIC, Ordering::Relaxed);
        layout.store(LAYOUT, Ordering::Relaxed);
        kind.store(T::KIND, Ordering::Relaxed);
        size.store(size_of::<T>() as u64, Ordering::Relaxed);
        fcntl_add_seals(&file, SEALS | SealFlags::SEAL).map_err(os("seal"))?;
        Ok(Self { pages, file })
    }

    /// To hand out: it can be mapped read-only and no more.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl<T: Group> Deref for Own<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.pages
    }
}

/// A group of another process, read-only.
pub(crate) struct Others<T: Group>(Mapping<T>);

impl<T: Group> Others<T> {
    /// A place without a group: reads as zeros.
    pub(crate) fn none() -> Result<Self, MapError> {
        Ok(Self(Mapping::none().map_err(os("make room for"))?))
    }

    /// Puts another group here, after the checks of [`Others::map`], or leaves all as it was. Readers are not held up.
    pub(crate) fn replace(&self, file: BorrowedFd<'_>) -> Result<(), MapError> {
        drop(Self::map(file)?);
        self.0.cover(file).map_err(os("map"))
    }

    /// Its first page once more, at a place of its own. Nobody puts another group here meanwhile.
    pub(crate) fn first_page(&self) -> Result<FirstPage, MapError> {
        let old = self.0.0.as_ptr().cast();
        // SAFETY: of size 0, the old mapping stays as it is, and the same pages of its file are mapped anew where the
        // kernel likes. What is not of a file, as zeros are, is refused.
        let address = unsafe { mremap(old, 0, FIRST_PAGE, MremapFlags::MAYMOVE) }.map_err(os("map once more"))?;
        NonNull::new(address).map(FirstPage).ok_or(Errno::NOMEM).map_err(os("map once more"))
    }

    /// Back to zeros.
    pub(crate) fn clear(&self) -> Result<(), MapError> {
        self.0.clear().map_err(os("let go of"))
    }

    /// Maps it after checking that it is one and stays as it is. The file is not needed afterwards.
    pub(crate) fn map(file: BorrowedFd<'_>) -> Result<Self, MapError> {
        let seals = fcntl_get_seals(file).map_err(|_| MapError::NotSealed)?;
        if !seals.contains(SEALS) {
            return Err(MapError::NotSealed);
        }
        let expected = size_of::<T>() as u64;
        let found = fstat(file).map_err(os("look at"))?.st_size.cast_unsigned();
        if found != expected {
            return Err(MapError::Size { expected, found });
        }
        let pages = Mapping::new(file, ProtFlags::READ).map_err(os("map"))?;
        check::<T>(&pages)?;
        Ok(Self(pages))
    }
}

impl<T: Group> Deref for Others<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// Bytes of a page.
pub(crate) const FIRST_PAGE: usize = 4096;

/// The first page of another process's group, read-only, that stays when something else is put in that group's place.
pub(crate) struct FirstPage(NonNull<c_void>);

// SAFETY: as for `Mapping`.
unsafe impl Send for FirstPage {}
// SAFETY: as for `Mapping`.
unsafe impl Sync for FirstPage {}

impl FirstPage {
    pub(crate) const fn start(&self) -> *mut c_void {
        self.0.as_ptr()
    }
}

impl Drop for FirstPage {
    fn drop(&mut self) {
        // SAFETY: mapped in `first_page` with this size; whoever was told of the address has let go of it.
        _ = unsafe { munmap(self.0.as_ptr(), FIRST_PAGE) };
    }
}

fn check<T: Group>(pages: &T) -> Result<(), MapError> {
    let header = pages.header();
    let found = header.magic.load(Ordering::Relaxed);
    if found != MAGIC {
        return Err(MapError::Magic { found });
    }
    let found = header.layout.load(Ordering::Relaxed);
    if found != LAYOUT {
        return Err(MapError::Layout { found });
    }
    let (expected, found) = (T::KIND, header.kind.load(Ordering::Relaxed));
    if found != expected {
        return Err(MapError::Kind { expected, found });
    }
    let (expected, found) = (size_of::<T>() as u64, header.size.load(Ordering::Relaxed));
    if found != expected {
        return Err(MapError::Size { expected, found });
    }
    Ok(())
}
