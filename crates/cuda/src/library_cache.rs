//! The loader's cache: where `ldconfig` found a library.
//!
//! Asking the loader itself for `libcuda.so.1` from inside a library of that name yields that library, so the
//! cache is read here.

const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const HEADER_SIZE: usize = 48;
const COUNT_OFFSET: usize = 20;
const ENTRY_SIZE: usize = 24;
/// `FLAG_ELF_LIBC6 | FLAG_X8664_LIB64`: a library for 64-bit x86 processes.
const FLAGS_X86_64: u32 = 0x0303;

/// The paths of the 64-bit libraries with that name, in the loader's order. A damaged cache has none.
pub(crate) fn paths_of(cache: &[u8], name: &str) -> Vec<String> {
    // Older systems keep a cache in an older format in front.
    let Some(start) = cache.windows(MAGIC.len()).position(|window| window == MAGIC) else { return Vec::new() };
    let cache = &cache[start..];
    let Some(count) = word(cache, COUNT_OFFSET) else { return Vec::new() };
    (0..count as usize)
        .map_while(|index| entry(cache, HEADER_SIZE.checked_add(index.checked_mul(ENTRY_SIZE)?)?))
        .filter(|(flags, key, _)| *flags == FLAGS_X86_64 && *key == name)
        .map(|(_, _, path)| path.to_string())
        .collect()
}

/// Flags, name and path of one entry.
fn entry(cache: &[u8], offset: usize) -> Option<(u32, &str, &str)> {
    let flags = word(cache, offset)?;
    let key = text(cache, word(cache, offset + 4)? as usize)?;
    let path = text(cache, word(cache, offset + 8)? as usize)?;
    Some((flags, key, path))
}

fn word(cache: &[u8], offset: usize) -> Option<u32> {
    let bytes = cache.get(offset..offset.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn text(cache: &[u8], offset: usize) -> Option<&str> {
    let rest = cache.get(offset..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    std::str::from_utf8(&rest[..end]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(entries: &[(u32, &str, &str)]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(u32::try_from(entries.len()).expect("few").to_le_bytes());
        bytes.resize(HEADER_SIZE, 0);
        let mut strings = Vec::new();
        let strings_at = HEADER_SIZE + entries.len() * ENTRY_SIZE;
        for (flags, key, path) in entries {
            bytes.extend(flags.to_le_bytes());
            for text in [key, path] {
                bytes.extend(u32::try_from(strings_at + strings.len()).expect("small").to_le_bytes());
                strings.extend(text.bytes().chain([0]));
            }
            bytes.extend([0; 12]);
        }
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn finds_the_64_bit_ones_in_order() {
        let cache = cache(&[
            (0x0003, "libcuda.so.1", "/lib32/libcuda.so.1"),
            (0x0303, "libcuda.so.1", "/a/libcuda.so.1"),
            (0x0303, "libcudart.so", "/a/libcudart.so"),
            (0x0303, "libcuda.so.1", "/b/libcuda.so.1"),
        ]);
        assert_eq!(paths_of(&cache, "libcuda.so.1"), ["/a/libcuda.so.1", "/b/libcuda.so.1"]);
        let with_old_part = [b"ld.so-1.7.0 and more".to_vec(), cache].concat();
        assert_eq!(paths_of(&with_old_part, "libcudart.so"), ["/a/libcudart.so"]);
    }

    #[test]
    fn a_cut_off_cache_is_no_crash() {
        let whole = cache(&[(0x0303, "libcuda.so.1", "/a/libcuda.so.1")]);
        for end in 0..whole.len() {
            assert!(paths_of(&whole[..end], "libcuda.so.1").is_empty());
        }
    }

    #[test]
    fn reads_this_machines_cache() {
        if let Ok(cache) = std::fs::read("/etc/ld.so.cache") {
            assert!(!paths_of(&cache, "libc.so.6").is_empty());
        }
    }
}
