#!/usr/bin/env python3
"""KL divergence of block designs that no file has yet, beside ggml's types of the same size.

    python3 tests/bench/block-designs.py --model FILE [--text FILE] [--designs 'A;B'] [--types a,b]
        [--exchange] [--chunks 12] [--threads 2] [--sluice PROGRAM]

FILE is an F16 model of examples/models/train.py whose rows are multiples of 256. Every matrix is
quantized by each design (block_search.py), with importances alone and with error feedback. One half
of the text calibrates, the other is held out; --exchange does it the other way around too. ggml's
types are written by `sluice convert --pure --calibrate`, with and without --gptq. All files are
compared with the model as F32, so nothing but the weights differs. Needs python3-torch and
build/native/sluice.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples" / "models"))
import gguf_reader  # noqa: E402
import gguf_writer  # noqa: E402
from block_search import DESIGNS, design, quantized  # noqa: E402

WINDOW, CHUNK = 256, 400  # tokens of a window of calibration, and of a chunk that is compared
SET = 256  # rows that are searched with one matrix of moments
TYPES = "iq2_xxs,iq2_s,iq2_m,q2_k,iq3_xxs,iq3_s,q3_k,iq4_xs"  # --pure iq2_s is IQ2_XS, iq2_m IQ2_S


def hessians(model, ids):
    """By the name of each matrix, the sum of x x^T over its inputs: one object for equal inputs."""
    found, last = {}, [None, ""]

    def add(name, x):
        if x is last[0]:
            found[name] = found[last[1]]
            return
        last[:] = x, name
        x = x.flatten(0, 1).double()
        found.setdefault(name, torch.zeros(x.shape[1], x.shape[1]).double()).add_(x.T @ x)

    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_pre_hook(lambda _, inputs, name=name: add(name, inputs[0]))
    model.output_norm.register_forward_hook(lambda _, inputs, out: add("token_embd", out))
    with torch.no_grad():
        for at in range(0, len(ids) - WINDOW + 1, WINDOW):
            model(torch.tensor([ids[at: at + WINDOW]]))
    return found


def quantized_tensors(tensors, moments, design, feedback):
    """The matrices of {name: (values, type)} in a design, all searched at once, SET rows a set."""
    by_inputs = {}
    for name, (values, _) in tensors.items():
        if values.ndim == 2:
            inputs = moments[name.removesuffix(".weight")]
            by_inputs.setdefault(id(inputs), (inputs, []))[1].append(name)
    rows, of_rows = [], []
    for inputs, names in by_inputs.values():
        joined = torch.cat([torch.from_numpy(tensors[name][0].copy()) for name in names])
        joined = torch.nn.functional.pad(joined, (0, 0, 0, -len(joined) % SET))
        rows += joined.split(SET)
        of_rows += [inputs] * (len(joined) // SET)
    made = quantized(torch.stack(rows), torch.stack(of_rows), design, feedback).flatten(0, 1)
    result, at = {}, 0
    for _, names in by_inputs.values():
        for name in names:
            result[name] = made[at: at + len(tensors[name][0])].numpy()
            at += len(result[name])
        at += -at % SET
    return result


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        lines = args.text.read_text().split("\n")
        self.halves = []
        for i, half in enumerate((lines[: len(lines) // 2], lines[len(lines) // 2:])):
            path = folder / f"half-{i}.txt"
            path.write_text("\n".join(half))
            self.halves.append(path)

    def sluice(self, *words):
        done = subprocess.run([self.args.sluice, *map(str, words), "--json"], capture_output=True,
                              text=True)
        if done.returncode > (1 if words[0] == "compare" else 0):  # 1: the models differ
            sys.exit(f"{' '.join(map(str, words))}\n{done.stderr}")
        return json.loads(done.stdout)

    def divergence(self, file, held_out):
        found = self.sluice("compare", file, self.args.model, "-f", held_out, "-c", CHUNK, "-n", 1,
                            "--chunks", self.args.chunks, "-t", self.args.threads)
        return found["logits"]["meanKl"]

    def of_type(self, name, calibration, held_out, feedback):
        """(bits of a weight, type, KL divergence) of a type that files have."""
        made, plain = self.folder / "made.gguf", self.folder / "plain.gguf"
        report = self.sluice("convert", "--force", self.args.model, made, "--type", name, "--pure",
                             "--calibrate", calibration, *(["--gptq"] if feedback else []))
        matrices = [t for t in report["tensors"] if t["from"] != t["type"]]
        bits = 8 * sum(t["bytes"] for t in matrices) / sum(t["values"] for t in matrices)
        self.sluice("convert", "--force", made, plain, "--type", "f32")
        types = {t["type"] for t in matrices}
        return bits, "/".join(sorted(types)), self.divergence(plain, held_out)

    def prepare(self, calibration):
        """The model's tensors, and the moments of their inputs."""
        model, tokenizer, self.metadata = gguf_reader.load(self.args.model)
        _, self.tensors = gguf_reader.read(self.args.model)
        self.moments = hessians(model.float(), tokenizer.encode(calibration.read_text()))

    def of_design(self, design, held_out, feedback):
        matrices = quantized_tensors(self.tensors, self.moments, design, feedback)
        tensors = [(name, matrices.get(name, values), gguf_writer.F32)
                   for name, (values, _) in self.tensors.items()]
        made = self.folder / "design.gguf"
        gguf_writer.write(made, self.metadata, tensors)
        return self.divergence(made, held_out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--text", type=pathlib.Path, default=ROOT / "examples/models/heldout.txt")
    parser.add_argument("--designs", help="names, with semicolons between (default: all)")
    parser.add_argument("--types", default=TYPES)
    parser.add_argument("--exchange", action="store_true", help="with the halves exchanged too")
    parser.add_argument("--chunks", type=int, default=12, help="of 400 tokens, half of them scored")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sluice", default=ROOT / "build/native/sluice")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    names = list(DESIGNS) if args.designs is None else [n for n in args.designs.split(";") if n]
    for name in names:
        if name not in DESIGNS:
            parser.error(f"--designs: {name} is none of {'; '.join(DESIGNS)}")
    chosen = [design(name) for name in names]
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, pathlib.Path(folder))
        for held_out, calibration in (bench.halves, bench.halves[::-1])[: 1 + args.exchange]:
            bench.prepare(calibration)
            for name in filter(None, args.types.split(",")):
                for feedback in (False, True):
                    bits, label, kl = bench.of_type(name, calibration, held_out, feedback)
                    rows.setdefault((bits, label, ""), ([], []))[feedback].append(kl)
                print(label, rows[bits, label, ""], file=sys.stderr, flush=True)
            for each in chosen:
                row = rows.setdefault((each.bits_per_weight, each.name, each.steps), ([], []))
                for feedback in (False, True):
                    row[feedback].append(bench.of_design(each, held_out, feedback))
                print(each.name, row, file=sys.stderr, flush=True)
    print("| bits a weight | design | steps | KL: imatrix | KL: error feedback |")
    print("|---|---|---|---|---|")
    for (bits, label, steps), columns in sorted(rows.items()):
        cells = [", ".join(f"{kl:.3g}" for kl in column) for column in columns]
        print(f"| {bits:.4g} | {label} | {steps} | {cells[0]} | {cells[1]} |")


if __name__ == "__main__":
    main()
