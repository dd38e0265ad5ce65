"""Fifty training steps of a ResNet-50 on synthetic images, with deterministic cuDNN.

As in an input pipeline, the host makes the next images while the GPU trains, and they go to the GPU
from pinned memory on a side stream.
"""

import os

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # must be set before cuBLAS starts

from functools import partial

import torch
from torch import nn

import workload

DEVICE = "cuda"
CLASSES = 1000
STEM_CHANNELS = 64
EXPANSION = 4  # a block puts out this many times the channels that it works on
# Each stage of ResNet-50: the channels its blocks work on, how many blocks, the first one's stride.
STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
LEARNING_RATE, MOMENTUM, WEIGHT_DECAY = 0.02, 0.9, 1e-4
STEPS_PER_REPORT = 10


def convolution(inputs, outputs, kernel, stride=1):
    """A convolution and its batch norm."""
    padding = kernel // 2
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=padding, bias=False),
        nn.BatchNorm2d(outputs),
    )


class Bottleneck(nn.Module):
    """Three convolutions, narrow in the middle, with a residual connection round them."""

    def __init__(self, inputs, channels, stride):
        super().__init__()
        outputs = EXPANSION * channels
        self.path = nn.Sequential(
            convolution(inputs, channels, kernel=1),
            nn.ReLU(inplace=True),
            convolution(channels, channels, kernel=3, stride=stride),
            nn.ReLU(inplace=True),
            convolution(channels, outputs, kernel=1),
        )
        same_shape = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same_shape else convolution(inputs, outputs, 1, stride)
        nn.init.zeros_(self.path[-1][1].weight)  # a block starts as its shortcut: steadier training

    def forward(self, x):
        return nn.functional.relu(self.path(x) + self.shortcut(x))


class ResNet50(nn.Module):
    """Bytes of images, (batch, 3, height, width), to the logits of their classes."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            convolution(3, STEM_CHANNELS, kernel=7, stride=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=3, stride=2, padding=1),
        )
        blocks, inputs = [], STEM_CHANNELS
        for channels, count, first_stride in STAGES:
            for index in range(count):
                blocks.append(Bottleneck(inputs, channels, first_stride if index == 0 else 1))
                inputs = EXPANSION * channels
        self.blocks = nn.Sequential(*blocks)
        self.classifier = nn.Linear(inputs, CLASSES)

    def forward(self, images):
        features = self.blocks(self.stem(images.float() / 127.5 - 1))
        # A mean rather than AdaptiveAvgPool2d, which has no deterministic backward pass.
        return self.classifier(features.mean((2, 3)))


def synthetic_batches(options):
    """On the host: batches of random images, as bytes, and their labels."""
    random = torch.Generator().manual_seed(1)
    shape = (options.batch, 3, options.size, options.size)
    for _ in range(options.steps):
        images = torch.randint(256, shape, generator=random, dtype=torch.uint8)
        yield images, torch.randint(CLASSES, (options.batch,), generator=random)


def copy_ahead(host_batches):
    """The same batches on the GPU, each copied on a side stream while the one before is in use."""
    copy_stream, training_stream = torch.cuda.Stream(), torch.cuda.current_stream()

    def start_copy(tensors):
        with torch.cuda.stream(copy_stream):
            return [tensor.pin_memory().to(DEVICE, non_blocking=True) for tensor in tensors]

    def hand_over(tensors):
        training_stream.wait_stream(copy_stream)
        for tensor in tensors:
            tensor.record_stream(training_stream)
        return tensors

    in_flight = start_copy(next(host_batches))
    for next_batch in host_batches:
        yield hand_over(in_flight)
        in_flight = start_copy(next_batch)
    yield hand_over(in_flight)


def train_step(model, optimizer, images, labels):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss.detach()


def train(model, batches, memory_format):
    """Train on each batch; return the losses."""
    optimizer = torch.optim.SGD(
        model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY
    )
    losses = []
    for step, (images, labels) in enumerate(batches, start=1):
        images = images.contiguous(memory_format=memory_format)
        losses.append(train_step(model, optimizer, images, labels))
        if step % STEPS_PER_REPORT == 0:
            print(f"step {step} loss {losses[-1].item():.9g}", flush=True)
    return losses


def program(options, device=DEVICE, to_device=copy_ahead):
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False  # it would choose kernels by timing, and so the bits
    torch.manual_seed(0)
    memory_format = torch.channels_last if options.channels_last else torch.contiguous_format
    model = ResNet50().to(device, memory_format=memory_format)
    losses = train(model, to_device(synthetic_batches(options)), memory_format)

    parameter_bytes = workload.torch_bytes(model.parameters())
    statistics_bytes = workload.torch_bytes(model.buffers())
    workload.print_checksum("parameters", parameter_bytes)
    return workload.torch_bytes(losses) + parameter_bytes + statistics_bytes


def parse_arguments(arguments=None):
    parser = workload.argument_parser(__doc__.partition("\n")[0])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--size", type=int, default=224, help="height and width of the images")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--channels-last", action="store_true", help="images and weights as NHWC")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    command_line = parse_arguments()
    workload.skip_without_gpu()
    workload.run(partial(program, command_line), workload.profile_with_torch, command_line)
