//! Options of the compiler that a driver has for PTX: where it writes what it has to say.

use crate::boundary::Outcome;
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

/// What a program wants to know of a compilation.
#[derive(Clone, Copy)]
pub(super) struct Log {
    error: Buffer,
    info: Buffer,
    verbose: bool,
    wall_time: *mut *mut c_void,
    begin: Instant,
}

// SAFETY: the program keeps its buffers as long as what it gave them to, from whatever thread that is used.
unsafe impl Send for Log {}
// SAFETY: as above.
unsafe impl Sync for Log {}

impl Log {
    /// Out of the program's options.
    pub(super) unsafe fn find(count: c_uint, options: *mut Option_, values: *mut *mut c_void) -> Self {
        let none = core::ptr::null_mut();
        let mut log =
            Self { error: Buffer::NONE, info: Buffer::NONE, verbose: false, wall_time: none, begin: Instant::now() };
        if options.is_null() || values.is_null() {
            return log;
        }
        for index in 0..count as usize {
            let place = values.add(index);
            let value = *place;
            match *options.add(index) {
                Option_::CU_JIT_ERROR_LOG_BUFFER => log.error.text = value.cast(),
                Option_::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES => {
                    (log.error.room, log.error.filled) = (value.addr(), place);
                }
                Option_::CU_JIT_INFO_LOG_BUFFER => log.info.text = value.cast(),
                Option_::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES => (log.info.room, log.info.filled) = (value.addr(), place),
                Option_::CU_JIT_LOG_VERBOSE => log.verbose = !value.is_null(),
                Option_::CU_JIT_WALL_TIME => log.wall_time = place,
                _ => {}
            }
        }
        log.error.write("");
        log.info.write("");
        log
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
