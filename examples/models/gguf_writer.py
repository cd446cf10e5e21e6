"""Writes GGUF version 3 and the block formats F16, Q8_0 and Q4_0, from the format's definition.

A file is: magic, version, counts, metadata, tensor table, padding to 32, tensor data in the order
given, each tensor padded to 32. Nothing here knows which model it writes. `dequantize` is the
inverse, so that the exact weights a file holds can be evaluated in Python too.
"""
import struct

import numpy as np

ALIGNMENT = 32
F32, F16, Q4_0, Q8_0 = 0, 1, 2, 8  # ggml tensor types
FILE_TYPE = {F16: 1, Q4_0: 2, Q8_0: 7}  # general.file_type
BLOCK = 32  # weights in a Q4_0 or Q8_0 block


def q8_0(rows):
    """34 bytes a block: f16 d = max|x| / 127, then 32 int8, x ~ d * q."""
    blocks = rows.reshape(-1, BLOCK)
    d = (np.abs(blocks).max(1) / 127).astype(np.float16)
    scale = d.astype(np.float32)
    inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)
    q = np.clip(np.rint(blocks * inverse[:, None]), -127, 127).astype(np.int8)
    return np.concatenate([d[:, None].view(np.uint8), q.view(np.uint8)], 1).tobytes()


def q4_0_codes(blocks):
    """(d as f16, codes 0..15) of least squared error among scales near the usual max / -8.

    The usual scale maps the largest weight to -8 exactly. A smaller or larger one often serves the
    other 31 weights better; the block layout is the same, so every reader profits.
    """
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(1)[:, None], 1)[:, 0]
    best_d = np.zeros(len(blocks), np.float16)
    best_q = np.full(blocks.shape, 8, np.uint8)
    best_error = np.full(len(blocks), np.inf)
    for levels in np.concatenate([[-8.0], np.arange(-9.0, -6.0, 0.05), np.arange(6.0, 9.0, 0.05)]):
        d = (largest / levels).astype(np.float16)
        for _ in range(2):  # round to codes, then the least-squares scale for these codes
            scale = d.astype(np.float32)
            inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale != 0)
            q = np.clip(np.rint(blocks * inverse[:, None]) + 8, 0, 15)
            error = ((blocks - (q - 8) * scale[:, None]) ** 2).sum(1)
            better = error < best_error
            best_d[better], best_q[better] = d[better], q[better].astype(np.uint8)
            best_error[better] = error[better]
            power = ((q - 8) ** 2).sum(1)
            d = np.divide((blocks * (q - 8)).sum(1), power, out=np.zeros_like(scale),
                          where=power > 0).astype(np.float16)
    return best_d, best_q


def q4_0(rows):
    """18 bytes a block: f16 d, then 16 bytes: low nibbles are weights 0..15, high ones 16..31."""
    d, q = q4_0_codes(rows.reshape(-1, BLOCK))
    nibbles = q[:, :16] | (q[:, 16:] << 4)
    return np.concatenate([d[:, None].view(np.uint8), nibbles], 1).tobytes()


def quantize(array, kind):
    """The bytes of a float32 array [rows, columns] in tensor type `kind`."""
    array = np.ascontiguousarray(array, np.float32)
    if kind == F32:
        return array.tobytes()
    if kind == F16:
        return array.astype(np.float16).tobytes()
    return {Q8_0: q8_0, Q4_0: q4_0}[kind](array)


def dequantize(data, kind, shape):
    """float32 weights that the bytes of `quantize` stand for."""
    raw = np.frombuffer(data, np.uint8)
    if kind == F32:
        return raw.view(np.float32).reshape(shape)
    if kind == F16:
        return raw.view(np.float16).astype(np.float32).reshape(shape)
    raw = raw.reshape(-1, 34 if kind == Q8_0 else 18)
    d = np.ascontiguousarray(raw[:, :2]).view(np.float16).astype(np.float32)
    if kind == Q8_0:
        q = np.ascontiguousarray(raw[:, 2:]).view(np.int8).astype(np.float32)
    else:
        q = np.concatenate([raw[:, 2:] & 15, raw[:, 2:] >> 4], 1).astype(np.float32) - 8
    return (q * d).reshape(shape)


def _string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value):
    """Type tag and bytes of one metadata value; ints are uint32, floats float32."""
    if isinstance(value, bool):
        return struct.pack("<IB", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _string(value)
    if isinstance(value[0], str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_string, value))
    return struct.pack(f"<IIQ{len(value)}i", 9, 5, len(value), *value)


def _pad(size):
    return -size % ALIGNMENT


def write(path, metadata, tensors):
    """`tensors`: (name, float32 array [rows, columns] or [columns], type) each, in file order."""
    table, blobs, offset = b"", [], 0
    for name, array, kind in tensors:
        data = quantize(array, kind)
        dims = array.shape[::-1]  # the contiguous dimension comes first
        table += _string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)
        blobs.append(data + bytes(_pad(len(data))))
        offset += len(blobs[-1])
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata))
    head += b"".join(_string(k) + _value(v) for k, v in metadata.items()) + table
    with open(path, "wb") as file:
        file.write(head + bytes(_pad(len(head))) + b"".join(blobs))
