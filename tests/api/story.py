"""Tells a story through libsluice with ctypes alone: LIBRARY MODEL PROMPT TOKENS SEED.

What this takes for the layout of structures is what sluice.h says, written once more by hand: a
program in any language can do the same.
"""
import ctypes as c
import sys

Piece = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.c_void_p)


class PieceView(c.Structure):
    _fields_ = [("token", c.c_int32), ("text", c.POINTER(c.c_char)), ("length", c.c_size_t)]


class Sampling(c.Structure):
    _fields_ = [
        ("size", c.c_size_t), ("seed", c.c_uint64), ("temperature", c.c_float),
        ("top_k", c.c_int32), ("top_p", c.c_float), ("min_p", c.c_float),
        ("repeat_penalty", c.c_float), ("frequency_penalty", c.c_float),
        ("presence_penalty", c.c_float), ("penalty_last_n", c.c_int32),
        ("logit_bias", c.c_void_p), ("n_logit_bias", c.c_size_t),
    ]


class GenerateOptions(c.Structure):
    _fields_ = [
        ("size", c.c_size_t), ("sampling", c.c_void_p), ("max_tokens", c.c_int64),
        ("prompt_flags", c.c_uint32), ("skip_special_tokens", c.c_int32), ("ignore_eos", c.c_int32),
        ("logprobs", c.c_int32), ("stop", c.c_void_p), ("n_stop", c.c_size_t),
        ("constraint", c.c_int32), ("whitespace", c.c_int32), ("constraint_text", c.c_char_p),
        ("on_token", Piece), ("token_user", c.c_void_p),
        ("stop_tokens", c.c_void_p), ("n_stop_tokens", c.c_size_t),
        ("pictures", c.c_void_p), ("n_pictures", c.c_size_t),
    ]


def main(library, model, prompt, tokens, seed):
    lib = c.CDLL(library)
    lib.sluice_last_error.restype = c.c_char_p

    def check(status):
        if status != 0:
            raise RuntimeError(lib.sluice_last_error().decode())

    engine, session = c.c_void_p(), c.c_void_p()
    check(lib.sluice_load(model.encode(), None, c.byref(engine)))
    check(lib.sluice_session_create(engine, c.byref(session)))
    told = bytearray(prompt.encode())

    @Piece
    def on_token(_user, piece):
        view = c.cast(piece, c.POINTER(PieceView)).contents
        told.extend(c.string_at(view.text, view.length))
        return 0

    sampling = Sampling()
    check(lib.sluice_sampling_default(c.byref(sampling), c.c_size_t(c.sizeof(sampling))))
    sampling.seed = int(seed)
    options = GenerateOptions()
    check(lib.sluice_generate_options_default(c.byref(options), c.c_size_t(c.sizeof(options))))
    options.sampling = c.cast(c.pointer(sampling), c.c_void_p)
    options.max_tokens = int(tokens)
    options.on_token = on_token
    text = prompt.encode()
    check(lib.sluice_generate(session, text, c.c_size_t(len(text)), c.byref(options), None))
    check(lib.sluice_session_free(session))
    lib.sluice_engine_free(engine)
    print(told.decode())


main(*sys.argv[1:])
