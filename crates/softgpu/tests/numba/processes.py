"""What belongs to a whole process: its devices, its memory manager, and arrays that it shares with another one.

Each runs in a process of its own (`python3 processes.py NAME`, with an argument on standard input), because it ends or
replaces what the other programs stand on.
"""

import contextlib
import ctypes
import io
import os
import pickle
import subprocess
import sys

import numpy as np
from numba import cuda


@cuda.jit
def triple(values):
    i = cuda.grid(1)
    if i < values.size:
        values[i] *= 3


def in_its_own_process(function, argument=None, **variables):
    """Calls a function of this file there; what it asserts holds here too."""
    command = [sys.executable, "-W", "ignore", __file__, function.__name__]
    environment = os.environ | variables | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run(command, input=pickle.dumps(argument), env=environment, check=True)


def arrays_between_processes():
    values = np.arange(600, dtype=np.float32).reshape(20, 30)
    shared = cuda.to_device(values)
    in_its_own_process(open_arrays, (shared.get_ipc_handle(), bytes(shared.get_ipc_handle()._ipc_handle.handle)))
    np.testing.assert_array_equal(shared.copy_to_host(), values * 9)


def open_arrays(handles):
    """What another process makes of an array that was handed to it, in both of the ways that there are."""
    array, memory = handles
    expected = np.arange(600, dtype=np.float32)
    with array as opened:
        assert opened.shape == (20, 30) and opened.dtype == np.float32
        triple[5, 128](opened.ravel())
        np.testing.assert_array_equal(opened.copy_to_host().ravel(), expected * 3)
    with cuda.open_ipc_array(memory, shape=600, dtype=np.dtype(np.float32)) as opened:
        triple[5, 128](opened)
        np.testing.assert_array_equal(opened.copy_to_host(), expected * 9)


def devices_that_are_chosen_and_closed():
    in_its_own_process(choose_and_close, DETSHARE_SOFTGPU_DEVICES="2")


def choose_and_close(_):
    assert len(cuda.gpus) == 2 and len(cuda.list_devices()) == 2
    with contextlib.redirect_stdout(io.StringIO()) as told:
        assert cuda.detect()
    assert "2/2 devices are supported" in told.getvalue()
    for number in (1, 0):
        device = cuda.select_device(number)
        assert device.id == cuda.get_current_device().id == cuda.current_context().device.id == number
        values = cuda.to_device(np.ones(64, np.int32))
        triple[1, 64](values)
        assert (values.copy_to_host() == 3).all()
    cuda.close()
    # All begins anew, with kernels that are compiled anew.
    cuda.select_device(1)
    values = cuda.to_device(np.ones(64, np.int32))
    cuda.jit(triple.py_func)[1, 64](values)
    assert (values.copy_to_host() == 3).all()
    cuda.close()


class CountingManager(cuda.HostOnlyCUDAMemoryManager):
    """A plug-in for memory of the device, as the documentation sketches one: the driver's own, counted."""

    instance = None

    def __init__(self, *arguments, **names):
        super().__init__(*arguments, **names)
        CountingManager.instance = self
        self.live, self.total = {}, 0

    @property
    def interface_version(self):
        return 1

    def initialize(self):
        super().initialize()

    def memalloc(self, size):
        driver = cuda.cudadrv.driver.driver
        address = cuda.cudadrv.drvapi.cu_device_ptr()
        driver.cuMemAlloc(ctypes.byref(address), size)
        live = self.live
        live[address.value], self.total = size, self.total + 1

        def free():
            del live[address.value]
            driver.cuMemFree(address)

        return cuda.MemoryPointer(self.context, address, size, finalizer=free)

    def get_ipc_handle(self, memory):
        raise NotImplementedError("nobody asks")

    def get_memory_info(self):
        return cuda.MemoryInfo(free=1 << 20, total=1 << 21)

    def reset(self):
        super().reset()

    @contextlib.contextmanager
    def defer_cleanup(self):
        with super().defer_cleanup():
            yield


# The name by which Numba looks for a plug-in in the module that NUMBA_CUDA_MEMORY_MANAGER names.
_numba_memory_manager = CountingManager


def memory_managers():
    in_its_own_process(use_own_manager)
    in_its_own_process(use_manager_of_environment, NUMBA_CUDA_MEMORY_MANAGER="processes")


def use_own_manager(_):
    cuda.set_memory_manager(CountingManager)
    is_in_use(CountingManager)


def use_manager_of_environment(_):
    # This file by its name is another module than the one that runs.
    import processes

    is_in_use(processes.CountingManager)


def is_in_use(manager):
    values = cuda.to_device(np.arange(1000))
    triple[8, 128](values)
    np.testing.assert_array_equal(values.copy_to_host(), np.arange(1000) * 3)
    instance = manager.instance
    assert instance.total == 1 and list(instance.live.values()) == [8000]
    assert cuda.current_context().get_memory_info() == (1 << 20, 1 << 21)
    pinned = cuda.pinned_array(100)
    pinned[:] = 1
    with cuda.defer_cleanup():
        del values
        assert instance.total == 1
    assert instance.live == {}


PROGRAMS = [arrays_between_processes, devices_that_are_chosen_and_closed, memory_managers]

if __name__ == "__main__":
    globals()[sys.argv[1]](pickle.loads(sys.stdin.buffer.read()))
