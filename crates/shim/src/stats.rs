//! Counts of what came through, written as JSON at exit where `DETSHARE_STATS` names a file.

use crate::boundary::guarded;
use crate::entries::OBSERVED;
use crate::resolve;
use crate::settings;
use crate::treatment::Kind;
use crate::{beckon, block_level, coroutine, graph, kernel, lane, quota, watchdog};
use core::arch::asm;
use core::ffi::CStr;
use core::fmt::Write;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use detshare_cuda::functions;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Threads count in different shards, so that they do not fight for a cache line.
const SHARDS: usize = 16;

#[repr(align(128))]
struct Shard([AtomicU64; OBSERVED.len()]);

static COUNTS: [Shard; SHARDS] = [const { Shard([const { AtomicU64::new(0) }; OBSERVED.len()]) }; SHARDS];

/// Counts one call of the observed function with that number.
#[inline]
pub(crate) fn count(observed: usize) {
    COUNTS[shard()].0[observed].fetch_add(1, Ordering::Relaxed);
}

/// Every thread has a stack of its own, so the stack pointer tells threads apart well enough, and costs
/// nothing to come by. (The address of a local would keep the caller's frame from ending in a jump.)
#[inline]
fn shard() -> usize {
    /// Frames of one thread lie mostly within this many bits, stacks of two threads further apart.
    const STACK_BITS: u32 = 16;
    const MORE_STACK_BITS: u32 = 23;
    let stack: usize;
    // SAFETY: only copies a register.
    unsafe { asm!("mov {}, rsp", out(reg) stack, options(nomem, nostack, preserves_flags)) };
    ((stack >> STACK_BITS) ^ (stack >> MORE_STACK_BITS)) % SHARDS
}

fn total(observed: usize) -> u64 {
    COUNTS.iter().map(|shard| shard.0[observed].load(Ordering::Relaxed)).sum()
}

/// Names that `cuGetProcAddress` was asked for and whose address belongs to no known function.
static UNTOUCHED: [crate::published::Published<String>; 64] = [const { crate::published::Published::nothing() }; 64];
static UNTOUCHED_COUNT: AtomicUsize = AtomicUsize::new(0);

/// Remembers that a function was handed out as the driver gave it; the first 64 by name.
pub(crate) fn handed_out_untouched(name: &CStr) {
    let number = UNTOUCHED_COUNT.fetch_add(1, Ordering::Relaxed);
    if let Some(place) = UNTOUCHED.get(number) {
        place.get_or_make(|| name.to_string_lossy().into_owned());
    }
}

/// Run by the loader when the process ends, after the program's own libraries.
extern "C" fn at_exit() {
    guarded((), || {
        let settings = settings::get();
        if settings.run == Some(std::process::id())
            && resolve::opened().is_none()
            && settings.children == Children::so_far()
        {
            crate::log::for_the_user(format_args!("the program did not use CUDA, so there was nothing to share"));
        }
        crate::record::write();
        if let (Some(file), Some(_)) = (&settings.stats, resolve::opened()) {
            let file = file_for_this_process(file, settings.process);
            if let Err(error) = write_whole(&file, &report()) {
                crate::log::line(format_args!("cannot write the stats to {}: {error}", file.display()));
            }
        }
    });
}

/// The other processes that it has waited for, which may have used CUDA in its stead: the pages that they touched first, of which
/// each has some.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Children(libc::c_long);

impl Children {
    pub(crate) fn so_far() -> Self {
        // SAFETY: numbers throughout, which may be zero.
        let mut used: libc::rusage = unsafe { core::mem::zeroed() };
        // SAFETY: writes what it is given.
        unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut used) };
        Self(used.ru_minflt)
    }
}

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;

/// `%p` stands for the process. Without it a forked child appends its own, so as to leave its parent's alone.
pub(crate) fn file_for_this_process(file: &OsStr, loaded_by: u32) -> PathBuf {
    let process = std::process::id().to_string();
    let bytes = file.as_bytes();
    if let Some(at) = bytes.windows(2).position(|pair| pair == b"%p") {
        let named = [&bytes[..at], process.as_bytes(), &bytes[at + 2..]].concat();
        return OsString::from_vec(named).into();
    }
    if std::process::id() == loaded_by {
        return file.into();
    }
    OsString::from_vec([bytes, b".", process.as_bytes()].concat()).into()
}

/// A reader sees the whole file or none.
pub(crate) fn write_whole(file: &Path, text: &str) -> std::io::Result<()> {
    let mut unfinished = file.as_os_str().to_os_string();
    unfinished.push(format!(".{}.part", std::process::id()));
    std::fs::write(&unfinished, text)?;
    std::fs::rename(&unfinished, file)
}

fn report() -> String {
    let mut text = String::from("{");
    let program = std::env::current_exe().unwrap_or_default();
    let _ = write!(text, "\"pid\":{},\"program\":{},", std::process::id(), json(&program.to_string_lossy()));
    match resolve::opened() {
        Some(Ok(driver)) => {
            let unknown = driver.unknown_functions();
            let _ = write!(
                text,
                "\"driver\":{{\"path\":{},\"version\":{},\"unknown_functions\":{}}},",
                json(&driver.path().to_string_lossy()),
                driver.version(),
                json_list(unknown.iter().map(String::as_str)),
            );
        }
        Some(Err(error)) => {
            let _ = write!(text, "\"driver\":{{\"error\":{}}},", json(&error.to_string()));
        }
        None => {}
    }
    let of_kind = |kind: Kind| -> u64 {
        OBSERVED.iter().enumerate().filter(|(_, (_, it))| *it == kind).map(|(observed, _)| total(observed)).sum()
    };
    let _ = write!(
        text,
        "\"counts\":{{\"launches\":{},\"graph_launches\":{},\"copies\":{},\"synchronisations\":{}}},",
        of_kind(Kind::Launch),
        of_kind(Kind::GraphLaunch),
        of_kind(Kind::Copy),
        of_kind(Kind::Synchronise),
    );
    let _ = write!(text, "{}{}{}", lanes(), memory(), parts());
    let called = OBSERVED
        .iter()
        .enumerate()
        .map(|(observed, (index, _))| (functions()[*index].name, total(observed)))
        .filter(|(_, calls)| *calls > 0)
        .map(|(name, calls)| format!("{}:{calls}", json(name)));
    let _ = write!(text, "\"by_function\":{{{}}},", called.collect::<Vec<_>>().join(","));
    let untouched = UNTOUCHED.iter().filter_map(|place| place.get()).map(String::as_str);
    let _ = writeln!(text, "\"handed_out_untouched\":{}}}", json_list(untouched));
    text
}

/// What was used of the quota, if there is one.
fn memory() -> String {
    quota::report().map_or_else(String::new, |(quota, used, most)| {
        format!("\"memory\":{{\"quota\":{quota},\"used\":{used},\"most\":{most}}},")
    })
}

/// What was launched in parts, if anything was.
fn parts() -> String {
    let [sliced, preemptible, stopped, let_go, by_others] =
        block_level::COUNTS.each_ref().map(|count| count.load(Ordering::Relaxed));
    if sliced + preemptible == 0 {
        return String::new();
    }
    format!(
        "\"block_level\":{{\"sliced\":{sliced},\"preemptible\":{preemptible},\"stopped\":{stopped},\"let_go\":{let_go},\"by_others\":{by_others}}},"
    )
}

/// What the lanes did, if there are any.
fn lanes() -> String {
    let mut text = String::new();
    // One device is what programs have; further ones would need a list.
    if let Some(coroutine) = coroutine::all().next() {
        let made = || coroutine.lanes.iter().enumerate().filter(|(_, lane)| lane.width() != 0);
        let each = made().map(|(index, lane)| {
            format!(
                "{{\"name\":{},\"width\":{},\"bytes\":{},\"launches\":{}}}",
                json(&lane::name(index, lane)),
                lane.width(),
                lane.bytes(),
                coroutine.launches(index),
            )
        });
        let _ = write!(
            text,
            "\"lanes\":{{\"moves\":{},\"bytes\":{},\"graph_copies\":{},\"graphs_not_copied\":{},\"kernels_reported\":{},\"kernels\":{},\"kernels_without_module\":{},\"shapes\":{},\"beckoned\":{},\"each\":[{}]}},",
            coroutine.moves.load(Ordering::Relaxed),
            made().map(|(_, lane)| lane.bytes()).sum::<u64>(),
            graph::COPIES_MADE.load(Ordering::Relaxed),
            graph::NOT_COPIED.load(Ordering::Relaxed),
            watchdog::REPORTED.load(Ordering::Relaxed),
            kernel::SEEN.load(Ordering::Relaxed),
            kernel::WITHOUT_MODULE.load(Ordering::Relaxed),
            kernel::SHAPES.load(Ordering::Relaxed),
            beckon::BECKONED.load(Ordering::Relaxed),
            each.collect::<Vec<_>>().join(","),
        );
    }
    text
}

fn json_list<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    format!("[{}]", texts.map(json).collect::<Vec<_>>().join(","))
}

/// A text as a JSON string.
pub(crate) fn json(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => {
                quoted.push('\\');
                quoted.push(character);
            }
            control if u32::from(control) < 0x20 => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(control));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}
