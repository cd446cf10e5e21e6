"""Byte-level BPE, trained and applied: the tokenizer of the sample model.

The same alphabet and the same word splitting as GPT-2's, because that is what a GGUF file means by
tokenizer.ggml.model = "gpt2" and tokenizer.ggml.pre = "gpt-2". The encoder here is written apart
from the engine's, so that the two can be compared.
"""
import collections
import functools
import re
import sys
import unicodedata

CONTROL, NORMAL = 3, 1  # tokenizer.ggml.token_type


def byte_alphabet():
    """GPT-2's printable character for each byte: itself where printable, else from U+0100 on."""
    plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255]
    others = [b for b in range(256) if b not in plain]
    table = {b: chr(b) for b in plain}
    table.update({b: chr(256 + i) for i, b in enumerate(others)})
    return [table[b] for b in range(256)]


@functools.lru_cache(None)
def splitter():
    """GPT-2's word pattern; `re` has no Unicode classes, so they are written out as ranges."""

    def ranges(letter):
        text, start = "", None
        for code in range(sys.maxunicode + 2):
            inside = code <= sys.maxunicode and unicodedata.category(chr(code))[0] == letter
            if inside and start is None:
                start = code
            elif not inside and start is not None:
                text += f"\\U{start:08x}-\\U{code - 1:08x}"
                start = None
        return text

    letters, numbers = ranges("L"), ranges("N")
    space = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
    return re.compile(f"'s|'t|'re|'ve|'m|'ll|'d| ?[{letters}]+| ?[{numbers}]+"
                      f"| ?[^{space}{letters}{numbers}]+|[{space}]+(?![^{space}])|[{space}]+")


class Tokenizer:
    """Token ids are the specials, then the 256 bytes, then one token for each merge, in order."""

    def __init__(self, specials, merges):
        self.specials, self.merges = list(specials), [tuple(m) for m in merges]
        self.alphabet = byte_alphabet()
        self.tokens = self.specials + self.alphabet + ["".join(m) for m in self.merges]
        self.types = [CONTROL] * len(self.specials) + [NORMAL] * (256 + len(self.merges))
        self.ids = {t: i for i, t in enumerate(self.tokens)}
        self.ranks = {m: i for i, m in enumerate(self.merges)}
        self.byte_of = {c: b for b, c in enumerate(self.alphabet)}
        self.special_pattern = re.compile("(" + "|".join(map(re.escape, self.specials)) + ")")
        self.cache = {}

    def encode_word(self, word):
        """Merges the pair of lowest rank, leftmost first, until no pair has a rank."""
        if word not in self.cache:
            parts = [self.alphabet[b] for b in word.encode()]
            while len(parts) > 1:
                rank, at = min((self.ranks.get(p, 1 << 30), i)
                               for i, p in enumerate(zip(parts, parts[1:])))
                if rank == 1 << 30:
                    break
                parts[at: at + 2] = [parts[at] + parts[at + 1]]
            self.cache[word] = [self.ids[p] for p in parts]
        return self.cache[word]

    def encode(self, text, parse_special=True):
        pieces = self.special_pattern.split(text) if parse_special else [text]
        ids = []
        for piece in pieces:
            if parse_special and piece in self.specials:
                ids.append(self.ids[piece])
            else:
                for word in splitter().findall(piece):
                    ids += self.encode_word(word)
        return ids

    def decode(self, ids):
        data = b""
        for i in ids:
            special = i < len(self.specials)
            data += (self.tokens[i].encode() if special
                     else bytes(self.byte_of[c] for c in self.tokens[i]))
        return data.decode(errors="replace")


def train(texts, specials, size, whole=(), weight=0):
    """The usual greedy training: join the most frequent pair, ties by spelling, until `size`.

    Each of the words `whole` counts as if it stood `weight` times more in the texts, with no space
    before it: so it becomes one token early, and one merge more makes the form with a space.
    """
    counts = collections.Counter({word: weight for word in whole})
    pattern = re.compile("|".join(map(re.escape, specials)))
    for text in texts:
        for piece in pattern.split(text):
            counts.update(splitter().findall(piece))
    alphabet = byte_alphabet()
    words = [([alphabet[b] for b in w.encode()], n) for w, n in sorted(counts.items())]
    merges = []
    while len(specials) + 256 + len(merges) < size:
        pairs = collections.Counter()
        for parts, n in words:
            for pair in zip(parts, parts[1:]):
                pairs[pair] += n
        best = min(pairs, key=lambda p: (-pairs[p], p))
        merges.append(best)
        for parts, _ in words:
            i = 0
            while i + 1 < len(parts):
                if (parts[i], parts[i + 1]) == best:
                    parts[i: i + 2] = [parts[i] + parts[i + 1]]
                i += 1
    return Tokenizer(specials, merges)
