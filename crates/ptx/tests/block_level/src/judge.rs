//! Whether a launch in parts gives what it gives at once, with every block run exactly once.
//!
//! Stopping in the middle, the same way each time and on every device: one of the four flags is the counter itself, and
//! the mask is one of its bits. The version then ends when the counter reaches a number with that bit, and goes on when
//! it is launched with another. Beside that, a thread of the host sets a flag at random times.

use crate::counting::COUNTS;
use crate::gpu::{FLAGS, Gpu};
use crate::launch::Launch;
use crate::stage::{Contents, GIVE_WAY, NOBODY_LOOKS, SOMEBODY_LOOKS, Stage, Turn, difference};
use crate::subject::Subject;
use crate::worker::doing;
use anyhow::{Result, bail, ensure};
use detshare_kernel_fuzz::{Random, hash_text};
use detshare_ptx::block_level::{Kernel, Persistent, Version};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Nothing that a counter of few blocks ever has.
const NEVER: u32 = 1 << 31;
/// Threads of a warp.
const WARP: u32 = 32;
/// Where every block is launched alone.
const MOST_ALONE: u32 = 64;
/// How often a flag is set while the version runs, before it may run to its end.
const DISTURBED: u32 = 6;

/// How much is done with each launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Everything.
    Full,
    /// One way of slicing and one of preempting, for the thousands of kernels that a generator makes.
    Sample,
}

/// What was found out about a launch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// In how many ways it was run in parts.
    pub(crate) ways: u32,
    /// How often a preemptible version ended before it was done.
    pub(crate) stops: u32,
    /// How many of these came of a flag that the host set while it ran.
    pub(crate) sudden: u32,
}

impl Report {
    pub(crate) fn add(&mut self, other: &Self) {
        self.ways += other.ways;
        self.stops += other.stops;
        self.sudden += other.sudden;
    }
}

/// Judges one launch of a loaded module. An error is a difference, or a call that failed.
pub(crate) fn judge(gpu: &Gpu, subject: &Subject, launch: &Launch, seed: u64, effort: Effort) -> Result<Report> {
    let kernel = subject.kernel(&launch.kernel)?;
    let mut report = Report::default();
    if kernel.sliced.is_err() && kernel.preemptible.is_err() {
        return Ok(report);
    }
    let stage = Stage::new(gpu, subject, launch)?;
    doing("the original")?;
    let right = stage.original()?;
    if effort == Effort::Full
        && let Some(difference) = difference(&right, &stage.original()?)
    {
        bail!("the original gives something else each time: {difference}");
    }
    let mut random = Random::new(seed ^ hash_text(&launch.kernel));
    if let Ok(version) = &kernel.sliced {
        sliced(&stage, version, &right, &mut random, effort, &mut report)?;
    }
    if let Some(version) = preemptible(kernel, launch) {
        preempted(&stage, version, &right, &mut random, effort, &mut report)?;
    }
    stage.leave()?;
    Ok(report)
}

/// The preemptible version, if it may be launched so.
fn preemptible<'k>(kernel: &'k Kernel, launch: &Launch) -> Option<&'k Version> {
    let version = kernel.preemptible.as_ref().ok()?;
    (!version.whole_rows || launch.block[0].is_multiple_of(WARP)).then_some(version)
}

/// That in a module that counts, each block was begun by all of its threads, once.
pub(crate) fn judge_counts(gpu: &Gpu, subject: &Subject, launch: &Launch, seed: u64) -> Result<()> {
    let kernel = subject.kernel(&launch.kernel)?;
    let stage = Stage::new(gpu, subject, launch)?;
    let mut random = Random::new(seed ^ hash_text(&launch.kernel));
    if let Ok(version) = &kernel.sliced {
        let sizes = random_sizes(launch.blocks(), &mut random);
        doing(&format!("counted, sliced {sizes:?}"))?;
        exactly_once(launch, &stage.sliced(version, &sizes)?)
            .map_err(|error| error.context(format!("sliced {sizes:?}")))?;
    }
    if let Some(version) = preemptible(kernel, launch) {
        stage.reset()?;
        let mut turns = Vec::new();
        stop_by_counter(&stage, version, &mut random, None, &mut turns)?;
        exactly_once(launch, &stage.contents()?)
            .map_err(|error| error.context(format!("preempted, {}", described(&turns))))?;
    }
    stage.leave()
}

fn exactly_once(launch: &Launch, contents: &Contents) -> Result<()> {
    let Some((_, counts)) = contents.iter().find(|(name, _)| name == COUNTS) else { bail!("nothing was counted") };
    let counts: Vec<u32> = counts.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
    let blocks = launch.blocks() as usize;
    ensure!(counts.len() > blocks, "too few counters");
    ensure!(counts[blocks..].iter().all(|count| *count == 0), "threads ran in blocks that are not in the grid");
    let threads = launch.threads();
    match counts[..blocks].iter().position(|count| *count != threads) {
        Some(block) => bail!("block {block} was begun {} times by its {threads} threads", counts[block]),
        None => Ok(()),
    }
}

fn sliced(
    stage: &Stage<'_>,
    version: &Version,
    right: &Contents,
    random: &mut Random,
    effort: Effort,
    report: &mut Report,
) -> Result<()> {
    let blocks = stage.launch.blocks();
    let mut ways = vec![random_sizes(blocks, random)];
    if effort == Effort::Full {
        ways.extend([vec![blocks], random_sizes(blocks, random)]);
        if blocks <= MOST_ALONE {
            ways.push(vec![1; blocks as usize]);
        }
    }
    for sizes in ways {
        doing(&format!("sliced {sizes:?}"))?;
        let contents = stage.sliced(version, &sizes).map_err(|error| error.context("sliced"))?;
        compare(right, &contents, || format!("sliced {sizes:?}"))?;
        report.ways += 1;
    }
    Ok(())
}

/// Sizes of slices that make up so many blocks.
fn random_sizes(blocks: u32, random: &mut Random) -> Vec<u32> {
    let mut sizes = Vec::new();
    let mut left = blocks;
    while left > 0 {
        let size = 1 + random.below(left.min(1 + blocks / 2));
        sizes.push(size);
        left -= size;
    }
    sizes
}

fn preempted(
    stage: &Stage<'_>,
    version: &Version,
    right: &Contents,
    random: &mut Random,
    effort: Effort,
    report: &mut Report,
) -> Result<()> {
    let blocks = stage.launch.blocks();
    let mut whole = Duration::ZERO;
    if effort == Effort::Full {
        held(stage, version, right)?;
        for width in [1, 1 + random.below(blocks), blocks + 1 + random.below(3)] {
            stage.reset()?;
            let mut turns = Vec::new();
            let started = Instant::now();
            turn(stage, version, random, (width, NEVER, 0), &mut turns)?;
            whole = whole.max(started.elapsed());
            finished(stage, right, &turns)?;
            report.ways += 1;
        }
    }
    let widths: &[Option<u32>] = if effort == Effort::Full { &[Some(1), None, None] } else { &[None] };
    for width in widths {
        stage.reset()?;
        let mut turns = Vec::new();
        stop_by_counter(stage, version, random, *width, &mut turns)?;
        report.stops += u32::try_from(turns.len()).unwrap_or_default().saturating_sub(1);
        finished(stage, right, &turns)?;
        report.ways += 1;
    }
    if effort == Effort::Sample {
        return Ok(());
    }
    stage.reset()?;
    let mut turns = Vec::new();
    let stops = stop_suddenly(stage, version, random, whole, &mut turns)?;
    (report.stops, report.sudden) = (report.stops + stops, report.sudden + stops);
    finished(stage, right, &turns)?;
    report.ways += 1;
    Ok(())
}

/// What a launch began with, where it was to stop, and where it did.
type Turns = Vec<(u32, u32, u32)>;

/// Where the counter is after these.
fn reached(turns: &Turns) -> u32 {
    turns.last().map_or(0, |(_, _, to)| *to)
}

fn described(turns: &Turns) -> String {
    let turns: Vec<_> =
        turns.iter().map(|(width, from, to)| format!("{from} to {to} by {width} persistent blocks")).collect();
    turns.join(", ")
}

fn finished(stage: &Stage<'_>, right: &Contents, turns: &Turns) -> Result<()> {
    compare(right, &stage.contents()?, || format!("preempted, {}", described(turns)))
}

fn compare(right: &Contents, other: &Contents, way: impl Fn() -> String) -> Result<()> {
    match difference(right, other) {
        Some(difference) => bail!("{}: {difference}", way()),
        None => Ok(()),
    }
}

/// With a flag that is set from the start one persistent block runs the one block that it has begun before it looked, whichever flag it is,
/// and tells the others; what is left runs when nothing is set any more. Who is told runs nothing, however many they are. While
/// somebody else looks, nobody does, and all of it runs, as it does without flags.
fn held(stage: &Stage<'_>, version: &Version, right: &Contents) -> Result<()> {
    const MASK: u32 = 0b1100;
    let kernel = stage.version(version, size_of::<Persistent>())?;
    let flags = std::array::from_fn(|index| stage.gpu.flag_address(index));
    for flag in 0..FLAGS {
        let mut words = [0; FLAGS];
        words[flag] = 0b1010;
        stage.gpu.set_flags(words);
        stage.reset()?;
        stage.start(kernel, Turn { width: 1, flags, mask: MASK, seen: NOBODY_LOOKS })?;
        let (next, _) = stage.counter_and_contents()?;
        ensure!(next == 1, "{next} blocks were begun although flag {flag} was set");
        let told = stage.gpu.read_word(stage.seen())?;
        ensure!(told == 1, "flag {flag} was set, and others are told {told}");
        stage.gpu.set_flags([0; FLAGS]);
        stage.start(kernel, Turn { width: 2, flags, mask: MASK, seen: NOBODY_LOOKS })?;
        compare(right, &stage.contents()?, || {
            format!("one block, and then the others, with flag {flag} set at first")
        })?;
    }
    stage.reset()?;
    let before = stage.contents()?;
    stage.start(kernel, Turn { width: 1 + stage.launch.blocks(), flags, mask: MASK, seen: GIVE_WAY })?;
    let (next, after) = stage.counter_and_contents()?;
    ensure!(next == 0, "block {next} was begun although somebody has seen that it is to give way");
    compare(&before, &after, || "nothing was to run once somebody has seen that it is to give way".to_string())?;
    stage.start(kernel, Turn { width: 1, flags: [0; FLAGS], mask: u32::MAX, seen: NOBODY_LOOKS })?;
    compare(right, &stage.contents()?, || "without flags".to_string())?;
    stage.reset()?;
    stage.gpu.set_flags([u32::MAX; FLAGS]);
    stage.start(kernel, Turn { width: 1, flags, mask: MASK, seen: SOMEBODY_LOOKS })?;
    compare(right, &stage.contents()?, || "while somebody else looks".to_string())
}

/// Runs the version once with so many persistent blocks, until the counter has a bit of the mask; `must_reach` is where
/// it may stop at the earliest, 0 for its end.
fn turn(
    stage: &Stage<'_>,
    version: &Version,
    random: &mut Random,
    (width, mask, must_reach): (u32, u32, u32),
    turns: &mut Turns,
) -> Result<()> {
    let kernel = stage.version(version, size_of::<Persistent>())?;
    let blocks = stage.launch.blocks();
    let must_reach = if must_reach == 0 { blocks } else { must_reach };
    let from = reached(turns);
    // The other flags have everything set that does not count, or are not there.
    stage.gpu.set_flags([!mask; FLAGS]);
    let mut flags = std::array::from_fn(|index| if random.percent(25) { 0 } else { stage.gpu.flag_address(index) });
    flags[random.index(FLAGS)] = stage.next;
    doing(&format!("preempted, {from} to {must_reach} by {width} persistent blocks"))?;
    stage.start(kernel, Turn { width, flags, mask, seen: NOBODY_LOOKS })?;
    let to = stage.gpu.read_word(stage.next)?;
    turns.push((width, from, to));
    // Several persistent blocks may have looked already, and carry the counter past the bit.
    let at_most = if width == 1 && must_reach < blocks { must_reach } else { blocks + width };
    ensure!(
        (must_reach..=at_most).contains(&to),
        "preempted, {}: the counter should be {must_reach} to {at_most}",
        described(turns)
    );
    Ok(())
}

/// Runs the version until it is done, with stops wherever the counter gets a bit that is chosen anew each time.
fn stop_by_counter(
    stage: &Stage<'_>,
    version: &Version,
    random: &mut Random,
    width: Option<u32>,
    turns: &mut Turns,
) -> Result<()> {
    let blocks = stage.launch.blocks();
    loop {
        let next = reached(turns);
        if next >= blocks {
            return Ok(());
        }
        let stops = (0..31).filter(|bit| next >> bit & 1 == 0).map(|bit| (1 << bit, ((next >> bit) | 1) << bit));
        let stops: Vec<(u32, u32)> = stops.filter(|(_, stop)| *stop < blocks).collect();
        let (mask, must_reach) = if stops.is_empty() { (NEVER, 0) } else { random.pick(&stops) };
        let width = width.unwrap_or_else(|| 1 + random.below(blocks.min(8)));
        turn(stage, version, random, (width, mask, must_reach), turns)?;
    }
}

/// Runs the version until it is done, with a flag that the host sets at some time before a whole run would be over; how
/// often it stopped in the middle.
fn stop_suddenly(
    stage: &Stage<'_>,
    version: &Version,
    random: &mut Random,
    whole: Duration,
    turns: &mut Turns,
) -> Result<u32> {
    let kernel = stage.version(version, size_of::<Persistent>())?;
    let blocks = stage.launch.blocks();
    let flags = std::array::from_fn(|index| stage.gpu.flag_address(index));
    let mut stops = 0;
    for attempt in 0..=DISTURBED {
        let from = reached(turns);
        if from >= blocks {
            return Ok(stops);
        }
        stage.gpu.set_flags([0; FLAGS]);
        let width = 1 + random.below(blocks.min(8));
        let flag = stage.gpu.flag(random.index(FLAGS));
        let wait = whole.mul_f64(f64::from(random.below(100)) / 100.0);
        doing(&format!("preempted suddenly, from {from} by {width} persistent blocks"))?;
        let started = Instant::now();
        stage.start(kernel, Turn { width, flags, mask: 1, seen: NOBODY_LOOKS })?;
        if attempt < DISTURBED {
            while started.elapsed() < wait {
                std::hint::spin_loop();
            }
            flag.store(1, Ordering::SeqCst);
        }
        let to = stage.gpu.read_word(stage.next)?;
        turns.push((width, from, to));
        ensure!(to >= from, "preempted, {}: the counter went back", described(turns));
        stops += u32::from(to > from && to < blocks);
    }
    let to = reached(turns);
    ensure!(to >= blocks, "preempted, {}: it ended early although no flag was set", described(turns));
    Ok(stops)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_slices_make_up_the_grid() {
        let mut random = Random::new(1);
        for blocks in [1, 2, 7, 100] {
            assert_eq!(random_sizes(blocks, &mut random).iter().sum::<u32>(), blocks);
        }
    }

    #[test]
    fn a_block_that_ran_twice_or_not_at_all_is_found() {
        let launch = Launch::parse("k <<<3, 32>>> ()").unwrap();
        let contents = |counts: [u32; 4]| vec![(COUNTS.to_string(), counts.map(u32::to_le_bytes).concat())];
        assert!(exactly_once(&launch, &contents([32, 32, 32, 0])).is_ok());
        for wrong in [[32, 64, 32, 0], [32, 0, 32, 0], [32, 31, 32, 0], [32, 32, 32, 1]] {
            assert!(exactly_once(&launch, &contents(wrong)).is_err());
        }
        assert!(exactly_once(&launch, &Vec::new()).is_err());
    }
}
