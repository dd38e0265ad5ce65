//! Events: completion, time between two, order between streams.

use crate::Outcome;
use crate::gpu::{BLOCKING, Gpu, NON_BLOCKING, NULL_STREAM};
use anyhow::{Result, ensure};
use core::ptr::null_mut;
use detshare_cuda::Driver;
use detshare_cuda::types::{CUevent, CUevent_flags, CUevent_record_flags, CUresult};

tests! { event:
    never_recorded_is_done,
    is_done_when_the_stream_gets_there,
    synchronise_waits_for_the_work_before,
    covers_only_the_work_before,
    recording_again_moves_it,
    waiting_for_one_never_recorded_is_nothing,
    wait_takes_the_record_at_the_call,
    orders_a_chain_of_streams,
    one_event_releases_many_streams,
    default_stream_can_record,
    elapsed_time_is_not_negative,
    elapsed_time_is_zero_with_itself,
    elapsed_time_needs_timing,
    elapsed_time_needs_records,
    elapsed_time_needs_completion,
    flags_are_taken,
    unknown_flags_are_refused,
    record_flags_are_taken,
    can_be_destroyed_while_pending,
    query_does_not_see_later_streams,
}

const TIMED: u32 = CUevent_flags::CU_EVENT_DEFAULT.0;

fn elapsed(driver: &Driver, start: CUevent, end: CUevent) -> Result<f32> {
    let mut milliseconds = f32::NAN;
    ok!(driver, cuEventElapsedTime(&raw mut milliseconds, start, end));
    Ok(milliseconds)
}

fn never_recorded_is_done(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    for event in [gpu.event()?, gpu.event_with(TIMED)?] {
        ok!(driver, cuEventQuery(event));
        ok!(driver, cuEventSynchronize(event));
        ok!(driver, cuEventDestroy_v2(event));
    }
    Ok(())
}

fn is_done_when_the_stream_gets_there(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (gate, stream, event) = (gpu.gate()?, gpu.stream(NON_BLOCKING)?, gpu.event()?);
    gpu.hold_at(&gate, stream)?;
    ok!(driver, cuEventRecord(event, stream));
    expect!(driver, cuEventQuery(event) => CUDA_ERROR_NOT_READY);
    gate.open();
    ok!(driver, cuEventSynchronize(event));
    gate.was_passed()?;
    ok!(driver, cuEventQuery(event));
    Ok(())
}

fn synchronise_waits_for_the_work_before(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [delay] = gpu.kernels([c"delay"])?;
    let seen = gpu.shared_words(1)?;
    let stream = gpu.stream(NON_BLOCKING)?;
    for flags in [TIMED, CUevent_flags::CU_EVENT_BLOCKING_SYNC.0, CUevent_flags::CU_EVENT_DISABLE_TIMING.0] {
        seen.set(0, 0);
        let event = gpu.event_with(flags)?;
        gpu.launch(delay, 1, stream, &[&seen.at(0), &1_u32, &1_000_000_u32])?;
        ok!(driver, cuEventRecord(event, stream));
        ok!(driver, cuEventSynchronize(event));
        ensure!(seen.get(0) == 1, "an event with flags {flags} was done before the work");
    }
    Ok(())
}

fn covers_only_the_work_before(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill] = gpu.kernels([c"fill"])?;
    let (gate, stream, event) = (gpu.gate()?, gpu.stream(NON_BLOCKING)?, gpu.event()?);
    let seen = gpu.shared_words(1)?;
    gpu.launch(fill, 1, stream, &[&seen.at(0), &1_u32, &1_u32])?;
    ok!(driver, cuEventRecord(event, stream));
    gpu.hold_at(&gate, stream)?;
    ok!(driver, cuEventSynchronize(event));
    ensure!(seen.get(0) == 1, "the work before is missing");
    gpu.is_pending(stream)?;
    gate.open();
    gpu.wait(stream)?;
    gate.was_passed()
}

fn recording_again_moves_it(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (gate, stream, event) = (gpu.gate()?, gpu.stream(NON_BLOCKING)?, gpu.event()?);
    ok!(driver, cuEventRecord(event, stream));
    ok!(driver, cuEventSynchronize(event));
    gpu.hold_at(&gate, stream)?;
    ok!(driver, cuEventQuery(event));
    ok!(driver, cuEventRecord(event, stream));
    expect!(driver, cuEventQuery(event) => CUDA_ERROR_NOT_READY);
    gate.open();
    ok!(driver, cuEventSynchronize(event));
    gate.was_passed()
}

fn waiting_for_one_never_recorded_is_nothing(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (stream, event) = (gpu.stream(NON_BLOCKING)?, gpu.event()?);
    ok!(driver, cuStreamWaitEvent(stream, event, 0));
    gpu.wait(stream)
}

fn wait_takes_the_record_at_the_call(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (gate, event) = (gpu.gate()?, gpu.event()?);
    let (idle, held, waiting) = (gpu.stream(NON_BLOCKING)?, gpu.stream(NON_BLOCKING)?, gpu.stream(NON_BLOCKING)?);
    ok!(driver, cuEventRecord(event, idle));
    ok!(driver, cuStreamWaitEvent(waiting, event, 0));
    gpu.hold_at(&gate, held)?;
    ok!(driver, cuEventRecord(event, held));
    gpu.wait(waiting)?;
    gpu.is_pending(held)?;
    gate.open();
    gpu.wait(held)?;
    gate.was_passed()
}

fn orders_a_chain_of_streams(driver: &Driver) -> Outcome {
    const STREAMS: usize = 6;
    let gpu = Gpu::new(driver)?;
    let [step] = gpu.kernels([c"times_three_plus_one"])?;
    let word = gpu.zeros(1)?;
    let streams: Vec<_> = (0..STREAMS).map(|_| gpu.stream(NON_BLOCKING)).collect::<Result<_>>()?;
    let event = gpu.event()?;
    let mut expected = 0_u32;
    for turn in 0..100 {
        let (from, to) = (streams[turn % STREAMS], streams[(turn + 1) % STREAMS]);
        gpu.launch(step, 1, from, &[&word])?;
        ok!(driver, cuEventRecord(event, from));
        ok!(driver, cuStreamWaitEvent(to, event, 0));
        expected = expected.wrapping_mul(3).wrapping_add(1);
    }
    gpu.synchronise()?;
    let seen = gpu.read(word, 1)?[0];
    ensure!(seen == expected, "{seen} instead of {expected}");
    Ok(())
}

fn one_event_releases_many_streams(driver: &Driver) -> Outcome {
    const STREAMS: usize = 3;
    let gpu = Gpu::new(driver)?;
    let [fill] = gpu.kernels([c"fill"])?;
    let (gate, held, event) = (gpu.gate()?, gpu.stream(NON_BLOCKING)?, gpu.event()?);
    let seen = gpu.shared_words(STREAMS)?;
    let streams: Vec<_> = (0..STREAMS).map(|_| gpu.stream(NON_BLOCKING)).collect::<Result<_>>()?;
    gpu.hold_at(&gate, held)?;
    ok!(driver, cuEventRecord(event, held));
    for (index, stream) in streams.iter().enumerate() {
        ok!(driver, cuStreamWaitEvent(*stream, event, 0));
        gpu.launch(fill, 1, *stream, &[&seen.at(index), &1_u32, &1_u32])?;
    }
    for (index, stream) in streams.iter().enumerate() {
        gpu.is_pending(*stream)?;
        ensure!(seen.get(index) == 0, "stream {index} did not wait");
    }
    gate.open();
    for (index, stream) in streams.iter().enumerate() {
        gpu.wait(*stream)?;
        ensure!(seen.get(index) == 1, "the work of stream {index} is missing");
    }
    gate.was_passed()
}

fn default_stream_can_record(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (gate, blocking, event) = (gpu.gate()?, gpu.stream(BLOCKING)?, gpu.event()?);
    gpu.hold_at(&gate, blocking)?;
    ok!(driver, cuEventRecord(event, NULL_STREAM));
    expect!(driver, cuEventQuery(event) => CUDA_ERROR_NOT_READY);
    gate.open();
    ok!(driver, cuEventSynchronize(event));
    gate.was_passed()
}

fn elapsed_time_is_not_negative(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [delay] = gpu.kernels([c"delay"])?;
    let (word, stream) = (gpu.zeros(1)?, gpu.stream(NON_BLOCKING)?);
    let (start, middle, end) = (gpu.event_with(TIMED)?, gpu.event_with(TIMED)?, gpu.event_with(TIMED)?);
    ok!(driver, cuEventRecord(start, stream));
    gpu.launch(delay, 1, stream, &[&word, &1_u32, &100_000_u32])?;
    ok!(driver, cuEventRecord(middle, stream));
    gpu.launch(delay, 1, stream, &[&word, &1_u32, &100_000_u32])?;
    ok!(driver, cuEventRecord(end, stream));
    gpu.wait(stream)?;
    let (half, whole) = (elapsed(driver, start, middle)?, elapsed(driver, start, end)?);
    ensure!(half > 0.0 && whole >= half, "{half} ms to the middle, {whole} ms to the end");
    let mut by_newer = f32::NAN;
    ok!(driver, cuEventElapsedTime_v2(&raw mut by_newer, start, end));
    ensure!(by_newer > 0.0, "{by_newer} ms by the newer function, {whole} ms by the older");
    Ok(())
}

fn elapsed_time_is_zero_with_itself(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let event = gpu.event_with(TIMED)?;
    ok!(driver, cuEventRecord(event, NULL_STREAM));
    ok!(driver, cuEventSynchronize(event));
    let time = elapsed(driver, event, event)?;
    ensure!(time == 0.0, "{time} ms");
    Ok(())
}

fn elapsed_time_needs_timing(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (timed, untimed) = (gpu.event_with(TIMED)?, gpu.event()?);
    for event in [timed, untimed] {
        ok!(driver, cuEventRecord(event, NULL_STREAM));
        ok!(driver, cuEventSynchronize(event));
    }
    let mut time = 0.0;
    expect!(driver, cuEventElapsedTime(&raw mut time, timed, untimed) => CUDA_ERROR_INVALID_HANDLE);
    expect!(driver, cuEventElapsedTime(&raw mut time, untimed, timed) => CUDA_ERROR_INVALID_HANDLE);
    expect!(driver, cuEventElapsedTime_v2(&raw mut time, untimed, untimed) => CUDA_ERROR_INVALID_HANDLE);
    Ok(())
}

fn elapsed_time_needs_records(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (recorded, never) = (gpu.event_with(TIMED)?, gpu.event_with(TIMED)?);
    ok!(driver, cuEventRecord(recorded, NULL_STREAM));
    ok!(driver, cuEventSynchronize(recorded));
    let mut time = 0.0;
    expect!(driver, cuEventElapsedTime(&raw mut time, recorded, never) => CUDA_ERROR_INVALID_HANDLE);
    expect!(driver, cuEventElapsedTime(&raw mut time, never, recorded) => CUDA_ERROR_INVALID_HANDLE);
    Ok(())
}

fn elapsed_time_needs_completion(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (gate, stream) = (gpu.gate()?, gpu.stream(NON_BLOCKING)?);
    let (start, end) = (gpu.event_with(TIMED)?, gpu.event_with(TIMED)?);
    ok!(driver, cuEventRecord(start, stream));
    gpu.hold_at(&gate, stream)?;
    ok!(driver, cuEventRecord(end, stream));
    let mut time = 0.0;
    expect!(driver, cuEventElapsedTime(&raw mut time, start, end) => CUDA_ERROR_NOT_READY);
    gate.open();
    gpu.wait(stream)?;
    gate.was_passed()?;
    ensure!(elapsed(driver, start, end)? >= 0.0, "time runs backwards");
    Ok(())
}

fn flags_are_taken(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (blocking, untimed) = (CUevent_flags::CU_EVENT_BLOCKING_SYNC.0, CUevent_flags::CU_EVENT_DISABLE_TIMING.0);
    for flags in [0, blocking, untimed, blocking | untimed] {
        let event = gpu.event_with(flags)?;
        ok!(driver, cuEventRecord(event, NULL_STREAM));
        ok!(driver, cuEventSynchronize(event));
        ok!(driver, cuEventDestroy_v2(event));
    }
    Ok(())
}

fn unknown_flags_are_refused(driver: &Driver) -> Outcome {
    Gpu::new(driver)?;
    let mut event = CUevent(null_mut());
    expect!(driver, cuEventCreate(&raw mut event, 0x100) => CUDA_ERROR_INVALID_VALUE);
    expect!(driver, cuEventCreate(null_mut(), 0) => CUDA_ERROR_INVALID_VALUE);
    let between_processes = CUevent_flags::CU_EVENT_INTERPROCESS.0;
    let code = noted!(driver, cuEventCreate(&raw mut event, between_processes), "between processes, with timing");
    ensure!(code != CUresult::CUDA_SUCCESS, "an event between processes that times");
    Ok(())
}

fn record_flags_are_taken(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (gate, stream, event) = (gpu.gate()?, gpu.stream(NON_BLOCKING)?, gpu.event()?);
    gpu.hold_at(&gate, stream)?;
    ok!(driver, cuEventRecordWithFlags(event, stream, CUevent_record_flags::CU_EVENT_RECORD_DEFAULT.0));
    expect!(driver, cuEventQuery(event) => CUDA_ERROR_NOT_READY);
    gate.open();
    ok!(driver, cuEventSynchronize(event));
    gate.was_passed()?;
    let external = CUevent_record_flags::CU_EVENT_RECORD_EXTERNAL.0;
    noted!(driver, cuEventRecordWithFlags(event, stream, external), "external, outside a capture");
    expect!(driver, cuEventRecordWithFlags(event, stream, 0x100) => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

fn can_be_destroyed_while_pending(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill] = gpu.kernels([c"fill"])?;
    let (gate, event, seen) = (gpu.gate()?, gpu.event()?, gpu.shared_words(1)?);
    let (held, waiting) = (gpu.stream(NON_BLOCKING)?, gpu.stream(NON_BLOCKING)?);
    gpu.hold_at(&gate, held)?;
    ok!(driver, cuEventRecord(event, held));
    ok!(driver, cuStreamWaitEvent(waiting, event, 0));
    gpu.launch(fill, 1, waiting, &[&seen.at(0), &1_u32, &1_u32])?;
    ok!(driver, cuEventDestroy_v2(event));
    gpu.is_pending(waiting)?;
    ensure!(seen.get(0) == 0, "destroying the event released the stream");
    gate.open();
    gpu.wait(waiting)?;
    gate.was_passed()?;
    ensure!(seen.get(0) == 1, "the work is missing");
    Ok(())
}

fn query_does_not_see_later_streams(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (gate, event) = (gpu.gate()?, gpu.event()?);
    let (idle, held) = (gpu.stream(NON_BLOCKING)?, gpu.stream(NON_BLOCKING)?);
    gpu.hold_at(&gate, held)?;
    ok!(driver, cuEventRecord(event, idle));
    ok!(driver, cuEventSynchronize(event));
    gpu.is_pending(held)?;
    gate.open();
    gpu.wait(held)?;
    gate.was_passed()
}
