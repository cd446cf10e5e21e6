#!/usr/bin/env python3
"""Logits of llama.cpp's prebuilt library, for comparison with ours.

logits.py MODEL 1,2,3 OUT writes the logits of every position as f32, like
`sluice logits MODEL --tokens 1,2,3 --out OUT`. The library is the one that quantize.py loads.
"""
import os
import sys

from binding import Context


def main():
    model_path, ids, out = sys.argv[1:4]
    tokens = [int(t) for t in ids.split(",")]
    context = Context(model_path, len(tokens))
    context.decode(tokens, all_logits=True)
    with open(out, "wb") as file:
        for row in range(len(tokens)):
            file.write(context.logits(row))


main()
sys.stdout.flush()
os._exit(0)  # skips the library's destructors, which free memory that is still in use
