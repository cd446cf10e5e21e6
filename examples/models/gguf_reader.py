"""Reads back what gguf_writer.py writes, so that sampling, perplexity and the reference outputs
start from the committed file itself and from the exact weights it holds.

Made for our own files: it trusts them. The engine's parser is the one that trusts nothing.
"""
import struct

import numpy as np
import torch

from bpe import Tokenizer
from gguf_writer import ALIGNMENT, BLOCK, F16, F32, Q4_0, Q8_0, dequantize
from model import Config, Model


def read(path):
    """(metadata, {name: (float32 array, type)}) of a file."""
    data = open(path, "rb").read()
    at = 0

    def take(layout):
        nonlocal at
        values = struct.unpack_from("<" + layout, data, at)
        at += struct.calcsize("<" + layout)
        return values[0] if len(values) == 1 else values

    def string():
        nonlocal at
        size = take("Q")
        at += size
        return data[at - size: at].decode()

    def value(kind):
        if kind == 8:
            return string()
        if kind == 9:
            item, count = take("IQ")
            return [value(item) for _ in range(count)]
        return take({4: "I", 5: "i", 6: "f", 7: "?"}[kind])

    _, _, n_tensors, n_keys = take("4sIQQ")
    metadata = {}
    for _ in range(n_keys):
        key = string()
        metadata[key] = value(take("I"))
    table = []
    for _ in range(n_tensors):
        name = string()
        dims = [take("Q") for _ in range(take("I"))]
        table.append((name, dims[::-1], *take("IQ")))
    at += -at % ALIGNMENT
    tensors = {}
    for name, shape, kind, offset in table:
        count = int(np.prod(shape))
        size = {F32: count * 4, F16: count * 2, Q8_0: count // BLOCK * 34,
                Q4_0: count // BLOCK * 18}[kind]
        start = at + offset
        tensors[name] = dequantize(data[start: start + size], kind, shape), kind
    return metadata, tensors


def load(path):
    """(model in double precision with exactly the file's weights, tokenizer, metadata)."""
    metadata, tensors = read(path)
    get = lambda key: metadata["llama." + key]
    config = Config(
        n_vocab=get("vocab_size"), n_ctx=get("context_length"), n_embd=get("embedding_length"),
        n_layer=get("block_count"), n_ff=get("feed_forward_length"),
        n_head=get("attention.head_count"), n_head_kv=get("attention.head_count_kv"),
        head_dim=get("attention.key_length"), rope_freq_base=get("rope.freq_base"),
        rms_eps=get("attention.layer_norm_rms_epsilon"))
    model = Model(config).double().eval()
    model.load_state_dict({n: torch.tensor(a).double() for n, (a, _) in tensors.items()})
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    tokenizer = Tokenizer([t for t, kind in zip(tokens, types) if kind == 3],
                          [m.split(" ") for m in metadata["tokenizer.ggml.merges"]])
    assert tokenizer.tokens == tokens
    return model, tokenizer, metadata
