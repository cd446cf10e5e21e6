// Several sessions in one batch: each gets the bits that it would get alone, whatever runs beside
// it, however its prompt is split, and whoever joins or leaves. Every family, resident and at the
// smallest budget.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "../sanitized.h"
#include "fixtures_util.h"
#include "generate/scheduler.h"
#include "session/batcher.h"

namespace sluice::test {
namespace {

using session::Step;
using session::Token;
using Tokens = std::vector<Token>;

constexpr size_t kAnswer = 5;  // tokens

struct Text {
  Tokens prompt, answer;
  std::vector<float> logits;  // [kAnswer][n_vocab]
};

// Takes the logits of a finished pass and begins the next. Returns false when the text is complete.
bool go_on(session::Session& session, Text* text) {
  if (session.busy()) return true;
  if (text->answer.size() == kAnswer) return false;
  if (session.position() < static_cast<int32_t>(text->prompt.size())) {
    const auto begun = session.sync(text->prompt);
    EXPECT_TRUE(begun.ok()) << begun.status().message();
    return begun.ok();
  }
  const std::span<float> logits = session.logits();
  EXPECT_FALSE(logits.empty());
  if (logits.empty()) return false;
  text->logits.insert(text->logits.end(), logits.begin(), logits.end());
  text->answer.push_back(
      static_cast<Token>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
  if (text->answer.size() == kAnswer) return false;
  const Status begun = session.begin({&text->answer.back(), 1});
  EXPECT_TRUE(begun.ok()) << begun.message();
  return begun.ok();
}

std::vector<Text> texts_of(const Reference& r) {
  std::vector<Text> texts(3);
  texts[0].prompt = r.prompt;
  texts[1].prompt.assign(r.prompt.rbegin(), r.prompt.rbegin() + 7);
  texts[2].prompt.assign(r.prompt.begin() + 3, r.prompt.end());
  return texts;
}

std::vector<Text> alone(const Reference& r, session::EngineOptions options) {
  std::vector<Text> texts = texts_of(r);
  Opened opened = open_model(r.path, options);
  if (opened.session == nullptr) return texts;
  for (Text& text : texts) {
    opened.session->clear();
    while (go_on(*opened.session, &text)) {
      EXPECT_TRUE(opened.model->run(*opened.session).ok());
    }
  }
  return texts;
}

// Text i joins after i batches. One more session joins for one batch and is abandoned inside it.
std::vector<Text> together(const Reference& r, session::EngineOptions options) {
  std::vector<Text> texts = texts_of(r);
  options.parallel = static_cast<int32_t>(texts.size()) + 1;
  if (options.memory_budget > 0) options.memory_budget = smallest_budget(r.path, options);
  Opened opened = open_model(r.path, options);
  if (opened.session == nullptr) return texts;
  session::Engine& engine = opened.model->engine();
  session::Batcher batcher(engine.context());
  std::vector<std::unique_ptr<session::Session>> sessions;
  for (size_t i = 0; i < texts.size(); ++i) {
    sessions.push_back(std::move(*session::Session::create(engine.context())));
  }
  EXPECT_TRUE(batcher.add(*opened.session).ok());
  for (size_t round = 0;; ++round) {
    bool busy = round == 0;
    for (size_t i = 0; i < texts.size() && i <= round; ++i) {
      if (i == round) {
        EXPECT_TRUE(batcher.add(*sessions[i]).ok());
      }
      busy = go_on(*sessions[i], &texts[i]) || busy;
    }
    if (!busy) return texts;
    if (round == 2) {
      EXPECT_TRUE(opened.session->sync({r.prompt.data(), 1}).ok());
    }
    int steps = 0;
    const Status driven = opened.model->drive([&](int32_t) {
      if (round == 2 && ++steps == 3) opened.session->cancel();
      return batcher.step(2);
    });
    EXPECT_TRUE(driven.ok()) << driven.message();
    if (testing::Test::HasFailure()) return texts;
  }
}

class BatchTest : public testing::TestWithParam<Reference> {};

TEST_P(BatchTest, BatchedSessionsAreBitIdenticalToSingleOnes) {
  const Reference& r = GetParam();
  session::EngineOptions options;
  options.n_ctx = static_cast<int32_t>(r.prompt.size() + kAnswer);
  options.n_threads = 1;
  {
    const Opened probe = open_model(r.path, options);
    ASSERT_NE(probe.session, nullptr);
    if (!session::Batcher::takes(probe.model->engine().context())) GTEST_SKIP() << "is an encoder";
  }
  const std::vector<Text> wanted = alone(r, options);
  options.n_threads = 2;
  for (const bool resident : {true, false}) {
    SCOPED_TRACE(resident ? "resident" : "the smallest budget");
    options.memory_budget = resident ? 0 : 1;
    const std::vector<Text> got = together(r, options);
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_EQ(got[i].answer, wanted[i].answer) << "text " << i;
      ASSERT_EQ(got[i].logits.size(), wanted[i].logits.size());
      EXPECT_EQ(std::memcmp(got[i].logits.data(), wanted[i].logits.data(),
                            wanted[i].logits.size() * sizeof(float)),
                0)
          << "text " << i;
    }
  }
}

std::vector<Reference> references() {
  std::vector<Reference> out;
  const auto add = [&out](std::vector<Reference> some) {
    for (Reference& r : some) {
      if (r.causal && r.source() == 0 && r.prompt.size() > 8) out.push_back(std::move(r));
    }
  };
  add(read_manifest(fixture_folder("arch")));
  add(read_manifest(own_folder("families")));
  const std::vector<std::string> further = further_families();
  if (!kSanitized) add(read_manifest(shared_folder("families"), &further));
  std::sort(out.begin(), out.end(),
            [](const Reference& a, const Reference& b) { return a.name < b.name; });
  const auto same = [](const Reference& a, const Reference& b) { return a.name == b.name; };
  out.erase(std::unique(out.begin(), out.end(), same), out.end());
  return out;
}

std::string name_of(const testing::TestParamInfo<Reference>& info) {
  std::string name = std::to_string(info.index) + "_" + info.param.name;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Families, BatchTest, testing::ValuesIn(references()), name_of);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(BatchTest);

TEST(Batcher, TakesAsManyAsPlannedAndRejectsTheRest) {
  session::EngineOptions options;
  options.n_ctx = 64;
  options.parallel = 2;
  options.n_sessions = 4;
  Opened opened = open_model(sample_model(), options);
  ASSERT_NE(opened.session, nullptr);
  session::Engine& engine = opened.model->engine();
  EXPECT_EQ(engine.plan().sessions.n_sessions, 4);
  auto second = std::move(*session::Session::create(engine.context()));
  auto third = std::move(*session::Session::create(engine.context()));
  session::Batcher batcher(engine.context());
  EXPECT_EQ(batcher.step(), Step::kDone);
  ASSERT_TRUE(opened.session->begin(Tokens{1, 2, 3}).ok());
  EXPECT_EQ(batcher.add(*opened.session).code(), Code::kInvalidArgument);  // it is computing
  ASSERT_TRUE(batcher.add(*second).ok());
  ASSERT_TRUE(second->begin(Tokens{4, 5, 6}).ok());
  EXPECT_EQ(second->step(), Step::kBlocked);
  EXPECT_EQ(batcher.step(), Step::kBlocked);  // a pass outside the batcher uses the engine
  ASSERT_TRUE(opened.model->run(*opened.session).ok());
  ASSERT_TRUE(batcher.add(*opened.session).ok());
  EXPECT_EQ(batcher.add(*third).code(), Code::kInvalidArgument);  // planned for two
  const int32_t end = 3;
  EXPECT_EQ(opened.session->begin_embedding(Tokens{1, 2, 3}, {{&end, 1}}).code(),
            Code::kInvalidArgument);
  ASSERT_TRUE(opened.model->drive([&](int32_t n) { return batcher.step(n); }).ok());
  EXPECT_EQ(second->step(), Step::kDone);
  EXPECT_FALSE(second->logits().empty());
  batcher.remove(*second);
  EXPECT_TRUE(batcher.add(*third).ok());
}

// Drafts the known text, with every fifth token wrong.
class Repeats final : public generate::DraftSource {
 public:
  Repeats(size_t prompt, const Tokens& answer) : prompt_(prompt), answer_(answer) {}
  [[nodiscard]] size_t propose(std::span<const Token> text, std::span<Token> out) override {
    const size_t from = std::min(text.size() - prompt_, answer_.size());
    const size_t n = std::min(out.size(), answer_.size() - from);
    for (size_t i = 0; i < n; ++i) out[i] = (from + i) % 5 == 0 ? 1 : answer_[from + i];
    return n;
  }

 private:
  size_t prompt_;
  const Tokens& answer_;
};

// Draft tokens verified beside other sequences share the planned logits rows and change no token.
TEST(Scheduler, DraftedTextsEqualThoseOfSingleSequences) {
  session::EngineOptions options;
  options.n_ctx = 160;
  options.parallel = 3;
  options.draft_max = 7;
  Opened opened = open_model(sample_model(), options);
  ASSERT_NE(opened.session, nullptr);
  session::Engine& engine = opened.model->engine();
  const char* prompts[] = {"Once upon a time", "The little fox ran. The little fox ran. The",
                           "One day, Lily"};
  generate::Options plain;
  plain.sampling.temperature = 0;
  plain.max_tokens = 40;
  plain.ignore_eos = true;
  Tokens wanted[3], got[3];
  const auto collect = [](generate::Generation& g, Tokens* out) {
    for (const generate::Piece& piece : g.take_pieces()) out->push_back(piece.token);
  };
  for (int i = 0; i < 3; ++i) {
    auto g = generate::Generation::begin(*opened.session, engine.tokenizer().encode(prompts[i], {}),
                                         plain);
    ASSERT_TRUE(g.ok());
    ASSERT_TRUE(opened.model->drive([&](int32_t n) { return (*g)->step(n); }).ok());
    collect(**g, &wanted[i]);
  }
  opened.session.reset();
  std::vector<std::unique_ptr<session::Session>> sessions;
  generate::Scheduler scheduler(engine.context());
  std::vector<std::unique_ptr<Repeats>> guesses;
  std::vector<std::unique_ptr<generate::Generation>> answers;
  for (int i = 0; i < 3; ++i) {
    sessions.push_back(std::move(*session::Session::create(engine.context())));
    ASSERT_TRUE(scheduler.add(*sessions.back()).ok());
    const Tokens prompt = engine.tokenizer().encode(prompts[i], {});
    guesses.push_back(std::make_unique<Repeats>(prompt.size(), wanted[i]));
    generate::Options guessed = plain;
    guessed.drafts.source = guesses.back().get();
    answers.push_back(std::move(*generate::Generation::begin(*sessions.back(), prompt, guessed)));
    scheduler.add(*answers.back());
  }
  ASSERT_TRUE(opened.model->drive([&](int32_t n) { return scheduler.step(n); }).ok());
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(answers[i]->finish(), generate::Finish::kLength);
    collect(*answers[i], &got[i]);
    EXPECT_EQ(got[i], wanted[i]) << prompts[i];
  }
  for (const auto& answer : answers) EXPECT_GT(answer->counts().accepted, 5);
  // On a session without a batcher a generation runs its own passes.
  scheduler.remove(*sessions[0]);
  for (const auto& answer : answers) scheduler.remove(*answer);
  auto alone = std::move(
      *generate::Generation::begin(*sessions[0], engine.tokenizer().encode(prompts[2], {}), plain));
  scheduler.add(*alone);
  ASSERT_TRUE(opened.model->drive([&](int32_t n) { return scheduler.step(n); }).ok());
  Tokens by_itself;
  collect(*alone, &by_itself);
  EXPECT_EQ(by_itself, wanted[2]);
}

}  // namespace
}  // namespace sluice::test
