"""Random reads of a file without the page cache (O_DIRECT), for `npm run bench:experts -- device`.

    device-reads.py FILE SECONDS SIZE,… DEPTH,…

Prints a JSON line { size, depth, bytesPerSecond, readsPerSecond } for each size in bytes and each
number of reads in flight. Each read in flight has a thread, which is free of Python's lock while it
waits. Needs Linux and a file system with direct I/O.
"""
import json
import mmap
import os
import random
import sys
import threading
import time


def measure(fd, size, depth, seconds):
    """Reads per second at random multiples of `size`."""
    blocks = os.fstat(fd).st_size // size
    if blocks == 0:
        sys.exit(f"the file is smaller than {size} bytes")
    counts, errors, start = [0] * depth, [], time.perf_counter()

    def work(i):
        places, into = random.Random(), mmap.mmap(-1, size)  # whose memory is aligned to pages
        try:
            while time.perf_counter() - start < seconds:
                if os.preadv(fd, [into], places.randrange(blocks) * size) != size:
                    raise OSError("a read returned too little")
                counts[i] += 1
        except OSError as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(depth)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        sys.exit(str(errors[0]))
    return sum(counts) / (time.perf_counter() - start)


def main():
    path, seconds, sizes, depths = sys.argv[1:]
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    for size in map(int, sizes.split(",")):
        for depth in map(int, depths.split(",")):
            reads = measure(fd, size, depth, float(seconds))
            row = dict(size=size, depth=depth, bytesPerSecond=reads * size, readsPerSecond=reads)
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
