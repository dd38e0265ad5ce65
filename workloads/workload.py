"""What the workloads share: their command line, their result file, and counting kernel launches.

A workload is a function that does all of a program's CUDA work and returns its results, in a fixed
order, as a list of `bytes`.
"""

import argparse
import json
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


def run(program, profile):
    """Run `program` and write what the command line asks for.

    `profile` runs a program under the framework's profiler: it takes the program and returns the
    program's results and a launch report.
    """
    options = parse_arguments()
    if options.profile:
        results, report = profile(program)
        options.profile.write_text(json.dumps(report, indent=1) + "\n")
    else:
        results = program()
    options.out.write_bytes(b"".join(results))


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="FILE",
        help="write the raw bytes of every result to FILE",
    )
    parser.add_argument(
        "--profile",
        type=Path,
        metavar="FILE",
        help="run under the framework's profiler and write its launch counts to FILE, as JSON",
    )
    return parser.parse_args()


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
