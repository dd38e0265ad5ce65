//! One thread's work: random calls, and all that it has made destroyed in the end.

use crate::Soak;
use crate::area::{Area, REGION};
use crate::graph::{Executable, Template};
use crate::random::Random;
use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU64, Ordering};
use detshare_bench::{cu, ok};
use detshare_cuda::entry;
use detshare_cuda::types::{CUdeviceptr_v2, CUevent, CUresult, CUstream, CUstream_flags};
use std::sync::PoisonError;

/// The most of each that a thread has at once.
const MOST: usize = 8;
/// Calls of a thread that comes and goes.
const SHORT_LIFE: u32 = 60;

/// What can be left out, to find out what grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Streams made and destroyed after the first few
    Streams,
    Events,
    Graphs,
    Captures,
    GraphUpdates,
    HostFunctions,
    Copies,
    Allocations,
    LegacyStream,
    /// The default streams of threads that stay
    PerThreadStreams,
    /// The default streams of threads that end
    EndedPerThreadStreams,
    /// Threads that end
    Threads,
}

/// A stream of the program.
pub(crate) struct Stream {
    pub(crate) handle: CUstream,
    pub(crate) non_blocking: bool,
}

/// A thread's handles.
pub(crate) struct Worker<'a> {
    pub(crate) soak: &'a Soak,
    pub(crate) random: Random,
    pub(crate) area: Area,
    stays: bool,
    pub(crate) streams: Vec<Stream>,
    events: Vec<CUevent>,
    pub(crate) graphs: Vec<Template>,
    pub(crate) executables: Vec<Executable>,
}

/// Works until everyone is to rest, with threads that come and go beside.
pub(crate) fn round(soak: &Soak, number: u64, random: &mut Random) -> Result<()> {
    /// One call in so many starts a thread.
    const NEW_THREAD: u64 = 500;
    let mut worker = Worker::new(soak, number, true, Random::new(random.next()))?;
    std::thread::scope(|threads| {
        let mut beside = None;
        while !soak.is_resting() {
            worker.step()?;
            if random.below(NEW_THREAD) == 0 && worker.allows(Part::Threads) {
                join(beside.take())?;
                let random = Random::new(random.next());
                beside = Some(threads.spawn(move || short_life(soak, number, random)));
            }
        }
        join(beside.take())
    })?;
    worker.destroy_all()
}

fn join(thread: Option<std::thread::ScopedJoinHandle<'_, Result<()>>>) -> Result<()> {
    match thread.map(std::thread::ScopedJoinHandle::join) {
        None => Ok(()),
        Some(Ok(outcome)) => outcome,
        // The others wait for this thread at the barrier: it must get there.
        Some(Err(_)) => bail!("a thread panicked"),
    }
}

/// What it has put into streams goes on after its end.
fn short_life(soak: &Soak, number: u64, random: Random) -> Result<()> {
    let mut worker = Worker::new(soak, number, false, random)?;
    for _ in 0..SHORT_LIFE {
        worker.step()?;
    }
    worker.destroy_all()?;
    soak.threads_ended.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// A host function: counts.
pub(crate) unsafe extern "C" fn call(calls: *mut c_void) {
    // SAFETY: what it was given: the program's counter, which outlives all work.
    unsafe { &*calls.cast::<AtomicU64>() }.fetch_add(1, Ordering::Relaxed);
}

impl<'a> Worker<'a> {
    fn new(soak: &'a Soak, number: u64, stays: bool, random: Random) -> Result<Self> {
        cu!(soak.driver, cuCtxSetCurrent(soak.program.context))?;
        let area = soak.areas.of(number, stays);
        let (streams, events, graphs, executables) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut worker = Self { soak, random, area, stays, streams, events, graphs, executables };
        // There is always one.
        worker.make_stream()?;
        Ok(worker)
    }

    pub(crate) fn made(&self) {
        self.soak.live.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn destroyed(&self) {
        self.soak.live.fetch_sub(1, Ordering::Relaxed);
    }

    fn allows(&self, part: Part) -> bool {
        !self.soak.without.contains(&part)
    }

    pub(crate) fn allows_host_functions(&self) -> bool {
        self.allows(Part::HostFunctions)
    }

    /// One call or a few, at random.
    fn step(&mut self) -> Result<()> {
        self.soak.operations.fetch_add(1, Ordering::Relaxed);
        match self.random.below(100) {
            0..40 => {
                let stream = self.any_stream();
                let amount = self.put_kernel(stream)?;
                self.soak.expected.fetch_add(amount, Ordering::Relaxed);
                Ok(())
            }
            40..48 => self.stream_comes_or_goes(),
            48..64 if self.allows(Part::Events) => self.event(),
            64..68 if self.allows(Part::Copies) => self.copy_there_and_back(),
            68..70 if self.allows(Part::Copies) => {
                let stream = self.any_stream();
                cu!(self.soak.driver, cuMemsetD8Async(self.area.scratch, 1, REGION, stream))
            }
            70..72 if self.allows(Part::HostFunctions) => {
                let stream = self.any_stream();
                self.put_call(stream)?;
                self.soak.expected_calls.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            72..76 => self.wait_for_stream(),
            76 => self.wait_for_context(),
            77 if self.allows(Part::Allocations) => self.allocate(),
            78..100 if self.allows(Part::Graphs) => self.graph(),
            _ => Ok(()),
        }
    }

    fn graph(&mut self) -> Result<()> {
        match self.random.below(22) {
            0..3 if self.graphs.len() < MOST => self.make_graph(),
            3..6 if self.graphs.len() < MOST && self.allows(Part::Captures) => self.capture_graph(),
            6..9 if self.executables.len() < MOST => self.instantiate(),
            9..11 if self.allows(Part::GraphUpdates) => self.update(),
            11..18 => self.launch_graph(),
            18..20 => self.random.position(self.graphs.len()).map_or(Ok(()), |at| self.destroy_graph(at)),
            _ => self.random.position(self.executables.len()).map_or(Ok(()), |at| self.destroy_executable(at)),
        }
    }

    /// One of its own, or a default stream.
    pub(crate) fn any_stream(&mut self) -> CUstream {
        const LEGACY: CUstream = CUstream(core::ptr::without_provenance_mut(1));
        const PER_THREAD: CUstream = CUstream(core::ptr::without_provenance_mut(2));
        let per_thread = if self.stays { Part::PerThreadStreams } else { Part::EndedPerThreadStreams };
        match self.random.below(16) {
            0 if self.allows(Part::LegacyStream) => CUstream(null_mut()),
            1 if self.allows(Part::LegacyStream) => LEGACY,
            2 if self.allows(per_thread) => PER_THREAD,
            _ => self.random.position(self.streams.len()).map_or(LEGACY, |at| self.streams[at].handle),
        }
    }

    fn stream_comes_or_goes(&mut self) -> Result<()> {
        let fixed = !self.allows(Part::Streams);
        if self.streams.len() < 2 || (self.streams.len() < MOST && !fixed && self.random.below(2) == 0) {
            return self.make_stream();
        }
        match self.random.position(self.streams.len()) {
            Some(position) if !fixed => self.destroy_stream(position),
            _ => Ok(()),
        }
    }

    fn make_stream(&mut self) -> Result<()> {
        let driver = &self.soak.driver;
        let non_blocking = self.random.below(2) == 0;
        let flags =
            if non_blocking { CUstream_flags::CU_STREAM_NON_BLOCKING } else { CUstream_flags::CU_STREAM_DEFAULT };
        let mut handle = CUstream(null_mut());
        if self.random.below(3) == 0 {
            let (mut least, mut greatest): (c_int, c_int) = (0, 0);
            cu!(driver, cuCtxGetStreamPriorityRange(&raw mut least, &raw mut greatest))?;
            // The greatest priority is the smallest number.
            let priorities: Vec<c_int> = (greatest..=least).collect();
            let priority = self.random.one_of(&priorities).context("no priorities")?;
            cu!(driver, cuStreamCreateWithPriority(&raw mut handle, flags.0, priority))?;
        } else {
            cu!(driver, cuStreamCreate(&raw mut handle, flags.0))?;
        }
        self.streams.push(Stream { handle, non_blocking });
        self.made();
        Ok(())
    }

    /// It may still have work.
    fn destroy_stream(&mut self, position: usize) -> Result<()> {
        let stream = self.streams.swap_remove(position);
        cu!(self.soak.driver, cuStreamDestroy_v2(stream.handle))?;
        self.destroyed();
        Ok(())
    }

    fn event(&mut self) -> Result<()> {
        /// Flags: blocking wait 1, no times 2.
        const FLAGS: u64 = 4;
        let driver = &self.soak.driver;
        let Some(event) = self.random.one_of(&self.events).filter(|_| self.random.below(8) > 1) else {
            if self.events.len() < MOST {
                let mut event = CUevent(null_mut());
                let flags = u32::try_from(self.random.below(FLAGS))?;
                cu!(driver, cuEventCreate(&raw mut event, flags))?;
                self.events.push(event);
                self.made();
                return Ok(());
            }
            return self.destroy_event();
        };
        let stream = self.any_stream();
        match self.random.below(8) {
            0..3 => cu!(driver, cuEventRecord(event, stream)),
            3..6 => cu!(driver, cuStreamWaitEvent(stream, event, 0)),
            6 => cu!(driver, cuEventSynchronize(event)),
            _ => {
                let query = driver.function(entry::cuEventQuery).context("cuEventQuery")?;
                // SAFETY: an event that is alive.
                done_or_not("cuEventQuery", unsafe { query(event) })
            }
        }
    }

    fn destroy_event(&mut self) -> Result<()> {
        let Some(event) = self.events.pop() else { return Ok(()) };
        cu!(self.soak.driver, cuEventDestroy_v2(event))?;
        self.destroyed();
        Ok(())
    }

    /// Launches a kernel; says what it adds.
    pub(crate) fn put_kernel(&mut self, stream: CUstream) -> Result<u64> {
        let program = &self.soak.program;
        let (mut counter, mut amount) = (program.counter, 1 + self.random.below(9));
        let mut parameters: [*mut c_void; 2] = [(&raw mut counter).cast(), (&raw mut amount).cast()];
        let (parameters, extra) = (parameters.as_mut_ptr(), null_mut());
        cu!(self.soak.driver, cuLaunchKernel(program.add, 1, 1, 1, 1, 1, 1, 0, stream, parameters, extra))?;
        Ok(amount)
    }

    pub(crate) fn put_call(&self, stream: CUstream) -> Result<()> {
        let user_data = (&raw const self.soak.calls).cast_mut().cast();
        cu!(self.soak.driver, cuLaunchHostFunc(stream, Some(call), user_data))
    }

    /// What comes back must be what went there.
    fn copy_there_and_back(&mut self) -> Result<()> {
        let (driver, Area { checked, there, back, .. }) = (&self.soak.driver, self.area);
        let (stream, value) = (self.any_stream(), self.random.next().to_le_bytes()[0]);
        // SAFETY: this thread's region; nothing reads it now.
        unsafe { there.write_bytes(value, REGION) };
        cu!(driver, cuMemcpyHtoDAsync_v2(checked, there.cast(), REGION, stream))?;
        cu!(driver, cuMemcpyDtoHAsync_v2(back.cast(), checked, REGION, stream))?;
        cu!(driver, cuStreamSynchronize(stream))?;
        // SAFETY: this thread's region; the copy is over.
        let came_back = unsafe { core::slice::from_raw_parts(back, REGION) };
        ensure!(came_back.iter().all(|byte| *byte == value), "a copy brought something else back");
        Ok(())
    }

    fn wait_for_stream(&mut self) -> Result<()> {
        let driver = &self.soak.driver;
        let stream = self.any_stream();
        if self.random.below(2) == 0 {
            return cu!(driver, cuStreamSynchronize(stream));
        }
        let query = driver.function(entry::cuStreamQuery).context("cuStreamQuery")?;
        // SAFETY: a stream that is alive.
        done_or_not("cuStreamQuery", unsafe { query(stream) })
    }

    fn wait_for_context(&self) -> Result<()> {
        let _nobody_captures = self.soak.captures.write().unwrap_or_else(PoisonError::into_inner);
        cu!(self.soak.driver, cuCtxSynchronize())
    }

    fn allocate(&mut self) -> Result<()> {
        const LARGEST: u64 = 256 << 10;
        let driver = &self.soak.driver;
        let (mut memory, bytes) = (CUdeviceptr_v2(0), 1 + self.random.below(LARGEST));
        let bytes = usize::try_from(bytes)?;
        cu!(driver, cuMemAlloc_v2(&raw mut memory, bytes))?;
        self.made();
        let stream = self.any_stream();
        cu!(driver, cuMemsetD8Async(memory, 5, bytes, stream))?;
        cu!(driver, cuStreamSynchronize(stream))?;
        cu!(driver, cuMemFree_v2(memory))?;
        self.destroyed();
        Ok(())
    }

    fn destroy_all(mut self) -> Result<()> {
        while !self.executables.is_empty() {
            self.destroy_executable(0)?;
        }
        while !self.graphs.is_empty() {
            self.destroy_graph(0)?;
        }
        while !self.events.is_empty() {
            self.destroy_event()?;
        }
        while !self.streams.is_empty() {
            self.destroy_stream(0)?;
        }
        Ok(())
    }
}

fn done_or_not(what: &str, result: CUresult) -> Result<()> {
    if result == CUresult::CUDA_ERROR_NOT_READY { Ok(()) } else { ok(what, result) }
}
