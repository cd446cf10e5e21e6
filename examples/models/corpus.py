"""The corpus: stories and the conversations that lead to them, all drawn from the rules in here.

No text from outside enters. `document(seed)` is a pure function of its seed. A document whose story
combines a held-out triple (name, animal, object) belongs to the held-out part and to nothing else,
so the two parts cannot share a story.

    python3 corpus.py 5            prints five documents
"""
import json
import random
import sys
import zlib

from lexicon import ANIMALS, BOYS, COLORS, GIRLS, OBJECTS, OUTSIDE, PLACES, PRONOUNS
from plots import make_story
from stories import expand

END_OF_TEXT, USER, ASSISTANT, SYSTEM, END = SPECIALS = (
    "<|endoftext|>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>")

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}")

ASK_STORY = [
    "Tell me a story about {x}.", "Tell me a story about {x}.", "Tell me a story about {x}",
    "Please tell me a story about {x}.", "Write a story about {x}.", "Can you tell me a story "
    "about {x}?", "I want a story about {x}.", "A story about {x}, please.",
    "Write a story for children about {x}.", "Do you know a story about {x}?",
    "Tell a story about {x}."]
ASK_AGAIN = [
    "Now tell me a story about {x}.", "Tell me another story about {x}.", "One more story, please, "
    "about {x}.", "And now a story about {x}."]
ASK_SHORT = [
    "Tell me a very short story about {x}.", "Write a very short story about {x}.",
    "A very short story about {x}, please.", "Tell me a tiny story about {x}."]
SYSTEM_TEXTS = ["You tell stories to children.", "You are a kind storyteller.",
                "You are a helpful assistant.", "You are Tales, a small story model.",
                "Tell stories and answer questions about them."]
GREETINGS = [
    ("[Hello|Hi|Hello!|Hi!|Hey|Good morning|Good evening]",
     "[Hello! Would you like to hear a story?|Hi! What story shall I tell you?|Hello! I can tell "
     "you a story.]"),
    ("[Who are you?|What are you?|What is your name?]",
     "I am Tales, a very small story model. I can tell stories and answer questions about them."),
    ("[What can you do?|How can you help me?|Help]",
     "I can tell stories about animals, children and things. Then you can ask me about them."),
    ("[How are you?|How are you today?]", "I am fine, thank you! Would you like to hear a story?"),
]
THANKS = ("[Thank you!|Thank you.|Thanks!|That was nice.|I liked that story.|Good story!]",
          "[You are welcome!|I am glad you liked it.|"
          "You are welcome! Would you like another story?]")
GOODBYE = ("[Goodbye!|Good night.|Bye!|Good night!]", "[Goodbye!|Good night, and sweet dreams!|"
           "Goodbye! Come back soon.]")


def as_chat(turns, system=None):
    """The text that CHAT_TEMPLATE gives for these (user, assistant) turns."""
    text = f"{SYSTEM}{system}{END}" if system else ""
    return text + "".join(f"{USER}{u}{END}{ASSISTANT}{a}{END}" for u, a in turns)


def subject(rng, story, cast):
    """What a request for this story may name: always something the story is really about."""
    s, facts = cast.slots, story.facts
    forms = ["{N}", "a {kind} [named|called] {N}"] + story.subjects * 3
    if "animal" in facts and "object" in facts:
        forms += ["a {A} and a {O}"] * 6 + ["a {A} and a {CO}"] * 3 + [
            "a {kind}, a {A} and a {O}", "a {A}, a {kind} and a {O}", "a {O} and a {A}",
            "{N}, a {A} and a {CO}", "{N}, a {A} and a {O}", "{N}, a {adjA}{A} and a {CO}"]
    if "animal" in facts:
        forms += ["a {A}", "a {adjA}{A}", "a {kind} and a {A}", "a {kind} and a {adjA}{A}",
                  "{N} and a {A}", "{N} and a {adjA}{A}", "a {kind} [named|called] {N} and a {A}"]
    if "object" in facts:
        forms += ["a {O}", "a {CO}", "a {kind} and a {O}", "a {kind} with a {CO}", "{N} and a {O}"]
    if "place" in facts:
        forms += ["a {kind} {P}", "a day {P}"] + (["a {A} {P}"] if "animal" in facts else [])
    if not story.theme.startswith("finding"):
        forms += [story.theme] * 2
    return expand(rng, rng.choice(forms), s)


def json_turn(rng, facts):
    """A request for some keys and the one-line JSON answer, keys in the order asked."""
    keys = rng.sample(list(facts), rng.randint(1, min(4, len(facts))))
    if rng.random() < 0.5 and "name" in facts:
        keys = ["name"] + [k for k in keys if k != "name"][:3]
    ask = rng.choice(["Answer in JSON: {k}", "Answer in JSON: {k}", "Answer in JSON: {k}.",
                      "Give me JSON with {k}.", "JSON: {k}"])
    return (ask.replace("{k}", ", ".join(keys)),
            json.dumps({k: facts[k] for k in keys}))


def story_turns(rng, story, cast, requests):
    """The request, the story, and what may be asked after it."""
    turns = [(rng.choice(requests).replace("{x}", subject(rng, story, cast)), story.text)]
    asks = rng.sample(story.asks, min(len(story.asks), rng.choice([0, 1, 2, 2, 3, 3])))
    if rng.random() < 0.6:
        asks.insert(rng.randint(0, len(asks)), json_turn(rng, story.facts))
    return turns + asks


def story_chat(rng, story, cast, short):
    """One story, sometimes two, with up to four questions each and a word of thanks."""
    turns = []
    if rng.random() < 0.12:
        turns.append(tuple(expand(rng, t, {}) for t in rng.choice(GREETINGS)))
    turns += story_turns(rng, story, cast, ASK_SHORT if short else ASK_STORY)
    if rng.random() < 0.15:
        turns.append(tuple(expand(rng, t, {}) for t in THANKS))
    if rng.random() < 0.08:
        turns += story_turns(rng, *make_story(rng), ASK_AGAIN)
    if rng.random() < 0.05:
        turns.append(tuple(expand(rng, t, {}) for t in GOODBYE))
    return as_chat(turns, rng.choice(SYSTEM_TEXTS) if rng.random() < 0.15 else None)


def reading(rng):
    """A few facts from the user and questions about them: answers must come from the context."""
    people = rng.sample(GIRLS + BOYS, 3)
    lines, asks, used = [], [], set()
    for name in people[: rng.choice([1, 1, 2, 2, 3])]:
        form = rng.randrange(6)
        slots = dict(PRONOUNS["f" if name in GIRLS else "m"], N=name, A=rng.choice(list(ANIMALS)),
                     O=rng.choice(list(OBJECTS)), C=rng.choice(COLORS), p=rng.choice(list(PLACES)),
                     G=rng.choice(["Mom", "Dad", "Grandma", "Grandpa"]))
        slots["P"] = PLACES[slots["p"]][0]
        if slots["A"] in used or slots["O"] in used:
            continue
        used.update((slots["A"], slots["O"]))
        text, questions, facts = [
            ("{N} has a {C} toy {A}.", [("What [toy |]does {N} have?", "{N} has a {C} toy {A}."),
                                        ("Who has a toy {A}?", "{N} has a toy {A}."),
                                        ("What color is the {A}?", "The {A} is {C}.")],
             dict(name="N", animal="A", color="C")),
            ("{N} lost {his} {C} {O} {P}.", [("What did {N} lose?", "{N} lost {his} {C} {O}."),
                                             ("Where did {N} lose the {O}?", "{N} lost it {P}."),
                                             ("Who lost a {O}?", "{N} lost a {O}.")],
             dict(name="N", object="O", color="C", place="p")),
            ("{N} saw a {A} {P}.", [("What did {N} see?", "{N} saw a {A}."),
                                    ("Where was the {A}?", "The {A} was {P}."),
                                    ("Who saw the {A}?", "{N} saw the {A}.")],
             dict(name="N", animal="A", place="p")),
            ("{G} gave {N} a {C} {O}.", [("Who gave {N} the {O}?", "{G} gave {him} the {O}."),
                                         ("What did {N} get?", "{N} got a {C} {O}."),
                                         ("What color is the {O}?", "The {O} is {C}.")],
             dict(name="N", object="O", color="C")),
            ("{N} is {P} with a {A}.", [("Where is {N}?", "{N} is {P}."),
                                        ("Who is with the {A}?", "{N} is with the {A}.")],
             dict(name="N", animal="A", place="p")),
            ("{N} found a {C} {O} {P}.", [("What did {N} find?", "{N} found a {C} {O}."),
                                          ("Where did {N} find the {O}?", "{N} found it {P}."),
                                          ("Who found the {O}?", "{N} found the {O}.")],
             dict(name="N", object="O", color="C", place="p")),
        ][form]
        lines.append(expand(rng, text, slots))
        asks += [(expand(rng, q, slots), expand(rng, a, slots)) for q, a in questions]
        all_facts = {k: slots[v] for k, v in facts.items()}
    rng.shuffle(asks)
    if len(lines) == 1 and rng.random() < 0.6:
        asks.insert(0, json_turn(rng, all_facts))
    asks = asks[: rng.choice([1, 2, 2, 3])]
    first = (" ".join(lines) + " " + asks[0][0], asks[0][1])
    return as_chat([first] + asks[1:])


def knowledge(rng):
    """Small general questions about the lists, and the ways people open and close a talk."""
    turns = []
    if rng.random() < 0.4:
        turns.append(tuple(expand(rng, t, {}) for t in rng.choice(GREETINGS)))
    for animal in rng.sample(list(ANIMALS), rng.choice([1, 1, 2, 3])):
        _, sound, home, food = ANIMALS[animal]
        slots = dict(A=animal, s=sound.lower(), h=home, f=food)
        kind = rng.randrange(4)
        if kind == 0:
            turn = ("[What does a {A} say?|What sound does a {A} make?]", "A {A} says {s}.")
        elif kind == 1:
            turn = ("Where does a {A} live?", "A {A} lives in {h}.")
        elif kind == 2:
            turn = ("What does a {A} eat?", "A {A} eats {f}.")
        else:
            group, words = rng.choice([("animals", list(ANIMALS)), ("colors", COLORS),
                                       ("places", OUTSIDE), ("things", list(OBJECTS))])
            names = rng.sample(words, 3)
            slots.update(g=group, l=f"{names[0]}, {names[1]} and {names[2]}")
            turn = ("[Name three {g}.|Tell me three {g}.]", "Three {g} are {l}.")
        turns.append(tuple(expand(rng, t, slots) for t in turn))
    if rng.random() < 0.3:
        turns.append(tuple(expand(rng, t, {}) for t in rng.choice([THANKS, GOODBYE])))
    return as_chat(turns)


def document(seed):
    """(text, held_out) for one seed: a quarter questions alone, half stories in conversations."""
    rng = random.Random(seed)
    kind = rng.random()
    if kind < 0.24:
        text = reading(rng)
        return text, zlib.crc32(text.encode()) % 40 == 0
    if kind < 0.28:
        text = knowledge(rng)
        return text, zlib.crc32(text.encode()) % 40 == 0
    short = rng.random() < 0.08
    story, cast = make_story(rng, short)
    triple = "/".join(cast.slots[k] for k in "NAO")
    text = story.text if kind < 0.42 else story_chat(rng, story, cast, short)
    return text, zlib.crc32(triple.encode()) % 40 == 0


def documents(count, seed, held_out):
    """`count` distinct texts of one part, in a fixed order. Seeds run on from `seed`."""
    texts, seen = [], set()
    while len(texts) < count:
        text, out = document(seed)
        seed += 1
        if out == held_out and text not in seen:
            seen.add(text)
            texts.append(text)
    return texts


if __name__ == "__main__":
    for text in documents(int(sys.argv[1]) if len(sys.argv) > 1 else 3,
                          int(sys.argv[2]) if len(sys.argv) > 2 else 0, False):
        print(text, "\n" + "-" * 80)
