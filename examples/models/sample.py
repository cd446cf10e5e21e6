"""Draws text from a model file with the trainer's own forward pass.

    python3 sample.py sluice-tales-F16.gguf --prompt "Once upon a time" --seed 1
    python3 sample.py sluice-tales-F16.gguf --chat "Tell me a story about a dog and a boat." \\
        "What color was the boat?"

Slow (no cache) and exact; the engine's `sluice run` is the quick way.
"""
import argparse

import torch

import corpus
from gguf_reader import load


@torch.no_grad()
def draw(model, ids, stop, temperature, generator, limit):
    """Appends tokens to `ids` until one of `stop`; returns those drawn, the stop token included."""
    drawn = []
    while len(ids) + len(drawn) < model.config.n_ctx and len(drawn) < limit:
        logits = model(torch.tensor([ids + drawn]))[0, -1]
        if temperature:
            token = int(torch.multinomial((logits / temperature).softmax(0), 1,
                                          generator=generator))
        else:
            token = int(logits.argmax())
        drawn.append(token)
        if token in stop:
            break
    return drawn


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--prompt", default="")
    parser.add_argument("--chat", nargs="+", help="user turns, answered one after the other")
    parser.add_argument("--temp", type=float, default=0.7)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-n", type=int, default=400)
    args = parser.parse_args()
    model, tokenizer, meta = load(args.model)
    model = model.float()
    generator = torch.Generator().manual_seed(args.seed)
    stop = {meta["tokenizer.ggml.eos_token_id"], meta["tokenizer.ggml.eot_token_id"]}
    ids = [meta["tokenizer.ggml.bos_token_id"]]
    if not args.chat:
        ids += tokenizer.encode(args.prompt)
        print(args.prompt + tokenizer.decode(draw(model, ids, stop, args.temp, generator, args.n)))
        return
    for turn in args.chat:
        ids += tokenizer.encode(corpus.USER + turn + corpus.END + corpus.ASSISTANT)
        drawn = draw(model, ids, stop, args.temp, generator, args.n)
        ids += drawn
        print(f"> {turn}\n{tokenizer.decode(drawn)}")


if __name__ == "__main__":
    main()
