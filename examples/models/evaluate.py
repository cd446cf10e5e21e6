"""Asks a model file what the corpus taught and counts what comes out right.

    python3 examples/models/evaluate.py examples/models/sluice-tales-Q8_0.gguf

Stories are drawn at temperature 0.7 by the engine (build/native/sluice), each with its own seed,
for requests whose (name, animal, object) no training document has; answers are greedy. The checks
read the text alone: they know the words of lexicon.py and nothing of how the story was meant.
"""
import argparse
import json
import pathlib
import random
import re
import subprocess
import zlib

from corpus import ASK_STORY, ASSISTANT, END, USER, as_chat, document
from lexicon import ANIMALS, BOYS, COLORS, GIRLS, GROWN_UPS, OBJECTS

ROOT = pathlib.Path(__file__).resolve().parents[2]
FORMS = ["a {A} and a {O}", "a {A} and a {C} {O}", "a {kind} named {N} who lost a {C} {O}",
         "{N}, a {A} and a {C} {O}", "a {A}, a {kind} and a {O}", "two friends who share a {O}",
         "{N} and a brave {A}", "a {C} {O} for {G}"]
QUESTION = r"(What|Who|Whose|Where|Why|How|Did|Was|With whom)\b"
EVALUATION_SEED = 2_000_000_000
SYNONYMS = (("loved", "liked"), ("used", "brought"))  # the corpus draws either in an answer


def generate(args, prompt, seed=None):
    """(text, ended by itself) from the engine; greedy without a seed."""
    command = [args.engine, "run", "--raw", args.model, "-p", prompt, "-n", "350", "--json"]
    command += ["--temp", "0"] if seed is None else ["--temp", str(args.temp), "--seed", str(seed)]
    answer = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    return answer["text"], answer["finishReason"] == "stop"


def words(text, known):
    """Those of the known words that stand in the text, in order of appearance, without repeats."""
    found = re.findall(r"\b(" + "|".join(known) + r")s?\b", text)
    return list(dict.fromkeys(found))


def request(rng):
    """A held-out combination and what a story for it must contain."""
    while True:
        name = rng.choice(GIRLS + BOYS)
        slots = dict(N=name, A=rng.choice(list(ANIMALS)), O=rng.choice(list(OBJECTS)),
                     C=rng.choice(COLORS), G=rng.choice(list(GROWN_UPS)),
                     kind="girl" if name in GIRLS else "boy")
        if zlib.crc32("/".join(slots[k] for k in "NAO").encode()) % 40 == 0:
            break
    form = rng.choice(FORMS)
    subject = re.sub(r"\ba (?=[aeiou])", "an ", form.format(**slots))
    wanted = [v for k, v in slots.items() if "{" + k + "}" in form]
    return rng.choice(ASK_STORY).replace("{x}", subject), wanted


def colors_agree(story):
    """No thing has two colors; None where the story colors nothing."""
    pairs = re.findall(r"\b(" + "|".join(COLORS) + r") (" + "|".join(OBJECTS) + r")\b", story)
    of = {}
    for color, thing in pairs:
        of.setdefault(thing, set()).add(color)
    return all(len(c) == 1 for c in of.values()) if of else None


def facts_in(story):
    """What the story lets one say for sure: hero, and animal, object and color if there is one."""
    names = words(story, GIRLS + BOYS)
    colored = re.findall(r"\b(" + "|".join(COLORS) + r") (" + "|".join(OBJECTS) + r")\b", story)
    animals = words(story, ANIMALS)
    facts = {"name": names[0]} if names else {}
    if len(animals) == 1:
        facts["animal"] = animals[0]
    if len(set(colored)) == 1:
        facts["object"], facts["color"] = colored[0][1], colored[0][0]
    return facts


def stories(args, score):
    """Requests, then a JSON object asked about the model's own story."""
    rng = random.Random(EVALUATION_SEED)
    for number in range(1, args.count + 1):
        ask, wanted = request(rng)
        story, ended = generate(args, f"{USER}{ask}{END}{ASSISTANT}", number)
        present = [bool(words(story, [w])) for w in wanted]
        score("stories that end by themselves", ended)
        score("stories with all that was asked for", all(present))
        for here in present:
            score("single words asked for that are in the story", here)
        agree = colors_agree(story)
        if agree is not None:
            score("stories in which a thing keeps its color", agree)
        facts = facts_in(story)
        if ended and facts:
            keys = rng.sample(list(facts), len(facts))
            answer, _ = generate(args, as_chat([(ask, story)]) + USER + "Answer in JSON: "
                                 + ", ".join(keys) + END + ASSISTANT)
            try:
                given = json.loads(answer)
            except ValueError:
                given = None
            score("JSON answers with the keys asked for, in order",
                  isinstance(given, dict) and list(given) == keys)
            score("JSON answers equal to the facts of the story", given == {
                k: facts[k] for k in keys})
        if args.show:
            print(f"> {ask}\n{story}\n{present} {agree} {facts}\n")


def questions(args, score):
    """The conversations of held-out documents, each answer asked for in turn."""
    left = {"a story": args.count, "facts told by the user": args.count}
    seed = EVALUATION_SEED
    while any(left.values()):
        text, held_out = document(seed)
        seed += 1
        if not held_out:
            continue
        turns = re.findall(re.escape(USER) + "(.*?)" + re.escape(END + ASSISTANT) + "(.*?)"
                           + re.escape(END), text, re.S)
        about, before = None, ""
        for user, expected in turns:
            prompt = before + USER + user + END + ASSISTANT
            before = prompt + expected + END
            if "\n" in expected:
                about = "a story"
                continue
            if re.search(r"[a-z]\. .*(\?|JSON)", user):
                about = "facts told by the user"
            if about is None or not ("JSON" in user or re.match(QUESTION, user.split(". ")[-1])):
                continue  # a greeting or thanks: many answers are right
            if left[about] == 0:
                continue
            left[about] -= 1
            answer, _ = generate(args, prompt)
            for word, same in SYNONYMS:
                answer, expected = answer.replace(word, same), expected.replace(word, same)
            kind = "JSON answers" if "JSON" in user else "answers to questions"
            score(f"{kind} about {about} that are the document's", answer == expected)
            if args.show and answer != expected:
                print(f"> {user}\nexpected {expected}\nanswered {answer}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--count", type=int, default=200,
                        help="of story requests and of questions of each kind")
    parser.add_argument("--temp", type=float, default=0.7)
    parser.add_argument("--engine", default=str(ROOT / "build/native/sluice"))
    parser.add_argument("--show", action="store_true", help="print stories and wrong answers")
    args = parser.parse_args()
    counts = {}

    def score(what, right):
        counts.setdefault(what, []).append(bool(right))

    stories(args, score)
    questions(args, score)
    for what, results in counts.items():
        print(f"{100 * sum(results) / len(results):5.1f}%  of {len(results):3}  {what}")


if __name__ == "__main__":
    main()
