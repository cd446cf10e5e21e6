"""Writes what the repository keeps of a training run: three model files, held-out text, references.

The reference outputs are computed in double precision from the weights that the F16 file holds, by
model.py, which shares no code with the engine; a test holds the engine against them.
"""
import json
import pathlib
import struct
import subprocess

import torch

import corpus
import gguf_reader
import gguf_writer as gguf
from model import Config

NAME = "sluice-tales"
HELD_OUT_BYTES = 36_000
PROMPTS = {
    "story": "Once upon a time, there was a little girl named Ann. She had a red boat.",
    "chat": corpus.USER + "Tell me a story about a dog and a boat." + corpus.END + corpus.ASSISTANT,
    "question": corpus.USER + "Ann lost her red boat by the river. Answer in JSON: name, object"
    + corpus.END + corpus.ASSISTANT,
}
LOGITS_FOR = {"story": 12, "chat": 8}  # prompt: number of last positions whose logits are kept
GREEDY, LEAST_LEAD = 48, 0.02  # tokens at most, up to where rounding could change the winner
HELD_OUT_TOKENS = 500  # of heldout.txt, BOS included, whose mean loss the references state
STRINGS = [
    "Hello", " Hello", "Hello, world!", "Once upon a time, there was a little girl named Ann.",
    "Tell me a story about a dog and a boat.", "It's Ann's; they're here, we'll see, I'd go.",
    "  two  spaces   three", "tabs\tand\nnew\n\nlines \n ", "numbers 1 12 123 3.14 2026",
    "{\"name\": \"Ann\", \"animal\": \"dog\"}", "<|user|>Hi!<|end|><|assistant|>",
    "<|endoftext|>The end.<|endoftext|>", "<|user|", "a<|end|>b <|end|> c", "naïve café Ærøskøbing",
    "Zażółć gęślą jaźń", "Привет, мир", "你好，世界", "🐶⛵ and 👩‍👧", "ΑΒΓ१२३²½Ⅷ",
    "\u00a0no-break\u2003em",
    "x=y+z; if (a[0] != b) { return; }", "ALL CAPS and MixedCase_words", "",
]


def commit():
    """The commit that last changed the trainer, or 'unknown' outside a repository."""
    here = pathlib.Path(__file__).resolve().parent
    done = subprocess.run(["git", "-C", str(here), "log", "-1", "--format=%H", "--", "*.py"],
                          capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def variant(config, words):
    """Nothing for the sample model; for one of another depth, what its name says of it."""
    return "" if config == Config() else words.format(config.n_layer)


def metadata(config, tokenizer, summary, kind):
    ids = tokenizer.ids
    return {
        "general.architecture": "llama",
        "general.name": "Sluice Tales" + variant(config, ", {} layers"),
        "general.description": "A very small model of children's stories, trained from a generated "
                               "corpus; see examples/models/README.md.",
        "general.license": "MIT",
        "general.file_type": gguf.FILE_TYPE[kind],
        "general.quantization_version": 2,
        "general.alignment": gguf.ALIGNMENT,
        "llama.context_length": config.n_ctx,
        "llama.embedding_length": config.n_embd,
        "llama.block_count": config.n_layer,
        "llama.feed_forward_length": config.n_ff,
        "llama.attention.head_count": config.n_head,
        "llama.attention.head_count_kv": config.n_head_kv,
        "llama.attention.key_length": config.head_dim,
        "llama.attention.value_length": config.head_dim,
        "llama.attention.layer_norm_rms_epsilon": config.rms_eps,
        "llama.rope.dimension_count": config.head_dim,
        "llama.rope.freq_base": config.rope_freq_base,
        "llama.vocab_size": config.n_vocab,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokenizer.tokens,
        "tokenizer.ggml.token_type": tokenizer.types,
        "tokenizer.ggml.merges": [" ".join(m) for m in tokenizer.merges],
        "tokenizer.ggml.bos_token_id": ids[corpus.END_OF_TEXT],
        "tokenizer.ggml.eos_token_id": ids[corpus.END_OF_TEXT],
        "tokenizer.ggml.eot_token_id": ids[corpus.END],
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_eos_token": False,
        "tokenizer.chat_template": corpus.CHAT_TEMPLATE,
        "sluice.training.command": summary["command"],
        "sluice.training.commit": commit(),
        "sluice.training.seed": summary["seed"],
        "sluice.training.steps": summary["steps"],
    }


def tensors(model, kind):
    """Embedding, layers in order, each layer's tensors together, then the final norm."""
    layer = ["attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate",
             "ffn_up", "ffn_down"]
    names = ["token_embd.weight"] + [f"blk.{i}.{n}.weight" for i in range(model.config.n_layer)
                                     for n in layer] + ["output_norm.weight"]
    state = model.state_dict()
    assert sorted(names) == sorted(state)
    return [(n, state[n].float().numpy(), kind if state[n].dim() == 2 else gguf.F32)
            for n in names]


def write_models(out, model, tokenizer, summary):
    name = NAME + variant(model.config, "-{}-layers")
    for label, kind in (("F16", gguf.F16), ("Q8_0", gguf.Q8_0), ("Q4_0", gguf.Q4_0)):
        gguf.write(out / f"{name}-{label}.gguf", metadata(model.config, tokenizer, summary, kind),
                   tensors(model, kind))


def write_held_out(out):
    """A part of the held-out documents as one text, for `sluice perplexity`."""
    from train import HELD_OUT_DOCUMENTS, HELD_OUT_SEED
    text = ""
    for document in corpus.documents(HELD_OUT_DOCUMENTS, HELD_OUT_SEED, True):
        if len(text) + len(document) > HELD_OUT_BYTES:
            break
        text += (corpus.END_OF_TEXT if text else "") + document
    (out / "heldout.txt").write_text(text)


@torch.no_grad()
def write_reference(out):
    """reference/tokens.json, reference/outputs.json and one .f32 file of logits per prompt."""
    model, tokenizer, meta = gguf_reader.load(out / f"{NAME}-F16.gguf")
    folder = out / "reference"
    folder.mkdir(exist_ok=True)
    bos = meta["tokenizer.ggml.bos_token_id"]
    cases = [dict(text=s, ids=tokenizer.encode(s)) for s in STRINGS]
    (folder / "tokens.json").write_text(
        "[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")
    outputs = []
    for name, text in PROMPTS.items():
        ids = [bos] + tokenizer.encode(text)
        entry = dict(name=name, text=text, tokens=ids)
        if name in LOGITS_FOR:
            kept = LOGITS_FOR[name]
            logits = model(torch.tensor([ids]))[0, -kept:].flatten().tolist()
            (folder / f"{name}.f32").write_bytes(struct.pack(f"<{len(logits)}f", *logits))
            entry.update(logits=f"{name}.f32", first_position=len(ids) - kept)
        greedy, gap, sequence = [], float("inf"), list(ids)
        for _ in range(GREEDY):
            top = model(torch.tensor([sequence]))[0, -1].topk(2)
            lead = float(top.values[0] - top.values[1])
            if lead < LEAST_LEAD:
                break
            greedy.append(int(top.indices[0]))
            sequence.append(greedy[-1])
            gap = min(gap, lead)
        entry.update(greedy=greedy, min_gap=round(gap, 6), greedy_text=tokenizer.decode(greedy))
        outputs.append(entry)
    ids = torch.tensor([[bos] + tokenizer.encode((out / "heldout.txt").read_text())])
    ids = ids[:, :HELD_OUT_TOKENS]
    nats = torch.nn.functional.cross_entropy(model(ids[:, :-1])[0], ids[0, 1:]).item()
    head = dict(model=f"{NAME}-F16.gguf", n_vocab=model.config.n_vocab,
                held_out_tokens=HELD_OUT_TOKENS, held_out_nats=round(nats, 9))
    lines = ",\n".join(json.dumps(e) for e in outputs)
    (folder / "outputs.json").write_text(json.dumps(head)[:-1] + ', "prompts": [\n' + lines
                                         + "\n]}\n")
