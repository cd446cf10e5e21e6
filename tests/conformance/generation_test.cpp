// One generation from prompt to last token, compared with a plain loop of forward passes: the text,
// the position of stop strings, characters split over tokens, log-probabilities, counts. After
// every way in which a generation can end the session must work as if new.
#include "generate/generation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "../extent.h"
#include "../paths.h"
#include "../sanitized.h"
#include "fixtures_util.h"
#include "generation_util.h"

namespace sluice::test {
namespace {

using generate::Finish;
using generate::Generation;
using generate::Options;
using generate::Piece;
using session::Step;
using session::Token;

constexpr float kBan = -std::numeric_limits<float>::infinity();
const std::string kRecurrent = source_dir() + "/tests/data/families/lfm2.gguf";

session::EngineOptions small_engine(int32_t n_ctx = 128) {
  session::EngineOptions options;
  options.n_ctx = n_ctx;
  options.n_batch = 8;
  options.n_threads = 1;
  return options;
}

Options greedy_options(int64_t max_tokens) {
  Options options;
  options.sampling.temperature = 0;
  options.max_tokens = max_tokens;
  return options;
}

std::vector<Token> tokens_of(const std::vector<Piece>& pieces) {
  std::vector<Token> tokens;
  for (const Piece& piece : pieces) tokens.push_back(piece.token);
  return tokens;
}

class GenerationTest : public testing::Test {
 protected:
  void SetUp() override {
    opened_ = open_model(sample_model(), small_engine());
    ASSERT_NE(opened_.session, nullptr);
    prompt_ = tokenizer().encode("Once upon a time there was a girl");
  }
  const tokenizer::Tokenizer& tokenizer() { return opened_.model->engine().tokenizer(); }
  Token token_of(const std::string& bytes) {
    for (Token t = 0; t < tokenizer().n_vocab(); ++t) {
      if (tokenizer().token_bytes(t) == bytes) return t;
    }
    ADD_FAILURE() << "no token for these bytes";
    return 0;
  }
  // Forces these tokens one after another, whatever the model predicts.
  static void force(Options& options, const std::vector<Token>& tokens) {
    float bias = 1000.0f * static_cast<float>(tokens.size());
    for (const Token t : tokens) {
      options.sampling.logit_bias.emplace_back(t, bias);
      bias -= 1000;
    }
    options.sampling.presence_penalty = 1e6f;
    options.sampling.penalty_last_n = static_cast<int32_t>(tokens.size());
  }

  Opened opened_;
  std::vector<Token> prompt_;
};

TEST_F(GenerationTest, EqualsAPlainLoop) {
  const std::vector<Token> expected = greedy(opened_, prompt_, 40);
  tokenizer::StreamDecoder decoder(tokenizer());
  std::string text;
  for (const Token t : expected) text += decoder.push(t);
  text += decoder.finish();
  for (const int32_t max_ops : {0, 1, 7}) {
    const Answer found = answer(opened_, prompt_, greedy_options(40), max_ops);
    ASSERT_TRUE(found.status.ok()) << found.status.message();
    EXPECT_EQ(found.text, text);
    EXPECT_EQ(tokens_of(found.pieces), expected);
    EXPECT_EQ(found.finish, Finish::kLength);
    EXPECT_EQ(found.counts.generated, 40);
    EXPECT_GT(found.counts.time_to_first_token_ms, 0);
    EXPECT_GT(found.counts.tokens_per_second(), 0);
  }
}

TEST_F(GenerationTest, StopsAtEveryPositionOfTheText) {
  const Answer whole = answer(opened_, prompt_, greedy_options(24));
  const std::vector<Token> tokens = tokens_of(whole.pieces);
  for (size_t at = 0; at < whole.text.size(); ++at) {
    for (const size_t length : {1, 4, 13}) {
      const std::string stop = whole.text.substr(at, length);
      Options options = greedy_options(24);
      options.stop = {"no such text", stop};
      const Answer found = answer(opened_, prompt_, options);
      ASSERT_EQ(found.text, whole.text.substr(0, whole.text.find(stop))) << stop;
      EXPECT_EQ(found.finish, Finish::kStop);
      EXPECT_EQ(found.stop_string, stop);
      ASSERT_LE(found.pieces.size(), tokens.size());
      EXPECT_TRUE(std::equal(found.pieces.begin(), found.pieces.end(), tokens.begin(),
                             [](const Piece& p, Token t) { return p.token == t; }));
    }
  }
}

TEST_F(GenerationTest, APartialStopStringIsDeliveredAtTheEnd) {
  const Answer whole = answer(opened_, prompt_, greedy_options(12));
  Options options = greedy_options(12);
  options.stop = {whole.text.substr(whole.text.size() / 2) + "and never this"};
  const Answer found = answer(opened_, prompt_, options);
  EXPECT_EQ(found.text, whole.text);
  EXPECT_EQ(found.finish, Finish::kLength);
  EXPECT_EQ(tokens_of(found.pieces), tokens_of(whole.pieces));
}

// The euro sign has three bytes, here three tokens. If it is cut after any of them, there is one
// event per token, and the replacement of the unfinished character belongs to the last one.
TEST_F(GenerationTest, ACharacterCutByTheTokenLimitBelongsToTheLastToken) {
  const std::string euro = "\xE2\x82\xAC";
  std::vector<Token> bytes;
  for (const char byte : euro) bytes.push_back(token_of(std::string(1, byte)));
  for (const int64_t n : {1, 2, 3}) {
    Options options = greedy_options(n);
    force(options, bytes);
    const Answer found = answer(opened_, prompt_, options);
    ASSERT_TRUE(found.status.ok()) << found.status.message();
    EXPECT_EQ(tokens_of(found.pieces), std::vector<Token>(bytes.begin(), bytes.begin() + n));
    EXPECT_EQ(found.counts.generated, n);
    EXPECT_EQ(found.text, n == 3 ? euro : "\xEF\xBF\xBD") << n;
    EXPECT_EQ(found.pieces.back().text, found.text);
  }
}

TEST_F(GenerationTest, ACharacterCutByAnEndTokenBelongsToTheLastToken) {
  Options options = greedy_options(10);
  const Token cut = token_of("\xE2");
  const std::vector<Token> end = tokenizer().encode("<|endoftext|>", {false, true});
  ASSERT_EQ(end.size(), 1u);
  force(options, {cut, end[0]});
  const Answer found = answer(opened_, prompt_, options);
  EXPECT_EQ(found.finish, Finish::kStop);
  ASSERT_EQ(tokens_of(found.pieces), std::vector<Token>{cut});
  EXPECT_EQ(found.text, "\xEF\xBF\xBD");
  EXPECT_EQ(found.counts.generated, 1);

  options.ignore_eos = true;
  options.max_tokens = 2;
  EXPECT_EQ(tokens_of(answer(opened_, prompt_, options).pieces), (std::vector<Token>{cut, end[0]}));
}

TEST_F(GenerationTest, LogprobsAreTheModelsOwn) {
  Options options = greedy_options(6);
  options.logprobs = 3;
  options.sampling.repeat_penalty = 3;
  options.sampling.presence_penalty = 5;
  const Token likeliest = greedy(opened_, prompt_, 1)[0];
  options.sampling.logit_bias = {{likeliest, kBan}};
  const Answer found = answer(opened_, prompt_, options);
  ASSERT_EQ(found.pieces.size(), 6u);
  EXPECT_EQ(found.pieces[0].top[0].token, likeliest);
  EXPECT_NE(found.pieces[0].token, likeliest);
  std::vector<Token> text = prompt_;
  for (const Piece& piece : found.pieces) {
    opened_.session->clear();
    ASSERT_TRUE(opened_.session->begin(text).ok());
    ASSERT_TRUE(opened_.model->run(*opened_.session).ok());
    const std::span<const float> logits = opened_.session->logits();
    const double max = *std::max_element(logits.begin(), logits.end());
    double total = 0;
    for (const float logit : logits) total += std::exp(logit - max);
    const auto logprob = [&](Token t) {
      return logits[static_cast<size_t>(t)] - max - std::log(total);
    };
    EXPECT_NEAR(piece.logprob, logprob(piece.token), 1e-4);
    ASSERT_EQ(piece.top.size(), 3u);
    EXPECT_NEAR(piece.top[0].logprob, -std::log(total), 1e-4);
    for (const auto& [token, value] : piece.top) EXPECT_NEAR(value, logprob(token), 1e-4);
    text.push_back(piece.token);
  }
}

TEST_F(GenerationTest, AFullContextEndsItWithTheWholeText) {
  opened_ = open_model(sample_model(), small_engine(24));
  ASSERT_NE(opened_.session, nullptr);
  ASSERT_LT(prompt_.size(), 20u);
  Options options = greedy_options(-1);
  options.ignore_eos = true;
  options.stop = {std::string(200, 'x')};
  const Answer found = answer(opened_, prompt_, options);
  EXPECT_EQ(found.finish, Finish::kContext);
  EXPECT_EQ(found.pieces.size(), 24 - prompt_.size() + 1);
  EXPECT_EQ(found.counts.generated, static_cast<int32_t>(found.pieces.size()));
}

TEST_F(GenerationTest, NoTokensIsPrefillOnly) {
  const Answer before = answer(opened_, prompt_, greedy_options(8));
  const Answer none = answer(opened_, prompt_, greedy_options(0));
  EXPECT_EQ(none.finish, Finish::kLength);
  EXPECT_TRUE(none.pieces.empty());
  EXPECT_EQ(none.counts.generated, 0);
  EXPECT_EQ(none.counts.tokens_per_second(), 0);
  EXPECT_EQ(none.counts.time_to_first_token_ms, 0);
  EXPECT_EQ(answer(opened_, prompt_, greedy_options(8)).text, before.text);
}

TEST_F(GenerationTest, ACancelledPrefillCountsWhatItComputed) {
  const int32_t n = static_cast<int32_t>(prompt_.size());
  EXPECT_EQ(greedy(opened_, prompt_, 1).size(), 1u);  // from here on no step waits for weights
  int32_t most = 0;
  for (int steps = 0;; ++steps) {
    opened_.session->clear();
    const Answer found = answer(opened_, prompt_, greedy_options(5), 20, steps);
    if (found.finish != Finish::kCancelled || !found.pieces.empty()) break;
    EXPECT_EQ(found.counts.prompt, n);
    EXPECT_GT(found.counts.prompt_ms, 0);
    EXPECT_TRUE(found.counts.computed == n || found.counts.computed % 8 == 0);
    EXPECT_EQ(found.counts.prompt_tokens_per_second() > 0, found.counts.computed > 0);
    EXPECT_EQ(found.counts.tokens_per_second(), 0);
    most = std::max(most, found.counts.computed);
  }
  EXPECT_EQ(most, n);
}

TEST_F(GenerationTest, ASecondOneReusesThePrefix) {
  const Answer first = answer(opened_, prompt_, greedy_options(10));
  EXPECT_EQ(first.counts.cached, 0);
  EXPECT_EQ(first.counts.computed, static_cast<int32_t>(prompt_.size()));
  std::vector<Token> longer = prompt_;
  for (const Token t : tokens_of(first.pieces)) longer.push_back(t);
  longer.push_back(prompt_.back());
  const Answer second = answer(opened_, longer, greedy_options(10));
  EXPECT_EQ(second.counts.cached, static_cast<int32_t>(longer.size()) - 2);  // not the last token
  EXPECT_EQ(second.counts.computed, 2);
  Options anew = greedy_options(10);
  anew.reuse_prefix = false;
  const Answer again = answer(opened_, longer, anew);
  EXPECT_EQ(again.counts.cached, 0);
  EXPECT_EQ(again.counts.computed, static_cast<int32_t>(longer.size()));
  EXPECT_EQ(again.text, second.text);
}

TEST_F(GenerationTest, ReportsErrorsInOneSentenceAndLeavesTheSession) {
  const Answer before = answer(opened_, prompt_, greedy_options(8));
  const int32_t position = opened_.session->position();
  const auto expect = [&](const char* name, Code code, auto&& change) {
    Options options = greedy_options(8);
    std::vector<Token> prompt = prompt_;
    change(options, prompt);
    EXPECT_EQ(answer(opened_, prompt, options).status.code(), code) << name;
  };
  const Code invalid = Code::kInvalidArgument;
  expect("max_tokens", invalid, [](Options& o, auto&) { o.max_tokens = -2; });
  expect("logprobs", invalid, [](Options& o, auto&) { o.logprobs = 65; });
  expect("logprobs", invalid, [](Options& o, auto&) { o.logprobs = -2; });
  expect("many stops", invalid, [](Options& o, auto&) { o.stop.assign(65, "a"); });
  expect("long stop", invalid, [](Options& o, auto&) { o.stop = {std::string(4097, 'a')}; });
  expect("empty stop", invalid, [](Options& o, auto&) { o.stop = {"a", ""}; });
  expect("part of a character", invalid, [](Options& o, auto&) { o.stop = {"\x82"}; });
  expect("sampling", invalid, [](Options& o, auto&) { o.sampling.top_k = -1; });
  EXPECT_EQ(opened_.session->position(), position);
  Options options = greedy_options(8);
  options.reuse_prefix = false;
  EXPECT_EQ(answer(opened_, {}, options).status.code(), Code::kPromptEmpty);
  EXPECT_EQ(answer(opened_, prompt_, greedy_options(8)).text, before.text);
}

TEST_F(GenerationTest, BanningEverythingIsAnErrorAndGenerationContinues) {
  opened_ = open_model(kRecurrent, small_engine());
  ASSERT_NE(opened_.session, nullptr);
  const std::vector<Token> prompt = {5, 6, 7};
  Options options = greedy_options(4);
  options.ignore_eos = true;
  for (Token t = 0; t < opened_.model->engine().program().hp.n_vocab; ++t) {
    options.sampling.logit_bias.emplace_back(t, kBan);
  }
  for (const float temperature : {0.0f, 1.0f}) {
    options.sampling.temperature = temperature;
    const Answer banned = answer(opened_, prompt, options);
    EXPECT_EQ(banned.finish, Finish::kFailed);
    EXPECT_EQ(banned.status.code(), Code::kInvalidArgument);
    EXPECT_TRUE(banned.pieces.empty());
  }
  options.sampling.logit_bias.pop_back();  // one is left
  const Answer one = answer(opened_, prompt, options);
  EXPECT_EQ(tokens_of(one.pieces), std::vector<Token>(4, 287));
}

// Cancels after every number of steps, or some of them under a sanitizer; the next output must
// equal that of a fresh session.
void cancel_everywhere(const std::string& path, const session::EngineOptions& engine,
                       int32_t max_ops) {
  const std::vector<Token> first = {11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21};
  std::vector<Token> second = first;
  second[8] = 30;
  second.push_back(31);
  Options options = greedy_options(6);
  options.ignore_eos = true;
  Opened fresh = open_model(path, engine);
  ASSERT_NE(fresh.session, nullptr);
  const Answer expected = answer(fresh, second, options);
  ASSERT_EQ(expected.pieces.size(), 6u);
  Opened opened = open_model(path, engine);
  ASSERT_NE(opened.session, nullptr);
  const int stride = kSanitized ? extent(101, 17) : 1;
  for (int steps = 0;; steps += stride) {
    const Answer cut = answer(opened, first, options, max_ops, steps);
    ASSERT_TRUE(cut.status.ok()) << cut.status.message();
    EXPECT_FALSE(opened.session->busy());
    const Answer next = answer(opened, second, options);
    ASSERT_EQ(tokens_of(next.pieces), tokens_of(expected.pieces)) << "after " << steps << " steps";
    if (cut.finish != Finish::kCancelled) {
      EXPECT_GT(steps, 6 * 2);
      break;
    }
  }
}

TEST(GenerationCancelled, AtEveryStep) {
  cancel_everywhere(sample_model(), small_engine(), 16);
}

TEST(GenerationCancelled, AtEveryStepOfARecurrentModel) {
  cancel_everywhere(kRecurrent, small_engine(), 5);
}

TEST(GenerationCancelled, AtEveryStepOfAStreamedModel) {
  session::EngineOptions engine = small_engine();
  engine.memory_budget = smallest_budget(kRecurrent, engine);
  cancel_everywhere(kRecurrent, engine, 11);
}

}  // namespace
}  // namespace sluice::test
