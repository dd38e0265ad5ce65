//! Which stream waits for which. A kernel that waits for the host holds one stream; what another does meanwhile
//! shows whether it is ordered behind.

use crate::Outcome;
use crate::gpu::{BLOCKING, Gate, Gpu, LEGACY, NON_BLOCKING, NULL_STREAM, PER_THREAD, Shared, SharedWords};
use anyhow::{Result, ensure};
use core::ptr::null_mut;
use detshare_cuda::Driver;
use detshare_cuda::types::{CUfunction, CUstream};

tests! { stream_order:
    legacy_waits_for_blocking,
    blocking_waits_for_legacy,
    legacy_handle_is_the_null_stream,
    legacy_looks_at_blocking_work,
    legacy_ignores_non_blocking,
    non_blocking_ignores_legacy,
    own_streams_are_independent,
    blocking_streams_are_independent,
    per_thread_waits_for_legacy,
    legacy_waits_for_per_thread,
    per_thread_variants_mean_the_thread_by_null,
    per_thread_streams_of_two_threads_are_independent,
    legacy_sits_between_blocking_streams,
    wait_event_orders_two_streams,
    synchronous_copy_waits_for_legacy_work,
    synchronous_copy_waits_for_blocking_work,
    per_thread_copy_waits_for_the_threads_work,
    free_waits_for_work,
}

/// Long enough that a wait that was forgotten shows.
const LONG: u32 = 2_000_000;

/// Everything is loaded and allocated before a stream is held.
struct Order<'d> {
    gpu: Gpu<'d>,
    gate: Gate,
    fill: CUfunction,
    seen: SharedWords,
}

impl<'d> Order<'d> {
    fn new(driver: &'d Driver) -> Result<Self> {
        let gpu = Gpu::new(driver)?;
        let [fill] = gpu.kernels([c"fill"])?;
        let (gate, seen) = (gpu.gate()?, gpu.shared_words(1)?);
        Ok(Self { gpu, gate, fill, seen })
    }

    fn fill(&self, stream: CUstream) -> Result<()> {
        self.gpu.launch(self.fill, 1, stream, &[&self.seen.at(0), &1_u32, &1_u32])
    }

    /// Work on `second` starts after that on `first`, which was there before.
    fn is_ordered(&self, first: CUstream, second: CUstream) -> Outcome {
        self.gate.close();
        self.seen.set(0, 0);
        self.gpu.hold_at(&self.gate, first)?;
        self.fill(second)?;
        self.gpu.is_pending(first)?;
        self.gpu.is_pending(second)?;
        ensure!(self.seen.get(0) == 0, "the second stream did not wait");
        self.gate.open();
        self.gpu.wait(second)?;
        self.gate.was_passed()?;
        self.gpu.is_done(first)?;
        ensure!(self.seen.get(0) == 1, "the second stream's work is missing");
        Ok(())
    }

    /// Work on `second` ends while `first` is still held.
    fn is_independent(&self, first: CUstream, second: CUstream) -> Outcome {
        self.gate.close();
        self.seen.set(0, 0);
        self.gpu.hold_at(&self.gate, first)?;
        self.fill(second)?;
        self.gpu.wait(second)?;
        ensure!(self.seen.get(0) == 1, "the second stream's work is missing");
        self.gpu.is_pending(first)?;
        self.gate.open();
        self.gpu.wait(first)?;
        self.gate.was_passed()
    }
}

fn legacy_waits_for_blocking(driver: &Driver) -> Outcome {
    let order = Order::new(driver)?;
    order.is_ordered(order.gpu.stream(BLOCKING)?, NULL_STREAM)
}

fn blocking_waits_for_legacy(driver: &Driver) -> Outcome {
    let order = Order::new(driver)?;
    order.is_ordered(NULL_STREAM, order.gpu.stream(BLOCKING)?)
}

fn legacy_handle_is_the_null_stream(driver: &Driver) -> Outcome {
    let order = Order::new(driver)?;
    let blocking = order.gpu.stream(BLOCKING)?;
    order.is_ordered(LEGACY, NULL_STREAM)?;
    order.is_ordered(NULL_STREAM, LEGACY)?;
    order.is_ordered(LEGACY, blocking)?;
    order.is_ordered(blocking, LEGACY)
}

/// Asking the legacy stream, or waiting for it, with nothing in it but work in a blocking stream.
fn legacy_looks_at_blocking_work(driver: &Driver) -> Outcome {
    let order = Order::new(driver)?;
    let blocking = order.gpu.stream(BLOCKING)?;
    order.gate.close();
    order.gpu.hold_at(&order.gate, blocking)?;
    expect!(driver, cuStreamQuery(NULL_STREAM) => CUDA_ERROR_NOT_READY);
    expect!(driver, cuStreamQuery(LEGACY) => CUDA_ERROR_NOT_READY);
    order.gate.open();
    ok!(driver, cuStreamSynchronize(NULL_STREAM));
    order.gate.was_passed()?;
    order.gpu.is_done(blocking)
}

fn legacy_ignores_non_blocking(driver: &Driver) -> Outcome {
    let order = Order::new(driver)?;
    order.is_independent(order.gpu.stream(NON_BLOCKING)?, NULL_STREAM)
}

fn non_blocking_ignores_legacy(driver: &Driver) -> Outcome {
    let order = Order::new(driver)?;
    order.is_independent(NULL_STREAM, order.gpu.stream(NON_BLOCKING)?)
}

fn own_streams_are_independent(driver: &Driver) -> Outcome {
    let order = Order::new(driver)?;
    let (first, second) = (order.gpu.stream(NON_BLOCKING)?, order.gpu.stream(NON_BLOCKING)?);
    order.is_independent(first, second)?;
    order.is_independent(second, first)
}

fn blocking_streams_are_independent(driver: &Driver) -> Outcome {
    let order = Order::new(driver)?;
    order.is_independent(order.gpu.stream(BLOCKING)?, order.gpu.stream(BLOCKING)?)
}

fn per_thread_waits_for_legacy(driver: &Driver) -> Outcome {
    Order::new(driver)?.is_ordered(LEGACY, PER_THREAD)
}

fn legacy_waits_for_per_thread(driver: &Driver) -> Outcome {
    Order::new(driver)?.is_ordered(PER_THREAD, LEGACY)
}

fn per_thread_variants_mean_the_thread_by_null(driver: &Driver) -> Outcome {
    let order = Order::new(driver)?;
    let blocking = order.gpu.stream(BLOCKING)?;
    let (flag, out, passed) = order.gate.arguments();
    let mut addresses = crate::gpu::addresses(&[&flag, &out, &passed]);
    let (kernel, pointers) = (order.gate.kernel(), addresses.as_mut_ptr());
    ok!(driver, cuLaunchKernel_ptsz(kernel, 1, 1, 1, 1, 1, 1, 0, NULL_STREAM, pointers, null_mut()));
    order.gpu.is_pending(PER_THREAD)?;
    expect!(driver, cuStreamQuery_ptsz(NULL_STREAM) => CUDA_ERROR_NOT_READY);
    // Another blocking stream shows that it was not the legacy one.
    order.fill(blocking)?;
    order.gpu.wait(blocking)?;
    expect!(driver, cuStreamQuery_ptsz(NULL_STREAM) => CUDA_ERROR_NOT_READY);
    order.gate.open();
    ok!(driver, cuStreamSynchronize_ptsz(NULL_STREAM));
    order.gate.was_passed()?;
    order.gpu.is_done(PER_THREAD)
}

fn per_thread_streams_of_two_threads_are_independent(driver: &Driver) -> Outcome {
    let order = Order::new(driver)?;
    let (seen, fill) = (order.seen, Shared::new(order.fill));
    order.gpu.hold_at(&order.gate, PER_THREAD)?;
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || -> Outcome {
            let gpu = Gpu::new(driver)?;
            gpu.is_done(PER_THREAD)?;
            gpu.launch(fill.get(), 1, PER_THREAD, &[&seen.at(0), &1_u32, &1_u32])?;
            gpu.wait(PER_THREAD)
        });
        thread.join().expect("no panic")
    })?;
    ensure!(seen.get(0) == 1, "the other thread's work is missing");
    order.gpu.is_pending(PER_THREAD)?;
    order.gate.open();
    order.gpu.wait(PER_THREAD)?;
    order.gate.was_passed()
}

fn legacy_sits_between_blocking_streams(driver: &Driver) -> Outcome {
    let order = Order::new(driver)?;
    let [add] = order.gpu.kernels([c"add"])?;
    let (first, third) = (order.gpu.stream(BLOCKING)?, order.gpu.stream(BLOCKING)?);
    order.gpu.hold_at(&order.gate, first)?;
    order.fill(NULL_STREAM)?;
    order.gpu.launch(add, 1, third, &[&order.seen.at(0), &10_u32, &1_u32])?;
    order.gpu.is_pending(third)?;
    ensure!(order.seen.get(0) == 0, "nothing waited for the first stream");
    order.gate.open();
    order.gpu.wait(third)?;
    order.gate.was_passed()?;
    ensure!(order.seen.get(0) == 11, "{} instead of 11", order.seen.get(0));
    Ok(())
}

fn wait_event_orders_two_streams(driver: &Driver) -> Outcome {
    let order = Order::new(driver)?;
    let gpu = &order.gpu;
    let (first, second, event) = (gpu.stream(NON_BLOCKING)?, gpu.stream(NON_BLOCKING)?, gpu.event()?);
    gpu.hold_at(&order.gate, first)?;
    ok!(driver, cuEventRecord(event, first));
    ok!(driver, cuStreamWaitEvent(second, event, 0));
    order.fill(second)?;
    gpu.is_pending(second)?;
    ensure!(order.seen.get(0) == 0, "the second stream did not wait");
    order.gate.open();
    gpu.wait(second)?;
    order.gate.was_passed()?;
    ensure!(order.seen.get(0) == 1, "the second stream's work is missing");
    Ok(())
}

/// A synchronous copy in the default stream sees what was launched before into that stream.
fn copy_sees(driver: &Driver, stream: CUstream) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [delay] = gpu.kernels([c"delay"])?;
    let word = gpu.zeros(1)?;
    gpu.launch(delay, 1, stream, &[&word, &8_u32, &LONG])?;
    ensure!(gpu.read(word, 1)? == [8], "the copy did not wait");
    Ok(())
}

fn synchronous_copy_waits_for_legacy_work(driver: &Driver) -> Outcome {
    copy_sees(driver, NULL_STREAM)
}

fn synchronous_copy_waits_for_blocking_work(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    copy_sees(driver, gpu.stream(BLOCKING)?)
}

fn per_thread_copy_waits_for_the_threads_work(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [delay] = gpu.kernels([c"delay"])?;
    let word = gpu.zeros(1)?;
    gpu.launch(delay, 1, PER_THREAD, &[&word, &8_u32, &LONG])?;
    let mut seen = 0_u32;
    ok!(driver, cuMemcpyDtoH_v2_ptds((&raw mut seen).cast(), word, 4));
    ensure!(seen == 8, "the copy did not wait");
    Ok(())
}

fn free_waits_for_work(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [delay] = gpu.kernels([c"delay"])?;
    let seen = gpu.shared_words(1)?;
    let (freed, stream) = (gpu.alloc(64)?, gpu.stream(NON_BLOCKING)?);
    gpu.launch(delay, 1, stream, &[&seen.at(0), &8_u32, &LONG])?;
    ok!(driver, cuMemFree_v2(freed));
    note!("after cuMemFree the work of another stream is {}", if seen.get(0) == 8 { "over" } else { "pending" });
    gpu.wait(stream)?;
    ensure!(seen.get(0) == 8, "the work is missing");
    Ok(())
}
