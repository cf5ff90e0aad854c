"""Compiles device sources with NVRTC, the headers handed over by name as a Rust program would.

nvrtc.py LIBNVRTC INCLUDE_DIRECTORY SOURCE...
"""

import ctypes
import pathlib
import sys


def main(library, include, *sources):
    nvrtc = ctypes.CDLL(library)
    headers = sorted(pathlib.Path(include).rglob("*.h"))
    Strings = ctypes.c_char_p * len(headers)
    contents = Strings(*[header.read_bytes() for header in headers])
    names = Strings(*[str(header.relative_to(include)).encode() for header in headers])
    options = [b"-std=c++17", b"-arch=compute_90"]
    for source in sources:
        program = ctypes.c_void_p()
        text = pathlib.Path(source).read_bytes()
        name = pathlib.Path(source).name.encode()
        check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, name, len(headers), contents, names))
        status = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        if status != 0:
            size = ctypes.c_size_t()
            check(nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size)))
            log = ctypes.create_string_buffer(size.value)
            check(nvrtc.nvrtcGetProgramLog(program, log))
            sys.exit(f"{source}: NVRTC says {status}\n{log.value.decode()}")
        check(nvrtc.nvrtcDestroyProgram(ctypes.byref(program)))
        print(f"NVRTC compute_90: {source}")


def check(status):
    if status != 0:
        sys.exit(f"NVRTC call failed with {status}")


main(*sys.argv[1:])
