//! What is in a module, as a number: kernels of the same name in different modules are different kernels.
//!
//! The number is made when the program loads a module or a library, and goes from there to every handle that the program
//! gets out of it. A handle that came by another way has 0: its kernel is known by the rest that is known of it.

use crate::handles::Handles;
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// All of a module up to this size counts, and as much of a larger one, in pieces from all over it.
const MOST: usize = 1 << 20;
const PIECE: usize = 4096;

/// Modules, libraries, functions and kernels, by their handle.
static ORIGINS: Handles<Origin> = Handles::new();

/// Where a handle comes from.
#[derive(Default)]
struct Origin {
    /// The module or library.
    owner: AtomicUsize,
    content: AtomicU64,
}

/// The number of the module that a function or kernel is from; 0 where that is not known.
pub(crate) fn content(handle: usize) -> u64 {
    ORIGINS.find(handle).map_or(0, |origin| origin.content.load(Ordering::Relaxed))
}

/// The module or library that a function or kernel is from.
pub(crate) fn owner(handle: usize) -> Option<usize> {
    ORIGINS.find(handle).map(|origin| origin.owner.load(Ordering::Relaxed))
}

/// The program has loaded a module or a library from memory.
///
/// # Safety
/// The driver has found the image good.
pub(crate) unsafe fn loaded(handle: usize, image: *const c_void) {
    // SAFETY: the caller's promise.
    insert(handle, handle, unsafe { image_in(image.cast()) }.map_or(0, number));
}

/// The program has loaded a module or a library from a file.
///
/// # Safety
/// The name is a terminated text.
pub(crate) unsafe fn loaded_from_file(handle: usize, name: *const c_char) {
    // SAFETY: the caller's promise.
    let bytes = unsafe { read_file(name) };
    insert(handle, handle, bytes.map_or(0, |bytes| number(&bytes)));
}

/// The bytes of a file, if it is a plain one: a pipe has been read by the driver, and would be waited for.
///
/// # Safety
/// The name is a terminated text.
pub(crate) unsafe fn read_file(name: *const c_char) -> Option<Vec<u8>> {
    // SAFETY: the caller's promise.
    let name = OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes());
    let is_plain = std::fs::metadata(name).is_ok_and(|found| found.is_file());
    is_plain.then(|| std::fs::read(name).ok()).flatten()
}

/// The program has got a handle out of another one.
pub(crate) fn got(handle: usize, from: usize) {
    let Some(origin) = ORIGINS.find(from) else { return };
    let (owner, content) = (origin.owner.load(Ordering::Relaxed), origin.content.load(Ordering::Relaxed));
    let is_new = ORIGINS.find(handle).is_none_or(|known| {
        known.owner.load(Ordering::Relaxed) != owner || known.content.load(Ordering::Relaxed) != content
    });
    if is_new {
        insert(handle, owner, content);
    }
}

/// A module or library goes, and with it all that came from it.
pub(crate) fn unloaded(owner: usize) {
    ORIGINS.remove_if(|origin| origin.owner.load(Ordering::Relaxed) == owner);
}

fn insert(handle: usize, owner: usize, content: u64) {
    ORIGINS.insert(handle, |origin| {
        origin.owner.store(owner, Ordering::Relaxed);
        origin.content.store(content, Ordering::Relaxed);
    });
}

/// The bytes of an image, as far as its beginning tells how long it is.
///
/// # Safety
/// It is an image that the driver takes, and stays for as long as the bytes are used.
pub(crate) unsafe fn image_in<'a>(image: *const u8) -> Option<&'a [u8]> {
    /// What `nvcc` registers: a pointer to the fat binary comes after two numbers.
    const WRAPPER: u32 = 0x4662_43b1;
    const FAT_BINARY: u32 = 0xba55_ed50;
    const ELF: u32 = u32::from_le_bytes(*b"\x7fELF");
    // SAFETY: all images are longer than that, the shortest text that the driver takes too.
    let length = match unsafe { read(image, 0) } {
        WRAPPER => {
            // SAFETY: as the number says.
            let inner: *const u8 = unsafe { read(image, 8) };
            // SAFETY: likewise; one within another is none.
            let is_wrapped = !inner.is_null() && unsafe { read::<u32>(inner, 0) } == FAT_BINARY;
            // SAFETY: as above.
            return if is_wrapped { unsafe { image_in(inner) } } else { None };
        }
        FAT_BINARY => {
            // SAFETY: as the number says; then comes a version.
            let header: u16 = unsafe { read(image, 6) };
            // SAFETY: likewise.
            let rest: u64 = unsafe { read(image, 8) };
            usize::from(header).checked_add(usize::try_from(rest).ok()?)?
        }
        // SAFETY: as the number says.
        ELF => unsafe { length_of_elf(image)? },
        // SAFETY: PTX is a terminated text.
        text if is_text(text) => return Some(unsafe { CStr::from_ptr(image.cast()) }.to_bytes()),
        _ => return None,
    };
    // SAFETY: as long as it says of itself, and the driver has believed it; no slice is longer.
    isize::try_from(length).is_ok().then(|| unsafe { core::slice::from_raw_parts(image, length) })
}

fn is_text(start: u32) -> bool {
    start.to_le_bytes().iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace())
}

/// Where the last section, or the table of sections, ends.
///
/// # Safety
/// It is a 64-bit ELF file with its sections.
unsafe fn length_of_elf(image: *const u8) -> Option<usize> {
    /// A section without bytes in the file.
    const NO_BITS: u32 = 8;
    // SAFETY: within the header.
    let table: u64 = unsafe { read(image, 0x28) };
    // SAFETY: likewise.
    let [entry, count]: [u16; 2] = unsafe { read(image, 0x3a) };
    let mut end = table.checked_add(u64::from(entry) * u64::from(count))?;
    for number in 0..u64::from(count) {
        let at = usize::try_from(table + u64::from(entry) * number).ok()?;
        // SAFETY: within the table.
        let kind: u32 = unsafe { read(image, at + 4) };
        // SAFETY: likewise.
        let [start, size]: [u64; 2] = unsafe { read(image, at + 0x18) };
        if kind != NO_BITS {
            end = end.max(start.checked_add(size)?);
        }
    }
    usize::try_from(end).ok()
}

/// What stands there in an image.
///
/// # Safety
/// The image reaches so far, and what stands there can be a `T`.
unsafe fn read<T: Copy>(image: *const u8, at: usize) -> T {
    // SAFETY: the caller's promise.
    let place = unsafe { image.add(at) };
    // SAFETY: likewise.
    unsafe { place.cast::<T>().read_unaligned() }
}

/// A number for these bytes.
fn number(bytes: &[u8]) -> u64 {
    let stride = PIECE.max(bytes.len().div_ceil(MOST / PIECE));
    let pieces = bytes.chunks(stride).map(|chunk| &chunk[..chunk.len().min(PIECE)]);
    let number = pieces.flat_map(|piece| piece.chunks(size_of::<u64>())).fold(bytes.len() as u64, |number, part| {
        let mut word = [0; size_of::<u64>()];
        word[..part.len()].copy_from_slice(part);
        mixed(number, u64::from_le_bytes(word))
    });
    // 0 is what is not known.
    number.max(1)
}

/// Two numbers as one.
pub(crate) fn mixed(one: u64, other: u64) -> u64 {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let mixed = (one.rotate_left(23) ^ other).wrapping_mul(GOLDEN);
    mixed ^ mixed >> 29
}
