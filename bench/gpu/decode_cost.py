"""What the shim costs a 7B-like model that decodes by a CUDA graph while its streams stay on the whole GPU.

Processes without and with the shim alternate; each process's figure is the median of its steps. The
checksums of all must be the same.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent
ASKED = 1.01


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--shim", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=400)
    options = parser.parse_args()
    medians, checksums = {"bare": [], "shim": []}, set()
    for _ in range(options.rounds):
        for side, settings in (("bare", {}), ("shim", {"LD_PRELOAD": options.shim, "DETSHARE_SCHEDULE": "full"})):
            milliseconds, checksum = decode(settings, options.tokens)
            medians[side].append(milliseconds)
            checksums.add(checksum)
            print(f"{side} {milliseconds:.4f} ms a step", flush=True)
    bare, shim = (statistics.median(medians[side]) for side in ("bare", "shim"))
    ratio = shim / bare
    summary = f"a step: {bare:.4f} ms bare, {shim:.4f} ms with the shim, ratio {ratio:.4f} of {ASKED}"
    same = len(checksums) == 1
    figures = {"summary": summary, "ratio": ratio, "asked": ASKED, "medians_ms": medians, "same_bits": same}
    options.out.write_text(json.dumps(figures, indent=1) + "\n")
    print(summary)
    return 0 if same and ratio <= ASKED else 1


def decode(settings, tokens):
    """The median step of one process, and what it computed."""
    with tempfile.TemporaryDirectory() as folder:
        times = Path(folder) / "times.json"
        program = [sys.executable, str(ROOT / "workloads" / "llm_decode.py")]
        command = [*program, "--tokens", str(tokens), "--times", str(times)]
        done = subprocess.run(command, env=os.environ | settings, check=True, capture_output=True, text=True)
        return statistics.median(json.loads(times.read_text())) * 1e3, done.stdout


if __name__ == "__main__":
    sys.exit(main())
