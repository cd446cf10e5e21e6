#!/usr/bin/env python3
"""Writes a GGUF model of F32 weights as a Hugging Face directory, and its expected logits.

    make_hf.py MODEL.gguf FOLDER [--dtype BF16|F16|F32] [--shards N] [--tokens 1,2,3]

FOLDER gets config.json, tokenizer.json, tokenizer_config.json, the safetensors and reference.f32:
the logits of the tokens, computed in double precision from the rounded weights by reference.py.
The script inverts a GGUF converter. Queries and keys of the llama family return to rotate-half
order, gemma's norms lose their added 1, and Llama 3's factors become a rope_scaling.
"""

import argparse
import json
import os
import struct

import numpy as np

import gguf
import reference

PARTS = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip
PERMUTED = ("llama", "mistral", "smollm3")
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def rounded(x, dtype):
    """The nearest float32 values that `dtype` can represent, ties to even."""
    x = np.asarray(x, np.float32)
    if dtype == "F16":
        return x.astype(np.float16).astype(np.float32)
    if dtype == "BF16":
        bits = np.ascontiguousarray(x).view(np.uint32).astype(np.uint64)
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
        return bits.astype(np.uint32).view(np.float32).reshape(x.shape)
    return x


def stored(x, dtype):
    if dtype == "BF16":
        return (np.ascontiguousarray(x).view(np.uint32) >> 16).astype("<u2").tobytes()
    return x.astype("<f2" if dtype == "F16" else "<f4").tobytes()


def to_halves(x, n_head, inverse=False):
    """Reorders rows of each head from pairs (2i, 2i+1) to halves (i, i + d/2), for rotate-half."""
    d = x.shape[0] // n_head
    split = (2, d // 2) if inverse else (d // 2, 2)
    return x.reshape(n_head, *split, -1).swapaxes(1, 2).reshape(x.shape)


def hf_name(name, arch):
    whole = {"token_embd.weight": "model.embed_tokens.weight", "output.weight": "lm_head.weight",
             "output_norm.weight": "model.norm.weight"}  # fmt: skip
    if name in whole:
        return whole[name]
    _, layer, part, suffix = name.split(".")
    post = arch in ("gemma2", "gemma3")
    norms = {"ffn_norm": "pre_feedforward_layernorm" if post else "post_attention_layernorm",
             "post_attention_norm": "post_attention_layernorm",
             "post_ffw_norm": "post_feedforward_layernorm"}  # fmt: skip
    return f"model.layers.{layer}.{PARTS.get(part) or norms[part]}.{suffix}"


def convert(model, dtype):
    """{HF name: float32 array}. Replaces the model's own tensors by the rounded ones."""
    arch, out = model.arch, {}
    for name, x in model.tensors.items():
        if name == "rope_freqs.weight":
            continue
        heads = {"attn_q": model.n_head, "attn_k": model.n_head_kv}.get(name.split(".")[-2])
        permuted = arch in PERMUTED and heads
        if permuted:
            x = to_halves(x, heads)
        shift = 1.0 if arch.startswith("gemma") and "norm" in name else 0.0
        x = rounded(x - shift, dtype)
        out[hf_name(name, arch)] = x
        back = x.astype(np.float64) + shift
        model.tensors[name] = to_halves(back, heads, inverse=True) if permuted else back
    return out


def config_of(model, tensors):
    arch = model.arch
    config = {
        "model_type": {"gemma3": "gemma3_text"}.get(arch, arch),
        "vocab_size": tensors["model.embed_tokens.weight"].shape[0],
        "hidden_size": model.n_embd, "num_hidden_layers": model.n_layer,
        "num_attention_heads": model.n_head, "num_key_value_heads": model.n_head_kv,
        "head_dim": model.d_head, "intermediate_size": model.get("feed_forward_length"),
        "max_position_embeddings": model.context, "rms_norm_eps": model.rms_eps,
        "rope_theta": model.get("rope.freq_base", 10000.0),
        "tie_word_embeddings": "lm_head.weight" not in tensors,
    }  # fmt: skip
    if "rope_freqs.weight" in model.tensors:
        original = model.get("rope.scaling.original_context_length", 8192)
        config["rope_scaling"] = {
            "rope_type": "llama3", "original_max_position_embeddings": original, **LLAMA3,
        }  # fmt: skip
        model.tensors["rope_freqs.weight"] = llama3_divisors(config)
    elif model.get("rope.scaling.type") in ("linear", "yarn"):
        config["rope_scaling"] = {"rope_type": model.get("rope.scaling.type"),
                                  "factor": model.get("rope.scaling.factor")}  # fmt: skip
        original = model.get("rope.scaling.original_context_length")
        if original:
            config["rope_scaling"]["original_max_position_embeddings"] = original
    if model.get("attention.sliding_window"):
        config["sliding_window"] = model.get("attention.sliding_window")
    if arch.startswith("gemma"):
        config["hidden_activation"] = "gelu_pytorch_tanh"
    if arch == "gemma2":
        config["attn_logit_softcapping"] = model.get("attn_logit_softcapping")
        config["final_logit_softcapping"] = model.get("final_logit_softcapping")
    if arch in ("gemma2", "gemma3"):
        config["query_pre_attn_scalar"] = model.d_head
    return config


def llama3_divisors(config):
    """The frequency scaling of Llama 3.1's model card."""
    rule, d = config["rope_scaling"], config["head_dim"]
    frequency = config["rope_theta"] ** (-np.arange(0, d, 2) / d)
    wave = 2 * np.pi / frequency
    original = rule["original_max_position_embeddings"]
    low, high = original / rule["low_freq_factor"], original / rule["high_freq_factor"]
    smooth = (original / wave - rule["low_freq_factor"]) / (
        rule["high_freq_factor"] - rule["low_freq_factor"]
    )
    blended = 1 / ((1 - smooth) / rule["factor"] + smooth)
    return np.where(wave < high, 1.0, np.where(wave > low, rule["factor"], blended))


def tokenizer_of(n_vocab):
    """A byte-level vocabulary: 256 bytes, then special tokens up to the embedding's rows."""

    def spelling(byte):
        def printable(b):
            return 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255

        if printable(byte):
            return chr(byte)
        return chr(256 + sum(not printable(b) for b in range(byte)))

    added = [{"id": i, "content": f"<|{i}|>", "special": True} for i in range(256, n_vocab)]
    split = {"type": "Split", "pattern": {"Regex": QWEN2}, "behavior": "Isolated", "invert": False}
    return {
        "version": "1.0", "added_tokens": added, "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            split, {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}]},
        "model": {"type": "BPE", "byte_fallback": False, "ignore_merges": False,
                  "vocab": {spelling(b): b for b in range(256)}, "merges": []},
    }  # fmt: skip


def write_safetensors(path, tensors, dtype):
    directory, data = {"__metadata__": {"format": "pt"}}, b""
    for name, x in tensors.items():
        raw = stored(x, dtype)
        directory[name] = {"dtype": dtype, "shape": list(x.shape),
                           "data_offsets": [len(data), len(data) + len(raw)]}  # fmt: skip
        data += raw
    head = json.dumps(directory, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head + data)


def write_weights(folder, tensors, dtype, n_shards):
    if n_shards == 1:
        write_safetensors(os.path.join(folder, "model.safetensors"), tensors, dtype)
        return
    index = {}
    names = list(tensors)
    for i in range(n_shards):
        file = f"model-{i + 1:05}-of-{n_shards:05}.safetensors"
        part = {name: tensors[name] for name in names[i::n_shards]}
        write_safetensors(os.path.join(folder, file), part, dtype)
        index.update({name: file for name in part})
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as file:
        json.dump({"metadata": {}, "weight_map": index}, file)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("folder")
    parser.add_argument("--dtype", default="BF16", choices=("BF16", "F16", "F32"))
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--tokens", default="1,5,9,40,70,101,200,3,3,17,250,99")
    args = parser.parse_args()
    os.makedirs(args.folder, exist_ok=True)
    model = reference.Model.load(args.model)
    tensors = convert(model, args.dtype)
    config = config_of(model, tensors)
    small = {"config.json": config, "tokenizer.json": tokenizer_of(config["vocab_size"]),
             "tokenizer_config.json": {"eos_token": "<|256|>", "add_bos_token": False}}  # fmt: skip
    for name, content in small.items():
        with open(os.path.join(args.folder, name), "w") as file:
            json.dump(content, file, indent=1)
            file.write("\n")
    write_weights(args.folder, tensors, args.dtype, args.shards)
    tokens = [int(t) for t in args.tokens.split(",")]
    logits = reference.logits(model, tokens).astype("<f4")
    logits.tofile(os.path.join(args.folder, "reference.f32"))
    print(f"{args.folder}: {len(tokens)} tokens, {logits.shape[-1]} logits each")


if __name__ == "__main__":
    main()
