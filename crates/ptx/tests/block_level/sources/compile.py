"""Compile the sources beside this file to PTX, into ../cases.

`cargo xtask block-level-corpus` fetches the compilers and runs it; then `block_level bless` writes the verdicts
into the files. Comments and empty lines of the compilers' output are left out, debug sections too.
"""

import argparse
import ctypes
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
CASES = HERE.parent / "cases"
NVCC_VARIANTS = {"sm_75": ["-arch=sm_75"], "sm_80": ["-arch=sm_80"], "sm_90": ["-arch=sm_90"]}
# As it is compiled to be debugged: every variable in memory.
UNOPTIMISED = ["-arch=sm_90", "-Xcicc", "-O0"]
NVRTC_VARIANTS = {"sm_70": ["--gpu-architecture=compute_70"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nvcc", type=Path, help="the nvcc to compile with")
    parser.add_argument("--nvrtc", type=Path, help="the folder of libnvrtc.so.12")
    parser.add_argument("--include", type=Path, action="append", default=[], help="a folder of headers for NVRTC")
    parser.add_argument("--numba", action="store_true", help="compile with Numba, which must be importable")
    options = parser.parse_args()
    sources = sorted(HERE.glob("*.cu"))
    if options.nvcc:
        for source in sources:
            least = architecture(source)
            variants = {name: args for name, args in NVCC_VARIANTS.items() if int(name[3:]) >= least}
            for name, arguments in (variants | {"unoptimised": UNOPTIMISED}).items():
                write("nvcc", source, name, compile_nvcc(options.nvcc, source, arguments))
    if options.nvrtc:
        nvrtc = load_nvrtc(options.nvrtc)
        for source in sources:
            if architecture(source) <= 70:
                for name, arguments in NVRTC_VARIANTS.items():
                    arguments = [*arguments, "-std=c++17", "-rdc=true", *(f"-I{folder}" for folder in options.include)]
                    write("nvrtc", source, name, compile_nvrtc(nvrtc, source.read_text(), arguments))
    if options.numba:
        compile_numba()


def compile_nvcc(nvcc, source, arguments):
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.ptx"
        subprocess.run([nvcc, "-ptx", "-std=c++17", "-rdc=true", *arguments, "-o", out, source], check=True)
        return out.read_text()


def architecture(source):
    found = re.search(r"^// architecture: (\d+)$", source.read_text(), re.MULTILINE)
    return int(found[1]) if found else 70


def write(folder, source, variant, ptx):
    """A case: the source's first comments, and the text without the compiler's."""
    header = []
    for line in source.read_text().splitlines():
        if not line.startswith("//"):
            break
        if not line.startswith("// architecture: "):
            header.append(line)
    header[0] = f"{header[0].rstrip('.')}: {source.name} by {folder}, {variant}."
    save(folder, f"{source.stem}.{variant}", header, ptx)


def save(folder, name, header, ptx):
    lines = [re.sub(r"\s*//.*$", "", line).rstrip() for line in without_sections(ptx).splitlines()]
    text = "\n".join(header + [line for line in lines if line]) + "\n"
    (CASES / folder).mkdir(parents=True, exist_ok=True)
    (CASES / folder / f"{name}.ptx").write_text(text)


def without_sections(ptx):
    return re.sub(r"^\s*\.section\s.*?^\s*\}\s*$", "", ptx, flags=re.MULTILINE | re.DOTALL)


def load_nvrtc(folder):
    for name in sorted(folder.glob("libnvrtc-builtins.so*")):
        ctypes.CDLL(str(name), mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(str(folder / "libnvrtc.so.12"))


def compile_nvrtc(nvrtc, text, arguments):
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    options = (ctypes.c_char_p * len(arguments))(*(argument.encode() for argument in arguments))
    succeed(nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"source.cu", 0, None, None))
    result = nvrtc.nvrtcCompileProgram(program, len(arguments), options)
    if result != 0:
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        sys.exit(log.value.decode())
    succeed(nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size)))
    ptx = ctypes.create_string_buffer(size.value)
    succeed(nvrtc.nvrtcGetPTX(program, ptx))
    return ptx.value.decode()


def succeed(result):
    if result != 0:
        sys.exit(f"NVRTC returned {result}")


def compile_numba():
    import numba_kernels

    for capability in ((7, 0), (8, 0), (9, 0)):
        variant = f"sm_{capability[0]}{capability[1]}"
        for function, signature, shape, arguments in numba_kernels.KERNELS:
            ptx = numba_kernels.compile_kernel(function, signature, capability)
            kernel = re.search(r"\.entry (\S+)\(", ptx)[1]
            header = [
                f"// {function.__name__} by Numba, {variant}.",
                f"// launch: {kernel} <<<{shape}>>> ({', '.join(arguments)})",
            ]
            save("numba", f"{function.__name__}.{variant}", header, ptx)


if __name__ == "__main__":
    main()
