"""What every plot is made of: the template language, the cast of one story, and its opening.

A template holds alternatives in square brackets and slots in braces; `expand` draws one reading of
it. A cast is drawn once for a story and never changes while it is told, which is what keeps names,
pronouns and things consistent.
"""
import re

from lexicon import (ANIMALS, BOYS, CAN, COLORS, GIRLS, GROWN_UPS, OBJECTS, PET_BOYS, PET_GIRLS,
                     PLACES, PRONOUNS)

_INNER = re.compile(r"\[([^\[\]]*)\]")
_SLOT = re.compile(r"\{(\^?)(\w+)\}")
_AN = re.compile(r"\b([Aa]) (?=[aeiouAEIOU])")


def expand(rng, template, slots):
    """One reading of the template: alternatives drawn, slots filled, spaces and a/an put right."""

    def read(text):
        while True:
            match = _INNER.search(text)
            if not match:
                break
            choice = rng.choice(match.group(1).split("|"))
            text = text[: match.start()] + choice + text[match.end():]
        return _SLOT.sub(fill, text)

    def fill(match):
        value = read(slots[match.group(2)])
        return value[0].upper() + value[1:] if match.group(1) else value

    return _AN.sub(r"\1n ", re.sub(r" +", " ", read(template))).strip()


class Cast:
    """Who and what is in one story: drawn once, never changed, so that references stay true."""

    def __init__(self, rng):
        self.rng = rng
        self.slots = slots = {}
        gender = rng.choice("fm")
        slots["N"] = rng.choice(GIRLS if gender == "f" else BOYS)
        slots["kind"] = "girl" if gender == "f" else "boy"
        self.animal_hero = rng.random() < 0.1
        if self.animal_hero:
            slots["kind"] = rng.choice(list(ANIMALS))
        slots.update(PRONOUNS[gender])
        friend_gender = rng.choice("fm")
        names = [n for n in (GIRLS if friend_gender == "f" else BOYS) if n != slots["N"]]
        slots["F"] = rng.choice(names)
        slots.update({"f" + k: v for k, v in PRONOUNS[friend_gender].items()})
        slots["G"] = rng.choice(list(GROWN_UPS))
        slots.update({"g" + k: v for k, v in PRONOUNS[GROWN_UPS[slots["G"]]].items()})
        slots["O"] = rng.choice(list(OBJECTS))
        slots["use"] = OBJECTS[slots["O"]][0]
        slots["C"] = rng.choice(COLORS)
        slots["CO"] = "{C} {O}"
        self.set_animal(rng.choice([a for a in ANIMALS if a != slots["kind"]]))
        self.set_place(rng.choice(list(PLACES)))

    def set_animal(self, animal):
        """The second character: an animal, in a quarter of the stories with a name of its own."""
        rng, slots = self.rng, self.slots
        slots["A"] = animal
        skill, slots["sound"], slots["home"], slots["food"] = ANIMALS[animal]
        slots["can"] = CAN[skill]
        slots["adjA"] = rng.choice(["", "", "little ", "small ", "friendly ", "kind ", "young ",
                                    "brave ", "clever "])
        gender = "n"
        if rng.random() < 0.25:
            gender = rng.choice("fm")
            slots["AN"] = rng.choice(PET_GIRLS if gender == "f" else PET_BOYS)
            slots["theA"] = slots["callA"] = slots["AN"]
            slots["newA"] = "a {adjA}{A} [named|called] {AN}"
        else:
            slots["theA"], slots["callA"] = "the " + animal, "dear " + animal
            slots["newA"] = "a {adjA}{A}"
        slots["newA"] = expand(rng, slots["newA"], slots)
        slots.update({"a" + k: v for k, v in PRONOUNS[gender].items()})

    def set_place(self, place):
        rng, slots = self.rng, self.slots
        slots["place"] = place
        slots["P"], spots = PLACES[place]
        choice = list(spots) * (3 if len(spots) < 3 else 1)
        slots["S"], slots["S2"], slots["S3"] = rng.sample(choice, 3)

    def draw(self, *templates):
        return " ".join(t for t in (expand(self.rng, t, self.slots) for t in templates) if t)

    def maybe(self, chance, template):
        return self.draw(template) if self.rng.random() < chance else ""


class Story:
    """A finished text, the facts in it (for JSON answers), questions with answers, and subjects."""

    def __init__(self, cast, theme, paragraphs, asks, keys, subjects):
        draw = cast.draw
        self.theme = theme
        self.text = "\n".join(" ".join(s for s in p if s) for p in paragraphs)
        self.asks = [(draw(q), draw(a)) for q, a in asks]
        s = cast.slots
        values = dict(name=s["N"], kind=s["kind"], animal=s["A"], object=s["O"], color=s["C"],
                      place=s["place"], friend=s["F"], helper=s.get("H", s["theA"]),
                      feeling=s.get("feel", "happy"))
        self.facts = {k: values[k].removeprefix("the ") for k in keys}
        self.subjects = [draw(t) for t in subjects]


def opening(cast):
    """Who the story is about; returns the sentences and what may be asked about them."""
    draw, rng = cast.draw, cast.rng
    cast.slots["trait"] = rng.choice("kind brave clever happy quiet cheerful curious".split())
    cast.slots["like"] = rng.choice(["to sing", "to paint", "to run", "to jump", "to read books",
                                     "to climb trees", "to bake cakes", "to look at the stars",
                                     "to help others", "to dance", "to swim", "to tell jokes"])
    start = rng.choice([
        "Once upon a time, there was a [little|{trait}|small|{trait} little] {kind} "
        "[named|called] {N}.",
        "[There was once|Once there was] a {trait} {kind} [named|called] {N}.",
        "{N} was a [little|{trait}|{trait} little|young] {kind}.",
        "Long ago, a [{trait}|little|young] {kind} [named|called] {N} lived near a "
        "[forest|river|hill|lake|village].",
    ])
    sentences, asks = [draw(start)], []
    if rng.random() < 0.55:
        sentences.append(draw("{^he} [loved|liked|really liked] {like}."
                              if rng.random() < 0.8 else "Every day, {he} wanted {like}."))
        asks.append(("What did {N} [like|love] to do?", "{N} [liked|loved] {like}."))
    if rng.random() < 0.3:
        sentences.append(draw("{^he} lived in a [little|small|big|old] house with {G}."))
        asks.append(("[Who did {N} live with?|With whom did {N} live?]", "{N} lived with {G}."))
    return sentences, asks


def own_object(cast):
    """The hero gets to own the object; the giver may be asked about."""
    draw, rng = cast.draw, cast.rng
    asks = [("What color was the {O}?", "The {O} was {C}.")]
    sentences = [draw("{^he} had a [|new |little |beautiful |special ]{CO}.")]
    if rng.random() < 0.5:
        sentences.append(draw("[It was a gift from {G}.|{G} had given it to {him}.|"
                              "{G} made it for {him}.]"))
        asks.append(("Who gave {N} the {O}?", "{G} gave {him} the {O}."))
    else:
        sentences.append(draw("[It was {his} favorite thing.|{^he} liked to {use} it every day.|"
                              "{^he} took it everywhere.|{^he} loved it very much.]"
                              if cast.slots["use"] not in ("play with", "drink from", "paint with",
                                                          "look at")
                              else "[It was {his} favorite thing.|{^he} took it everywhere.|"
                                   "{^he} loved it very much.]"))
    return sentences, asks


WHEN = "[One day|One morning|One afternoon|One sunny day|One cold day|On Sunday|One quiet evening]"
GO = ("[{N} went to the {place}|{N} walked to the {place}|{N} and {G} went to the {place}|"
      "{he} ran to the {place}]")
CRY = ("[{^he} began to cry.|{^he} sat down and cried.|Tears ran down {his} face.|"
       "{^he} felt very sad.]")
THANK = ('["Thank you, {callA}!" said {N}.|"Thank you so much!" {he} said to {theA}.|'
         '{N} hugged {theA} and said, "Thank you!"|"You are a true friend," {N} told {theA}.]')
END = ("[From that day on, {N} and {theA} were best friends.|They went home together and were very "
       "happy.|{N} smiled all the way home.|That night, {N} slept well and dreamed of {theA}.|"
       "After that, {N} and {theA} played together every day.|And they all lived happily.]")
LEARN = "[{N} learned that|{^he} knew now that|From then on, {N} remembered that]"
