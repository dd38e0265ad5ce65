"""A training of a benchmark: it takes what it gets of the GPU, and notes when each step ends, and the loss.

`transformer` and `resnet50` fill the GPU. `small` leaves it idle most of the time: its kernels are small, and before each
step the host draws the input. `narrow` leaves half of it idle all the time: a step is a CUDA graph, so that there always is a
kernel, but attention over one long sequence with two heads is 64 blocks, which is work for half of the SMs.
"""

import os

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # must be set before cuBLAS starts

import argparse
import hashlib
import itertools
import math
from dataclasses import dataclass

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import bench_program
import llm_decode
import train_resnet
import workload
from bench_program import DEVICE

LEARNING_RATE = 1e-4
LOSS_SCALE = 256  # a step must be large enough to change weights in bfloat16
INPUTS = 4  # different ones, where they are made ahead; steps take them in turn
SET_UP_STEPS = 3  # before a capture, so that the libraries are set up by then


@dataclass(frozen=True)
class EncoderSizes:
    layers: int
    width: int
    heads: int
    batch: int
    length: int

    @property
    def input_shape(self):
        return (self.batch, self.length, self.width)


TRANSFORMER = EncoderSizes(layers=16, width=2048, heads=16, batch=16, length=512)
SMALL = EncoderSizes(layers=4, width=512, heads=8, batch=8, length=64)
NARROW = EncoderSizes(layers=4, width=128, heads=2, batch=1, length=4096)
TINY = EncoderSizes(layers=2, width=128, heads=8, batch=2, length=16)

IMAGES = {"batch": 64, "size": 224}
TINY_IMAGES = {"batch": 2, "size": 32}


def transformer(options):
    sizes = TINY if options.tiny else TRANSFORMER
    inputs = [torch.randn(sizes.input_shape, device=DEVICE, dtype=torch.bfloat16) for _ in range(INPUTS)]
    return encoder_training(sizes, itertools.cycle(inputs))


def small(options):
    sizes = TINY if options.tiny else SMALL
    return encoder_training(sizes, drawn_on_host(sizes.input_shape, options.seed))


def narrow(options):
    sizes = TINY if options.tiny else NARROW
    inputs = [torch.randn(sizes.input_shape, device=DEVICE, dtype=torch.bfloat16) for _ in range(INPUTS)]
    return graph_training(sizes, itertools.cycle(inputs))


def resnet50(options):
    images = TINY_IMAGES if options.tiny else IMAGES
    batches = train_resnet.synthetic_batches(argparse.Namespace(**images, steps=INPUTS))
    pinned = [[tensor.pin_memory() for tensor in batch] for batch in batches]
    on_gpu = train_resnet.copy_ahead(itertools.cycle(pinned))
    model = train_resnet.ResNet50().to(DEVICE)
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=train_resnet.LEARNING_RATE,
        momentum=train_resnet.MOMENTUM,
        weight_decay=train_resnet.WEIGHT_DECAY,
    )
    return model, lambda: train_resnet.train_step(model, optimizer, *next(on_gpu)).item()


# Each makes a model, and a function that trains it by one step and returns the loss.
TRAININGS = {"transformer": transformer, "resnet50": resnet50, "small": small, "narrow": narrow}


def encoder_training(sizes, inputs):
    model = bench_program.encoder(sizes.layers, sizes.width, sizes.heads)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    return model, lambda: encoder_step(model, optimizer, next(inputs)).item()


def graph_training(sizes, inputs):
    """The same, with forward pass, backward pass and optimizer in one CUDA graph."""
    model = bench_program.encoder(sizes.layers, sizes.width, sizes.heads)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    given = next(inputs).clone()  # a graph reads its input from where it was captured
    kept = {}

    def captured_step():
        kept["loss"] = encoder_step(model, optimizer, given)

    set_up = torch.cuda.Stream()
    set_up.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(set_up):  # not on the default stream, whose work a capture would wait for
        for _ in range(SET_UP_STEPS):
            captured_step()
    torch.cuda.current_stream().wait_stream(set_up)
    graph = llm_decode.capture(captured_step)

    def step():
        given.copy_(next(inputs))
        graph.replay()
        return kept["loss"].item()

    return model, step


def encoder_step(model, optimizer, inputs):
    """Train the outputs towards zero."""
    optimizer.zero_grad()
    # Named, not left to chance: its backward pass has a deterministic form, and takes it here.
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        outputs = model(inputs)
    loss = LOSS_SCALE * outputs.float().pow(2).mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


def drawn_on_host(shape, seed):
    """Inputs that are drawn only when they are asked for, while the GPU has nothing to do."""
    random = torch.Generator().manual_seed(seed)
    while True:
        yield torch.randn(shape, generator=random).bfloat16().to(DEVICE)


class KeptParameters:
    """The parameters as they were after some steps.

    Copies stay on the GPU until the training is over: to copy and hash a gigabyte takes the host a second.
    """

    def __init__(self, model):
        self.model = model
        self.copies = {}

    def keep(self, steps):
        self.copies[steps] = [parameter.detach().clone() for parameter in self.model.parameters()]
        torch.cuda.synchronize()

    def digests(self):
        return {str(steps): digest(tensors) for steps, tensors in self.copies.items()}


def digest(tensors):
    """The SHA-256 of all their bytes."""
    checksum = hashlib.sha256()
    for tensor in tensors:
        [data] = workload.torch_bytes([tensor])
        checksum.update(data)
    return checksum.hexdigest()


def make_deterministic():
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # nothing here reads any, and it costs kernels
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False  # it would choose kernels by timing, and so the bits


def program(options, stop):
    make_deterministic()
    torch.set_num_threads(1)  # the programs of a benchmark share the cores
    torch.manual_seed(options.seed)
    model, step = TRAININGS[options.model](options)
    kept = KeptParameters(model)
    torch.cuda.synchronize()
    bench_program.wait_for_start(options.start_file, stop)
    log = bench_program.train(step, kept.keep, options, stop)
    name = f"tiny {options.model}" if options.tiny else options.model
    report = {
        "program": "bench_train",
        "model": name,
        "seed": options.seed,
        **log.report(),
        "parameters_digest": kept.digests(),
    }
    return report, f"bench_train {name}: {log.summary()}"


def parse_arguments(arguments=None):
    parser = bench_program.argument_parser(__doc__.partition("\n")[0])
    parser.add_argument("--model", choices=TRAININGS, default="transformer")
    parser.add_argument("--seconds", type=float, default=math.inf, help="of steps that count")
    parser.add_argument("--steps", type=int, default=math.inf, help="that count")
    parser.add_argument("--warm-up-steps", type=int, default=3, help="before those that count")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    bench_program.run(program, parse_arguments())
