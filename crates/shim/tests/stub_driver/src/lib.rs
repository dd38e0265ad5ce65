//! A driver that computes nothing and records how it was called.
//!
//! It exports every function of the table, and a few of its own for tests in the same process:
//! `stub_driver_set_mode` and `stub_driver_last_call`. Its entries take note of registers and stack as they
//! are on entry, so they know nothing of signatures either.
//!
//! Environment: `STUB_DRIVER_VERSION` is what `cuDriverGetVersion` says (13000); `STUB_DRIVER_LOG` names a
//! file to which every call appends the function's name; `STUB_DRIVER_LACKS` is a function for which
//! `cuGetProcAddress` returns an address that is not exported.

#[path = "call.rs"]
mod call;

use call::{Call, RECORDED, STACK_WORDS, mode};
use core::arch::naked_asm;
use core::cell::Cell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering};
use detshare_cuda::types::{CUdriverProcAddressQueryResult as Query, CUresult};
use detshare_cuda::{ProcAddress, entry, functions, proc_address};
use std::io::Write;

static MODE: AtomicU32 = AtomicU32::new(mode::QUIET);

thread_local! {
    static LAST: Cell<Option<Call>> = const { Cell::new(None) };
}

struct Address(unsafe extern "C" fn());

/// Goes to `record` in every mode but the quiet one.
macro_rules! entry {
    ($name:ident, $index:literal) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        #[allow(non_snake_case, reason = "the name is the C API's")]
        unsafe extern "C" fn $name() {
            naked_asm!(
                "mov r11d, {index}",
                "cmp dword ptr [rip + {mode}], {quiet}",
                "jne {record}",
                "mov eax, {acts}",
                "test eax, eax",
                "jnz {record}",
                "ret",
                index = const $index,
                mode = sym MODE,
                quiet = const mode::QUIET,
                acts = const acts($index) as u32,
                record = sym record,
            )
        }
    };
}

/// The functions that do something even when quiet, because opening a driver needs them.
const fn acts(index: usize) -> bool {
    index == entry::cuDriverGetVersion.index()
        || index == entry::cuGetProcAddress.index()
        || index == entry::cuGetProcAddress_v2.index()
        || index == entry::cuGetExportTable.index()
}

include!(concat!(env!("OUT_DIR"), "/entries.rs"));

/// Lays the registers out as the first fields of a `Call` and hands them over.
#[unsafe(naked)]
unsafe extern "C" fn record() {
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "sub rsp, 112",
        "mov [rsp], rdi",
        "mov [rsp + 8], rsi",
        "mov [rsp + 16], rdx",
        "mov [rsp + 24], rcx",
        "mov [rsp + 32], r8",
        "mov [rsp + 40], r9",
        "movsd [rsp + 48], xmm0",
        "movsd [rsp + 56], xmm1",
        "movsd [rsp + 64], xmm2",
        "movsd [rsp + 72], xmm3",
        "movsd [rsp + 80], xmm4",
        "movsd [rsp + 88], xmm5",
        "movsd [rsp + 96], xmm6",
        "movsd [rsp + 104], xmm7",
        "mov edi, r11d",
        "mov rsi, rsp",
        "lea rdx, [rbp + 16]",
        "call {called}",
        "leave",
        "ret",
        called = sym called,
    )
}

/// The registers, as `record` laid them out.
#[repr(C)]
struct Registers {
    integers: [u64; 6],
    floats: [u64; 8],
}

extern "C" fn called(function: u32, registers: &Registers, stack: *const u64) -> u32 {
    let index = function as usize;
    let mode_now = MODE.load(Ordering::Acquire);
    if mode_now == mode::LOG {
        append(functions()[index].name);
    }
    if mode_now != mode::RECORD {
        let answer = act(index, &registers.integers);
        if mode_now == mode::RECORD_ONCE_OPEN && index == entry::cuDriverGetVersion.index() {
            MODE.store(mode::RECORD, Ordering::Release);
        }
        return answer.0;
    }
    // SAFETY: a test that records has put that many words on the stack.
    let words = unsafe { stack.cast::<[u64; STACK_WORDS]>().read() };
    LAST.set(Some(Call {
        integers: registers.integers,
        floats: registers.floats,
        stack: words,
        function: u64::from(function),
    }));
    RECORDED + function
}

/// What the function does for a caller that means it.
fn act(index: usize, integers: &[u64; 6]) -> CUresult {
    // What a C compiler puts in the lower half of a register for an int.
    #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "the C calling convention")]
    let int = |value: u64| value as u32 as c_int;
    if index == entry::cuDriverGetVersion.index() {
        let version = core::ptr::with_exposed_provenance_mut::<c_int>(address(integers[0]));
        // SAFETY: the caller's promise.
        unsafe { *version = asked_version() };
    } else if index == entry::cuGetProcAddress.index() || index == entry::cuGetProcAddress_v2.index() {
        let name = core::ptr::with_exposed_provenance::<c_char>(address(integers[0]));
        // SAFETY: the caller's promise.
        let name = unsafe { CStr::from_ptr(name) };
        let found = core::ptr::with_exposed_provenance_mut::<*mut c_void>(address(integers[1]));
        let (pointer, query) = lookup(&name.to_string_lossy(), int(integers[2]), integers[3]);
        // SAFETY: the caller's promise.
        unsafe { *found = pointer };
        if index == entry::cuGetProcAddress.index() {
            return if pointer.is_null() { CUresult::CUDA_ERROR_NOT_FOUND } else { CUresult::CUDA_SUCCESS };
        }
        let status = core::ptr::with_exposed_provenance_mut::<Query>(address(integers[4]));
        if !status.is_null() {
            // SAFETY: not NULL, and the caller's promise.
            unsafe { *status = query };
        }
    } else if index == entry::cuGetExportTable.index() {
        let table = core::ptr::with_exposed_provenance_mut::<*const u64>(address(integers[0]));
        // SAFETY: the caller's promise.
        unsafe { *table = &raw const EXPORT_TABLE };
    }
    CUresult::CUDA_SUCCESS
}

/// What `cuGetExportTable` returns.
#[unsafe(no_mangle)]
static EXPORT_TABLE: u64 = 8;

fn address(word: u64) -> usize {
    usize::try_from(word).expect("a 64-bit process")
}

fn lookup(name: &str, version: c_int, flags: u64) -> (*mut c_void, Query) {
    if std::env::var("STUB_DRIVER_LACKS").is_ok_and(|lacks| lacks == name) {
        return (not_exported as *mut c_void, Query::CU_GET_PROC_ADDRESS_SUCCESS);
    }
    match proc_address(name, u32::try_from(version).unwrap_or(0), flags) {
        ProcAddress::Found(index) => (ADDRESSES[index].0 as *mut c_void, Query::CU_GET_PROC_ADDRESS_SUCCESS),
        ProcAddress::SymbolNotFound => (core::ptr::null_mut(), Query::CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND),
        ProcAddress::VersionNotSufficient => (core::ptr::null_mut(), Query::CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT),
    }
}

extern "C" fn not_exported() -> c_int {
    7
}

fn asked_version() -> c_int {
    std::env::var("STUB_DRIVER_VERSION").ok().and_then(|text| text.parse().ok()).unwrap_or(13_000)
}

fn append(name: &str) {
    if let Some(path) = std::env::var_os("STUB_DRIVER_LOG")
        && let Ok(mut file) = std::fs::OpenOptions::new().create(true).append(true).open(path)
    {
        // A test that misses the line fails by itself.
        let _ = file.write_all(format!("{name}\n").as_bytes());
    }
}

/// Says what the stub driver does from now on.
#[unsafe(no_mangle)]
extern "C" fn stub_driver_set_mode(mode: u32) {
    MODE.store(mode, Ordering::Release);
}

/// Copies this thread's last recorded call and forgets it; false if there is none.
///
/// # Safety
/// `call` can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn stub_driver_last_call(call: *mut Call) -> bool {
    let Some(last) = LAST.take() else { return false };
    // SAFETY: the caller's promise.
    unsafe { *call = last };
    true
}

/// A function of a driver to come, which no table knows yet.
#[unsafe(no_mangle)]
extern "C" fn cuFunctionOfAnotherDay(number: c_int) -> c_int {
    number + 1
}

extern "C" fn on_load() {
    if std::env::var_os("STUB_DRIVER_LOG").is_some() {
        MODE.store(mode::LOG, Ordering::Release);
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static ON_LOAD: extern "C" fn() = on_load;
