//! The ways to launch that are compared: one function of one library, into one stream.

use anyhow::{Context, Result};
use core::ffi::c_void;
use core::ptr::null_mut;
use detshare_bench::figures::Side;
use detshare_bench::program::{LaunchKernel, Program};
use detshare_cuda::types::{CUdeviceptr_v2, CUfunction, CUgraphExec, CUresult, CUstream};
use detshare_cuda::{Driver, entry};
use std::hint::black_box;

type LaunchGraph = unsafe extern "C" fn(CUgraphExec, CUstream) -> CUresult;

pub(crate) fn succeeds(result: CUresult) {
    assert_eq!(result, CUresult::CUDA_SUCCESS, "a call that is timed failed");
}

/// What to wait for until the GPU has done a batch.
#[derive(Clone, Copy)]
pub(crate) enum Wait {
    Context(unsafe extern "C" fn() -> CUresult),
    Stream(unsafe extern "C" fn(CUstream) -> CUresult, CUstream),
}

impl Wait {
    /// Everything in the context.
    pub(crate) fn of(driver: &Driver) -> Result<Self> {
        Ok(Self::Context(driver.function(entry::cuCtxSynchronize).context("cuCtxSynchronize")?))
    }

    /// One stream: waiting for the primary context does not take in those of green contexts.
    pub(crate) fn for_stream(driver: &Driver, stream: CUstream) -> Result<Self> {
        Ok(Self::Stream(driver.function(entry::cuStreamSynchronize).context("cuStreamSynchronize")?, stream))
    }

    pub(crate) fn wait(self) {
        succeeds(match self {
            // SAFETY: takes nothing; waits for the current context.
            Self::Context(synchronise) => unsafe { synchronise() },
            // SAFETY: a stream that is alive.
            Self::Stream(synchronise, stream) => unsafe { synchronise(stream) },
        });
    }
}

/// The counting kernel.
pub(crate) struct Kernel {
    launch: LaunchKernel,
    kernel: CUfunction,
    counter: CUdeviceptr_v2,
}

impl Kernel {
    pub(crate) fn of(driver: &Driver, program: &Program) -> Result<Self> {
        let launch = driver.function(entry::cuLaunchKernel).context("cuLaunchKernel")?;
        Ok(Self { launch, kernel: program.next, counter: program.counter })
    }

    #[inline]
    pub(crate) fn launch(&mut self, stream: CUstream) {
        let mut parameters: [*mut c_void; 1] = [(&raw mut self.counter).cast()];
        let (launch, parameters) = (black_box(self.launch), parameters.as_mut_ptr());
        // SAFETY: a loaded kernel with its one parameter, which outlives the call.
        succeeds(unsafe { launch(self.kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, null_mut()) });
    }
}

/// Launches a kernel into one stream.
pub(crate) struct Kernels {
    pub(crate) kernel: Kernel,
    pub(crate) stream: CUstream,
    pub(crate) wait: Wait,
}

impl Side for Kernels {
    fn launch(&mut self, times: u32) {
        for _ in 0..times {
            self.kernel.launch(self.stream);
        }
    }

    fn wait(&mut self) {
        self.wait.wait();
    }
}

/// Launches executable graphs into one stream, one after the other and from the first again.
pub(crate) struct Graphs {
    launch: LaunchGraph,
    executables: Vec<CUgraphExec>,
    next: usize,
    stream: CUstream,
    wait: Wait,
}

impl Graphs {
    pub(crate) fn new(driver: &Driver, executables: Vec<CUgraphExec>, stream: CUstream, wait: Wait) -> Result<Self> {
        let launch = driver.function(entry::cuGraphLaunch).context("cuGraphLaunch")?;
        Ok(Self { launch, executables, next: 0, stream, wait })
    }
}

impl Side for Graphs {
    fn launch(&mut self, times: u32) {
        for _ in 0..times {
            let launch = black_box(self.launch);
            // SAFETY: an executable graph and a stream, both alive.
            succeeds(unsafe { launch(self.executables[self.next], self.stream) });
            self.next = (self.next + 1) % self.executables.len();
        }
    }

    fn wait(&mut self) {
        self.wait.wait();
    }
}
