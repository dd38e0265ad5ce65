//! Real PTX with mistakes in it, loaded and run: no panic, no access outside of what it was given, no end of patience.
//!
//! `DETSHARE_FUZZ_SECONDS=3600 cargo test --release -p detshare-softgpu --lib fuzz -- --nocapture` goes on for an hour
//! (`DETSHARE_FUZZ_SEED` for other inputs); an ordinary test run takes a few hundred inputs. What made it fail is left
//! in the temporary folder.

use super::super::check::FindingKind;
use super::*;
use crate::device;
use core::sync::atomic::{AtomicU64, Ordering};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Inputs of an ordinary test run.
const FEW: u64 = 300;
/// What one input may take before it counts as one that hangs; it takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// Warp instructions of a turn, and turns, that a kernel gets.
const TURN: u64 = 5_000;
const TURNS: u32 = 4;
/// The memory that kernels get, for their parameters to point to and for variables.
const WORDS: usize = 8192;
const THREADS: u32 = 96;
/// Clusters of kernels that declare none: none, 2 blocks, and 4 in two ways.
const CLUSTERS: [Option<[u32; 3]>; 4] = [None, Some([2, 1, 1]), Some([4, 1, 1]), Some([2, 2, 1])];

/// Where that memory is.
static START: AtomicU64 = AtomicU64::new(0);

fn is_given(address: u64, bytes: u64) -> bool {
    let start = START.load(Ordering::Relaxed);
    let end = start + WORDS as u64 * 8;
    address >= start && address.checked_add(bytes).is_some_and(|to| to <= end)
}

/// Numbers that are as good as random, and the same again for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    /// Below a limit that is not 0.
    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

/// PTX that is known to be right.
fn seeds() -> Vec<String> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<PathBuf> = ["tests/instructions/cases", "../ptx/tests/corpus"]
        .iter()
        .flat_map(|folder| std::fs::read_dir(here.join(folder)).expect("it is there"))
        .map(|file| file.expect("it can be listed").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "ptx"))
        .collect();
    files.sort();
    files.iter().map(|file| std::fs::read_to_string(file).expect("PTX is text")).collect()
}

/// Words that change what an instruction means.
const PARTS: [&str; 40] = [
    ".u32",
    ".s32",
    ".b32",
    ".f32",
    ".u64",
    ".s64",
    ".b64",
    ".f64",
    ".u16",
    ".b16",
    ".f16",
    ".f16x2",
    ".bf16",
    ".u8",
    ".s8",
    ".pred",
    ".shared",
    ".global",
    ".local",
    ".param",
    ".const",
    ".v2",
    ".v4",
    ".sat",
    ".ftz",
    ".rn",
    ".rz",
    ".wide",
    ".hi",
    ".lo",
    ".sync",
    ".aligned",
    ".relaxed",
    ".volatile",
    ".gpu",
    ".cluster",
    ".all",
    ".idx",
    ".down",
    ".popc",
];
const NUMBERS: [&str; 12] =
    ["0", "1", "-1", "2", "31", "32", "255", "65535", "0x7fffffff", "0xffffffff", "0x8000000000000000", "1048576"];

/// A line with one word of it changed.
fn other_word(line: &str, random: &mut Random) -> String {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"._%$".contains(&byte);
    let bytes = line.as_bytes();
    let starts: Vec<usize> =
        (0..bytes.len()).filter(|at| is_word(bytes[*at]) && (*at == 0 || !is_word(bytes[at - 1]))).collect();
    if starts.is_empty() {
        return line.to_string();
    }
    let start = *random.pick(&starts);
    let length = bytes[start..].iter().take_while(|byte| is_word(**byte)).count();
    let word = &line[start..start + length];
    let new = match random.below(4) {
        0 => random.pick(&NUMBERS).to_string(),
        1 if word.contains('.') => {
            let mut parts: Vec<&str> = word.split_inclusive('.').collect();
            let at = random.below(parts.len());
            parts.remove(at);
            parts.concat()
        }
        1 | 2 => format!("{word}{}", random.pick(&PARTS)),
        _ => {
            let other = *random.pick(&starts);
            let length = bytes[other..].iter().take_while(|byte| is_word(**byte)).count();
            line[other..other + length].to_string()
        }
    };
    format!("{}{new}{}", &line[..start], &line[start + length..])
}

/// A source with a few mistakes.
fn mutated(seeds: &[String], random: &mut Random) -> String {
    let mut lines: Vec<String> = random.pick(seeds).lines().map(str::to_string).collect();
    for _ in 0..=random.below(4) {
        if lines.is_empty() {
            break;
        }
        let at = random.below(lines.len());
        match random.below(8) {
            0 => drop(lines.remove(at)),
            1 => lines.insert(at, lines[random.below(lines.len())].clone()),
            2 => {
                let other = random.pick(seeds);
                let foreign: Vec<&str> = other.lines().collect();
                lines.insert(at, random.pick(&foreign).to_string());
            }
            3 => {
                let other = random.below(lines.len());
                lines.swap(at, other);
            }
            _ => lines[at] = other_word(&lines[at], random),
        }
    }
    lines.join("\n")
}

/// What became of an input.
#[derive(Debug, Default)]
struct Tally {
    inputs: u64,
    parsed: u64,
    decoded: u64,
    kernels: u64,
    finished: u64,
    faults: u64,
    /// Of the kernels, by the blocks that ran together: how many there were, and how many of them ended well.
    clusters: std::collections::BTreeMap<u32, (u64, u64)>,
    findings: std::collections::BTreeMap<FindingKind, u64>,
}

/// Loads a source and runs its kernels as far as the driver would let them.
fn try_out(source: &str, memory: &[AtomicU64], check: bool, cluster: Option<[u32; 3]>, tally: &mut Tally) {
    tally.inputs += 1;
    let Ok(module) = detshare_ptx::parse(source) else { return };
    tally.parsed += 1;
    let start = START.load(Ordering::Relaxed);
    // The first half is for parameters.
    let mut next = start + WORDS as u64 * 4;
    let mut place = |placement: &Placement<'_>| {
        let address = next.next_multiple_of(placement.align.max(1));
        next = address.checked_add(placement.size)?;
        is_given(address, placement.size).then_some(address)
    };
    let modules = [(module, source)];
    let decoded = if check { decode_checked(&modules, &mut place) } else { decode(&modules, &mut place) };
    let Ok(image) = decoded else { return };
    tally.decoded += 1;
    for kernel in image.kernels.values() {
        let properties = &kernel.properties;
        if properties.unsupported.is_some()
            || properties.shared_bytes > device::SHARED_PER_BLOCK
            || properties.parameter_bytes > 4096
        {
            continue;
        }
        tally.kernels += 1;
        memory.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        let parameters = vec![start; properties.parameter_bytes.div_ceil(8)];
        let block = properties.required_block.unwrap_or([THREADS, 1, 1]);
        let cluster = properties.required_cluster.or(cluster);
        let size = cluster.unwrap_or([1; 3]);
        let product = |sizes: [u32; 3]| sizes.iter().try_fold(1u32, |all, size| all.checked_mul(*size));
        let within = |sizes, most| product(sizes).is_some_and(|all| (1..=most).contains(&all));
        if !within(block, device::MOST_THREADS_PER_BLOCK) || !within(size, device::MOST_BLOCKS_PER_CLUSTER) {
            continue;
        }
        // Two clusters, of which one runs.
        let shape = shape([2 * size[0], size[1], size[2]], block, 1024, &parameters);
        let shape = Arc::new(Shape { cluster, ..Shape::clone(&shape) });
        let ran = tally.clusters.entry(size.iter().product()).or_default();
        ran.0 += 1;
        let mut block = Cluster::with_memory(kernel, &shape, [0; 3], |_| 0, is_given);
        for _ in 0..TURNS {
            match block.run(TURN) {
                Progress::Yielded | Progress::Idle => {}
                Progress::Finished => {
                    tally.finished += 1;
                    ran.1 += 1;
                    break;
                }
                Progress::Fault(fault) => {
                    assert!(!fault.place.is_empty());
                    tally.faults += 1;
                    break;
                }
            }
        }
        for finding in block.take_findings() {
            *tally.findings.entry(finding.kind).or_default() += 1;
        }
    }
}

/// Ends the process where an input does not come to an end.
fn watch(progress: &'static AtomicU64, input: PathBuf) {
    std::thread::spawn(move || {
        let mut seen = (progress.load(Ordering::Relaxed), Instant::now());
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let now = progress.load(Ordering::Relaxed);
            if now == u64::MAX {
                return;
            }
            if now != seen.0 {
                seen = (now, Instant::now());
            } else if seen.1.elapsed() > PATIENCE {
                eprintln!("input {now} does not come to an end; it is in {}", input.display());
                std::process::abort();
            }
        }
    });
}

#[test]
fn fuzz() {
    static PROGRESS: AtomicU64 = AtomicU64::new(0);
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let limit = number("DETSHARE_FUZZ_SECONDS").map(Duration::from_secs);
    let seed = number("DETSHARE_FUZZ_SEED").unwrap_or(1);
    let (seeds, mut tally, began) = (seeds(), Tally::default(), Instant::now());
    let memory: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
    START.store(memory.as_ptr().expose_provenance() as u64, Ordering::Relaxed);
    let input = std::env::temp_dir().join(format!("softgpu-fuzz-{}.ptx", std::process::id()));
    watch(&PROGRESS, input.clone());
    for round in 0.. {
        if limit.map_or(round == FEW, |limit| began.elapsed() > limit) {
            break;
        }
        let mut random = Random(seed.wrapping_mul(0x1_0000_0000).wrapping_add(round));
        let source = mutated(&seeds, &mut random);
        let (check, cluster) = (random.below(2) == 0, *random.pick(&CLUSTERS));
        // Written first: an abort leaves no time for it.
        std::fs::write(&input, &source).expect("the temporary folder can be written");
        PROGRESS.store(round, Ordering::Relaxed);
        try_out(&source, &memory, check, cluster, &mut tally);
    }
    PROGRESS.store(u64::MAX, Ordering::Relaxed);
    // A failure leaves it.
    std::fs::remove_file(&input).expect("nobody else knows of it");
    println!("{tally:?}, seed {seed}, {:.0} s", began.elapsed().as_secs_f64());
    assert!(tally.kernels > tally.inputs / 4 && tally.finished > 0 && tally.faults > 0, "{tally:?}");
    let run_well = |blocks| tally.clusters.get(&blocks).is_some_and(|(_, well)| *well > 0);
    assert!([1, 2, 4].into_iter().all(run_well), "{tally:?}");
}
