#!/usr/bin/env python3
"""Makes a BF16 Hugging Face directory with Qwen3-0.6B's layout at small sizes, and expectations.

The layout: tied embeddings, query and key norms, a head size that is not the hidden size divided by
the number of heads. reference.py computes the expectations.

    make_safetensors.py FOLDER [--shards N] [--stored-head]

writes config.json, tokenizer.json, model.safetensors (or shards with their index) and

    expected.json      prompt, 20 greedy tokens with their smallest margin, texts with token ids
    checkpoints/       embedding, residual stream after each layer, final norm and logits of the
                       prompt, with the index.txt that sluice compare reads
    reference.f32      logits of the tokens that make_hf.py takes by default

--stored-head repeats the embedding as lm_head.weight, as the published file does.
"""

import argparse
import json
import os
import re
import struct

import numpy as np

import reference

CONFIG = {
    "architectures": ["Qwen3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
    "bos_token_id": 317, "eos_token_id": 319, "head_dim": 32, "hidden_act": "silu",
    "hidden_size": 64, "initializer_range": 0.02, "intermediate_size": 96,
    "max_position_embeddings": 512, "max_window_layers": 12, "model_type": "qwen3",
    "num_attention_heads": 4, "num_hidden_layers": 12, "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 1000000, "sliding_window": None,
    "tie_word_embeddings": True, "torch_dtype": "bfloat16", "use_cache": True,
    "use_sliding_window": False, "vocab_size": 320,
}  # fmt: skip
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
WORDS = "the and there once upon time little girl was named said with that day"
TEXTS = ["Once upon a time there was a little girl.", "the day that was, and the day with 42 names!",
         "<|im_start|>user\nwho said that?<|im_end|>\n"]  # fmt: skip
TOKENS = [1, 5, 9, 40, 70, 101, 200, 3, 3, 17, 250, 99]  # as in make_hf.py
N_PROMPT, N_GREEDY, MIN_GAP = 16, 20, 0.05

# Qwen2's pre-tokenizer, and its equivalent for ASCII in Python's syntax.
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")  # fmt: skip
ASCII_SPLIT = SPLIT.replace(r"\p{L}", "a-zA-Z").replace(r"\p{N}", "0-9")
ASCII_SPLIT = re.sub(r"(?<=[?|])(a-zA-Z|0-9)", r"[\1]", ASCII_SPLIT)


# --- tokenizer -----------------------------------------------------------------------------------


def byte_letters():
    """GPT-2's printable stand-in for every byte."""
    printable = [b for b in range(256) if 0x20 < b < 0x7F or (b > 0xA0 and b != 0xAD)]
    letters, following = {b: chr(b) for b in printable}, 256
    for b in range(256):
        if b not in letters:
            letters[b] = chr(following)
            following += 1
    return [letters[b] for b in range(256)]


def make_vocabulary(size):
    """256 bytes, then merges that lead to WORDS, then the special tokens."""
    tokens, merges = byte_letters(), []
    space = tokens[ord(" ")]
    for word in WORDS.split():
        for start in (space, word[0]):
            so_far = start
            for letter in word if start == space else word[1:]:
                joined = so_far + letter
                if joined not in tokens and len(tokens) < size - len(SPECIALS):
                    merges.append((so_far, letter))
                    tokens.append(joined)
                so_far = joined
    if len(tokens) != size - len(SPECIALS):
        raise ValueError("WORDS give too few merges for the vocabulary size")
    return tokens + SPECIALS, merges


def encode(text, tokens, merges):
    """Byte-level BPE by definition: merge the earliest-learned pair until none is left."""
    letters, ids = byte_letters(), {token: i for i, token in enumerate(tokens)}
    ranks = {pair: i for i, pair in enumerate(merges)}
    out = []
    for part in re.split("(" + "|".join(map(re.escape, SPECIALS)) + ")", text):
        if part in SPECIALS:
            out.append(ids[part])
            continue
        for word in re.findall(ASCII_SPLIT, part):
            pieces = [letters[b] for b in word.encode()]
            while len(pieces) > 1:
                pairs = [ranks.get(pair, len(merges)) for pair in zip(pieces, pieces[1:])]
                best = min(range(len(pairs)), key=pairs.__getitem__)
                if pairs[best] == len(merges):
                    break
                pieces[best : best + 2] = [pieces[best] + pieces[best + 1]]
            out.extend(ids[piece] for piece in pieces)
    return out


def tokenizer_json(tokens, merges):
    def byte_level(**more):
        return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, **more}

    split = {"type": "Split", "pattern": {"Regex": SPLIT}, "behavior": "Isolated", "invert": False}
    n_ordinary = len(tokens) - len(SPECIALS)
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [
            {"id": n_ordinary + i, "content": text, "single_word": False, "lstrip": False,
             "rstrip": False, "normalized": False, "special": True}
            for i, text in enumerate(SPECIALS)
        ],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {
            "type": "Sequence", "pretokenizers": [split, byte_level(use_regex=False)],
        },
        "post_processor": byte_level(use_regex=False),
        "decoder": byte_level(use_regex=False),
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
            "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: i for i, token in enumerate(tokens[:n_ordinary])},
            "merges": [" ".join(pair) for pair in merges],
        },
    }  # fmt: skip


# --- weights -------------------------------------------------------------------------------------


def to_bf16(values):
    """Nearest bfloat16 as uint16, ties to even."""
    bits = values.astype("<f4").view("<u4").astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def from_bf16(bits):
    return (bits.astype("<u4") << 16).view("<f4").astype(np.float64)


def make_weights(c, seed):
    """{Hugging Face name: BF16 bits}, and {GGUF name: values} for the reference."""
    random = np.random.default_rng(seed)
    hugging, gguf_named = {}, {}

    def add(name, gguf_name, values):
        hugging[name] = to_bf16(values)
        gguf_named[gguf_name] = from_bf16(hugging[name])

    def matrix(name, gguf_name, rows, cols, gain=1.0):
        add(name, gguf_name, random.standard_normal((rows, cols)) * gain / np.sqrt(cols))

    def norm(name, gguf_name, n, mean=1.0):
        add(name, gguf_name, mean * (1.0 + 0.2 * random.standard_normal(n)))

    n, d_head, n_ff = c["hidden_size"], c["head_dim"], c["intermediate_size"]
    q, kv = (c[k] * d_head for k in ("num_attention_heads", "num_key_value_heads"))
    matrix("model.embed_tokens.weight", "token_embd.weight", c["vocab_size"], n, 0.4 * np.sqrt(n))
    for i in range(c["num_hidden_layers"]):
        theirs, ours = f"model.layers.{i}.", f"blk.{i}."
        norm(theirs + "input_layernorm.weight", ours + "attn_norm.weight", n)
        for t, rows, cols in (("q", q, n), ("k", kv, n), ("v", kv, n)):
            matrix(f"{theirs}self_attn.{t}_proj.weight", f"{ours}attn_{t}.weight", rows, cols)
        for t in "qk":
            norm(f"{theirs}self_attn.{t}_norm.weight", f"{ours}attn_{t}_norm.weight", d_head, 1.5)
        matrix(theirs + "self_attn.o_proj.weight", ours + "attn_output.weight", n, q)
        norm(theirs + "post_attention_layernorm.weight", ours + "ffn_norm.weight", n)
        for t, rows, cols in (("gate", n_ff, n), ("up", n_ff, n), ("down", n, n_ff)):
            matrix(f"{theirs}mlp.{t}_proj.weight", f"{ours}ffn_{t}.weight", rows, cols, 1.5)
    norm("model.norm.weight", "output_norm.weight", n, 0.5)
    return hugging, gguf_named


def write_safetensors(path, tensors):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, bits in sorted(tensors.items()):
        size = bits.nbytes
        header[name] = {
            "dtype": "BF16", "shape": list(bits.shape), "data_offsets": [offset, offset + size],
        }  # fmt: skip
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, bits in sorted(tensors.items()):
            file.write(bits.tobytes())


def write_shards(folder, tensors, n_shards):
    names = sorted(tensors)
    where = {}
    for shard in range(n_shards):
        file_name = f"model-{shard + 1:05}-of-{n_shards:05}.safetensors"
        chosen = names[shard::n_shards]
        write_safetensors(os.path.join(folder, file_name), {name: tensors[name] for name in chosen})
        where.update({name: file_name for name in chosen})
    total = sum(bits.nbytes for bits in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": where}
    write_json(os.path.join(folder, "model.safetensors.index.json"), index)


def write_json(path, value):
    with open(path, "w") as file:
        json.dump(value, file, ensure_ascii=False, indent=1)
        file.write("\n")


# --- expectations --------------------------------------------------------------------------------


def reference_model(c, weights):
    metadata = {
        "general.architecture": "qwen3",
        "qwen3.block_count": c["num_hidden_layers"],
        "qwen3.embedding_length": c["hidden_size"],
        "qwen3.attention.head_count": c["num_attention_heads"],
        "qwen3.attention.head_count_kv": c["num_key_value_heads"],
        "qwen3.attention.key_length": c["head_dim"],
        "qwen3.attention.layer_norm_rms_epsilon": c["rms_norm_eps"],
        "qwen3.rope.freq_base": float(c["rope_theta"]),
        "qwen3.context_length": c["max_position_embeddings"],
    }
    return reference.Model(metadata, weights)


def write_checkpoints(folder, model, prompt):
    os.makedirs(folder, exist_ok=True)
    trace = []
    logits = reference.llama(model, np.asarray(prompt), trace)
    last = reference.rms_norm(trace[-1], model.weight("output_norm.weight"), model.rms_eps)
    checkpoints = [("embd.GET_ROWS", model.weight("token_embd.weight")[prompt])]
    checkpoints += [(f"l_out-{layer}.ADD", x) for layer, x in enumerate(trace)]
    checkpoints += [("result_norm.MUL", last), ("result_output.MUL_MAT", logits)]
    with open(os.path.join(folder, "index.txt"), "w") as index:
        for name, values in checkpoints:
            values.astype("<f4").tofile(os.path.join(folder, name + ".f32"))
            rows, cols = values.shape
            index.write(f"{name}\t{name.split('.')[-1]}\t{cols} {rows} 1 1\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--stored-head", action="store_true")
    options = parser.parse_args()
    os.makedirs(options.folder, exist_ok=True)

    tokens, merges = make_vocabulary(CONFIG["vocab_size"])
    for seed in range(1000):  # until every greedy token has a clear margin
        tensors, weights = make_weights(CONFIG, seed)
        model = reference_model(CONFIG, weights)
        prompt = np.random.default_rng(seed).integers(0, 317, N_PROMPT).tolist()
        greedy, gap = reference.greedy(model, prompt, N_GREEDY, MIN_GAP)
        if gap >= MIN_GAP and len(set(greedy)) > N_GREEDY // 3:
            break
    else:
        raise RuntimeError("no seed gives a clear margin at every token")

    if options.stored_head:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    if options.shards > 1:
        write_shards(options.folder, tensors, options.shards)
    else:
        write_safetensors(os.path.join(options.folder, "model.safetensors"), tensors)
    write_json(os.path.join(options.folder, "config.json"), CONFIG)
    write_json(os.path.join(options.folder, "tokenizer.json"), tokenizer_json(tokens, merges))
    texts = [{"text": text, "ids": encode(text, tokens, merges)} for text in TEXTS]
    expected = {"prompt": prompt, "greedy": greedy, "greedy_min_gap": round(gap, 6), "texts": texts}
    write_json(os.path.join(options.folder, "expected.json"), expected)
    write_checkpoints(os.path.join(options.folder, "checkpoints"), model, prompt)
    logits = reference.logits(model, TOKENS).astype("<f4")
    logits.tofile(os.path.join(options.folder, "reference.f32"))
    print(f"seed {seed}, least lead {gap:.3f}, tokens {greedy}")


if __name__ == "__main__":
    main()
