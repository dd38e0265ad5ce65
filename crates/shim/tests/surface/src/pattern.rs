//! Calls with a known value in everything that can carry an argument, and the comparison afterwards.

#[allow(dead_code, reason = "shared with the stub driver, which uses the rest")]
#[path = "../../stub_driver/src/call.rs"]
pub(crate) mod call;

use anyhow::{Result, ensure};
use call::{Call, STACK_WORDS};
use core::arch::naked_asm;
use core::ffi::c_void;
use detshare_cuda::{Function, functions};

/// Values that differ from each other, from call to call, and in both halves.
pub(crate) fn pattern(seed: u64) -> Call {
    let mut next = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut word = || {
        next ^= next << 13;
        next ^= next >> 7;
        next ^= next << 17;
        next
    };
    Call {
        integers: core::array::from_fn(|_| word()),
        floats: core::array::from_fn(|_| word()),
        stack: core::array::from_fn(|_| word()),
        function: 0,
    }
}

/// Calls the function at that address with the pattern in registers and on the stack.
///
/// # Safety
/// The function looks at none of its arguments.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn call_with(function: *const c_void, pattern: *const Call) -> u32 {
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "mov r11, rdi",
        "mov r10, rsi",
        "sub rsp, {stack_size}",
        "lea rsi, [r10 + 112]",
        "mov rdi, rsp",
        "mov ecx, {stack_words}",
        "rep movsq",
        "mov rdi, [r10]",
        "mov rsi, [r10 + 8]",
        "mov rdx, [r10 + 16]",
        "mov rcx, [r10 + 24]",
        "mov r8, [r10 + 32]",
        "mov r9, [r10 + 40]",
        "movsd xmm0, [r10 + 48]",
        "movsd xmm1, [r10 + 56]",
        "movsd xmm2, [r10 + 64]",
        "movsd xmm3, [r10 + 72]",
        "movsd xmm4, [r10 + 80]",
        "movsd xmm5, [r10 + 88]",
        "movsd xmm6, [r10 + 96]",
        "movsd xmm7, [r10 + 104]",
        "call r11",
        "leave",
        "ret",
        stack_size = const STACK_WORDS * 8,
        stack_words = const STACK_WORDS,
    )
}

/// Whether the stub driver was entered at that function with that pattern.
pub(crate) fn compare(index: usize, sent: &Call, received: &Call) -> Result<()> {
    let function = &functions()[index];
    let reached = functions().get(usize::try_from(received.function)?).map(|it| it.name);
    ensure!(reached == Some(function.name), "{reached:?} was reached instead");
    for place in places(function) {
        let (sent, received) = (place.of(sent), place.of(received));
        ensure!(sent == received, "{place:?} carried {sent:#x} and arrived as {received:#x}");
    }
    Ok(())
}

/// A part of a register or stack word that carries an argument.
#[derive(Debug, Clone, Copy)]
enum Place {
    Integer { register: usize, bytes: usize },
    Float { register: usize, bytes: usize },
    Stack { word: usize, bytes: usize },
}

const WORD: usize = 8;

impl Place {
    fn of(self, call: &Call) -> u64 {
        let (word, bytes) = match self {
            Self::Integer { register, bytes } => (call.integers[register], bytes),
            Self::Float { register, bytes } => (call.floats[register], bytes),
            Self::Stack { word, bytes } => (call.stack[word], bytes),
        };
        word & (u64::MAX >> (8 * (WORD - bytes)))
    }
}

/// Where the System V calling convention puts the arguments. Of a function whose parameters nobody knows,
/// every place counts.
fn places(function: &Function) -> Vec<Place> {
    let Some(parameters) = function.parameters else {
        let integers = (0..6).map(|register| Place::Integer { register, bytes: WORD });
        let floats = (0..8).map(|register| Place::Float { register, bytes: WORD });
        let stack = (0..STACK_WORDS).map(|word| Place::Stack { word, bytes: WORD });
        return integers.chain(floats).chain(stack).collect();
    };
    let (mut integers, mut floats, mut words) = (0, 0, 0);
    let mut places = Vec::new();
    for parameter in parameters {
        let bytes = parameter.size;
        if parameter.ty == "f32" {
            places.push(Place::Float { register: floats, bytes });
            floats += 1;
        } else if bytes <= WORD && integers < 6 {
            places.push(Place::Integer { register: integers, bytes });
            integers += 1;
        } else {
            assert!(bytes <= WORD || bytes > 2 * WORD, "{}: {} needs two registers", function.name, parameter.name);
            let count = bytes.div_ceil(WORD);
            let last = bytes - (count - 1) * WORD;
            places.extend((0..count).map(|offset| Place::Stack {
                word: words + offset,
                bytes: if offset + 1 == count { last } else { WORD },
            }));
            words += count;
        }
    }
    assert!(words <= STACK_WORDS, "{} takes more than is recorded", function.name);
    places
}
