"""Greedy decoding with a 7B-like Llama shape: random bfloat16 weights and a static KV cache.

The prompts go through the model at once, and the first steps run eagerly. Then one step is captured
as a CUDA graph, and each further token is one replay. As in a server that streams its answers, the
host fetches the new tokens after each step.
"""

import os

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # must be set before cuBLAS starts

import json
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import workload

DEVICE, DTYPE = "cuda", torch.bfloat16
EAGER_STEPS = 2  # before the capture, so that the libraries are set up by then
LARGEST_BATCH = 8
ROTARY_BASE = 10000.0
CACHE_ALIGNMENT = 64  # positions; attention kernels want aligned rows in the mask

# With a mask, attention takes the first of these that the device has. Both are deterministic.
ATTENTION_BACKENDS = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


@dataclass(frozen=True)
class Shape:
    """The sizes of a model and of its cache."""

    layers: int
    hidden: int
    heads: int
    mlp: int
    vocabulary: int
    batch: int
    cache_length: int

    @property
    def head_width(self):
        return self.hidden // self.heads


class Attention(nn.Module):
    """Self-attention with rotary positions, over a cache of fixed length."""

    def __init__(self, shape, **factory):
        super().__init__()
        self.shape = shape
        self.query_key_value = nn.Linear(shape.hidden, 3 * shape.hidden, bias=False, **factory)
        self.projection = nn.Linear(shape.hidden, shape.hidden, bias=False, **factory)
        cache_shape = (shape.batch, shape.heads, shape.cache_length, shape.head_width)
        self.register_buffer("cached_keys", torch.zeros(cache_shape, **factory))
        self.register_buffer("cached_values", torch.zeros(cache_shape, **factory))

    def forward(self, x, positions, rotary, mask):
        heads = self.query_key_value(x).unflatten(-1, (3, self.shape.heads, self.shape.head_width))
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        self.cached_keys.index_copy_(2, positions, rotate(key, rotary))
        self.cached_values.index_copy_(2, positions, value)
        attended = nn.functional.scaled_dot_product_attention(
            rotate(query, rotary), self.cached_keys, self.cached_values, attn_mask=mask
        )
        return self.projection(attended.transpose(1, 2).flatten(2))


class GatedMlp(nn.Module):
    """Llama's two-layer perceptron, with a SiLU gate."""

    def __init__(self, shape, **factory):
        super().__init__()
        self.gate_and_up = nn.Linear(shape.hidden, 2 * shape.mlp, bias=False, **factory)
        self.down = nn.Linear(shape.mlp, shape.hidden, bias=False, **factory)

    def forward(self, x):
        gate, up = self.gate_and_up(x).chunk(2, dim=-1)
        return self.down(nn.functional.silu(gate) * up)


class Layer(nn.Module):
    """Attention and perceptron, each behind a norm and with a residual connection."""

    def __init__(self, shape, **factory):
        super().__init__()
        self.attention_norm = nn.RMSNorm(shape.hidden, eps=1e-5, **factory)
        self.attention = Attention(shape, **factory)
        self.mlp_norm = nn.RMSNorm(shape.hidden, eps=1e-5, **factory)
        self.mlp = GatedMlp(shape, **factory)

    def forward(self, x, positions, rotary, mask):
        x = x + self.attention(self.attention_norm(x), positions, rotary, mask)
        return x + self.mlp(self.mlp_norm(x))


class Decoder(nn.Module):
    """From tokens at the given positions to the logits of the token that follows them."""

    def __init__(self, shape, **factory):
        super().__init__()
        self.embedding = nn.Embedding(shape.vocabulary, shape.hidden, **factory)
        self.layers = nn.ModuleList(Layer(shape, **factory) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.hidden, eps=1e-5, **factory)
        self.head = nn.Linear(shape.hidden, shape.vocabulary, bias=False, **factory)
        cache_positions = torch.arange(shape.cache_length, device=factory["device"])
        self.register_buffer("cache_positions", cache_positions)
        self.register_buffer("rotary", rotary_table(cache_positions, shape.head_width))

    def forward(self, tokens, positions):
        x = self.embedding(tokens)
        rotary = self.rotary.index_select(1, positions).to(x.dtype)
        hidden_from = self.cache_positions > positions[:, None]
        mask = torch.zeros_like(hidden_from, dtype=x.dtype).masked_fill(hidden_from, -torch.inf)
        for layer in self.layers:
            x = layer(x, positions, rotary, mask)
        return self.head(self.norm(x[:, -1]))


def rotary_table(positions, head_width):
    """Cosine and sine of the angle by which each pair of a head's values turns at each position."""
    pairs = torch.arange(0, head_width, 2, device=positions.device) / head_width
    angles = torch.outer(positions.float(), ROTARY_BASE**-pairs).repeat(1, 2)
    return torch.stack([angles.cos(), angles.sin()])


def rotate(x, rotary):
    cosine, sine = rotary
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat([-second, first], dim=-1) * sine


class Answers:
    """The answers to a batch of prompts, in the making.

    Its tensors stay in their place, as a CUDA graph needs: each step reads and overwrites them.
    """

    def __init__(self, model, prompts):
        length = prompts.shape[1]
        self.model = model
        self.logits = model(prompts, torch.arange(length, device=prompts.device))
        self.tokens = self.logits.argmax(-1, keepdim=True)
        self.position = torch.full((1,), length, device=prompts.device)

    def step(self):
        self.logits.copy_(self.model(self.tokens, self.position))
        self.tokens.copy_(self.logits.argmax(-1, keepdim=True))
        self.position.add_(1)


def capture(step):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


def fetch_tokens(answers, step, count, times):
    """Do `count` steps, and copy the new tokens to the host after each; add how long each took."""
    for _ in range(count):
        started = time.perf_counter()
        step()
        tokens = answers.tokens.cpu()
        times.append(time.perf_counter() - started)
        yield tokens


# Not under torch.use_deterministic_algorithms: all that runs here is deterministic as it is, since
# no two writes to the cache meet; that setting would put a sort before each of them.
@torch.no_grad()
@sdpa_kernel(ATTENTION_BACKENDS)
def program(options, device=DEVICE):
    torch.manual_seed(0)
    used_length = options.prompt + options.tokens
    shape = Shape(
        layers=options.layers,
        hidden=options.hidden,
        heads=options.heads,
        mlp=options.mlp,
        vocabulary=options.vocabulary,
        batch=options.batch,
        cache_length=-(-used_length // CACHE_ALIGNMENT) * CACHE_ALIGNMENT,
    )
    model = Decoder(shape, device=device, dtype=DTYPE)
    prompts = torch.randint(shape.vocabulary, (shape.batch, options.prompt), device=device)

    answers = Answers(model, prompts)
    eager_steps = options.tokens - 1 if options.eager else EAGER_STEPS
    times = []
    tokens = [answers.tokens.cpu(), *fetch_tokens(answers, answers.step, eager_steps, times)]
    if not options.eager:
        graph, times = capture(answers.step), []
        tokens += fetch_tokens(answers, graph.replay, options.tokens - len(tokens), times)
    if options.times:
        options.times.write_text(json.dumps(times) + "\n")

    token_bytes = workload.torch_bytes(tokens)
    logit_bytes = workload.torch_bytes([answers.logits])
    workload.print_checksum("tokens", token_bytes)
    workload.print_checksum("last logits", logit_bytes)
    return token_bytes + logit_bytes


def parse_arguments(arguments=None):
    parser = workload.argument_parser(__doc__.partition("\n")[0])
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--mlp", type=int, default=11008)
    parser.add_argument("--vocabulary", type=int, default=32000)
    batches = range(1, LARGEST_BATCH + 1)
    parser.add_argument("--batch", type=int, default=LARGEST_BATCH, choices=batches)
    parser.add_argument("--prompt", type=int, default=32, help="tokens of each prompt")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of each answer")
    parser.add_argument("--eager", action="store_true", help="no CUDA graph")
    parser.add_argument(
        "--times", type=Path, metavar="FILE", help="write the seconds of each step to FILE, as JSON"
    )
    options = parser.parse_args(arguments)
    if options.hidden % (2 * options.heads):
        parser.error("--hidden must be an even multiple of --heads")
    if options.tokens <= EAGER_STEPS + 1:
        parser.error(f"--tokens must be more than {EAGER_STEPS + 1}")
    return options


if __name__ == "__main__":
    command_line = parse_arguments()
    workload.skip_without_gpu()
    workload.run(partial(program, command_line), workload.profile_with_torch, command_line)
