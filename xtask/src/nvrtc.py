"""Compiles one CUDA source with NVRTC: `nvrtc.py LIBRARY SOURCE OPTION...` prints PTX on standard output."""

import ctypes
import os
import sys


def main(library, source, *options):
    nvrtc = ctypes.CDLL(library)
    nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p

    def call(name, *arguments):
        status = getattr(nvrtc, name)(*arguments)
        if status != 0:
            raise RuntimeError(f"{name}: {nvrtc.nvrtcGetErrorString(status).decode()}")

    def text(what):
        size = ctypes.c_size_t()
        call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        call(f"nvrtcGet{what}", program, buffer)
        return buffer.value

    program = ctypes.c_void_p()
    with open(source, "rb") as file:
        # The file name without its folder, because messages and possibly the output contain it.
        name = os.path.basename(source).encode()
        call("nvrtcCreateProgram", ctypes.byref(program), file.read(), name, 0, None, None)
    options = [option.encode() for option in options]
    try:
        call("nvrtcCompileProgram", program, len(options), (ctypes.c_char_p * len(options))(*options))
    except RuntimeError as error:
        sys.exit(f"{text('ProgramLog').decode()}{error}")
    sys.stdout.buffer.write(text("PTX"))


main(*sys.argv[1:])
