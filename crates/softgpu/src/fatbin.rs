//! PTX out of the containers that it comes in.

use crate::boundary::{Outcome, log};
use core::ffi::CStr;
use detshare_cuda::types::CUresult;
use ruzstd::decoding::StreamingDecoder;
use std::io::Read;

/// What the compiler puts into a program: magic, version, and a pointer to the fat binary.
const WRAPPER: u32 = 0x4662_43b1;
const FAT_BINARY: u32 = 0xba55_ed50;
/// What `cuLinkComplete` returns: this, the number of texts, and the texts, each with its length.
const LINKED: &[u8; 16] = b"detshare linked\0";
const ELF: &[u8; 4] = b"\x7fELF";
const KIND_PTX: u16 = 1;
/// Flags of an entry whose payload is compressed.
const LZ4: u64 = 0x2000;
const ZSTD: u64 = 0x8000;
/// PTX for a newer architecture than the device's cannot run on it.
const ARCHITECTURE: u32 = 90;
/// No program has PTX of that size; a larger number in a header is no size.
const MOST_TEXT: u64 = 1 << 30;

/// Reads numbers out of the program's memory, one behind the other.
struct Cursor(*const u8);

impl Cursor {
    /// The bytes here, and on behind them.
    ///
    /// # Safety
    /// There are that many.
    unsafe fn take<'a>(&mut self, count: usize) -> &'a [u8] {
        // SAFETY: the caller's promise.
        let bytes = unsafe { core::slice::from_raw_parts(self.0, count) };
        // SAFETY: the end of those bytes.
        self.0 = unsafe { self.0.add(count) };
        bytes
    }

    /// The 64-bit number here, and on behind it.
    ///
    /// # Safety
    /// There is one.
    unsafe fn number(&mut self) -> Outcome<usize> {
        // SAFETY: the caller's promise.
        let bytes = unsafe { self.take(8) };
        usize::try_from(long(bytes, 0)).map_err(|_| CUresult::CUDA_ERROR_INVALID_IMAGE)
    }
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// # Safety
/// `image` points to PTX with a terminator, a fat binary or its wrapper, or linked texts.
pub(crate) unsafe fn texts(image: *const u8) -> Outcome<Vec<String>> {
    // SAFETY: binary images are longer, and a text has a terminator.
    let start = unsafe { prefix(image) };
    if start[0] == 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_IMAGE);
    }
    match u32::from_le_bytes(start) {
        WRAPPER => {
            // SAFETY: the wrapper has 24 bytes.
            let wrapper = unsafe { Cursor(image).take(16) };
            let address = usize::try_from(long(wrapper, 8)).map_err(|_| CUresult::CUDA_ERROR_INVALID_IMAGE)?;
            // SAFETY: the compiler's own fat binary.
            unsafe { fat_binary(core::ptr::with_exposed_provenance(address)) }
        }
        // SAFETY: a fat binary by its magic.
        FAT_BINARY => unsafe { fat_binary(image) },
        _ if &start == ELF => {
            log(format_args!("machine code without PTX: compile for a virtual architecture (compute_XX) too"));
            Err(CUresult::CUDA_ERROR_INVALID_IMAGE)
        }
        _ => {
            // SAFETY: text up to its terminator.
            let text = unsafe { CStr::from_ptr(image.cast()) };
            if text.to_bytes_with_nul() == LINKED {
                // SAFETY: made by `link`.
                return unsafe { linked(image) };
            }
            let text = text.to_str().map_err(|_| CUresult::CUDA_ERROR_INVALID_IMAGE)?;
            Ok(vec![text.to_string()])
        }
    }
}

/// The first four bytes, zeros from a terminator on.
///
/// # Safety
/// There are four bytes, or a terminator before.
unsafe fn prefix(image: *const u8) -> [u8; 4] {
    let mut bytes = [0; 4];
    let mut cursor = Cursor(image);
    for byte in &mut bytes {
        // SAFETY: not past a terminator.
        *byte = unsafe { cursor.take(1) }[0];
        if *byte == 0 {
            break;
        }
    }
    bytes
}

/// The texts as one image that this driver loads again.
pub(crate) fn link(texts: &[String]) -> Vec<u8> {
    let mut image = LINKED.to_vec();
    image.extend((texts.len() as u64).to_le_bytes());
    for text in texts {
        image.extend((text.len() as u64).to_le_bytes());
        image.extend(text.as_bytes());
    }
    image
}

/// # Safety
/// `image` was made by `link`.
unsafe fn linked(image: *const u8) -> Outcome<Vec<String>> {
    let mut cursor = Cursor(image);
    // SAFETY: the image begins so.
    unsafe { cursor.take(LINKED.len()) };
    // SAFETY: then comes the number of texts.
    let count = unsafe { cursor.number()? };
    let mut texts = Vec::new();
    for _ in 0..count {
        // SAFETY: each text has its length in front.
        let length = unsafe { cursor.number()? };
        // SAFETY: and has that length.
        let bytes = unsafe { cursor.take(length) };
        texts.push(String::from_utf8_lossy(bytes).into_owned());
    }
    Ok(texts)
}

/// The text of an entry whose header and payload these are. Of a compressed one the header has the size of what is
/// compressed, which the payload is padded behind, and that of the text.
fn text(entry: &[u8], payload: &[u8]) -> Outcome<String> {
    let flags = long(entry, 40);
    let bytes = if flags & (LZ4 | ZSTD) == 0 {
        payload.to_vec()
    } else {
        let packed = payload.get(..word(entry, 16) as usize).ok_or(CUresult::CUDA_ERROR_INVALID_IMAGE)?;
        let size = Some(long(entry, 56)).filter(|size| *size <= MOST_TEXT);
        let size = size.and_then(|size| usize::try_from(size).ok()).ok_or(CUresult::CUDA_ERROR_INVALID_IMAGE)?;
        let unpacked = if flags & ZSTD != 0 { unpack_zstd(packed, size) } else { unpack_lz4(packed, size) };
        unpacked.filter(|bytes| bytes.len() == size).ok_or(CUresult::CUDA_ERROR_INVALID_IMAGE)?
    };
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(text).into_owned())
}

fn unpack_lz4(packed: &[u8], size: usize) -> Option<Vec<u8>> {
    lz4_flex::block::decompress(packed, size).ok()
}

fn unpack_zstd(packed: &[u8], size: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let decoder = StreamingDecoder::new(packed).ok()?;
    // One byte more than there should be, to see that there is none.
    decoder.take(size as u64 + 1).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Header: magic at 0, version at 4, size of the header at 6, of all entries at 8. Entry: kind at 0, size of its
/// header at 4, of its payload at 8, of what is compressed at 16, architecture at 28, flags at 40, size of the text at 56.
///
/// # Safety
/// `image` is NULL or a fat binary.
unsafe fn fat_binary(image: *const u8) -> Outcome<Vec<String>> {
    const HEADER: usize = 16;
    const ENTRY_HEADER: usize = 64;
    if image.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_IMAGE);
    }
    let mut cursor = Cursor(image);
    // SAFETY: a fat binary has its header.
    let header = unsafe { cursor.take(HEADER) };
    let entries_size = usize::try_from(long(header, 8)).map_err(|_| CUresult::CUDA_ERROR_INVALID_IMAGE)?;
    // SAFETY: the header may be longer in other versions; it says how long.
    unsafe { cursor.take(usize::from(half(header, 6)).saturating_sub(HEADER)) };
    // SAFETY: the header says how much follows.
    let mut rest = unsafe { cursor.take(entries_size) };
    let mut best: Option<(u32, &[u8], &[u8])> = None;
    let mut newer = false;
    while let Some(entry) = rest.get(..ENTRY_HEADER) {
        let payload_size = usize::try_from(long(entry, 8)).map_err(|_| CUresult::CUDA_ERROR_INVALID_IMAGE)?;
        let begin = word(entry, 4) as usize;
        let end = begin.checked_add(payload_size).filter(|end| *end > 0).ok_or(CUresult::CUDA_ERROR_INVALID_IMAGE)?;
        let payload = rest.get(begin..end).ok_or(CUresult::CUDA_ERROR_INVALID_IMAGE)?;
        if half(entry, 0) == KIND_PTX {
            let architecture = word(entry, 28);
            if architecture > ARCHITECTURE {
                newer = true;
            } else if best.is_none_or(|(other, ..)| architecture > other) {
                best = Some((architecture, entry, payload));
            }
        }
        rest = &rest[end..];
    }
    match best {
        Some((_, entry, payload)) => Ok(vec![text(entry, payload)?]),
        None => {
            let reason = if newer { "PTX for newer architectures only" } else { "no PTX" };
            log(format_args!("a fat binary with {reason}"));
            Err(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: u16, architecture: u32, flags: u64, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..2].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&64_u32.to_le_bytes());
        bytes[8..16].copy_from_slice(&(payload.len() as u64).to_le_bytes());
        bytes[28..32].copy_from_slice(&architecture.to_le_bytes());
        bytes[40..48].copy_from_slice(&flags.to_le_bytes());
        bytes.extend(payload);
        bytes
    }

    fn fat(entries: &[Vec<u8>]) -> Vec<u8> {
        let body = entries.concat();
        let mut bytes = FAT_BINARY.to_le_bytes().to_vec();
        bytes.extend(1_u16.to_le_bytes());
        bytes.extend(16_u16.to_le_bytes());
        bytes.extend((body.len() as u64).to_le_bytes());
        bytes.extend(body);
        bytes
    }

    fn read(image: &[u8]) -> Outcome<Vec<String>> {
        // SAFETY: whole images.
        unsafe { texts(image.as_ptr()) }
    }

    #[test]
    fn the_newest_ptx_of_a_fat_binary_is_taken() {
        let image = fat(&[
            entry(2, 90, 0, b"machine code"),
            entry(1, 70, 0, b".version 7.0\0\0\0"),
            entry(1, 90, 0, b".version 8.0\0"),
            entry(1, 80, 0, b".version 7.8"),
            entry(1, 100, 0, b".version 8.6"),
        ]);
        assert_eq!(read(&image), Ok(vec![".version 8.0".to_string()]));
        let address = image.as_ptr().expose_provenance() as u64;
        let wrapper = [u64::from(WRAPPER) | 1 << 32, address, 0].map(u64::to_le_bytes).concat();
        assert_eq!(read(&wrapper), Ok(vec![".version 8.0".to_string()]));
    }

    fn packed_entry(flags: u64, payload: &[u8], size: u64) -> Vec<u8> {
        let mut bytes = entry(1, 90, flags, payload);
        bytes[16..20].copy_from_slice(&u32::try_from(payload.len()).expect("short").to_le_bytes());
        bytes[56..64].copy_from_slice(&size.to_le_bytes());
        bytes
    }

    /// A zstd frame of one block: its magic, the size of what comes out, and a run of one byte.
    const FIVE_DOTS: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd, 0x20, 5, 0x2b, 0, 0, b'.'];
    /// LZ4: one literal, then four more from one place back, then a literal to end with.
    const FIVE_DOTS_LZ4: &[u8] = &[0x10, b'.', 1, 0, 0x10, 0];

    #[test]
    fn compressed_ptx_is_unpacked() {
        assert_eq!(read(&fat(&[packed_entry(ZSTD, FIVE_DOTS, 5)])), Ok(vec![".....".to_string()]));
        assert_eq!(read(&fat(&[packed_entry(LZ4, FIVE_DOTS_LZ4, 6)])), Ok(vec![".....".to_string()]));
    }

    #[test]
    fn what_cannot_be_unpacked_is_no_image() {
        let invalid = Err(CUresult::CUDA_ERROR_INVALID_IMAGE);
        for (flags, payload) in [(ZSTD, FIVE_DOTS), (LZ4, FIVE_DOTS_LZ4)] {
            for size in [0, 4, 7, MOST_TEXT, u64::MAX] {
                assert_eq!(read(&fat(&[packed_entry(flags, payload, size)])), invalid);
            }
            assert_eq!(read(&fat(&[packed_entry(flags, &payload[..3], 5)])), invalid);
            assert_eq!(read(&fat(&[packed_entry(flags, b"", 5)])), invalid);
        }
    }

    #[test]
    fn without_readable_ptx_there_is_no_binary() {
        assert_eq!(read(&fat(&[])), Err(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU));
        assert_eq!(read(&fat(&[entry(1, 100, 0, b".version 8.6")])), Err(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU));
        let mut cut = fat(&[entry(1, 90, 0, b".version 8.0")]);
        let size = cut.len();
        cut[16 + 8..16 + 16].copy_from_slice(&(size as u64).to_le_bytes());
        assert_eq!(read(&cut), Err(CUresult::CUDA_ERROR_INVALID_IMAGE));
    }

    #[test]
    fn linked_texts_come_back() {
        let linked = vec!["first".to_string(), String::new(), "third".to_string()];
        assert_eq!(read(&link(&linked)), Ok(linked));
    }
}
