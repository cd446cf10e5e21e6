"""The Llama forward pass in PyTorch: used for training and, in double precision, as the reference.

Rotary pairs are neighbours (x[2i], x[2i+1]), the order that GGUF's `llama` architecture stores, so
weights go to the file as they are. Keys and values have fewer heads than queries (GQA), the
feed-forward part is SwiGLU, and the output head is the embedding.
"""
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Config:
    """Every size that the file's metadata states.

    Four layers rather than two wide ones: to bring a word of the request into the story takes
    several steps of looking back. So heads cover only half of the width and the feed-forward part
    is narrow; rows are of 256 except in attn_output (128) and ffn_down (96), multiples of 32.
    """
    n_vocab: int = 1152
    n_ctx: int = 512
    n_embd: int = 256
    n_layer: int = 4
    n_ff: int = 96
    n_head: int = 4
    n_head_kv: int = 2
    head_dim: int = 32
    rope_freq_base: float = 10000.0
    rms_eps: float = 1e-5


class RMSNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def rope_table(config, dtype):
    """cos and sin, each [n_ctx, head_dim / 2]: position times base^(-2i / head_dim)."""
    i = torch.arange(config.head_dim // 2, dtype=torch.float64)
    angles = torch.outer(torch.arange(config.n_ctx, dtype=torch.float64),
                         config.rope_freq_base ** (-2 * i / config.head_dim))
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x, cos, sin):
    """x: [batch, head, position, head_dim], turned by the table's first `position` rows."""
    pairs = x.unflatten(-1, (-1, 2))
    even, odd = pairs[..., 0], pairs[..., 1]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.attn_norm = RMSNorm(c.n_embd, c.rms_eps)
        self.attn_q = nn.Linear(c.n_embd, c.n_head * c.head_dim, bias=False)
        self.attn_k = nn.Linear(c.n_embd, c.n_head_kv * c.head_dim, bias=False)
        self.attn_v = nn.Linear(c.n_embd, c.n_head_kv * c.head_dim, bias=False)
        self.attn_output = nn.Linear(c.n_head * c.head_dim, c.n_embd, bias=False)
        self.ffn_norm = RMSNorm(c.n_embd, c.rms_eps)
        self.ffn_gate = nn.Linear(c.n_embd, c.n_ff, bias=False)
        self.ffn_up = nn.Linear(c.n_embd, c.n_ff, bias=False)
        self.ffn_down = nn.Linear(c.n_ff, c.n_embd, bias=False)

    def attention(self, x, cos, sin):
        c, (batch, length, _) = self.c, x.shape
        split = lambda y, heads: y.view(batch, length, heads, c.head_dim).transpose(1, 2)
        q = rotate(split(self.attn_q(x), c.n_head), cos, sin) * c.head_dim ** -0.5
        k = rotate(split(self.attn_k(x), c.n_head_kv), cos, sin)
        v = split(self.attn_v(x), c.n_head_kv)
        # Query heads of one key head become more rows of it: [batch, kv, group * length, head_dim].
        group = c.n_head // c.n_head_kv
        q = q.reshape(batch, c.n_head_kv, group, length, c.head_dim)
        step = 128 if self.training else length  # skip most of the masked half
        parts = []
        for start in range(0, length, step):
            stop = min(start + step, length)
            rows = stop - start
            part = q[:, :, :, start:stop].reshape(batch, c.n_head_kv, group * rows, c.head_dim)
            scores = part @ k[:, :, :stop].transpose(2, 3)
            later = torch.ones(rows, rows, dtype=torch.bool).triu(1).repeat(group, 1)
            scores[..., start:].masked_fill_(later, float("-inf"))
            out = scores.softmax(-1) @ v[:, :, :stop]
            parts.append(out.view(batch, c.n_head, rows, c.head_dim))
        joined = torch.cat(parts, 2).transpose(1, 2).reshape(batch, length, -1)
        return self.attn_output(joined)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.attn_norm(x), cos, sin)
        y = self.ffn_norm(x)
        return x + self.ffn_down(F.silu(self.ffn_gate(y)) * self.ffn_up(y))


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.token_embd = nn.Embedding(config.n_vocab, config.n_embd)
        self.blk = nn.ModuleList(Layer(config) for _ in range(config.n_layer))
        self.output_norm = RMSNorm(config.n_embd, config.rms_eps)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                scale = (2 * config.n_layer) ** -0.5 if "output" in name or "down" in name else 1.0
                nn.init.normal_(p, std=scale * p.shape[1] ** -0.5 if "embd" not in name else 0.02)

    def forward(self, ids):
        """ids [batch, position] -> logits [batch, position, n_vocab]."""
        x = self.token_embd(ids)
        cos, sin = rope_table(self.config, x.dtype)
        for layer in self.blk:
            x = layer(x, cos[: ids.shape[1]], sin[: ids.shape[1]])
        return self.output_norm(x) @ self.token_embd.weight.T
