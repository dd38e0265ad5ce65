"""Streams and events: order within one, across two, callbacks, the default streams, arrays on their way, other libraries' streams."""

import asyncio
import threading

import numpy as np
from numba import cuda


@cuda.jit
def scale(values, factor):
    i = cuda.grid(1)
    if i < values.size:
        values[i] *= factor


def streams_and_events():
    first, second = cuda.stream(), cuda.stream()
    begin, end = cuda.event(), cuda.event()
    values = np.ones(10_000, np.float32)
    begin.record(first)
    on_device = cuda.to_device(values, stream=first)
    scale[79, 128, first](on_device, 3)
    end.record(first)
    end.wait(second)
    scale[79, 128, second](on_device, 5)
    result = on_device.copy_to_host(stream=second)
    second.synchronize()
    assert (result == 15).all()
    assert begin.elapsed_time(end) >= 0


def pinned_arrays_in_a_stream():
    stream = cuda.stream()
    pinned = cuda.pinned_array(5000, np.float32)
    pinned[:] = np.arange(5000)
    with stream.auto_synchronize():
        on_device = cuda.to_device(pinned, stream=stream)
        scale[40, 128, stream](on_device, 2)
        on_device.copy_to_host(pinned, stream=stream)
    np.testing.assert_array_equal(pinned, np.arange(5000, dtype=np.float32) * 2)
    ordinary = np.ones(100, np.float32)
    with cuda.pinned(ordinary):
        on_device = cuda.to_device(ordinary, stream=stream)
        scale[1, 128, stream](on_device, 7)
        on_device.copy_to_host(ordinary, stream=stream)
        stream.synchronize()
    assert (ordinary == 7).all()


def default_streams():
    values = cuda.to_device(np.ones(256, np.float32))
    for stream in (cuda.default_stream(), cuda.legacy_default_stream(), cuda.per_thread_default_stream()):
        scale[2, 128, stream](values, 2)
        stream.synchronize()
    assert (values.copy_to_host() == 8).all()


def callbacks():
    stream, called = cuda.stream(), threading.Event()
    seen = []

    def note(stream, status, argument):
        seen.append((status, argument))
        called.set()

    values = cuda.to_device(np.ones(256, np.float32))
    scale[2, 128, stream](values, 3)
    stream.add_callback(note, "done")
    assert called.wait(60)
    assert seen == [(0, "done")]
    stream.synchronize()


def events_that_are_asked():
    event = cuda.event(timing=False)
    stream = cuda.stream()
    values = cuda.to_device(np.ones(256, np.float32))
    scale[2, 128, stream](values, 3)
    event.record(stream)
    event.synchronize()
    assert event.query()


async def tripled(number):
    stream = cuda.stream()
    on_device = cuda.to_device(np.full(1000, number, np.float32), stream=stream)
    scale[8, 128, stream](on_device, 3)
    assert await stream.async_done() is stream
    return on_device


def streams_that_are_awaited():
    async def several():
        return await asyncio.gather(*(tripled(number) for number in range(5)))

    for number, on_device in enumerate(asyncio.run(several())):
        assert (on_device.copy_to_host() == 3 * number).all()


def streams_of_other_libraries():
    own = cuda.stream()
    foreign = cuda.external_stream(own.handle.value)
    assert foreign.external and foreign.handle.value == own.handle.value
    values = cuda.to_device(np.ones(1000, np.float32), stream=foreign)
    scale[8, 128, foreign](values, 2)
    # One stream by two names: in order without an event between them.
    scale[8, 128, own](values, 5)
    result = values.copy_to_host(stream=foreign)
    foreign.synchronize()
    assert (result == 10).all()


PROGRAMS = [
    streams_and_events,
    pinned_arrays_in_a_stream,
    default_streams,
    callbacks,
    events_that_are_asked,
    streams_that_are_awaited,
    streams_of_other_libraries,
]
