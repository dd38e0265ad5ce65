"""A CUDA graph in PyTorch: capture one inference step and replay it fifty times on new input.

Ordinary eager work runs before the capture, between the replays and after them.
"""

import os

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # must be set before cuBLAS starts

import torch
from torch import nn

import workload

DEVICE = "cuda"
BATCH, WIDTH, HIDDEN = 64, 256, 1024
WARM_UP_STEPS, REPLAYS = 3, 50


def build_model():
    return nn.Sequential(
        nn.Linear(WIDTH, HIDDEN),
        nn.GELU(),
        nn.LayerNorm(HIDDEN),
        nn.Linear(HIDDEN, HIDDEN),
        nn.GELU(),
        nn.Linear(HIDDEN, WIDTH),
        nn.Softmax(dim=-1),
    ).to(DEVICE, torch.bfloat16)


def warm_up(model, static_input):
    """Run the step on a side stream first, so that its libraries are set up before the capture."""
    side_stream = torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        for _ in range(WARM_UP_STEPS):
            model(static_input)
    torch.cuda.current_stream().wait_stream(side_stream)


def capture(model, static_input):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        static_output = model(static_input)
    return graph, static_output


@torch.no_grad()
def program():
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    model = build_model()
    inputs = torch.randn(REPLAYS, BATCH, WIDTH, device=DEVICE, dtype=torch.bfloat16)
    static_input = torch.zeros_like(inputs[0])
    warm_up(model, static_input)
    graph, static_output = capture(model, static_input)

    outputs = []
    running_mean = torch.zeros(BATCH, WIDTH, device=DEVICE)
    for new_input in inputs:
        static_input.copy_(new_input)
        graph.replay()
        outputs.append(static_output.clone())
        running_mean = torch.lerp(running_mean, static_output.float(), 0.1)
    eager_outputs = model(inputs)
    return workload.torch_bytes([*outputs, running_mean, eager_outputs])


if __name__ == "__main__":
    workload.run(program, workload.profile_with_torch)
