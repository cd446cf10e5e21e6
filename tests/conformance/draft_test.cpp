// Drafts change only the number of forward passes. Whether draft tokens are right, wrong or half
// right, the token events, log-probabilities, finish reason and session contents equal those of one
// token per pass: greedy and sampled, constrained by a grammar, cut by stop strings, by the context
// and at any step, resident and streamed, for attention, sliding windows, mixtures of experts and
// recurrent states.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "fixtures_util.h"
#include "generate/draft_model.h"
#include "generate/draft_pair.h"
#include "generate/generation.h"
#include "generation_util.h"
#include "native/draft_pair.h"

namespace sluice::test {
namespace {

using generate::Drafts;
using generate::DraftSource;
using generate::Finish;
using generate::Generation;
using generate::Options;
using generate::Piece;
using session::Step;
using session::Token;
using Tokens = std::vector<Token>;

void expect_same(const Answer& found, const Answer& plain, bool recurrent) {
  ASSERT_TRUE(found.status.ok()) << found.status.message();
  ASSERT_EQ(found.tokens(), plain.tokens());
  EXPECT_EQ(found.text, plain.text);
  EXPECT_EQ(found.finish, plain.finish);
  EXPECT_EQ(found.stop_string, plain.stop_string);
  EXPECT_EQ(found.counts.generated, plain.counts.generated);
  for (size_t i = 0; i < plain.pieces.size(); ++i) {
    const Piece &a = found.pieces[i], &b = plain.pieces[i];
    EXPECT_EQ(a.text, b.text) << i;
    EXPECT_EQ(std::memcmp(&a.logprob, &b.logprob, sizeof a.logprob), 0) << i;
    ASSERT_EQ(a.top.size(), b.top.size());
    for (size_t j = 0; j < a.top.size(); ++j) {
      EXPECT_EQ(a.top[j].token, b.top[j].token);
      EXPECT_EQ(a.top[j].logprob, b.top[j].logprob);
    }
  }
  if (!recurrent) {
    EXPECT_EQ(found.held, plain.held);
  } else {  // a wrong draft token discards the batch
    ASSERT_LE(found.held.size(), plain.held.size());
    EXPECT_TRUE(std::equal(found.held.begin(), found.held.end(), plain.held.begin()));
  }
}

// Drafts the known text, with `wrong` percent of the tokens wrong.
class Oracle final : public DraftSource {
 public:
  Oracle(Tokens text, uint32_t wrong, Token n_vocab, uint32_t seed)
      : text_(std::move(text)), wrong_(wrong), n_vocab_(n_vocab), random_(seed) {}
  [[nodiscard]] size_t propose(std::span<const Token> text, std::span<Token> out) override {
    size_t n = out.size();
    if (random_() % 5 == 0) n = random_() % (n + 1);
    for (size_t i = 0; i < n; ++i) {
      const size_t at = text.size() + i;
      const bool right = at < text_.size() && random_() % 100 >= wrong_;
      out[i] = right ? text_[at] : static_cast<Token>(random_() % static_cast<uint32_t>(n_vocab_));
    }
    return n;
  }

 private:
  Tokens text_;
  uint32_t wrong_;
  Token n_vocab_;
  std::mt19937 random_;
};

session::EngineOptions engine_options(int32_t draft_max, int32_t n_ctx = 160) {
  session::EngineOptions options;
  options.n_ctx = n_ctx;
  options.n_batch = 16;
  options.n_threads = 1;
  options.draft_max = draft_max;
  return options;
}

// Sampling options, by number.
Options option_set(int which) {
  Options o;
  o.ignore_eos = true;
  o.max_tokens = 40;
  o.sampling.temperature = 0;
  if (which == 1) {
    o.sampling.temperature = 1.3f;
    o.sampling.top_k = 0;
    o.sampling.top_p = 0.9f;
    o.sampling.min_p = 0;
    o.sampling.seed = 5;
    o.logprobs = 3;
  } else if (which == 2) {
    o.sampling.temperature = 0.7f;
    o.sampling.top_k = 12;
    o.sampling.seed = 6;
    o.sampling.repeat_penalty = 1.3f;
    o.sampling.frequency_penalty = 0.2f;
    o.sampling.presence_penalty = 0.3f;
    o.sampling.penalty_last_n = 16;
  }
  return o;
}

Tokens some_prompt(const Opened& opened, size_t n) {
  const int64_t n_vocab = opened.session->context().program.hp.n_vocab;
  Tokens prompt;
  for (size_t i = 0; i < n; ++i) {
    prompt.push_back(static_cast<Token>((i * 37 + 11) % static_cast<size_t>(n_vocab)));
  }
  return prompt;
}

class Drafting : public testing::TestWithParam<Reference> {};

TEST_P(Drafting, OutputEqualsOneTokenPerPass) {
  const std::string& path = GetParam().path;
  Opened plain = open_model(path, engine_options(0));
  ASSERT_NE(plain.session, nullptr);
  const bool recurrent = plain.session->context().plan.kv.shape.recurrent();
  const Token n_vocab = static_cast<Token>(plain.session->context().program.hp.n_vocab);
  const Tokens prompt = some_prompt(plain, 21);
  session::EngineOptions small = engine_options(5);
  small.memory_budget = smallest_budget(path, small);
  for (const session::EngineOptions& engine : {engine_options(7), engine_options(1), small}) {
    Opened opened = open_model(path, engine);
    ASSERT_NE(opened.session, nullptr);
    for (int which = 0; which < 3; ++which) {
      Options options = option_set(which);
      const Answer expected = answer(plain, prompt, options);
      Tokens text = prompt;
      for (const Token t : expected.tokens()) text.push_back(t);
      for (const uint32_t wrong : {0u, 30u, 100u}) {
        SCOPED_TRACE("options " + std::to_string(which) + ", wrong " + std::to_string(wrong));
        Oracle oracle(text, wrong, n_vocab, wrong + 1);
        options.drafts = {.source = &oracle};
        const Answer found = answer(opened, prompt, options, which == 1 ? 3 : 0);
        ASSERT_NO_FATAL_FAILURE(expect_same(found, expected, recurrent));
        EXPECT_GE(found.counts.drafted, found.counts.accepted);
        EXPECT_GT(found.counts.drafted, 0);
        if (wrong == 0) {
          EXPECT_EQ(found.counts.passes + found.counts.accepted + 1, found.counts.generated);
          EXPECT_LT(found.counts.passes, 3 * 40 / (engine.draft_max + 1));
        }
      }
      options.drafts = {.ngram = true};
      ASSERT_NO_FATAL_FAILURE(expect_same(answer(opened, prompt, options), expected, recurrent));
    }
  }
}

std::vector<Reference> models() {
  const std::vector<std::string> of_arch = {"llama-gqa", "qwen3", "gemma2"};
  const std::vector<std::string> of_families = {"lfm2", "qwen3moe", "gemma3-scaled",
                                                "mistral-window", "llama4-chunks"};
  const std::vector<std::string> of_shared = {"mamba2",    "qwen35",  "rwkv7",
                                              "falcon-h1", "gemma3n", "deepseek2"};
  std::vector<Reference> out = read_manifest(own_folder("arch"), &of_arch);
  for (Reference& r : read_manifest(own_folder("families"), &of_families)) out.push_back(r);
  for (Reference& r : read_manifest(shared_folder("families"), &of_shared)) out.push_back(r);
  return out;
}

INSTANTIATE_TEST_SUITE_P(Families, Drafting, testing::ValuesIn(models()), [](const auto& info) {
  std::string name = info.param.name;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
});

class DraftingSampleModel : public testing::Test {
 protected:
  void SetUp() override {
    plain_ = open_model(sample_model(), engine_options(0));
    opened_ = open_model(sample_model(), engine_options(7));
    ASSERT_NE(plain_.session, nullptr);
    ASSERT_NE(opened_.session, nullptr);
    prompt_ = plain_.model->engine().tokenizer().encode("Once upon a time there was a girl");
  }
  // An oracle for the text generated without drafts.
  Oracle oracle_for(const Options& options, uint32_t wrong) {
    Tokens text = prompt_;
    for (const Token t : answer(plain_, prompt_, options).tokens()) text.push_back(t);
    return {text, wrong, plain_.model->engine().tokenizer().n_vocab(), 7};
  }

  Opened plain_, opened_;
  Tokens prompt_;
};

TEST_F(DraftingSampleModel, StopStringsStopAtTheSamePlace) {
  const Answer whole = answer(plain_, prompt_, option_set(0));
  for (size_t at = 0; at < whole.text.size(); at += 3) {
    Options options = option_set(0);
    options.stop = {"no such text", whole.text.substr(at, 1 + at % 9)};
    options.max_tokens = static_cast<int64_t>(20 + at % 30);
    Oracle oracle = oracle_for(option_set(0), at % 2 == 0 ? 0 : 40);
    const Answer expected = answer(plain_, prompt_, options);
    options.drafts = {.source = &oracle};
    ASSERT_NO_FATAL_FAILURE(expect_same(answer(opened_, prompt_, options), expected, false)) << at;
  }
}

TEST_F(DraftingSampleModel, StopsAtTheContextLimit) {
  for (int32_t n_ctx = static_cast<int32_t>(prompt_.size()); n_ctx < 40; ++n_ctx) {
    plain_ = open_model(sample_model(), engine_options(0, n_ctx));
    opened_ = open_model(sample_model(), engine_options(7, n_ctx));
    Options options = option_set(0);
    options.max_tokens = -1;
    Oracle oracle = oracle_for(options, n_ctx % 2 == 0 ? 0 : 50);
    const Answer expected = answer(plain_, prompt_, options);
    EXPECT_EQ(expected.finish, Finish::kContext);
    options.drafts = {.source = &oracle};
    ASSERT_NO_FATAL_FAILURE(expect_same(answer(opened_, prompt_, options), expected, false));
  }
}

TEST_F(DraftingSampleModel, EveryTokenLimitIsExact) {
  for (int64_t n = 0; n < 24; ++n) {
    Options options = option_set(2);
    Oracle oracle = oracle_for(options, 10);
    options.max_tokens = n;
    const Answer expected = answer(plain_, prompt_, options);
    options.drafts = {.source = &oracle};
    ASSERT_NO_FATAL_FAILURE(expect_same(answer(opened_, prompt_, options), expected, false));
  }
}

TEST_F(DraftingSampleModel, GrammarsConstrainAsWithoutDrafts) {
  session::EngineOptions with = engine_options(7), without = engine_options(0);
  with.structured_output = without.structured_output = true;
  plain_ = open_model(sample_model(), without);
  opened_ = open_model(sample_model(), with);
  const std::string schema = R"({"type": "array", "items": {"type": "object", "properties":
      {"name": {"enum": ["Anna", "Ben", "Annabel"]}, "age": {"type": "integer", "minimum": 0}},
      "required": ["name", "age"], "additionalProperties": false}, "minItems": 3})";
  for (uint64_t seed = 0; seed < 6; ++seed) {
    for (const int32_t logprobs : {-1, 2}) {
      Options options;
      options.sampling.temperature = 1.5f;
      options.sampling.seed = seed;
      options.max_tokens = 90;
      options.logprobs = logprobs;
      options.constraint = {grammar::Kind::kJsonSchema, schema, {}};
      const Answer expected = answer(plain_, prompt_, options);
      ASSERT_TRUE(expected.status.ok()) << expected.status.message();
      Oracle oracle = oracle_for(options, static_cast<uint32_t>(seed) * 10);
      Options drafted = options;
      drafted.drafts = {.source = &oracle};
      ASSERT_NO_FATAL_FAILURE(expect_same(answer(opened_, prompt_, drafted), expected, false));
      drafted.drafts = {.ngram = true};
      ASSERT_NO_FATAL_FAILURE(expect_same(answer(opened_, prompt_, drafted), expected, false));
    }
  }
}

TEST_F(DraftingSampleModel, InvalidDraftTokensAreIgnored) {
  class Foreign final : public DraftSource {
    size_t propose(std::span<const Token>, std::span<Token> out) override {
      std::fill(out.begin(), out.end(), out.size() % 2 == 0 ? -1 : 1 << 30);
      return out.size() + 5;
    }
  } foreign;
  Options options = option_set(0);
  const Answer expected = answer(plain_, prompt_, options);
  options.drafts = {.source = &foreign};
  const Answer found = answer(opened_, prompt_, options);
  ASSERT_NO_FATAL_FAILURE(expect_same(found, expected, false));
  EXPECT_EQ(found.counts.drafted, 0);
}

TEST_F(DraftingSampleModel, DraftMemoryMustBeRequestedOnLoading) {
  Options options = option_set(0);
  options.drafts = {.ngram = true};
  EXPECT_EQ(answer(plain_, prompt_, options).status.code(), Code::kBudgetTooSmall);
  options.drafts = {};
  EXPECT_TRUE(answer(plain_, prompt_, options).status.ok());
}

// A draft model equal to the target is always right, one with other weights hardly ever. Both share
// the budget.
class DraftingByModel : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(DraftingByModel, OutputEqualsOneTokenPerPass) {
  const std::string path = own_folder("arch") + GetParam().first;
  const std::string by = own_folder("arch") + GetParam().second;
  Opened plain = open_model(path, engine_options(0));
  ASSERT_NE(plain.session, nullptr);
  const Tokens prompt = some_prompt(plain, 21);
  native::LoadOptions load;
  load.engine = engine_options(6);
  const uint64_t least =
      smallest_budget(path, engine_options(6)) + smallest_budget(by, engine_options(0));
  for (const uint64_t budget : {uint64_t{0}, least, least + 100000}) {
    load.engine.memory_budget = budget;
    Result<native::DraftPair> pair = native::open_pair(path, by, load);
    ASSERT_TRUE(pair.ok()) << pair.status().message();
    if (budget > 0) {
      EXPECT_LE(pair->model->engine().plan().total() + pair->draft->engine().plan().total(),
                budget);
    }
    auto session = session::Session::create(pair->model->engine().context());
    auto draft = session::Session::create(pair->draft->engine().context());
    ASSERT_TRUE(session.ok() && draft.ok());
    for (int which = 0; which < 3; ++which) {
      Options options = option_set(which);
      const Answer expected = answer(plain, prompt, options);
      pair->draft->engine().context().draft_state = {};  // forget what other options taught
      generate::DraftModel guesses(**draft);
      options.drafts = {.model = &guesses};
      auto begun = Generation::begin(**session, prompt, options);
      ASSERT_TRUE(begun.ok()) << begun.status().message();
      Tokens tokens;
      const auto make_it_pay = [&] {  // whatever the measured latency of such small models
        for (int32_t n = 1; n <= 8; ++n) pair->model->engine().context().costs.note(n, 1000 + n);
        for (int32_t n = 1; n <= 64; ++n) pair->draft->engine().context().costs.note(n, 1);
      };
      const Status status = pair->model->drive([&](int32_t) {
        make_it_pay();
        const Step step = (*begun)->step(which);
        for (const Piece& piece : (*begun)->take_pieces()) tokens.push_back(piece.token);
        if (step != Step::kBlocked || !(*begun)->drafting()) return step;
        EXPECT_TRUE(pair->draft->wait().ok());
        return Step::kProgress;
      });
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(tokens, expected.tokens());
      const generate::Counts& counts = (*begun)->counts();
      EXPECT_GT(counts.drafted, 0);
      if (which == 0 && path == by) {
        EXPECT_EQ(counts.accepted, counts.drafted);
        EXPECT_LT(counts.passes, counts.generated / 2);
      }
    }
  }
  load.engine.memory_budget = least - 1;
  EXPECT_EQ(native::open_pair(path, by, load).status().code(), Code::kBudgetTooSmall);
}

INSTANTIATE_TEST_SUITE_P(Pairs, DraftingByModel,
                         testing::Values(std::pair("/llama-gqa.gguf", "/llama-gqa.gguf"),
                                         std::pair("/llama-gqa.gguf", "/qwen3.gguf")),
                         [](const auto& info) { return info.index == 0 ? "Itself" : "Another"; });

TEST(DraftPair, AnotherVocabularyIsAnError) {
  const Result<native::DraftPair> pair =
      native::open_pair(sample_model(), own_folder("arch") + "/llama-gqa.gguf", {});
  EXPECT_EQ(pair.status().code(), Code::kInvalidArgument);
  EXPECT_NE(pair.status().message().find("vocabulary"), std::string::npos);
}

TEST(DraftPair, TheDraftModelIsResidentInAtMostHalfTheBudget) {
  using generate::draft_share;
  EXPECT_EQ(draft_share(1000, 100, 50, 300), 300u);
  EXPECT_EQ(draft_share(1000, 100, 50, 700), 500u);
  EXPECT_EQ(draft_share(1000, 700, 50, 500), 300u);
  EXPECT_EQ(draft_share(1000, 100, 600, 700), 600u);
  EXPECT_EQ(draft_share(150, 100, 50, 70), 50u);
}

// Cancels after every number of steps; the next output must equal that of a fresh session.
void cancel_everywhere(const std::string& path) {
  Opened plain = open_model(path, engine_options(0));
  Opened opened = open_model(path, engine_options(5));
  ASSERT_NE(opened.session, nullptr);
  const Token n_vocab = static_cast<Token>(plain.session->context().program.hp.n_vocab);
  const Tokens first = some_prompt(plain, 11);
  Options options = option_set(0);
  options.max_tokens = 12;
  Tokens text = first;
  for (const Token t : answer(plain, first, options).tokens()) text.push_back(t);
  Tokens second(text.begin(), text.begin() + 17);
  second.push_back(1);
  const Tokens expected = answer(plain, second, options).tokens();
  for (int steps = 0;; ++steps) {
    Oracle oracle(text, 30, n_vocab, static_cast<uint32_t>(steps));
    options.drafts = {.source = &oracle};
    const Answer cut = answer(opened, first, options, 7, steps);
    ASSERT_TRUE(cut.status.ok()) << cut.status.message();
    ASSERT_FALSE(opened.session->busy());
    ASSERT_LE(cut.held.size(), text.size());
    ASSERT_TRUE(std::equal(cut.held.begin(), cut.held.end(), text.begin()));
    options.drafts = {};
    ASSERT_EQ(answer(opened, second, options).tokens(), expected) << "after " << steps << " steps";
    if (cut.finish != Finish::kCancelled) return;
  }
}

TEST(DraftingCancelled, AtEveryStep) {
  cancel_everywhere(own_folder("arch") + "/llama-gqa.gguf");
}

TEST(DraftingCancelled, AtEveryStepOfARecurrentModel) {
  cancel_everywhere(own_folder("families") + "/lfm2.gguf");
}

}  // namespace
}  // namespace sluice::test
