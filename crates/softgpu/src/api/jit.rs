//! Options of the compiler that a driver has for PTX: where it writes what it has to say, and how many registers it may use.

use crate::boundary::Outcome;
use crate::exec::with_register_limit;
use crate::module::Module;
use core::ffi::{c_char, c_uint, c_void};
use detshare_cuda::types::{CUjit_option as Option_, CUresult};
use std::time::Instant;

/// A buffer of the program for text.
#[derive(Clone, Copy)]
struct Buffer {
    text: *mut c_char,
    room: usize,
    /// Where the program gave the room, and finds how much of it is filled.
    filled: *mut *mut c_void,
}

impl Buffer {
    const NONE: Self = Self { text: core::ptr::null_mut(), room: 0, filled: core::ptr::null_mut() };

    /// As much of the text as there is room, and its terminator.
    unsafe fn write(self, text: &str) {
        let mut filled = 0;
        if !self.text.is_null() && self.room > 0 {
            filled = text.len().min(self.room - 1);
            core::ptr::copy_nonoverlapping(text.as_ptr().cast(), self.text, filled);
            self.text.add(filled).write(0);
        }
        if !self.filled.is_null() {
            self.filled.write(core::ptr::without_provenance_mut(filled));
        }
    }
}

/// What a program wants of a compilation, and wants to know of it.
#[derive(Clone, Copy)]
pub(super) struct Options {
    error: Buffer,
    info: Buffer,
    verbose: bool,
    wall_time: *mut *mut c_void,
    begin: Instant,
    most_registers: Option<u32>,
}

// SAFETY: the program keeps its buffers as long as what it gave them to, from whatever thread that is used.
unsafe impl Send for Options {}
// SAFETY: as above.
unsafe impl Sync for Options {}

impl Options {
    /// Out of the program's options.
    pub(super) unsafe fn find(count: c_uint, options: *mut Option_, values: *mut *mut c_void) -> Self {
        let none = core::ptr::null_mut();
        let mut wanted = Self {
            error: Buffer::NONE,
            info: Buffer::NONE,
            verbose: false,
            wall_time: none,
            begin: Instant::now(),
            most_registers: None,
        };
        if options.is_null() || values.is_null() {
            return wanted;
        }
        for index in 0..count as usize {
            let place = values.add(index);
            let value = *place;
            match *options.add(index) {
                Option_::CU_JIT_ERROR_LOG_BUFFER => wanted.error.text = value.cast(),
                Option_::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES => {
                    (wanted.error.room, wanted.error.filled) = (value.addr(), place);
                }
                Option_::CU_JIT_INFO_LOG_BUFFER => wanted.info.text = value.cast(),
                Option_::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES => {
                    (wanted.info.room, wanted.info.filled) = (value.addr(), place)
                }
                Option_::CU_JIT_LOG_VERBOSE => wanted.verbose = !value.is_null(),
                // A number that is none of registers limits nothing.
                Option_::CU_JIT_MAX_REGISTERS => wanted.most_registers = u32::try_from(value.addr()).ok(),
                Option_::CU_JIT_WALL_TIME => wanted.wall_time = place,
                _ => {}
            }
        }
        wanted.error.write("");
        wanted.info.write("");
        wanted
    }

    /// Texts that the compiler is to take so.
    pub(super) fn apply(&self, texts: Vec<String>) -> Vec<String> {
        let Some(most) = self.most_registers else { return texts };
        texts.into_iter().map(|text| with_register_limit(text, most)).collect()
    }

    /// The code; the words go to the program.
    pub(super) unsafe fn refuse<T>(&self, (code, words): (CUresult, String)) -> Outcome<T> {
        self.error.write(&words);
        Err(code)
    }

    /// What became of a compilation: words about it, and how many milliseconds it took.
    pub(super) unsafe fn report<T: AsRef<Module>>(&self, result: Result<T, (CUresult, String)>) -> Outcome<T> {
        if !self.wall_time.is_null() {
            let milliseconds = self.begin.elapsed().as_secs_f32() * 1e3;
            self.wall_time.cast::<f32>().write(milliseconds);
        }
        match result {
            Ok(module) => {
                if self.verbose {
                    self.info.write(&module.as_ref().summary());
                }
                Ok(module)
            }
            Err(refusal) => self.refuse(refusal),
        }
    }
}
