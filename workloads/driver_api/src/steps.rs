//! Computes in steps: a few kernels in each stream, then waiting for them in one of the ways that programs do.
//!
//! Every kernel takes what the one before it in its stream left, in an order that shows, and the checksum printed at the
//! end is decided by the options alone: `steps --steps 100 --kernels 3 --streams 2 --wait event --graph`.

use anyhow::{Result, ensure};
use clap::{Parser, ValueEnum};
use core::ffi::{CStr, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use detshare_cuda::types::{
    CUcontext, CUdevice_v1, CUdeviceptr_v2, CUevent, CUevent_flags, CUfunction, CUgraph, CUgraphExec, CUmodule,
    CUresult, CUstream, CUstream_flags, CUstreamCaptureMode,
};
use detshare_workloads::{Library, cu, ok};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Threads in a block, blocks in a kernel: a little of a GPU, and little work where a CPU plays one.
const THREADS: u32 = 32;
const BLOCKS: u32 = 4;
const WORDS: usize = (THREADS * BLOCKS) as usize;

/// Each word goes through `rounds` rounds that depend on the kernel's number, `salt`. Rounds of different salts do not
/// commute, so a kernel that is lost, repeated or out of order shows.
const KERNEL: &CStr = c"
.version 7.0
.target sm_70
.address_size 64
.visible .entry step(.param .u64 data, .param .u32 salt, .param .u32 rounds)
{
    .reg .pred %more;
    .reg .b32 %block, %size, %thread, %i, %x, %salt, %left, %high;
    .reg .b64 %data, %offset;
    ld.param.u64 %data, [data];
    ld.param.u32 %salt, [salt];
    ld.param.u32 %left, [rounds];
    mov.u32 %block, %ctaid.x;
    mov.u32 %size, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %i, %block, %size, %thread;
    mul.wide.u32 %offset, %i, 4;
    add.u64 %data, %data, %offset;
    ld.global.u32 %x, [%data];
AGAIN:
    mad.lo.u32 %x, %x, 1664525, %salt;
    shr.u32 %high, %x, 15;
    xor.b32 %x, %x, %high;
    sub.u32 %left, %left, 1;
    setp.ne.u32 %more, %left, 0;
    @%more bra AGAIN;
    st.global.u32 [%data], %x;
    ret;
}
";

/// How the program learns that a step is over.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Wait {
    /// `cuStreamSynchronize` of each stream
    Stream,
    /// `cuEventSynchronize` of an event in each stream
    Event,
    /// `cuCtxSynchronize`
    Context,
    /// `cuStreamQuery` until all have nothing left
    Query,
    /// `cuEventQuery` until all events are over
    EventQuery,
    /// A copy to the host that the driver orders behind the streams
    Copy,
    /// A host function at the end of each stream
    HostFunction,
    /// Not at all, but at the very end
    None,
}

#[derive(Parser)]
#[command(about = "Computes in steps and waits for each in one of the ways that programs do")]
struct Arguments {
    /// How many steps
    #[arg(long, default_value_t = 100)]
    steps: u64,
    /// Kernels in each stream of a step
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    kernels: u32,
    /// Streams
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    streams: u32,
    /// What the data is at first
    #[arg(long, default_value_t = 1)]
    seed: u32,
    /// How the program learns that a step is over
    #[arg(long, value_enum, default_value = "stream")]
    wait: Wait,
    /// How long it does nothing after each step, in microseconds
    #[arg(long, default_value_t = 0)]
    pause_us: u64,
    /// Pauses are of random length, so long in the middle of many; from the seed
    #[arg(long)]
    random_pauses: bool,
    /// The kernels of a step are a graph in each stream
    #[arg(long)]
    graph: bool,
    /// A line with its number after each step
    #[arg(long)]
    progress: bool,
    /// Beside it, the last step whose data has reached the host, and the checksum of that
    #[arg(long, requires = "progress")]
    checksums: bool,
    /// Rounds of each thread of a kernel
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    work: u32,
    /// After the set-up make FILE.ready, and begin when FILE is there
    #[arg(long, value_name = "FILE")]
    start_file: Option<PathBuf>,
    /// Stop when FILE is there
    #[arg(long, value_name = "FILE")]
    stop_file: Option<PathBuf>,
    /// Write when each step came, was begun and was over, in seconds, to FILE as JSON
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// When each step began and was over, in seconds of a clock that all processes share.
#[derive(Default)]
struct Log(Vec<(f64, f64)>);

impl Log {
    fn write(&self, file: Option<&Path>) -> Result<()> {
        let Some(file) = file else { return Ok(()) };
        let steps = self.0.iter().map(|(begin, end)| format!("[{begin:.9}, {begin:.9}, {end:.9}]"));
        Ok(std::fs::write(file, format!("{{\"requests\": [{}]}}\n", steps.collect::<Vec<_>>().join(",")))?)
    }
}

fn now() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes only the time it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0)).as_secs_f64()
}

/// Says that all is set up, and waits for the word to begin.
fn wait_for_start(file: Option<&Path>) -> Result<()> {
    let Some(file) = file else { return Ok(()) };
    let mut ready = file.as_os_str().to_owned();
    ready.push(".ready");
    std::fs::write(ready, "")?;
    while !file.exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// How long to do nothing, one after the other.
struct Pauses {
    state: u64,
}

impl Pauses {
    /// At random they are distributed as those between arrivals that know nothing of each other.
    fn next(&mut self, arguments: &Arguments) -> Duration {
        let usual = Duration::from_micros(arguments.pause_us);
        if !arguments.random_pauses {
            return usual;
        }
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // From above 0 to 1.
        let part = f64::from(u32::try_from(self.state >> 33).unwrap_or(0) + 1) / f64::from(1_u32 << 31);
        usual.mul_f64(-part.ln())
    }
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(checksum) => {
            println!("checksum {checksum:016x}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("steps: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<u64> {
    let library = Library::open()?;
    cu!(library, cuInit(0))?;
    let (mut device, mut context) = (CUdevice_v1(0), CUcontext(null_mut()));
    cu!(library, cuDeviceGet(&raw mut device, 0))?;
    cu!(library, cuDevicePrimaryCtxRetain(&raw mut context, device))?;
    cu!(library, cuCtxSetCurrent(context))?;
    let (mut module, mut kernel) = (CUmodule(null_mut()), CUfunction(null_mut()));
    cu!(library, cuModuleLoadData(&raw mut module, KERNEL.as_ptr().cast()))?;
    cu!(library, cuModuleGetFunction(&raw mut kernel, module, c"step".as_ptr()))?;
    let streams: Result<Vec<_>> =
        (0..arguments.streams).map(|number| Stream::new(&library, kernel, arguments, number)).collect();
    let streams = streams?;
    let mut pauses = Pauses { state: arguments.seed.into() };
    let mut log = Log::default();
    wait_for_start(arguments.start_file.as_deref())?;
    for step in 1..=arguments.steps {
        if arguments.stop_file.as_ref().is_some_and(|file| file.exists()) {
            break;
        }
        let begin = now();
        for stream in &streams {
            stream.launch(&library, kernel, arguments, step)?;
        }
        wait(&library, &streams, arguments.wait, step)?;
        if arguments.out.is_some() {
            log.0.push((begin, now()));
        }
        if arguments.progress {
            let mut out = std::io::stdout().lock();
            match checksum_so_far(&streams, arguments.wait, step)? {
                Some((of, checksum)) => writeln!(out, "step {step} {of} {checksum:016x}"),
                None => writeln!(out, "step {step}"),
            }
            .and_then(|()| out.flush())?;
        }
        if arguments.pause_us > 0 {
            std::thread::sleep(pauses.next(arguments));
        }
    }
    cu!(library, cuCtxSynchronize())?;
    log.write(arguments.out.as_deref())?;
    let mut checksum = 0_u64;
    for stream in streams {
        checksum = stream.end(&library, checksum)?;
    }
    cu!(library, cuModuleUnload(module))?;
    cu!(library, cuDevicePrimaryCtxRelease_v2(device))?;
    Ok(checksum)
}

/// A stream with its own data.
struct Stream {
    handle: CUstream,
    event: CUevent,
    data: CUdeviceptr_v2,
    graph: Option<CUgraphExec>,
    /// Counted up by the host function. It lives as long as the process, as a driver's thread may still look at it.
    finished: &'static AtomicU64,
    /// Where the data goes after each step, if it is asked for.
    shown: Option<Shown>,
}

/// Memory of the host that the device writes: what the data was after the last steps. A program that never waits learns of its
/// results by it without asking the driver anything.
struct Shown {
    /// The step whose data came last.
    last: &'static AtomicU32,
    device_last: CUdeviceptr_v2,
    /// The data after some steps, in turn.
    data: &'static [[AtomicU32; WORDS]; KEPT],
}

/// So many steps a program that never waits is seldom ahead of the device, and if it is, there is nothing to show for once.
const KEPT: usize = 512;

impl Shown {
    fn new(library: &Library) -> Result<Self> {
        const MAPPED: u32 = 2;
        let bytes = size_of::<[[AtomicU32; WORDS]; KEPT]>();
        let (mut last, mut data, mut device_last) = (null_mut::<c_void>(), null_mut::<c_void>(), CUdeviceptr_v2(0));
        cu!(library, cuMemHostAlloc(&raw mut last, size_of::<AtomicU32>(), MAPPED))?;
        cu!(library, cuMemHostAlloc(&raw mut data, bytes, MAPPED))?;
        cu!(library, cuMemHostGetDevicePointer_v2(&raw mut device_last, last, 0))?;
        // SAFETY: the driver's own memory for a word, which is never freed, and whatever is in it is a value.
        let last = unsafe { &*last.cast::<AtomicU32>() };
        // SAFETY: likewise, for that many words.
        let data = unsafe { &*data.cast::<[[AtomicU32; WORDS]; KEPT]>() };
        last.store(0, Ordering::Relaxed);
        Ok(Self { last, device_last, data })
    }

    fn of(&self, step: u64) -> &'static [AtomicU32; WORDS] {
        &self.data[usize::try_from(step % KEPT as u64).unwrap_or(0)]
    }

    /// Behind the kernels of a step: its data, and then its number.
    fn follow(&self, library: &Library, stream: CUstream, data: CUdeviceptr_v2, step: u64) -> Result<()> {
        let place = self.of(step);
        let (to, number) = (place.as_ptr().cast_mut().cast(), u32::try_from(step)?);
        cu!(library, cuMemcpyDtoHAsync_v2(to, data, size_of_val(place), stream))?;
        cu!(library, cuStreamWriteValue32_v2(stream, self.device_last, number, 0))
    }
}

/// The last step whose data is here of all streams, and its checksum. Nothing if that is not asked for, none has come, or what
/// came is so old that the device may be writing in its place. Who has waited for the step has that of the step itself.
fn checksum_so_far(streams: &[Stream], how: Wait, step: u64) -> Result<Option<(u64, u64)>> {
    let Some(shown) = streams.iter().map(|stream| stream.shown.as_ref()).collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    let of = shown.iter().map(|shown| u64::from(shown.last.load(Ordering::Acquire))).min().unwrap_or(0);
    ensure!(how == Wait::None || of == step, "step {step} was waited for, and the results are those of {of}");
    if of == 0 || step - of >= KEPT as u64 {
        return Ok(None);
    }
    let words = shown.iter().flat_map(|shown| shown.of(of)).map(|word| word.load(Ordering::Relaxed));
    Ok(Some((of, words.fold(0, take_in))))
}

/// The checksum with one more word.
fn take_in(checksum: u64, word: u32) -> u64 {
    checksum.rotate_left(7).wrapping_mul(3) ^ u64::from(word)
}

impl Stream {
    fn new(library: &Library, kernel: CUfunction, arguments: &Arguments, number: u32) -> Result<Self> {
        // Only what is ordered with the legacy stream is behind a plain copy.
        let flags = match arguments.wait {
            Wait::Copy => CUstream_flags::CU_STREAM_DEFAULT,
            _ => CUstream_flags::CU_STREAM_NON_BLOCKING,
        };
        let (mut handle, mut event, mut data) = (CUstream(null_mut()), CUevent(null_mut()), CUdeviceptr_v2(0));
        cu!(library, cuStreamCreate(&raw mut handle, flags.0))?;
        cu!(library, cuEventCreate(&raw mut event, CUevent_flags::CU_EVENT_DISABLE_TIMING.0))?;
        cu!(library, cuMemAlloc_v2(&raw mut data, WORDS * size_of::<u32>()))?;
        let mut word = arguments.seed.wrapping_mul(0x9e37_79b9) ^ number;
        let words = [(); WORDS].map(|()| {
            word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            word
        });
        cu!(library, cuMemcpyHtoD_v2(data, words.as_ptr().cast(), size_of_val(&words)))?;
        let finished = Box::leak(Box::new(AtomicU64::new(0)));
        let shown = arguments.checksums.then(|| Shown::new(library)).transpose()?;
        let mut stream = Self { handle, event, data, graph: None, finished, shown };
        if arguments.graph {
            stream.graph = Some(stream.capture(library, kernel, arguments)?);
        }
        Ok(stream)
    }

    fn capture(&self, library: &Library, kernel: CUfunction, arguments: &Arguments) -> Result<CUgraphExec> {
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        let (mut graph, mut executable) = (CUgraph(null_mut()), CUgraphExec(null_mut()));
        cu!(library, cuStreamBeginCapture_v2(self.handle, mode))?;
        self.launch_kernels(library, kernel, arguments)?;
        cu!(library, cuStreamEndCapture(self.handle, &raw mut graph))?;
        cu!(library, cuGraphInstantiateWithFlags(&raw mut executable, graph, 0))?;
        cu!(library, cuGraphDestroy(graph))?;
        Ok(executable)
    }

    fn launch(&self, library: &Library, kernel: CUfunction, arguments: &Arguments, step: u64) -> Result<()> {
        match self.graph {
            Some(graph) => cu!(library, cuGraphLaunch(graph, self.handle))?,
            None => self.launch_kernels(library, kernel, arguments)?,
        }
        if let Some(shown) = &self.shown {
            shown.follow(library, self.handle, self.data, step)?;
        }
        match arguments.wait {
            Wait::Event | Wait::EventQuery => cu!(library, cuEventRecord(self.event, self.handle)),
            Wait::HostFunction => {
                let counter = core::ptr::from_ref(self.finished).cast_mut().cast::<c_void>();
                cu!(library, cuLaunchHostFunc(self.handle, Some(count), counter))
            }
            Wait::Stream | Wait::Context | Wait::Query | Wait::Copy | Wait::None => Ok(()),
        }
    }

    fn launch_kernels(&self, library: &Library, kernel: CUfunction, arguments: &Arguments) -> Result<()> {
        let (mut data, mut rounds) = (self.data, arguments.work);
        for number in 0..arguments.kernels {
            let mut salt = 2 * number + 1;
            let mut parameters: [*mut c_void; 3] =
                [(&raw mut data).cast(), (&raw mut salt).cast(), (&raw mut rounds).cast()];
            let (values, no_extra) = (parameters.as_mut_ptr(), null_mut());
            cu!(library, cuLaunchKernel(kernel, BLOCKS, 1, 1, THREADS, 1, 1, 0, self.handle, values, no_extra))?;
        }
        Ok(())
    }

    /// Takes its data into the checksum and gives back what it had.
    fn end(self, library: &Library, checksum: u64) -> Result<u64> {
        let mut words = [0_u32; WORDS];
        cu!(library, cuMemcpyDtoH_v2(words.as_mut_ptr().cast(), self.data, size_of_val(&words)))?;
        if let Some(graph) = self.graph {
            cu!(library, cuGraphExecDestroy(graph))?;
        }
        cu!(library, cuMemFree_v2(self.data))?;
        cu!(library, cuEventDestroy_v2(self.event))?;
        cu!(library, cuStreamDestroy_v2(self.handle))?;
        Ok(words.into_iter().fold(checksum, take_in))
    }
}

/// The host function.
unsafe extern "C" fn count(counter: *mut c_void) {
    // SAFETY: a stream's counter, which lives as long as the process.
    let counter = unsafe { &*counter.cast::<AtomicU64>() };
    counter.fetch_add(1, Ordering::Release);
}

/// Until all streams have finished the step.
fn wait(library: &Library, streams: &[Stream], how: Wait, step: u64) -> Result<()> {
    if how == Wait::Context {
        return cu!(library, cuCtxSynchronize());
    }
    let query_stream = library.function(detshare_cuda::entry::cuStreamQuery)?;
    let query_event = library.function(detshare_cuda::entry::cuEventQuery)?;
    for stream in streams {
        match how {
            Wait::Stream => cu!(library, cuStreamSynchronize(stream.handle))?,
            Wait::Event => cu!(library, cuEventSynchronize(stream.event))?,
            // SAFETY: a stream of this process.
            Wait::Query => until_ready("cuStreamQuery", || unsafe { query_stream(stream.handle) })?,
            // SAFETY: an event of this process.
            Wait::EventQuery => until_ready("cuEventQuery", || unsafe { query_event(stream.event) })?,
            Wait::Copy => {
                let mut word = 0_u32;
                cu!(library, cuMemcpyDtoH_v2((&raw mut word).cast(), stream.data, size_of::<u32>()))?;
            }
            Wait::HostFunction => {
                while stream.finished.load(Ordering::Acquire) < step {
                    std::thread::yield_now();
                }
                ensure!(stream.finished.load(Ordering::Acquire) == step, "a host function ran twice");
            }
            Wait::Context | Wait::None => (),
        }
    }
    Ok(())
}

fn until_ready(what: &str, ask: impl Fn() -> CUresult) -> Result<()> {
    loop {
        match ask() {
            CUresult::CUDA_ERROR_NOT_READY => std::thread::yield_now(),
            answer => return ok(what, answer),
        }
    }
}
