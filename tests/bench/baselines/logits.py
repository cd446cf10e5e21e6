#!/usr/bin/env python3
"""Logits of llama.cpp's prebuilt library, for comparison with ours.

logits.py MODEL 1,2,3 OUT writes the logits of every position as f32, like
`sluice logits MODEL --tokens 1,2,3 --out OUT`. The library is the one that quantize.py loads.
"""
import ctypes
import os
import sys

from quantize import load_library


class Params(ctypes.Structure):
    """Parameters of a model: opaque, passed on unchanged."""
    _fields_ = [("rest", ctypes.c_char * 1024)]


class ContextParams(ctypes.Structure):
    _fields_ = [("n_ctx", ctypes.c_uint32), ("rest", ctypes.c_char * 1020)]


class Batch(ctypes.Structure):
    _fields_ = [("n_tokens", ctypes.c_int32), ("token", ctypes.c_void_p), ("embd", ctypes.c_void_p),
                ("pos", ctypes.c_void_p), ("n_seq_id", ctypes.c_void_p), ("seq_id", ctypes.c_void_p),
                ("logits", ctypes.c_void_p)]


def main():
    model_path, ids, out = sys.argv[1:4]
    tokens = [int(t) for t in ids.split(",")]
    library = load_library()
    library.llama_model_default_params.restype = Params
    library.llama_model_load_from_file.argtypes = [ctypes.c_char_p, Params]
    library.llama_model_load_from_file.restype = ctypes.c_void_p
    library.llama_context_default_params.restype = ContextParams
    library.llama_init_from_model.argtypes = [ctypes.c_void_p, ContextParams]
    library.llama_init_from_model.restype = ctypes.c_void_p
    library.llama_batch_get_one.argtypes = [ctypes.c_void_p, ctypes.c_int32]
    library.llama_batch_get_one.restype = Batch
    library.llama_decode.argtypes = [ctypes.c_void_p, Batch]
    library.llama_get_logits_ith.argtypes = [ctypes.c_void_p, ctypes.c_int32]
    library.llama_get_logits_ith.restype = ctypes.POINTER(ctypes.c_float)
    library.llama_model_get_vocab.argtypes = [ctypes.c_void_p]
    library.llama_model_get_vocab.restype = ctypes.c_void_p
    library.llama_vocab_n_tokens.argtypes = [ctypes.c_void_p]
    model = library.llama_model_load_from_file(model_path.encode(), library.llama_model_default_params())
    if not model:
        sys.exit(f"llama.cpp cannot open {model_path}")
    params = library.llama_context_default_params()
    params.n_ctx = max(64, len(tokens))
    context = library.llama_init_from_model(model, params)
    width = library.llama_vocab_n_tokens(library.llama_model_get_vocab(model))
    stored = (ctypes.c_int32 * len(tokens))(*tokens)
    wanted = (ctypes.c_int8 * len(tokens))(*[1] * len(tokens))
    batch = library.llama_batch_get_one(ctypes.cast(stored, ctypes.c_void_p), len(tokens))
    batch.logits = ctypes.cast(wanted, ctypes.c_void_p)
    if library.llama_decode(context, batch) != 0:
        sys.exit("llama_decode failed")
    with open(out, "wb") as file:
        for row in range(len(tokens)):
            file.write(ctypes.string_at(library.llama_get_logits_ith(context, row), 4 * width))


main()
sys.stdout.flush()
os._exit(0)  # skips the library's destructors, which free memory that is still in use
