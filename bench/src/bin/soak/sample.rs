//! What the process holds at one moment, and whether that grows.

use anyhow::{Context, Result};
use detshare_bench::program::memory;
use detshare_cuda::Driver;
use serde_json::{Value, json};
use std::time::Duration;

/// The process at rest.
pub(crate) struct Sample {
    pub(crate) seconds: f64,
    pub(crate) operations: u64,
    resident: u64,
    /// Memory that has been allocated and not freed, where the C library tells.
    heap: Option<u64>,
    files: u64,
    threads: u64,
    device: u64,
}

impl Sample {
    pub(crate) fn take(driver: &Driver, operations: u64, since: Duration) -> Result<Self> {
        let (free, total) = memory(driver)?;
        Ok(Self {
            seconds: since.as_secs_f64(),
            operations,
            resident: resident()?,
            heap: heap(),
            files: entries("/proc/self/fd")?,
            threads: threads()?,
            device: total - free,
        })
    }

    pub(crate) fn line(&self) -> String {
        format!(
            "{:7.1} s {:>11} operations, {:>8} KiB resident, {:>7} KiB of heap, {:>4} files, {:>3} threads, {:>9} KiB of device memory",
            self.seconds,
            self.operations,
            self.resident >> 10,
            self.heap.unwrap_or(0) >> 10,
            self.files,
            self.threads,
            self.device >> 10,
        )
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "seconds": self.seconds,
            "operations": self.operations,
            "resident_bytes": self.resident,
            "heap_bytes": self.heap,
            "files": self.files,
            "threads": self.threads,
            "device_bytes": self.device,
        })
    }
}

fn resident() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = text.split(' ').nth(1).context("no resident pages in statm")?.parse()?;
    // SAFETY: asks for a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Ok(pages * u64::try_from(page)?)
}

/// Shows small leaks where the allocator keeps nothing back for each thread, which counts as allocated: with
/// `GLIBC_TUNABLES=glibc.malloc.tcache_count=0`. So it is shown and not judged.
fn heap() -> Option<u64> {
    // SAFETY: a terminated name. Older C libraries do not have it.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"mallinfo2".as_ptr()) };
    if address.is_null() {
        return None;
    }
    // SAFETY: the C library's function of that name takes nothing and returns this.
    let mallinfo2: extern "C" fn() -> libc::mallinfo2 = unsafe { core::mem::transmute(address) };
    let info = mallinfo2();
    Some((info.uordblks + info.hblkhd) as u64)
}

/// A thread that was joined may still be listed for a moment: the least of several looks is right.
fn threads() -> Result<u64> {
    const LOOKS: u32 = 20;
    let mut least = u64::MAX;
    for _ in 0..LOOKS {
        least = least.min(entries("/proc/self/task")?);
        std::thread::yield_now();
    }
    Ok(least)
}

fn entries(folder: &str) -> Result<u64> {
    Ok(std::fs::read_dir(folder)?.count() as u64)
}

/// How one of them changed, from the most in the second quarter of the time to the most in the last.
pub(crate) struct Growth {
    what: &'static str,
    from: u64,
    to: u64,
    pub(crate) too_much: bool,
}

impl Growth {
    pub(crate) fn json(&self) -> Value {
        json!({ "what": self.what, "from": self.from, "to": self.to, "too_much": self.too_much })
    }
}

/// The first quarter does not count: pools fill, and the allocator gets what it needs.
pub(crate) fn judge(samples: &[Sample]) -> Vec<Growth> {
    /// The allocator's arenas and threads' stacks come and go by so much.
    const SLACK: u64 = 8 << 20;
    const SLACK_PERCENT: u64 = 3;
    let quarter = samples.len() / 4;
    let (early, late) = (&samples[quarter..(2 * quarter).max(quarter + 1)], &samples[samples.len() - quarter.max(1)..]);
    let growth = |what, value: fn(&Sample) -> u64, slack: fn(u64) -> u64| {
        let most = |samples: &[Sample]| samples.iter().map(value).max().unwrap_or(0);
        let (from, to) = (most(early), most(late));
        Growth { what, from, to, too_much: to > from + slack(from) }
    };
    vec![
        growth("resident bytes", |sample| sample.resident, |from| SLACK + from * SLACK_PERCENT / 100),
        growth("files", |sample| sample.files, |_| 0),
        growth("threads", |sample| sample.threads, |_| 0),
        growth("device bytes", |sample| sample.device, |_| 0),
    ]
}

pub(crate) fn print(samples: &[Sample], grown: &[Growth]) {
    println!("\n  {:16} {:>14} {:>14}   of {} samples", "", "2nd quarter", "last quarter", samples.len());
    for Growth { what, from, to, too_much } in grown {
        println!("  {what:16} {from:>14} {to:>14}   {}", if *too_much { "grows" } else { "" });
    }
}
