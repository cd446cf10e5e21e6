#!/usr/bin/env python3
"""llama.cpp's quantizer from its prebuilt library, called like llama-quantize.

quantize.py IN OUT TYPE [THREADS [IMATRIX]]

The library is that of @node-llama-cpp/linux-x64 (npm install in this folder), or the one that LIBLLAMA names. No
package has the program itself.
"""
import ctypes
import glob
import os
import struct
import sys

FILE_TYPES = {"f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 7, "q5_0": 8, "q5_1": 9, "q2_k": 10, "q3_k_s": 11, "q3_k_m": 12,
              "q3_k_l": 13, "q4_k_s": 14, "q4_k_m": 15, "q5_k_s": 16, "q5_k_m": 17, "q6_k": 18,
              "iq2_xxs": 19, "iq2_xs": 20, "q2_k_s": 21, "iq3_xs": 22, "iq3_xxs": 23, "iq1_s": 24, "iq4_nl": 25,
              "iq3_s": 26, "iq3_m": 27, "iq2_s": 28, "iq2_m": 29, "iq4_xs": 30, "iq1_m": 31, "bf16": 32, "tq1_0": 36,
              "tq2_0": 37, "mxfp4": 38, "q1_0": 40}


class Params(ctypes.Structure):
    """llama_model_quantize_params up to the importance matrix, and space for the rest."""
    _fields_ = [("threads", ctypes.c_int32), ("file_type", ctypes.c_int32), ("types", ctypes.c_int32 * 2),
                ("flags", ctypes.c_bool * 8), ("imatrix", ctypes.c_void_p), ("rest", ctypes.c_char * 1024)]


class Imatrix(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("data", ctypes.POINTER(ctypes.c_float)), ("size", ctypes.c_size_t)]


def load_library():
    here = os.path.dirname(os.path.abspath(__file__))
    found = glob.glob(f"{here}/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64/libllama.*so")
    path = os.environ.get("LIBLLAMA") or (found[0] if found else sys.exit("npm install @node-llama-cpp/linux-x64 first"))
    base = ctypes.CDLL(glob.glob(f"{os.path.dirname(path)}/libggml.*so")[0], mode=ctypes.RTLD_GLOBAL)
    base.ggml_backend_load_all_from_path(os.path.dirname(path).encode())
    return ctypes.CDLL(path)


def importance_of(path):
    """Reads a file of `sluice convert --save-imatrix`: a GGUF of 1-D f32 tensors; counts are 1."""
    with open(path, "rb") as file:
        data = file.read()
    at = 8

    def take(form):
        nonlocal at
        values = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return values[0]

    def text():
        return take(f"{take('Q')}s")

    def value(kind):
        if kind == 8:
            text()
        elif kind == 9:
            element, count = take("I"), take("Q")
            for _ in range(count):
                value(element)
        else:
            take({4: "I", 5: "i", 6: "f", 7: "?"}[kind])

    n_tensors, n_keys = take("Q"), take("Q")
    for _ in range(n_keys):
        text()
        value(take("I"))
    tensors = []
    for _ in range(n_tensors):
        name, dims = text(), take("I")
        size = [take("Q") for _ in range(dims)]
        take("I")
        tensors.append((name, size[0], take("Q")))
    start = (at + 31) // 32 * 32
    found = []
    for name, size, offset in tensors:
        if name.endswith(b".in_sum2"):
            values = (ctypes.c_float * size).from_buffer_copy(data, start + offset)
            found.append(Imatrix(name[:-8], values, size))
    return (Imatrix * (len(found) + 1))(*found)


def main():
    source, out, kind = sys.argv[1:4]
    threads = int(sys.argv[4]) if len(sys.argv) > 4 else 2
    importance = importance_of(sys.argv[5]) if len(sys.argv) > 5 else None
    if kind not in FILE_TYPES:
        sys.exit(f"llama.cpp does not support file type {kind}")
    library = load_library()
    library.llama_model_quantize_default_params.restype = Params
    library.llama_model_quantize.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(Params)]
    library.llama_model_quantize.restype = ctypes.c_uint32
    params = library.llama_model_quantize_default_params()
    params.threads, params.file_type = threads, FILE_TYPES[kind]
    if importance is not None:
        params.imatrix = ctypes.cast(importance, ctypes.c_void_p)
    if library.llama_model_quantize(source.encode(), out.encode(), ctypes.byref(params)) != 0:
        sys.exit(f"llama.cpp refuses {kind}")


if __name__ == "__main__":
    main()
