//! What valgrind is told where a process runs under it: which of the reserved addresses hold something.
//!
//! The whole range is mapped to be read and written. Valgrind alone would take all of it for the program's memory: its
//! search for leaks would read every byte, and give each a page of the system's, and nothing in the range could be touched wrongly.
//!
//! It is told by instructions that do nothing elsewhere, as `valgrind.h` writes them, and so without asking whether it is there.

/// Requests of the tool named `MC`.
const MEMCHECK: u64 = (b'M' as u64) << 24 | (b'C' as u64) << 16;
const MAKE_NO_ACCESS: u64 = MEMCHECK;
const MAKE_DEFINED: u64 = MEMCHECK + 2;

/// From now on the bytes may be touched, and are looked at for pointers. They are as good as written: they are zero, or
/// what somebody else has written.
pub(super) fn in_use(address: u64, bytes: u64) {
    request(MAKE_DEFINED, address, bytes);
}

/// From now on touching them is an error, until they are in use or something else is mapped there.
pub(super) fn not_in_use(address: u64, bytes: u64) {
    request(MAKE_NO_ACCESS, address, bytes);
}

#[cfg(target_arch = "x86_64")]
fn request(request: u64, address: u64, bytes: u64) {
    let asked = [request, address, bytes, 0, 0, 0];
    // SAFETY: the rotations come to 128 bits together, so `rdi` has its value again, and `rbx` is exchanged with itself. Valgrind, which
    // sees these five in a row and nowhere else, reads the six words at `rax` and puts its answer into `rdx`.
    unsafe {
        core::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") asked.as_ptr(),
            inout("rdx") 0_u64 => _,
            options(nostack),
        );
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn request(_: u64, _: u64, _: u64) {}
