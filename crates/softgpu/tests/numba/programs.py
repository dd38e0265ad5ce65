"""Ordinary Numba CUDA programs, each compared with NumPy.

Numba compiles them to PTX with NVVM and runs them through the driver that NUMBA_CUDA_DRIVER names: it knows
nothing of DetShare. `python3 programs.py [NAME...]` prints one line for each and exits with 1 if any fails.
The programs are in the files beside this one, by theme: whatever a file's list PROGRAMS names.
"""

import sys
import traceback

import arrays
import atomics
import compatibility
import compilation
import cooperation
import exceptions
import foreign
import grids
import interfaces
import mathematics
import memory
import processes
import randomness
import records
import reductions
import streams
import ufuncs

THEMES = [
    arrays,
    atomics,
    compatibility,
    compilation,
    cooperation,
    exceptions,
    foreign,
    grids,
    interfaces,
    mathematics,
    memory,
    processes,
    randomness,
    records,
    reductions,
    streams,
    ufuncs,
]
PROGRAMS = [program for theme in THEMES for program in theme.PROGRAMS]


def main():
    wanted = sys.argv[1:] or [program.__name__ for program in PROGRAMS]
    failed = 0
    chosen = [program for program in PROGRAMS if program.__name__ in wanted]
    for program in chosen:
        try:
            program()
            verdict = "ok"
        except Exception:
            verdict = f"failed\n{traceback.format_exc()}"
            failed += 1
        print(f"{program.__name__} ... {verdict}", flush=True)
    print(f"{len(chosen) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
