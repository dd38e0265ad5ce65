"""Run the compiled CUDA C++ samples on a GPU and write down their results.

`python3 samples.py --programs samples --out samples.json` in the GPU bundle; then, in the repository,
`cargo xtask samples --bless samples.json` makes them what the software GPU must compute too.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

LIMIT_S = 60
NO_GPU = 77


def main():
    options = parse_arguments()
    gpu, driver_version = describe_gpu()
    if gpu is None:
        print("skipped: no GPU")
        return NO_GPU
    samples, failed = {}, {}
    for program in sorted(path for path in options.programs.iterdir() if path.is_file()):
        results, reason = run(program.resolve())
        if reason is None:
            samples[program.name] = results
        else:
            failed[program.name] = reason
        print(f"{program.name}: {reason or 'passed'}", flush=True)
    summary = f"{len(samples)} samples passed, {len(failed)} failed"
    report = {
        "summary": summary,
        "gpu": gpu,
        "driver_version": driver_version,
        "failed": [f"{name}: {reason}" for name, reason in failed.items()],
        "samples": samples,
    }
    options.out.write_text(json.dumps(report, indent=1) + "\n")
    print(summary)
    return 1 if failed else 0


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--programs", type=Path, required=True, metavar="DIR")
    parser.add_argument("--out", type=Path, default="samples.json", metavar="FILE")
    return parser.parse_args()


def run(program):
    """A sample's results, or why there are none."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "results.json"
        try:
            ended = subprocess.run(
                [program, file], capture_output=True, text=True, timeout=LIMIT_S, errors="replace"
            )
        except subprocess.TimeoutExpired:
            return None, "stopped at its time limit"
        if ended.returncode != 0:
            return None, f"exit code {ended.returncode}: {(ended.stdout + ended.stderr)[-600:]}"
        return json.loads(file.read_text()), None


def describe_gpu():
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        line = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None, None
    name, _, version = line.partition("\n")[0].partition(", ")
    return name or None, version or None


if __name__ == "__main__":
    sys.exit(main())
