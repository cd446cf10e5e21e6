"""What the scripts beside it call of llama.cpp's prebuilt library: a model, a context, a forward pass."""
import ctypes
import sys

from quantize import load_library


class Params(ctypes.Structure):
    """llama_model_params up to its switches, and space for the rest."""
    _fields_ = [("pointers", ctypes.c_void_p * 9), ("vocab_only", ctypes.c_bool), ("check_tensors", ctypes.c_bool),
                ("use_extra_bufts", ctypes.c_bool), ("rest", ctypes.c_char * 1024)]


class ContextParams(ctypes.Structure):
    _fields_ = [("n_ctx", ctypes.c_uint32), ("rest", ctypes.c_char * 1020)]


class Batch(ctypes.Structure):
    _fields_ = [("n_tokens", ctypes.c_int32), ("token", ctypes.c_void_p), ("embd", ctypes.c_void_p),
                ("pos", ctypes.c_void_p), ("n_seq_id", ctypes.c_void_p), ("seq_id", ctypes.c_void_p),
                ("logits", ctypes.c_void_p)]


class Context:
    """A model mapped from its file, with a context of n_ctx tokens; repack: weights are copied for speed."""

    def __init__(self, path, n_ctx, repack=True):
        self.library = library = load_library()
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
        library.llama_set_n_threads.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32]
        params = library.llama_model_default_params()
        params.use_extra_bufts = repack
        model = library.llama_model_load_from_file(path.encode(), params)
        if not model:
            sys.exit(f"llama.cpp cannot open {path}")
        self.vocabulary = library.llama_vocab_n_tokens(library.llama_model_get_vocab(model))
        context_params = library.llama_context_default_params()
        context_params.n_ctx = max(64, n_ctx)
        self.context = library.llama_init_from_model(model, context_params)
        if not self.context:
            sys.exit(f"llama.cpp has no context of {n_ctx} tokens for {path}")

    def decode(self, tokens, all_logits=False):
        """A forward pass over the next tokens; logits of the last one, or of all."""
        stored = (ctypes.c_int32 * len(tokens))(*tokens)
        wanted = (ctypes.c_int8 * len(tokens))(*[1] * len(tokens))
        batch = self.library.llama_batch_get_one(ctypes.cast(stored, ctypes.c_void_p), len(tokens))
        if all_logits:
            batch.logits = ctypes.cast(wanted, ctypes.c_void_p)
        if self.library.llama_decode(self.context, batch) != 0:
            sys.exit("llama_decode failed")

    def logits(self, row):
        return ctypes.string_at(self.library.llama_get_logits_ith(self.context, row), 4 * self.vocabulary)

    def set_threads(self, threads):
        self.library.llama_set_n_threads(self.context, threads, threads)
