"""A small GGUF reader and writer for the reference models.

It exists so that the expected logits do not depend on the C++ parser that they check. It reads F32,
F16, BF16 and Q8_0 tensors into float64 and writes F32 and F16. Metadata is a plain dict; a writer
wraps a value to give its type: U32(3), F32(1e-5), or a bare str, bool or list.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import struct

import numpy as np

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
ALIGNMENT = 32


class Tagged:
    """A metadata value with its GGUF type id."""

    def __init__(self, type_id, value):
        self.type_id, self.value = type_id, value


def U32(value):
    return Tagged(4, int(value))


def I32(value):
    return Tagged(5, int(value))


def F32(value):
    return Tagged(6, float(value))


# --- reading -------------------------------------------------------------------------------------


class _Cursor:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, fmt):
        values = struct.unpack_from("<" + fmt, self.data, self.at)
        self.at += struct.calcsize("<" + fmt)
        return values if len(values) > 1 else values[0]

    def string(self):
        n = self.take("Q")
        self.at += n
        return self.data[self.at - n : self.at].decode("utf-8", "surrogateescape")

    def value(self, type_id):
        if type_id == _STRING:
            return self.string()
        if type_id == _ARRAY:
            element, count = self.take("IQ")
            return [self.value(element) for _ in range(count)]
        return self.take(_SCALARS[type_id])


def _decode(type_id, raw, count):
    if type_id == 0:
        return np.frombuffer(raw, "<f4", count).astype(np.float64)
    if type_id == 1:
        return np.frombuffer(raw, "<f2", count).astype(np.float64)
    if type_id == 30:
        bits = np.frombuffer(raw, "<u2", count).astype(np.uint32) << 16
        return bits.view(np.float32).astype(np.float64)
    if type_id == 8:
        blocks = np.frombuffer(raw, np.dtype([("d", "<f2"), ("q", "i1", 32)]), count // 32)
        return (blocks["d"].astype(np.float64)[:, None] * blocks["q"]).reshape(-1)
    raise ValueError(f"tensor type {type_id} is not supported by this reader")


def read(path):
    """Returns (metadata dict, {name: float64 array of shape ne reversed: [rows, cols]})."""
    with open(path, "rb") as file:
        cursor = _Cursor(file.read())
    magic, version, n_tensors, n_values = cursor.take("4sIQQ")
    if magic != b"GGUF" or version not in (2, 3):
        raise ValueError(f"{path} is not a GGUF file of version 2 or 3")
    metadata = {}
    for _ in range(n_values):
        key = cursor.string()
        metadata[key] = cursor.value(cursor.take("I"))
    directory = []
    for _ in range(n_tensors):
        name = cursor.string()
        ne = [cursor.take("Q") for _ in range(cursor.take("I"))]
        type_id, offset = cursor.take("IQ")
        directory.append((name, ne, type_id, offset))
    alignment = metadata.get("general.alignment", ALIGNMENT)
    start = -(-cursor.at // alignment) * alignment
    tensors = {}
    for name, ne, type_id, offset in directory:
        count = int(np.prod(ne))
        raw = memoryview(cursor.data)[start + offset :]
        tensors[name] = _decode(type_id, raw, count).reshape(ne[::-1])
    return metadata, tensors


# --- writing -------------------------------------------------------------------------------------


def _string(text):
    data = text.encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(data)) + data


def _tagged(value):
    if isinstance(value, Tagged):
        return value
    if isinstance(value, bool):
        return Tagged(7, value)
    if isinstance(value, str):
        return Tagged(_STRING, value)
    if isinstance(value, list):
        return Tagged(_ARRAY, value)
    raise TypeError(f"wrap {value!r} in U32, I32 or F32")


def _value(value):
    value = _tagged(value)
    if value.type_id == _STRING:
        return _string(value.value)
    if value.type_id == _ARRAY:
        elements = [_tagged(e) for e in value.value]
        head = struct.pack("<IQ", elements[0].type_id, len(elements))
        return head + b"".join(_value(e) for e in elements)
    return struct.pack("<" + _SCALARS[value.type_id], value.value)


def write(path, metadata, tensors):
    """Writes `tensors`, {name: float32 or float16 array}, in the dict's order."""
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata))
    for key, value in metadata.items():
        head += _string(key) + struct.pack("<I", _tagged(value).type_id) + _value(value)
    body = b""
    for name, array in tensors.items():
        type_id = {np.dtype("f4"): 0, np.dtype("f2"): 1}[array.dtype]
        ne = array.shape[::-1]
        head += _string(name) + struct.pack("<I", len(ne)) + struct.pack(f"<{len(ne)}Q", *ne)
        head += struct.pack("<IQ", type_id, len(body))
        body += array.tobytes()
        body += b"\0" * (-len(body) % ALIGNMENT)
    head += b"\0" * (-len(head) % ALIGNMENT)
    with open(path, "wb") as file:
        file.write(head + body)
