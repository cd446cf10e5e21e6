#!/usr/bin/env python3
"""Decode rate of llama.cpp's prebuilt library with a model that stays in its file (mmap).

mapped.py MODEL THREADS WARM_UP_TOKENS MEASURED_TOKENS → one line of JSON. Weights are not repacked: repacked ones
are copies in memory, so a limit below the model's size would end the process. Tokens are fixed, one at a time. The
library is the one that quantize.py loads.
"""
import json
import os
import sys
import time

from binding import Context


def main():
    threads, warm_up, measured = map(int, sys.argv[2:5])
    context = Context(sys.argv[1], warm_up + measured, repack=False)
    context.set_threads(threads)
    start = 0.0
    for i in range(warm_up + measured):
        if i == warm_up:
            start = time.perf_counter()
        context.decode([3 + (i * 7919) % (context.vocabulary - 3)])
    print(json.dumps({"decode": measured / (time.perf_counter() - start)}))


main()
sys.stdout.flush()
os._exit(0)  # skips the library's destructors, which free memory that is still in use
