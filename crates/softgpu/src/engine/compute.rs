//! The compute threads: run the blocks of all running kernels.
//!
//! Blocks run in slices and take turns, so blocks that wait for other blocks, other kernels or the host make
//! progress whatever the number of cores. As many blocks of a kernel are on the way at once as would be
//! resident on the SMs of its lane; a cluster's blocks go together and count as one here. A block keeps an SM busy for its modelled time (`sm`); a kernel is complete
//! when its last block has ended and that time has passed.

use super::{Done, Fate, complete_at, now};
use crate::boundary::tell;
use crate::check;
use crate::children::Children;
use crate::device;
use crate::exec::interface::{Fault, FaultKind, Progress, Shape};
use crate::exec::{Cluster, Kernel};
use crate::memory;
use crate::sm::{self, Lane};
use detshare_cuda::types::CUresult;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard};
use std::time::Duration;

/// Warp instructions that a block runs before another one gets its turn.
const SLICE: u64 = 50_000;
/// Blocks that a thread takes at once, at most: short blocks would otherwise spend their time at the lock.
const BATCH: u64 = 64;
/// How often each thread comes for blocks at least, where there are enough: whoever took too many would be the last.
const SHARES: u64 = 4;
/// How far ahead of the clock the SMs are filled: what a killed process leaves behind is over after that.
const HORIZON_NS: u64 = 2_000_000;
/// Every so manieth turn goes to whoever is next, whatever its priority: what is resident goes on, on a GPU, and a
/// kernel may wait for one of lower priority.
const FAIR_TURN: u64 = 8;
/// How long a thread waits when all blocks that could run only wait themselves.
const IDLE: Duration = Duration::from_micros(50);
/// How often that doubles while nothing changes.
const MOST_IDLE_ROUNDS: u32 = 3;

/// A kernel to run.
pub(crate) struct Launch {
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) shape: Arc<Shape>,
    pub(crate) lane: Arc<Lane>,
    /// As of streams: lower goes first.
    pub(crate) priority: i32,
    /// What its threads launch themselves; made when it starts, for kernels that may.
    pub(crate) children: Option<Arc<Children>>,
}

struct Running {
    launch: Arc<Launch>,
    done: Arc<Done>,
    fate: Arc<Fate>,
    blocks: u64,
    most_resident: u64,
    next: u64,
    resident: u64,
    parked: VecDeque<Cluster>,
    /// When the modelled time of its blocks is over.
    ends: u64,
    number: u64,
}

#[derive(Default)]
struct Kernels {
    running: Vec<Running>,
    next_number: u64,
    /// Turns so far.
    turns: u64,
    /// Where the search for a block goes on, so that kernels take turns.
    turn: usize,
    /// How many threads run blocks.
    threads: u64,
}

struct Compute {
    kernels: Mutex<Kernels>,
    changed: Condvar,
}

static COMPUTE: LazyLock<&'static Compute> = LazyLock::new(|| {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let kernels = Kernels { threads: threads as u64, ..Kernels::default() };
    let compute: &'static Compute =
        Box::leak(Box::new(Compute { kernels: Mutex::new(kernels), changed: Condvar::new() }));
    for number in 0..threads {
        std::thread::Builder::new()
            .name(format!("softgpu-{number}"))
            .spawn(move || work(compute))
            .expect("the system has room for a thread");
    }
    compute
});

/// Has the kernel run; completes it when it is over.
pub(super) fn start(mut launch: Launch, done: Arc<Done>, fate: Arc<Fate>) {
    let shape = &launch.shape;
    let blocks = shape.clusters().iter().map(|count| u64::from(*count)).product();
    let cluster: u64 = shape.cluster_size().iter().map(|count| u64::from(*count)).product();
    let most_resident = u64::from(resident_per_sm(&launch)).max(1) * launch.lane.sms().len() as u64;
    let most_resident = (most_resident / cluster.max(1)).max(1);
    let may_launch = launch.kernel.properties.system.launches;
    launch.children = may_launch.then(|| Arc::new(Children::new(&launch.lane, launch.priority, &fate)));
    let mut kernels = lock();
    let number = kernels.next_number;
    kernels.next_number += 1;
    kernels.running.push(Running {
        launch: Arc::new(launch),
        done,
        fate,
        blocks,
        most_resident,
        next: 0,
        resident: 0,
        parked: VecDeque::new(),
        ends: 0,
        number,
    });
    COMPUTE.changed.notify_all();
}

/// How many blocks of the launch fit one SM.
fn resident_per_sm(launch: &Launch) -> u32 {
    let threads = launch.shape.block.iter().product::<u32>().max(1).next_multiple_of(device::WARP);
    let shared =
        launch.kernel.properties.shared_bytes + launch.shape.dynamic_shared + device::RESERVED_SHARED_PER_BLOCK;
    (device::MOST_THREADS_PER_SM / threads).min(device::MOST_BLOCKS_PER_SM).min(device::SHARED_PER_SM / shared)
}

fn lock() -> MutexGuard<'static, Kernels> {
    COMPUTE.kernels.lock().expect("no panic while it is held")
}

/// What a thread takes from a kernel.
struct Share {
    launch: Arc<Launch>,
    number: u64,
    parked: Option<Cluster>,
    fresh: std::ops::Range<u64>,
}

fn work(compute: &'static Compute) {
    let (mut idle_turns, mut idle_rounds) = (0_usize, 0_u32);
    let mut kernels = compute.kernels.lock().expect("no panic while it is held");
    loop {
        let Some(share) = kernels.take() else {
            let pause = kernels.pause();
            kernels = match pause {
                None => compute.changed.wait(kernels).expect("no panic while it is held"),
                Some(pause) => compute.changed.wait_timeout(kernels, pause).expect("no panic while it is held").0,
            };
            continue;
        };
        let waiting = kernels.running.iter().map(|kernel| kernel.parked.len()).sum::<usize>();
        drop(kernels);
        let result = run(share);
        let idle = result.idle;
        kernels = compute.kernels.lock().expect("no panic while it is held");
        let over = kernels.give_back(result);
        if !idle {
            (idle_turns, idle_rounds) = (0, 0);
            compute.changed.notify_all();
        } else if idle_turns < waiting {
            idle_turns += 1;
        } else {
            // Everything that there is to run only waits, maybe for long. A launch ends the pause.
            let pause = IDLE * (1 << idle_rounds);
            (idle_turns, idle_rounds) = (0, (idle_rounds + 1).min(MOST_IDLE_ROUNDS));
            kernels = compute.changed.wait_timeout(kernels, pause).expect("no panic while it is held").0;
        }
        if let Some(over) = over {
            // What waits for it may be a kernel, which needs the lock to start.
            drop(kernels);
            match over.children {
                Some(children) => children.complete(over.ends, over.done),
                None => complete_at(over.ends, &over.done),
            }
            kernels = compute.kernels.lock().expect("no panic while it is held");
        }
    }
}

/// A kernel whose last block has ended.
struct Over {
    /// When its modelled time ends.
    ends: u64,
    done: Arc<Done>,
    /// None as well where it has failed: nothing runs any more then.
    children: Option<Arc<Children>>,
}

/// What became of a share.
struct Ran {
    number: u64,
    finished: u64,
    parked: Vec<Cluster>,
    ends: u64,
    fault: Option<Fault>,
    /// No block got any further.
    idle: bool,
}

fn run(share: Share) -> Ran {
    let launch = share.launch;
    memory::access::work_for(launch.lane.device);
    let mut ran = Ran { number: share.number, finished: 0, parked: Vec::new(), ends: 0, fault: None, idle: true };
    let fresh = share.fresh.map(|index| new_block(&launch, index));
    for mut block in share.parked.into_iter().chain(fresh) {
        let progress = block.run(SLICE);
        let progress = if block.is_checked() { checked(&launch, &mut block, progress) } else { progress };
        ran.idle &= progress == Progress::Idle;
        match progress {
            Progress::Finished => {
                ran.finished += 1;
                for instructions in block.instructions_of_blocks() {
                    ran.ends = ran.ends.max(launch.lane.occupy(sm::modelled_ns(instructions)));
                }
            }
            Progress::Yielded | Progress::Idle => ran.parked.push(block),
            Progress::Fault(fault) => {
                ran.fault = Some(fault);
                break;
            }
        }
    }
    ran
}

fn new_block(launch: &Launch, index: u64) -> Cluster {
    let [x, y, _] = launch.shape.clusters().map(u64::from);
    #[allow(clippy::cast_possible_truncation, reason = "each part is below a 32-bit extent of the grid")]
    let index_3d = [(index % x) as u32, (index / x % y) as u32, (index / (x * y)) as u32];
    let blocks: u64 = launch.shape.cluster_size().iter().map(|count| u64::from(*count)).product();
    let sms = launch.lane.sms();
    #[allow(clippy::cast_possible_truncation, reason = "below the number of SMs")]
    let sm = |rank: u32| sms[((index * blocks + u64::from(rank)) % sms.len() as u64) as usize];
    let mut cluster = Cluster::new(&launch.kernel, &launch.shape, index_3d, sm);
    if let Some(children) = &launch.children {
        cluster.may_launch(children);
    }
    cluster
}

/// Tells what was found in a block so far; it is a fault where that is asked for.
fn checked(launch: &Launch, block: &mut Cluster, progress: Progress) -> Progress {
    let findings = block.take_findings();
    let (Some(asked), Some(first)) = (device::settings().check, findings.first()) else { return progress };
    let place = first.words.clone();
    check::report(asked, &launch.kernel.properties.name, findings);
    if asked.fails && !matches!(progress, Progress::Fault(_)) {
        Progress::Fault(Fault { kind: FaultKind::Finding, place })
    } else {
        progress
    }
}

/// What people call it.
fn title(kind: FaultKind) -> &'static str {
    match kind {
        FaultKind::IllegalAddress => "illegal address",
        FaultKind::MisalignedAddress => "misaligned address",
        FaultKind::IllegalInstruction => "illegal instruction",
        FaultKind::Trap => "trap",
        FaultKind::Assert => "failed assertion",
        FaultKind::InvalidProgramCounter => "invalid program counter",
        FaultKind::StackOverflow => "stack overflow",
        FaultKind::Deadlock => "deadlock",
        FaultKind::Finding => "ended by the checker",
    }
}

/// What a GPU reports.
fn code(kind: FaultKind) -> CUresult {
    match kind {
        FaultKind::IllegalAddress => CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
        FaultKind::MisalignedAddress => CUresult::CUDA_ERROR_MISALIGNED_ADDRESS,
        FaultKind::IllegalInstruction => CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION,
        FaultKind::InvalidProgramCounter => CUresult::CUDA_ERROR_INVALID_PC,
        FaultKind::StackOverflow => CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR,
        FaultKind::Assert => CUresult::CUDA_ERROR_ASSERT,
        FaultKind::Trap | FaultKind::Deadlock | FaultKind::Finding => CUresult::CUDA_ERROR_LAUNCH_FAILED,
    }
}

impl Kernels {
    /// Something to run: of the highest priority first, nearly always; of equals in turn.
    fn take(&mut self) -> Option<Share> {
        let count = self.running.len();
        let best = self.running.iter().filter(|kernel| kernel.has_work()).map(|kernel| kernel.launch.priority).min()?;
        self.turns = self.turns.wrapping_add(1);
        let fair = self.turns.is_multiple_of(FAIR_TURN);
        for step in 0..count {
            let index = (self.turn + step) % count;
            let kernel = &mut self.running[index];
            if (fair || kernel.launch.priority == best) && kernel.has_work() {
                self.turn = index + 1;
                return Some(kernel.take(self.threads));
            }
        }
        None
    }

    /// How long there is nothing to run because the SMs are filled ahead; None where nothing runs at all.
    fn pause(&self) -> Option<Duration> {
        let free = self
            .running
            .iter()
            .filter(|kernel| kernel.next < kernel.blocks)
            .map(|kernel| kernel.launch.lane.free_at())
            .min();
        free.map(|free| Duration::from_nanos(free.saturating_sub(now() + HORIZON_NS)).max(Duration::from_micros(20)))
    }

    /// Returns the kernel if this was the last of it.
    fn give_back(&mut self, ran: Ran) -> Option<Over> {
        let index = self.running.iter().position(|kernel| kernel.number == ran.number)?;
        let kernel = &mut self.running[index];
        kernel.resident -= ran.finished;
        kernel.ends = kernel.ends.max(ran.ends);
        kernel.parked.extend(ran.parked);
        if let Some(fault) = ran.fault {
            // A failed assertion says so itself, as a program knows it.
            if kernel.fate.poison(code(fault.kind)) && fault.kind != FaultKind::Assert {
                tell(format_args!("{}: {}", title(fault.kind), fault.place));
            }
            return Some(Over { ends: 0, done: self.running.swap_remove(index).done, children: None });
        }
        if kernel.next == kernel.blocks && kernel.resident == 0 {
            let kernel = self.running.swap_remove(index);
            let children = kernel.launch.children.clone();
            return Some(Over { ends: kernel.ends, done: kernel.done, children });
        }
        None
    }
}

impl Running {
    fn has_work(&self) -> bool {
        !self.parked.is_empty() || self.may_begin()
    }

    /// Whether another block would be resident, and the SMs are not filled too far ahead.
    fn may_begin(&self) -> bool {
        self.next < self.blocks
            && self.resident < self.most_resident
            && self.launch.lane.free_at() <= now() + HORIZON_NS
    }

    fn take(&mut self, threads: u64) -> Share {
        let may_begin = self.may_begin();
        let parked = self.parked.pop_front();
        let fresh = if may_begin {
            let room = (self.most_resident - self.resident).min(self.blocks - self.next);
            self.next..self.next + batch(room, threads)
        } else {
            self.next..self.next
        };
        self.next = fresh.end;
        self.resident += fresh.end - fresh.start;
        Share { launch: Arc::clone(&self.launch), number: self.number, parked, fresh }
    }
}

/// How many of so many blocks a thread takes: a fair share, so that they do not end up with few threads.
fn batch(blocks: u64, threads: u64) -> u64 {
    (blocks / (SHARES * threads).max(1)).clamp(1, BATCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Threads take blocks by turns: nobody may have more than twice its part of them.
    #[test]
    fn no_thread_ends_up_with_most_of_the_blocks() {
        for threads in [1, 2, 8, 16, 64] {
            for blocks in [1, 7, 256, 1_056, 4_224] {
                let (mut left, mut most) = (blocks, 0);
                while left > 0 {
                    let count = batch(left, threads);
                    (left, most) = (left - count, most.max(count));
                }
                assert!(
                    most <= (2 * blocks / threads).max(1),
                    "{most} of {blocks} blocks for one of {threads} threads"
                );
            }
        }
        assert_eq!(batch(4_224, 2), BATCH, "short blocks are taken in numbers");
    }
}
