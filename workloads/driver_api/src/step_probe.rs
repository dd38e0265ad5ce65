//! Does what it is told on standard input, one word a line, and answers `ok` to each: a program whose launches and waits
//! can be put in any order from outside.
//!
//! * `begin`, `begin-null`, `begin-thread`, `begin-graph`: launch a kernel that runs until `open`, into a stream, the
//!   legacy stream, the thread's own default stream, or as a graph;
//! * `begin:N`: the first of these with so many bytes of shared memory, which is another shape;
//! * `aside`: launch one into the stream that comes to its end with what was begun, in a thread of its own; `joined`: wait until
//!   that thread has ended;
//! * `capture`: begin a capture of another stream, in the mode that nobody may disturb; `captured`: end it;
//! * `short`: launch one that runs until the next `open` has been said once, which it has if one was;
//! * `open`: let what was begun come to its end;
//! * `stream`, `event`, `context`, `query`, `event-query`, `copy`: wait for it in that way;
//! * `host`: have a host function called behind it and wait until it was;
//! * `beside`, `beside-thread`: put something that is no launch into another stream, or the thread's own: it sets a word when
//!   `release` has been said;
//! * `release`: let that come to its end; `other`: wait for the stream that it is in;
//! * `shapes:N`: launch so many that come to their end at once, each with another size of shared memory;
//! * `kernels:N`: load a module of so many kernels, each of another name, and launch each once, one after the other; answers when what
//!   they leave is what it should be;
//! * `turned`: launch as many blocks in each of three directions, which come to their end at once;
//! * `many:N`: launch so many that come to their end at once;
//! * `slowly:N:MS`: launch so many that come to their end at once, with so many milliseconds of the host asleep before each;
//! * `fork`: have a child that does nothing until standard input ends; `fork-exit`: one that ends at once, as programs do.

use anyhow::{Context, Result, bail, ensure};
use core::ffi::{c_uint, c_void};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use detshare_cuda::types::{
    CUcontext, CUdevice_v1, CUdeviceptr_v2, CUevent, CUfunction, CUgraph, CUgraphExec, CUmodule, CUstream,
    CUstreamCaptureMode,
};
use detshare_workloads::{Library, cu};
use std::ffi::CString;
use std::io::{BufRead, Write};
use std::thread::JoinHandle;
use std::time::Duration;

/// Waits until the word at `gate` is not below `ticket`.
const WAITER: &std::ffi::CStr = c"
.version 7.8
.target sm_70
.address_size 64
.visible .entry waiter(.param .u64 gate, .param .u32 ticket)
{
    .reg .u64 %address;
    .reg .u32 %ticket, %seen;
    .reg .pred %closed;
    ld.param.u64 %address, [gate];
    ld.param.u32 %ticket, [ticket];
AGAIN:
    ld.volatile.global.u32 %seen, [%address];
    setp.lt.u32 %closed, %seen, %ticket;
    @%closed bra AGAIN;
    ret;
}
";

const HEADER: &str = "\n.version 7.8\n.target sm_70\n.address_size 64\n";

/// One of many kernels, by its number.
struct Other(u32);

impl Other {
    const FACTOR: u32 = 1_664_525;

    fn name(&self) -> String {
        format!("other_{}", self.0)
    }

    fn source(&self) -> String {
        let (name, factor, salt) = (self.name(), Self::FACTOR, self.salt());
        format!(
            "
.visible .entry {name}(.param .u64 data)
{{
    .reg .u64 %data;
    .reg .u32 %word;
    ld.param.u64 %data, [data];
    ld.global.u32 %word, [%data];
    mad.lo.u32 %word, %word, {factor}, {salt};
    st.global.u32 [%data], %word;
    ret;
}}
"
        )
    }

    fn salt(&self) -> u32 {
        2 * self.0 + 1
    }

    fn makes_of(&self, word: u32) -> u32 {
        word.wrapping_mul(Self::FACTOR).wrapping_add(self.salt())
    }
}

const LEGACY: CUstream = CUstream(core::ptr::without_provenance_mut(1));
const THREAD: CUstream = CUstream(core::ptr::without_provenance_mut(2));

struct Probe {
    library: Library,
    kernel: CUfunction,
    stream: CUstream,
    event: CUevent,
    /// The word that kernels wait for, as the host has it and as the device has it.
    gate: &'static AtomicU32,
    device_gate: CUdeviceptr_v2,
    /// How often it was begun.
    ticket: u32,
    /// Where the last one was put.
    last: CUstream,
    /// Where the last one was put that is no launch, and the word that it waits for, which `release` sets.
    other: CUstream,
    release: &'static AtomicU32,
    device_release: CUdeviceptr_v2,
    /// How often there was such a one.
    turn: u32,
    /// The thread that launches beside this one, and the stream that is captured meanwhile.
    aside: Option<JoinHandle<Result<()>>>,
    captured: CUstream,
}

/// What a thread needs to launch.
struct Aside {
    library: Library,
    context: CUcontext,
    kernel: CUfunction,
    stream: CUstream,
    gate: CUdeviceptr_v2,
    ticket: u32,
}

// SAFETY: handles of the driver, which any thread may use.
unsafe impl Send for Aside {}

impl Aside {
    fn launch(self) -> Result<()> {
        let Self { library, context, kernel, stream, mut gate, mut ticket } = self;
        cu!(library, cuCtxSetCurrent(context))?;
        let mut parameters: [*mut c_void; 2] = [(&raw mut gate).cast(), (&raw mut ticket).cast()];
        let (arguments, no_extra) = (parameters.as_mut_ptr(), core::ptr::null_mut());
        cu!(library, cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, no_extra))
    }
}

fn main() -> Result<()> {
    let mut probe = Probe::new()?;
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        probe.perform(line.trim()).with_context(|| format!("in {line}"))?;
        println!("ok");
        std::io::stdout().flush()?;
    }
    Ok(())
}

impl Probe {
    fn new() -> Result<Self> {
        let library = Library::open()?;
        cu!(library, cuInit(0))?;
        let mut context = CUcontext(core::ptr::null_mut());
        cu!(library, cuDevicePrimaryCtxRetain(&raw mut context, CUdevice_v1(0)))?;
        cu!(library, cuCtxSetCurrent(context))?;
        let (mut stream, mut event) = (CUstream(core::ptr::null_mut()), CUevent(core::ptr::null_mut()));
        cu!(library, cuStreamCreate(&raw mut stream, 1))?;
        cu!(library, cuEventCreate(&raw mut event, 0))?;
        let (mut module, mut kernel) = (CUmodule(core::ptr::null_mut()), CUfunction(core::ptr::null_mut()));
        cu!(library, cuModuleLoadData(&raw mut module, WAITER.as_ptr().cast()))?;
        cu!(library, cuModuleGetFunction(&raw mut kernel, module, c"waiter".as_ptr()))?;
        let (gate, device_gate) = word(&library)?;
        let (release, device_release) = word(&library)?;
        Ok(Self {
            library,
            kernel,
            stream,
            event,
            gate,
            device_gate,
            ticket: 0,
            last: stream,
            other: stream,
            release,
            device_release,
            turn: 0,
            aside: None,
            captured: CUstream(core::ptr::null_mut()),
        })
    }

    fn perform(&mut self, what: &str) -> Result<()> {
        let library = &self.library;
        match what {
            "begin" => self.begin(self.stream, 0),
            "begin-null" => self.begin(LEGACY, 0),
            "begin-thread" => self.begin(THREAD, 0),
            "begin-graph" => self.begin_graph(),
            "open" => {
                self.gate.store(self.ticket, Ordering::Release);
                Ok(())
            }
            "aside" => self.launch_aside(),
            "joined" => self.aside.take().context("nobody is there")?.join().expect("no panic"),
            "capture" => self.begin_capture(),
            "captured" => {
                let mut graph = CUgraph(core::ptr::null_mut());
                cu!(library, cuStreamEndCapture(self.captured, &raw mut graph))?;
                cu!(library, cuGraphDestroy(graph))
            }
            "short" => {
                ensure!(self.gate.load(Ordering::Acquire) == self.ticket, "nothing was opened");
                self.launch(self.stream, 0)
            }
            "beside" => {
                let mut stream = CUstream(core::ptr::null_mut());
                cu!(library, cuStreamCreate(&raw mut stream, 1))?;
                self.put_beside(stream)
            }
            "beside-thread" => self.put_beside(THREAD),
            "release" => {
                self.release.store(self.turn, Ordering::Release);
                Ok(())
            }
            "other" => cu!(library, cuStreamSynchronize(self.other)),
            "stream" => cu!(library, cuStreamSynchronize(self.last)),
            "context" => cu!(library, cuCtxSynchronize()),
            "event" => {
                cu!(library, cuEventRecord(self.event, self.last))?;
                cu!(library, cuEventSynchronize(self.event))
            }
            "query" => self.poll(|library, probe| cu!(library, cuStreamQuery(probe.last))),
            "event-query" => {
                cu!(library, cuEventRecord(self.event, self.last))?;
                self.poll(|library, probe| cu!(library, cuEventQuery(probe.event)))
            }
            "copy" => {
                let mut word = 0_u32;
                cu!(library, cuMemcpyDtoH_v2((&raw mut word).cast(), self.device_gate, size_of::<u32>()))
            }
            "host" => self.wait_for_host_function(),
            "turned" => [[6, 1, 1], [1, 6, 1], [1, 1, 6]]
                .into_iter()
                .try_for_each(|grid| self.launch_grid(self.stream, grid, 0)),
            "fork" => fork(false),
            "fork-exit" => fork(true),
            _ if what.starts_with("slowly:") => self.launch_slowly(&what["slowly:".len()..]),
            _ => match what.split_once(':').map(|(word, count)| (word, count.parse())) {
                Some(("kernels", Ok(count))) => self.launch_others(count),
                Some(("begin", Ok(shared))) => self.begin(self.stream, shared),
                Some(("shapes", Ok(count))) => (0..count).try_for_each(|shared| self.launch(self.stream, shared)),
                Some(("many", Ok(count))) => (0..count).try_for_each(|_| self.launch(self.stream, 0)),
                _ => bail!("no such word"),
            },
        }
    }

    fn begin(&mut self, stream: CUstream, shared: c_uint) -> Result<()> {
        self.ticket += 1;
        self.last = stream;
        self.launch(stream, shared)
    }

    fn put_beside(&mut self, stream: CUstream) -> Result<()> {
        /// Until the word is not below the value.
        const NOT_BELOW: c_uint = 0;
        self.turn += 1;
        self.other = stream;
        cu!(self.library, cuStreamWaitValue32_v2(stream, self.device_release, self.turn, NOT_BELOW))?;
        let unused = CUdeviceptr_v2(self.device_release.0 + 4);
        cu!(self.library, cuMemsetD32Async(unused, 0, 1, stream))
    }

    fn launch_slowly(&self, how: &str) -> Result<()> {
        let (count, ms) = how.split_once(':').context("how many, and how slowly?")?;
        let (count, pause): (u32, _) = (count.parse()?, Duration::from_millis(ms.parse()?));
        (0..count).try_for_each(|_| {
            // Asleep, so that the software GPU has this core meanwhile.
            std::thread::sleep(pause);
            self.launch(self.stream, 0)
        })
    }

    fn launch(&self, stream: CUstream, shared: c_uint) -> Result<()> {
        self.launch_grid(stream, [1; 3], shared)
    }

    fn launch_grid(&self, stream: CUstream, [x, y, z]: [c_uint; 3], shared: c_uint) -> Result<()> {
        let (mut gate, mut ticket) = (self.device_gate, self.ticket);
        let mut parameters: [*mut c_void; 2] = [(&raw mut gate).cast(), (&raw mut ticket).cast()];
        let (arguments, no_extra) = (parameters.as_mut_ptr(), core::ptr::null_mut());
        cu!(self.library, cuLaunchKernel(self.kernel, x, y, z, 1, 1, 1, shared, stream, arguments, no_extra))
    }

    /// Each kernel takes what the one before it left, so one that is lost, repeated or out of order shows.
    fn launch_others(&self, count: u32) -> Result<()> {
        let library = &self.library;
        let kernels: Vec<Other> = (0..count).map(Other).collect();
        let source = CString::new(HEADER.to_string() + &kernels.iter().map(Other::source).collect::<String>())?;
        let (mut module, mut data) = (CUmodule(core::ptr::null_mut()), CUdeviceptr_v2(0));
        cu!(library, cuModuleLoadData(&raw mut module, source.as_ptr().cast()))?;
        cu!(library, cuMemAlloc_v2(&raw mut data, size_of::<u32>()))?;
        cu!(library, cuMemsetD32Async(data, 0, 1, self.stream))?;
        for kernel in &kernels {
            let (mut function, name) = (CUfunction(core::ptr::null_mut()), CString::new(kernel.name())?);
            cu!(library, cuModuleGetFunction(&raw mut function, module, name.as_ptr()))?;
            let mut parameters: [*mut c_void; 1] = [(&raw mut data).cast()];
            let (values, no_extra) = (parameters.as_mut_ptr(), core::ptr::null_mut());
            cu!(library, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, self.stream, values, no_extra))?;
        }
        cu!(library, cuStreamSynchronize(self.stream))?;
        let mut found = 0_u32;
        cu!(library, cuMemcpyDtoH_v2((&raw mut found).cast(), data, size_of::<u32>()))?;
        let expected = kernels.iter().fold(0, |word, kernel| kernel.makes_of(word));
        ensure!(found == expected, "{count} kernels left {found:#x} in place of {expected:#x}");
        cu!(library, cuMemFree_v2(data))?;
        cu!(library, cuModuleUnload(module))
    }

    fn launch_aside(&mut self) -> Result<()> {
        let mut context = CUcontext(core::ptr::null_mut());
        cu!(self.library, cuCtxGetCurrent(&raw mut context))?;
        let aside = Aside {
            library: Library::open()?,
            context,
            kernel: self.kernel,
            stream: self.stream,
            gate: self.device_gate,
            ticket: self.ticket,
        };
        // So that it can be found from outside.
        let named = std::thread::Builder::new().name("aside".into());
        self.aside = Some(named.spawn(move || aside.launch())?);
        Ok(())
    }

    fn begin_capture(&mut self) -> Result<()> {
        if self.captured.0.is_null() {
            cu!(self.library, cuStreamCreate(&raw mut self.captured, 1))?;
        }
        cu!(self.library, cuStreamBeginCapture_v2(self.captured, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL))?;
        self.launch(self.captured, 0)
    }

    fn begin_graph(&mut self) -> Result<()> {
        self.ticket += 1;
        self.last = self.stream;
        let (mut graph, mut executable) = (CUgraph(core::ptr::null_mut()), CUgraphExec(core::ptr::null_mut()));
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
        cu!(self.library, cuStreamBeginCapture_v2(self.stream, mode))?;
        self.launch(self.stream, 0)?;
        cu!(self.library, cuStreamEndCapture(self.stream, &raw mut graph))?;
        cu!(self.library, cuGraphInstantiateWithFlags(&raw mut executable, graph, 0))?;
        cu!(self.library, cuGraphLaunch(executable, self.stream))
    }

    fn poll(&self, ask: impl Fn(&Library, &Self) -> Result<()>) -> Result<()> {
        loop {
            match ask(&self.library, self) {
                Err(error) if error.to_string().ends_with("CUDA_ERROR_NOT_READY") => std::thread::yield_now(),
                answer => return answer,
            }
        }
    }

    fn wait_for_host_function(&self) -> Result<()> {
        static CALLED: AtomicBool = AtomicBool::new(false);
        unsafe extern "C" fn call(_: *mut c_void) {
            CALLED.store(true, Ordering::Release);
        }
        CALLED.store(false, Ordering::Release);
        cu!(self.library, cuLaunchHostFunc(self.last, Some(call), core::ptr::null_mut()))?;
        while !CALLED.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        Ok(())
    }
}

/// A word that host and device see, which is never freed, and another one behind it.
fn word(library: &Library) -> Result<(&'static AtomicU32, CUdeviceptr_v2)> {
    let (mut word, mut on_device) = (core::ptr::null_mut::<c_void>(), CUdeviceptr_v2(0));
    cu!(library, cuMemHostAlloc(&raw mut word, 2 * size_of::<u32>(), 2))?;
    cu!(library, cuMemHostGetDevicePointer_v2(&raw mut on_device, word, 0))?;
    // SAFETY: the driver's own memory, which is never freed, and zero is a value of it.
    let word = unsafe { &*word.cast::<AtomicU32>() };
    word.store(0, Ordering::Relaxed);
    Ok((word, on_device))
}

fn fork(ends: bool) -> Result<()> {
    // SAFETY: the child calls what a child of a program with threads may call, and ends.
    let child = unsafe { libc::fork() };
    ensure!(child >= 0, "cannot fork");
    if ends {
        if child == 0 {
            // SAFETY: ends the child, with what libraries do at the end.
            unsafe { libc::exit(0) };
        }
        let mut status = 0;
        // SAFETY: room for the status.
        ensure!(unsafe { libc::waitpid(child, &raw mut status, 0) } == child && status == 0, "the child failed");
        return Ok(());
    }
    if child == 0 {
        let mut byte = 0_u8;
        // SAFETY: room for a byte.
        while unsafe { libc::read(0, (&raw mut byte).cast(), 1) } > 0 {}
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    Ok(())
}
