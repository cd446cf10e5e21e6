#!/usr/bin/env python3
"""Makes small random models of the families that have no published small checkpoint.

Writes the models and a manifest.json with expectations of reference.py: a prompt, the logits of
every position and 32 greedy tokens, as in tests/data/families. Metadata keys, tensor names and
shapes are those of llama.cpp's converter.

    make_families.py FOLDER [NAME ...]

Searches for a seed with a clear margin at every greedy token, so that a test may require equal
tokens.
"""

import json
import os
import sys

import numpy as np

import gguf
import reference
from gguf import F32, U32

N_VOCAB, N_CONTEXT, N_PROMPT, N_GREEDY = 288, 256, 24, 32
MIN_GAP = 0.05


def tokenizer():
    """A SentencePiece vocabulary: three special tokens, all bytes, a space and some letters."""
    letters = "\u2581etaoinshrdlucmfwypvbgkjqxz.,"
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + list(letters)
    types = [2, 3, 3] + [6] * 256 + [1] * len(letters)
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": tokens[:N_VOCAB],
        "tokenizer.ggml.scores": [F32(0.0)] * N_VOCAB,
        "tokenizer.ggml.token_type": [gguf.I32(t) for t in types[:N_VOCAB]],
        "tokenizer.ggml.bos_token_id": U32(1),
        "tokenizer.ggml.eos_token_id": U32(2),
        "tokenizer.ggml.unknown_token_id": U32(0),
    }


class Maker:
    """Collects the metadata and random tensors of one model."""

    def __init__(self, arch, seed, **dims):
        self.random = np.random.default_rng(seed)
        self.arch = arch
        self.tensors = {}
        self.d = dict(n_layer=3, n_embd=64, n_head=4, n_head_kv=2, n_ff=96, tied=False)
        self.d.update(dims)
        d = self.d
        d.setdefault("d_head", d["n_embd"] // d["n_head"])
        self.metadata = {"general.architecture": arch, "general.name": f"random-{arch}"}
        self.set("context_length", U32(N_CONTEXT))
        self.set("embedding_length", U32(d["n_embd"]))
        self.set("block_count", U32(d["n_layer"]))
        self.set("feed_forward_length", U32(d["n_ff"]))
        self.set("attention.head_count", U32(d["n_head"]))
        kv = d["n_head_kv"]
        self.set("attention.head_count_kv", [U32(n) for n in kv] if isinstance(kv, list) else U32(kv))
        self.set("vocab_size", U32(N_VOCAB))
        self.set("rope.freq_base", F32(10000.0))
        self.set("rope.dimension_count", U32(d["d_head"]))
        if d["d_head"] * d["n_head"] != d["n_embd"]:
            self.set("attention.key_length", U32(d["d_head"]))
            self.set("attention.value_length", U32(d["d_head"]))

    def set(self, key, value):
        self.metadata[f"{self.arch}.{key}"] = value

    def matrix(self, name, rows, cols, *outer, gain=1.0, dtype=np.float16):
        values = self.random.standard_normal((*outer, rows, cols)) * gain / np.sqrt(cols)
        self.tensors[name + ".weight"] = values.astype(dtype)

    def bias(self, name, n):
        self.tensors[name + ".bias"] = (0.2 * self.random.standard_normal(n)).astype(np.float32)

    def norm(self, name, *shape, mean=1.0):
        values = mean * (1.0 + 0.2 * self.random.standard_normal(shape))
        self.tensors[name + ".weight"] = values.astype(np.float32)

    # --- parts that families share

    def globals(self, norm="output_norm", norm_bias=False):
        d = self.d
        # A tied model repeats its input if the embedding outweighs what the layers add.
        rms = d.get("embedding_rms", 0.4 if d["tied"] else 1.0)
        self.matrix("token_embd", N_VOCAB, d["n_embd"], gain=rms * np.sqrt(d["n_embd"]))
        self.norm(norm, d["n_embd"], mean=d.get("final_gain", 0.5 if d["tied"] else 1.0))
        if norm_bias:
            self.bias(norm, d["n_embd"])
        if not d["tied"]:
            self.matrix("output", N_VOCAB, d["n_embd"], gain=2.0)

    def attention(self, b, biases="", n_head_kv=None):
        d = self.d
        q, kv = (d["d_head"] * n for n in (d["n_head"], n_head_kv or d["n_head_kv"]))
        for name, rows, cols, gain in (
            ("q", q, d["n_embd"], 1.6), ("k", kv, d["n_embd"], 1.6), ("v", kv, d["n_embd"], 1.0),
            ("output", d["n_embd"], q, 1.0),
        ):  # fmt: skip
            self.matrix(f"{b}attn_{name}", rows, cols, gain=gain)
            if name[0] in biases:
                self.bias(f"{b}attn_{name}", rows)

    def head_norms(self, b, mean=1.0):
        for t in "qk":
            self.norm(f"{b}attn_{t}_norm", self.d["d_head"], mean=mean)

    def ffn(self, b, gate=True, biases=False):
        d = self.d
        names = (["ffn_gate"] if gate else []) + ["ffn_up", "ffn_down"]
        for name in names:
            rows, cols = (d["n_embd"], d["n_ff"]) if name == "ffn_down" else (d["n_ff"], d["n_embd"])
            self.matrix(b + name, rows, cols, gain=1.5)
            if biases:
                self.bias(b + name, rows)

    def experts(self, b, n_expert, n_ff, n_shared=0):
        n_embd = self.d["n_embd"]
        self.matrix(b + "ffn_gate_inp", n_expert, n_embd, gain=2.0, dtype=np.float32)
        self.matrix(b + "ffn_gate_exps", n_ff, n_embd, n_expert, gain=1.5)
        self.matrix(b + "ffn_up_exps", n_ff, n_embd, n_expert, gain=1.5)
        self.matrix(b + "ffn_down_exps", n_embd, n_ff, n_expert, gain=1.5)
        if n_shared:
            self.matrix(b + "ffn_gate_shexp", n_shared, n_embd, gain=1.5)
            self.matrix(b + "ffn_up_shexp", n_shared, n_embd, gain=1.5)
            self.matrix(b + "ffn_down_shexp", n_embd, n_shared, gain=1.5)

    def blocks(self):
        return (f"blk.{i}." for i in range(self.d["n_layer"]))


# --- families ------------------------------------------------------------------------------------


def llama_like(m, norm_eps=1e-5, biases="", heads=False, ffn=None, ffn_norm="ffn_norm"):
    m.set("attention.layer_norm_rms_epsilon", F32(norm_eps))
    m.globals()
    for b in m.blocks():
        m.norm(b + "attn_norm", m.d["n_embd"])
        m.attention(b, biases)
        if heads:
            m.head_norms(b, 1.5)
        m.norm(b + ffn_norm, m.d["n_embd"])
        (ffn or m.ffn)(b)
    return m


def llama_biases(seed):
    m = Maker("llama", seed, n_layer=2)
    return llama_like(m, biases="qkvo", ffn=lambda b: m.ffn(b, biases=True))


def mistral_window(seed):
    m = Maker("mistral", seed, n_layer=2)
    m.set("attention.sliding_window", U32(6))
    return llama_like(m)


def exaone(seed):
    """NeoX pairing and Llama 3's factors."""
    m = Maker("exaone", seed, n_layer=2)
    factors = np.geomspace(1.0, 8.0, m.d["d_head"] // 2)
    m.tensors["rope_freqs.weight"] = factors.astype(np.float32)
    return llama_like(m)


def seed_oss(seed):
    m = Maker("seed_oss", seed, n_layer=2, d_head=24)
    return llama_like(m, 1e-6, biases="qkv", ffn_norm="post_attention_norm")


def glm4(seed):
    m = Maker("glm4", seed, n_layer=2)
    m.set("attention.layer_norm_rms_epsilon", F32(1e-5))
    m.set("rope.dimension_count", U32(m.d["d_head"] // 2))
    m.globals()
    n_embd, n_ff = m.d["n_embd"], m.d["n_ff"]
    for b in m.blocks():
        m.attention(b, "qkv")
        m.matrix(b + "ffn_up", 2 * n_ff, n_embd, gain=1.5)
        m.matrix(b + "ffn_down", n_embd, n_ff, gain=1.5)
        for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
            m.norm(b + name, n_embd)
    return m


def llama_moe(seed):
    m = Maker("llama", seed, n_ff=48)
    m.set("expert_count", U32(4))
    m.set("expert_used_count", U32(2))
    return llama_like(m, ffn=lambda b: m.experts(b, 4, 48))


def qwen3moe(seed):
    m = Maker("qwen3moe", seed, n_layer=2, d_head=32, tied=True)
    m.set("expert_count", U32(8))
    m.set("expert_used_count", U32(3))
    m.set("expert_feed_forward_length", U32(32))
    return llama_like(m, 1e-6, heads=True, ffn=lambda b: m.experts(b, 8, 32))


def granite(seed, arch="granite", ffn=None, **dims):
    m = Maker(arch, seed, embedding_rms=0.1, **dims)
    m.set("embedding_scale", F32(12.0))
    m.set("residual_scale", F32(0.22))
    m.set("attention.scale", F32(0.1))
    m.set("logit_scale", F32(1.5))
    return llama_like(m, ffn=ffn and (lambda b: ffn(m, b)))


def granitemoe(seed):
    m = granite(seed, "granitemoe", lambda m, b: m.experts(b, 4, 32, 48), n_layer=2, n_ff=32)
    m.set("expert_count", U32(4))
    m.set("expert_used_count", U32(2))
    m.set("expert_shared_feed_forward_length", U32(48))
    return m


def smollm3(seed):
    return llama_like(Maker("smollm3", seed, n_layer=5, n_embd=48, n_head=3, n_head_kv=1, tied=True))


def olmo2(seed):
    m = Maker("olmo2", seed)
    m.set("attention.layer_norm_rms_epsilon", F32(1e-6))
    m.globals()
    for b in m.blocks():
        m.attention(b)
        m.norm(b + "attn_q_norm", m.d["n_embd"], mean=1.5)
        m.norm(b + "attn_k_norm", m.d["n_head_kv"] * m.d["d_head"], mean=1.5)
        m.norm(b + "post_attention_norm", m.d["n_embd"])
        m.ffn(b)
        m.norm(b + "post_ffw_norm", m.d["n_embd"])
    return m


def stablelm(seed, parallel=False):
    m = Maker("stablelm", seed)
    m.set("attention.layer_norm_epsilon", F32(1e-5))
    m.set("rope.dimension_count", U32(m.d["d_head"] // 4))
    m.set("use_parallel_residual", parallel)
    m.globals(norm_bias=True)
    for b in m.blocks():
        m.norm(b + "attn_norm", m.d["n_embd"])
        m.bias(b + "attn_norm", m.d["n_embd"])
        m.attention(b, "" if parallel else "qkv")
        if parallel:
            m.norm(b + "attn_q_norm", m.d["n_head"], m.d["d_head"])
            m.norm(b + "attn_k_norm", m.d["n_head_kv"], m.d["d_head"])
        else:
            m.norm(b + "ffn_norm", m.d["n_embd"])
            m.bias(b + "ffn_norm", m.d["n_embd"])
        m.ffn(b)
    return m


def starcoder2(seed):
    m = Maker("starcoder2", seed, tied=True)
    m.set("attention.layer_norm_epsilon", F32(1e-5))
    m.globals(norm_bias=True)
    for b in m.blocks():
        for name in ("attn_norm", "ffn_norm"):
            m.norm(b + name, m.d["n_embd"])
            m.bias(b + name, m.d["n_embd"])
        m.attention(b, "qkvo")
        m.ffn(b, gate=False, biases=True)
    return m


def phi3_longrope_short(seed):
    """A context within the trained one: the short factors apply."""
    m = Maker("phi3", seed, n_layer=2)
    m.metadata["general.name"] = "random-longrope"  # llama.cpp needs special tokens of "phi3"
    m.set("attention.layer_norm_rms_epsilon", F32(1e-5))
    m.set("rope.scaling.type", "longrope")
    m.set("rope.scaling.original_context_length", U32(N_CONTEXT))
    m.set("rope.scaling.attn_factor", F32(1.19))
    m.globals()
    d = m.d
    for which, top in (("short", 1.5), ("long", 30.0)):
        factors = np.linspace(1.0, top, d["d_head"] // 2)
        m.tensors[f"rope_factors_{which}.weight"] = factors.astype(np.float32)
    for b in m.blocks():
        m.norm(b + "attn_norm", d["n_embd"])
        m.matrix(b + "attn_qkv", (d["n_head"] + 2 * d["n_head_kv"]) * d["d_head"], d["n_embd"])
        m.matrix(b + "attn_output", d["n_embd"], d["n_head"] * d["d_head"])
        m.norm(b + "ffn_norm", d["n_embd"])
        m.matrix(b + "ffn_up", 2 * d["n_ff"], d["n_embd"], gain=1.5)
        m.matrix(b + "ffn_down", d["n_embd"], d["n_ff"], gain=1.5)
    return m


def gemma3_scaled(seed):
    """As in the larger ones: linear scaling in the full layers, none in the windowed ones."""
    m = Maker("gemma3", seed, n_layer=7, n_embd=32, n_head=2, n_head_kv=1, d_head=24, tied=True,
              embedding_rms=0.15, final_gain=2.0)  # fmt: skip
    m.set("attention.layer_norm_rms_epsilon", F32(1e-6))
    m.set("rope.freq_base", F32(1e6))
    m.set("rope.scaling.type", "linear")
    m.set("rope.scaling.factor", F32(8.0))
    m.set("attention.sliding_window", U32(8))
    m.globals()
    for b in m.blocks():
        m.norm(b + "attn_norm", m.d["n_embd"])
        m.attention(b)
        m.head_norms(b, 1.5)
        m.norm(b + "post_attention_norm", m.d["n_embd"])
        m.norm(b + "ffn_norm", m.d["n_embd"])
        m.ffn(b)
        m.norm(b + "post_ffw_norm", m.d["n_embd"])
    return m


def lfm2(seed):
    m = Maker("lfm2", seed, n_layer=4, n_head_kv=[0, 2, 0, 1], tied=True)
    m.set("attention.layer_norm_rms_epsilon", F32(1e-5))
    m.set("shortconv.l_cache", U32(3))
    m.globals(norm="token_embd_norm")
    n_embd = m.d["n_embd"]
    for b, n_head_kv in zip(m.blocks(), m.d["n_head_kv"]):
        m.norm(b + "attn_norm", n_embd)
        if n_head_kv:
            m.attention(b, n_head_kv=n_head_kv)
            m.head_norms(b, 1.5)
        else:
            m.matrix(b + "shortconv.conv", n_embd, 3, gain=1.5, dtype=np.float32)
            m.matrix(b + "shortconv.in_proj", 3 * n_embd, n_embd)
            m.matrix(b + "shortconv.out_proj", n_embd, n_embd, gain=1.5)
        m.norm(b + "ffn_norm", n_embd)
        m.ffn(b)
    return m


def llama4_chunks(seed):
    """Chunks and a query temperature period so short that the prompt spans several of each."""
    m = Maker("llama4", seed, n_layer=4, n_embd=32, n_head=2, n_head_kv=1, n_ff=48, tied=True,
              embedding_rms=0.3)  # fmt: skip
    m.set("attention.sliding_window", U32(7))
    m.set("attention.temperature_length", U32(5))
    m.set("attention.temperature_scale", F32(0.3))
    m.set("expert_count", U32(2))
    m.set("expert_used_count", U32(1))
    m.set("expert_feed_forward_length", U32(16))
    m.set("interleave_moe_layer_step", U32(2))
    layers = iter(range(m.d["n_layer"]))
    return llama_like(m, ffn=lambda b: m.experts(b, 2, 16, 16) if next(layers) % 2 else m.ffn(b))


def smallthinker_window(seed):
    """A window that the prompt exceeds; published models have 4096."""
    m = Maker("smallthinker", seed, n_layer=5, n_embd=32, n_ff=32)
    m.set("attention.sliding_window", U32(6))
    m.set("expert_count", U32(6))
    m.set("expert_used_count", U32(3))
    m.set("expert_feed_forward_length", U32(32))
    m.set("expert_gating_func", U32(2))
    return llama_like(m, 1e-6, ffn=lambda b: m.experts(b, 6, 32))


FAMILIES = {
    "llama-biases": llama_biases,
    "llama-moe": llama_moe,
    "mistral-window": mistral_window,
    "exaone": exaone,
    "ernie4_5": lambda seed: llama_like(Maker("ernie4_5", seed, n_layer=2, tied=True)),
    "seed-oss": seed_oss,
    "glm4": glm4,
    "qwen3moe": qwen3moe,
    "granite": granite,
    "granitemoe": granitemoe,
    "smollm3": smollm3,
    "olmo2": olmo2,
    "stablelm": stablelm,
    "stablelm-parallel": lambda seed: stablelm(seed, parallel=True),
    "starcoder2": starcoder2,
    "phi3-longrope-short": phi3_longrope_short,
    "gemma3-scaled": gemma3_scaled,
    "lfm2": lfm2,
    "llama4-chunks": llama4_chunks,
    "smallthinker-window": smallthinker_window,
}


def make(name, folder):
    """Writes NAME.gguf and NAME.logits.f32; returns the manifest's entry."""
    path = os.path.join(folder, name + ".gguf")
    for seed in range(1000):
        maker = FAMILIES[name](seed)
        gguf.write(path, {**maker.metadata, **tokenizer()}, maker.tensors)
        model = reference.Model.load(path)  # the weights as rounded in the file
        prompt = [1] + maker.random.integers(3, N_VOCAB, N_PROMPT - 1).tolist()
        tokens, gap = reference.greedy(model, prompt, N_GREEDY, MIN_GAP)
        if gap >= MIN_GAP and len(set(tokens)) > N_GREEDY // 4:
            break
    else:
        raise RuntimeError(f"no seed gives {name} a margin of {MIN_GAP} at every token")
    logits = reference.logits(model, prompt).astype("<f4")
    logits.tofile(os.path.join(folder, name + ".logits.f32"))
    print(f"{name:22} seed {seed:3}  {os.path.getsize(path):7} bytes  gap {gap:.3f}  "
          f"logits {logits.std():.2f}  distinct {len(set(tokens))}")  # fmt: skip
    return {
        "name": name, "file": name + ".gguf", "arch": maker.arch, "prompt": prompt,
        "logits": name + ".logits.f32", "n_vocab": N_VOCAB, "greedy": tokens,
        "greedy_min_gap": round(gap, 6),
    }  # fmt: skip


def main():
    folder, names = sys.argv[1], sys.argv[2:] or list(FAMILIES)
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "manifest.json")
    entries = {}
    if os.path.exists(path):  # models that are not named keep their entries
        with open(path) as file:
            entries = {entry["name"]: entry for entry in json.load(file)}
    for name in names:
        entries[name] = make(name, folder)
        with open(path, "w") as file:
            file.write("[\n" + ",\n".join(map(json.dumps, entries.values())) + "\n]\n")


if __name__ == "__main__":
    main()
