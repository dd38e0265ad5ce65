"""The training of train_transformer.py with each step's loss printed as soon as it is there."""

import os

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # must be set before cuBLAS starts

from functools import partial

import torch

import train_transformer
import workload

DEVICE = train_transformer.DEVICE


def program(options, device=DEVICE):
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    random = torch.Generator().manual_seed(1)
    model = train_transformer.Gpt(options.layers, options.width, options.heads, options.length).to(device)
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=train_transformer.LEARNING_RATE,
        weight_decay=train_transformer.WEIGHT_DECAY,
        fused=True,
    )

    losses = []
    for step in range(1, options.steps + 1):
        tokens = train_transformer.progressions(options.batch, options.length + 1, random).to(device)
        losses.append(train_transformer.train_step(model, optimizer, tokens))
        print(f"step {step} loss {losses[-1].item():.9g}", flush=True)
    return workload.torch_bytes([*losses, *model.parameters()])


def parse_arguments(arguments=None):
    parser = workload.argument_parser(__doc__)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--length", type=int, default=512, help="tokens of each sequence")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=200)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    command_line = parse_arguments()
    workload.skip_without_gpu()
    workload.run(partial(program, command_line), workload.profile_with_torch, command_line)
