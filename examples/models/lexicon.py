"""The words that the story maker may use, and what each of them can do.

Everything a plot needs to stay consistent is here: a bird can fly, so it may fetch a kite from a
tree; a park has bushes, so a ball may lie under one. The lists are short on purpose: with about a
thousand tokens nearly every word becomes a single token, which is what lets a model of one million
parameters keep track of a whole story.
"""

GIRLS = "Ann Mia Lily Sue Rose Emma Zoe Ella Nina Lucy Sara Kate Ruby Eva Amy Nora".split()
BOYS = "Tom Ben Sam Max Tim Leo Jack Finn Dan Bob Noah Adam Luke Paul Otto Hugo".split()
PET_GIRLS = "Bella Daisy Coco Penny".split()
PET_BOYS = "Spot Rex Pip Lucky".split()

PRONOUNS = {
    "f": dict(he="she", him="her", his="her", hers="hers", himself="herself"),
    "m": dict(he="he", him="him", his="his", hers="his", himself="himself"),
    "n": dict(he="it", him="it", his="its", hers="its", himself="itself"),
}

# animal: (skill, sound, home, food). The skill decides which problems it can solve.
ANIMALS = {
    "dog": ("sniff", "Woof", "a little house", "bones"),
    "cat": ("climb", "Meow", "a warm house", "fish"),
    "rabbit": ("dig", "Sniff", "a hole", "carrots"),
    "fox": ("sniff", "Yip", "the forest", "berries"),
    "bear": ("strong", "Grr", "a cave", "honey"),
    "duck": ("swim", "Quack", "a pond", "bread"),
    "bird": ("fly", "Tweet", "a nest", "seeds"),
    "frog": ("swim", "Ribbit", "a pond", "flies"),
    "mouse": ("small", "Squeak", "a tiny hole", "cheese"),
    "horse": ("strong", "Neigh", "a barn", "hay"),
    "goat": ("climb", "Baa", "a farm", "grass"),
    "pig": ("dig", "Oink", "a farm", "corn"),
    "owl": ("fly", "Hoot", "a tall tree", "bugs"),
    "turtle": ("swim", "Hm", "the sea", "leaves"),
    "squirrel": ("climb", "Chirp", "a tall tree", "nuts"),
    "cow": ("strong", "Moo", "a barn", "grass"),
    "monkey": ("climb", "Oo oo", "a tall tree", "bananas"),
}

# object: (what one does with it, where it can end up: t tree, w water, h hole, r under a rock)
OBJECTS = {
    "ball": ("throw", "twhr"), "kite": ("fly", "tw"), "boat": ("play with", "wr"),
    "drum": ("play", "wr"), "doll": ("play with", "twr"), "book": ("read", "hr"),
    "hat": ("wear", "twh"), "key": ("look at", "hr"), "bell": ("ring", "hr"),
    "cup": ("drink from", "hr"), "shoe": ("wear", "whr"), "scarf": ("wear", "tw"),
    "map": ("look at", "tw"), "basket": ("carry", "wr"), "balloon": ("hold", "t"),
    "robot": ("play with", "hr"), "ring": ("wear", "hr"), "bucket": ("carry", "wr"),
    "blanket": ("hold", "tw"), "box": ("open", "wr"), "crown": ("wear", "twh"),
    "train": ("play with", "hr"), "lamp": ("look at", "hr"), "umbrella": ("hold", "tw"),
}
COLORS = "red blue green yellow brown white black pink purple orange silver".split()

# place: (with its preposition, what lies about there: spots that hide a thing)
GREEN = ("under a bush", "behind a big tree", "in the tall grass", "next to a gray rock",
         "under a pile of leaves")
SHORE = ("between two rocks", "in the wet sand", "behind a log", "near the water")
TOWN = ("under a bench", "behind a wall", "next to a fence", "under a cart")
INSIDE = ("under the table", "behind a shelf", "under a chair", "behind the door")
PLACES = {
    "park": ("in the park", GREEN + ("under a bench",)), "forest": ("in the forest", GREEN),
    "garden": ("in the garden", GREEN), "hill": ("on the hill", GREEN),
    "field": ("in the field", GREEN), "yard": ("in the yard", GREEN + TOWN[1:3]),
    "farm": ("on the farm", TOWN + ("in the hay",)), "river": ("by the river", SHORE),
    "lake": ("by the lake", SHORE), "beach": ("at the beach", SHORE),
    "pond": ("by the pond", SHORE), "market": ("at the market", TOWN),
    "bridge": ("near the bridge", SHORE), "village": ("in the village", TOWN),
    "school": ("at the school", INSIDE),
}
OUTSIDE = [p for p in PLACES if p != "school"]
WATERS = ["river", "lake", "beach", "pond", "bridge"]
TREES = ["park", "forest", "garden", "hill", "yard", "field", "farm", "village"]

GROWN_UPS = {"Mom": "f", "Dad": "m", "Grandma": "f", "Grandpa": "m"}

# What lies between a helper and the thing, by where the thing ended up: who has the right skill.
SKILLS_FOR = {"t": ("climb", "fly"), "w": ("swim",), "h": ("small", "dig"), "r": ("strong",)}
# Words that JSON answers quote. There no space precedes them, so the tokenizer needs both forms.
JSON_KEYS = "name kind animal object color place friend".split()
QUOTED = [*GIRLS, *BOYS, *ANIMALS, *OBJECTS, *COLORS, *PLACES, *JSON_KEYS, "girl", "boy"]

CAN = {"sniff": "smell very well", "climb": "climb", "dig": "dig", "strong": "push hard",
       "swim": "swim", "fly": "fly", "small": "crawl into small holes"}
