//! PTX out of the containers that it comes in.

use crate::boundary::{Outcome, log};
use crate::module::ARCHITECTURE;
use core::ffi::CStr;
use detshare_cuda::types::CUresult;
use std::io::Read;

/// What the compiler puts into a program: magic, version, and a pointer to the fat binary.
const WRAPPER: u32 = 0x4662_43b1;
const FAT_BINARY: u32 = 0xba55_ed50;
/// What `cuLinkComplete` returns: this, the number of texts, and the texts, each with its length.
const LINKED: &[u8; 16] = b"detshare linked\0";
const ELF: &[u8; 4] = b"\x7fELF";
const KIND_PTX: u16 = 1;
/// Flags of an entry whose payload is compressed, by LZ4 and by zstd,
const LZ4: u64 = 0x2000;
const ZSTD: u64 = 0x8000;
/// and of one for exactly its architecture, as `sm_90a` is.
const EXACT: u64 = 0x10_0000;
/// More text than any compiler writes: what a broken header says is no way to ask for memory.
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

/// An entry of a fat binary. Kind at 0, size of its header at 4, of its payload at 8, of what is compressed in that at
/// 16, architecture at 28, flags at 40, size when it is not compressed at 56.
struct Entry<'a> {
    header: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Entry<'a> {
    const HEADER: usize = 64;

    /// The first entry of the bytes, and what is behind it; None at their end.
    fn first(bytes: &'a [u8]) -> Outcome<Option<(Self, &'a [u8])>> {
        let broken = CUresult::CUDA_ERROR_INVALID_IMAGE;
        let Some(header) = bytes.get(..Self::HEADER) else { return Ok(None) };
        let payload_size = usize::try_from(long(header, 8)).map_err(|_| broken)?;
        let begin = word(header, 4) as usize;
        let end = begin.checked_add(payload_size).filter(|end| *end > 0).ok_or(broken)?;
        let payload = bytes.get(begin..end).ok_or(broken)?;
        Ok(Some((Self { header, payload }, &bytes[end..])))
    }

    fn flags(&self) -> u64 {
        long(self.header, 40)
    }

    /// How well its PTX suits the device, more being better; None for what it cannot run.
    fn suits(&self) -> Option<(u32, bool)> {
        let (architecture, exact) = (word(self.header, 28), self.flags() & EXACT != 0);
        let runs = if exact { architecture == ARCHITECTURE } else { architecture <= ARCHITECTURE };
        (half(self.header, 0) == KIND_PTX && runs).then_some((architecture, exact))
    }

    /// Its PTX.
    fn text(&self) -> Outcome<String> {
        let unpacked;
        let bytes = if self.flags() & (LZ4 | ZSTD) == 0 {
            self.payload
        } else {
            unpacked = self.unpack().ok_or(CUresult::CUDA_ERROR_INVALID_IMAGE)?;
            &unpacked
        };
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    /// None where it is not what its header says.
    fn unpack(&self) -> Option<Vec<u8>> {
        let size = long(self.header, 56);
        let packed = self.payload.get(..word(self.header, 16) as usize)?;
        if size > MOST_TEXT {
            return None;
        }
        let unpacked = if self.flags() & LZ4 != 0 {
            let mut unpacked = vec![0; usize::try_from(size).ok()?];
            let length = lz4_flex::block::decompress_into(packed, &mut unpacked).ok()?;
            unpacked.truncate(length);
            unpacked
        } else {
            let mut unpacked = Vec::new();
            let decoder = ruzstd::decoding::StreamingDecoder::new(packed).ok()?;
            // One more than there should be, so that too much is noticed.
            decoder.take(size + 1).read_to_end(&mut unpacked).ok()?;
            unpacked
        };
        (unpacked.len() as u64 == size).then_some(unpacked)
    }
}

/// Header: magic at 0, version at 4, size of the header at 6, of all entries at 8. The PTX for the device's own
/// architecture is best, then that for the one closest before it.
///
/// # Safety
/// `image` is NULL or a fat binary.
unsafe fn fat_binary(image: *const u8) -> Outcome<Vec<String>> {
    const HEADER: usize = 16;
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
    let mut best: Option<Entry<'_>> = None;
    while let Some((entry, behind)) = Entry::first(rest)? {
        let better = best.as_ref().is_none_or(|best| entry.suits() > best.suits());
        if entry.suits().is_some() && better {
            best = Some(entry);
        }
        rest = behind;
    }
    let Some(best) = best else {
        log(format_args!("a fat binary without PTX for compute capability 9.0 or less"));
        return Err(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU);
    };
    Ok(vec![best.text()?])
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
        ]);
        assert_eq!(read(&image), Ok(vec![".version 8.0".to_string()]));
        let address = image.as_ptr().expose_provenance() as u64;
        let wrapper = [u64::from(WRAPPER) | 1 << 32, address, 0].map(u64::to_le_bytes).concat();
        assert_eq!(read(&wrapper), Ok(vec![".version 8.0".to_string()]));
    }

    #[test]
    fn ptx_for_a_newer_device_is_passed_over() {
        let for_100 = entry(1, 100, 0, b".version 9.0");
        let image = fat(&[for_100.clone(), entry(1, 75, 0, b".version 7.5"), entry(1, 80, 0, b".version 7.8")]);
        assert_eq!(read(&image), Ok(vec![".version 7.8".to_string()]));
        assert_eq!(read(&fat(&[for_100])), Err(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU));
        let exact = [entry(1, 90, 0x11, b"any"), entry(1, 90, EXACT, b"sm_90a"), entry(1, 80, EXACT, b"sm_80a")];
        assert_eq!(read(&fat(&exact)), Ok(vec!["sm_90a".to_string()]));
    }

    #[test]
    fn without_readable_ptx_there_is_no_binary() {
        assert_eq!(read(&fat(&[])), Err(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU));
        let mut cut = fat(&[entry(1, 90, 0, b".version 8.0")]);
        let size = cut.len();
        cut[16 + 8..16 + 16].copy_from_slice(&(size as u64).to_le_bytes());
        assert_eq!(read(&cut), Err(CUresult::CUDA_ERROR_INVALID_IMAGE));
    }

    /// An entry that says what it holds when it is unpacked.
    fn packed(flags: u64, payload: &[u8], size: u64) -> Vec<u8> {
        let mut bytes = entry(1, 90, flags, payload);
        bytes[16..20].copy_from_slice(&u32::try_from(payload.len()).expect("small").to_le_bytes());
        bytes[56..64].copy_from_slice(&size.to_le_bytes());
        bytes
    }

    /// `.version 8.0\n` eight times, as `zstd` packs it.
    const ZSTD_TEXT: &[u8] = &[
        0x28, 0xb5, 0x2f, 0xfd, 0x20, 0x68, 0xad, 0x00, 0x00, 0x70, 0x2e, 0x76, 0x65, 0x72, 0x73, 0x69, 0x6f, 0x6e,
        0x20, 0x38, 0x2e, 0x30, 0x0a, 0x2e, 0x01, 0x00, 0x07, 0xd3, 0x54, 0x02,
    ];

    #[test]
    fn packed_ptx_is_unpacked() {
        let text = ".version 8.0\n".repeat(8);
        // 13 bytes as they are, 86 bytes from 13 back, five bytes as they are.
        let mut lz4 = vec![0xdf];
        lz4.extend(b".version 8.0\n");
        lz4.extend([13, 0, 86 - 19]);
        lz4.push(0x50);
        lz4.extend(b" 8.0\n");
        assert_eq!(read(&fat(&[packed(LZ4, &lz4, 104)])), Ok(vec![text.clone()]));
        assert_eq!(read(&fat(&[packed(ZSTD, ZSTD_TEXT, 104)])), Ok(vec![text]));
    }

    #[test]
    fn broken_packing_is_an_invalid_image() {
        let invalid = Err(CUresult::CUDA_ERROR_INVALID_IMAGE);
        for flags in [LZ4, ZSTD] {
            assert_eq!(read(&fat(&[packed(flags, b"nothing of the kind", 100)])), invalid);
            assert_eq!(read(&fat(&[packed(flags, b"", 100)])), invalid);
            assert_eq!(read(&fat(&[packed(flags, ZSTD_TEXT, u64::MAX)])), invalid);
            for size in [0, 1, 103, 105, 1 << 20] {
                assert_eq!(read(&fat(&[packed(flags, ZSTD_TEXT, size)])), invalid);
            }
            for cut in 0..ZSTD_TEXT.len() {
                assert_eq!(read(&fat(&[packed(flags, &ZSTD_TEXT[..cut], 104)])), invalid);
            }
        }
        let mut too_long = packed(ZSTD, ZSTD_TEXT, 104);
        too_long[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(read(&fat(&[too_long])), invalid);
    }

    #[test]
    fn linked_texts_come_back() {
        let linked = vec!["first".to_string(), String::new(), "third".to_string()];
        assert_eq!(read(&link(&linked)), Ok(linked));
    }
}
