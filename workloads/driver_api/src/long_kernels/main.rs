//! Launches kernels of many blocks, by any of the ways that programs launch, and checks that every block ran exactly once:
//! `long_kernels --launches 20 --blocks 600 --rounds 400 --threads 2 --streams 2 --call extra`.
//!
//! What it prints in the end is decided by the options alone. With `--held` each launch goes into a stream that waits for
//! something which the program only does when the launch has returned: nothing may wait for it.

mod module;

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
use core::ffi::{c_uint, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use detshare_cuda::types::{
    CUcontext, CUdevice_v1, CUdeviceptr, CUdeviceptr_v2, CUevent, CUfunction, CUlaunchConfig, CUstream,
};
use detshare_workloads::{Library, cu};
use std::collections::VecDeque;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const THREADS: u32 = 64;

/// How a kernel is launched.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Call {
    /// `cuLaunchKernel` with a pointer to each parameter
    Parameters,
    /// `cuLaunchKernel` with all parameters in one piece
    Extra,
    /// `cuLaunchKernelEx`
    Ex,
}

/// What a stream waits for that the program does after the launch.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Held {
    /// A value that the host writes
    Value,
    /// An event in another stream, which waits for such a value
    Event,
    /// A host function, which waits for the host
    HostFunction,
}

#[derive(Parser)]
#[command(about = "Launches kernels of many blocks and checks that every block ran exactly once")]
struct Arguments {
    /// Launches of each thread into each of its streams
    #[arg(long, default_value_t = 10)]
    launches: u32,
    /// Blocks of a kernel, in rows of up to 97
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    blocks: u32,
    /// Rounds of each thread of a kernel
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Host threads
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: u32,
    /// Streams of each thread; 0 is the legacy stream, which all of them use
    #[arg(long, default_value_t = 1)]
    streams: u32,
    /// How kernels are launched
    #[arg(long, value_enum, default_value = "parameters")]
    call: Call,
    /// What each launch has before it in its stream
    #[arg(long, value_enum)]
    held: Option<Held>,
    /// Wait for each launch
    #[arg(long)]
    wait: bool,
    /// Wait for each launch when this many more were made: then there is always something to do
    #[arg(long, conflicts_with = "wait")]
    ahead: Option<usize>,
    /// Fork so often while kernels run; children end at once
    #[arg(long, default_value_t = 0)]
    forks: u32,
    /// Load the kernels once more while they run, when a line comes from standard input
    #[arg(long)]
    load_again: bool,
    /// Reset the device's context after so many milliseconds, while kernels run; what fails from then on is as it should be
    #[arg(long)]
    reset_after_ms: Option<u64>,
    /// Go on for so long instead of a number of launches, in milliseconds; then the result is not decided by the options
    #[arg(long)]
    for_ms: Option<u64>,
    /// Go on until a line comes from standard input, or it ends, instead of a number of launches; as with --for-ms
    #[arg(long, conflicts_with = "for_ms")]
    until_told: bool,
    #[command(flatten)]
    module: module::How,
    /// Launch it once with addresses that nobody has, and print the codes of the launch and of waiting for it
    #[arg(long)]
    fault: bool,
    /// A line at the beginning, and how long launches took at the end
    #[arg(long)]
    progress: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(checksum) => {
            println!("checksum {checksum:016x}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("long_kernels: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Made before the threads, which share it.
struct Program {
    library: Library,
    context: CUcontext,
    kernel: CUfunction,
    /// A word of the host that the GPU can see.
    word: *mut AtomicU32,
    word_on_gpu: CUdeviceptr,
    /// Whether it was told to end.
    is_told: AtomicBool,
}

// SAFETY: handles of the driver, which any thread may use, and atomics; what the pointer points to stays.
unsafe impl Sync for Program {}

fn run(arguments: &Arguments) -> Result<u64> {
    let library = Library::open()?;
    cu!(library, cuInit(0))?;
    let mut context = CUcontext(null_mut());
    cu!(library, cuDevicePrimaryCtxRetain(&raw mut context, CUdevice_v1(0)))?;
    cu!(library, cuCtxSetCurrent(context))?;
    let module = module::load(&library, &arguments.module)?;
    let mut kernel = CUfunction(null_mut());
    cu!(library, cuModuleGetFunction(&raw mut kernel, module, c"work".as_ptr()))?;
    let (mut salt, mut bytes) = (CUdeviceptr_v2(0), 0);
    cu!(library, cuModuleGetGlobal_v2(&raw mut salt, &raw mut bytes, module, c"salt".as_ptr()))?;
    cu!(library, cuMemcpyHtoD_v2(salt, (&raw const SALT).cast(), bytes))?;
    let (mut word, mut word_on_gpu) = (null_mut(), CUdeviceptr_v2(0));
    cu!(library, cuMemHostAlloc(&raw mut word, 4096, MAPPED))?;
    cu!(library, cuMemHostGetDevicePointer_v2(&raw mut word_on_gpu, word, 0))?;
    let is_told = AtomicBool::new(false);
    let program = Program { library, context, kernel, word: word.cast(), word_on_gpu, is_told };
    if arguments.fault {
        return program.fault(arguments);
    }
    if arguments.progress {
        println!("ready");
    }
    let checksums = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..arguments.threads)
            .map(|number| {
                scope.spawn({
                    let program = &program;
                    move || program.thread(arguments, number)
                })
            })
            .collect();
        let disturbed = program.disturb(arguments);
        program.is_told.store(true, Ordering::Relaxed);
        disturbed?;
        threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect::<Result<Vec<_>>>()
    });
    if arguments.reset_after_ms.is_some() {
        // With the context everything has gone, whichever call noticed it first.
        return Ok(0);
    }
    let checksums = checksums?;
    cu!(program.library, cuModuleUnload(module))?;
    Ok(checksums.into_iter().fold(0, |all: u64, one| all.rotate_left(7) ^ one))
}

/// What the module's variable becomes before the first launch.
static SALT: u32 = 1_013_904_223;
/// `CU_MEMHOSTALLOC_DEVICEMAP`, `CU_STREAM_NON_BLOCKING`.
const MAPPED: c_uint = 2;
const NON_BLOCKING: c_uint = 1;

/// One stream's data.
struct Lane {
    stream: CUstream,
    data: CUdeviceptr,
    counts: CUdeviceptr,
    launches: u32,
}

impl Program {
    /// Blocks write where nothing is. The launch may know of it, or only who waits for it.
    fn fault(&self, arguments: &Arguments) -> Result<u64> {
        let Self { library, kernel, .. } = self;
        let (nowhere, rounds) = (0_u64, arguments.rounds);
        let mut parameters =
            [(&raw const nowhere).cast::<c_void>(), (&raw const nowhere).cast(), (&raw const rounds).cast()]
                .map(<*const c_void>::cast_mut);
        let stream = CUstream(null_mut());
        let launch = library.function(detshare_cuda::entry::cuLaunchKernel)?;
        let wait = library.function(detshare_cuda::entry::cuStreamSynchronize)?;
        let (blocks, each) = (arguments.blocks, parameters.as_mut_ptr());
        // SAFETY: a kernel of this process and what it takes; that it fails is what is asked for.
        let launched = unsafe { launch(*kernel, blocks, 1, 1, THREADS, 1, 1, 0, stream, each, null_mut()) };
        // SAFETY: the legacy stream.
        let waited = unsafe { wait(stream) };
        println!("launch {}, wait {}", launched.0, waited.0);
        Ok(0)
    }

    /// Does what it is told to do meanwhile.
    fn disturb(&self, arguments: &Arguments) -> Result<()> {
        for _ in 0..arguments.forks {
            // SAFETY: the child does nothing but end.
            let child = unsafe { libc::fork() };
            ensure!(child >= 0, "there is no child");
            if child == 0 {
                // SAFETY: ends the child, and runs nothing of the program any more.
                unsafe { libc::_exit(0) };
            }
            let mut status = 0;
            // SAFETY: waits for the child that was just made.
            let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
            ensure!(ended == child && status == 0, "a child ended with {status:#x}");
        }
        if arguments.load_again {
            std::io::stdin().read_line(&mut String::new()).context("no line")?;
            module::load(&self.library, &arguments.module)?;
        }
        if let Some(ms) = arguments.reset_after_ms {
            std::thread::sleep(Duration::from_millis(ms));
            cu!(self.library, cuDevicePrimaryCtxReset_v2(CUdevice_v1(0)))?;
        }
        if arguments.until_told {
            std::io::stdin().read_line(&mut String::new()).context("no line")?;
        }
        Ok(())
    }

    fn thread(&self, arguments: &Arguments, number: u32) -> Result<u64> {
        let Self { library, context, .. } = self;
        cu!(library, cuCtxSetCurrent(*context))?;
        let words = (arguments.blocks * THREADS) as usize;
        let mut lanes = Vec::new();
        for stream in 0..arguments.streams.max(1) {
            let first: Vec<u32> =
                (0..arguments.blocks * THREADS).map(|word| word.wrapping_mul(2 * number + stream + 1)).collect();
            let mut lane =
                Lane { stream: CUstream(null_mut()), data: CUdeviceptr_v2(0), counts: CUdeviceptr_v2(0), launches: 0 };
            if arguments.streams > 0 {
                // Every second one waits for the legacy stream, as streams do that nobody says anything of.
                cu!(library, cuStreamCreate(&raw mut lane.stream, if stream % 2 == 0 { NON_BLOCKING } else { 0 }))?;
            }
            cu!(library, cuMemAlloc_v2(&raw mut lane.data, words * 4))?;
            cu!(library, cuMemAlloc_v2(&raw mut lane.counts, arguments.blocks as usize * 4))?;
            cu!(library, cuMemcpyHtoD_v2(lane.data, first.as_ptr().cast(), words * 4))?;
            cu!(library, cuMemsetD32_v2(lane.counts, 0, arguments.blocks as usize))?;
            lanes.push(lane);
        }
        // What is set with a plain call is there for streams that do not wait for it.
        cu!(library, cuCtxSynchronize())?;
        let (started, mut slowest) = (Instant::now(), Duration::ZERO);
        let is_over = |launches: u32| match arguments.for_ms {
            Some(ms) => started.elapsed() >= Duration::from_millis(ms),
            None if arguments.until_told => self.is_told.load(Ordering::Relaxed),
            None => launches >= arguments.launches,
        };
        let mut made = VecDeque::new();
        while !is_over(lanes[0].launches) {
            for lane in &mut lanes {
                let begun = Instant::now();
                self.launch(arguments, lane)?;
                slowest = slowest.max(begun.elapsed());
                if arguments.wait {
                    cu!(library, cuStreamSynchronize(lane.stream))?;
                }
                if let Some(ahead) = arguments.ahead {
                    let mut event = CUevent(null_mut());
                    cu!(library, cuEventCreate(&raw mut event, 0))?;
                    cu!(library, cuEventRecord(event, lane.stream))?;
                    made.push_back(event);
                    if made.len() > ahead
                        && let Some(event) = made.pop_front()
                    {
                        cu!(library, cuEventSynchronize(event))?;
                        cu!(library, cuEventDestroy_v2(event))?;
                    }
                }
            }
        }
        let mut checksum = 0_u64;
        for lane in &lanes {
            cu!(library, cuStreamSynchronize(lane.stream))?;
            let (mut data, mut counts) = (vec![0_u32; words], vec![0_u32; arguments.blocks as usize]);
            cu!(library, cuMemcpyDtoH_v2(data.as_mut_ptr().cast(), lane.data, words * 4))?;
            cu!(library, cuMemcpyDtoH_v2(counts.as_mut_ptr().cast(), lane.counts, counts.len() * 4))?;
            let wrong = counts.iter().position(|count| *count != lane.launches);
            ensure!(
                wrong.is_none(),
                "block {:?} ran {:?} times, of {}",
                wrong,
                wrong.map(|it| counts[it]),
                lane.launches
            );
            checksum = data.iter().fold(checksum, |all, word| all.rotate_left(5).wrapping_add(u64::from(*word)));
        }
        if arguments.progress {
            println!(
                "{} launches, the slowest call took {slowest:?}",
                lanes.iter().map(|lane| lane.launches).sum::<u32>()
            );
        }
        Ok(checksum)
    }

    /// One launch, with what it waits for; and what that waits for right behind it.
    fn launch(&self, arguments: &Arguments, lane: &mut Lane) -> Result<()> {
        let Self { library, word, word_on_gpu, .. } = self;
        // SAFETY: the driver's memory, which stays until the end.
        let word = unsafe { &**word };
        let Some(held) = arguments.held else { return self.launch_alone(arguments, lane) };
        word.store(0, Ordering::Release);
        let (mut other, mut event) = (CUstream(null_mut()), CUevent(null_mut()));
        match held {
            Held::Value => cu!(library, cuStreamWaitValue32_v2(lane.stream, *word_on_gpu, 1, 0))?,
            Held::Event => {
                cu!(library, cuStreamCreate(&raw mut other, NON_BLOCKING))?;
                cu!(library, cuEventCreate(&raw mut event, 0))?;
                cu!(library, cuStreamWaitValue32_v2(other, *word_on_gpu, 1, 0))?;
                cu!(library, cuEventRecord(event, other))?;
                cu!(library, cuStreamWaitEvent(lane.stream, event, 0))?;
            }
            Held::HostFunction => {
                let shared = core::ptr::from_ref(word).cast_mut().cast::<c_void>();
                cu!(library, cuLaunchHostFunc(lane.stream, Some(wait_for), shared))?;
            }
        }
        self.launch_alone(arguments, lane)?;
        word.store(1, Ordering::Release);
        cu!(library, cuStreamSynchronize(lane.stream))?;
        if held == Held::Event {
            cu!(library, cuEventDestroy_v2(event))?;
            cu!(library, cuStreamDestroy_v2(other))?;
        }
        Ok(())
    }

    fn launch_alone(&self, arguments: &Arguments, lane: &mut Lane) -> Result<()> {
        /// A row of blocks, where the number of blocks allows for it.
        const ROW: u32 = 97;
        let Self { library, kernel, .. } = self;
        let (x, y) = match arguments.blocks {
            blocks if blocks.is_multiple_of(ROW) => (ROW, blocks / ROW),
            blocks => (blocks, 1),
        };
        let rounds = arguments.rounds;
        let (data, counts) = (lane.data, lane.counts);
        let mut each = [(&raw const data).cast::<c_void>(), (&raw const counts).cast(), (&raw const rounds).cast()]
            .map(<*const c_void>::cast_mut);
        let packed = Packed { data: data.0, counts: counts.0, rounds, rest: 0 };
        let mut size = size_of::<Packed>() - 4;
        let mut extra = [
            core::ptr::without_provenance_mut(1),
            (&raw const packed).cast_mut().cast(),
            core::ptr::without_provenance_mut(2),
            (&raw mut size).cast(),
            null_mut(),
        ];
        let (parameters, extra) = match arguments.call {
            Call::Extra => (null_mut(), extra.as_mut_ptr()),
            Call::Parameters | Call::Ex => (each.as_mut_ptr(), null_mut()),
        };
        if arguments.call == Call::Ex {
            let config = CUlaunchConfig {
                gridDimX: x,
                gridDimY: y,
                gridDimZ: 1,
                blockDimX: THREADS,
                blockDimY: 1,
                blockDimZ: 1,
                sharedMemBytes: 0,
                hStream: lane.stream,
                attrs: null_mut(),
                numAttrs: 0,
            };
            cu!(library, cuLaunchKernelEx(&raw const config, *kernel, parameters, extra)).context("launch")?;
        } else {
            cu!(library, cuLaunchKernel(*kernel, x, y, 1, THREADS, 1, 1, 0, lane.stream, parameters, extra))?;
        }
        lane.launches += 1;
        Ok(())
    }
}

/// The parameters as the kernel finds them.
#[repr(C)]
struct Packed {
    data: u64,
    counts: u64,
    rounds: u32,
    rest: u32,
}

/// Waits until the word is set.
unsafe extern "C" fn wait_for(word: *mut c_void) {
    // SAFETY: the program's own, which stays until the end.
    let word = unsafe { &*word.cast::<AtomicU32>() };
    while word.load(Ordering::Acquire) == 0 {
        std::thread::yield_now();
    }
}
