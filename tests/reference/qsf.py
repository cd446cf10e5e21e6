"""A second reader of QSF, written from docs/qsf.md alone, and a writer as another program would be.

It needs only Python's standard library. It exists so that the page, not src/qsf, decides what a file means.

qsf.py list FILE       prints JSON: the header, and for each tensor its type, shape and a hash of its f32 values;
                       FILE is a QSF file without Zstandard, or a GGUF file of f32 tensors
qsf.py strip IN OUT    writes the weights of IN as a program that knows only the format would: no metadata section,
                       no alignment, names only where a kind has no number
"""

import hashlib
import json
import struct
import sys
import zlib

KINDS = [
    "attn_q.weight", "attn_k.weight", "attn_v.weight", "attn_output.weight", "ffn_gate.weight", "ffn_up.weight",
    "ffn_down.weight", "attn_norm.weight", "ffn_norm.weight", "attn_q.bias", "attn_k.bias", "attn_v.bias",
    "attn_output.bias",
]
UNPACKED = 1 << 48
EXPERTS = 1 << 52
# Code of a type: (values per block, bytes per block). From 32 on it is ggml's type plus 32.
SIZES = {1: (64, 20), 2: (64, 28), 3: (64, 36), 4: (64, 18), 32: (1, 4), 33: (1, 2), 62: (1, 2), 40: (32, 34)}


class Wrong(Exception):
    pass


def expect(condition, what):
    if not condition:
        raise Wrong(what)


def take(form, data, at):
    values = struct.unpack_from("<" + form, data, at)
    return values if len(values) > 1 else values[0]


def up(n, unit):
    return (n + unit - 1) // unit * unit


# --- values --------------------------------------------------------------------------------------


def codes(data, bits, count):
    """`count` numbers of `bits` bits, low bits first."""
    whole = int.from_bytes(data, "little")
    return [whole >> (bits * i) & ((1 << bits) - 1) for i in range(count)]


def block_values(code, block):
    if code == 4:
        scale = take("e", block, 0)
        signs, zeros = codes(block[2:10], 1, 64), codes(block[10:18], 1, 64)
        return [0.0 if zero else -scale if sign else scale for sign, zero in zip(signs, zeros)]
    scale, minimum = take("2e", block, 0)
    return [minimum + scale * q for q in codes(block[4:], code + 1, 64)]


def values_of(code, data):
    size = SIZES[code][1]
    if code == 32:
        return list(struct.unpack(f"<{len(data) // 4}f", data))
    if code == 33:
        return list(struct.unpack(f"<{len(data) // 2}e", data))
    if code == 62:
        return [take("f", b"\0\0" + data[i : i + 2], 0) for i in range(0, len(data), 2)]
    if code == 40:
        out = []
        for i in range(0, len(data), size):
            scale = take("e", data, i)
            out += [scale * q for q in struct.unpack_from("<32b", data, i + 2)]
        return out
    return [v for i in range(0, len(data), size) for v in block_values(code, data[i : i + size])]


def hash_of(code, data):
    values = [v + 0.0 for v in values_of(code, data)]  # without negative zeros
    return hashlib.sha256(struct.pack(f"<{len(values)}f", *values)).hexdigest()


# --- the container -------------------------------------------------------------------------------


def unpack_lz4(data, size):
    out, at = bytearray(), 0

    def length(n):
        nonlocal at
        while n >= 15:
            n += data[at]
            at += 1
            if data[at - 1] != 255:
                break
        return n

    while at < len(data):
        token = data[at]
        at += 1
        literals = length(token >> 4)
        out += data[at : at + literals]
        at += literals
        if at >= len(data):
            break
        back = take("H", data, at)
        at += 2
        for _ in range(length(token & 15) + 4):
            out.append(out[-back])
    expect(len(out) == size, "an LZ4 layer has another size")
    return bytes(out)


def tensor_header(data, at, layer):
    """Name, type, rows, columns, and where the header ends."""
    kind, rows, cols, code = take("IIIB", data, at)
    at += 16
    if kind >> 31:
        n = kind & 0x7FFFFFFF
        return data[at : at + n].decode(), code, rows, cols, at + up(n, 16)
    return f"blk.{layer}.{KINDS[kind]}", code, rows, cols, at


def bytes_of(code, rows, cols):
    values, size = SIZES[code]
    expect(cols % values == 0, "a row is not whole blocks")
    return rows * cols // values * size


def string(data, at):
    n = take("Q", data, at)
    return data[at + 8 : at + 8 + n].decode("utf-8", "replace"), at + 8 + n


def skip_value(data, at, kind):
    if kind == 8:
        return string(data, at)[1]
    if kind != 9:
        return at + {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}[kind]
    element, count = take("IQ", data, at)
    at += 12
    for _ in range(count):
        at = skip_value(data, at, element)
    return at


def skip_keys(data, at, count):
    """Where the keys end, and the alignment that they ask for."""
    alignment = 32
    for _ in range(count):
        key, at = string(data, at)
        kind = take("I", data, at)
        if key == "general.alignment":
            alignment = take("I", data, at + 4)
        at = skip_value(data, at + 4, kind)
    return at, alignment


def tensor_infos(data, at, count):
    infos = {}
    for _ in range(count):
        name, at = string(data, at)
        dims = take("I", data, at)
        shape = [take("Q", data, at + 4 + 8 * d) for d in range(dims)]
        at += 4 + 8 * dims
        kind, offset = take("IQ", data, at)
        infos[name] = (kind, shape, offset)
        at += 12
    return infos, at


def read_header(data):
    names = ["layers", "hidden", "heads", "kv_heads", "vocabulary", "context", "feed_forward", "head_size"]
    header = dict(zip(names, take("8I", data, 16)))
    header["architecture"] = take("I", data, 12)
    header["quantization"], header["activation"], header["norm"], header["positions"] = take("4B", data, 48)
    header["index"], header["embedding"], header["final"] = take("3Q", data, 56)
    header["metadata"], header["metadata_bytes"] = take("QI", data, 100)
    header["version"], size = take("2I", data, 4)
    expect(data[:4] == b"QSF1" and header["version"] in (1, 2) and size == 128, "magic, version or header size")
    header["experts"], header["experts_bytes"], zero = take("QII", data, 112)
    expect(zero == 0 and (header["experts"] > 0) == (header["version"] == 2), "bytes 112 to 127 of the header")
    expect(take("I", data, 92) == len(data) & 0xFFFFFFFF, "file size")
    expect(take("I", data, 96) == zlib.crc32(data[:96]), "CRC-32 of the header")
    return header


def read_layer(data, header, layer, alignment):
    """The tensors of a layer: {name: (type, rows, columns, bytes, address)}."""
    at = header["index"] + 32 * layer
    offset, stored, size, kind, compression, count, crc = take("QIIBBHI", data, at)
    raw = data[offset : offset + stored]
    expect(zlib.crc32(raw) == crc, f"CRC-32 of layer {layer}")
    expect(offset % 4096 == 0, f"layer {layer} is not aligned")
    expect(compression in (0, 1, 2), "this reader has no Zstandard")
    address = UNPACKED + (layer << 32) if compression else offset
    body = unpack_lz4(raw, size) if compression else raw
    tensors, at = {}, 0
    for _ in range(count):
        name, code, rows, cols, at = tensor_header(body, at, layer)
        at = up(at, max(64, alignment))
        n = bytes_of(code, rows, cols)
        tensors[name] = (code, rows, cols, body[at : at + n], address + at)
        at += n
    expect(at == size, f"tensors do not fill layer {layer}")
    types = {t[0] for t in tensors.values() if t[1] > 1}
    expect(kind == (types.pop() if len(types) == 1 else 5), f"the type of layer {layer}")
    return tensors


def read_sections(data, header):
    """Embedding and output head. The final norm in f16 is checked against the exact one later."""
    at = header["embedding"]
    code, size, rows, cols = take("4I", data, at)
    tensors = {"token_embd.weight": (code, rows, cols, data[at + 16 : at + 16 + size], at + 16)}
    expect((cols, rows) == (header["hidden"], header["vocabulary"]), "dimensions of the embedding")
    norm = values_of(33, data[header["final"] : header["final"] + 2 * header["hidden"]])
    at = header["final"] + 2 * header["hidden"] * (2 if header["norm"] == 0 else 1)
    if data[at] == 0xFF:
        return tensors, norm
    expect(data[at] == 0, "the byte before the output head")
    _, code, rows, cols, at = tensor_header(data, at + 1, 0)
    tensors["output.weight"] = (code, rows, cols, data[at : at + bytes_of(code, rows, cols)], at)
    return tensors, norm


def read_experts(data, table, header, infos, alignment):
    """The tensors of experts, gathered from their records."""
    tensors, at, records, group, unit = {}, 0, 0, -1, max(64, alignment)
    while at < len(table):
        group += 1
        offset, size, experts, count, aligned = take("QIIII", table, at)
        sizes = struct.unpack_from(f"<{count}I", table, at + 24)
        crcs = struct.unpack_from(f"<{experts}I", table, at + 24 + 4 * count)
        at += 24 + 4 * (count + experts)
        expect(aligned == unit, "the alignment of experts")
        start = EXPERTS + (group << 40)
        inside = sorted((i[2], n) for n, i in infos.items() if start <= i[2] < start + (1 << 40))
        address, place, slices = start, 0, []
        for found, name in inside:
            kind, shape, _ = infos[name]
            expect(name.endswith("_exps.weight"), f"{name} is in records")
            rows = shape[1] * shape[2]
            expect(shape[2] == experts, f"the number of experts of {name}")
            n = bytes_of((kind + 32) & 255, rows, shape[0])
            address, place = up(address, unit), up(place, unit)
            expect(found == address, f"the address of {name}")
            slices.append((name, (kind + 32) & 255, rows, shape[0], place, n // experts))
            address += n
            place += n // experts
        expect(place == size and tuple(s[5] for s in slices) == sizes, f"the records of layer {group}")
        places = [offset + e * up(size, 4096) for e in range(experts)]
        expect(offset % 4096 == 0, f"the records of layer {group} are not aligned")
        for place, crc in zip(places, crcs):
            expect(zlib.crc32(data[place : place + size]) == crc, "CRC-32 of an expert")
            records += 1
        for name, code, rows, cols, inner, n in slices:
            raw = b"".join(data[place + inner : place + inner + n] for place in places)
            tensors[name] = (code, rows, cols, raw, infos[name][2])
    header["records"], header["layers_of_records"] = records, group + 1
    return tensors


def read(path):
    with open(path, "rb") as file:
        data = file.read()
    header = read_header(data)
    start, size = header["metadata"], header["metadata_bytes"]
    section = data[start : start + size]
    expect(section[-4:] == b"QSFT", "magic of the trailer")
    n_tensors, n_sections, crc = take("3I", section, size - 16)
    index = data[header["index"] : header["index"] + 32 * header["layers"]]
    expect(zlib.crc32(data[100:128] + index + section[:-8]) == crc, "CRC-32 of the metadata")
    at, alignment = skip_keys(section, 8, take("Q", section, 0))
    infos, at = tensor_infos(section, at, n_tensors)
    table = section[at : at + header["experts_bytes"]]
    expect(not table or start + at == header["experts"], "the offset of the table of experts")
    at += len(table)
    expect(at + 24 * n_sections + 16 == size, "the metadata section's size")
    for i in range(n_sections):
        offset, length, crc, _ = take("QQII", section, at + 24 * i)
        expect(zlib.crc32(data[offset : offset + length]) == crc, f"CRC-32 of section {i}")
    tensors, norm = read_sections(data, header)
    for layer in range(header["layers"]):
        tensors.update(read_layer(data, header, layer, alignment))
    tensors.update(read_experts(data, table, header, infos, alignment))
    for name, (kind, shape, offset) in infos.items():
        code = (kind + 32) & 255
        if name not in tensors:  # outside layers and sections
            rows = 1
            for n in shape[1:]:
                rows *= n
            raw = data[offset : offset + bytes_of(code, rows, shape[0])]
            tensors[name] = (code, rows, shape[0], raw, offset)
        found = tensors[name]
        expect((code, shape[0], offset) == (found[0], found[2], found[4]), f"the tensor info of {name}")
    expect(len(infos) == len(tensors), "tensors without an info")
    exact = values_of(*[tensors["output_norm.weight"][i] for i in (0, 3)])
    expect(all(abs(a - b) <= abs(b) / 1024 for a, b in zip(norm, exact)), "the final norm")
    return header, tensors


def read_gguf(path):
    with open(path, "rb") as file:
        data = file.read()
    n_tensors, n_keys = take("2Q", data, 8)
    at, alignment = skip_keys(data, 24, n_keys)
    infos, at = tensor_infos(data, at, n_tensors)
    start = up(at, alignment)
    tensors = {}
    for name, (kind, shape, offset) in infos.items():
        rows = 1
        for n in shape[1:]:
            rows *= n
        size = bytes_of(kind + 32, rows, shape[0])
        tensors[name] = (kind + 32, rows, shape[0], data[start + offset : start + offset + size], 0)
    return {}, tensors


# --- another writer ------------------------------------------------------------------------------


def header_bytes(name, code, rows, cols):
    kind = name.split(".", 2)[-1] if name.startswith("blk.") else ""
    if kind in KINDS:
        return struct.pack("<IIIB3x", KINDS.index(kind), rows, cols, code)
    text = name.encode()
    return struct.pack("<IIIB3x", 1 << 31 | len(text), rows, cols, code) + text.ljust(up(len(text), 16), b"\0")


def strip(source, target):
    header, tensors = read(source)
    with open(source, "rb") as file:
        head = bytearray(file.read()[:128])
    body = bytearray(128)
    struct.pack_into("<QI", head, 100, 0, 0)
    entries = b""
    for layer in range(header["layers"]):
        start = len(body)
        of_layer = {n: t for n, t in tensors.items() if n.startswith(f"blk.{layer}.")}
        matrices = {t[0] for t in of_layer.values() if t[1] > 1}
        kind = matrices.pop() if len(matrices) == 1 else 5
        for name, (code, rows, cols, raw, _) in of_layer.items():
            body += header_bytes(name, 0xFF if code == kind else code, rows, cols) + raw
        size = len(body) - start
        crc = zlib.crc32(body[start:])
        entries += struct.pack("<QIIBBHIfI", start, size, size, kind, 0, len(of_layer), crc, 1.0, 0)
    embedding = len(body)
    code, rows, cols, raw, _ = tensors["token_embd.weight"]
    body += struct.pack("<4I", code, len(raw), rows, cols) + raw
    final = len(body)
    norm = values_of(*[tensors["output_norm.weight"][i] for i in (0, 3)])
    body += struct.pack(f"<{len(norm)}e", *norm)
    if "output.weight" in tensors:
        code, rows, cols, raw, _ = tensors["output.weight"]
        body += b"\0" + header_bytes("output.weight", code, rows, cols) + raw
    else:
        body += b"\xff"
    struct.pack_into("<3Q", head, 56, len(body), embedding, final)
    body += entries
    struct.pack_into("<I", head, 92, len(body) & 0xFFFFFFFF)
    struct.pack_into("<I", head, 96, zlib.crc32(head[:96]))
    body[:128] = head
    with open(target, "wb") as file:
        file.write(body)


def main():
    command, path = sys.argv[1:3]
    if command == "strip":
        return strip(path, sys.argv[3])
    header, tensors = read_gguf(path) if path.endswith(".gguf") else read(path)
    listed = {n: {"type": t[0], "shape": [t[2], t[1]], "hash": hash_of(t[0], t[3])} for n, t in tensors.items()}
    print(json.dumps({"header": header, "tensors": listed}))


if __name__ == "__main__":
    try:
        main()
    except Wrong as wrong:
        sys.exit(f"not as docs/qsf.md says: {wrong}")
