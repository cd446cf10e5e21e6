// Constrained decoding with the sample model, at a temperature at which it generates anything. For
// any random schema, a finished output is valid and an unfinished one is a valid prefix.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "fixtures_util.h"
#include "generate/generation.h"

namespace sluice::test {
namespace {

using generate::Finish;
using generate::Generation;
using generate::Options;
using grammar::Kind;
using grammar::Verdict;
using nlohmann::json;

session::EngineOptions room(bool grammars) {
  session::EngineOptions options;
  options.n_ctx = 256;
  options.n_threads = 1;
  options.structured_output = grammars;
  return options;
}

struct Outcome {
  Status status;
  Finish finish = Finish::kNone;
  std::string text;
  std::vector<generate::Piece> pieces;
  generate::Counts counts;
};

Outcome answer(Opened& opened, const Options& options) {
  Outcome out;
  const std::vector<session::Token> prompt =
      opened.model->engine().tokenizer().encode("Once upon a time");
  auto begun = Generation::begin(*opened.session, prompt, options);
  out.status = begun.status();
  if (!begun.ok()) return out;
  out.status = opened.model->drive([&](int32_t) {
    const session::Step step = (*begun)->step();
    for (generate::Piece& piece : (*begun)->take_pieces()) {
      out.text += piece.text;
      out.pieces.push_back(std::move(piece));
    }
    return step;
  });
  if (out.status.ok()) out.status = (*begun)->failure();
  out.finish = (*begun)->finish();
  out.counts = (*begun)->counts();
  return out;
}

Options bound(Kind kind, std::string text, uint64_t seed) {
  Options options;
  options.sampling.temperature = 2;
  options.sampling.seed = seed;
  options.max_tokens = 160;
  options.constraint = {kind, std::move(text), {}};
  return options;
}

class Schemas {
 public:
  explicit Schemas(uint32_t seed) : random_(seed) {}
  json make(int depth) {
    switch (pick(depth > 0 ? 9 : 6)) {
      case 0:
        return {{"type", "integer"}, {"minimum", static_cast<int>(pick(50)) - 25}, {"maximum", 40}};
      case 1:
        return {{"type", "string"}, {"maxLength", pick(12)}};
      case 2:
        return {{"enum", {"red", 5, nullptr, json::array({1, "x"})}}};
      case 3:
        return {{"type", "number"}, {"multipleOf", 0.25}, {"exclusiveMinimum", 0}};
      case 4:
        return {{"type", "string"}, {"pattern", "^[a-f]{2,5}(-\\d+)?$"}};
      case 5:
        return {{"type", {"boolean", "null"}}};
      case 6: {
        json out = {{"type", "array"}, {"items", make(depth - 1)}, {"maxItems", 3}};
        if (pick(2) == 0) out["minItems"] = 1;
        return out;
      }
      case 7:
        return {{"anyOf", {make(depth - 1), make(depth - 1)}}};
      default: {
        json out = {{"type", "object"}, {"properties", json::object()}};
        out["additionalProperties"] = false;
        for (uint32_t i = pick(3) + 1; i > 0; --i) {
          const std::string name = "field" + std::to_string(i);
          out["properties"][name] = make(depth - 1);
          if (pick(2) == 0) out["required"].push_back(name);
        }
        return out;
      }
    }
  }

 private:
  uint32_t pick(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  std::mt19937 random_;
};

TEST(Constrained, OutputMatchesRandomSchemas) {
  const char* const wanted = std::getenv("SLUICE_RANDOM_SCHEMAS");
  const int n = wanted != nullptr ? std::atoi(wanted) : 60;
  Opened opened = open_model(sample_model(), room(true));
  ASSERT_NE(opened.session, nullptr);
  int finished = 0;
  for (int i = 0; i < n; ++i) {
    Schemas schemas(static_cast<uint32_t>(i));
    const std::string schema = schemas.make(3).dump();
    const Outcome a = answer(opened, bound(Kind::kJsonSchema, schema, static_cast<uint64_t>(i)));
    ASSERT_TRUE(a.status.ok()) << a.status.message() << " for " << schema;
    const auto compiled = grammar::compile(Kind::kJsonSchema, schema, nullptr);
    ASSERT_TRUE(compiled.ok());
    const Result<Verdict> verdict = grammar::check(**compiled, a.text);
    ASSERT_TRUE(verdict.ok());
    if (a.finish == Finish::kStop) {
      ++finished;
      EXPECT_EQ(*verdict, Verdict::kMatch) << schema << " gave " << a.text;
      EXPECT_TRUE(json::accept(a.text)) << a.text;
    } else {  // its last character may be incomplete
      EXPECT_NE(a.text.empty() ? Verdict::kPrefix : *verdict, Verdict::kMatch);
    }
  }
  EXPECT_GT(finished, n / 2);
}

// By default log-probabilities are the model's own, with post_sampling_probs those of the tokens
// that could be drawn. The tight top-p cuts the tail, which depends on what the grammar allows.
TEST(Constrained, LogprobsAreTheModelsOwnOrThoseOfTheDraw) {
  Opened opened = open_model(sample_model(), room(true));
  ASSERT_NE(opened.session, nullptr);
  const auto& tokenizer = opened.model->engine().tokenizer();
  const std::vector<std::string> words = {"red", "blue", "green", "golden"};
  const auto fits = [&](session::Token token) {
    return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
      return word.starts_with(tokenizer.token_bytes(token));
    });
  };
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Options options = bound(Kind::kChoice, json(words).dump(), seed);
    options.sampling.top_k = 0;
    options.sampling.top_p = seed % 2 == 0 ? 1.f : 0.6f;
    options.sampling.min_p = 0;
    options.logprobs = 64;
    const Outcome own = answer(opened, options);
    ASSERT_FALSE(own.pieces.empty());
    EXPECT_EQ(own.pieces[0].top.size(), 64u);
    EXPECT_FALSE(fits(own.pieces[0].top[0].token));
    options.post_sampling_probs = true;
    const Outcome drawn = answer(opened, options);
    ASSERT_FALSE(drawn.pieces.empty());
    for (const sample::Candidate& c : drawn.pieces[0].top) EXPECT_TRUE(fits(c.token));
    for (const generate::Piece& piece : drawn.pieces) {
      EXPECT_GT(piece.logprob, -30) << seed;
      EXPECT_LE(piece.logprob, 0);
      double sum = 0;
      for (const sample::Candidate& c : piece.top) {
        sum += std::exp(static_cast<double>(c.logprob));
        if (c.token == piece.token) {
          EXPECT_EQ(c.logprob, piece.logprob);
        }
      }
      EXPECT_NEAR(sum, 1, 1e-5);
    }
  }
}

TEST(Constrained, ForcedTextTakesFewerPasses) {
  Opened opened = open_model(sample_model(), room(true));
  ASSERT_NE(opened.session, nullptr);
  const std::string whole = "{\"the only answer that there is\":[true,false]}";
  const Outcome a = answer(opened, bound(Kind::kChoice, json::array({whole}).dump(), 1));
  ASSERT_TRUE(a.status.ok()) << a.status.message();
  EXPECT_EQ(a.text, whole);
  EXPECT_EQ(a.finish, Finish::kStop);
  // All but the last token are in the pass of the first one.
  EXPECT_GT(a.counts.generated, 10);
  EXPECT_LE(a.counts.passes, 2);
}

TEST(Constrained, BadGrammarsAreErrorsAndLeaveTheSessionUnchanged) {
  Opened opened = open_model(sample_model(), room(true));
  ASSERT_NE(opened.session, nullptr);
  EXPECT_EQ(answer(opened, bound(Kind::kGbnf, "root ::= x", 1)).status.code(),
            Code::kGrammarSyntax);
  EXPECT_EQ(answer(opened, bound(Kind::kGbnf, "root ::= root", 1)).status.code(),
            Code::kGrammarLeftRecursion);
  EXPECT_EQ(answer(opened, bound(Kind::kJsonSchema, R"({"format": "regex"})", 1)).status.code(),
            Code::kSchemaUnsupported);
  EXPECT_EQ(answer(opened, bound(Kind::kJsonSchema, "false", 1)).status.code(),
            Code::kInvalidArgument);
  const Outcome good = answer(opened, bound(Kind::kRegex, "(yes|no)", 1));
  ASSERT_TRUE(good.status.ok()) << good.status.message();
  EXPECT_TRUE(good.text == "yes" || good.text == "no") << good.text;
}

TEST(Constrained, ABudgetTooSmallForGrammarsIsAnError) {
  session::EngineOptions options = room(false);
  options.memory_budget = smallest_budget(sample_model(), options) + (1 << 20);
  Opened opened = open_model(sample_model(), options);
  ASSERT_NE(opened.session, nullptr);
  EXPECT_EQ(answer(opened, bound(Kind::kJson, "", 1)).status.code(), Code::kBudgetTooSmall);
}

}  // namespace
}  // namespace sluice::test
