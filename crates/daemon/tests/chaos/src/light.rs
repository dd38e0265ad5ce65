//! A tenant without a GPU and without the shim: it joins, publishes and leaves. One that is busy, and one that publishes anything.

use anyhow::{Context, Result, bail};
use detshare_board::join::{Arrived, Hello, Welcome};
use detshare_board::{Class, LAYOUT, Tenant, TenantView, clock};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long the daemon may take to answer.
const ANSWER: Duration = Duration::from_secs(10);
/// What one does in its short stay.
const STEPS: usize = 3;
const STEP_NS: u64 = 1_000_000;
/// SMs of the GPU that it says it has.
const WIDTH: u32 = 132;
/// Kernels that one measures, and how many there are in all: as many as a program has.
const KERNELS: u64 = 8;
const ALL_KERNELS: u64 = 512;

/// The GPU that one says it is on.
pub(crate) struct Gpu<'a> {
    pub(crate) model: &'a str,
    pub(crate) driver: &'a str,
}

/// One that nobody has.
const NOTHING: Gpu<'_> = Gpu { model: "DetShare nothing", driver: "1.0" };

fn join(folder: &Path, name: &str, gpu: &Gpu<'_>, page: BorrowedFd<'_>) -> Result<UnixStream> {
    let stream = UnixStream::connect(folder.join("tenants.sock")).context("no daemon listens")?;
    stream.set_read_timeout(Some(ANSWER))?;
    let hello = Hello {
        name: name.to_string(),
        width: WIDTH,
        gpu: gpu.model.to_string(),
        driver: gpu.driver.to_string(),
        ..Hello::default()
    };
    hello.send(&stream, page)?;
    match Welcome::receive(&stream)? {
        (Welcome::Accepted { slot, .. }, Some(_)) => {
            // Its own arrival comes last: from then on all know it.
            while Arrived::receive(&stream)?.0.slot != slot {}
            Ok(stream)
        }
        (answer, _) => bail!("not taken in: {answer:?}"),
    }
}

/// Comes and goes so many times, by a name of its own each time. Says how often so far, now and then.
pub(crate) fn come_and_go(folder: &Path, first: u64, count: u64) -> Result<()> {
    /// How often it says so.
    const SAY: u64 = 50;
    for number in first..first + count {
        let page = Tenant::create(Class::BestEffort)?;
        page.set_lane(0, WIDTH);
        page.set_widths(&[WIDTH]);
        let stream = join(folder, &format!("light-{number}"), &NOTHING, page.file())?;
        for kernel in number * KERNELS..(number + 1) * KERNELS {
            let identity = 1 + kernel % ALL_KERNELS;
            page.note_kernel(identity, &format!("light_kernel_{identity}"), 0, STEP_NS, 1);
        }
        for _ in 0..STEPS {
            page.launch();
            page.note_step(STEP_NS);
            page.finish(page.launched(), 0);
        }
        drop(stream);
        if (number + 1 - first).is_multiple_of(SAY) {
            println!("{}", number + 1 - first);
            std::io::stdout().flush()?;
        }
    }
    // The last one does not leave but dies.
    let page = Tenant::create(Class::Latency)?;
    let _stream = join(folder, "dying", &NOTHING, page.file())?;
    page.launch();
    std::process::abort()
}

/// A group as somebody makes it who does not use the board's crate: the file, and its words to write anything into.
struct Forged {
    file: OwnedFd,
    words: &'static [AtomicU64],
}

impl Forged {
    const BYTES: usize = detshare_board::TENANT_BYTES;
    /// Where things are, in words: see the board's layout.
    const RECORD: usize = 256 / size_of::<u64>();
    const GPU: usize = 640 / size_of::<u64>();

    /// An idle tenant's, as it should be.
    fn new() -> Result<Self> {
        let file = memfd_create("detshare-tenant", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, Self::BYTES as u64)?;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let address = unsafe { mmap(core::ptr::null_mut(), Self::BYTES, access, flags, &file, 0)? };
        let first = address.cast::<AtomicU64>();
        // SAFETY: mapped with that size, never unmapped, aligned to a page; any bytes are atomics.
        let words = unsafe { core::slice::from_raw_parts(first, Self::BYTES / size_of::<AtomicU64>()) };
        /// A tenant's group.
        const KIND: u64 = 1;
        let header = [u64::from_le_bytes(*b"detshare"), KIND << 32 | u64::from(LAYOUT), Self::BYTES as u64];
        for (word, value) in words.iter().zip(header) {
            word.store(value, Ordering::Relaxed);
        }
        /// Class `best-effort`, after the sequence number.
        const BEST_EFFORT: u64 = 1 << 32;
        words[Self::RECORD].store(BEST_EFFORT, Ordering::Relaxed);
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE)?;
        Ok(Self { file, words })
    }
}

/// Joins, and goes on with whatever comes while it hears who else is there.
fn join_and_say_so(folder: &Path, name: &str, gpu: &Gpu<'_>, page: BorrowedFd<'_>) -> Result<UnixStream> {
    let stream = join(folder, name, gpu, page)?;
    println!("joined");
    std::io::stdout().flush()?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// The GPU of one who has come, if somebody has and says which.
fn gpu_of_another(stream: &UnixStream) -> Option<u64> {
    let (_, page) = Arrived::receive(stream).ok()?;
    TenantView::map(page).ok().map(|view| view.gpu()).filter(|gpu| *gpu != 0)
}

/// Joins and does one step after the other for as long as it lives. On the same GPU as those that it hears of, and with as much to do
/// for a processor as [`lie`].
pub(crate) fn keep_busy(folder: &Path, gpu: &Gpu<'_>) -> Result<()> {
    /// How long each step lasts, and the pause after it. Without one, each launch of others is held for as long as any may be, and a
    /// liar could not be worse.
    const BUSY_NS: u64 = 2_000_000;
    const PAUSE_NS: u64 = 1_000_000;
    let page = Tenant::create(Class::BestEffort)?;
    page.set_lane(0, WIDTH);
    page.set_widths(&[WIDTH]);
    let stream = join_and_say_so(folder, "busy", gpu, page.file())?;
    loop {
        if let Some(gpu) = gpu_of_another(&stream) {
            page.set_gpu(gpu);
        }
        let end = clock::now() + BUSY_NS;
        while clock::now() < end {
            page.launch();
        }
        page.note_step(BUSY_NS);
        page.finish(page.launched(), end + PAUSE_NS);
        while clock::now() < end + PAUSE_NS {
            std::hint::spin_loop();
        }
    }
}

/// Joins as it should, and then writes anything into its page for as long as it lives. It says that it is on the same
/// GPU as those that it hears of, so that they look at it, and of that model, so that what it shows would be kept with theirs.
pub(crate) fn lie(folder: &Path, seed: u64, gpu: &Gpu<'_>) -> Result<()> {
    /// How often it hears who else is there, in rounds of writing.
    const LISTEN: u64 = 1000;
    let forged = Forged::new()?;
    let stream = join_and_say_so(folder, "liar", gpu, forged.file.as_fd())?;
    let mut random = crate::random::Random::new(seed, 0);
    let mut gpu_id = 0;
    for round in 0_u64.. {
        if round.is_multiple_of(LISTEN) {
            gpu_id = gpu_of_another(&stream).unwrap_or(gpu_id);
        }
        for (index, word) in forged.words.iter().enumerate() {
            let number = random.next();
            let value = match number % 8 {
                0 => 0,
                1 => u64::MAX,
                2 => number >> 60,
                3 => (number >> 60) << 32 | number >> 61,
                4 => clock::now(),
                _ => number,
            };
            word.store(if index == Forged::GPU { gpu_id } else { value }, Ordering::Relaxed);
        }
    }
    Ok(())
}
