"""The model of llm_server.py: Llama shapes with random weights, a paged KV cache, decode steps by CUDA graph.

The cache consists of blocks of 16 tokens. Decode attention goes over spans of 256 tokens: all spans that the
rows of a step have together are gathered from the cache and attended to as one batch, and then each row sums
up its own spans. So what a step reads grows with the tokens in the cache and not with the longest context,
and what a row gets does not depend on how long the contexts of the others are.
"""

import os

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # must be set before cuBLAS starts

from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu

import llm_sizes
from llm_scheduler import BLOCK, PREFILL

DTYPE = torch.bfloat16
BLOCKS_PER_SPAN = 16
SPAN = BLOCK * BLOCKS_PER_SPAN
ROTARY_BASE = 500000.0
NORM_EPSILON = 1e-5
EMBEDDING_DEVIATION = 0.02  # small, so that the layers and not the last token alone decide on the next one

# For prompts, attention takes the first of these that the device has. All are deterministic.
PROMPT_ATTENTION = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]

# What a decode step gets for each row: a token, its position, and the blocks of the row's request.
TOKEN, POSITION, TABLE = 0, 1, 2


@dataclass(frozen=True)
class Shape:
    """The sizes of a model."""

    layers: int
    width: int
    heads: int
    key_value_heads: int
    mlp: int
    vocabulary: int

    @property
    def head_width(self):
        return self.width // self.heads

    @property
    def key_value_width(self):
        """Values that the cache holds for one token in one layer."""
        return 2 * self.key_value_heads * self.head_width

    @property
    def token_bytes(self):
        """What one token takes in the cache."""
        return self.layers * self.key_value_width * DTYPE.itemsize


SHAPES = {
    "8b": Shape(layers=32, width=4096, heads=32, key_value_heads=8, mlp=14336, vocabulary=128256),
    "1b": Shape(layers=16, width=2048, heads=32, key_value_heads=8, mlp=8192, vocabulary=128256),
    "tiny": Shape(layers=2, width=128, heads=8, key_value_heads=2, mlp=256, vocabulary=512),
}


class Layer(nn.Module):
    """Attention and a gated perceptron, each behind a norm and with a residual connection."""

    def __init__(self, shape, **factory):
        super().__init__()
        self.shape = shape
        linear = partial(nn.Linear, bias=False, **factory)
        self.attention_norm = nn.Parameter(torch.ones(shape.width, **factory))
        self.query_key_value = linear(shape.width, shape.width + shape.key_value_width)
        self.projection = linear(shape.width, shape.width)
        self.mlp_norm = nn.Parameter(torch.ones(shape.width, **factory))
        self.gate_and_up = linear(shape.width, 2 * shape.mlp)
        self.down = linear(shape.mlp, shape.width)

    def forward(self, x, rotary, attend, cache):
        """`attend` takes a cache, the queries, and the keys and values that are new to it."""
        x = x + self.projection(attend(cache, *self.heads(norm(x, self.attention_norm), rotary)))
        gate, up = self.gate_and_up(norm(x, self.mlp_norm)).chunk(2, dim=-1)
        return x + self.down(silu(gate) * up)

    def heads(self, x, rotary):
        """Queries as rows of heads, and keys and values as rows of the cache."""
        heads = self.query_key_value(x).unflatten(-1, (-1, self.shape.head_width))
        value_heads = self.shape.key_value_heads
        turned = rotate(heads[:, :-value_heads], rotary)
        query, key = turned.split([self.shape.heads, value_heads], dim=1)
        return query, torch.cat([key, heads[:, -value_heads:]], dim=1).flatten(1)


class Model(nn.Module):
    """From tokens to the state behind each of them; `next_tokens` goes on from there."""

    def __init__(self, shape, positions, **factory):
        super().__init__()
        self.embedding = nn.Embedding(shape.vocabulary, shape.width, **factory)
        nn.init.normal_(self.embedding.weight, std=EMBEDDING_DEVIATION)
        self.layers = nn.ModuleList(Layer(shape, **factory) for _ in range(shape.layers))
        self.norm = nn.Parameter(torch.ones(shape.width, **factory))
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False, **factory)
        self.register_buffer("rotary", rotary_table(positions, shape.head_width, **factory))

    def forward(self, tokens, rotary, attend, caches):
        x = self.embedding(tokens)
        for layer, cache in zip(self.layers, caches):
            x = layer(x, rotary, attend, cache)
        return x

    def next_tokens(self, x):
        """The likeliest token after each row; of several equally likely ones, that with the lowest id."""
        return self.head(norm(x, self.norm)).argmax(-1)


def norm(x, weight):
    return rms_norm(x, weight.shape, weight, NORM_EPSILON)


def rotary_table(positions, head_width, device, dtype):
    """Cosine and sine of the angle by which each pair of a head's values turns, one row for each position."""
    pairs = torch.arange(0, head_width, 2, device=device) / head_width
    angles = torch.outer(torch.arange(positions, device=device).float(), ROTARY_BASE**-pairs).repeat(1, 2)
    return torch.stack([angles.cos(), angles.sin()], dim=1).to(dtype)


def rotate(x, rotary):
    """Turn rows of heads, each by the angles of its row in `rotary`."""
    cosine, sine = rotary[:, :, None].unbind(1)
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat([-second, first], dim=-1) * sine


def gather_blocks(cache, blocks):
    """The rows of these blocks, one after the other; copied as 64-bit words, which is faster."""
    words = cache.view(torch.int64).view(-1, BLOCK * cache.shape[1] * DTYPE.itemsize // 8)
    return words.index_select(0, blocks).view(DTYPE).view(-1, cache.shape[1])


class PrefillAttention:
    """Attention of a prompt's tokens from `begin` on: to those before, in the cache, and to one another."""

    def __init__(self, shape, slots, blocks_before):
        self.shape = shape
        self.slots = slots
        self.blocks_before = blocks_before

    def __call__(self, cache, query, key_value):
        # Rows after the last slot are padding; no query before them sees their keys.
        cache.index_copy_(0, self.slots, key_value[: len(self.slots)])
        if len(self.blocks_before):
            key_value = torch.cat([gather_blocks(cache, self.blocks_before), key_value])
        heads = key_value.view(1, -1, 2, self.shape.key_value_heads, self.shape.head_width)
        key, value = heads.permute(2, 0, 3, 1, 4)
        query = query.transpose(0, 1)[None]
        causal = causal_lower_right(query.shape[2], key.shape[2])
        attended = scaled_dot_product_attention(query, key, value, attn_mask=causal, enable_gqa=True)
        return attended[0].transpose(0, 1).flatten(1)


class DecodeAttention:
    """Attention of one new token per row to all tokens of the row's request.

    All shapes depend on the number of rows and of spans alone, and nothing comes from the host, as a CUDA
    graph needs. Spans that no row needs repeat the first one of the last row; nobody looks at their results.
    """

    def __init__(self, shape, inputs, spans, attend_to_spans):
        self.shape = shape
        self.attend_to_spans = attend_to_spans
        positions, tables = inputs[:, POSITION], inputs[:, TABLE:]
        rows, device = len(inputs), inputs.device
        longest = tables.shape[1] // BLOCKS_PER_SPAN  # spans of the longest context
        counts = positions // SPAN + 1
        ends = counts.cumsum(0)
        begins = ends - counts

        numbers = torch.arange(spans, device=device)
        self.row_of_span = torch.searchsorted(ends, numbers, right=True).clamp(max=rows - 1)
        place = (numbers - begins.index_select(0, self.row_of_span)) * (numbers < ends[-1])
        tables_of_spans = tables.reshape(rows * longest, BLOCKS_PER_SPAN)
        self.blocks = tables_of_spans.index_select(0, self.row_of_span * longest + place).flatten()
        key_positions = place[:, None] * SPAN + torch.arange(SPAN, device=device)
        hidden = key_positions > positions.index_select(0, self.row_of_span)[:, None]
        mask = torch.zeros_like(hidden, dtype=DTYPE).masked_fill(hidden, -torch.inf)
        group = shape.heads // shape.key_value_heads
        self.mask = mask[:, None, None].expand(-1, shape.key_value_heads, group, -1)

        places = torch.arange(longest, device=device)
        self.absent = (places >= counts[:, None])[:, :, None, None]
        self.spans_of_row = (begins[:, None] + places).masked_fill(self.absent[:, :, 0, 0], 0).flatten()
        block = tables.gather(1, positions[:, None] // BLOCK)[:, 0]
        self.slots = block * BLOCK + positions % BLOCK

    def __call__(self, cache, query, key_value):
        cache.index_copy_(0, self.slots, key_value)
        value_heads, head_width = self.shape.key_value_heads, self.shape.head_width
        spans = gather_blocks(cache, self.blocks).view(-1, SPAN, 2, value_heads, head_width)
        key, value = spans.permute(2, 0, 3, 1, 4)
        query = query.index_select(0, self.row_of_span).unflatten(1, (value_heads, -1))
        attended, log_sums = self.attend_to_spans(query, key, value, self.mask)
        return self.sum_up(attended, log_sums).to(DTYPE)

    def sum_up(self, attended, log_sums):
        """Each row's attention to all its spans; each of them counts as its part of the softmax's sum."""
        by_row = (-1, self.absent.shape[1])
        shares = log_sums.index_select(0, self.spans_of_row).unflatten(0, by_row)
        shares = shares.masked_fill(self.absent, -torch.inf).softmax(1)
        attended = attended.index_select(0, self.spans_of_row).unflatten(0, by_row)
        return (attended * shares[..., None]).sum(1).flatten(1)


def fused_attention(query, key, value, mask):
    """Attention by one kernel, and the logarithm of the softmax's sum for each query."""
    attended, log_sums, *_ = torch.ops.aten._scaled_dot_product_efficient_attention(
        query, key, value, mask, compute_log_sumexp=True
    )
    return attended, log_sums[:, :, : query.shape[2]]  # it is padded


def plain_attention(query, key, value, mask):
    """The same from matrix products, where there is no such kernel; its bits can depend on all spans."""
    scores = (query @ key.transpose(-2, -1)).float() * query.shape[-1] ** -0.5 + mask
    attended = scores.softmax(-1).to(value.dtype) @ value
    return attended, scores.logsumexp(-1)


@dataclass(frozen=True)
class EngineOptions:
    """What the engine must know to set itself up."""

    device: str
    cache_tokens: int
    longest_context: int
    rows: int
    fixed_batch: bool  # all decode steps have all rows, and all prefill steps the length of a chunk
    chunk: int
    eager: bool
    plain_attention: bool
    seed: int


class Engine:
    """A model with its cache, which does the steps that a scheduler chooses.

    Not under torch.use_deterministic_algorithms: all that runs here is deterministic as it is, since no two
    writes to the cache meet; that setting would put a sort before each of them.
    """

    def __init__(self, shape, options):
        self.shape = shape
        self.options = options
        self.device = options.device
        on_gpu = self.device != "cpu"
        if not on_gpu:
            torch.set_num_threads(1)  # the sizes are too small to gain from more
        torch.manual_seed(options.seed)
        positions = options.longest_context + options.chunk  # a padded chunk can reach beyond the context
        self.model = Model(shape, positions, device=self.device, dtype=DTYPE).eval()

        # The blocks after those of the pool are for rows of padding. Each such row has a slot of its own.
        self.batches = [options.rows] if options.fixed_batch else llm_sizes.batches_up_to(options.rows)
        self.block_count = options.cache_tokens // BLOCK
        slots = (self.block_count + -(-self.batches[-1] // BLOCK)) * BLOCK
        # Zeros, since a hidden value still takes part, multiplied with 0.
        self.caches = [
            torch.zeros(slots, shape.key_value_width, device=self.device, dtype=DTYPE)
            for _ in range(shape.layers)
        ]
        self.table_width = -(-options.longest_context // SPAN) * BLOCKS_PER_SPAN
        most_spans = self.batches[-1] * self.table_width // BLOCKS_PER_SPAN
        # A row's last span need not be full.
        in_cache = self.block_count // BLOCKS_PER_SPAN + self.batches[-1]
        growth = llm_sizes.SPANS_GROWTH if options.fixed_batch else llm_sizes.SPANS_GROWTH_OF_MANY
        self.span_counts = llm_sizes.span_counts(min(most_spans, in_cache), growth)

        self.attend_to_spans = plain_attention if options.plain_attention or not on_gpu else fused_attention
        self.padding = torch.stack([self.padding_row(row) for row in range(self.batches[-1])])
        self.staged = self.padding.clone()
        self.fetched = torch.zeros(self.batches[-1], dtype=torch.int64)
        if on_gpu:
            self.staged, self.fetched = self.staged.pin_memory(), self.fetched.pin_memory()
        self.inputs = self.padding.to(self.device, copy=True)
        self.results = torch.zeros(self.batches[-1], dtype=torch.int64, device=self.device)
        self.staged_requests = []
        self.graphs = {}

    def padding_row(self, row):
        block, position = self.block_count + row // BLOCK, row % BLOCK
        return torch.tensor([0, position] + [block] * self.table_width)

    @torch.inference_mode()
    @sdpa_kernel(PROMPT_ATTENTION)
    def set_up(self):
        """Do one step of each kind, and capture the graphs of all decode steps."""
        if self.device == "cpu":
            return
        self.warm_up_prefill()
        if not self.options.eager:
            self.capture()
        self.staged.copy_(self.padding)
        self.decode_rows(self.batches[0], self.batches[0])
        torch.cuda.synchronize()

    def warm_up_prefill(self):
        chunk = self.options.chunk or SPAN
        length = min(2 * chunk, self.options.longest_context, self.block_count * BLOCK)
        table = torch.arange(-(-length // BLOCK))
        for begin in range(0, length, chunk):
            tokens = torch.zeros(min(chunk, length - begin), dtype=torch.int64)
            self.prefill_tokens(tokens, table, begin, is_last=True)

    def capture(self):
        """Largest first, so that the smaller graphs find room in the memory of the larger ones.

        All share it: none runs beside another, and none leaves anything there that another needs.
        """
        pool = torch.cuda.graph_pool_handle()
        stream = torch.cuda.Stream()
        for batch, spans in sorted(self.graph_sizes(), key=lambda size: (size[1], size[0]), reverse=True):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                self.decode_step(batch, spans)  # sets up the libraries, which a capture must not
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool, stream=stream):
                self.decode_step(batch, spans)
            self.graphs[batch, spans] = graph

    def graph_sizes(self):
        return llm_sizes.graph_sizes(self.batches, self.table_width // BLOCKS_PER_SPAN, self.span_counts)

    def padded_spans(self, spans):
        return llm_sizes.padded(spans, self.span_counts)

    @torch.inference_mode()
    @sdpa_kernel(PROMPT_ATTENTION)
    def run(self, step):
        """One token for each request of `step`; none after a prefill step that left some of the prompt."""
        if step.kind != PREFILL:
            return self.decode(step.requests)
        (request,) = step.requests
        tokens = torch.frombuffer(request.prompt, dtype=torch.int64)[step.begin : step.end]
        is_last = step.end == len(request.prompt)
        return self.prefill_tokens(tokens, torch.tensor(request.blocks), step.begin, is_last)

    def prefill_tokens(self, tokens, table, begin, is_last):
        count = len(tokens)
        if self.options.fixed_batch:
            tokens = nn.functional.pad(tokens, (0, self.options.chunk - count))
        positions = torch.arange(begin, begin + count)
        slots = table[positions // BLOCK] * BLOCK + positions % BLOCK
        attend = PrefillAttention(self.shape, slots.to(self.device), table[: begin // BLOCK].to(self.device))
        rotary = self.model.rotary[begin : begin + len(tokens)]
        x = self.model(tokens.to(self.device), rotary, attend, self.caches)
        if is_last:
            self.results[:1] = self.model.next_tokens(x[count - 1 : count])
        fetched = self.fetch(1)
        return fetched if is_last else []

    def decode(self, requests):
        batch = next(batch for batch in self.batches if batch >= len(requests))
        if requests != self.staged_requests:
            tables = [self.table_row(request) for request in requests]
            torch.stack([*tables, *self.padding[len(tables) : batch]], out=self.staged[:batch])
            self.staged_requests = requests
        newest = [(request.tokens[-1], request.position) for request in requests]
        self.staged[: len(requests), :TABLE] = torch.tensor(newest)
        spans = sum(request.position // SPAN + 1 for request in requests) + batch - len(requests)
        self.decode_rows(batch, spans)
        return self.fetch(len(requests))

    def table_row(self, request):
        """A request's input but for its token and position; its blocks stay the same as long as it runs."""
        if request.table_row is None:
            unused = [self.block_count] * (self.table_width - len(request.blocks))
            request.table_row = torch.tensor([0, 0, *request.blocks, *unused])
        return request.table_row

    def decode_rows(self, batch, spans):
        self.inputs[:batch].copy_(self.staged[:batch], non_blocking=True)
        spans = self.padded_spans(spans)
        graph = self.graphs.get((batch, spans))
        if graph:
            graph.replay()
        else:
            self.decode_step(batch, spans)

    def decode_step(self, batch, spans):
        inputs = self.inputs[:batch]
        attend = DecodeAttention(self.shape, inputs, spans, self.attend_to_spans)
        rotary = self.model.rotary.index_select(0, inputs[:, POSITION])
        x = self.model(inputs[:, TOKEN], rotary, attend, self.caches)
        self.results[:batch].copy_(self.model.next_tokens(x))

    def fetch(self, count):
        """Wait for the device, and return the first results."""
        self.fetched[:count].copy_(self.results[:count], non_blocking=True)
        if self.device != "cpu":
            torch.cuda.current_stream().synchronize()
        return self.fetched[:count].tolist()
