//! The library file itself.

use crate::stage::shim;
use object::read::elf::{Dyn, FileHeader};
use object::{LittleEndian, elf};

const TWO_MEBIBYTES: usize = 2 << 20;

#[test]
fn is_named_as_the_driver_and_is_never_unmapped() {
    let bytes = std::fs::read(shim()).expect("the shim is there");
    let header = elf::FileHeader64::<LittleEndian>::parse(&*bytes).expect("an ELF file");
    let sections = header.sections(LittleEndian, &*bytes).expect("sections");
    let (dynamic, strings) = sections.dynamic(LittleEndian, &*bytes).expect("readable").expect("a dynamic section");
    let strings = sections.strings(LittleEndian, &*bytes, strings).expect("names");
    let tagged = |tag: elf::DynamicTag| dynamic.iter().find(|entry| entry.d_tag(LittleEndian) == tag);
    let name = tagged(elf::DT_SONAME).expect("a SONAME").string(LittleEndian, strings).expect("a name");
    assert_eq!(name, b"libcuda.so.1");
    let flags = tagged(elf::DT_FLAGS_1).expect("flags").d_val(LittleEndian);
    assert_ne!(flags & elf::DF_1_NODELETE.0, 0);
}

#[test]
fn stays_below_two_mebibytes() {
    let size = std::fs::metadata(shim()).expect("the shim is there").len();
    assert!(size < TWO_MEBIBYTES as u64, "{size} bytes");
}
