//! What the environment asks for, read once when the library is loaded.
//!
//! Reading it then, and not at the first call, keeps clear of threads that change the environment later.

use crate::block_level::{BlockLevel, Forced};
use crate::published::Published;
use crate::schedule::Schedule;
use crate::stats::Children;
use detshare_board::{Class, Objective, join};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// What the environment asked for.
#[derive(Debug)]
pub(crate) struct Settings {
    /// `DETSHARE_DRIVER`: the real driver's absolute path.
    pub(crate) driver: Option<OsString>,
    /// `DETSHARE_STATS`: where to write the counts at exit.
    pub(crate) stats: Option<OsString>,
    /// `DETSHARE_SCHEDULE`: which lanes launches get. Without it streams are not touched, and there are no lanes.
    pub(crate) schedule: Option<Schedule>,
    /// `DETSHARE_SEGMENT`: graphs with more nodes are launched in segments of so many, each on a lane of its own.
    pub(crate) segment: Option<usize>,
    /// `DETSHARE_DIGEST`: where to record what leaves the GPU.
    pub(crate) digest: Option<OsString>,
    /// `DETSHARE_RECORD`: where to write what was launched, and when.
    pub(crate) record: Option<OsString>,
    /// `DETSHARE_MEM`: the most device memory that this process can have on each device, in bytes.
    pub(crate) memory: Option<u64>,
    /// `DETSHARE_DIR`: where the daemon is that this process joins.
    pub(crate) folder: Option<PathBuf>,
    /// `DETSHARE_CLASS`, `DETSHARE_NAME`, and `DETSHARE_P99`, `DETSHARE_TTFT` and `DETSHARE_TPOT` in nanoseconds: what
    /// the daemon is told.
    pub(crate) class: Option<Class>,
    pub(crate) name: Option<String>,
    pub(crate) objective: Objective,
    /// `DETSHARE_BLOCK_LEVEL`: whether long kernels are to give way in the middle, or what tests do to all that can.
    pub(crate) block_level: Option<BlockLevel>,
    /// `DETSHARE_RUN`: the process that `detshare run` became, which is to say so if it never used CUDA.
    pub(crate) run: Option<u32>,
    /// `DETSHARE_LOG`: say on standard error what goes wrong.
    pub(crate) log: bool,
    /// `LD_LIBRARY_PATH`: where the loader would have looked for the driver.
    pub(crate) library_path: Option<OsString>,
    /// The process that loaded the library; a forked child differs.
    pub(crate) process: u32,
    /// What it had waited for by then: `detshare run` may have started a daemon in this very process.
    pub(crate) children: Children,
}

impl Settings {
    /// Whether streams are looked after: somebody decides which lanes they get.
    pub(crate) fn binds(&self) -> bool {
        self.schedule.is_some() || self.folder.is_some() || self.forced().is_some()
    }

    /// What tests do to kernels that can be launched in parts.
    pub(crate) fn forced(&self) -> Option<&Forced> {
        match &self.block_level {
            Some(BlockLevel::Forced(forced)) => Some(forced),
            Some(BlockLevel::On) | None => None,
        }
    }
}

static SETTINGS: Published<Settings> = Published::nothing();

/// The settings; read now if no one did before.
pub(crate) fn get() -> &'static Settings {
    SETTINGS.get_or_make(read)
}

fn read() -> Settings {
    let filled = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let number = |name: &str| filled(name).and_then(|value| value.to_str()?.parse::<u64>().ok());
    Settings {
        driver: filled("DETSHARE_DRIVER"),
        stats: filled("DETSHARE_STATS"),
        schedule: filled("DETSHARE_SCHEDULE").and_then(|value| Schedule::parse(&value.to_string_lossy())),
        segment: filled("DETSHARE_SEGMENT").and_then(|value| value.to_str()?.parse().ok()).filter(|nodes| *nodes > 0),
        digest: filled("DETSHARE_DIGEST"),
        record: filled("DETSHARE_RECORD"),
        memory: filled("DETSHARE_MEM").and_then(|value| crate::quota::parse(&value.to_string_lossy())),
        folder: filled("DETSHARE_DIR").map(PathBuf::from).filter(|folder| folder.is_absolute()),
        class: filled("DETSHARE_CLASS").and_then(|value| class(&value)),
        name: filled("DETSHARE_NAME").and_then(|name| name.into_string().ok()).filter(|name| join::is_name(name)),
        objective: Objective {
            p99_ns: number("DETSHARE_P99"),
            ttft_ns: number("DETSHARE_TTFT"),
            tpot_ns: number("DETSHARE_TPOT"),
        },
        block_level: filled("DETSHARE_BLOCK_LEVEL").and_then(|value| BlockLevel::parse(&value.to_string_lossy())),
        run: number("DETSHARE_RUN").and_then(|process| u32::try_from(process).ok()),
        log: filled("DETSHARE_LOG").is_some_and(|value| value != OsStr::new("0")),
        library_path: filled("LD_LIBRARY_PATH"),
        process: std::process::id(),
        children: Children::so_far(),
    }
}

fn class(value: &OsStr) -> Option<Class> {
    match value.to_str()? {
        "latency" => Some(Class::Latency),
        "best-effort" => Some(Class::BestEffort),
        _ => None,
    }
}

/// Run by the loader.
extern "C" fn on_load() {
    crate::boundary::guarded((), || {
        get();
        crate::digest::start();
        crate::record::start();
        crate::opening::watch_forks();
        crate::boundary::silence_panics();
        crate::quota::check_setting();
        check();
    });
}

/// Says what was set and makes no sense.
fn check() {
    let settings = get();
    let bad = [
        ("DETSHARE_SCHEDULE", settings.schedule.is_none(), "full, random:SEED, cycle, or a lane such as front32"),
        ("DETSHARE_SEGMENT", settings.segment.is_none(), "a number of nodes"),
        ("DETSHARE_DIR", settings.folder.is_none(), "an absolute path"),
        ("DETSHARE_BLOCK_LEVEL", settings.block_level.is_none(), "on, random:SEED, slices:BLOCKS or preempt:BLOCKS"),
        ("DETSHARE_CLASS", settings.class.is_none(), "latency or best-effort"),
        ("DETSHARE_NAME", settings.name.is_none(), "up to 63 letters, digits, '.', '_' and '-'"),
    ];
    for (name, is_none, wanted) in bad {
        if let Some(value) = std::env::var_os(name).filter(|value| is_none && !value.is_empty()) {
            crate::log::line(format_args!("{name}={} is ignored: it can be {wanted}", value.display()));
        }
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static ON_LOAD: extern "C" fn() = on_load;
