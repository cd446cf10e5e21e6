// Text models behind the stored embeddings of pictures (../shared/fixtures/vision): logits after
// the last picture and greedy tokens equal llama.cpp's, for any batch length and budget. Rewinding
// keeps pictures whole, and equal pictures have equal tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "../sanitized.h"
#include "../vision_manifest.h"
#include "fixtures_util.h"
#include "generate/generation.h"
#include "made_pictures.h"

namespace sluice::test {
namespace {

using nlohmann::json;

// The weights are F16 and the KV cache is f16; llama.cpp's own F16 error is up to 3e-5.
constexpr double kLogitsNmse = 1e-5;

struct Turn {
  std::vector<int32_t> tokens;  // text; empty: a picture
  session::MediaInput media;
};

struct Case {
  std::string name, model;
  std::vector<float> rows;  // of all pictures
  std::vector<Turn> turns;
  std::vector<float> logits;  // [n_logits][n_vocab]
  std::vector<int32_t> greedy;
  size_t n_logits = 0;
  int32_t n_tokens = 0;   // with those of pictures
  int32_t min_batch = 1;  // the largest picture whose tokens see each other
};

json manifest() {
  const std::string folder = shared_folder("vision");
  if (folder.empty()) return json::array();
  std::ifstream in(folder + "/manifest.json");
  return json::parse(in);
}

Case read_case(const json& family, const json& entry) {
  const std::string folder = shared_folder("vision") + "/";
  Case out;
  out.name = family["name"].get<std::string>() + " " + entry["name"].get<std::string>();
  out.model = folder + family["model"].get<std::string>();
  out.rows = read_floats(folder + entry["embd"].get<std::string>());
  out.logits = read_floats(folder + entry["logits"].get<std::string>());
  out.greedy = entry["greedy"].get<std::vector<int32_t>>();
  out.n_logits = entry["n_logits"];
  const size_t width = family["n_embd"];
  uint64_t number = 1;
  for (const json& chunk : entry["chunks"]) {
    Turn turn;
    if (chunk["type"] == "text") {
      turn.tokens = chunk["tokens"].get<std::vector<int32_t>>();
      out.n_tokens += static_cast<int32_t>(turn.tokens.size());
    } else {
      turn.media.n_tokens = chunk["n_tokens"];
      turn.media.n_positions = chunk["n_pos"];
      const bool grid = chunk.contains("h") && chunk["h"] != chunk["t"];
      const bool line = chunk.contains("w") && chunk["w"] != chunk["t"];
      if (grid || line) turn.media.columns = chunk["nx"];
      turn.media.non_causal = chunk["non_causal"];
      turn.media.hash = number++;
      if (turn.media.non_causal) out.min_batch = std::max(out.min_batch, turn.media.n_tokens);
      const size_t at = chunk["embd_offset"], n = turn.media.n_tokens * width;
      turn.media.rows = std::span(out.rows).subspan(at, n);
      out.n_tokens += turn.media.n_tokens;
    }
    out.turns.push_back(std::move(turn));
  }
  return out;
}

std::vector<Case> cases(bool first_only = false) {
  std::vector<Case> out;
  for (const json& family : manifest()) {
    for (const json& entry : family["cases"]) {
      if (has_sound(entry)) continue;
      out.push_back(read_case(family, entry));
      if (first_only) break;
    }
  }
  return out;
}

Status run(Opened& opened, const Status& began) {
  return began.ok() ? opened.model->run(*opened.session) : began;
}

// Computes the prompt. Returns the logits of the last text, in passes of at most `step` tokens.
std::vector<float> prompt_logits(Opened& opened, const Case& c, size_t step) {
  std::vector<float> out;
  for (size_t i = 0; i < c.turns.size(); ++i) {
    const Turn& turn = c.turns[i];
    if (turn.tokens.empty()) {
      const Status status = run(opened, opened.session->begin_media(turn.media));
      EXPECT_TRUE(status.ok()) << c.name << ": " << status.message();
      if (!status.ok()) return {};
      continue;
    }
    if (i + 1 < c.turns.size()) {
      const Status status = run(opened, opened.session->begin(turn.tokens));
      EXPECT_TRUE(status.ok()) << status.message();
      continue;
    }
    out = all_logits(opened, turn.tokens, step);
  }
  return out;
}

session::EngineOptions options_for(const Case& c) {
  session::EngineOptions options;
  options.n_ctx = c.n_tokens + static_cast<int32_t>(c.greedy.size());
  options.logits_rows = static_cast<int32_t>(c.n_logits);
  options.min_batch = c.min_batch;
  return options;
}

TEST(VisionText, LogitsAndGreedyTokensMatch) {
  size_t n = 0;
  for (const Case& c : cases(kSanitized)) {
    SCOPED_TRACE(c.name);
    Opened opened = open_model(c.model, options_for(c));
    ASSERT_NE(opened.session, nullptr);
    const std::vector<float> logits = prompt_logits(opened, c, c.n_logits);
    ASSERT_EQ(logits.size(), c.logits.size());
    EXPECT_LE(nmse(logits.data(), c.logits.data(), logits.size()), kLogitsNmse);
    std::vector<int32_t> tokens;
    auto row = opened.session->logits(static_cast<int32_t>(c.n_logits) - 1);
    while (tokens.size() < c.greedy.size() && !row.empty()) {
      tokens.push_back(
          static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin()));
      const Status status = run(opened, opened.session->begin({&tokens.back(), 1}));
      ASSERT_TRUE(status.ok()) << status.message();
      row = opened.session->logits();
    }
    EXPECT_EQ(tokens, c.greedy);
    ++n;
  }
  if (manifest().empty()) GTEST_SKIP() << "no ../shared/fixtures/vision";
  EXPECT_GT(n, 20u);
}

// Batches of any length and any budget give the same bits. A picture whose tokens see each other is
// one batch.
TEST(VisionText, BatchesAndBudgetsDoNotMatter) {
  for (const Case& c : cases(true)) {
    SCOPED_TRACE(c.name);
    Opened opened = open_model(c.model, options_for(c));
    ASSERT_NE(opened.session, nullptr);
    const std::vector<float> wanted = prompt_logits(opened, c, c.n_logits);
    session::EngineOptions small = options_for(c);
    small.n_batch = std::max(c.min_batch, 5);
    small.logits_rows = 3;
    small.memory_budget = smallest_budget(c.model, small);
    small.n_threads = 2;
    opened = open_model(c.model, small);
    ASSERT_NE(opened.session, nullptr);
    EXPECT_EQ(prompt_logits(opened, c, 3), wanted);
  }
}

// A sequence rewinds to before a picture or behind it, and goes on with the same bits.
TEST(VisionText, RewindingKeepsPicturesWhole) {
  for (const Case& c : cases(true)) {
    SCOPED_TRACE(c.name);
    Opened opened = open_model(c.model, options_for(c));
    ASSERT_NE(opened.session, nullptr);
    session::Session& s = *opened.session;
    const std::vector<float> wanted = prompt_logits(opened, c, c.n_logits);
    const std::vector<int32_t> tokens(s.tokens().begin(), s.tokens().end());
    ASSERT_FALSE(s.sequence().media().empty());
    const session::MediaSpan span = s.sequence().media().back();
    const std::vector<int32_t>& last = c.turns.back().tokens;
    const int32_t behind = span.first + span.n_tokens;
    if (s.rewind(behind) == behind) {
      EXPECT_EQ(s.sequence().media().back().first, span.first);
      EXPECT_EQ(all_logits(opened, last, c.n_logits), wanted);
      EXPECT_EQ(std::vector<int32_t>(s.tokens().begin(), s.tokens().end()), tokens);
    }
    EXPECT_LE(s.rewind(behind - 1), span.first);
    s.clear();
    EXPECT_TRUE(s.sequence().media().empty());
    EXPECT_EQ(prompt_logits(opened, c, c.n_logits), wanted);
  }
}

// A saved state has the pictures: it goes on with the same bits, and a fork does.
TEST(VisionText, SavedStatesAndForksGoOn) {
  for (const Case& c : cases(true)) {
    SCOPED_TRACE(c.name);
    session::EngineOptions options = options_for(c);
    options.n_sessions = 2;
    Opened opened = open_model(c.model, options);
    ASSERT_NE(opened.session, nullptr);
    Case before = c;
    const std::vector<int32_t> last = before.turns.back().tokens;
    before.turns.pop_back();
    before.turns.push_back({{last[0]}, {}});
    ASSERT_FALSE(prompt_logits(opened, before, 1).empty());
    session::Session& s = *opened.session;
    std::vector<uint8_t> state(s.sequence().state_bytes());
    ASSERT_TRUE(s.read_state(0, state).ok());
    const std::vector<int32_t> rest(last.begin() + 1, last.end());
    const std::vector<int32_t> tokens(s.tokens().begin(), s.tokens().end());
    auto fork = session::Session::create(opened.model->engine().context());
    ASSERT_TRUE(fork.ok());
    ASSERT_TRUE((*fork)->fork_from(s).ok());
    const std::vector<float> wanted = all_logits(opened, rest, rest.size());
    s.clear();
    ASSERT_TRUE(s.begin_restore(state.size()).ok());
    ASSERT_TRUE(s.write_state(state).ok());
    EXPECT_EQ(std::vector<int32_t>(s.tokens().begin(), s.tokens().end()), tokens);
    EXPECT_EQ(all_logits(opened, rest, rest.size()), wanted);
    std::swap(opened.session, *fork);
    EXPECT_EQ(all_logits(opened, rest, rest.size()), wanted);
    // Damaged lists of pictures are refused.
    const size_t head = 32 + sizeof(session::Fingerprint);
    for (size_t at = head; at < head + 200 && at < state.size(); at += 3) {
      std::vector<uint8_t> damaged = state;
      damaged[at] ^= 0x41;
      s.clear();
      Status status = (*fork)->begin_restore(damaged.size());
      if (status.ok()) status = (*fork)->write_state(damaged);
      EXPECT_FALSE(status.ok()) << at;
    }
  }
}

// A budget that shrinks during a picture whose tokens see each other ends its pass.
TEST(VisionText, ASmallerBudgetDoesNotSplitAPicture) {
  for (const Case& c : cases(true)) {
    if (c.min_batch == 1) continue;
    SCOPED_TRACE(c.name);
    session::EngineOptions options = options_for(c);
    options.min_batch = 1;
    Opened opened = open_model(c.model, options);
    ASSERT_NE(opened.session, nullptr);
    const auto picture = std::find_if(c.turns.begin(), c.turns.end(),
                                      [](const Turn& turn) { return turn.tokens.empty(); });
    ASSERT_TRUE(opened.session->begin_media(picture->media).ok());
    ASSERT_TRUE(opened.model->set_memory_budget(smallest_budget(c.model, options)).ok());
    ASSERT_LT(opened.model->engine().plan().batch.n_batch, picture->media.n_tokens);
    EXPECT_EQ(opened.model->run(*opened.session).code(), Code::kBudgetTooSmall);
    EXPECT_EQ(opened.session->position(), 0);
    EXPECT_EQ(opened.session->begin_media(picture->media).code(), Code::kBudgetTooSmall);
  }
}

TEST(VisionText, WrongInputsAreErrors) {
  const std::vector<Case> all = cases(true);
  if (all.empty()) GTEST_SKIP() << "no ../shared/fixtures/vision";
  for (const Case& c : all) {
    SCOPED_TRACE(c.name);
    Opened opened = open_model(c.model, options_for(c));
    ASSERT_NE(opened.session, nullptr);
    const auto picture = std::find_if(c.turns.begin(), c.turns.end(),
                                      [](const Turn& turn) { return turn.tokens.empty(); });
    ASSERT_NE(picture, c.turns.end());
    const auto refused = [&](auto&& change) {
      session::MediaInput media = picture->media;
      change(media);
      return opened.session->begin_media(media).code();
    };
    EXPECT_EQ(refused([](auto& m) { m.n_tokens = 0; }), Code::kInvalidArgument);
    EXPECT_EQ(refused([](auto& m) { m.rows = m.rows.first(m.rows.size() - 1); }),
              Code::kInvalidArgument);
    EXPECT_EQ(refused([](auto& m) { m.rows = {}; }), Code::kInvalidArgument);
    EXPECT_EQ(refused([](auto& m) { m.n_positions = m.n_tokens + 1; }), Code::kInvalidArgument);
    if (opened.model->engine().program().hp.rope.sections[0] == 0) {
      EXPECT_EQ(refused([](auto& m) { m.columns = m.n_tokens; }), Code::kInvalidArgument);
    }
    const int32_t media = session::kMediaToken + 5;
    EXPECT_EQ(opened.session->begin({&media, 1}).code(), Code::kMediaMissing);
    EXPECT_EQ(opened.session->position(), 0);
  }
}

// Drafts that are never right.
class WrongDrafts final : public generate::DraftSource {
 public:
  [[nodiscard]] size_t propose(std::span<const session::Token> text,
                               std::span<session::Token> out) override {
    for (session::Token& token : out) token = (text.back() + 1) % 100;
    return out.size();
  }
};

struct Continued {
  generate::Finish finish;
  std::string failure;
  std::vector<int32_t> tokens;
};

Continued continued(Opened& opened, const std::vector<int32_t>& prompt,
                    const std::vector<generate::Media>& media, generate::DraftSource* drafts) {
  generate::Options options;
  options.sampling.temperature = 0;
  options.ignore_eos = true;
  options.max_tokens = 12;
  options.media = media;
  options.drafts.source = drafts;
  auto made = generate::Generation::begin(*opened.session, prompt, options);
  if (!made.ok()) return {generate::Finish::kFailed, made.status().message(), {}};
  generate::Generation& generation = **made;
  const Status status =
      opened.model->drive([&generation](int32_t max_ops) { return generation.step(max_ops); });
  Continued out{generation.finish(), status.message(), {}};
  for (const auto& piece : generation.take_pieces()) out.tokens.push_back(piece.token);
  return out;
}

// Behind a long rewind, a KV cache in groups of positions can only rewind to the begin of a group.
// Wrong drafts would drop a picture there, whose rows are not there any more.
TEST(VisionText, WrongDraftsBehindAPictureAfterALongRewind) {
  session::EngineOptions options;
  options.n_ctx = 1000;
  options.n_threads = 1;
  options.draft_max = 4;
  options.min_batch = MadePictures::kMaxTokens;
  options.kv = *kv::parse_kv_types("q4_0");
  Opened opened = open_model(sample_model(), options), fresh = open_model(sample_model(), options);
  ASSERT_NE(opened.session, nullptr);
  MadePictures pictures(opened.model->engine().context());
  std::mt19937_64 random(1);
  std::vector<int32_t> prompt(70, 7);
  pictures.append(random, &prompt);
  prompt.insert(prompt.end(), {10, 11, 12});
  ASSERT_TRUE(pictures.see(*opened.model, *opened.session, prompt).ok());
  const std::vector<int32_t> longer(700, 8);
  ASSERT_TRUE(run(opened, opened.session->begin(longer)).ok());
  const std::vector<generate::Media> media = pictures.of(prompt);
  ASSERT_EQ(media.size(), 1u);
  const Continued expected = continued(fresh, prompt, media, nullptr);
  WrongDrafts drafts;
  const Continued found = continued(opened, prompt, media, &drafts);
  EXPECT_EQ(found.finish, generate::Finish::kLength) << found.failure;
  EXPECT_EQ(found.tokens, expected.tokens);
  EXPECT_EQ(found.tokens.size(), 12u);
}

}  // namespace
}  // namespace sluice::test
