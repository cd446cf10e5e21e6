"""Makes the sample model from nothing: corpus, tokenizer, training, GGUF files, reference outputs.

    python3 examples/models/train.py

needs Debian's python3-torch and python3-numpy (and libopenblas0-pthread for speed), takes under an
hour on two cores, and shows its progress. Everything is drawn from fixed seeds. A run that was
stopped goes on from its last checkpoint in --work. Matrices in the layers are trained with Muon
(momentum, then orthogonalized: Jordan et al. 2024), the rest with Adam: on this corpus that needs
about half the steps of Adam alone.
"""
import argparse
import json
import math
import pathlib
import random
import sys
import time

import numpy as np
import torch
from torch.nn import functional as F

import bpe
import corpus
import export
from lexicon import QUOTED
from model import Config, Model

HERE = pathlib.Path(__file__).resolve().parent
SEED = 20250607
TRAIN_DOCUMENTS, TOKENIZER_DOCUMENTS, HELD_OUT_DOCUMENTS = 100_000, 12_000, 600
HELD_OUT_SEED, QUOTED_WEIGHT = 1_000_000_000, 4000
BATCH = 4  # rows of n_ctx tokens; at equal work, more rows and fewer steps learn more slowly
MUON_RATE, ADAM_RATE, WARMUP, DECAY = 0.015, 0.003, 100, 0.3
STEPS = 7000


def progress(label, done, total, start, note=""):
    """One line, rewritten in place: bar, share, time left."""
    share = done / total
    left = (time.time() - start) / max(share, 1e-9) * (1 - share)
    bar = "#" * int(30 * share)
    end = "\n" if done == total else ""
    print(f"\r{label:<10}[{bar:<30}] {100 * share:5.1f}%  {left / 60:4.1f} min left  {note}   ",
          end=end, flush=True)


def encode(tokenizer, texts, label):
    """Each document as ids, opened by end-of-text, which is both the first and the last token."""
    start, result = time.time(), []
    for i, text in enumerate(texts):
        result.append([0] + tokenizer.encode(text))
        if i % 1000 == 999 or i + 1 == len(texts):
            progress(label, i + 1, len(texts), start)
    return result


def pack(documents, width):
    """Whole documents in rows of `width` ids, best fit among open rows; zeros fill the rest.

    Every row starts at a beginning, so the model never sees an answer without its story.
    """
    rows, open_rows = [], []
    for ids in documents:
        if len(ids) >= width:
            continue
        fitting = [r for r in open_rows if len(r) + len(ids) < width]
        if fitting:
            row = max(fitting, key=len)
        else:
            row = []
            rows.append(row)
            open_rows.append(row)
            if len(open_rows) > 100:
                open_rows.remove(max(open_rows, key=len))
        row += ids
    packed = np.zeros((len(rows), width), np.int16)
    for i, row in enumerate(rows):
        packed[i, : len(row)] = row
    return packed


def batch_loss(model, rows, reduction="mean"):
    """Next-token loss on every token, the closing end-of-text included, padding left out."""
    ids = torch.from_numpy(rows.astype(np.int64))
    inputs, targets = ids[:, :-1], ids[:, 1:].clone()
    targets[(targets == 0) & (inputs == 0)] = -1
    logits = model(inputs).float()
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1,
                           reduction=reduction)
    return loss, int((targets >= 0).sum())


def held_out_loss(model, rows):
    """Mean negative log likelihood of a token, in nats."""
    model.eval()
    total = count = 0
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        for i in range(0, len(rows), 8):
            loss, n = batch_loss(model, rows[i: i + 8], "sum")
            total, count = total + loss.item(), count + n
    model.train()
    return total / count


def bigram_loss(train_rows, rows, n_vocab):
    """The same measure for counted token pairs, interpolated with single counts and a floor."""
    pairs = np.zeros((n_vocab, n_vocab))
    a, b = train_rows[:, :-1].ravel(), train_rows[:, 1:].ravel()
    keep = (a != 0) | (b != 0)
    np.add.at(pairs, (a[keep], b[keep]), 1)
    single = (pairs.sum(0) + 0.1) / (pairs.sum() + 0.1 * n_vocab)
    model = (pairs + 2 * single) / (pairs.sum(1, keepdims=True) + 2)
    a, b = rows[:, :-1].ravel(), rows[:, 1:].ravel()
    keep = (a != 0) | (b != 0)
    return float(-np.log(model[a[keep], b[keep]]).mean())


def orthogonalize(g):
    """The nearest matrix with equal singular values, by five Newton-Schulz steps (Muon)."""
    tall = g.shape[0] > g.shape[1]
    x = (g.T if tall else g).bfloat16()
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return (x.T if tall else x).float()


class Muon:
    """Momentum whose step is orthogonalized; for the matrices inside the layers."""

    def __init__(self, parameters, momentum=0.95, decay=0.05):
        self.parameters, self.momentum, self.decay = list(parameters), momentum, decay
        self.buffers = [torch.zeros_like(p) for p in self.parameters]

    @torch.no_grad()
    def step(self, rate):
        for p, buffer in zip(self.parameters, self.buffers):
            buffer.mul_(self.momentum).add_(p.grad)
            update = orthogonalize(p.grad + self.momentum * buffer)
            p.mul_(1 - rate * self.decay)
            p.add_(update, alpha=-rate * max(1, p.shape[0] / p.shape[1]) ** 0.5)


def schedule(step, steps):
    """Share of the full rate: a short rise, a plateau, and a straight fall over the last part."""
    return min(1, (step + 1) / WARMUP, (steps - step) / (DECAY * steps))


def rows_for(step, count):
    """Row numbers of one step's batch: a new order every epoch, a function of the step alone."""
    per_epoch = count // BATCH
    order = np.random.RandomState(SEED + step // per_epoch).permutation(count)
    at = step % per_epoch * BATCH
    return order[at: at + BATCH]


class Spent:
    """Wall and processor seconds of the whole command, earlier stopped runs of it included."""

    def __init__(self):
        self.helper = 0.0
        self.resume((0.0, 0.0))

    def resume(self, before):
        """Goes on from what an earlier part of the command had spent, as saved by it."""
        self.before, self.start, self.cpu = before, time.time(), time.process_time()

    def now(self):
        return (self.before[0] + time.time() - self.start,
                self.before[1] + time.process_time() - self.cpu + self.helper)


def backward(model, rows):
    """Leaves the gradient of the mean loss of these rows in the model; returns the loss."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, _ = batch_loss(model, rows)
    model.zero_grad()
    loss.backward()
    return loss.item()


class Helper:
    """A second process that takes half of every batch.

    Two processes of one thread meet once a step; two threads would meet at every operation, which
    costs a fifth on quiet cores and far more on busy ones. The weights are in shared memory.
    """

    def __init__(self, model, train_rows, first, steps):
        self.model = model.share_memory()
        self.grads = [torch.zeros_like(p).share_memory_() for p in model.parameters()]
        self.report = torch.zeros(2, dtype=torch.float64).share_memory_()
        context = torch.multiprocessing.get_context("fork")
        self.barrier = context.Barrier(2, timeout=1800)
        context.Process(target=self.work, args=(train_rows, first, steps), daemon=True).start()

    def work(self, train_rows, first, steps):
        before = time.process_time()
        for step in range(first, steps):
            self.barrier.wait()
            loss = backward(self.model, train_rows[rows_for(step, len(train_rows))[BATCH // 2:]])
            for grad, p in zip(self.grads, self.model.parameters()):
                grad.copy_(p.grad)
            self.report[0], self.report[1] = loss, time.process_time() - before
            self.barrier.wait()

    def gradients(self, rows):
        """The gradient of a whole batch in the model; returns (loss, the other's seconds)."""
        self.barrier.wait()
        loss = backward(self.model, rows[: BATCH // 2])
        self.barrier.wait()
        for grad, p in zip(self.grads, self.model.parameters()):
            p.grad.add_(grad).mul_(0.5)
        return (loss + float(self.report[0])) / 2, float(self.report[1])


def fit(model, train_rows, held_rows, steps, work, spent):
    """Trains from the last checkpoint, if any, and returns the log: [step, train, held-out]."""
    inner = [p for n, p in model.named_parameters() if n.startswith("blk") and p.dim() == 2]
    outer = [p for n, p in model.named_parameters() if not (n.startswith("blk") and p.dim() == 2)]
    muon = Muon(inner)
    adam = torch.optim.Adam(outer, betas=(0.9, 0.985))
    log, first = [], 0
    checkpoint = work / "checkpoint.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        adam.load_state_dict(saved["adam"])
        muon.buffers, log, first = (saved[k] for k in ("muon", "log", "step"))
        spent.resume(saved["spent"])
    else:
        log.append([0, None, held_out_loss(model, held_rows)])
    start = time.time()
    model.train()
    helper = Helper(model, train_rows, first, steps)
    for step in range(first, steps):
        share = schedule(step, steps)
        loss, spent.helper = helper.gradients(train_rows[rows_for(step, len(train_rows))])
        muon.step(MUON_RATE * share)
        for group in adam.param_groups:
            group["lr"] = ADAM_RATE * share
        adam.step()
        done = step + 1
        progress("train", done - first, steps - first, start, f"step {done} loss {loss:.3f}")
        if done % 250 == 0 or done == steps:
            log.append([done, loss, held_out_loss(model, held_rows)])
            print(f"\nstep {done}: train {loss:.4f}, held-out {log[-1][2]:.4f}", flush=True)
            torch.save(dict(model=model.state_dict(), adam=adam.state_dict(), muon=muon.buffers,
                            log=log, step=done, spent=spent.now()), checkpoint)
    return log


def draw_curve(log, bigram, path):
    """The loss curve as a small SVG: train and held-out loss against steps, logarithmic in loss."""
    width, height, left, base = 640, 360, 56, 320
    steps = log[-1][0]
    low, high = math.log(0.9 * min(r[2] for r in log)), math.log(8)
    x = lambda s: left + s / steps * (width - left - 16)
    y = lambda v: base - (math.log(v) - low) / (high - low) * (base - 16)
    line = lambda points, color: (
        f'<polyline fill="none" stroke="{color}" stroke-width="1.5" points="'
        + " ".join(f"{x(s):.1f},{y(v):.1f}" for s, v in points) + '"/>')
    text = lambda tx, ty, words, more="": f'<text x="{tx:.0f}" y="{ty:.0f}" {more}>{words}</text>'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
             'font-family="sans-serif" font-size="12">',
             f'<rect width="{width}" height="{height}" fill="white"/>']
    for value in (0.5, 0.6, 0.8, 1, 1.5, 2, 3, 4, 6, 8):
        if low <= math.log(value) <= high:
            parts += [f'<path d="M{left} {y(value):.1f}H{width - 16}" stroke="#ddd"/>',
                      text(left - 6, y(value) + 4, value, 'text-anchor="end"')]
    for share in (0, 0.25, 0.5, 0.75, 1):
        parts.append(text(x(share * steps), base + 18, round(share * steps),
                          'text-anchor="middle"'))
    parts += [line([(r[0], r[1]) for r in log if r[1]], "#bbb"),
              line([(r[0], r[2]) for r in log], "#06c"),
              f'<path d="M{left} {y(bigram):.1f}H{width - 16}" stroke="#c60" '
              'stroke-dasharray="4 4"/>',
              text(width - 24, y(bigram) - 6, "bigram, held-out", 'text-anchor="end" fill="#c60"'),
              text(width - 24, 34, "model, held-out", 'text-anchor="end" fill="#06c"'),
              text(width - 24, 52, "model, training batch", 'text-anchor="end" fill="#888"'),
              text(left, base + 36, "step; loss in nats per token"), "</svg>"]
    path.write_text("\n".join(parts) + "\n")


def prepare(work, spent):
    """Corpus, tokenizer and packed rows: made once, then read from --work."""
    cache = work / "data.npz"
    merges = work / "merges.json"
    if not cache.exists():
        print("drawing the corpus", flush=True)
        texts = corpus.documents(TRAIN_DOCUMENTS, 0, False)
        held = corpus.documents(HELD_OUT_DOCUMENTS, HELD_OUT_SEED, True)
        print("training the tokenizer", flush=True)
        tokenizer = bpe.train(texts[:TOKENIZER_DOCUMENTS], corpus.SPECIALS, Config().n_vocab,
                              QUOTED, QUOTED_WEIGHT)
        width = Config().n_ctx + 1
        train_rows = pack(encode(tokenizer, texts, "encode"), width)
        held_rows = pack(encode(tokenizer, held, "held-out"), width)
        np.savez(cache, train=train_rows, held=held_rows, spent=spent.now())
        merges.write_text(json.dumps(tokenizer.merges))
    data = np.load(cache)
    spent.resume(data["spent"].tolist())
    tokenizer = bpe.Tokenizer(corpus.SPECIALS, json.loads(merges.read_text()))
    return tokenizer, data["train"], data["held"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=STEPS, help="optimizer steps of 2048 tokens")
    parser.add_argument("--layers", type=int, default=Config().n_layer,
                        help="another number makes another model, kept out of this folder")
    parser.add_argument("--heads", type=int, default=Config().n_head,
                        help="likewise; half as many for keys and values")
    parser.add_argument("--feed-forward", type=int, default=Config().n_ff, help="likewise")
    parser.add_argument("--out", type=pathlib.Path, help="where the files go")
    parser.add_argument("--work", type=pathlib.Path,
                        help="checkpoint and cache; delete it for a fresh run")
    args = parser.parse_args()
    config = Config(n_layer=args.layers, n_head=args.heads, n_head_kv=args.heads // 2,
                    n_ff=args.feed_forward)
    sample = config == Config()
    shape = (("layers", args.layers, Config().n_layer), ("heads", args.heads, Config().n_head),
             ("feed-forward", args.feed_forward, Config().n_ff))
    build = HERE.parents[1] / "build"
    args.work = args.work or build / (
        "sample-model" if sample else "-".join(f"{value}-{name}" for name, value, _ in shape))
    args.out = args.out or (HERE if sample else args.work)
    if not sample and args.out.resolve() == HERE:
        parser.error("--out: this folder is the sample model's")
    spent = Spent()
    args.work.mkdir(parents=True, exist_ok=True)
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    random.seed(SEED)
    tokenizer, train_rows, held_rows = prepare(args.work, spent)
    tokens = int((train_rows > 0).sum())
    print(f"{len(train_rows)} rows, {tokens / 1e6:.1f} million tokens", flush=True)
    model = Model(config)
    log = fit(model, train_rows, held_rows, args.steps, args.work, spent)
    bigram = bigram_loss(train_rows, held_rows, Config().n_vocab)
    draw_curve(log, bigram, args.out / "loss.svg")
    summary = dict(
        command="python3 examples/models/train.py"
        + "".join(f" --{name} {value}" for name, value, usual in shape if value != usual)
        + (f" --steps {args.steps}" if args.steps != STEPS else ""), seed=SEED, steps=args.steps,
        tokens_per_step=BATCH * Config().n_ctx, training_tokens=tokens,
        processes=2, wall_seconds=round(spent.now()[0]),
        processor_seconds=round(spent.now()[1]),
        parameters=sum(p.numel() for p in model.parameters()),
        perplexity={"model": math.exp(log[-1][2]), "untrained": math.exp(log[0][2]),
                    "bigram": math.exp(bigram)}, log=log)
    (args.out / "training.json").write_text(json.dumps(summary) + "\n")
    export.write_models(args.out, model, tokenizer, summary)
    export.write_held_out(args.out)
    if sample:
        export.write_reference(args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
