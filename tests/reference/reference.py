#!/usr/bin/env python3
"""Independent forward passes in double precision, one function per model family.

They follow the papers and model cards, share no code with the engine, and recompute the whole
sequence at every step, without a cache. x is always [tokens, n_embd]. A weight of GGUF shape
{cols, rows} is a numpy array [rows, cols], so a matrix multiplication is x @ w.T.

    reference.py MANIFEST     checks every model of a manifest.json against its stored logits
"""

import json
import os
import sys

import numpy as np

import gguf


class Model:
    """Weights and hyperparameters of one GGUF file."""

    def __init__(self, metadata, tensors):
        self.metadata, self.tensors = metadata, tensors
        self.arch = metadata["general.architecture"]
        self.n_layer = self.get("block_count")
        self.n_embd = self.get("embedding_length")
        self.n_head = self.get("attention.head_count")
        self.n_head_kv = self.get("attention.head_count_kv", self.n_head)
        self.d_head = self.get("attention.key_length", self.n_embd // self.n_head)
        self.n_rot = self.get("rope.dimension_count", self.d_head)
        self.rms_eps = self.get("attention.layer_norm_rms_epsilon", 0.0)
        self.ln_eps = self.get("attention.layer_norm_epsilon", 0.0)
        self.context = self.get("context_length")

    @staticmethod
    def load(path):
        return Model(*gguf.read(path))

    def get(self, key, default=None):
        return self.metadata.get(f"{self.arch}.{key}", default)

    def weight(self, name, layer=None):
        prefix = "" if layer is None else f"blk.{layer}."
        return self.tensors.get(prefix + name)

    def head(self):
        output = self.weight("output.weight")
        return self.weight("token_embd.weight") if output is None else output


# --- parts ---------------------------------------------------------------------------------------


def rms_norm(x, weight, eps):
    """Zhang and Sennrich, 2019, over the last axis."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def layer_norm(x, weight, bias, eps):
    """Ba, Kiros and Hinton, 2016, over the last axis."""
    x = x - np.mean(x, axis=-1, keepdims=True)
    x = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight
    return x if bias is None else x + bias


def silu(x):
    return x / (1.0 + np.exp(-x))


def gelu(x):
    """The tanh form (Hendrycks and Gimpel, 2016). llama.cpp rounds it to f16: see TOLERANCE."""
    return 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))


def softmax(x):
    x = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return x / np.sum(x, axis=-1, keepdims=True)


def linear(m, x, name, layer=None):
    y = x @ m.weight(name + ".weight", layer).T
    bias = m.weight(name + ".bias", layer)
    return y if bias is None else y + bias


def rope_angles(m, n_tokens, freq_base, scaled=True):
    """(cos, sin), each [tokens, n_rot / 2]. Su et al., 2021; YaRN: Peng et al., 2023."""
    pair = np.arange(m.n_rot // 2)
    kind = m.get("rope.scaling.type", "none") if scaled else "none"
    factor = m.get("rope.scaling.factor", 1.0) or 1.0
    trained = m.get("rope.scaling.original_context_length", m.context)
    frequency = freq_base ** (-2.0 * pair / m.n_rot)
    magnitude = m.get("rope.scaling.attn_factor", 1.0)

    if m.weight("rope_freqs.weight") is not None:  # Llama 3.1: factors stored in the file
        frequency = frequency / m.weight("rope_freqs.weight")
    if kind == "longrope":  # Ding et al., 2024
        which = "long" if m.context > trained else "short"
        frequency = frequency / m.weight(f"rope_factors_{which}.weight")
    elif kind == "linear":
        frequency = frequency / factor
    elif kind == "yarn":

        def dimension(rotations):
            return m.n_rot * np.log(trained / (rotations * 2 * np.pi)) / (2 * np.log(freq_base))

        low = max(0.0, np.floor(dimension(m.get("rope.scaling.yarn_beta_fast", 32.0))))
        high = min(m.n_rot - 1.0, np.ceil(dimension(m.get("rope.scaling.yarn_beta_slow", 1.0))))
        extrapolate = 1.0 - np.clip((pair - low) / max(0.001, high - low), 0.0, 1.0)
        frequency = frequency * extrapolate + frequency / factor * (1.0 - extrapolate)
        magnitude *= 1.0 + 0.1 * np.log(factor)
    angle = np.arange(n_tokens)[:, None] * frequency
    return np.cos(angle) * magnitude, np.sin(angle) * magnitude


def rotate(x, angles, interleaved):
    """Rotates the first n_rot dimensions of every head; x is [tokens, heads, d_head].

    interleaved pairs dimensions 2i and 2i+1 (the paper's form), otherwise i and i + n_rot/2.
    """
    cos, sin = angles[0][:, None, :], angles[1][:, None, :]
    half = cos.shape[-1]
    a, b = np.s_[..., 0 : 2 * half : 2], np.s_[..., 1 : 2 * half : 2]
    if not interleaved:
        a, b = np.s_[..., :half], np.s_[..., half : 2 * half]
    y = x.copy()
    y[a] = x[a] * cos - x[b] * sin
    y[b] = x[a] * sin + x[b] * cos
    return y


def attend(q, k, v, scale, window=0, cap=0.0, chunk=0):
    """Causal attention. q [tokens, n_head, d], k and v [tokens, n_head_kv, d] -> [tokens, n_head * d].

    window > 0: a token sees itself and the window - 1 before it. cap > 0: Gemma 2's soft cap.
    chunk > 0: a token sees the positions of its own piece of that length.
    """
    n_tokens, n_head, _ = q.shape
    k, v = (np.repeat(t, n_head // t.shape[1], axis=1) for t in (k, v))
    scores = np.einsum("ihd,jhd->hij", q, k) * scale
    if cap:
        scores = cap * np.tanh(scores / cap)
    distance = np.arange(n_tokens)[:, None] - np.arange(n_tokens)[None, :]
    hidden = (distance < 0) | (distance >= window if window else False)
    if chunk:
        piece = np.arange(n_tokens) // chunk
        hidden |= piece[:, None] != piece[None, :]
    scores = np.where(hidden, -np.inf, scores)
    return np.einsum("hij,jhd->ihd", softmax(scores), v).reshape(n_tokens, -1)


def project_qkv(m, x, layer, n_head_kv=None):
    """Queries, keys and values by head, from separate or fused weights."""
    n_head_kv = n_head_kv or m.n_head_kv
    if m.weight("attn_qkv.weight", layer) is not None:
        fused = linear(m, x, "attn_qkv", layer)
        widths = np.cumsum([m.n_head * m.d_head, n_head_kv * m.d_head])
        q, k, v = np.split(fused, widths, axis=-1)
    else:
        q, k, v = (linear(m, x, f"attn_{t}", layer) for t in "qkv")
    return (t.reshape(len(x), -1, m.d_head) for t in (q, k, v))


def gated_ffn(m, x, layer, activation, names=("ffn_gate", "ffn_up", "ffn_down")):
    gate, up, down = names
    return linear(m, activation(linear(m, x, gate, layer)) * linear(m, x, up, layer), down, layer)


def plain_ffn(m, x, layer):
    return linear(m, gelu(linear(m, x, "ffn_up", layer)), "ffn_down", layer)


def mixture_ffn(m, x, layer):
    """Jiang et al., 2024 (Mixtral): softmax over all experts, the best k kept and renormalized."""
    n_used = m.get("expert_used_count")
    gates, ups, downs = (m.weight(f"ffn_{t}_exps.weight", layer) for t in ("gate", "up", "down"))
    router = softmax(x @ m.weight("ffn_gate_inp.weight", layer).T)
    y = np.zeros_like(x)
    for token, probabilities in enumerate(router):
        chosen = np.argsort(-probabilities, kind="stable")[:n_used]
        shares = probabilities[chosen] / np.sum(probabilities[chosen])
        for expert, share in zip(chosen, shares):
            h = silu(gates[expert] @ x[token]) * (ups[expert] @ x[token])
            y[token] += share * (downs[expert] @ h)
    if m.weight("ffn_gate_shexp.weight", layer) is not None:
        y += gated_ffn(m, x, layer, silu, ("ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"))
    return y


def swiglu_or_mixture(m, x, layer):
    if m.weight("ffn_gate_inp.weight", layer) is not None:
        return mixture_ffn(m, x, layer)
    return gated_ffn(m, x, layer, silu)


# --- families: tokens -> logits [tokens, n_vocab] ------------------------------------------------


def llama(m, tokens, trace=None):
    """Touvron et al., 2023, and related: Mistral, Mixtral, Qwen2, Qwen3, Granite, SmolLM3.

    InternLM2, ERNIE 4.5, EXAONE and Seed-OSS too. What they change is read off the file: biases,
    per-head norms (Qwen3), experts (Mixtral, Qwen3 MoE), four scales (Granite: Power scheduler paper's muP multipliers), every fourth layer without
    RoPE (SmolLM3). `trace`, a list, receives the residual stream after every layer.
    """
    interleaved = not m.arch.startswith("qwen") and m.arch not in ("exaone", "seed_oss")
    ffn_norm = "post_attention_norm.weight" if m.arch == "seed_oss" else "ffn_norm.weight"
    window = m.get("attention.sliding_window", 0) if m.arch == "mistral" else 0
    angles = rope_angles(m, len(tokens), m.get("rope.freq_base", 10000.0))
    residual_scale = m.get("residual_scale", 0.0) or 1.0
    scale = m.get("attention.scale", 0.0) or m.d_head**-0.5
    x = m.weight("token_embd.weight")[tokens] * (m.get("embedding_scale", 0.0) or 1.0)
    for layer in range(m.n_layer):
        h = rms_norm(x, m.weight("attn_norm.weight", layer), m.rms_eps)
        q, k, v = project_qkv(m, h, layer)
        if m.weight("attn_q_norm.weight", layer) is not None:
            q = rms_norm(q, m.weight("attn_q_norm.weight", layer), m.rms_eps)
            k = rms_norm(k, m.weight("attn_k_norm.weight", layer), m.rms_eps)
        if m.arch != "smollm3" or (layer + 1) % 4 != 0:
            q, k = (rotate(t, angles, interleaved) for t in (q, k))
        x = x + residual_scale * linear(m, attend(q, k, v, scale, window), "attn_output", layer)
        h = rms_norm(x, m.weight(ffn_norm, layer), m.rms_eps)
        x = x + residual_scale * swiglu_or_mixture(m, h, layer)
        if trace is not None:
            trace.append(x)
    x = rms_norm(x, m.weight("output_norm.weight"), m.rms_eps)
    return x @ m.head().T / (m.get("logit_scale", 0.0) or 1.0)


def olmo2(m, tokens):
    """OLMo team, 2025: norms after the sublayers, query and key norms over the full width."""
    angles = rope_angles(m, len(tokens), m.get("rope.freq_base", 10000.0))
    x = m.weight("token_embd.weight")[tokens]
    for layer in range(m.n_layer):
        q, k, v = (linear(m, x, f"attn_{t}", layer) for t in "qkv")
        q = rms_norm(q, m.weight("attn_q_norm.weight", layer), m.rms_eps)
        k = rms_norm(k, m.weight("attn_k_norm.weight", layer), m.rms_eps)
        q, k, v = (t.reshape(len(x), -1, m.d_head) for t in (q, k, v))
        q, k = (rotate(t, angles, False) for t in (q, k))
        h = linear(m, attend(q, k, v, m.d_head**-0.5), "attn_output", layer)
        x = x + rms_norm(h, m.weight("post_attention_norm.weight", layer), m.rms_eps)
        h = gated_ffn(m, x, layer, silu)
        x = x + rms_norm(h, m.weight("post_ffw_norm.weight", layer), m.rms_eps)
    return rms_norm(x, m.weight("output_norm.weight"), m.rms_eps) @ m.head().T


def glm4(m, tokens):
    """GLM team, 2024, and GLM-4-0414's model card: norms around both sublayers, RoPE in pairs on the
    first half of each head, gate and up fused."""
    angles = rope_angles(m, len(tokens), m.get("rope.freq_base", 10000.0))
    x = m.weight("token_embd.weight")[tokens]
    for layer in range(m.n_layer):
        h = rms_norm(x, m.weight("attn_norm.weight", layer), m.rms_eps)
        q, k, v = project_qkv(m, h, layer)
        q, k = (rotate(t, angles, True) for t in (q, k))
        h = linear(m, attend(q, k, v, m.d_head**-0.5), "attn_output", layer)
        x = x + rms_norm(h, m.weight("post_attention_norm.weight", layer), m.rms_eps)
        h = rms_norm(x, m.weight("ffn_norm.weight", layer), m.rms_eps)
        gate, up = np.split(linear(m, h, "ffn_up", layer), 2, axis=-1)
        h = linear(m, silu(gate) * up, "ffn_down", layer)
        x = x + rms_norm(h, m.weight("post_ffw_norm.weight", layer), m.rms_eps)
    return rms_norm(x, m.weight("output_norm.weight"), m.rms_eps) @ m.head().T


def stablelm(m, tokens):
    """Bellagente et al., 2024: LayerNorm, partial RoPE; the 12B: parallel, with per-head norms."""
    angles = rope_angles(m, len(tokens), m.get("rope.freq_base", 10000.0))

    def norm(x, name, layer=None):
        weight, bias = m.weight(name + ".weight", layer), m.weight(name + ".bias", layer)
        return layer_norm(x, weight, bias, m.ln_eps)

    x = m.weight("token_embd.weight")[tokens]
    for layer in range(m.n_layer):
        h = norm(x, "attn_norm", layer)
        q, k, v = project_qkv(m, h, layer)
        if m.weight("attn_q_norm.weight", layer) is not None:
            q, k = norm(q, "attn_q_norm", layer), norm(k, "attn_k_norm", layer)
        q, k = (rotate(t, angles, False) for t in (q, k))
        attended = linear(m, attend(q, k, v, m.d_head**-0.5), "attn_output", layer)
        parallel = m.weight("ffn_norm.weight", layer) is None
        h = h if parallel else norm(x + attended, "ffn_norm", layer)
        x = x + attended + gated_ffn(m, h, layer, silu)
    return norm(x, "output_norm") @ m.head().T


def starcoder2(m, tokens):
    """Lozhkov et al., 2024: LayerNorm, biases everywhere, GELU without a gate."""
    angles = rope_angles(m, len(tokens), m.get("rope.freq_base", 10000.0))

    def norm(x, name, layer=None):
        weight, bias = m.weight(name + ".weight", layer), m.weight(name + ".bias", layer)
        return layer_norm(x, weight, bias, m.ln_eps)

    x = m.weight("token_embd.weight")[tokens]
    for layer in range(m.n_layer):
        q, k, v = project_qkv(m, norm(x, "attn_norm", layer), layer)
        q, k = (rotate(t, angles, False) for t in (q, k))
        x = x + linear(m, attend(q, k, v, m.d_head**-0.5), "attn_output", layer)
        x = x + plain_ffn(m, norm(x, "ffn_norm", layer), layer)
    return norm(x, "output_norm") @ m.head().T


def phi3(m, tokens):
    """Abdin et al., 2024: Llama with fused projections and partial NeoX-style RoPE.

    attention.sliding_window is ignored, as llama.cpp does: converters wrote it without saying
    which layers it is for, and the stored logits of such a file are those of full attention.
    """
    angles = rope_angles(m, len(tokens), m.get("rope.freq_base", 10000.0))
    x = m.weight("token_embd.weight")[tokens]
    for layer in range(m.n_layer):
        h = rms_norm(x, m.weight("attn_norm.weight", layer), m.rms_eps)
        q, k, v = project_qkv(m, h, layer)
        q, k = (rotate(t, angles, False) for t in (q, k))
        x = x + linear(m, attend(q, k, v, m.d_head**-0.5), "attn_output", layer)
        h = rms_norm(x, m.weight("ffn_norm.weight", layer), m.rms_eps)
        gate, up = np.split(linear(m, h, "ffn_up", layer), 2, axis=-1)
        x = x + linear(m, silu(gate) * up, "ffn_down", layer)
    return rms_norm(x, m.weight("output_norm.weight"), m.rms_eps) @ m.head().T


def phi2(m, tokens):
    """Javaheripi et al., 2023: parallel attention and GELU feed-forward on one LayerNorm."""
    angles = rope_angles(m, len(tokens), m.get("rope.freq_base", 10000.0))
    x = m.weight("token_embd.weight")[tokens]
    for layer in range(m.n_layer):
        weight, bias = (m.weight(f"attn_norm.{t}", layer) for t in ("weight", "bias"))
        h = layer_norm(x, weight, bias, m.ln_eps)
        q, k, v = project_qkv(m, h, layer)
        q, k = (rotate(t, angles, False) for t in (q, k))
        attended = linear(m, attend(q, k, v, m.d_head**-0.5), "attn_output", layer)
        x = x + attended + plain_ffn(m, h, layer)
    x = layer_norm(x, m.weight("output_norm.weight"), m.weight("output_norm.bias"), m.ln_eps)
    return linear(m, x, "output")


def gpt2(m, tokens):
    """Radford et al., 2019: learned positions, LayerNorm before each sublayer, GELU."""

    def norm(x, name, layer=None):
        weight, bias = m.weight(name + ".weight", layer), m.weight(name + ".bias", layer)
        return layer_norm(x, weight, bias, m.ln_eps)

    x = m.weight("token_embd.weight")[tokens] + m.weight("position_embd.weight")[: len(tokens)]
    for layer in range(m.n_layer):
        q, k, v = project_qkv(m, norm(x, "attn_norm", layer), layer)
        x = x + linear(m, attend(q, k, v, m.d_head**-0.5), "attn_output", layer)
        x = x + plain_ffn(m, norm(x, "ffn_norm", layer), layer)
    return norm(x, "output_norm") @ m.head().T


def gemma(m, tokens):
    """Gemma, Gemma 2 and Gemma 3 (Gemma team, 2024, 2024, 2025).

    Gemma 2 adds norms after the sublayers, soft caps, and a window in even layers; Gemma 3 drops
    the caps, adds per-head norms, and five windowed layers, with a RoPE of their own, to each full
    one. The file's norm weights already contain the family's "1 +".
    """
    window = m.get("attention.sliding_window", 0)
    cap, final_cap = m.get("attn_logit_softcapping", 0.0), m.get("final_logit_softcapping", 0.0)
    full = rope_angles(m, len(tokens), m.get("rope.freq_base", 10000.0))
    local = rope_angles(m, len(tokens), m.get("rope.freq_base_swa", 10000.0), scaled=False)
    period = {"gemma": 1, "gemma2": 2, "gemma3": 6}[m.arch]

    def norm(x, name, layer=None):
        weight = m.weight(name + ".weight", layer)
        return x if weight is None else rms_norm(x, weight, m.rms_eps)

    x = m.weight("token_embd.weight")[tokens] * np.sqrt(m.n_embd)
    for layer in range(m.n_layer):
        windowed = layer % period < period - 1
        angles = local if windowed and m.arch == "gemma3" else full
        q, k, v = project_qkv(m, norm(x, "attn_norm", layer), layer)
        q, k = norm(q, "attn_q_norm", layer), norm(k, "attn_k_norm", layer)
        q, k = (rotate(t, angles, False) for t in (q, k))
        h = attend(q, k, v, m.d_head**-0.5, window if windowed else 0, cap)
        x = x + norm(linear(m, h, "attn_output", layer), "post_attention_norm", layer)
        h = gated_ffn(m, norm(x, "ffn_norm", layer), layer, gelu)
        x = x + norm(h, "post_ffw_norm", layer)
    logits = norm(x, "output_norm") @ m.head().T
    return final_cap * np.tanh(logits / final_cap) if final_cap else logits


def weighted_input_ffn(m, x, layer):
    """Llama 4's experts: the sigmoid of a logit multiplies what its expert reads."""
    gates, ups, downs = (m.weight(f"ffn_{t}_exps.weight", layer) for t in ("gate", "up", "down"))
    router = x @ m.weight("ffn_gate_inp.weight", layer).T
    y = gated_ffn(m, x, layer, silu, ("ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"))
    for token, scores in enumerate(router):
        for expert in np.argsort(-scores, kind="stable")[: m.get("expert_used_count")]:
            h = x[token] / (1.0 + np.exp(-scores[expert]))
            y[token] += downs[expert] @ (silu(gates[expert] @ h) * (ups[expert] @ h))
    return y


def llama4(m, tokens):
    """Llama 4's model card and code: three of four layers attend within chunks, with RoPE and then
    unweighted norms. The fourth attends to all, without RoPE, with queries scaled by position."""
    chunk = m.get("attention.sliding_window", 8192)
    length = m.get("attention.temperature_length", 8192)
    angles = rope_angles(m, len(tokens), m.get("rope.freq_base", 10000.0))
    steps = np.floor((np.arange(len(tokens)) + 1) / length)
    growth = 1.0 + m.get("attention.temperature_scale", 0.1) * np.log(1.0 + steps)
    x = m.weight("token_embd.weight")[tokens]
    for layer in range(m.n_layer):
        q, k, v = project_qkv(m, rms_norm(x, m.weight("attn_norm.weight", layer), m.rms_eps), layer)
        if (layer + 1) % 4 == 0:
            h = attend(q * growth[:, None, None], k, v, m.d_head**-0.5)
        else:
            q, k = (rms_norm(rotate(t, angles, True), 1.0, m.rms_eps) for t in (q, k))
            h = attend(q, k, v, m.d_head**-0.5, chunk=chunk)
        x = x + linear(m, h, "attn_output", layer)
        h = rms_norm(x, m.weight("ffn_norm.weight", layer), m.rms_eps)
        mixed = m.weight("ffn_gate_inp.weight", layer) is not None
        x = x + (weighted_input_ffn(m, h, layer) if mixed else gated_ffn(m, h, layer, silu))
    return rms_norm(x, m.weight("output_norm.weight"), m.rms_eps) @ m.head().T


def lfm2(m, tokens):
    """Liquid AI, 2025: gated short convolutions, and grouped-query attention in a few layers."""
    angles = rope_angles(m, len(tokens), m.get("rope.freq_base", 10000.0))
    n_taps = m.get("shortconv.l_cache")
    x = m.weight("token_embd.weight")[tokens]
    for layer in range(m.n_layer):
        h = rms_norm(x, m.weight("attn_norm.weight", layer), m.rms_eps)
        n_head_kv = m.n_head_kv[layer]
        if n_head_kv == 0:
            b, c, u = np.split(linear(m, h, "shortconv.in_proj", layer), 3, axis=-1)
            padded = np.concatenate([np.zeros((n_taps - 1, m.n_embd)), b * u])
            kernel = m.weight("shortconv.conv.weight", layer)  # [n_embd, taps]
            y = sum(kernel[:, t] * padded[t : t + len(tokens)] for t in range(n_taps))
            x = x + linear(m, c * y, "shortconv.out_proj", layer)
        else:
            q, k, v = project_qkv(m, h, layer, n_head_kv)
            q = rms_norm(q, m.weight("attn_q_norm.weight", layer), m.rms_eps)
            k = rms_norm(k, m.weight("attn_k_norm.weight", layer), m.rms_eps)
            q, k = (rotate(t, angles, False) for t in (q, k))
            x = x + linear(m, attend(q, k, v, m.d_head**-0.5), "attn_output", layer)
        h = rms_norm(x, m.weight("ffn_norm.weight", layer), m.rms_eps)
        x = x + gated_ffn(m, h, layer, silu)
    norm = m.weight("token_embd_norm.weight")
    norm = m.weight("output_norm.weight") if norm is None else norm
    return rms_norm(x, norm, m.rms_eps) @ m.head().T


def smallthinker(m, tokens):
    """Song et al., 2025: the block's input selects the experts; weights are sigmoids divided by their
    sum; ReLU gates; the first of four layers has full attention and no positions."""
    angles = rope_angles(m, len(tokens), m.get("rope.freq_base", 10000.0))
    window, n_used = m.get("attention.sliding_window"), m.get("expert_used_count")
    x = m.weight("token_embd.weight")[tokens]
    for layer in range(m.n_layer):
        router = 1.0 / (1.0 + np.exp(-(x @ m.weight("ffn_gate_inp.weight", layer).T)))
        h = rms_norm(x, m.weight("attn_norm.weight", layer), m.rms_eps)
        q, k, v = project_qkv(m, h, layer)
        if layer % 4 != 0:
            q, k = (rotate(t, angles, False) for t in (q, k))
        seen = attend(q, k, v, m.d_head**-0.5, window if layer % 4 != 0 else 0)
        x = x + linear(m, seen, "attn_output", layer)
        h = rms_norm(x, m.weight("ffn_norm.weight", layer), m.rms_eps)
        gates, ups, downs = (
            m.weight(f"ffn_{t}_exps.weight", layer) for t in ("gate", "up", "down")
        )
        for token, chances in enumerate(router):
            chosen = np.argsort(-chances, kind="stable")[:n_used]
            for e in chosen:
                inner = np.maximum(gates[e] @ h[token], 0.0) * (ups[e] @ h[token])
                x[token] += chances[e] / np.sum(chances[chosen]) * (downs[e] @ inner)
    return rms_norm(x, m.weight("output_norm.weight"), m.rms_eps) @ m.head().T


FAMILIES = {
    "llama": llama, "qwen2": llama, "qwen3": llama, "qwen3moe": llama, "granite": llama,
    "granitemoe": llama, "smollm3": llama, "mistral": llama,
    "ernie4_5": llama, "internlm2": llama, "exaone": llama, "seed_oss": llama, "glm4": glm4,
    "olmo2": olmo2, "stablelm": stablelm,
    "starcoder2": starcoder2, "phi2": phi2, "phi3": phi3, "gpt2": gpt2, "gemma": gemma,
    "gemma2": gemma, "gemma3": gemma, "lfm2": lfm2, "llama4": llama4,
    "smallthinker": smallthinker,
}  # fmt: skip


def logits(model, tokens):
    return FAMILIES[model.arch](model, np.asarray(tokens))


def greedy(model, prompt, n_new, min_gap=0.0):
    """`n_new` greedy tokens, and the smallest margin between the best token and the second best.

    Stops early, with fewer tokens, once a margin is below `min_gap`.
    """
    tokens, gap = list(prompt), np.inf
    for _ in range(n_new):
        last = logits(model, tokens)[-1]
        second, best = np.partition(last, -2)[-2:]
        gap = min(gap, best - second)
        tokens.append(int(np.argmax(last)))
        if gap < min_gap:
            break
    return tokens[len(prompt) :], float(gap)


def nmse(ours, reference):
    """Per position: mean squared error over the reference's mean square."""
    return np.mean((ours - reference) ** 2, axis=-1) / np.mean(reference**2, axis=-1)


# llama.cpp takes GELU from a table of f16 values; families that use it differ by up to 1.1e-5.
TOLERANCE = 2e-5


def main():
    folder = os.path.dirname(sys.argv[1])
    failed = 0
    with open(sys.argv[1]) as file:
        manifest = json.load(file)
    for entry in manifest:
        model = Model.load(os.path.join(folder, entry["file"]))
        expected = np.fromfile(os.path.join(folder, entry["logits"]), "<f4")
        expected = expected.reshape(-1, entry["n_vocab"]).astype(np.float64)
        worst = float(np.max(nmse(logits(model, entry["prompt"]), expected)))
        tokens, gap = greedy(model, entry["prompt"], len(entry["greedy"]))
        same = tokens == entry["greedy"]
        ok = worst < TOLERANCE and (same or entry["greedy_min_gap"] < 1e-3)
        failed += not ok
        verdict = "ok" if ok else "DIFFERS"
        print(f"{entry['name']:24} nmse {worst:.1e}  greedy {'same' if same else 'not the same'}"
              f"  gap {gap:.2g}  {verdict}")  # fmt: skip
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
