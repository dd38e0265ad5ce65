"""The driver API's conformance suite: on the driver alone, through the shim, and with another lane at every launch.

Whatever the driver alone passes must pass through the shim too, with the same codes where a test only notes them. A test that
fails on the driver alone is wrong about the driver, and fails here too.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

SUITE = Path(__file__).resolve().parent / "bin" / "conformance"
WAYS = {"driver": {}, "shim": {}, "moving": {"DETSHARE_SCHEDULE": "random:1"}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--driver", required=True)
    parser.add_argument("--shim", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", default="10")
    parser.add_argument("--ways", default="driver,moving", help=f"of {', '.join(WAYS)}; each takes minutes")
    parser.add_argument("only", nargs="*", help="parts of tests' names")
    options = parser.parse_args()
    reports, codes = {}, []
    for way, settings in ((way, WAYS[way]) for way in options.ways.split(",")):
        verdicts = options.out.with_suffix(f".{way}.json")
        library = options.driver if way == "driver" else options.shim
        command = [SUITE, "--jobs", options.jobs, "--driver", library, "--out", verdicts]
        if way != "driver" and "driver" in reports:
            command += ["--same-codes-as", options.out.with_suffix(".driver.json")]
        ended = subprocess.run(command + options.only, env=os.environ | settings, stdout=subprocess.DEVNULL, check=False)
        codes.append(ended.returncode)
        reports[way] = json.loads(verdicts.read_text())
        for test in reports[way]["tests"]:
            if test["verdict"] not in ("ok", "skipped"):
                print(f"{way}: {test['name']}: {test['detail']}", flush=True)
    summary = "; ".join(f"{way}: {report['summary']}" for way, report in reports.items())
    options.out.write_text(json.dumps({"summary": summary, **reports}, indent=1) + "\n")
    print(summary)
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
