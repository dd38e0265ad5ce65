"""A trace for the simulator from what an LLM server did alone: `detshare bench --keep`, ALONE-PROGRAM.json.gz.

Decode steps are a line through their medians by how many spans they read; chunks take the GPU as long as the fastest of them, and
by how much others are longer is the host's. How fast either is on fewer SMs is not in the log: decode steps are given what was measured of a 7B-like one.
"""

import argparse
import gzip
import json
import math
import statistics
from collections import defaultdict
from pathlib import Path

GPU = {"name": "", "sms": 132}  # as bench/gpu/records.py leaves it
CHUNK, SPAN, ROWS = 512, 256, 32
CACHE_TOKENS = 65536
GROWTH = 1.15  # of decode steps, as workloads/llm_sizes.py has it
LAUNCHES = 128  # of a chunk
NODES = 420  # of a decode step's graph
HOST_NS = 600_000  # of a step, before the GPU has anything of it
ON_96, ON_64 = 1.02, 1.05
FASTEST = 0.1  # of all chunks: what the GPU takes, as it waits for the host in the others
LEAST_STEPS = 5  # for a median
REFUSED = "too long"  # for the server: no step is for it


def sizes():
    most = CACHE_TOKENS // SPAN + ROWS
    found = [ROWS]
    while found[-1] < most:
        found.append(min(most, math.ceil(found[-1] * GROWTH)))
    return found


def answered(server):
    return [it for it in server["requests"] if it["ended"] != REFUSED]


def decode_times(server):
    """Nanoseconds of the steps by their size; a line through the medians, as a median has few steps."""
    waiting = [{"prompt": it["prompt_length"], "output": it["tokens"], "read": 0, "tokens": 0} for it in answered(server)]
    running, times = [], defaultdict(list)
    for kind, begin, end, _, tokens in server["steps"]:
        if kind == "prefill":
            waiting[0]["read"] += tokens
            if waiting[0]["read"] >= waiting[0]["prompt"]:
                running.append(waiting.pop(0) | {"tokens": 1})
        else:
            held = sum((it["prompt"] + it["tokens"] - 1) // SPAN + 1 for it in running) + ROWS - len(running)
            times[next(size for size in sizes() if size >= held)].append(1e9 * (end - begin))
            running = [it | {"tokens": it["tokens"] + 1} for it in running]
        running = [it for it in running if it["tokens"] < it["output"]]
    known = {size: statistics.median(of) for size, of in times.items() if len(of) >= LEAST_STEPS}
    line = statistics.linear_regression(list(known), list(known.values()))
    return {size: round(line.intercept + line.slope * size) - HOST_NS for size in sizes()}


def trace(server, name):
    chunks = [round(1e9 * (end - begin)) for kind, begin, end, *_ in server["steps"] if kind == "prefill"]
    gpu_ns = sorted(chunks)[int(len(chunks) * FASTEST)]
    kernels = [kernel(f"{name}-prefill", 1, "compute", [(GPU["sms"], gpu_ns // LAUNCHES)])]
    decode = []
    for size, ns in decode_times(server).items():
        decode.append({"spans": size, "kernel": len(kernels)})
        durations = [(64, round(ns * ON_64)), (96, round(ns * ON_96)), (GPU["sms"], ns)]
        kernels.append(kernel(f"{name}-decode-{size}", NODES, "memory", durations))
    begin = server["requests"][0]["arrival"]
    requests = [
        {"at_ns": round(1e9 * (it["arrival"] - begin)), "prompt": it["prompt_length"], "output": it["tokens"]}
        for it in answered(server)
    ]
    rows = {"rows": ROWS, "chunk": CHUNK, "interleave": server["interleave"], "cache_tokens": CACHE_TOKENS, "host_ns": HOST_NS}
    steps = {"decode": decode, "prefill": [{"kernel": 0}] * LAUNCHES, "prefill_host_ns": [max(ns - gpu_ns - HOST_NS, 0) for ns in chunks]}
    tenant = {"name": name, "class": "latency", "server": rows | steps | {"requests": requests}}
    return {"version": 1, "gpu": GPU, "kernels": kernels, "tenants": [tenant]}


def kernel(name, nodes, bound, durations):
    found = [{"sms": sms, "ns": ns} for sms, ns in durations]
    return {"id": name, "name": name, "nodes": nodes, "bound": bound, "durations": found}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kept", type=Path, metavar="ALONE-PROGRAM.json.gz")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.json")
    options = parser.parse_args()
    with gzip.open(options.kept) as packed:
        kept = json.load(packed)
    options.out.write_text(json.dumps(trace(kept["server"], kept["program"]), separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
