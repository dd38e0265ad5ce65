"""Tests of llm_model.py, with the tiny model; skipped where PyTorch is missing."""

import importlib.util
import sys
import unittest
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import llm_trace
from llm_scheduler import BLOCK, BlockPool, Limits, Request, Scheduler


def engine(device="cpu", **options):
    import llm_model

    defaults = {
        "device": device,
        "cache_tokens": 4096,
        "longest_context": 1024,
        "rows": 4,
        "fixed_batch": True,
        "chunk": 64,
        "eager": False,
        "plain_attention": False,
        "seed": 0,
    }
    one = llm_model.Engine(llm_model.SHAPES["tiny"], llm_model.EngineOptions(**defaults | options))
    one.set_up()
    return one


def tokens_of(engine, requests, arrivals=None, **limits):
    """The tokens of each request; request by request, `arrivals` has the step before which it arrives."""
    options = engine.options
    limits = {
        "rows": options.rows,
        "longest_context": options.longest_context,
        "chunk": options.chunk,
    } | limits
    one = Scheduler(Limits(**limits), BlockPool(engine.block_count))
    coming = sorted(zip(arrivals or [0] * len(requests), requests), key=lambda pair: pair[0])
    number = 0
    while coming or one.busy():
        while coming and (coming[0][0] <= number or not one.busy()):
            one.submit(coming.pop(0)[1])
        step = one.next_step()
        one.step_done(step, engine.run(step), 0.0, 0.0)
        number += 1
    return {each.index: each.tokens for each in requests}


def random_requests(count, seed=0):
    random = Random(seed)
    lengths = [(random.randint(1, 600), random.randint(2, 30)) for _ in range(count)]
    return [
        Request(index, 0.0, llm_trace.prompt_tokens(seed, index, prompt, 512), output)
        for index, (prompt, output) in enumerate(lengths)
    ]


def devices():
    import torch

    return ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


@unittest.skipUnless(importlib.util.find_spec("torch"), "needs PyTorch")
class ModelTest(unittest.TestCase):
    """The tiny model, on the CPU and, where there is one, on the GPU."""

    def test_tokens_do_not_depend_on_the_batch(self):
        for device in devices():
            one = engine(device)
            alone = {}
            for each in random_requests(12):
                alone |= tokens_of(one, [each])
            for seed in range(2):
                arrivals = [Random(seed).randint(0, 60) for _ in range(12)]
                for interleave in (False, True):
                    together = tokens_of(one, random_requests(12), arrivals, interleave=interleave)
                    self.assertEqual(together, alone, device)

    def test_a_new_engine_gives_the_same_tokens(self):
        for device in devices():
            first, second = (tokens_of(engine(device), random_requests(6)) for _ in range(2))
            self.assertEqual(first, second)
            other_seed = tokens_of(engine(device, seed=1), random_requests(6))
            self.assertNotEqual(first, other_seed)
            eager = tokens_of(engine(device, eager=True), random_requests(6))
            self.assertEqual(first, eager)

    def test_steps_as_large_as_needed(self):
        for device in devices():
            one = engine(device, fixed_batch=False, chunk=0, rows=6)
            self.assertEqual(one.batches, [1, 2, 4, 8])
            together = tokens_of(one, random_requests(9), [0, 0, 0, 5, 5, 9, 9, 30, 31])
            for each in random_requests(9):
                self.assertEqual(len(together[each.index]), each.output_length)

    def test_decode_attention(self):
        """Against attention row by row: rows of one span and of several, full and not."""
        import torch

        import llm_model
        from llm_model import DTYPE, SPAN, DecodeAttention

        shape = llm_model.SHAPES["tiny"]
        for device in devices():
            torch.manual_seed(0)
            positions = [0, 15, SPAN - 1, SPAN, 3 * SPAN + 7]
            blocks = torch.randperm(5 * 4 * llm_model.BLOCKS_PER_SPAN)
            row_starts = torch.tensor([[0, position] for position in positions])
            inputs = torch.cat([row_starts, blocks.view(5, -1)], dim=1)
            cache = torch.randn(len(blocks) * BLOCK, shape.key_value_width).to(DTYPE)
            query = torch.randn(5, shape.heads, shape.head_width).to(DTYPE)
            key_value = torch.randn(5, shape.key_value_width).to(DTYPE)
            on_device = [tensor.to(device) for tensor in (cache, query, key_value)]
            kernels = [llm_model.plain_attention] + [llm_model.fused_attention] * (device != "cpu")
            for attend_to_spans in kernels:
                attention = DecodeAttention(shape, inputs.to(device), 12, attend_to_spans)
                result = attention(*on_device).cpu().float()
                for row, position in enumerate(positions):
                    slots = [
                        int(inputs[row, 2 + at // BLOCK]) * BLOCK + at % BLOCK for at in range(position + 1)
                    ]
                    rows = torch.cat([cache[slots[:-1]], key_value[row : row + 1]]).float()
                    key, value = rows.view(-1, 2, shape.key_value_heads, shape.head_width).permute(1, 2, 0, 3)
                    expected = torch.nn.functional.scaled_dot_product_attention(
                        query[row][None, :, None].float(), key[None], value[None], enable_gqa=True
                    )
                    torch.testing.assert_close(result[row], expected.flatten(), rtol=0.02, atol=0.02)

    def test_prefill_in_chunks(self):
        """Chunks, padded or not, leave the same in the cache as the whole prompt, but for rounding."""
        import torch

        for device in devices():
            caches, first_tokens = [], []
            for options in ({"fixed_batch": False, "chunk": 0}, {"fixed_batch": False}, {}):
                one = engine(device, **options)
                prompts = [llm_trace.prompt_tokens(0, index, 200, 512) for index in range(10)]
                tokens = [tokens_of(one, [Request(0, 0.0, prompt, 1)])[0] for prompt in prompts]
                first_tokens.append(tokens)
                caches.append(one.caches[-1][:200].float().cpu())  # the last prompt, as each has a new pool
            for cache, tokens in zip(caches[1:], first_tokens[1:]):
                torch.testing.assert_close(cache, caches[0], rtol=0.05, atol=0.05)
                same = sum(token == whole for token, whole in zip(tokens, first_tokens[0]))
                self.assertGreaterEqual(same, 8, "two tokens can be so near that rounding decides")

    def test_padding_leaves_the_cache_alone(self):
        one = engine()
        slots = one.block_count * BLOCK
        tokens_of(one, [Request(0, 0.0, llm_trace.prompt_tokens(0, 0, 20, 512), 5)])
        written = one.caches[0][:slots].any(dim=1).nonzero().flatten().tolist()
        self.assertEqual(written, list(range(24)), "the prompt, and all tokens of the answer but the last")

    def test_all_sizes_of_decode_steps_have_a_graph(self):
        import llm_model

        for options in ({}, {"fixed_batch": False, "rows": 64}, {"fixed_batch": False, "cache_tokens": 512}):
            one = engine(**options)
            sizes = set(one.graph_sizes())
            for batch in one.batches:
                longest = one.table_width // llm_model.BLOCKS_PER_SPAN
                for spans in range(batch, min(batch * longest, one.span_counts[-1]) + 1):
                    self.assertIn((batch, one.padded_spans(spans)), sizes)


if __name__ == "__main__":
    unittest.main()
