"""Errors: exceptions that kernels raise with debug=True, assertions, arguments that do not fit, and printing."""

import contextlib
import os
import tempfile

import numpy as np
from numba import cuda
from numba.core import errors


@contextlib.contextmanager
def raises(kind, text=""):
    try:
        yield
    except kind as error:
        assert text in str(error), f"{text!r} is not in {error}"
        return
    raise AssertionError(f"no {kind.__name__} was raised")


@cuda.jit(debug=True, opt=False)
def take(values, places, out):
    i = cuda.grid(1)
    if i < out.size:
        if places[i] < 0:
            raise ValueError("a place below zero")
        out[i] = values[places[i]]


def exceptions_of_kernels():
    values, out = np.arange(10), np.zeros(4, np.int64)
    take[1, 32](values, np.array([0, 3, 9, 5]), out)
    assert out.tolist() == [0, 3, 9, 5]
    with raises(ValueError, "a place below zero"):
        take[1, 32](values, np.array([0, -1, 9, 5]), out)
    # The device goes on working.
    take[1, 32](values, np.array([1, 1, 1, 1]), out)
    assert out.tolist() == [1, 1, 1, 1]


@cuda.jit(debug=True, opt=False)
def hold(values):
    assert values[cuda.grid(1)] < 10


def assertions():
    hold[1, 4](np.arange(4))
    with raises(AssertionError):
        hold[1, 4](np.arange(4) + 8)


@cuda.jit
def first_thread(values):
    values[cuda.threadIdx.x] = 1


def wrong_arguments():
    with raises(cuda.cudadrv.driver.CudaAPIError, "CUDA_ERROR_INVALID_VALUE"):
        first_thread[0, 32](np.zeros(4))
    with raises(errors.TypingError):
        cuda.jit(lambda values: values.no_such_field())[1, 1](np.zeros(4))
    with raises(cuda.cudadrv.driver.CudaAPIError, "CUDA_ERROR_INVALID_VALUE"):
        first_thread[1, 4096](np.zeros(4096))
    values = np.zeros(32)
    first_thread[1, 32](values)
    assert (values == 1).all()


@cuda.jit
def tell(number):
    if cuda.grid(1) < 2:
        print("thread", cuda.grid(1), "has", number, "and", 0.5)


def printing():
    with tempfile.TemporaryFile() as file:
        kept = os.dup(1)
        os.dup2(file.fileno(), 1)
        try:
            tell[1, 4](42)
            cuda.synchronize()
        finally:
            os.dup2(kept, 1)
            os.close(kept)
        file.seek(0)
        lines = sorted(file.read().decode().splitlines())
    assert lines == ["thread 0 has 42 and 0.500000", "thread 1 has 42 and 0.500000"], lines


PROGRAMS = [
    exceptions_of_kernels,
    assertions,
    wrong_arguments,
    printing,
]
