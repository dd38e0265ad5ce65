//! Streams by themselves: making them, asking them, what becomes of their work.

use crate::Outcome;
use crate::gpu::{BLOCKING, Gpu, LEGACY, NO_CONTEXT, NO_DEVICE, NON_BLOCKING, NULL_STREAM, PER_THREAD, Shared};
use anyhow::{Result, ensure};
use core::ffi::c_int;
use core::mem::zeroed;
use core::ptr::null_mut;
use detshare_cuda::Driver;
use detshare_cuda::types::{CUgreenCtx, CUstream, CUstreamAttrID, CUstreamAttrValue, CUsynchronizationPolicy};
use std::collections::HashSet;

tests! { stream:
    work_runs_in_order,
    idle_is_done,
    launch_returns_before_the_kernel_is_over,
    flags_are_kept,
    unknown_flags_are_refused,
    default_streams_have_flags,
    priorities_are_kept_and_clamped,
    ids_are_unique,
    default_streams_have_ids,
    knows_its_context,
    knows_its_device,
    attributes_are_kept,
    attributes_are_copied,
    destroying_lets_the_work_finish,
    destroying_a_default_stream,
    many_streams_work,
    many_threads_share_a_stream,
}

fn work_runs_in_order(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [step] = gpu.kernels([c"times_three_plus_one"])?;
    for stream in [NULL_STREAM, LEGACY, PER_THREAD, gpu.stream(BLOCKING)?, gpu.stream(NON_BLOCKING)?] {
        let word = gpu.zeros(1)?;
        let mut expected = 0_u32;
        for _ in 0..100 {
            gpu.launch(step, 1, stream, &[&word])?;
            expected = expected.wrapping_mul(3).wrapping_add(1);
        }
        gpu.wait(stream)?;
        let seen = gpu.read(word, 1)?[0];
        ensure!(seen == expected, "{seen} instead of {expected} in {stream:?}");
    }
    Ok(())
}

fn idle_is_done(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    for stream in [NULL_STREAM, LEGACY, PER_THREAD, gpu.stream(BLOCKING)?, gpu.stream(NON_BLOCKING)?] {
        gpu.is_done(stream)?;
        gpu.wait(stream)?;
    }
    Ok(())
}

fn launch_returns_before_the_kernel_is_over(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let gate = gpu.gate()?;
    for stream in [NULL_STREAM, PER_THREAD, gpu.stream(BLOCKING)?, gpu.stream(NON_BLOCKING)?] {
        gate.close();
        gpu.hold_at(&gate, stream)?;
        gpu.is_pending(stream)?;
        gate.open();
        gpu.wait(stream)?;
        gpu.is_done(stream)?;
        gate.was_passed()?;
    }
    Ok(())
}

fn flags_are_kept(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    for wanted in [BLOCKING, NON_BLOCKING] {
        let stream = gpu.stream(wanted)?;
        let mut flags = u32::MAX;
        ok!(driver, cuStreamGetFlags(stream, &raw mut flags));
        ensure!(flags == wanted, "flags {wanted} became {flags}");
        ok!(driver, cuStreamDestroy_v2(stream));
    }
    Ok(())
}

fn unknown_flags_are_refused(driver: &Driver) -> Outcome {
    Gpu::new(driver)?;
    let mut stream = NULL_STREAM;
    expect!(driver, cuStreamCreate(&raw mut stream, 0x100) => CUDA_ERROR_INVALID_VALUE);
    expect!(driver, cuStreamCreateWithPriority(&raw mut stream, 0x100, 0) => CUDA_ERROR_INVALID_VALUE);
    expect!(driver, cuStreamCreate(null_mut(), 0) => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

fn default_streams_have_flags(driver: &Driver) -> Outcome {
    Gpu::new(driver)?;
    for (name, stream) in [("NULL", NULL_STREAM), ("legacy", LEGACY), ("per thread", PER_THREAD)] {
        let mut flags = u32::MAX;
        let code = noted!(driver, cuStreamGetFlags(stream, &raw mut flags), name);
        note!("{name}: {code:?}, flags {flags}");
    }
    Ok(())
}

fn priorities_are_kept_and_clamped(driver: &Driver) -> Outcome {
    Gpu::new(driver)?;
    let (mut least, mut greatest) = (0, 0);
    ok!(driver, cuCtxGetStreamPriorityRange(&raw mut least, &raw mut greatest));
    let made_with = |wanted: c_int| -> Result<c_int> {
        let (mut stream, mut priority) = (NULL_STREAM, c_int::MIN);
        ok!(driver, cuStreamCreateWithPriority(&raw mut stream, NON_BLOCKING, wanted));
        ok!(driver, cuStreamGetPriority(stream, &raw mut priority));
        ok!(driver, cuStreamDestroy_v2(stream));
        Ok(priority)
    };
    for wanted in greatest..=least {
        let priority = made_with(wanted)?;
        ensure!(priority == wanted, "priority {wanted} became {priority}");
    }
    let (above, below) = (made_with(greatest - 10)?, made_with(least + 10)?);
    ensure!((above, below) == (greatest, least), "clamped to {above} and {below} instead of {greatest} and {least}");
    let mut priority = c_int::MIN;
    ok!(driver, cuStreamGetPriority(NULL_STREAM, &raw mut priority));
    ensure!(priority == 0, "the default stream has priority {priority}");
    Ok(())
}

fn id(driver: &Driver, stream: CUstream) -> Result<u64> {
    let mut id = 0;
    ok!(driver, cuStreamGetId(stream, &raw mut id));
    Ok(id)
}

fn ids_are_unique(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let streams: Vec<_> = (0..20).map(|_| gpu.stream(NON_BLOCKING)).collect::<Result<_>>()?;
    let ids: HashSet<_> = streams.iter().map(|stream| id(driver, *stream)).collect::<Result<_>>()?;
    ensure!(ids.len() == streams.len(), "{} streams have {} ids", streams.len(), ids.len());
    ensure!(id(driver, streams[0])? == id(driver, streams[0])?, "an id has changed");
    Ok(())
}

fn default_streams_have_ids(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let own = id(driver, gpu.stream(BLOCKING)?)?;
    let (null, legacy, per_thread) = (id(driver, NULL_STREAM)?, id(driver, LEGACY)?, id(driver, PER_THREAD)?);
    ensure!(null == legacy, "NULL is {null} and the legacy stream {legacy}");
    ensure!(legacy != per_thread && legacy != own && per_thread != own, "{legacy}, {per_thread}, {own}");
    let mut by_variant = 0;
    ok!(driver, cuStreamGetId_ptsz(NULL_STREAM, &raw mut by_variant));
    ensure!(by_variant == per_thread, "for _ptsz functions NULL is {by_variant} instead of {per_thread}");
    note!("legacy {legacy}, per thread {per_thread}, first own {own}");
    Ok(())
}

fn knows_its_context(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let own = gpu.stream(BLOCKING)?;
    for stream in [own, NULL_STREAM, LEGACY, PER_THREAD] {
        let mut context = NO_CONTEXT;
        ok!(driver, cuStreamGetCtx(stream, &raw mut context));
        ensure!(context == gpu.context, "the context of {stream:?} is another");
    }
    let (mut context, mut green) = (NO_CONTEXT, CUgreenCtx(core::ptr::dangling_mut()));
    ok!(driver, cuStreamGetCtx_v2(own, &raw mut context, &raw mut green));
    ensure!(context == gpu.context && green.0.is_null(), "{context:?} and {green:?}");
    Ok(())
}

fn knows_its_device(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    for stream in [gpu.stream(BLOCKING)?, NULL_STREAM, LEGACY, PER_THREAD] {
        let mut device = NO_DEVICE;
        ok!(driver, cuStreamGetDevice(stream, &raw mut device));
        ensure!(device == gpu.device, "the device of {stream:?} is {device:?}");
    }
    Ok(())
}

fn policy_of(driver: &Driver, stream: CUstream) -> Result<CUsynchronizationPolicy> {
    // SAFETY: a union of plain values.
    let mut value: CUstreamAttrValue = unsafe { zeroed() };
    let attribute = CUstreamAttrID::CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY;
    ok!(driver, cuStreamGetAttribute(stream, attribute, &raw mut value));
    // SAFETY: the driver wrote the value of this attribute, and every pattern is one.
    Ok(unsafe { value.syncPolicy })
}

fn set_policy(driver: &Driver, stream: CUstream, policy: CUsynchronizationPolicy) -> Result<()> {
    // SAFETY: a union of plain values.
    let mut value: CUstreamAttrValue = unsafe { zeroed() };
    value.syncPolicy = policy;
    let attribute = CUstreamAttrID::CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY;
    ok!(driver, cuStreamSetAttribute(stream, attribute, &raw const value));
    Ok(())
}

fn attributes_are_kept(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let stream = gpu.stream(BLOCKING)?;
    note!("{:?} at first", policy_of(driver, stream)?);
    let policies = [
        CUsynchronizationPolicy::CU_SYNC_POLICY_SPIN,
        CUsynchronizationPolicy::CU_SYNC_POLICY_YIELD,
        CUsynchronizationPolicy::CU_SYNC_POLICY_BLOCKING_SYNC,
    ];
    for policy in policies {
        set_policy(driver, stream, policy)?;
        let seen = policy_of(driver, stream)?;
        ensure!(seen == policy, "{policy:?} became {seen:?}");
    }
    Ok(())
}

fn attributes_are_copied(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (from, to) = (gpu.stream(BLOCKING)?, gpu.stream(BLOCKING)?);
    let policy = CUsynchronizationPolicy::CU_SYNC_POLICY_BLOCKING_SYNC;
    set_policy(driver, from, policy)?;
    ok!(driver, cuStreamCopyAttributes(to, from));
    let seen = policy_of(driver, to)?;
    ensure!(seen == policy, "{policy:?} was copied as {seen:?}");
    Ok(())
}

fn destroying_lets_the_work_finish(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let gate = gpu.gate()?;
    let [fill] = gpu.kernels([c"fill"])?;
    let seen = gpu.shared_words(1)?;
    let stream = gpu.stream(NON_BLOCKING)?;
    gpu.hold_at(&gate, stream)?;
    gpu.launch(fill, 1, stream, &[&seen.at(0), &3_u32, &1_u32])?;
    ok!(driver, cuStreamDestroy_v2(stream));
    ensure!(seen.get(0) == 0, "the work ran before its turn");
    gate.open();
    gpu.synchronise()?;
    gate.was_passed()?;
    ensure!(seen.get(0) == 3, "the work of a destroyed stream is missing");
    Ok(())
}

fn destroying_a_default_stream(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    for (name, stream) in [("NULL", NULL_STREAM), ("legacy", LEGACY), ("per thread", PER_THREAD)] {
        noted!(driver, cuStreamDestroy_v2(stream), name);
    }
    gpu.synchronise()
}

fn many_streams_work(driver: &Driver) -> Outcome {
    const STREAMS: usize = 200;
    let gpu = Gpu::new(driver)?;
    let [add] = gpu.kernels([c"add"])?;
    let words = gpu.zeros(STREAMS)?;
    let streams: Vec<_> = (0..STREAMS).map(|_| gpu.stream(NON_BLOCKING)).collect::<Result<_>>()?;
    for _ in 0..3 {
        for (index, stream) in streams.iter().enumerate() {
            gpu.launch(add, 1, *stream, &[&crate::gpu::offset(words, 4 * index), &5_u32, &1_u32])?;
        }
    }
    for stream in streams {
        gpu.wait(stream)?;
        ok!(driver, cuStreamDestroy_v2(stream));
    }
    ensure!(gpu.read(words, STREAMS)? == [15; STREAMS], "a stream has lost work");
    Ok(())
}

fn many_threads_share_a_stream(driver: &Driver) -> Outcome {
    const THREADS: u32 = 8;
    const LAUNCHES: u32 = 200;
    let gpu = Gpu::new(driver)?;
    let word = gpu.zeros(1)?;
    let stream = Shared::new(gpu.stream(NON_BLOCKING)?);
    std::thread::scope(|scope| {
        let launcher = move || -> Outcome {
            let gpu = Gpu::new(driver)?;
            let [increment] = gpu.kernels([c"increment"])?;
            (0..LAUNCHES).try_for_each(|_| gpu.launch(increment, 32, stream.get(), &[&word]))
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(launcher)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    gpu.wait(stream.get())?;
    let seen = gpu.read(word, 1)?[0];
    ensure!(seen == THREADS * LAUNCHES * 32, "{seen} increments");
    Ok(())
}
