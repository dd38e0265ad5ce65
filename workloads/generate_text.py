"""Text generation with `transformers`: a small Llama with random weights and a batch of prompts.

`generate()` runs it token by token, eagerly, with a KV cache that grows. The prompts differ in
length and are padded on the left, so attention takes a mask.
"""

import os

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # must be set before cuBLAS starts
os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is downloaded: the weights are random

from functools import partial

import torch

import workload

DEVICE = "cuda"
VOCABULARY = 32000
PADDING, START, END = 0, 1, 2
FIRST_WORD = 3  # tokens from here on are text
HEAD_WIDTH = 64
HEADS_PER_KEY = 4  # grouped-query attention


def build_model(options, device):
    from transformers import LlamaConfig, LlamaForCausalLM

    heads = options.hidden // HEAD_WIDTH
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=options.hidden,
        intermediate_size=3 * options.hidden,
        num_hidden_layers=options.layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // HEADS_PER_KEY,
        max_position_embeddings=options.prompt + options.tokens,
        pad_token_id=PADDING,
        bos_token_id=START,
        eos_token_id=END,
    )
    with torch.device(device):
        model = LlamaForCausalLM(config)
    return model.to(torch.bfloat16).eval()


def padded_prompts(options, device):
    """Random prompts of half the longest length and more, padded on the left; and their mask."""
    shape = (options.batch, options.prompt)
    tokens = torch.randint(FIRST_WORD, VOCABULARY, shape)
    lengths = torch.randint(options.prompt // 2, options.prompt + 1, (options.batch, 1))
    mask = torch.arange(options.prompt) >= options.prompt - lengths
    return tokens.masked_fill(~mask, PADDING).to(device), mask.long().to(device)


def program(options, device=DEVICE):
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    model = build_model(options, device)
    prompts, mask = padded_prompts(options, device)
    outcome = model.generate(
        prompts,
        attention_mask=mask,
        do_sample=False,
        use_cache=True,
        max_new_tokens=options.tokens,
        min_new_tokens=options.tokens,  # every run does the same number of steps
        return_dict_in_generate=True,
        output_logits=True,
    )
    tokens = outcome.sequences[:, options.prompt :]

    token_bytes = workload.torch_bytes([tokens])
    logit_bytes = workload.torch_bytes([outcome.logits[-1]])
    workload.print_checksum("tokens", token_bytes)
    workload.print_checksum("last logits", logit_bytes)
    return token_bytes + logit_bytes


def parse_arguments(arguments=None):
    parser = workload.argument_parser(__doc__.partition("\n")[0])
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=64, help="tokens of the longest prompt")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of each answer")
    options = parser.parse_args(arguments)
    if options.hidden % (HEAD_WIDTH * HEADS_PER_KEY):
        parser.error(f"--hidden must be a multiple of {HEAD_WIDTH * HEADS_PER_KEY}")
    return options


if __name__ == "__main__":
    command_line = parse_arguments()
    workload.skip_without_gpu()
    workload.run(partial(program, command_line), workload.profile_with_torch, command_line)
