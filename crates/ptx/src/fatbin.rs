//! Fat binaries: what `nvcc` puts into programs, PTX and machine code for several architectures in one piece.
//!
//! Architectures are numbers such as 90, for compute capability 9.0. Nothing in a fat binary is trusted.

use std::borrow::Cow;
use std::io::Read;

/// What a fat binary begins with.
pub const MAGIC: u32 = 0xba55_ed50;
/// What the compiler puts into a program: this, a version, and a pointer to the fat binary.
pub const WRAPPER: u32 = 0x4662_43b1;
/// Bytes that say how long a fat binary is: see [`length`].
pub const HEADER: usize = 16;

const PTX: u16 = 1;
const MACHINE_CODE: u16 = 2;
/// Of no compiler: a text that is linked with all others of its kind.
const LINKED: u16 = 0x4453;
/// Flags of an entry whose payload is compressed, by LZ4 and by zstd,
const LZ4: u64 = 0x2000;
const ZSTD: u64 = 0x8000;
/// and of one for exactly its architecture, as `sm_90a` is.
const EXACT: u64 = 0x10_0000;
/// More text than any compiler writes: what a broken header says is no way to ask for memory.
const MOST_TEXT: u64 = 1 << 30;

/// Why there is no PTX.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FatBinaryError {
    /// It is no fat binary, or a broken one.
    #[error("the fat binary is broken")]
    Broken,
    /// Nothing that the device could run.
    #[error("the fat binary has no PTX for this GPU")]
    NoPtx,
    /// What runs was compiled for another architecture than its PTX, and may be another program.
    #[error("its machine code is for another architecture than its PTX")]
    OtherMachineCode,
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from(half(bytes, at)) | u32::from(half(bytes, at + 2)) << 16
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

/// Bytes of a whole fat binary, by its header: magic at 0, version at 4, size of the header at 6, of all entries at 8.
#[must_use]
pub fn length(header: &[u8; HEADER]) -> Option<usize> {
    let entries = usize::try_from(long(header, 8)).ok()?;
    usize::from(half(header, 6)).max(HEADER).checked_add(entries)
}

/// An entry. Kind at 0, size of its header at 4, of its payload at 8, of what is compressed in that at 16, architecture
/// at 28, flags at 40, size when it is not compressed at 56.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    header: &'a [u8],
    payload: &'a [u8],
}

/// An entry with its own bytes, to be unpacked later.
#[derive(Debug, Clone)]
pub struct OwnedEntry {
    header: Vec<u8>,
    payload: Vec<u8>,
}

impl OwnedEntry {
    /// Its PTX.
    pub fn text(&self) -> Result<String, FatBinaryError> {
        Entry { header: &self.header, payload: &self.payload }.text()
    }
}

/// The entries of a fat binary.
pub fn entries(bytes: &[u8]) -> Result<Vec<Entry<'_>>, FatBinaryError> {
    let header = bytes.first_chunk().filter(|header| word(&header[..], 0) == MAGIC).ok_or(FatBinaryError::Broken)?;
    let end = length(header).ok_or(FatBinaryError::Broken)?;
    let mut rest = bytes.get(usize::from(half(header, 6)).max(HEADER)..end).ok_or(FatBinaryError::Broken)?;
    let mut entries = Vec::new();
    while let Some((entry, behind)) = Entry::first(rest)? {
        entries.push(entry);
        rest = behind;
    }
    Ok(entries)
}

/// The size of the header, as it stands in it.
const HEADER_BYTES: [u8; 2] = [16, 0];

/// A fat binary of texts that belong together, as a driver without machine code may link them.
#[must_use]
pub fn link(texts: &[String]) -> Vec<u8> {
    let mut entries = Vec::new();
    for text in texts {
        let mut header = [0; Entry::HEADER];
        header[..2].copy_from_slice(&LINKED.to_le_bytes());
        header[4] = Entry::HEADER_BYTE;
        header[8..16].copy_from_slice(&(text.len() as u64 + 1).to_le_bytes());
        entries.extend(header);
        entries.extend(text.as_bytes());
        entries.push(0);
    }
    let mut bytes = MAGIC.to_le_bytes().to_vec();
    bytes.extend(1_u16.to_le_bytes());
    bytes.extend(HEADER_BYTES);
    bytes.extend((entries.len() as u64).to_le_bytes());
    bytes.extend(entries);
    bytes
}

/// The texts that [`link`] put together; None if it is no such fat binary.
pub fn linked(entries: &[Entry<'_>]) -> Option<Result<Vec<String>, FatBinaryError>> {
    let is_linked = entries.first().is_some_and(|entry| half(entry.header, 0) == LINKED);
    is_linked.then(|| entries.iter().map(Entry::text).collect())
}

/// The PTX for a device: that for its own architecture is best, then that for the one closest before it.
pub fn best_ptx<'a, 'e>(entries: &'e [Entry<'a>], architecture: u32) -> Option<&'e Entry<'a>> {
    // The first of equals.
    entries
        .iter()
        .rev()
        .filter(|entry| entry.suits(architecture).is_some())
        .max_by_key(|entry| entry.suits(architecture))
}

/// The PTX of what a device runs: of its machine code, where there is some for it.
pub fn ptx_of_what_runs<'a>(entries: &[Entry<'a>], architecture: u32) -> Result<Entry<'a>, FatBinaryError> {
    let ptx = best_ptx(entries, architecture).ok_or(FatBinaryError::NoPtx)?;
    let machine_code = entries.iter().filter_map(|entry| entry.runs_as_it_is(architecture)).max();
    match machine_code {
        Some(compiled) if Some(compiled) != ptx.suits(architecture) => Err(FatBinaryError::OtherMachineCode),
        _ => Ok(*ptx),
    }
}

impl<'a> Entry<'a> {
    const HEADER: usize = 64;
    /// As it stands in one.
    const HEADER_BYTE: u8 = 64;

    /// The first entry of the bytes, and what is behind it; None at their end.
    fn first(bytes: &'a [u8]) -> Result<Option<(Self, &'a [u8])>, FatBinaryError> {
        let broken = FatBinaryError::Broken;
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

    /// Its architecture, and whether it is for exactly that one.
    fn architecture(&self) -> (u32, bool) {
        (word(self.header, 28), self.flags() & EXACT != 0)
    }

    /// How well its PTX suits the device, more being better; None for what it cannot run.
    fn suits(&self, device: u32) -> Option<(u32, bool)> {
        let (architecture, exact) = self.architecture();
        let runs = if exact { architecture == device } else { architecture <= device };
        (half(self.header, 0) == PTX && runs).then_some((architecture, exact))
    }

    /// The same for machine code, which runs on later ones of the same generation.
    fn runs_as_it_is(&self, device: u32) -> Option<(u32, bool)> {
        let (architecture, exact) = self.architecture();
        let runs =
            if exact { architecture == device } else { architecture / 10 == device / 10 && architecture <= device };
        (half(self.header, 0) == MACHINE_CODE && runs).then_some((architecture, exact))
    }

    /// With bytes of its own.
    #[must_use]
    pub fn owned(&self) -> OwnedEntry {
        OwnedEntry { header: self.header.to_vec(), payload: self.payload.to_vec() }
    }

    /// Its PTX.
    pub fn text(&self) -> Result<String, FatBinaryError> {
        let bytes = if self.flags() & (LZ4 | ZSTD) == 0 {
            Cow::Borrowed(self.payload)
        } else {
            Cow::Owned(self.unpack().ok_or(FatBinaryError::Broken)?)
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
        let mut bytes = MAGIC.to_le_bytes().to_vec();
        bytes.extend(1_u16.to_le_bytes());
        bytes.extend(16_u16.to_le_bytes());
        bytes.extend((body.len() as u64).to_le_bytes());
        bytes.extend(body);
        bytes
    }

    /// For compute capability 9.0.
    fn read(image: &[u8]) -> Result<String, FatBinaryError> {
        best_ptx(&entries(image)?, 90).ok_or(FatBinaryError::NoPtx)?.text()
    }

    fn of_what_runs(image: &[u8]) -> Result<String, FatBinaryError> {
        ptx_of_what_runs(&entries(image)?, 90)?.owned().text()
    }

    #[test]
    fn the_newest_ptx_of_a_fat_binary_is_taken() {
        let image = fat(&[
            entry(2, 90, 0, b"machine code"),
            entry(1, 70, 0, b".version 7.0\0\0\0"),
            entry(1, 90, 0, b".version 8.0\0"),
            entry(1, 80, 0, b".version 7.8"),
        ]);
        assert_eq!(read(&image).as_deref(), Ok(".version 8.0"));
        assert_eq!(of_what_runs(&image).as_deref(), Ok(".version 8.0"));
    }

    #[test]
    fn ptx_for_a_newer_device_is_passed_over() {
        let for_100 = entry(1, 100, 0, b".version 9.0");
        let image = fat(&[for_100.clone(), entry(1, 75, 0, b".version 7.5"), entry(1, 80, 0, b".version 7.8")]);
        assert_eq!(read(&image).as_deref(), Ok(".version 7.8"));
        assert_eq!(read(&fat(&[for_100])), Err(FatBinaryError::NoPtx));
        let exact = [entry(1, 90, 0x11, b"any"), entry(1, 90, EXACT, b"sm_90a"), entry(1, 80, EXACT, b"sm_80a")];
        assert_eq!(read(&fat(&exact)).as_deref(), Ok("sm_90a"));
    }

    #[test]
    fn machine_code_of_another_architecture_may_be_another_program() {
        let ptx = entry(1, 80, 0, b".version 7.8");
        let of =
            |kind, architecture, flags| of_what_runs(&fat(&[entry(kind, architecture, flags, b"code"), ptx.clone()]));
        assert_eq!(of(2, 90, 0), Err(FatBinaryError::OtherMachineCode));
        assert_eq!(of(2, 90, EXACT), Err(FatBinaryError::OtherMachineCode));
        // Code for Ampere, and for one that is newer, does not run there; so it is the PTX that does.
        for (architecture, flags) in [(80, 0), (86, 0), (100, 0), (91, 0), (80, EXACT)] {
            assert_eq!(of(2, architecture, flags).as_deref(), Ok(".version 7.8"));
        }
    }

    #[test]
    fn linked_texts_come_back() {
        let texts = vec!["first".to_string(), String::new(), "third".to_string()];
        let image = link(&texts);
        assert_eq!(linked(&entries(&image).unwrap()), Some(Ok(texts)));
        assert_eq!(read(&image), Err(FatBinaryError::NoPtx));
        assert_eq!(linked(&entries(&fat(&[entry(1, 90, 0, b"text")])).unwrap()), None);
    }

    #[test]
    fn what_is_broken_is_told() {
        assert_eq!(read(&fat(&[])), Err(FatBinaryError::NoPtx));
        assert_eq!(read(b"PTX"), Err(FatBinaryError::Broken));
        let image = fat(&[entry(1, 90, 0, b".version 8.0")]);
        for end in 0..image.len() {
            assert_eq!(read(&image[..end]), Err(FatBinaryError::Broken), "{end}");
        }
        let mut cut = image;
        let size = cut.len();
        cut[16 + 8..16 + 16].copy_from_slice(&(size as u64).to_le_bytes());
        assert_eq!(read(&cut), Err(FatBinaryError::Broken));
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
        assert_eq!(read(&fat(&[packed(LZ4, &lz4, 104)])), Ok(text.clone()));
        assert_eq!(read(&fat(&[packed(ZSTD, ZSTD_TEXT, 104)])), Ok(text));
    }

    #[test]
    fn broken_packing_is_told() {
        let broken = Err(FatBinaryError::Broken);
        for flags in [LZ4, ZSTD] {
            assert_eq!(read(&fat(&[packed(flags, b"nothing of the kind", 100)])), broken);
            assert_eq!(read(&fat(&[packed(flags, b"", 100)])), broken);
            assert_eq!(read(&fat(&[packed(flags, ZSTD_TEXT, u64::MAX)])), broken);
            for size in [0, 1, 103, 105, 1 << 20] {
                assert_eq!(read(&fat(&[packed(flags, ZSTD_TEXT, size)])), broken);
            }
            for cut in 0..ZSTD_TEXT.len() {
                assert_eq!(read(&fat(&[packed(flags, &ZSTD_TEXT[..cut], 104)])), broken);
            }
        }
        let mut too_long = packed(ZSTD, ZSTD_TEXT, 104);
        too_long[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(read(&fat(&[too_long])), broken);
    }
}
