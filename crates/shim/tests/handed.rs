//! What is read of what a program hands over.

#[path = "../src/handed.rs"]
mod handed;

use core::ptr::without_provenance;

/// A program that has none may hand over whatever its variables held, and no pointer at all.
#[test]
fn of_none_the_pointer_may_be_anything() {
    for address in [0, 1, 3, usize::MAX] {
        // SAFETY: there are none.
        assert_eq!(unsafe { handed::list::<u64>(without_provenance(address), 0) }, [], "{address:#x}");
    }
}

#[test]
fn as_many_are_read_as_there_are() {
    let all = [1, 2, 3];
    // SAFETY: there are two, and a third.
    assert_eq!(unsafe { handed::list(all.as_ptr(), 2) }, [1, 2]);
}
