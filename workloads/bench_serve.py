"""A server of a benchmark: requests arrive at set times, and it notes how long each waits for its answer.

A request is one step of a transformer, a replay of a CUDA graph or, with `--eager`, kernel by kernel. Its input comes
from pinned memory, and the first values of the output go back to the host. Its latency counts from its arrival, so time
in the queue is part of it.
"""

import os

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # must be set before cuBLAS starts

import gc
from dataclasses import dataclass

import torch

import bench_program
import llm_decode
from bench_program import DEVICE

BATCH, HEADS = 8, 16
INPUTS = 16  # different ones; requests take them in turn
RESULT_VALUES = 64
SET_UP_STEPS = 10  # before the capture, so that the libraries are set up by then


@dataclass(frozen=True)
class Shape:
    """The sizes of a model, and the length of its input."""

    layers: int
    width: int
    length: int


SHAPES = {
    "small": Shape(layers=16, width=2048, length=16),
    "7b": Shape(layers=32, width=4096, length=1),
    "tiny": Shape(layers=2, width=512, length=4),
}


class Server:
    """A model that answers request after request; its tensors stay in their place, as a CUDA graph needs."""

    def __init__(self, shape, seed):
        torch.manual_seed(seed)
        self.model = bench_program.encoder(shape.layers, shape.width, HEADS).eval()
        inputs = torch.randn(INPUTS, BATCH, shape.length, shape.width).bfloat16().pin_memory()
        self.inputs = inputs.unbind()
        self.input = inputs[0].to(DEVICE)
        self.output = None
        self.result = torch.empty(RESULT_VALUES, dtype=torch.bfloat16).pin_memory()
        self.result_bytes = self.result.view(torch.uint8).numpy()  # the same memory
        self.run_step = self.step

    def step(self):
        self.output = self.model(self.input).flatten()[:RESULT_VALUES]

    def set_up(self, eager):
        for _ in range(SET_UP_STEPS):
            self.step()
        torch.cuda.synchronize()
        if not eager:
            self.run_step = llm_decode.capture(self.step).replay

    def answer(self, index):
        self.input.copy_(self.inputs[index % INPUTS], non_blocking=True)
        self.run_step()
        self.result.copy_(self.output, non_blocking=True)
        torch.cuda.current_stream().synchronize()
        return self.result_bytes.tobytes()


def program(options, stop):
    shape = "tiny" if options.tiny else options.shape
    mode = "eager" if options.eager else "graph"
    server = Server(SHAPES[shape], options.seed)
    with torch.inference_mode():
        server.set_up(options.eager)
        gc.collect()
        gc.freeze()  # or collections, while requests wait, would go through all that the imports left
        bench_program.wait_for_start(options.start_file, stop)
        log = bench_program.serve(server.answer, options, stop)
    report = {
        "program": "bench_serve",
        "shape": shape,
        "mode": mode,
        "arrivals": options.arrivals,
        "period_ms": options.period_ms,
        "pause_ms": options.pause_ms,
        "seed": options.seed,
        **log.report(),
    }
    return report, f"bench_serve {shape} {mode} {options.arrivals}: {log.summary()}"


def parse_arguments(arguments=None):
    parser = bench_program.argument_parser(__doc__.partition("\n")[0])
    parser.add_argument("--shape", choices=["small", "7b"], default="small")
    parser.add_argument("--eager", action="store_true", help="no CUDA graph")
    parser.add_argument("--arrivals", choices=["periodic", "poisson", "closed"], default="periodic")
    parser.add_argument(
        "--period-ms", type=float, default=10.0, help="from one arrival to the next; with poisson, on average"
    )
    parser.add_argument(
        "--pause-ms", type=float, default=5.0, help="with closed: from an answer to the next arrival"
    )
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--warm-up", type=int, default=100, help="requests before those that count")
    options = parser.parse_args(arguments)
    if options.period_ms <= 0:
        parser.error("--period-ms must be more than 0")
    return options


if __name__ == "__main__":
    bench_program.run(program, parse_arguments())
