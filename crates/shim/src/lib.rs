//! `libcuda.so.1` for tenants: stands in for the CUDA driver, and binds a program's streams to lanes.
//!
//! A program loads this library in place of the driver (`LD_PRELOAD`, or first on `LD_LIBRARY_PATH`) and
//! notices nothing: every function that the driver exports is exported here and ends in the real function,
//! with the same arguments and the same result.
//!
//! * `treatment` decides for each function what its entry does; `entries` are the exported functions, made from
//!   that table at build time. A forwarding entry is one jump through its *slot*; no signature is involved, so
//!   none can be wrong.
//! * `resolve` opens the real driver at the first call, whichever it is, and fills the slots; `opening` keeps
//!   that apart from a fork; `no_driver` answers where there is no driver.
//! * `coroutine` is a primary context as the program sees it: its logical streams (`stream`), found by `handles`,
//!   and its `lane`s. `bind` says where a call goes that takes a stream, `kernel` which lanes can hold a launch,
//!   `watchdog` which kernels do badly there, and with `timing` what they take. `graph` has the copies of graphs. `background`
//!   makes what launches need before they need it.
//! * `tenant` is this process among others: its page on the board, the daemon that it joined, the others' pages. `gate`
//!   decides which lane a launch gets, or that it is held (`schedule` is what tests decide by); `steps` says when this
//!   process is busy, with `unfinished` for the streams that have something left to do.
//! * `block_level` launches long kernels in parts where they come as PTX and somebody asked for it.
//! * `replace` has the functions with code of our own, by theme; `call` calls the driver from there, and `handed` reads the program's
//!   lists. `relaxed` is for what we ask of our own accord while the program may be capturing.
//! * `quota` limits what can be allocated, `digest` records what leaves the GPU.
//! * `stats` counts and writes the counts at exit; `settings` is what the environment asked for.
//!
//! The library lives in other people's processes: it never prints (unless `DETSHARE_LOG` or `detshare run` asks for it), never
//! panics across the C boundary, shares no lock between streams on a launch, and works from any thread, in a forked
//! child, and while the process exits.

#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it lives in other people's processes")]

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("the shim's entries are written for Linux on x86-64");

#[macro_use]
mod call;

mod background;
mod beckon;
mod bind;
mod block_level;
mod boundary;
mod coroutine;
mod digest;
#[allow(non_snake_case, clippy::wildcard_imports, reason = "the names are the C API's")]
mod entries;
mod flight;
mod freedom;
mod gate;
mod graph;
mod handed;
mod handles;
mod hot;
mod in_flight;
mod kernel;
mod lane;
mod log;
mod marks;
mod module;
mod no_driver;
mod opening;
mod published;
mod quarantine;
mod quota;
mod record;
mod relaxed;
#[allow(non_snake_case, reason = "the names are the C API's")]
mod replace;
mod resolve;
mod schedule;
mod settings;
mod stats;
mod steps;
mod stream;
mod tenant;
mod timing;
#[allow(dead_code, reason = "most of it is read by the build script alone")]
mod treatment;
mod unfinished;
mod watchdog;

/// The owner's name and this library's, as an ELF note: a search for the driver passes such files over.
#[repr(C, align(4))]
struct Note {
    name_size: u32,
    description_size: u32,
    kind: u32,
    name: [u8; 12],
    description: [u8; 8],
}

const _: () = assert!(detshare_cuda::driver::STAND_IN_NOTE.len() == 8);

#[used]
#[unsafe(link_section = ".note.detshare")]
static NOTE: Note =
    Note { name_size: 9, description_size: 5, kind: 1, name: *b"DetShare\0\0\0\0", description: *b"shim\0\0\0\0" };
