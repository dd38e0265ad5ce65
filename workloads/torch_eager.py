"""A small transformer in eager PyTorch: five inference steps, then ten training steps, in bfloat16.

The backward passes launch their kernels from autograd's own thread.
"""

import os

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # must be set before cuBLAS starts

import torch
from torch import nn

import workload

DEVICE = "cuda"
VOCABULARY, WIDTH, HEADS, LAYERS = 1024, 256, 4, 3
BATCH, LENGTH = 16, 128
INFERENCE_STEPS, TRAINING_STEPS = 5, 10


def build_model():
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, dim_feedforward=4 * WIDTH, batch_first=True)
    return nn.Sequential(
        nn.Embedding(VOCABULARY, WIDTH),
        nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False),
        nn.Linear(WIDTH, VOCABULARY),
    ).to(DEVICE, torch.bfloat16)


def random_tokens(steps):
    return torch.randint(VOCABULARY, (steps, BATCH, LENGTH), device=DEVICE)


def infer(model):
    model.eval()
    with torch.no_grad():
        return [model(tokens) for tokens in random_tokens(INFERENCE_STEPS)]


def train(model):
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    inputs, targets = random_tokens(TRAINING_STEPS), random_tokens(TRAINING_STEPS)
    losses = []
    for tokens, target in zip(inputs, targets):
        optimizer.zero_grad()
        logits = model(tokens).float()
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def program():
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    model = build_model()
    outputs = infer(model)
    losses = train(model)
    return workload.torch_bytes([*outputs, *losses, *model.parameters()])


if __name__ == "__main__":
    workload.run(program, workload.profile_with_torch)
