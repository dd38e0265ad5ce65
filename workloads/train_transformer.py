"""Fifty training steps of a small GPT-like transformer, with bfloat16 autocast and AdamW.

The sequences are arithmetic progressions over a few of the tokens, so there is something to learn:
the loss falls.
"""

import os

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # must be set before cuBLAS starts

from functools import partial

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import workload

DEVICE = "cuda"
VOCABULARY = 8192
USED_TOKENS, LONGEST_STRIDE = 256, 16
LEARNING_RATE, WEIGHT_DECAY, GRADIENT_LIMIT = 3e-4, 0.1, 1.0
STEPS_PER_REPORT = 10


class Block(nn.Module):
    """Causal self-attention and a two-layer perceptron, before each a norm."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.to_heads = nn.Linear(width, 3 * width)
        self.from_heads = nn.Linear(width, width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attend(self.norms[0](x))
        return x + self.narrow(nn.functional.gelu(self.widen(self.norms[1](x))))

    def attend(self, x):
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.to_heads(x).chunk(3, dim=-1)
        )
        # Named, not left to chance: its backward pass has a deterministic form, and takes it here.
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.from_heads(mixed.transpose(1, 2).flatten(2))


class Gpt(nn.Module):
    """Learned positions, blocks, and a head that shares the embedding's weights."""

    def __init__(self, layers, width, heads, length):
        super().__init__()
        self.token_embedding = nn.Embedding(VOCABULARY, width)
        self.position_embedding = nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        for embedding in (self.token_embedding, self.position_embedding):
            nn.init.normal_(embedding.weight, std=0.02)  # the head's logits stay small at first

    def forward(self, tokens):
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.token_embedding(tokens) + self.position_embedding(positions)
        x = self.norm(self.blocks(x))
        return nn.functional.linear(x, self.token_embedding.weight)


def progressions(batch, length, random):
    """On the host: sequences of tokens at equal distances, from a random start."""
    starts = torch.randint(USED_TOKENS, (batch, 1), generator=random)
    strides = torch.randint(1, LONGEST_STRIDE + 1, (batch, 1), generator=random)
    return (starts + strides * torch.arange(length)) % USED_TOKENS


def train_step(model, optimizer, tokens):
    with torch.autocast(tokens.device.type, torch.bfloat16):
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), GRADIENT_LIMIT)
    optimizer.step()
    return loss.detach()


def program(options, device=DEVICE):
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    random = torch.Generator().manual_seed(1)
    model = Gpt(options.layers, options.width, options.heads, options.length).to(device)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=True
    )

    losses = []
    for step in range(1, options.steps + 1):
        tokens = progressions(options.batch, options.length + 1, random).to(device)
        losses.append(train_step(model, optimizer, tokens))
        if step % STEPS_PER_REPORT == 0:
            print(f"step {step} loss {losses[-1].item():.9g}", flush=True)

    parameter_bytes = workload.torch_bytes(model.parameters())
    workload.print_checksum("parameters", parameter_bytes)
    return workload.torch_bytes(losses) + parameter_bytes


def parse_arguments(arguments=None):
    parser = workload.argument_parser(__doc__.partition("\n")[0])
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--length", type=int, default=512, help="tokens of each sequence")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=50)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    command_line = parse_arguments()
    workload.skip_without_gpu()
    workload.run(partial(program, command_line), workload.profile_with_torch, command_line)
