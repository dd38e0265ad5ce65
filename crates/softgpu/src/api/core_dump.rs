//! What a program wants to be written about a fault on the device. It is kept, and nothing is written: what happened is
//! told on standard error.

use super::require;
use crate::boundary::{Outcome, log};
use crate::context;
use core::ffi::{CStr, c_void};
use detshare_cuda::types::{CUcoredumpSettings as Setting, CUresult};
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

/// Bytes of a text with its end.
const TEXT: usize = 1024;
const FLAGS: usize = 4;
/// The flags that `CU_COREDUMP_LIGHTWEIGHT` stands for.
const LIGHTWEIGHT: u32 = 0x2f;

/// Values of settings, by number; what is not there is as it is usually.
#[derive(Default)]
struct Settings {
    /// For all contexts: one after the other, with the first context that is made with it. Those that are there keep what they have.
    all: HashMap<u32, Vec<(u64, Vec<u8>)>>,
    /// For a context, by its number.
    own: HashMap<(u64, u32), Vec<u8>>,
}

impl Settings {
    fn of_all(&self, setting: Setting) -> Option<&Vec<u8>> {
        self.all.get(&setting.0)?.last().map(|(_, value)| value)
    }

    fn of(&self, context: u64, setting: Setting) -> Option<&Vec<u8>> {
        let inherited = || {
            let mut values = self.all.get(&setting.0)?.iter().rev();
            values.find(|(first, _)| *first <= context).map(|(_, value)| value)
        };
        self.own.get(&(context, setting.0)).or_else(inherited)
    }
}

static SETTINGS: LazyLock<Mutex<Settings>> = LazyLock::new(Mutex::default);

/// How many bytes a value has.
fn size_of(setting: Setting) -> Outcome<usize> {
    Ok(match setting {
        Setting::CU_COREDUMP_ENABLE_ON_EXCEPTION
        | Setting::CU_COREDUMP_TRIGGER_HOST
        | Setting::CU_COREDUMP_LIGHTWEIGHT
        | Setting::CU_COREDUMP_ENABLE_USER_TRIGGER => 1,
        Setting::CU_COREDUMP_FILE | Setting::CU_COREDUMP_PIPE => TEXT,
        Setting::CU_COREDUMP_GENERATION_FLAGS => FLAGS,
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    })
}

/// What holds where nobody has set anything, as the manual says.
fn usual(setting: Setting) -> Vec<u8> {
    let named = |start: &str| format!("{start}.cuda.{}.{}", host_name(), std::process::id()).into_bytes();
    match setting {
        Setting::CU_COREDUMP_TRIGGER_HOST => vec![1],
        Setting::CU_COREDUMP_FILE => named("core"),
        Setting::CU_COREDUMP_PIPE => named("corepipe"),
        Setting::CU_COREDUMP_GENERATION_FLAGS => vec![0; FLAGS],
        _ => vec![0],
    }
}

fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_string()
}

/// A value, or how large it is where there is no place for it. Texts are cut to fit, with their end.
unsafe fn get(value: *mut c_void, size: *mut usize, setting: Setting, found: Option<Vec<u8>>) -> Outcome {
    let whole = size_of(setting)?;
    require(!size.is_null())?;
    if value.is_null() {
        size.write(whole);
        return Ok(());
    }
    let found = found.unwrap_or_else(|| usual(setting));
    let room = size.read();
    let is_text = whole == TEXT;
    require(if is_text { room > 0 } else { room >= whole })?;
    let bytes = found.len().min(if is_text { room - 1 } else { room });
    core::ptr::copy_nonoverlapping(found.as_ptr(), value.cast(), bytes);
    if is_text {
        value.cast::<u8>().add(bytes).write(0);
    }
    Ok(())
}

/// What a program sets, or None where it asks how large that is.
unsafe fn wanted(value: *const c_void, size: *mut usize, setting: Setting) -> Outcome<Option<Vec<u8>>> {
    let whole = size_of(setting)?;
    require(!size.is_null())?;
    if value.is_null() {
        size.write(whole);
        return Ok(None);
    }
    let room = size.read();
    let bytes = if whole == TEXT {
        let bytes = core::slice::from_raw_parts(value.cast::<u8>(), room.min(TEXT));
        let text = CStr::from_bytes_until_nul(bytes).map_or(bytes, CStr::to_bytes);
        require(text.len() < TEXT)?;
        text.to_vec()
    } else {
        require(room >= whole)?;
        core::slice::from_raw_parts(value.cast::<u8>(), whole).to_vec()
    };
    if setting == Setting::CU_COREDUMP_ENABLE_ON_EXCEPTION && bytes[0] != 0 {
        log(format_args!("no core dumps are written; what happened is told on standard error"));
    }
    Ok(Some(bytes))
}

/// A value, and what else it stands for.
fn meant(setting: Setting, bytes: Vec<u8>) -> Vec<(u32, Vec<u8>)> {
    let mut meant = Vec::new();
    if setting == Setting::CU_COREDUMP_LIGHTWEIGHT {
        let flags = if bytes[0] == 0 { 0 } else { LIGHTWEIGHT };
        meant.push((Setting::CU_COREDUMP_GENERATION_FLAGS.0, flags.to_ne_bytes().to_vec()));
    }
    meant.push((setting.0, bytes));
    meant
}

pub(crate) unsafe fn cuCoredumpGetAttribute(setting: Setting, value: *mut c_void, size: *mut usize) -> Outcome {
    let context = context::current()?.id;
    let found = SETTINGS.lock().expect("no panic while it is held").of(context, setting).cloned();
    get(value, size, setting, found)
}

pub(crate) unsafe fn cuCoredumpGetAttributeGlobal(setting: Setting, value: *mut c_void, size: *mut usize) -> Outcome {
    let found = SETTINGS.lock().expect("no panic while it is held").of_all(setting).cloned();
    get(value, size, setting, found)
}

pub(crate) unsafe fn cuCoredumpSetAttribute(setting: Setting, value: *mut c_void, size: *mut usize) -> Outcome {
    let context = context::current()?.id;
    let Some(bytes) = wanted(value, size, setting)? else { return Ok(()) };
    // The pipe is the process's.
    require(!matches!(setting, Setting::CU_COREDUMP_ENABLE_USER_TRIGGER | Setting::CU_COREDUMP_PIPE))?;
    let values = meant(setting, bytes).into_iter().map(|(setting, value)| ((context, setting), value));
    SETTINGS.lock().expect("no panic while it is held").own.extend(values);
    Ok(())
}

pub(crate) unsafe fn cuCoredumpSetAttributeGlobal(setting: Setting, value: *mut c_void, size: *mut usize) -> Outcome {
    let Some(bytes) = wanted(value, size, setting)? else { return Ok(()) };
    let mut settings = SETTINGS.lock().expect("no panic while it is held");
    let triggered = settings.of_all(Setting::CU_COREDUMP_ENABLE_USER_TRIGGER).is_some_and(|value| value[0] != 0);
    if setting == Setting::CU_COREDUMP_PIPE && triggered {
        return Err(CUresult::CUDA_ERROR_NOT_PERMITTED);
    }
    let first = context::next_id();
    for (setting, value) in meant(setting, bytes) {
        settings.all.entry(setting).or_default().push((first, value));
    }
    Ok(())
}
