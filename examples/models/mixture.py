"""Trains a small mixture of experts on the sample model's corpus, and records its router.

    python3 examples/models/mixture.py --out build/mixture
    build/native/sluice bench MODEL --expert-trace build/mixture/trace.jsonl

needs Debian's python3-torch and python3-numpy (and libopenblas0-pthread for speed). A run that was
stopped, or that --minutes ends, goes on from its last checkpoint in --out. Eight layers with 32
experts each, of which a token uses 4, as gpt-oss-20b and LFM2-8B-A1B do: its traces replay on
models of their shapes. With --experts 128 --used 8 they replay on Qwen3-30B-A3B's. The router is
a softmax whose chosen weights are normalized (Mixtral, https://arxiv.org/abs/2401.04088), with the
load-balancing loss of Switch Transformers (https://arxiv.org/abs/2101.03961). The model is not
kept in the repository: it is larger than the sample model, and only its routing is of interest.
"""
import argparse
import json
import math
import pathlib
import sys
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import bpe
import corpus
import export
import gguf_writer as gguf
from lexicon import QUOTED
from model import Config, Layer, Model
from train import QUOTED_WEIGHT, SEED, encode, pack, progress, rows_for, schedule

DOCUMENTS, HELD_OUT_DOCUMENTS, HELD_OUT_SEED = 12_000, 100, 1_000_000_000
RATE, BALANCE, SAVE_EVERY, TRACED = 0.002, 0.01, 50, 1000


@dataclass(frozen=True)
class MixtureConfig(Config):
    n_ctx: int = 256
    n_embd: int = 128
    n_layer: int = 8
    n_ff: int = 64  # of an expert
    n_expert: int = 32
    n_used: int = 4


class MixtureLayer(Layer):
    """Attention as in the sample model, then n_used of n_expert SwiGLU experts."""

    def __init__(self, c):
        super().__init__(c)
        del self.ffn_gate, self.ffn_up, self.ffn_down
        self.ffn_gate_inp = nn.Linear(c.n_embd, c.n_expert, bias=False)
        self.ffn_gate_exps = nn.Parameter(torch.empty(c.n_expert, c.n_ff, c.n_embd))
        self.ffn_up_exps = nn.Parameter(torch.empty(c.n_expert, c.n_ff, c.n_embd))
        self.ffn_down_exps = nn.Parameter(torch.empty(c.n_expert, c.n_embd, c.n_ff))
        self.balance = 0.0  # load-balancing loss of the last forward pass
        self.chosen = None  # its experts, [tokens, n_used]

    def mixture(self, x):
        """x [tokens, n_embd] -> [tokens, n_embd]."""
        c = self.c
        probabilities = self.ffn_gate_inp(x).float().softmax(-1)
        weights, chosen = probabilities.topk(c.n_used, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        self.chosen = chosen
        order = chosen.flatten().argsort(stable=True)
        counts = torch.bincount(chosen.flatten(), minlength=c.n_expert)
        self.balance = (c.n_expert * (counts / counts.sum() * probabilities.mean(0)).sum())
        rows = order // c.n_used
        parts = []
        for e, part in enumerate(x[rows].split(counts.tolist())):
            hidden = F.silu(part @ self.ffn_gate_exps[e].T) * (part @ self.ffn_up_exps[e].T)
            parts.append(hidden @ self.ffn_down_exps[e].T)
        out = torch.cat(parts) * weights.flatten()[order, None]
        return torch.zeros_like(x).index_add(0, rows, out.to(x.dtype))

    def forward(self, x, cos, sin):
        x = x + self.attention(self.attn_norm(x), cos, sin)
        return x + self.mixture(self.ffn_norm(x).flatten(0, 1)).view_as(x)


class Mixture(Model):
    def __init__(self, config):
        super().__init__(config)
        self.blk = nn.ModuleList(MixtureLayer(config) for _ in range(config.n_layer))
        depth = (2 * config.n_layer) ** -0.5
        for name, p in self.blk.named_parameters():
            if p.dim() >= 2:
                scale = depth if "output" in name or "down" in name else 1.0
                nn.init.normal_(p, std=scale * p.shape[-1] ** -0.5)


def loss_of(model, rows, balance=BALANCE):
    """Mean next-token loss, padding left out, plus the load-balancing loss of all layers."""
    ids = torch.from_numpy(rows.astype(np.int64))
    inputs, targets = ids[:, :-1], ids[:, 1:].clone()
    targets[(targets == 0) & (inputs == 0)] = -1
    loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten(), ignore_index=-1)
    return loss + balance * sum(layer.balance for layer in model.blk)


def fit(model, rows, steps, minutes, checkpoint, options):
    """Trains from the checkpoint, if any, for at most `minutes`; returns the steps so far."""
    adam = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.01)
    done, start = 0, time.time()
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        made_with = {name: saved.get(name, value) for name, value in options.items()}
        if made_with != options:
            text = " ".join(f"--{name} {value}" for name, value in made_with.items())
            sys.exit(f"{checkpoint} has {text}: delete it to start anew")
        model.load_state_dict(saved["model"])
        adam.load_state_dict(saved["adam"])
        done = saved["step"]
    first = done
    while done < steps and time.time() - start < 60 * minutes:
        for group in adam.param_groups:
            group["lr"] = RATE * schedule(done, steps)
        loss = loss_of(model, rows[rows_for(done, len(rows))])
        adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        done += 1
        progress("train", done - first, steps - first, start, f"step {done} loss {loss.item():.3f}")
        if done % SAVE_EVERY == 0 or done == steps:
            save(checkpoint, model, adam, done, options)
    if done % SAVE_EVERY != 0 and done > first:
        save(checkpoint, model, adam, done, options)
    print()
    return done


def save(checkpoint, model, adam, step, options):
    part = checkpoint.with_suffix(".part")
    torch.save(dict(model=model.state_dict(), adam=adam.state_dict(), step=step) | options, part)
    part.replace(checkpoint)


def write(path, model, tokenizer, summary):
    config, kind = model.config, gguf.Q8_0
    keys = export.metadata(config, tokenizer, summary, kind)
    keys |= {"general.name": "Sluice mixture", "llama.expert_count": config.n_expert,
             "llama.expert_used_count": config.n_used}
    names = ["attn_norm.weight", "attn_q.weight", "attn_k.weight", "attn_v.weight",
             "attn_output.weight", "ffn_norm.weight", "ffn_gate_inp.weight", "ffn_gate_exps",
             "ffn_up_exps", "ffn_down_exps"]
    state, tensors = model.state_dict(), []
    every = ["token_embd.weight"] + [f"blk.{i}.{n}" for i in range(config.n_layer) for n in names]
    for name in every + ["output_norm.weight"]:
        small = state[name].dim() == 1 or "gate_inp" in name
        full = name if name.endswith(".weight") else name + ".weight"
        tensors.append((full, state[name].float().numpy(), gguf.F32 if small else kind))
    gguf.write(path, keys, tensors)


def write_trace(path, model, rows, tokens):
    """The router's choices for held-out documents, read one behind another (docs/mixtures.md)."""
    c, lines = model.config, []
    head = dict(format="sluice-expert-trace", version=1, layers=c.n_layer, experts=c.n_expert,
                used=c.n_used)
    for row in rows:
        if len(lines) >= tokens:
            break
        ids = np.trim_zeros(row[: c.n_ctx], "b").astype(np.int64)
        model(torch.from_numpy(ids[None]))
        layers = [layer.chosen.tolist() for layer in model.blk]
        lines += [list(token) for token in zip(*layers)]
    text = [json.dumps(line, separators=(",", ":")) for line in [head] + lines[:tokens]]
    path.write_text("\n".join(text) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1500, help="optimizer steps of 1024 tokens")
    parser.add_argument("--minutes", type=float, default=math.inf,
                        help="stop training after this time; the same command continues later")
    parser.add_argument("--documents", type=int, default=DOCUMENTS, help="of the corpus")
    parser.add_argument("--experts", type=int, default=MixtureConfig.n_expert, help="per layer")
    parser.add_argument("--used", type=int, default=MixtureConfig.n_used,
                        help="experts that a token uses")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="where the files go")
    args = parser.parse_args()
    if not 1 <= args.used <= args.experts:
        parser.error("--used is from 1 to --experts")
    options = dict(documents=args.documents, experts=args.experts, used=args.used)
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    config = MixtureConfig(n_expert=args.experts, n_used=args.used)
    texts = corpus.documents(args.documents, 0, False)
    held = corpus.documents(HELD_OUT_DOCUMENTS, HELD_OUT_SEED, True)
    tokenizer = bpe.train(texts, corpus.SPECIALS, config.n_vocab, QUOTED, QUOTED_WEIGHT)
    rows = pack(encode(tokenizer, texts, "encode"), config.n_ctx + 1)
    held_rows = pack(encode(tokenizer, held, "held-out"), config.n_ctx + 1)
    model = Mixture(config)
    steps = fit(model, rows, args.steps, args.minutes, args.out / "checkpoint.pt", options)
    model.eval()
    with torch.no_grad():
        nats = np.mean([loss_of(model, held_rows[i: i + 8], 0).item()
                        for i in range(0, len(held_rows), 8)])
    print(f"{steps} steps, held-out perplexity {math.exp(nats):.3f}, load-balancing loss "
          + " ".join(f"{layer.balance:.2f}" for layer in model.blk))
    with torch.no_grad():
        write_trace(args.out / "trace.jsonl", model, held_rows, TRACED)
    command = (f"python3 examples/models/mixture.py --steps {args.steps} "
               f"--documents {args.documents} --experts {args.experts} --used {args.used}")
    write(args.out / "sluice-mixture-Q8_0.gguf", model, tokenizer,
          dict(command=command, seed=SEED, steps=steps))
    (args.out / "text.txt").write_text(corpus.END_OF_TEXT.join(held)[:12_000])
    return 0


if __name__ == "__main__":
    sys.exit(main())
