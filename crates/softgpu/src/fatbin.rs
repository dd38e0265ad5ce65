//! PTX out of the containers that it comes in.

use crate::boundary::{Outcome, log};
use crate::module::ARCHITECTURE;
use core::ffi::CStr;
use detshare_cuda::types::CUresult;
use detshare_ptx::fatbin::{self, FatBinaryError};

const ELF: &[u8; 4] = b"\x7fELF";

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
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// # Safety
/// `image` points to PTX with a terminator, a fat binary or its wrapper.
pub(crate) unsafe fn texts(image: *const u8) -> Outcome<Vec<String>> {
    // SAFETY: binary images are longer, and a text has a terminator.
    let start = unsafe { prefix(image) };
    if start[0] == 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_IMAGE);
    }
    match u32::from_le_bytes(start) {
        fatbin::WRAPPER => {
            // SAFETY: the wrapper has 24 bytes.
            let wrapper = unsafe { Cursor(image).take(16) };
            let address = usize::try_from(long(wrapper, 8)).map_err(|_| CUresult::CUDA_ERROR_INVALID_IMAGE)?;
            // SAFETY: the compiler's own fat binary.
            unsafe { fat_binary(core::ptr::with_exposed_provenance(address)) }
        }
        // SAFETY: a fat binary by its magic.
        fatbin::MAGIC => unsafe { fat_binary(image) },
        _ if &start == ELF => {
            log(format_args!("machine code without PTX: compile for a virtual architecture (compute_XX) too"));
            Err(CUresult::CUDA_ERROR_INVALID_IMAGE)
        }
        _ => {
            // SAFETY: text up to its terminator.
            let text = unsafe { CStr::from_ptr(image.cast()) };
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

/// # Safety
/// `image` is NULL or a fat binary.
unsafe fn fat_binary(image: *const u8) -> Outcome<Vec<String>> {
    let invalid = CUresult::CUDA_ERROR_INVALID_IMAGE;
    if image.is_null() {
        return Err(invalid);
    }
    // SAFETY: a fat binary has its header.
    let header = unsafe { Cursor(image).take(fatbin::HEADER) };
    let length = header.try_into().ok().and_then(fatbin::length).ok_or(invalid)?;
    // SAFETY: the header says how much follows.
    let bytes = unsafe { Cursor(image).take(length) };
    let entries = fatbin::entries(bytes).map_err(|_: FatBinaryError| invalid)?;
    if let Some(linked) = fatbin::linked(&entries) {
        return linked.map_err(|_: FatBinaryError| invalid);
    }
    let Some(best) = fatbin::best_ptx(&entries, ARCHITECTURE) else {
        log(format_args!("a fat binary without PTX for compute capability 9.0 or less"));
        return Err(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU);
    };
    Ok(vec![best.text().map_err(|_: FatBinaryError| invalid)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fat binary with one entry of PTX.
    fn fat(architecture: u32, text: &[u8]) -> Vec<u8> {
        let mut entry = vec![0; 64];
        entry[0] = 1;
        entry[4] = 64;
        entry[8..16].copy_from_slice(&(text.len() as u64).to_le_bytes());
        entry[28..32].copy_from_slice(&architecture.to_le_bytes());
        entry.extend(text);
        let mut bytes = fatbin::MAGIC.to_le_bytes().to_vec();
        bytes.extend([1, 0, 16, 0]);
        bytes.extend((entry.len() as u64).to_le_bytes());
        bytes.extend(entry);
        bytes
    }

    fn read(image: &[u8]) -> Outcome<Vec<String>> {
        // SAFETY: whole images.
        unsafe { texts(image.as_ptr()) }
    }

    #[test]
    fn a_wrapper_leads_to_its_fat_binary() {
        let image = fat(80, b".version 8.0\0");
        assert_eq!(read(&image), Ok(vec![".version 8.0".to_string()]));
        let address = image.as_ptr().expose_provenance() as u64;
        let wrapper = [u64::from(fatbin::WRAPPER) | 1 << 32, address, 0].map(u64::to_le_bytes).concat();
        assert_eq!(read(&wrapper), Ok(vec![".version 8.0".to_string()]));
    }

    #[test]
    fn without_readable_ptx_there_is_no_binary() {
        assert_eq!(read(&fat(100, b".version 9.0")), Err(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU));
        let mut broken = fat(90, b".version 8.0");
        broken[16 + 8] = 0xff;
        assert_eq!(read(&broken), Err(CUresult::CUDA_ERROR_INVALID_IMAGE));
    }
}
