"""What a program can see and share: the array interface, inspection of kernels, devices, contexts, overloads."""

import numpy as np
from numba import cuda, int32
from numba.core import types
from numba.core.extending import overload
from numba.cuda.extending import intrinsic


@cuda.jit
def add_one(values):
    i = cuda.grid(1)
    if i < values.size:
        values[i] += 1


class Foreign:
    """Memory of some other library that tells of it by the array interface alone."""

    def __init__(self, array):
        self.array = array
        self.__cuda_array_interface__ = array.__cuda_array_interface__


def array_interface():
    device = cuda.to_device(np.arange(64, dtype=np.int32))
    view = cuda.as_cuda_array(Foreign(device))
    add_one[1, 64](view)
    add_one[1, 64](Foreign(device))
    np.testing.assert_array_equal(device.copy_to_host(), np.arange(64) + 2)
    interface = device.__cuda_array_interface__
    assert interface["shape"] == (64,) and interface["typestr"] == "<i4" and interface["version"] == 3
    assert cuda.is_cuda_array(Foreign(device)) and not cuda.is_cuda_array(np.zeros(3))


def described_memory():
    """Memory by its description alone: a view of every second number, written in a stream that the description names."""
    stream = cuda.stream()
    device = cuda.to_device(np.arange(64, dtype=np.int32), stream=stream)
    description = dict(device.__cuda_array_interface__, shape=(32,), strides=(8,), stream=stream.handle.value)
    for sync in (True, False):
        view = cuda.from_cuda_array_interface(description, owner=device, sync=sync)
        assert view.shape == (32,) and view.stream.handle.value == stream.handle.value
        add_one[1, 32, stream](view)
    expected = np.arange(64)
    expected[::2] += 2
    np.testing.assert_array_equal(device.copy_to_host(stream=stream), expected)
    # Read-only memory and none at all can be described, too.
    nothing = cuda.from_cuda_array_interface({"shape": (0,), "typestr": "<f4", "data": (0, True), "version": 3})
    assert nothing.copy_to_host().size == 0


def profiled_regions():
    values = cuda.to_device(np.zeros(8, np.int32))
    cuda.profile_start()
    add_one[1, 8](values)
    cuda.profile_stop()
    with cuda.profiling():
        add_one[1, 8](values)
    # Nor need there be one to stop.
    cuda.profile_stop()
    assert values.copy_to_host().tolist() == [2] * 8


def inspection():
    kernel = cuda.jit(add_one.py_func)
    kernel[1, 8](np.zeros(8, np.int32))
    (signature,) = kernel.signatures
    assert ".entry" in kernel.inspect_asm()[signature] and "define" in kernel.inspect_llvm()[signature]
    assert kernel.get_regs_per_thread()[signature] > 0
    assert kernel.get_shared_mem_per_block()[signature] == 0
    assert kernel.get_max_threads_per_block()[signature] >= 32
    assert kernel.get_const_mem_size()[signature] >= 0
    assert kernel.get_local_mem_per_thread()[signature] >= 0
    ptx, _ = cuda.compile_ptx(lambda a, b: a + b, (types.int32, types.int32), device=True)
    assert ".visible .func" in ptx


def devices_and_contexts():
    assert cuda.is_available() and len(cuda.gpus) >= 1
    device = cuda.get_current_device()
    assert device.compute_capability >= (5, 0) and device.WARP_SIZE == 32
    assert device.MAX_THREADS_PER_BLOCK == 1024 and device.MULTIPROCESSOR_COUNT > 0
    assert len(device.name) > 0 and device.uuid.startswith("GPU-")
    with cuda.gpus[0]:
        values = cuda.to_device(np.zeros(4, np.int32))
        add_one[1, 4](values)
        assert values.copy_to_host().tolist() == [1, 1, 1, 1]
    assert cuda.current_context().device.id == 0


def halved(x):
    raise NotImplementedError("only in kernels")


@overload(halved, target="cuda")
def halved_on_the_device(x):
    if isinstance(x, types.Float):
        return lambda x: x * 0.5
    return lambda x: x // 2


@intrinsic
def three_times(typing, x):
    def generate(context, builder, signature, arguments):
        three = context.get_constant(signature.return_type, 3)
        return builder.mul(arguments[0], three)

    return x(x), generate


@cuda.jit
def use_extensions(integers, floats):
    i = cuda.grid(1)
    integers[i] = three_times(int32(halved(integers[i])))
    floats[i] = halved(floats[i])


def extensions():
    integers, floats = np.arange(10, dtype=np.int32), np.arange(10.0)
    use_extensions[1, 10](integers, floats)
    np.testing.assert_array_equal(integers, np.arange(10) // 2 * 3)
    np.testing.assert_array_equal(floats, np.arange(10) * 0.5)


PROGRAMS = [array_interface, described_memory, profiled_regions, inspection, devices_and_contexts, extensions]
