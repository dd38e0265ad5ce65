//! The tenants: programs of the driver API that take the time.

use crate::words::{self, Words};
use crate::{Arguments, Order, pin};
use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use core::ffi::c_void;
use core::ptr::null_mut;
use detshare_bench::machine;
use detshare_bench::program::LaunchKernel;
use detshare_board::clock;
use detshare_cuda::driver::Visibility;
use detshare_cuda::types::{
    CUcontext, CUdevice_v1, CUdeviceptr_v2, CUfunction, CUmodule, CUresult, CUstream, CUstream_flags,
};
use detshare_cuda::{Driver, entry};
use detshare_workloads::{FMA_LOOP, Library, cu};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde_json::{Value, json};

/// How long a tenant is idle before its next step: long enough for the watcher to look.
const SETTLE_NS: u64 = 5_000;
/// How long the other's launch takes to be held, once it is called.
const ARRIVAL_NS: u64 = 20_000;
/// Rounds before anything is measured: the driver's and the shim's threads are there by then, and their pages.
const WARM_UP: usize = 200;
/// Launches for what one costs when nothing holds it.
const UNHELD: usize = 2_000;
/// Rounds of the kernel whose time says how many a hold takes.
const TRIAL: u32 = 20_000;
const SHORT: u32 = 1;
const THREADS: u32 = 32;

/// Who this process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// Its steps are watched.
    Busy,
    /// Its steps hold another.
    Ahead,
    /// Its launches are held.
    Held,
}

impl Role {
    /// The watcher, one that is ahead and one that is held.
    pub(crate) const ALL_AT_ONCE: usize = 3;

    pub(crate) fn class_name(self) -> &'static str {
        match self {
            Self::Busy | Self::Ahead => "latency",
            Self::Held => "best-effort",
        }
    }

    /// Its core; where there are too few, the watcher's, who then sleeps.
    fn core(self, cores: &[usize]) -> usize {
        let place = match self {
            Self::Busy | Self::Ahead => 1,
            Self::Held => 2,
        };
        cores[place % cores.len()]
    }
}

pub(crate) fn run(role: Role, arguments: &Arguments) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("cannot be tied to the parent's life")?;
    let words = Words::inherited(arguments.words)?;
    let mut program = Program::open()?;
    for _ in 0..WARM_UP {
        program.launch(SHORT);
        program.synchronise();
    }
    // Now that all threads are there: those of the driver and the shim keep the cores that they have.
    pin(role.core(&arguments.cores))?;
    let figures = match role {
        Role::Busy => busy(&mut program, &words, arguments)?,
        Role::Ahead => ahead(&mut program, &words, arguments)?,
        Role::Held => held(&mut program, &words, arguments)?,
    };
    let path = arguments.figures.as_ref().context("a tenant needs --figures")?;
    std::fs::write(path, figures.to_string()).with_context(|| format!("cannot write {}", path.display()))
}

fn busy(program: &mut Program, words: &Words, arguments: &Arguments) -> Result<Value> {
    words.present.set(1_u64);
    for round in 1..=arguments.rounds(arguments.steps) as u64 {
        words::until("the watcher looks", || words.watching.get() >= round)?;
        words::spin_for(SETTLE_NS);
        words.stamp.set(clock::now());
        program.launch(SHORT);
        program.synchronise();
        let ended = clock::now();
        words::until("the watcher has seen it busy", || words.busy_seen.get() >= round)?;
        words.stamp.set(ended);
        words.done.set(round);
        words::until("the watcher has seen it idle", || words.seen.get() >= round)?;
    }
    let bare = Driver::open(&arguments.driver, Visibility::Local)?;
    Ok(json!({ "on": machine::facts(&bare, CUdevice_v1(0))? }))
}

fn ahead(program: &mut Program, words: &Words, arguments: &Arguments) -> Result<Value> {
    let long = program.rounds_for(u64::from(arguments.held_us) * 1_000);
    words.long.set(u64::from(long));
    words::until("the best-effort tenant is there", || words.present.get() > 0)?;
    let mut ended = Vec::new();
    for round in 1..=arguments.holds(arguments.order) as u64 {
        match arguments.order {
            Order::First | Order::Own => {
                words::until("the watcher looks", || !arguments.watched || words.watching.get() >= round)?;
                words::spin_for(SETTLE_NS);
                program.launch(long);
                words.running.set(round);
            }
            Order::Second => {
                words::until("the best-effort tenant's kernel runs", || words.running.get() >= round)?;
                words.calling.set(round);
                program.launch(SHORT);
            }
        }
        program.synchronise();
        ended.push(clock::now());
        words.ended.set(round);
        words::until("the held launch is over", || words.done.get() >= round)?;
        words::until("the watcher has seen it", || !arguments.watched || words.seen.get() >= round)?;
        words.over.set(round);
    }
    Ok(json!({ "ended": ended }))
}

fn held(program: &mut Program, words: &Words, arguments: &Arguments) -> Result<Value> {
    words::until("the latency tenant is there", || words.long.get() > 0)?;
    let long = u32::try_from(words.long.get())?;
    let mut unheld = Vec::new();
    for _ in 0..UNHELD {
        words::spin_for(SETTLE_NS);
        let before = clock::now();
        program.launch(SHORT);
        unheld.push(clock::now() - before);
        program.synchronise();
    }
    words.present.set(1_u64);
    let (mut called, mut returned) = (Vec::new(), Vec::new());
    for round in 1..=arguments.holds(arguments.order) as u64 {
        match arguments.order {
            Order::First => words::until("the latency tenant's kernel runs", || words.running.get() >= round)?,
            Order::Own => words::spin_until("the latency tenant's step is over", || words.ended.get() >= round)?,
            Order::Second => {
                words::until("the last round is over", || words.over.get() + 1 >= round)?;
                words::until("the watcher looks", || !arguments.watched || words.watching.get() >= round)?;
                program.launch(long);
                words.running.set(round);
                words::until("the latency tenant launches", || words.calling.get() >= round)?;
                words::spin_for(ARRIVAL_NS);
            }
        }
        called.push(clock::now());
        program.launch(SHORT);
        returned.push(clock::now());
        program.synchronise();
        words.done.set(round);
    }
    Ok(json!({ "unheld": unheld, "called": called, "returned": returned }))
}

/// One kernel that takes as long as it is asked to, and one stream.
struct Program {
    launch: LaunchKernel,
    synchronise: unsafe extern "C" fn(CUstream) -> CUresult,
    kernel: CUfunction,
    stream: CUstream,
    data: CUdeviceptr_v2,
}

impl Program {
    fn open() -> Result<Self> {
        let library = Library::open()?;
        cu!(library, cuInit(0))?;
        let mut context = CUcontext(null_mut());
        cu!(library, cuDevicePrimaryCtxRetain(&raw mut context, CUdevice_v1(0)))?;
        cu!(library, cuCtxSetCurrent(context))?;
        let mut stream = CUstream(null_mut());
        cu!(library, cuStreamCreate(&raw mut stream, CUstream_flags::CU_STREAM_NON_BLOCKING.0))?;
        let mut module = CUmodule(null_mut());
        cu!(library, cuModuleLoadData(&raw mut module, FMA_LOOP.as_ptr().cast()))?;
        let mut kernel = CUfunction(null_mut());
        cu!(library, cuModuleGetFunction(&raw mut kernel, module, c"fma_loop".as_ptr()))?;
        let mut data = CUdeviceptr_v2(0);
        let bytes = THREADS as usize * size_of::<f32>();
        cu!(library, cuMemAlloc_v2(&raw mut data, bytes))?;
        cu!(library, cuMemsetD8_v2(data, 0, bytes))?;
        let launch = library.function(entry::cuLaunchKernel)?;
        let synchronise = library.function(entry::cuStreamSynchronize)?;
        ensure!(is_preloaded()?, "libcuda.so.1 is not the shim here");
        Ok(Self { launch, synchronise, kernel, stream, data })
    }

    fn launch(&mut self, mut rounds: u32) {
        let mut parameters: [*mut c_void; 2] = [(&raw mut self.data).cast(), (&raw mut rounds).cast()];
        let (launch, parameters) = (self.launch, parameters.as_mut_ptr());
        // SAFETY: a loaded kernel with its two parameters, which outlive the call.
        succeeds(unsafe { launch(self.kernel, 1, 1, 1, THREADS, 1, 1, 0, self.stream, parameters, null_mut()) });
    }

    fn synchronise(&mut self) {
        // SAFETY: a stream that is alive.
        succeeds(unsafe { (self.synchronise)(self.stream) });
    }

    /// How many rounds of the kernel take so long, by the fastest of a few trials.
    fn rounds_for(&mut self, ns: u64) -> u32 {
        const TRIALS: usize = 5;
        let mut taken = || {
            let before = clock::now();
            self.launch(TRIAL);
            self.synchronise();
            clock::now() - before
        };
        let fastest = (0..TRIALS).map(|_| taken()).min().unwrap_or(1).max(1);
        u32::try_from(u64::from(TRIAL) * ns / fastest).unwrap_or(u32::MAX).max(SHORT)
    }
}

fn succeeds(result: CUresult) {
    assert_eq!(result, CUresult::CUDA_SUCCESS, "a call that is timed failed");
}

/// Whether the shim is in this process.
fn is_preloaded() -> Result<bool> {
    Ok(std::fs::read_to_string("/proc/self/maps")?.contains("libdetshare_shim"))
}
