"""Plots: each turns one cast of characters into a story and into facts that can be asked about.

A plot is a list of sentence templates (see stories.py) with a beginning, a cause, a turn and an
end, and it names what a reader could be asked afterwards, so that every question in the corpus has
an answer that the text supports.
"""
from lexicon import ANIMALS, OBJECTS, OUTSIDE, SKILLS_FOR, TREES, WATERS
from stories import CRY, END, GO, LEARN, THANK, WHEN, Cast, Story, opening, own_object


def lost_and_found(cast):
    """The hero loses a thing, looks in two wrong spots, and an animal finds it in a third."""
    draw, maybe = cast.draw, cast.maybe
    skill = ANIMALS[cast.slots["A"]][0]
    search = {"sniff": "{^theA} sniffed the ground and followed the smell.",
              "fly": "{^theA} flew up high and looked down.",
              "small": "{^theA} crawled into every small corner.",
              "climb": "{^theA} climbed up high and looked around.",
              "dig": "{^theA} looked and dug and looked again.",
              "swim": "{^theA} looked near the ground, one step at a time.",
              "strong": "{^theA} pushed the branches away and looked."}[skill]
    first, asks = opening(cast)
    had, more = own_object(cast)
    paragraphs = [
        first + had,
        [draw(WHEN + ", " + GO + "."),
         maybe(0.5, "[It was warm and sunny.|The sky was blue.|The wind was soft.|"
                    "There was a lot to see.]"),
         draw("[{^he} played all day, but then {he} could not find {his} {O}.|When it was time to "
              "go home, {his} {O} was gone.|Suddenly, {he} saw that {his} {O} was missing.]"),
         draw('["Oh no! I lost my {O}!" [said|cried] {N}.|"Where is my {CO}?" asked {N}.]'),
         draw("[{^he} looked {S2}, but it was not there.|{^he} looked {S2} and {S3}, but the {O} "
              "was not there.|First {he} looked {S2}. Then {he} looked {S3}. There was no {O}.]"),
         draw(CRY)],
        [draw("[Just then|Then|After a while|Soon], {newA} came by."),
         draw('["Why are you [sad|crying]?" asked {theA}.|"What is wrong?" asked {theA}.|'
              '"Can I help you?" asked {theA}.]'),
         draw('["I lost my {CO}," said {N}.|"I cannot find my {CO}," said {N}.|'
              '{N} told {theA} about the {CO}.]'),
         draw('[|"Do not worry. I will help you," said {theA}.|"Let us look together," said '
              '{theA}.]'),
         draw(search),
         draw("[And there it was, {S}!|The {CO} was {S}!|There was the {CO}, {S}!]")],
        [draw(THANK), maybe(0.5, "{N} was [so happy to have {his} {CO}|very happy|happy again]."),
         draw(END)],
    ]
    asks += more + [
        ("What did {N} lose?", "{N} lost {his} {CO}."),
        ("[Where was it?|Where was the {O}?|Where did they find it?]", "It was {S}."),
        ("[Who found the {O}?|Who helped {N}?|Who found it?]", "{^theA} found the {O}."),
        ("[Where did {N} lose the {O}?|Where did {N} lose it?]", "{N} lost it {P}."),
        ("Why was {N} sad?", "{N} was sad because {he} lost {his} {O}."),
    ]
    return Story(cast, "losing and finding something", paragraphs, asks,
                 ["name", "kind", "animal", "object", "color", "place"],
                 ["a lost {O}", "a {A} who finds a {CO}", "a {kind} who lost a {O}",
                  "a {kind} [named|called] {N} who lost a {CO}", "{N} who lost a {CO}"])


def within_reach(slots):
    """Where the object can end up and the animal can fetch it from: letters of OBJECTS."""
    return [w for w in OBJECTS[slots["O"]][1] if ANIMALS[slots["A"]][0] in SKILLS_FOR[w]]


def out_of_reach(cast):
    """The thing ends up where the hero cannot go; an animal with the right skill can."""
    draw, maybe, rng = cast.draw, cast.maybe, cast.rng
    where = rng.choice(within_reach(cast.slots))
    cast.set_place(rng.choice({"t": TREES, "w": WATERS, "h": TREES, "r": OUTSIDE}[where]))
    cause, spot, hard, solve = {
        "t": ("[A strong wind came and blew the {O} into a tall tree.|The wind took the {O} and "
              "carried it up into a tree.]", "in a tree",
              "[{^he} jumped and jumped, but the tree was too tall.|{^he} could not reach it, "
              "because the tree was too tall.]",
              "[climbed up the tree|went up to the top of the tree]"
              if "climb" == ANIMALS[cast.slots["A"]][0] else
              "[flew up to the tree|flew up to the top of the tree]"),
        "w": ("[The {O} fell into the water.|{N} slipped, and the {O} fell into the water.]",
              "in the water", "[The water was deep and cold, so {he} could not get it.|"
              "{^he} could not swim, so {he} could not get it.]",
              "[jumped into the water and swam to the {O}|swam out to the {O}]"),
        "h": ("[The {O} fell into a deep hole.|{N} tripped, and the {O} fell into a hole in the "
              "ground.]", "in a hole", "[The hole was too deep for {him}.|{^his} arm was too short "
              "to reach it.]",
              "[crawled into the hole|went down into the hole]"
              if ANIMALS[cast.slots["A"]][0] == "small" else "[dug and dug|dug in the ground]"),
        "r": ("[A big rock rolled down and the {O} was stuck under it.|The {O} fell, and a big "
              "rock rolled on top of it.]", "under a rock", "[The rock was too heavy for "
              "{him}.|{^he} pushed and pushed, but the rock did not move.]",
              "[pushed the rock away|pushed hard and the rock rolled away]"),
    }[where]
    cast.slots["spot"] = spot
    first, asks = opening(cast)
    had, more = own_object(cast)
    paragraphs = [
        first + had,
        [draw(WHEN + ", {N} took the {O} to the {place}."),
         draw(cause),
         draw('["Oh no! My {O}!" [cried|shouted] {N}.|"How can I get it back?" said {N}.|'
              '{N} was very sad.|]'), draw(hard)],
        [draw("[{^newA} saw it.|{^newA} was watching.|Just then, {newA} came by.|"
              "{N} met {newA}.]"),
         draw('["I can help you. I can {can}," said {theA}.|"I can {can}! Let me try," said '
              '{theA}.|"Please help me," said {N}. "I will try, because I can {can}," '
              'said {theA}.]'),
         draw("{^theA} " + solve + "."),
         draw("[Soon the {CO} was back in {his} hands.|Then {theA} gave the {CO} back to {N}.|"
              "Then {theA} brought the {CO} to {N}.]")],
        [draw(THANK),
         maybe(0.5, "[{N} gave {theA} some {food}.|To say thank you, {N} gave {theA} {food}.]"),
         draw(END)],
    ]
    asks += more + [
        ("[Where was the {O}?|Where did the {O} go?]", "The {O} was {spot}."),
        ("[Who helped {N}?|Who got the {O} back?]", "{^theA} helped {him}."),
        ("[Why could {theA} help?|How could {theA} help?]",
         "{^theA} could help because {ahe} could {can}."),
        ("[Where did {N} go?|Where did {N} take the {O}?]", "{N} went to the {place}."),
    ]
    return Story(cast, "a friend who helps", paragraphs, asks,
                 ["name", "kind", "animal", "object", "color", "place"],
                 ["a {CO} that was {spot}", "a {A} who can {can}", "a {A} who helps a {kind}",
                  "a {A} who helps {N}"])


def rescue(cast):
    """The animal is stuck and the hero frees it with the object or with the help of a grown-up."""
    draw, maybe, rng = cast.draw, cast.maybe, cast.rng
    cast.set_place(rng.choice(OUTSIDE))
    trap = rng.choice(["in the mud", "in a net", "under a branch", "in a hole", "in the snow"])
    cast.slots["trap"] = trap
    tool = {"in the mud": "rope", "in a net": "knife", "under a branch": "stick",
            "in a hole": "rope", "in the snow": "shovel"}[trap]
    cast.slots["tool"] = tool
    act = {"rope": "[They pulled the rope as hard as they could|They pulled and pulled]",
           "knife": "[{G} cut the net|{G} cut the net with care]",
           "stick": "[They used the stick to lift the branch|"
                    "They lifted the branch with the stick]",
           "shovel": "[They dug away the snow|They dug and dug in the snow]"}[tool]
    first, asks = opening(cast)
    paragraphs = [
        first,
        [draw(WHEN + ", {N} was walking {P} when {he} heard a [sound|noise|small voice]."),
         draw('["{sound}! {sound}!"|"Help! Help!"|"{sound}! Please help me!"]'),
         draw("[It was {newA}.|{^he} looked around and saw {newA}.]"),
         draw("{^theA} was stuck {trap}."),
         maybe(0.5, "{^theA} [was cold and afraid|could not move|was very tired].")],
        [draw("[{N} tried to help, but {he} was too small.|{N} pulled, but {he} was not strong "
              "enough.]"),
         draw('[{^he} ran home to get {G}.|{^he} ran to {G} as fast as {he} could.]'),
         draw('["{G}, come quick! A {A} is stuck {trap}!" [said|shouted] {N}.|'
              '"Please help! There is a {A} {trap}," said {N}.]'),
         draw("{G} [took|got] a {tool}, and they [ran|hurried] back."),
         draw(act + ", and {theA} was free!")],
        [draw('["{sound}!" said {theA} [happily|and jumped with joy].|"Thank you for saving me," '
              'said {theA}.|{^theA} was free and happy.]'),
         draw('[|"You did the right thing," said {G}. "You asked for help."|"I am proud of you," '
              'said {G}.]'),
         draw("[|" + LEARN + " it is good to ask for help.]"),
         draw(END)],
    ]
    asks += [
        ("[Who was stuck?|Who needed help?]", "{^theA} was stuck {trap}."),
        ("Where was {theA} stuck?", "{^theA} was stuck {trap}."),
        ("[Who helped {N}?|Who did {N} ask for help?]", "{G} helped {him}."),
        ("What did {G} [bring|use]?", "{G} [brought|used] a {tool}."),
        ("Where did {N} find {theA}?", "{N} found {theA} {P}."),
    ]
    return Story(cast, "helping an animal", paragraphs, asks, ["name", "kind", "animal", "place"],
                 ["a {A} who was stuck", "a {kind} who saves a {A}", "a {A} {trap}"])


def sharing(cast):
    """Two friends want the same thing, quarrel, and find a way to share it."""
    draw, maybe = cast.draw, cast.maybe
    cast.slots["H"] = cast.slots["F"]
    cast.set_place(cast.rng.choice(OUTSIDE + ["school"]))
    first, asks = opening(cast)
    paragraphs = [
        first + [draw("{^his} best friend was {F}.")],
        [draw(WHEN + ", {N} and {F} [were playing|played] {P}."),
         draw("[They found a {CO}.|They saw a {CO} {S}.]"),
         draw('["I want it!" said {N}. "No, I want it!" said {F}.|"It is mine!" shouted {N}. "No, '
              'it is mine!" shouted {F}.|{N} wanted the {O}, and {F} wanted it too.]'),
         draw("[They pulled and pulled, and the {O} almost broke.|They were both angry and did not "
              "talk.|{F} began to cry, and {N} felt bad.]")],
        [draw("[{G} came and asked|{G} saw them and asked|Then {G} asked], "
              '"[Why are you sad|What is wrong|Why are you angry]?"'),
         draw('["We both want the {O}," said {N}.|{N} told {G} about the {O}.]'),
         draw('["You can share it," said {G}. "First {F}, then {N}."|"If you share, you can both '
              'be happy," said {G}.|"Friends are better than a {CO}," said {G}.]'),
         draw('["You can have it first," {N} said to {F}.|{N} thought about it. Then {he} gave the '
              '{O} to {F}.|"I am sorry," said {N}. "You can go first."]'),
         draw('["Thank you," said {F}. "Then it is your turn."|{F} smiled and said, "We can {use} '
              'it together."|{F} smiled. "I am sorry too," {fhe} said.]'
              if cast.slots["use"] in ("throw", "fly", "play", "carry", "hold", "open", "ring")
              else '["Thank you," said {F}. "Then it is your turn."|{F} smiled. "I am sorry too," '
                   '{fhe} said.]')],
        [draw("[They shared the {CO} and had a lot of fun.|They took turns all day and had "
              "fun.|They laughed and played until it was dark.]"),
         maybe(0.5, LEARN + " sharing makes everyone happy."),
         draw("[|They were best friends again.|{N} and {F} were still best friends.]")],
    ]
    asks += [
        ("[What did they find?|What did they both want?]", "They found a {CO}."),
        ("Who was {N}'s [best |]friend?", "{^his} best friend was {F}."),
        ("Who told them to share?", "{G} told them to share."),
        ("Who had the {O} first?", "{F} had it first."),
        ("Where did they play?", "They played {P}."),
    ]
    return Story(cast, "sharing", paragraphs, asks,
                 ["name", "friend", "object", "color", "place"],
                 ["two friends and a {O}", "{N} and {F}", "two friends who share a {O}",
                  "two friends who share a {CO}", "{N}, {F} and a {CO}"])


def afraid(cast):
    """The hero is afraid of something; a friend shows how it is done, and the fear goes."""
    draw, maybe, rng = cast.draw, cast.maybe, cast.rng
    fear = rng.choice([
        ("the dark", "every night", "turn off the lamp", "Look at the stars. The dark is "
         "beautiful", "slept in the dark"),
        ("the deep water", "at the lake", "go into the water", "Hold my hand and kick your legs",
         "swam in the lake"),
        ("the thunder", "when it rained", "look out of the window", "It is only the sky playing a "
         "drum", "watched the rain"),
        ("the tall slide", "in the park", "go down the slide", "Sit down and count to three",
         "went down the slide"),
        ("the big bridge", "by the river", "walk over the bridge", "Look at me and take small "
         "steps", "walked over the bridge"),
        ("the school", "in the village", "go into the school", "Everyone is kind there. I will sit "
         "with you", "went to school"),
    ])
    (cast.slots["fear"], cast.slots["fwhen"], cast.slots["fdo"], cast.slots["advice"],
     cast.slots["did"]) = fear
    helper_is_animal = rng.random() < 0.5
    cast.slots["H"] = "{theA}" if helper_is_animal else "{F}"
    cast.slots["Hhe"] = "{ahe}" if helper_is_animal else "{fhe}"
    first, asks = opening(cast)
    meet = ("{^his} friend was {newA}." if helper_is_animal else
            "{^his} [best friend|friend] was {F}.")
    paragraphs = [
        first + [draw(meet), draw("[But {N} was afraid of {fear}.|There was one thing {N} did not "
                                  "like: {fear}.|{^he} was very afraid of {fear}.]")],
        [draw("[One day|One evening|One rainy day|On Sunday], {H} [came to {N}|came to "
              "play|visited {N}]."),
         draw('["Come with me," said {H}. "No, I cannot {fdo}," said {N}.|"Do you want to {fdo}?" '
              'asked {H}. "No! I am too afraid," said {N}.]'),
         draw("[{^his} legs were shaking.|{^he} wanted to run away.|{^he} closed {his} eyes.|]")],
        [draw('["I was afraid too," said {H}. "{advice}."|"You are not alone," said {H}. '
              '"{advice}."|{^H} took {his} hand and said, "{advice}."]'),
         draw("[{N} took a deep breath.|{N} was very brave.|{N} thought about it and said, \"I "
              "will try.\"]"),
         draw("[Slowly, {he} tried it.|Then {he} tried it.|{^he} counted to three and tried it.]"),
         draw("[It was not so bad!|It was fun!|Nothing bad happened!]")],
        [draw('["I did it!" [shouted|cried] {N}.|"You did it!" [shouted|said] {H}.]'),
         draw("[After that|From that day on|That day], {N} {did} and was not afraid."),
         maybe(0.5, LEARN + " [being brave means trying|a friend makes you brave].")],
    ]
    asks += [
        ("What was {N} afraid of?", "{N} was afraid of {fear}."),
        ("[Who helped {N}?|Who made {N} brave?]", "{^H} helped {him}."),
        ("[What did {N} do at the end?|What happened at the end?]",
         "{N} {did} and was not afraid."),
        ("Was {N} brave?", "Yes, {N} was very brave."),
    ]
    keys = ["name", "kind"] + (["animal"] if helper_is_animal else ["friend"])
    subjects = ["a {kind} who was afraid of {fear}", "{fear}"]
    if helper_is_animal:
        subjects.append("a brave {kind} and a {A}")
    return Story(cast, "being brave", paragraphs, asks, keys, subjects)


def gift(cast):
    """A birthday present is made, spoiled by a cause, and made good with a friend's help."""
    draw, maybe, rng = cast.draw, cast.maybe, cast.rng
    bad = rng.choice([("rain", "It began to rain, and the {O} got wet",
                       "They dried it by the fire"),
                      ("mud", "{N} slipped, and the {O} fell into the mud",
                       "They washed it with warm water"),
                      ("wind", "The wind blew, and the {O} fell into the river",
                       "They dried it in the sun"),
                      ("paint", "The paint fell over, and the {O} was full of spots",
                       "They painted it again")])
    cast.slots["bad"], cast.slots["spoil"], cast.slots["repair"] = bad
    first, asks = opening(cast)
    paragraphs = [
        first + [draw("[Tomorrow was {G}'s birthday.|It was almost {G}'s birthday.|{G} had a "
                      "birthday.]"),
                 draw('["What can I give {ghim}?" thought {N}.|'
                      '{N} wanted to give {ghim} a gift.]')],
        [draw("[{^he} made a {CO} for {G}.|{^he} worked all day and made a {CO}.|{^he} bought a "
              "{CO} at the market.]"),
         draw("[But then something bad happened.|But on the way, there was trouble.|Then {he} had "
              "bad luck.]"),
         draw("{spoil}."),
         draw('["Oh no! Now I have no gift," [said|cried] {N}.|"It is not pretty now," said {N}.|'
              "{N} was very sad.]")],
        [draw("[{^his} friend, {newA}, came to help.|{^newA} saw {him} and wanted to help.]"),
         draw('["Do not cry," said {theA}. "We can make it good again."|"I have an idea," said '
              '{theA}.|"Two can do it better than one," said {theA}.]'),
         draw("{repair}."),
         draw("[Soon the {O} was as good as new.|Now the {CO} was even more beautiful.|The {O} "
              "looked new again.]")],
        [draw('[Then {N} gave the {CO} to {G}.|{N} and {theA} took the {CO} to {G}.]'),
         draw('["Happy birthday, {G}!" said {N}. "I love it!" said {G}.|{G} was so happy that '
              '{ghe} hugged {him}. "This is the best gift," {ghe} said.]'),
         draw("[|They ate cake together.|They all ate cake and sang a song.|{N} said thank you to "
              "{theA}.]")],
    ]
    asks += [
        ("[Whose birthday was it?|Who had a birthday?]", "It was {G}'s birthday."),
        ("[What was the gift?|What did {N} give to {G}?]", "The gift was a {CO}."),
        ("Who helped {N}?", "{^theA} helped {him}."),
        ("[What happened to the {O}?|What went wrong?]", "{spoil}."),
        ("How did they fix it?", "{repair}."),
        ("What color was the {O}?", "The {O} was {C}."),
    ]
    return Story(cast, "a birthday", paragraphs, asks,
                 ["name", "animal", "object", "color"],
                 ["{G}'s birthday", "a {CO} for {G}", "a birthday gift for {G}", "a gift for {G}"])


def garden(cast):
    """Something is planted, trouble comes, patience pays, and the crop is shared."""
    draw, maybe, rng = cast.draw, cast.maybe, cast.rng
    plant = rng.choice("carrot flower pumpkin apple berry bean".split())
    many = {"berry": "berries"}.get(plant, plant + "s")
    cast.slots.update(plant=plant, plants=many)
    trouble = rng.choice([
        ("it did not rain", "brought water from the river", "The ground was dry"),
        ("the sun was too hot", "made some shade with leaves", "The little plant was weak"),
        ("it was too cold", "put a warm blanket over it", "The little plant was cold"),
        ("there were too many bugs", "ate all the bugs", "The little plant had holes"),
    ])
    cast.slots["why"], cast.slots["fix"], cast.slots["state"] = trouble
    first, asks = opening(cast)
    paragraphs = [
        first + [draw("{^he} had a [small|little] garden.")],
        [draw("[In spring|One day|One morning], {N} [put|planted] a {plant} seed in the ground."),
         draw("[{^he} gave it water every day.|{^he} sang to it every morning.|{^he} looked at it "
              "every day.]"),
         draw('["When will it grow?" {he} asked {G}. "You must wait," said {G}.|But nothing came '
              'up for a long time.|{^he} waited and waited.]')],
        [draw("[Then a green leaf came out of the ground.|At last, a little plant came up.]"),
         draw("But {why}. {state}."),
         draw('["What can I do?" said {N}.|{N} was worried.|"My plant will die!" cried {N}.]'),
         draw("[{^newA} came into the garden.|Then {he} met {newA}.]"),
         draw('["I will help you," said {theA}.|"I know what to do," said {theA}.]'),
         draw("{^theA} {fix}.")],
        [draw("[Soon the plant was big and strong.|The plant grew and grew.|Day by day, the plant "
              "grew taller.]"),
         draw("[In summer|At the end of summer|After many days], there were many {plants}."),
         draw("[{N} shared the {plants} with {theA}.|{N} and {theA} picked the {plants} together.|"
              "{N} gave the first {plant} to {theA}.]"),
         draw("[|" + LEARN + " good things take time.]"),
         draw("[|They were very happy.|" + '"We did it together," said {N}.]')],
    ]
    asks += [
        ("What did {N} plant?", "{N} planted a {plant} seed."),
        ("[Who helped {N}?|Who came into the garden?]", "{^theA} helped {him}."),
        ("What did {theA} do?", "{^theA} {fix}."),
        ("[Why was the plant in trouble?|What was the trouble?]",
         "The plant was in trouble because {why}."),
    ]
    return Story(cast, "a garden", paragraphs, asks, ["name", "kind", "animal"],
                 ["a {plant} seed", "a garden", "a {kind} who grows {plants}",
                  "a {A} in a garden", "a {kind} and a garden"])


def honest(cast):
    """The hero breaks a grown-up's thing, hides it, tells the truth, and is forgiven."""
    draw, maybe, rng = cast.draw, cast.maybe, cast.rng
    cast.slots["cause"] = rng.choice([
        "{he} was running in the house", "{he} was not careful", "{he} was playing with the {A}",
        "{he} was jumping on the bed", "{he} was in a hurry"])
    if "{A}" in cast.slots["cause"]:
        cast.slots["theA"] = "the " + cast.slots["A"]
    hide = rng.choice(["under the bed", "behind the door", "in a box", "under the table"])
    cast.slots["hide"] = hide
    first, asks = opening(cast)
    with_pet = "{A}" in cast.slots["cause"] or rng.random() < 0.4
    paragraphs = [
        first + [draw("{G} had a [beautiful|pretty|special|] {CO}."),
                 draw("{^his} pet was a {A}." if with_pet else "")],
        [draw("[One day|One morning|One rainy day], {N} broke the {CO}, because {cause}."),
         draw("[{^he} was afraid, so {he} hid it {hide}.|\"{G} will be angry,\" {he} thought, and "
              "{he} hid it {hide}.]"),
         draw('["Where is my {O}?" asked {G}.|In the evening, {G} looked for the {O}.]'),
         draw('["I do not know," said {N}.|{N} did not say a word.]')],
        [draw("[That night, {N} could not sleep.|{N} felt very bad.|{^his} heart was heavy.]"),
         draw("[At last, {he} went to {G} and told the truth.|In the morning, {he} told {G} the "
              "truth.]"),
         draw('["I broke your {O}. I am so sorry," {he} said.|"I broke the {O} and hid it {hide}," '
              'said {N}. "I am sorry."]')],
        [draw('["Thank you for telling me the truth," said {G}.|{G} was sad, but {ghe} was not '
              'angry.|{G} hugged {him}. "You were brave to tell me," {ghe} said.]'),
         draw("[They fixed the {CO} together with glue.|Then they fixed it together.|Together they "
              "made the {O} new again.]"),
         draw("[{N} felt much better.|" + LEARN + " it is best to tell the truth.|"
              "After that, {N} always told the truth.]")],
    ]
    asks += [
        ("[What did {N} break?|What was broken?]", "{N} broke {G}'s {CO}."),
        ("Where did {N} hide it?", "{N} hid it {hide}."),
        ("[Why did the {O} break?|Why did {N} break it?]", "It broke because {cause}."),
        ("[Was {G} angry?|Was {G} mad?]", "No, {G} was not angry."),
        ("Whose {O} was it?", "It was {G}'s {O}."),
    ]
    keys = ["name", "kind", "object", "color"] + (["animal"] if with_pet else [])
    return Story(cast, "telling the truth", paragraphs, asks, keys,
                 ["a broken {O}", "a {kind} who broke a {CO}", "{G}'s {O}"])


def kindness(cast):
    """The hero feeds a hungry animal; later the animal helps in return."""
    draw, maybe, rng = cast.draw, cast.maybe, cast.rng
    cast.set_place(rng.choice(OUTSIDE))
    back = rng.choice([
        ("{N} got lost in the forest", "showed {him} the way home"),
        ("{N} fell into the river", "pulled {him} out of the water"),
        ("{N} lost {his} {CO}", "brought it back to {him}"),
        ("it was very cold, and {N} had no fire", "kept {him} warm"),
        ("a big storm came", "took {him} to a safe place"),
    ])
    cast.slots["danger"], cast.slots["return_"] = back
    first, asks = opening(cast)
    paragraphs = [
        first,
        [draw(WHEN + ", {N} met {newA} {P}."),
         draw("[{^theA} was thin and hungry.|{^theA} looked hungry and tired.|{^theA} had not "
              "eaten all day.]"),
         draw('["{sound}," said {theA}. "I am so hungry."|"Do you have some food?" asked {theA}.|'
              '"Are you hungry?" asked {N}. "Yes, very," said {theA}.]'),
         draw("[{N} had some {food} and gave it all to {theA}.|{N} ran home and came "
              "back with some {food}.|{N} gave {theA} some {food}.]"),
         draw('["Thank you! I will never forget it," said {theA}.|{^theA} ate it all and was '
              'happy.|"You are kind," said {theA}.]')],
        [draw("[Many days later|Some days later|In winter|A week later], {danger}."),
         draw('["Help!" [cried|shouted] {N}.|{N} did not know what to do.|{N} was afraid.]'),
         draw("[Then {theA} came.|Suddenly, {theA} was there.|{^theA} heard {him} and came fast.]"),
         draw("{^theA} {return_}.")],
        [draw('["You helped me, and now I helped you," said {theA}.|"You saved me!" said {N}. "You '
              'were kind to me first," said {theA}.]'),
         maybe(0.5, LEARN + " kindness comes back."), draw(END)],
    ]
    asks += [
        ("[Who was hungry?|Who did {N} meet?]", "{^theA} was hungry."),
        ("What did {N} give to {theA}?", "{N} gave {theA} some {food}."),
        ("Where did {N} meet {theA}?", "{N} met {theA} {P}."),
        ("How did {theA} help {N}?", "{^theA} {return_}."),
        ("[What happened later?|What was the danger?]", "{^danger}."),
    ]
    keys = ["name", "kind", "animal", "place"]
    subjects = ["a hungry {A}", "a {A} and some {food}", "a kind {kind} and a {A}"]
    return Story(cast, "being kind", paragraphs, asks, keys, subjects)


def race(cast):
    """A contest: the hero fails at first, practices with a friend, and does well or is glad."""
    draw, maybe, rng = cast.draw, cast.maybe, cast.rng
    contest = rng.choice([("running race", "run", "ran"), ("swimming race", "swim", "swam"),
                          ("singing contest", "sing", "sang"), ("dancing contest", "dance",
                                                                "danced"),
                          ("jumping contest", "jump", "jumped")])
    cast.slots["contest"], cast.slots["verb"], cast.slots["past"] = contest
    won = rng.random() < 0.55
    cast.slots["rank"] = "first" if won else rng.choice(["second", "third"])
    first, asks = opening(cast)
    paragraphs = [
        first,
        [draw("[There was a {contest} in the village.|The village had a {contest}.]"),
         draw("The prize was a {CO}."),
         draw('["I want to win," said {N}.|{N} wanted to win the {O}.]'),
         draw("[But {he} was not very good.|But when {he} tried, {he} fell down.|But {he} was slow "
              "and the others laughed.]"),
         draw(CRY)],
        [draw("[{^newA} saw {him}.|Then {newA} came to {him}.]"),
         draw('["You must {verb} a little every day," said {theA}.|"Do not give up," said {theA}. '
              '"I will help you."|"I can teach you," said {theA}.]'),
         draw("[So every day, {N} and {theA} {past} together.|{N} {past} every morning with "
              "{theA}.|Day after day they {past} together.]"),
         draw("[{N} got better and better.|Slowly, {N} got better.]")],
        [draw("[At last, the big day came.|Then the day of the {contest} came.]"),
         draw("{N} {past} [as well as {he} could|better than ever|with all {his} heart]."),
         draw("{^he} came {rank}."),
         draw('[{^he} won the {CO}! "We did it!" {he} told {theA}.|Everyone cheered, and {N} got '
              'the {CO}. "Thank you, {callA}," {he} said.]' if won else
              '[{^he} did not win the {O}, but {he} was happy.|"I did not win, but I did my best," '
              'said {N}. "I am proud of you," said {theA}.]'),
         draw("[|" + LEARN + " you get better when you try again.]")],
    ]
    asks += [
        ("What was the prize?", "The prize was a {CO}."),
        ("[Did {N} win?|Did {he} win?]", "Yes, {N} came first and won the {O}." if won else
         "No, {N} came {rank}."),
        ("[Who helped {N}?|Who taught {N}?]", "{^theA} helped {him}."),
        ("What was in the village?", "There was a {contest} in the village."),
    ]
    return Story(cast, "trying again", paragraphs, asks,
                 ["name", "kind", "animal", "object", "color"],
                 ["a {contest}", "a {kind} who wants to win a {O}", "a {contest} and a {A}"])


def noise(cast):
    """A strange noise at night turns out to be an animal with a harmless reason."""
    draw, maybe, rng = cast.draw, cast.maybe, cast.rng
    reason = rng.choice([("was cold", "gave {ahim} a warm blanket"),
                         ("was looking for food", "gave {ahim} some {food}"),
                         ("was lost", "showed {ahim} the way home"),
                         ("wanted to play", "played with {ahim}"),
                         ("was playing with the {CO}", "laughed and played too")])
    cast.slots["reason"], cast.slots["react"] = reason
    where = rng.choice(["under the bed", "in the kitchen", "behind the door", "on the roof",
                        "in the yard", "at the window"])
    cast.slots["where"] = where
    from_where = where not in ("on the roof", "in the yard", "at the window")
    first, asks = opening(cast)
    paragraphs = [
        first,
        [draw("[One night|One dark night|One cold night], {N} could not sleep."),
         draw("[{^he} heard a strange noise.|There was a strange noise.|Something made a noise.]"),
         draw('["Tap, tap, tap."|"Bump, bump."|"Knock, knock."|]'),
         draw("[The noise came from {where}.|It came from {where}.]"
              if from_where else "The noise was {where}."),
         draw('["Is it a monster?" thought {N}.|"Who is there?" asked {N}.|{N} was afraid.]')],
        [draw("[{^he} took a lamp and went to look.|{^he} was brave and went to look.|{^he} called "
              "{G}, and they went to look.]"),
         draw("[It was not a monster. It was {newA}!|And there was {newA}!]"),
         draw('["{sound}!" said {theA}.|"Please do not be afraid," said {theA}.|]'),
         draw("{^theA} {reason}."), draw("So {N} {react}.")],
        [draw("[Then {N} went back to bed and slept well.|Soon they were both fast asleep.|{N} was "
              "not afraid of noises after that.]"),
         maybe(0.5, "[In the morning, they were friends.|After that, {theA} came every night.]")],
    ]
    asks += [
        ("[What made the noise?|Who made the noise?]", "{^theA} made the noise."),
        ("[Where was the noise?|Where did the noise come from?]", "It came from {where}."
         if from_where else "The noise was {where}."),
        ("[Why was {theA} there?|Why did {theA} make a noise?]", "{^theA} {reason}."),
        ("What did {N} do?", "{N} {react}."),
    ]
    return Story(cast, "a strange noise", paragraphs, asks, ["name", "kind", "animal"],
                 ["a strange noise", "a {A} at night", "a dark night", "a noise and a {A}"])


def journey(cast):
    """Two friends go far with the object, meet weather, and come home with something to tell."""
    draw, maybe, rng = cast.draw, cast.maybe, cast.rng
    ride = rng.choice(["cart", "sled", "bike", "wagon", "raft"])
    goal = rng.choice(["the sea", "the mountain", "a small island", "the big city",
                       "the old castle", "the end of the rainbow"])
    weather = rng.choice([("it began to rain", "hid under a big leaf"),
                          ("the wind was strong", "held hands"),
                          ("it was very dark", "followed the moon"),
                          ("it was very hot", "drank cold water"),
                          ("the snow came down", "made a small fire")])
    cast.slots.update(ride=ride, goal=goal, bad=weather[0], plan=weather[1])
    first, asks = opening(cast)
    paragraphs = [
        first + [draw("{^his} friend was {newA}.")],
        [draw('["I want to see {goal}," said {N} [one day|one morning]. "Let us go!" said {theA}.|'
              'One day, {N} and {theA} wanted to see {goal}.]'),
         draw("They took a {ride} and a [bag of {food}|bag of food|little food]."),
         draw("They [went|traveled] [for a long time|all day|far away].")],
        [draw("[But on the way|Then], {bad}."),
         draw('["What do we do now?" asked {N}. "I have an idea," said {theA}.|"Do not worry," '
              'said {theA}.|"I am afraid," said {N}. "I am with you," said {theA}.]'),
         draw("They {plan} [until it was over|and waited|and went on]."
              if weather[1] != "followed the moon" else "They {plan} and went on.")],
        [draw("[At last, they saw {goal}.|In the morning, they came to {goal}.|Then they were at "
              "{goal}!]"),
         draw('["It is so beautiful!" said {N}.|They danced and sang.|They sat down and ate.]'),
         draw("[There they found a {CO}.|{N} saw a {CO} there and took it.]"),
         draw("[Then they went home and gave the {CO} to {G}.|Then they went home and told {G} "
              "about it.|When they came home, {G} hugged them.|They came home with the {O}, tired "
              "but happy.]"),
         maybe(0.4, '["Where will we go next?" asked {theA}.|It was the best day ever.]')],
    ]
    asks += [
        ("Where did they go?", "They went to {goal}."),
        ("[How did they go?|How did they travel?]", "They took a {ride}."),
        ("Who was {N}'s friend?", "{^his} friend was {theA}."),
        ("[What happened on the way?|What was the trouble?]", "On the way, {bad}."),
        ("What did they do then?", "They {plan}."),
        ("What did they find?", "They found a {CO}."),
    ]
    return Story(cast, "a long trip", paragraphs, asks,
                 ["name", "kind", "animal", "object", "color"],
                 ["a trip to {goal}", "a {A} and a {ride}", "a {kind} and a {ride}",
                  "a {ride} and {goal}", "a {A} and a {ride}"])


def tiny(cast):
    """Four or five sentences, for requests that ask for a very short story."""
    draw = cast.draw
    paragraphs = [[
        draw("[{N} was a {kind}.|There was a {kind} [named|called] {N}.|Once there was a {kind} "
             "[named|called] {N}.]"),
        draw("[{^he} found a {CO} {P}.|{^he} saw a {CO} {P}.]"),
        draw("It belonged to {newA}."),
        draw('["Is this your {O}?" asked {N}. "Yes, thank you!" said {theA}.|{N} gave the {O} '
             'back, and {theA} was happy.|"Here is your {O}," said {N}.]'),
        draw("[They played together all day.|After that they were friends.|{N} and {theA} became "
             "good friends.]"),
    ]]
    asks = [("What did {N} find?", "{N} found a {CO}."), ("Where was it?", "It was {P}."),
            ("Whose {O} was it?", "It belonged to {theA}."),
            ("What color was the {O}?", "The {O} was {C}.")]
    return Story(cast, "finding something", paragraphs, asks,
                 ["name", "kind", "animal", "object", "color", "place"],
                 ["a {kind} who found a {O}"])


PLOTS = [lost_and_found, out_of_reach, rescue, sharing, afraid, gift, garden, honest, kindness,
         race, noise, journey]
WEIGHTS = [3, 3, 1.6, 1.4, 1.2, 1.4, 1.2, 1.1, 1.5, 1.2, 1.1, 1.3]


def make_story(rng, short=False):
    """A story with its cast; `short` asks for the tiny plot.

    The plot is drawn for the cast, never the cast for the plot: so every animal meets every object
    equally often, and a request for any two of them is like those that were trained on.
    """
    cast = Cast(rng)
    plot = tiny if short else rng.choices(PLOTS, WEIGHTS)[0]
    if plot is out_of_reach and not within_reach(cast.slots):
        plot = lost_and_found
    return plot(cast), cast
