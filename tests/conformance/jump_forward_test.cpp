// Jump-forward and speculative decoding together. Text that a grammar forces is added to a pass
// without sampling; draft tokens are verified by a pass. Neither changes the other's output or
// counts its tokens: resident and streamed, cancelled at any step, with every kind of draft.
#include <gtest/gtest.h>

#include <random>

#include "../sanitized.h"
#include "generate/draft_model.h"
#include "generation_util.h"
#include "native/draft_pair.h"

namespace sluice::test {
namespace {

using generate::Counts;
using generate::Finish;
using generate::Options;
using grammar::Kind;
using session::Step;
using session::Token;
using Tokens = std::vector<Token>;

struct Form {
  Kind kind;
  const char* text;
};

const Form kForms[] = {
    {Kind::kJsonSchema, R"({"type": "array", "minItems": 2, "maxItems": 4, "items": {
        "type": "object", "additionalProperties": false,
        "required": ["favourite_animal", "number_of_children"], "properties": {
        "favourite_animal": {"enum": ["little dog", "little cat", "bird"]},
        "number_of_children": {"type": "integer", "minimum": 0, "maximum": 12}}}})"},
    {Kind::kJsonSchema, R"({"type": "object", "additionalProperties": false,
        "required": ["the_story", "is_it_true"], "properties": {
        "the_story": {"type": "string", "maxLength": 60}, "is_it_true": {"type": "boolean"}}})"},
    {Kind::kRegex, "(Once upon a time there was a (girl|boy) named [A-Z][a-z]{2,6}\\. ){3}"},
    {Kind::kChoice, R"(["the little girl ran home", "the little girl ran away", "no"])"},
    {Kind::kGbnf, "root ::= (\"The end of \" [a-z]+ \" is here. \")+ \"Good night, everyone!\""},
};

Options bound(const Form& form, uint64_t seed) {
  Options options;
  options.sampling.temperature = 1.5f;
  options.sampling.seed = seed;
  options.max_tokens = 90;
  options.constraint = {form.kind, form.text, {}};
  return options;
}

session::EngineOptions room(int32_t draft_max) {
  session::EngineOptions options;
  options.n_ctx = 192;
  options.n_batch = 16;
  options.n_threads = 1;
  options.draft_max = draft_max;
  options.structured_output = true;
  return options;
}

// Drafts the known text, with `wrong` percent of the tokens wrong.
class FixedDrafts final : public generate::DraftSource {
 public:
  FixedDrafts(Tokens text, uint32_t wrong)
      : text_(std::move(text)), wrong_(wrong), random_(wrong) {}
  [[nodiscard]] size_t propose(std::span<const Token> text, std::span<Token> out) override {
    for (size_t i = 0; i < out.size(); ++i) {
      const size_t at = text.size() + i;
      out[i] = at < text_.size() && random_() % 100 >= wrong_ ? text_[at] : 300;
    }
    return out.size();
  }

 private:
  Tokens text_;
  uint32_t wrong_;
  std::mt19937 random_;
};

void expect_same(const Answer& found, const Answer& plain) {
  ASSERT_TRUE(found.status.ok()) << found.status.message();
  ASSERT_EQ(found.tokens(), plain.tokens());
  EXPECT_EQ(found.text, plain.text);
  EXPECT_EQ(found.finish, plain.finish);
  const Counts &a = found.counts, &b = plain.counts;
  EXPECT_EQ(a.generated, b.generated);
  EXPECT_EQ(a.forced, b.forced);
  EXPECT_LE(a.passes, b.passes);
  EXPECT_LE(a.accepted, a.drafted);
  // A pass begins with a token that was not drafted; a drafted token may also be a forced one.
  EXPECT_LE(a.passes + a.accepted, a.generated);
  EXPECT_LE(a.generated, 1 + a.passes + a.accepted + a.forced);
}

// Each token is sampled, after prefill or a pass of its own, or forced. An end token that is
// sampled is not part of the output.
void expect_plain(const Answer& plain) {
  ASSERT_TRUE(plain.status.ok()) << plain.status.message();
  const Counts& c = plain.counts;
  EXPECT_EQ(c.drafted, 0);
  EXPECT_GE(c.forced, 0);
  const int32_t said = c.passes + c.forced;
  EXPECT_TRUE(c.generated == said + 1 || (c.generated == said && plain.finish == Finish::kStop))
      << c.generated << " of " << said;
}

class JumpForward : public testing::Test {
 protected:
  void SetUp() override {
    plain_ = open_model(sample_model(), room(0));
    ASSERT_NE(plain_.session, nullptr);
    prompt_ = plain_.model->engine().tokenizer().encode("A story: Once upon a time there was a");
  }
  FixedDrafts drafts_of(const Answer& expected, uint32_t wrong) {
    Tokens text = prompt_;
    for (const Token t : expected.tokens()) text.push_back(t);
    return {text, wrong};
  }

  Opened plain_;
  Tokens prompt_;
};

TEST_F(JumpForward, DraftsGiveTheSameTokens) {
  session::EngineOptions streamed = room(5);
  streamed.memory_budget = smallest_budget(sample_model(), streamed);
  int32_t forced = 0, accepted = 0, saved = 0;
  for (const session::EngineOptions& engine : {room(7), streamed}) {
    Opened opened = open_model(sample_model(), engine);
    ASSERT_NE(opened.session, nullptr);
    for (const Form& form : kForms) {
      for (uint64_t seed = 0; seed < (kSanitized ? 1 : 3); ++seed) {
        SCOPED_TRACE(form.text + std::string(", seed ") + std::to_string(seed));
        Options options = bound(form, seed);
        const Answer expected = answer(plain_, prompt_, options);
        ASSERT_NO_FATAL_FAILURE(expect_plain(expected));
        for (const uint32_t wrong : {0u, 40u, 100u}) {
          FixedDrafts guesses = drafts_of(expected, wrong);
          options.drafts = {.source = &guesses};
          const Answer found = answer(opened, prompt_, options, wrong == 40 ? 3 : 0);
          ASSERT_NO_FATAL_FAILURE(expect_same(found, expected));
          forced += found.counts.forced;
          accepted += found.counts.accepted;
          saved += expected.counts.passes - found.counts.passes;
        }
        options.drafts = {.ngram = true};
        ASSERT_NO_FATAL_FAILURE(expect_same(answer(opened, prompt_, options), expected));
      }
    }
  }
  EXPECT_GT(forced, 0);
  EXPECT_GT(accepted, 0);
  EXPECT_GT(saved, 0);
}

// The same weights in another type draft well; how many draft tokens are best is measured.
TEST_F(JumpForward, AModelsDraftsGiveTheSameTokens) {
  std::string coarser = sample_model();
  coarser.replace(coarser.rfind("Q8_0"), 4, "Q4_0");
  native::LoadOptions load;
  load.engine = room(6);
  Result<native::DraftPair> pair = native::open_pair(sample_model(), coarser, load);
  ASSERT_TRUE(pair.ok()) << pair.status().message();
  auto draft = session::Session::create(pair->draft->engine().context());
  auto session = session::Session::create(pair->model->engine().context());
  ASSERT_TRUE(draft.ok() && session.ok());
  for (const Form& form : kForms) {
    SCOPED_TRACE(form.text);
    Options options = bound(form, 4);
    const Answer expected = answer(plain_, prompt_, options);
    ASSERT_NO_FATAL_FAILURE(expect_plain(expected));
    generate::DraftModel guesses(**draft);
    options.drafts.model = &guesses;
    auto begun = generate::Generation::begin(**session, prompt_, options);
    ASSERT_TRUE(begun.ok()) << begun.status().message();
    Answer found;
    found.status = pair->model->drive([&](int32_t) {
      const Step step = (*begun)->step();
      for (generate::Piece& piece : (*begun)->take_pieces()) {
        found.text += piece.text;
        found.pieces.push_back(std::move(piece));
      }
      if (step != Step::kBlocked || !(*begun)->drafting()) return step;
      EXPECT_TRUE(pair->draft->wait().ok());
      return Step::kProgress;
    });
    found.finish = (*begun)->finish();
    found.counts = (*begun)->counts();
    ASSERT_NO_FATAL_FAILURE(expect_same(found, expected));
  }
}

// After a generation cancelled between forced text and draft tokens, the session generates what a
// fresh one does, with the same grammar or another.
TEST_F(JumpForward, CancelledAtRandomSteps) {
  Opened opened = open_model(sample_model(), room(7));
  ASSERT_NE(opened.session, nullptr);
  std::vector<Answer> expected;
  for (const Form& form : kForms) expected.push_back(answer(plain_, prompt_, bound(form, 9)));
  std::mt19937 random(11);
  for (int i = 0; i < (kSanitized ? 10 : 60); ++i) {
    const size_t which = random() % std::size(kForms);
    FixedDrafts guesses = drafts_of(expected[which], static_cast<uint32_t>(random() % 60));
    Options options = bound(kForms[which], 9);
    if (random() % 3 > 0) options.drafts = {.source = &guesses};
    const int cut = random() % 2 == 0 ? static_cast<int>(random() % 90) : -1;
    const Answer found = answer(opened, prompt_, options, static_cast<int32_t>(random() % 5), cut);
    ASSERT_TRUE(found.status.ok()) << found.status.message();
    if (found.finish != Finish::kCancelled) {
      ASSERT_NO_FATAL_FAILURE(expect_same(found, expected[which])) << "operation " << i;
      continue;
    }
    EXPECT_EQ(expected[which].text.substr(0, found.text.size()), found.text);
    EXPECT_LE(found.counts.accepted, found.counts.drafted);
  }
}

}  // namespace
}  // namespace sluice::test
