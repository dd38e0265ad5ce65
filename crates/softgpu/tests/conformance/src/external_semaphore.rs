//! Semaphores of other parts of the system, signalled and waited for in a stream's order. The software GPU takes an
//! `eventfd` for one; a driver that knows only those of graphics refuses that, and then there is nothing to test.

use crate::Outcome;
use crate::gpu::{Gpu, NON_BLOCKING};
use anyhow::{Result, ensure};
use core::mem::zeroed;
use detshare_cuda::Driver;
use detshare_cuda::types::{
    CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC, CUexternalSemaphore, CUexternalSemaphoreHandleType as Kind, CUgraph,
    CUgraphExec, CUresult, CUstream, CUstreamCaptureMode as Mode,
};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};

tests! { external_semaphore:
    signals_after_the_work_before,
    holds_the_work_behind,
    between_two_streams,
    is_captured,
    what_is_none_is_refused,
}

/// A semaphore, and the file that is its other end.
struct Semaphore {
    handle: CUexternalSemaphore,
    file: File,
}

fn description(descriptor: i32) -> CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC {
    // SAFETY: plain numbers.
    let mut description: CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC = unsafe { zeroed() };
    description.type_ = Kind::CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD;
    description.handle.fd = descriptor;
    description
}

/// None where an `eventfd` is not taken for a semaphore.
fn import(gpu: &Gpu) -> Result<Option<Semaphore>> {
    // SAFETY: takes numbers.
    let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    ensure!(descriptor >= 0, "no eventfd");
    // SAFETY: it is new.
    let file = unsafe { File::from_raw_fd(descriptor) };
    let given = file.try_clone()?.into_raw_fd();
    let mut handle = CUexternalSemaphore(core::ptr::null_mut());
    let description = description(given);
    let code = cu!(gpu, cuImportExternalSemaphore(&raw mut handle, &raw const description));
    if code != CUresult::CUDA_SUCCESS {
        // SAFETY: refused, so it is still ours.
        drop(unsafe { File::from_raw_fd(given) });
        return Ok(None);
    }
    Ok(Some(Semaphore { handle, file }))
}

macro_rules! semaphore {
    ($gpu:expr) => {
        match import(&$gpu)? {
            Some(semaphore) => semaphore,
            None => skip!("an eventfd is not a semaphore here"),
        }
    };
}

impl Semaphore {
    fn signal_in(&self, gpu: &Gpu, stream: CUstream) -> Outcome {
        // SAFETY: plain numbers.
        let parameters = unsafe { zeroed() };
        ok!(gpu, cuSignalExternalSemaphoresAsync(&raw const self.handle, &raw const parameters, 1, stream));
        Ok(())
    }

    fn wait_in(&self, gpu: &Gpu, stream: CUstream) -> Outcome {
        // SAFETY: plain numbers.
        let parameters = unsafe { zeroed() };
        ok!(gpu, cuWaitExternalSemaphoresAsync(&raw const self.handle, &raw const parameters, 1, stream));
        Ok(())
    }

    /// Whether it has been signalled since the last time.
    fn is_signalled(&self) -> bool {
        (&self.file).read_exact(&mut [0; 8]).is_ok()
    }

    /// The same, given the time in which it would have been mostly.
    fn is_signalled_in_a_while(&self) -> bool {
        const MILLISECONDS: i32 = 30;
        let mut file = libc::pollfd { fd: self.file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one file, which is open.
        unsafe { libc::poll(&raw mut file, 1, MILLISECONDS) > 0 }
    }

    fn signal(&self) -> Result<()> {
        Ok((&self.file).write_all(&1_u64.to_ne_bytes())?)
    }
}

fn signals_after_the_work_before(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let semaphore = semaphore!(gpu);
    let [fill] = gpu.kernels([c"fill"])?;
    let (gate, words, stream) = (gpu.gate()?, gpu.shared_words(1)?, gpu.stream(NON_BLOCKING)?);
    // Long enough to have been everywhere where it can be.
    for _ in 0..30 {
        gpu.launch(fill, 1, stream, &[&words.at(0), &0_u32, &1_u32])?;
        gpu.wait(stream)?;
    }
    for _ in 0..3 {
        gate.close();
        gpu.hold_at(&gate, stream)?;
        semaphore.signal_in(&gpu, stream)?;
        ensure!(!semaphore.is_signalled_in_a_while(), "signalled before its turn");
        gpu.is_pending(stream)?;
        gate.open();
        gpu.wait(stream)?;
        gate.was_passed()?;
        ensure!(semaphore.is_signalled(), "not signalled");
    }
    ok!(driver, cuDestroyExternalSemaphore(semaphore.handle));
    Ok(())
}

fn holds_the_work_behind(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let semaphore = semaphore!(gpu);
    let [fill] = gpu.kernels([c"fill"])?;
    let (words, stream) = (gpu.shared_words(2)?, gpu.stream(NON_BLOCKING)?);
    for round in 1..=20_u32 {
        gpu.launch(fill, 1, stream, &[&words.at(0), &round, &1_u32])?;
        semaphore.wait_in(&gpu, stream)?;
        gpu.launch(fill, 1, stream, &[&words.at(1), &round, &1_u32])?;
        gpu.is_pending(stream)?;
        ensure!(words.get(1) == round - 1, "the stream did not wait");
        semaphore.signal()?;
        gpu.wait(stream)?;
        ensure!((words.get(0), words.get(1)) == (round, round), "work is missing");
    }
    Ok(())
}

/// One stream signals, another one waits; both had work before, and may be elsewhere by now.
fn between_two_streams(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let semaphore = semaphore!(gpu);
    let [fill] = gpu.kernels([c"fill"])?;
    let (gate, words) = (gpu.gate()?, gpu.shared_words(1)?);
    let (first, second) = (gpu.stream(NON_BLOCKING)?, gpu.stream(NON_BLOCKING)?);
    for round in 1..=20_u32 {
        gate.close();
        gpu.hold_at(&gate, first)?;
        semaphore.signal_in(&gpu, first)?;
        semaphore.wait_in(&gpu, second)?;
        gpu.launch(fill, 1, second, &[&words.at(0), &round, &1_u32])?;
        gpu.is_pending(second)?;
        ensure!(words.get(0) == round - 1, "the second stream did not wait");
        gate.open();
        gpu.wait(second)?;
        gpu.wait(first)?;
        gate.was_passed()?;
        ensure!(words.get(0) == round, "work is missing");
    }
    Ok(())
}

fn is_captured(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let semaphore = semaphore!(gpu);
    let [fill] = gpu.kernels([c"fill"])?;
    let (words, stream) = (gpu.shared_words(1)?, gpu.stream(NON_BLOCKING)?);
    let mut graph = CUgraph(core::ptr::null_mut());
    let mut executable = CUgraphExec(core::ptr::null_mut());
    ok!(driver, cuStreamBeginCapture_v2(stream, Mode::CU_STREAM_CAPTURE_MODE_GLOBAL));
    gpu.launch(fill, 1, stream, &[&words.at(0), &7_u32, &1_u32])?;
    semaphore.signal_in(&gpu, stream)?;
    ok!(driver, cuStreamEndCapture(stream, &raw mut graph));
    ensure!(!semaphore.is_signalled(), "signalled by the capture");
    ok!(driver, cuGraphInstantiateWithFlags(&raw mut executable, graph, 0));
    for _ in 0..20 {
        words.set(0, 0);
        ok!(driver, cuGraphLaunch(executable, stream));
        gpu.wait(stream)?;
        ensure!(words.get(0) == 7 && semaphore.is_signalled(), "the graph did not do it");
    }
    ok!(driver, cuGraphExecDestroy(executable));
    ok!(driver, cuGraphDestroy(graph));
    Ok(())
}

fn what_is_none_is_refused(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let mut handle = CUexternalSemaphore(core::ptr::null_mut());
    let description = description(-1);
    let code = noted!(gpu, cuImportExternalSemaphore(&raw mut handle, &raw const description), "no file at all");
    ensure!(code != CUresult::CUDA_SUCCESS, "no file is taken for a semaphore");
    Ok(())
}
