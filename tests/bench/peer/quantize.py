#!/usr/bin/env python3
"""llama.cpp's quantizer, as its prebuilt library has it: quantize.py IN OUT TYPE, which is what llama-quantize does.

The library is that of @node-llama-cpp/linux-x64 (npm install in this folder), or the one that LIBLLAMA names. No
package has the program itself.
"""
import ctypes
import glob
import os
import sys

FILE_TYPES = {"f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 7, "q5_0": 8, "q5_1": 9, "q2_k": 10, "q3_k_s": 11, "q3_k_m": 12,
              "q3_k_l": 13, "q4_k_s": 14, "q4_k_m": 15, "q5_k_s": 16, "q5_k_m": 17, "q6_k": 18, "iq4_nl": 25,
              "iq4_xs": 30, "bf16": 32, "tq1_0": 36, "tq2_0": 37, "mxfp4": 38}


class Params(ctypes.Structure):
    """The first two fields of llama_model_quantize_params; room for whatever follows."""
    _fields_ = [("threads", ctypes.c_int32), ("file_type", ctypes.c_int32), ("rest", ctypes.c_char * 1024)]


def main():
    source, out, kind = sys.argv[1:4]
    if kind not in FILE_TYPES:
        sys.exit(f"llama.cpp has no file type {kind}")
    here = os.path.dirname(os.path.abspath(__file__))
    found = glob.glob(f"{here}/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64/libllama.*so")
    path = os.environ.get("LIBLLAMA") or (found[0] if found else sys.exit("npm install @node-llama-cpp/linux-x64 first"))
    base = ctypes.CDLL(glob.glob(f"{os.path.dirname(path)}/libggml.*so")[0], mode=ctypes.RTLD_GLOBAL)
    base.ggml_backend_load_all_from_path(os.path.dirname(path).encode())
    library = ctypes.CDLL(path)
    library.llama_model_quantize_default_params.restype = Params
    library.llama_model_quantize.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(Params)]
    library.llama_model_quantize.restype = ctypes.c_uint32
    params = library.llama_model_quantize_default_params()
    params.threads, params.file_type = 2, FILE_TYPES[kind]
    if library.llama_model_quantize(source.encode(), out.encode(), ctypes.byref(params)) != 0:
        sys.exit(f"llama.cpp refuses {kind}")


main()
