"""What the workloads share: their command line, their results, and counting kernel launches.

A workload is a function that does all of a program's CUDA work and returns its results, in a fixed
order, as a list of `bytes`.
"""

import argparse
import hashlib
import json
import sys
from collections import Counter
from pathlib import Path

# The names under which torch's profiler records the API calls that launch one kernel. A launch by
# the CUDA runtime (cuda...) is recorded once: the driver call (cu...) below it leaves no record.
KERNEL_LAUNCHES = {
    "cudaLaunchKernel",
    "cudaLaunchKernelExC",
    "cudaLaunchCooperativeKernel",
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cuLaunchCooperativeKernel",
}
GRAPH_LAUNCHES = {"cudaGraphLaunch", "cuGraphLaunch"}

EXIT_SKIPPED = 77  # the exit code by which test runners know that a program skipped itself


def run(program, profile, options=None):
    """Run `program`, print the checksum of its results and write what the command line asks for.

    `profile` runs a program under the framework's profiler: it takes the program and returns the
    program's results and a launch report. `options` is the parsed command line of a program that
    has options of its own.
    """
    options = options or argument_parser().parse_args()
    if options.profile:
        results, report = profile(program)
        options.profile.write_text(json.dumps(report, indent=1) + "\n")
    else:
        results = program()
    print_checksum("results", results)
    if options.out:
        options.out.write_bytes(b"".join(results))


def argument_parser(description=None):
    """The command line of every workload; a program with options of its own adds them to it."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="write the raw bytes of every result to FILE",
    )
    parser.add_argument(
        "--profile",
        type=Path,
        metavar="FILE",
        help="run under the framework's profiler and write its launch counts to FILE, as JSON",
    )
    return parser


def print_checksum(name, chunks):
    """Print the SHA-256 of `chunks`, a list of `bytes`, taken as one."""
    checksum = hashlib.sha256()
    for chunk in chunks:
        checksum.update(chunk)
    print(f"{name} sha256 {checksum.hexdigest()}", flush=True)


def launch_report(profiler, kernel_launches, graph_launches):
    """The JSON of --profile, from two counters of launches by name."""
    return {
        "profiler": profiler,
        "launches": sum(kernel_launches.values()),
        "graph_launches": sum(graph_launches.values()),
        "by_name": dict(sorted((kernel_launches + graph_launches).items())),
    }


def torch_bytes(tensors):
    """The raw bytes of each tensor; works for types that numpy lacks, such as bfloat16."""
    import torch

    return [
        tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        for tensor in tensors
    ]


def skip_without_gpu():
    """End a torch program where there is no GPU, in a way that test runners tell from a failure."""
    import torch

    if not torch.cuda.is_available():
        print("skipped: no GPU", flush=True)
        sys.exit(EXIT_SKIPPED)


def profile_with_torch(program):
    """Run `program` under torch's profiler, which sees every CUDA call of the process."""
    import torch
    from torch.profiler import ProfilerActivity

    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as recording:
        results = program()
    calls = Counter(
        event.name()
        for event in recording.profiler.kineto_results.events()
        if str(event.device_type()) == "DeviceType.CPU"
    )
    kernel_launches = Counter({name: calls[name] for name in KERNEL_LAUNCHES & calls.keys()})
    graph_launches = Counter({name: calls[name] for name in GRAPH_LAUNCHES & calls.keys()})
    report = launch_report(f"torch.profiler {torch.__version__}", kernel_launches, graph_launches)
    return results, report
