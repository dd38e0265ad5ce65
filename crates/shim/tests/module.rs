//! What tells modules apart, whatever kind of image they come from.

#[path = "../src/handles.rs"]
#[expect(dead_code, reason = "the shim uses more of it")]
mod handles;
#[path = "../src/module.rs"]
#[expect(dead_code, reason = "the shim uses more of it")]
mod module;

use module::{content, got, loaded, loaded_from_file, unloaded};
use std::ffi::CString;

/// The number of an image that is loaded as this handle.
fn loaded_as(handle: usize, image: &[u8]) -> u64 {
    // SAFETY: the tests' images are what they say they are.
    unsafe { loaded(handle, image.as_ptr().cast()) };
    content(handle)
}

fn number_of(image: &[u8]) -> Option<u64> {
    Some(loaded_as(image.as_ptr().addr(), image)).filter(|number| *number != 0)
}

fn fat_binary(content: &[u8]) -> Vec<u8> {
    let mut image = 0xba55_ed50_u32.to_le_bytes().to_vec();
    image.extend([1, 0, 16, 0]);
    image.extend((content.len() as u64).to_le_bytes());
    image.extend(content);
    image
}

fn elf(content: &[u8]) -> Vec<u8> {
    const HEADER: usize = 0x40;
    let mut image = vec![0; HEADER];
    image[..4].copy_from_slice(b"\x7fELF");
    image[0x28..0x30].copy_from_slice(&(HEADER as u64).to_le_bytes());
    image[0x3a] = 0x40;
    image[0x3c] = 2;
    for (kind, size) in [(1_u32, content.len()), (8, 1 << 40)] {
        let mut section = vec![0; 0x40];
        section[4..8].copy_from_slice(&kind.to_le_bytes());
        section[0x18..0x20].copy_from_slice(&(HEADER as u64 * 3).to_le_bytes());
        section[0x20..0x28].copy_from_slice(&(size as u64).to_le_bytes());
        image.extend(section);
    }
    image.extend(content);
    image
}

#[test]
fn every_byte_of_an_image_counts_and_what_follows_it_does_not() {
    fn text(content: &[u8]) -> Vec<u8> {
        [b".version", content].concat()
    }
    for make in [fat_binary, elf, text] {
        let content: Vec<u8> = (1..=250).cycle().take(5_000).collect();
        let mut image = make(&content);
        image.push(0);
        let before = number_of(&image);
        assert!(before.is_some());
        for changed in [content.len() / 2, content.len() - 1] {
            let at = image.len() - 1 - content.len() + changed;
            image[at] ^= 0x80;
            assert_ne!(number_of(&image), before, "byte {at} of {}", image.len());
            image[at] ^= 0x80;
        }
        image.push(17);
        assert_eq!(number_of(&image), before);
    }
}

#[test]
fn a_wrapper_counts_as_what_is_in_it() {
    let inner = fat_binary(b"kernels");
    let mut wrapper = 0x4662_43b1_u32.to_le_bytes().to_vec();
    wrapper.extend(1_u32.to_le_bytes());
    wrapper.extend((inner.as_ptr().expose_provenance() as u64).to_le_bytes());
    wrapper.extend([0; 8]);
    assert_eq!(number_of(&wrapper), number_of(&inner));
}

#[test]
fn of_a_large_image_pieces_from_all_over_it_count() {
    let mut image = fat_binary(&vec![1; 40 << 20]);
    let before = number_of(&image);
    let length = image.len();
    for byte in image.iter_mut().skip(length / 2).take(1 << 18) {
        *byte = 2;
    }
    assert_ne!(number_of(&image), before);
}

#[test]
fn a_file_counts_as_what_is_in_it() {
    let file = tempfile::NamedTempFile::new().expect("it can be made");
    std::fs::write(&file, ".version 3").expect("it can be written");
    let name = CString::new(file.path().as_os_str().as_encoded_bytes()).expect("no zero in it");
    // SAFETY: a terminated text.
    unsafe { loaded_from_file(0x4000, name.as_ptr()) };
    assert_eq!(Some(content(0x4000)), number_of(b".version 3\0"));
}

/// The driver has read it to its end: whoever opens it again would wait for a writer.
#[test]
fn a_pipe_is_not_read_again() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let pipe = CString::new(folder.path().join("pipe").as_os_str().as_encoded_bytes()).expect("no zero in it");
    // SAFETY: a terminated text.
    assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
    // SAFETY: as above.
    unsafe { loaded_from_file(0x6000, pipe.as_ptr()) };
    assert_eq!(content(0x6000), 0);
}

#[test]
fn an_image_that_says_it_is_longer_than_memory_has_no_number() {
    let mut image = fat_binary(b"kernels");
    image[8..16].copy_from_slice(&(u64::MAX / 2).to_le_bytes());
    assert_eq!(number_of(&image), None);
}

#[test]
fn what_is_no_known_kind_of_image_has_no_number() {
    assert_eq!(number_of(&[0x7f, b'N', b'C', 0xed, 0, 0, 0, 0]), None);
}

#[test]
fn handles_go_with_the_module_that_they_came_from() {
    let one = loaded_as(0x1000, b".version 1\0");
    let other = loaded_as(0x2000, b".version 2\0");
    got(0x1010, 0x1000);
    got(0x1020, 0x1010);
    got(0x2010, 0x2000);
    got(0x3010, 0x3000);
    assert_eq!([0x1010, 0x1020, 0x2010, 0x3010].map(content), [one, one, other, 0]);
    unloaded(0x1000);
    assert_eq!([0x1000, 0x1010, 0x1020, 0x2010].map(content), [0, 0, 0, other]);
    // The address comes back as another one's.
    got(0x1010, 0x2000);
    assert_eq!(content(0x1010), other);
}
