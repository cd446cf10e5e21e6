// A short text of this project's own, long enough for four chunks of 128 tokens.
#include "measure/comparison.h"

namespace sluice::measure {

std::vector<std::string> sample_prompts() {
  return {"Once upon a time", "The capital of France is", "def fibonacci(n):"};
}

const char* sample_text() {
  return R"(The village lay where the river leaves the hills. In spring the water came down brown and
fast, and the miller opened both gates of the old sluice so that the meadows below would not flood.
In summer he closed one of them, because the stream was thin and the wheel had to turn every day.
People came from far away with their sacks of wheat and waited in the shade until it was ground.

One morning the wheel stood still. The miller looked at the gates, at the chain and at the great
wooden teeth, and found nothing wrong. Then he walked up the bank, and after half an hour he saw
what had happened: a family of beavers had built a dam of willow branches between two rocks. Behind
it the river had become a lake, quiet and wide, with ducks on it and the sky in it.

He could have broken the dam with a few blows of his axe. Instead he sat down on a stone and thought
about it. The mill needs water, he said to himself, but it does not need all of it at once. If I cut
a small opening at the side, the lake will keep what the rain brings, and I can take the same amount
each day, in wet weeks and in dry ones. So he measured the height of the water with a stick, wrote
three numbers in his notebook, and began to dig.

It took him nine days. On the tenth he put a board into the opening, which he could lift by a hand's
breadth or two. The wheel turned slowly at first, then as steadily as a clock. The beavers looked at
the board, pushed some mud against it, and went on with their own work. That year August was the
driest month that anyone remembered, and wells ran empty in the whole valley, but the mill never
stopped. When his neighbours asked how he had done it, the miller answered that he had only learned
to use a little at a time.

Later an engineer from the city came to see the place. She drew a map, counted the steps from the
dam to the wheel, and asked for the three numbers in the notebook. "The height is 1.25 metres," she
said, "the opening is 0.3 metres wide, and so about 180 litres pass in a second. Why did you choose
just that?" The miller shrugged. "I tried more, and the lake sank. I tried less, and the wheel was
slow. This is what was left." She laughed and wrote it down, and in the evening they ate bread and
cheese at the water's edge while the light went out over the hills.)";
}

}  // namespace sluice::measure
