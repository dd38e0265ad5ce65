"""A transformer block under torch.compile: forward and backward as generated Triton kernels.

Triton launches its kernels by the driver API itself, not by the CUDA runtime.
"""

import os

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # must be set before cuBLAS starts
os.environ["TORCHINDUCTOR_DETERMINISTIC"] = "1"  # no choice of kernel by timing that changes bits

import torch
from torch import nn

import workload

DEVICE = "cuda"
BATCH, LENGTH, WIDTH, HEADS = 8, 128, 256, 4
STEPS = 10


class Block(nn.Module):
    """Self-attention and a two-layer perceptron, each with a residual connection."""

    def __init__(self):
        super().__init__()
        self.attention_norm = nn.LayerNorm(WIDTH)
        self.query_key_value = nn.Linear(WIDTH, 3 * WIDTH)
        self.projection = nn.Linear(WIDTH, WIDTH)
        self.perceptron = nn.Sequential(
            nn.LayerNorm(WIDTH),
            nn.Linear(WIDTH, 4 * WIDTH),
            nn.GELU(),
            nn.Linear(4 * WIDTH, WIDTH),
        )

    def forward(self, x):
        heads = self.query_key_value(self.attention_norm(x)).unflatten(-1, (3, HEADS, -1))
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projection(attended.transpose(1, 2).flatten(2))
        return x + self.perceptron(x)


def program():
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    model = Block().to(DEVICE, torch.bfloat16)
    compiled_model = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    shape = (STEPS, BATCH, LENGTH, WIDTH)
    inputs = torch.randn(shape, device=DEVICE, dtype=torch.bfloat16)
    targets = torch.randn(shape, device=DEVICE, dtype=torch.bfloat16)

    outputs, losses = [], []
    for x, target in zip(inputs, targets):
        optimizer.zero_grad()
        output = compiled_model(x)
        loss = nn.functional.mse_loss(output.float(), target.float())
        loss.backward()
        optimizer.step()
        outputs.append(output)
        losses.append(loss)
    return workload.torch_bytes([*outputs, *losses, *model.parameters()])


if __name__ == "__main__":
    workload.run(program, workload.profile_with_torch)
