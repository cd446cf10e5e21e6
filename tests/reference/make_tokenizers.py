#!/usr/bin/env python3
"""Makes vocabularies of Gemma's kind (SentencePiece BPE) and T5's (unigram), with encoded texts.

    make_tokenizers.py FOLDER

writes gemma.gguf and unigram.gguf (metadata only), each with NAME.gguf.inp (texts, each followed by
a line "__ggml_vocab_test__") and NAME.gguf.out (their ids, a line each, without BOS and EOS).

The encoders follow the papers and are not optimized. BPE is as in Sennrich et al., 2016, ordered by
score as in SentencePiece (Kudo and Richardson, 2018). Of all neighbours whose joined text is a
piece, the pair with the highest score is merged first, the leftmost if equal. Symbols that are no
piece in the end are spelled in bytes. Unigram (Kudo, 2018) takes the segmentation with the highest
sum of scores. Texts are split at user-defined tokens first, leftmost and longest.
"""

import math
import os
import random
import sys
from collections import Counter

import gguf
from gguf import F32, I32, U32

MARK = "\u2581"  # SentencePiece's space
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
SYLLABLES = ("ka lo mi ren tu sha be qui ost ing th er un al ist ab cde fa gho ji pl vo wy xz "
             "при вет мо ре ση με α ω 天 地 玄 黄 の に は é ü ß ñ क म 🙂 🚀").split()  # fmt: skip


def random_text(rng, n_words):
    """Words of a few syllables, with punctuation, digits, runs of spaces and newlines."""
    out = []
    for _ in range(n_words):
        word = "".join(rng.choice(SYLLABLES) for _ in range(rng.randint(1, 4)))
        out.append(word.capitalize() if rng.random() < 0.1 else word)
        out.append(rng.choice([" "] * 12 + [", ", ". ", "\n", "  ", "    ", " 42 ", "\n\n", "'s ", "-"]))
    return "".join(out)


def learn_bpe(text, n_merges):
    """Pieces in the order in which merging the most frequent pair makes them. May cross words."""
    pieces, symbols = [], list(text)
    for _ in range(n_merges):
        counts = Counter(zip(symbols, symbols[1:]))
        (left, right), count = max(counts.items(), key=lambda item: (item[1], item[0]))
        if count < 2:
            break
        if left + right not in pieces:
            pieces.append(left + right)
        joined, i = [], 0
        while i < len(symbols):
            if symbols[i : i + 2] == [left, right]:
                joined.append(left + right)
                i += 2
            else:
                joined.append(symbols[i])
                i += 1
        symbols = joined
    return pieces


# --- encoders ------------------------------------------------------------------------------------


def cut(text, user_defined):
    """Splits at user-defined tokens: [(is one, part)]"""
    parts, start, i = [], 0, 0
    while i < len(text):
        found = max((t for t in user_defined if text.startswith(t, i)), key=len, default=None)
        if found is None:
            i += 1
            continue
        parts += [(False, text[start:i]), (True, found)]
        i += len(found)
        start = i
    return [p for p in parts + [(False, text[start:])] if p[1]]


def encode_bpe(text, ids, scores):
    symbols = list(text.replace(" ", MARK))
    while True:
        best = None
        for i in range(len(symbols) - 1):
            score = scores.get(symbols[i] + symbols[i + 1])
            if score is not None and (best is None or score > best[0]):
                best = (score, i)
        if best is None:
            break
        i = best[1]
        symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]
    out = []
    for symbol in symbols:
        if symbol in scores:
            out.append(ids[symbol])
        else:
            out += [ids[f"<0x{byte:02X}>"] for byte in symbol.encode()]
    return out


def encode_unigram(text, ids, scores):
    text = text.replace(" ", MARK)
    best = [(0.0, 0)] + [(-math.inf, 0)] * len(text)  # score, begin of the last piece
    for end in range(1, len(text) + 1):
        for begin in range(end):
            score = scores.get(text[begin:end])
            if score is not None and best[begin][0] + score > best[end][0]:
                best[end] = (best[begin][0] + score, begin)
    out, end = [], len(text)
    while end > 0:
        out.append(ids[text[best[end][1] : end]])
        end = best[end][1]
    return out[::-1]


# --- files ---------------------------------------------------------------------------------------


def write_vocabulary(folder, name, model, vocabulary, more, encode, texts):
    tokens = [token for token, _, _ in vocabulary]
    assert len(set(tokens)) == len(tokens)
    metadata = {
        "general.architecture": "llama",
        "tokenizer.ggml.model": model,
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [F32(score) for _, score, _ in vocabulary],
        "tokenizer.ggml.token_type": [I32(kind) for _, _, kind in vocabulary],
        **more,
    }
    path = os.path.join(folder, f"{name}.gguf")
    gguf.write(path, metadata, {})
    ids = {token: i for i, token in enumerate(tokens)}
    scores = {token: score for token, score, kind in vocabulary if kind == NORMAL}
    user_defined = [token for token, _, kind in vocabulary if kind == USER_DEFINED]
    prefix = MARK if more.get("tokenizer.ggml.add_space_prefix") else ""
    with open(path + ".inp", "w", newline="") as inputs, open(path + ".out", "w") as outputs:
        for text in texts:
            out = []
            for is_token, part in cut(text, user_defined):
                out += [ids[part]] if is_token else encode(prefix + part, ids, scores)
            inputs.write(text + "\n__ggml_vocab_test__\n")
            outputs.write(" ".join(map(str, out)) + "\n")


def make_gemma(folder, rng):
    pieces = learn_bpe(random_text(rng, 4000).replace(" ", MARK), 700)
    characters = sorted({c for piece in pieces for c in piece})
    vocabulary = [("<pad>", 0.0, CONTROL), ("<eos>", 0.0, CONTROL), ("<bos>", 0.0, CONTROL)]
    vocabulary += [("<unk>", 0.0, UNKNOWN), ("<start_of_turn>", 0.0, CONTROL)]
    vocabulary += [("\n" * n, 0.0, USER_DEFINED) for n in range(2, 6)]
    vocabulary += [(" " * n, 0.0, USER_DEFINED) for n in range(2, 8)]
    vocabulary += [(f"<0x{byte:02X}>", 0.0, BYTE) for byte in range(256)]
    pieces = [piece for piece in pieces if piece not in [token for token, _, _ in vocabulary]]
    vocabulary += [(piece, -float(rank), NORMAL) for rank, piece in enumerate(pieces)]
    # Every other character is a piece; the rest are spelled in bytes.
    singles = [c for c in characters[::2] if c not in pieces]
    vocabulary += [(c, -float(len(pieces) + i), NORMAL) for i, c in enumerate(singles)]
    more = {"tokenizer.ggml.bos_token_id": U32(2), "tokenizer.ggml.eos_token_id": U32(1),
            "tokenizer.ggml.unknown_token_id": U32(3), "tokenizer.ggml.add_space_prefix": False}  # fmt: skip
    texts = [random_text(rng, rng.randint(1, 25)) for _ in range(150)]
    texts += ["a" * 40, " " * 33, "\n" * 23, " a  b   c    d ", "ααααωωωω", "\u0000x\u007f", "e\u0301"]
    write_vocabulary(folder, "gemma", "llama", vocabulary, more, encode_bpe, texts)


def make_unigram(folder, rng):
    sample = random_text(rng, 3000)
    characters = sorted(set(sample.replace(" ", MARK)) | {MARK})
    pieces = set(learn_bpe(sample.replace(" ", MARK), 300))
    marked = sample.replace(" ", MARK)
    while len(pieces) < 900:  # pieces with many kinds of overlap
        at = rng.randrange(len(marked))
        pieces.add(marked[at : at + rng.randint(2, 7)])
    vocabulary = [("<pad>", 0.0, CONTROL), ("</s>", 0.0, CONTROL), ("<unk>", 0.0, UNKNOWN)]
    # Scores with few bits: sums are exact, so the best one does not depend on the order.
    vocabulary += [(c, -12 - i / 64, NORMAL) for i, c in enumerate(characters)]
    vocabulary += [(p, -rng.randint(128, 1500) / 128, NORMAL) for p in sorted(pieces - set(characters))]
    more = {"tokenizer.ggml.eos_token_id": U32(1), "tokenizer.ggml.unknown_token_id": U32(2),
            "tokenizer.ggml.add_space_prefix": True}  # fmt: skip
    texts = [random_text(rng, rng.randint(1, 20)).strip() for _ in range(150)]
    write_vocabulary(folder, "unigram", "t5", vocabulary, more, encode_unigram, texts)


if __name__ == "__main__":
    os.makedirs(sys.argv[1], exist_ok=True)
    make_gemma(sys.argv[1], random.Random(1))
    make_unigram(sys.argv[1], random.Random(2))
