// A decoder's sequence: its source is encoded once as a whole; the tokens after it are kept,
// forked, rewound and generated as usual. families_test.cpp compares logits and greedy tokens with
// the reference.
#include <gtest/gtest.h>

#include "fixtures_util.h"
#include "generate/generation.h"
#include "session/batcher.h"

namespace sluice::test {
namespace {

using session::Session;
using session::Token;

std::vector<Token> answer_to(const std::vector<Token>& source, const std::vector<Token>& answer) {
  std::vector<Token> out;
  for (const Token token : source) out.push_back(~token);
  out.insert(out.end(), answer.begin(), answer.end());
  return out;
}

class EncoderDecoder : public testing::Test {
 protected:
  void SetUp() override {
    const std::string folder = shared_folder("families");
    if (folder.empty()) GTEST_SKIP() << "../shared/fixtures/families is absent";
    session::EngineOptions options;
    options.n_ctx = 64;
    options.n_threads = 2;
    options.n_sessions = 2;
    opened_ = open_model(folder + "/t5.gguf", options);
    ASSERT_NE(opened_.session, nullptr);
  }
  // Logits after the last token; `kept` gets how many tokens were kept.
  std::vector<float> sync(const std::vector<Token>& tokens, int32_t* kept = nullptr) {
    const Result<int32_t> begun = opened_.session->sync(tokens);
    EXPECT_TRUE(begun.ok()) << begun.status().message();
    if (kept != nullptr && begun.ok()) *kept = *begun;
    EXPECT_TRUE(opened_.model->run(*opened_.session).ok());
    const std::span<const float> logits = opened_.session->logits();
    return {logits.begin(), logits.end()};
  }
  std::vector<float> fresh(const std::vector<Token>& tokens) {
    opened_.session->clear();
    return sync(tokens);
  }

  Opened opened_;
};

TEST_F(EncoderDecoder, KeepsACommonPrefixAndEncodesAnotherSource) {
  const std::vector<Token> source = {1, 40, 7, 99, 40}, longer = {1, 40, 7, 99, 40, 8};
  const std::vector<Token> shorter = {1, 40, 7};
  struct {
    std::vector<Token> tokens;
    int32_t kept;
  } const steps[] = {
      {answer_to(source, {0, 5, 6, 7}), 0},    {answer_to(source, {0, 5, 6, 7, 8}), 9},
      {answer_to(source, {0, 5, 9}), 7},       {answer_to(source, {0}), 5},
      {answer_to(longer, {0, 5}), 0},          {answer_to(source, {0, 5}), 0},
      {answer_to(shorter, {7, 99, 40, 0}), 0},
  };
  std::vector<std::vector<float>> got;
  for (const auto& step : steps) {
    int32_t kept = -1;
    got.push_back(sync(step.tokens, &kept));
    EXPECT_EQ(kept, step.kept);
  }
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], fresh(steps[i].tokens)) << i;
  EXPECT_NE(got[4], got[5]);
}

TEST_F(EncoderDecoder, RewindsToItsSourceOrToNothing) {
  const std::vector<Token> tokens = answer_to({3, 4, 5, 6}, {0, 20, 21});
  const std::vector<float> expected = sync(tokens);
  EXPECT_EQ(opened_.session->rewind(5), 5);
  const std::vector<Token> rest = {20, 21};
  ASSERT_TRUE(opened_.session->begin(rest).ok());
  ASSERT_TRUE(opened_.model->run(*opened_.session).ok());
  const std::span<const float> again = opened_.session->logits();
  EXPECT_EQ(std::vector<float>(again.begin(), again.end()), expected);
  EXPECT_EQ(opened_.session->rewind(4), 4);
  EXPECT_EQ(opened_.session->rewind(3), 0);
}

TEST_F(EncoderDecoder, SavedStatesIncludeTheSource) {
  const std::vector<Token> tokens = answer_to({3, 4, 5, 6}, {0, 20, 21});
  const std::vector<float> expected = fresh(answer_to({3, 4, 5, 6}, {0, 20, 21, 22}));
  opened_.session->clear();
  static_cast<void>(sync(tokens));
  std::vector<uint8_t> state(opened_.session->sequence().state_bytes());
  ASSERT_TRUE(opened_.session->read_state(0, state).ok());
  auto other = Session::create(opened_.model->engine().context());
  ASSERT_TRUE(other.ok());
  const auto restore = [&](const std::vector<uint8_t>& bytes) {
    const Status begun = (*other)->begin_restore(bytes.size());
    return begun.ok() ? (*other)->write_state(bytes) : begun;
  };
  ASSERT_TRUE(restore(state).ok());
  EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), (*other)->tokens().begin()));
  const Token next = 22;
  ASSERT_TRUE((*other)->begin({&next, 1}).ok());
  ASSERT_TRUE(opened_.model->run(**other).ok());
  const std::span<const float> logits = (*other)->logits();
  EXPECT_EQ(std::vector<float>(logits.begin(), logits.end()), expected);
  state[48] ^= 1;
  EXPECT_EQ(restore(state).code(), Code::kCorrupt);
}

TEST_F(EncoderDecoder, IsNotBatched) {
  session::Batcher batcher(opened_.model->engine().context());
  EXPECT_EQ(batcher.add(*opened_.session).code(), Code::kInvalidArgument);
}

TEST_F(EncoderDecoder, GeneratesFromTheStartToken) {
  const std::vector<Token> source = {1, 40, 7, 99, 40};
  std::vector<Token> expected;
  while (expected.size() < 6) {
    std::vector<Token> answer = {0};
    answer.insert(answer.end(), expected.begin(), expected.end());
    const std::vector<float> logits = fresh(answer_to(source, answer));
    expected.push_back(
        static_cast<Token>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
  }
  generate::Options options;
  options.max_tokens = 6;
  options.ignore_eos = true;
  options.sampling.temperature = 0;
  options.reuse_prefix = true;
  for (const int32_t cached : {0, 5}) {  // the second time the source is already encoded
    if (cached == 0) opened_.session->clear();
    auto begun = generate::Generation::begin(*opened_.session, source, options);
    ASSERT_TRUE(begun.ok()) << begun.status().message();
    EXPECT_EQ((*begun)->counts().cached, cached);
    std::vector<Token> said;
    while ((*begun)->finish() == generate::Finish::kNone) {
      ASSERT_NE((*begun)->step(0), session::Step::kFailed) << (*begun)->failure().message();
      if (opened_.session->busy()) {
        ASSERT_TRUE(opened_.model->run(*opened_.session).ok());
      }
      for (const generate::Piece& piece : (*begun)->take_pieces()) said.push_back(piece.token);
    }
    EXPECT_EQ(said, expected);
  }
}

TEST_F(EncoderDecoder, RejectsWhatIsNotADecoderPrompt) {
  Session& session = *opened_.session;
  for (const std::vector<Token>& wrong :
       {std::vector<Token>{5, 6}, std::vector<Token>{~5, ~6}, std::vector<Token>{~5, 6, ~7},
        std::vector<Token>{~280, 6}}) {
    EXPECT_EQ(session.begin(wrong).code(), Code::kInvalidArgument);
  }
  static_cast<void>(sync(answer_to({3, 4}, {0})));
  const Token late = ~5;
  EXPECT_EQ(session.begin({&late, 1}).code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace sluice::test
