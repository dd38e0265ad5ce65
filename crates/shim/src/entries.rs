//! The exported functions: one entry for every function of the driver, made by the build script.
//!
//! Each function has a *slot* that holds the address to go to. At first that is a few instructions that know
//! the function's number and have the driver opened (`resolve`); from then on it is the real function. Slots
//! only ever change from the first to the second, to the same value whichever thread writes it.

use crate::bind;
use crate::coroutine::active;
use crate::digest::{self, Copied};
use crate::resolve;
use crate::steps::{self, Subject};
use crate::treatment::Kind;
use core::arch::naked_asm;
use core::ffi::*;
use core::sync::atomic::{AtomicPtr, Ordering};
use detshare_cuda::DefaultStream;
use detshare_cuda::driver::as_function;
use detshare_cuda::entry::{self, Entry};
use detshare_cuda::types::*;

/// Where a call of one function goes.
pub(crate) type Slot = AtomicPtr<c_void>;

const fn slot(lazy: unsafe extern "C" fn()) -> Slot {
    Slot::new(lazy as *mut c_void)
}

/// The address of one exported entry.
struct Own(*const c_void);

// SAFETY: the address of a function, which any thread may call.
unsafe impl Sync for Own {}

const fn own(address: *const c_void) -> Own {
    Own(address)
}

/// Our exported entry for the function with that index.
pub(crate) fn own_entry(index: usize) -> *mut c_void {
    OWN[index].0.cast_mut()
}

/// The real function. Until the driver is open it is a stand-in that opens it and goes on.
pub(crate) fn real<F: Copy>(entry: Entry<F>) -> F {
    let address = SLOTS[entry.index()].load(Ordering::Acquire);
    // SAFETY: the slot of this entry holds a function of the entry's type, or code that jumps to it with
    // all arguments in place, or one that ignores its arguments and returns a CUresult.
    unsafe { as_function(entry, address) }
}

/// Jumps through the slot: arguments, whatever they are, stay where the caller put them.
macro_rules! forward {
    ($name:ident, $index:literal) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            naked_asm!("jmp qword ptr [rip + {slots} + {offset}]", slots = sym SLOTS, offset = const $index * 8)
        }
    };
}

/// Does something, then calls the real function.
macro_rules! entry {
    ($name:ident($($parameter:ident: $ty:ty),*), $count:block, $before:block) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($parameter: $ty),*) -> CUresult {
            $count
            $before
            // SAFETY: the caller's own arguments for the function that it meant to call.
            unsafe { real(entry::$name)($($parameter),*) }
        }
    };
}

/// Calls the real function with the stream where it is or is to be; its argument is named, or it is the default one.
/// What it brings to the host may go into the record.
macro_rules! bind {
    (
        $name:ident($($parameter:ident: $ty:ty),*), $count:block, $how:ident, $stream:ident, $default:expr
        $(, $digest:ident($($brought:ident),*))?
    ) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($parameter: $ty),*) -> CUresult {
            $count
            if !active() && !(has_digest!($($digest)?) && digest::active()) {
                // SAFETY: the caller's own arguments for the function that it meant to call.
                return unsafe { real(entry::$name)($($parameter),*) };
            }
            let given = $stream;
            let bound = bind::$how(given, $default);
            let $stream = bound.handle();
            // SAFETY: the caller's own arguments, and a stream that stands for the one that it gave.
            let code = unsafe { real(entry::$name)($($parameter),*) };
            let _ = given;
            $(record!(code, given, $default, Some(bound.handle()), $digest($($brought),*));)?
            code
        }
    };
    (
        $name:ident($($parameter:ident: $ty:ty),*), $count:block, $how:ident, $default:expr
        $(, $digest:ident($($brought:ident),*))?
    ) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($parameter: $ty),*) -> CUresult {
            $count
            steps::waited(None, || {
                let _bound = bind::$how(CUstream(core::ptr::null_mut()), $default);
                // SAFETY: the caller's own arguments for the function that it meant to call.
                let code = unsafe { real(entry::$name)($($parameter),*) };
                $(record!(code, CUstream(core::ptr::null_mut()), $default, None, $digest($($brought),*));)?
                code
            })
        }
    };
}

macro_rules! has_digest {
    () => {
        false
    };
    ($digest:ident) => {
        true
    };
}

/// Puts what a copy brought to the host into the record.
macro_rules! record {
    ($code:ident, $stream:expr, $default:expr, $behind:expr, $digest:ident($($brought:ident),*)) => {
        if digest::active() && $code == CUresult::CUDA_SUCCESS {
            let copied = Copied { stream: $stream, default: $default, behind: $behind };
            // SAFETY: the driver has found these arguments good.
            unsafe { digest::$digest(copied, $($brought),*) };
        }
    };
}

/// Calls the real function, which says whether something is finished.
macro_rules! ask {
    ($name:ident($($parameter:ident: $ty:ty),*), $count:block, $after:ident) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($parameter: $ty),*) -> CUresult {
            $count
            // SAFETY: the caller's own arguments for the function that it meant to call.
            steps::$after(None, || unsafe { real(entry::$name)($($parameter),*) })
        }
    };
}

/// Calls the real function with the stream where it is, or with several where that takes more.
macro_rules! look {
    ($name:ident($stream:ident: $ty:ty), $count:block, $default:expr, $after:ident) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($stream: $ty) -> CUresult {
            $count
            // SAFETY: the caller's own stream, or one that stands for it.
            let call = |stream| unsafe { real(entry::$name)(stream) };
            if !active() {
                return call($stream);
            }
            steps::$after(Subject::new($stream, $default), || bind::look($stream, $default, call))
        }
    };
}

/// What a slot holds at first: the function's number, and on to have the driver opened.
macro_rules! lazy {
    ($name:ident, $index:literal) => {
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            naked_asm!("mov r11d, {index}", "jmp {resolve}", index = const $index, resolve = sym resolve_and_jump)
        }
    };
}

/// Asks `resolve::target` for the address that belongs to the number in r11 and goes there, with every
/// register that can carry an argument as it was. The stack below the return address is not touched.
#[unsafe(naked)]
unsafe extern "C" fn resolve_and_jump() {
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "sub rsp, 192",
        "mov [rsp], rdi",
        "mov [rsp + 8], rsi",
        "mov [rsp + 16], rdx",
        "mov [rsp + 24], rcx",
        "mov [rsp + 32], r8",
        "mov [rsp + 40], r9",
        "mov [rsp + 48], rax",
        "movaps [rsp + 64], xmm0",
        "movaps [rsp + 80], xmm1",
        "movaps [rsp + 96], xmm2",
        "movaps [rsp + 112], xmm3",
        "movaps [rsp + 128], xmm4",
        "movaps [rsp + 144], xmm5",
        "movaps [rsp + 160], xmm6",
        "movaps [rsp + 176], xmm7",
        "mov edi, r11d",
        "call {target}",
        "mov r11, rax",
        "mov rdi, [rsp]",
        "mov rsi, [rsp + 8]",
        "mov rdx, [rsp + 16]",
        "mov rcx, [rsp + 24]",
        "mov r8, [rsp + 32]",
        "mov r9, [rsp + 40]",
        "mov rax, [rsp + 48]",
        "movaps xmm0, [rsp + 64]",
        "movaps xmm1, [rsp + 80]",
        "movaps xmm2, [rsp + 96]",
        "movaps xmm3, [rsp + 112]",
        "movaps xmm4, [rsp + 128]",
        "movaps xmm5, [rsp + 144]",
        "movaps xmm6, [rsp + 160]",
        "movaps xmm7, [rsp + 176]",
        "leave",
        "jmp r11",
        target = sym resolve::target,
    )
}

include!(concat!(env!("OUT_DIR"), "/entries.rs"));
