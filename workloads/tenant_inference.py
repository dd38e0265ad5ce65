"""A small server: it answers request after request with a Llama shape, token by token, at a user's pace.

Each request's prompts go through the model at once, and each further token is one replay of a CUDA graph, after which
the host fetches it and pauses, as a server does that has nothing to do until its users come back. A line is printed
after each token.
"""

import os

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # must be set before cuBLAS starts

import time
from functools import partial

import torch
from torch.nn.attention import sdpa_kernel

import llm_decode
import workload

DEVICE, DTYPE = llm_decode.DEVICE, llm_decode.DTYPE


class Server(llm_decode.Answers):
    """Answers in the making, of one request after another; its tensors stay where the graph has them."""

    def accept(self, prompts):
        length = prompts.shape[1]
        self.logits.copy_(self.model(prompts, torch.arange(length, device=prompts.device)))
        self.tokens.copy_(self.logits.argmax(-1, keepdim=True))
        self.position.fill_(length)


# As in llm_decode: all that runs here is deterministic as it is.
@torch.no_grad()
@sdpa_kernel(llm_decode.ATTENTION_BACKENDS)
def program(options, device=DEVICE):
    torch.manual_seed(0)
    used_length = options.prompt + options.tokens + 1
    alignment = llm_decode.CACHE_ALIGNMENT
    shape = llm_decode.Shape(
        layers=options.layers,
        hidden=options.hidden,
        heads=options.heads,
        mlp=options.mlp,
        vocabulary=options.vocabulary,
        batch=options.batch,
        cache_length=-(-used_length // alignment) * alignment,
    )
    model = llm_decode.Decoder(shape, device=device, dtype=DTYPE)
    prompt_shape = (options.requests, shape.batch, options.prompt)
    prompts = torch.randint(shape.vocabulary, prompt_shape, device=device)

    server = Server(model, prompts[0])
    for _ in range(llm_decode.EAGER_STEPS):
        server.step()
    graph = llm_decode.capture(server.step)
    results, step = [], 0
    for request in prompts:
        server.accept(request)
        for _ in range(options.tokens):
            graph.replay()
            results.append(server.tokens.cpu())
            step += 1
            print(f"step {step}", flush=True)
            time.sleep(options.pause_ms / 1000)
        results.append(server.logits.cpu())
    return workload.torch_bytes(results)


def parse_arguments(arguments=None):
    parser = workload.argument_parser(__doc__.partition("\n")[0])
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--mlp", type=int, default=5504)
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--prompt", type=int, default=64, help="tokens of each prompt")
    parser.add_argument("--tokens", type=int, default=200, help="tokens of each answer")
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--pause-ms", type=float, default=5.0, help="after each token")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    command_line = parse_arguments()
    workload.skip_without_gpu()
    workload.run(partial(program, command_line), workload.profile_with_torch, command_line)
