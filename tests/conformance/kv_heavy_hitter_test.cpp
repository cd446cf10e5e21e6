// KV cache eviction with heavy hitters: the cache keeps what was attended to most. Results equal a
// full cache until something leaves the ring, and nearly so while everything that left is kept, on
// models without positions. No bit depends on budget, threads, batch length, rewinding, saving or
// restoring. Unsupported models are errors that name the reason. Where a text's beginning matters,
// perplexity is better than with a window of the same bytes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>

#include "../sanitized.h"
#include "fixtures_util.h"
#include "one_layer_util.h"

namespace sluice::test {
namespace {

using Tokens = std::vector<int32_t>;

constexpr int32_t kSize = 256, kRing = 192, kBlock = 32;

// Type of the ring, and how many positions leave it at a time.
struct Kept {
  const char* type;
  int32_t block;
};
constexpr Kept kKept[] = {
    {"f16", kBlock}, {"q8_0", kBlock}, {"q4_0", kernels::kKvGroup}, {"q4_0,q2", kernels::kKvGroup}};

session::EngineOptions heavy_options(int32_t sinks = kv::kDefaultSinks, const char* type = "f16") {
  session::EngineOptions options;
  options.kv = *kv::parse_kv_types(type);
  options.n_threads = 2;
  options.kv_policy.heavy_hitter = true;
  options.kv_policy.sinks = sinks;
  options.kv_policy.capacity = kSize;
  options.n_ctx = 4000;
  return options;
}

session::EngineOptions full_options(const char* type = "f16") {
  session::EngineOptions options;
  options.kv = *kv::parse_kv_types(type);
  options.n_threads = 2;
  options.n_ctx = kSize;
  return options;
}

Tokens random_tokens(size_t n) {
  Tokens out;
  uint32_t state = 7;
  while (out.size() < n) {
    state = state * 1664525 + 1013904223;
    out.push_back(static_cast<int32_t>((state >> 8) % 90));
  }
  return out;
}

Tokens first(const Tokens& text, size_t n) {
  return {text.begin(), text.begin() + static_cast<ptrdiff_t>(n)};
}

std::string model(const char* folder, const char* name) {
  return fixture_path(folder, std::string(name) + ".gguf");
}

// A latent cache has one vector for key and value, so both must have the same type.
bool of_two_types(const Kept& kept) {
  return std::strchr(kept.type, ',') != nullptr;
}

// Nearly equal: entries are rounded to f16, and with 4-bit keys the queries of the whole text to
// int8.
TEST(KvHeavyTest, EvictedPositionsThatAreKeptAreReadUnchanged) {
  size_t tried = 0;
  for (const char* name : {"jamba", "kimi-linear"}) {
    const std::string path = model("families", name);
    if (path.empty()) continue;
    ++tried;
    for (const Kept& kept : kKept) {
      session::EngineOptions heavy = heavy_options(kv::kDefaultSinks, kept.type);
      session::EngineOptions full = full_options(kept.type);
      const auto header = native::read_header(path, {});
      ASSERT_TRUE(header.ok()) << name;
      if (const auto found = session::inspect(header->header, full); !found.ok()) {
        EXPECT_TRUE(of_two_types(kept)) << name << kept.type << found.status().message();
        continue;
      }
      heavy.logits_rows = full.logits_rows = 20;
      Opened ours = open_model(path, heavy), theirs = open_model(path, full);
      ASSERT_NE(ours.session, nullptr) << name;
      const Tokens text = random_tokens(kSize);
      const std::vector<float> a = all_logits(ours, text, 20), b = all_logits(theirs, text, 20);
      ASSERT_EQ(a.size(), b.size());
      const size_t same = a.size() / kSize * kRing;
      EXPECT_EQ(std::memcmp(a.data(), b.data(), same * sizeof(float)), 0) << name << kept.type;
      const double apart = nmse(&a[same], &b[same], a.size() - same);
      std::printf("%-12s %-8s NMSE %.2g\n", name, kept.type, apart);
      EXPECT_GT(apart, 0) << name << " never used what it keeps";
      const bool four_bits = std::string_view(kept.type).starts_with("q4_0");
      EXPECT_LT(apart, four_bits                    ? 5e-5
                       : kept.type == kKept[0].type ? 1e-9
                                                    : 1e-6)
          << name << kept.type;
    }
  }
  if (tried == 0) GTEST_SKIP() << "../shared/fixtures/families is absent";
}

// After so many equal tokens that every kept entry is one of them, a text sees the same at any
// position. On one layer, where keys do not depend on earlier tokens.
TEST(KvHeavyTest, PositionsCountFromTheRing) {
  size_t tried = 0;
  for (const char* name : {"llama-gqa", "llama-rope-yarn", "phi3-longrope-partial", "qwen3"}) {
    const std::string whole = model("arch", name);
    if (whole.empty()) continue;
    ++tried;
    const std::string one = one_layer(whole);
    session::EngineOptions options = full_options();
    options.n_ctx = 4000;
    Opened ours = open_model(one, heavy_options()), theirs = open_model(one, options);
    ASSERT_NE(ours.session, nullptr) << name;
    const auto after = [](Opened& opened, size_t equal) {
      Tokens text(equal, 5);
      for (const int32_t token : random_tokens(40)) text.push_back(token);
      return logits_after(opened, text);
    };
    const auto moved = [&](Opened& opened) {
      const std::vector<float> here = after(opened, 700);
      const std::vector<float> there = after(opened, 700 + 4 * kBlock);
      return nmse(here.data(), there.data(), here.size());
    };
    const double stays = moved(ours), moves = moved(theirs);
    std::printf("%-22s NMSE %.2g, compared with the whole text %.2g\n", name, stays, moves);
    EXPECT_LT(stays, 1e-5) << name;
    EXPECT_LT(10 * stays, moves) << name;
    // Keys rotated to another position are rounded differently, by as much as the type's own error.
    for (const char* type : {"q8_0", "q4_0"}) {
      Opened rounded = open_model(one, heavy_options(kv::kDefaultSinks, type));
      const std::vector<float> exact = after(ours, 700), near = after(rounded, 700);
      const double wrong = nmse(near.data(), exact.data(), exact.size());
      std::printf("%-22s %s moved %.2g, wrong by %.2g\n", name, type, moved(rounded), wrong);
      EXPECT_LT(moved(rounded), 10 * wrong) << name << type;
    }
    std::remove(one.c_str());
  }
  EXPECT_GE(tried, 3u);  // in tests/data
}

TEST(KvHeavyTest, NoBitDependsOnAnythingElse) {
  const std::pair<const char*, const char*> all[] = {
      {"arch", "llama-gqa"},       {"arch", "gemma2"},      {"arch", "phi3-longrope-partial"},
      {"families", "kimi-linear"}, {"families", "gpt-oss"}, {"families", "qwen35"}};
  size_t tried = 0;
  for (const auto& [folder, name] : all) {
    const std::string path = model(folder, name);
    if (path.empty()) continue;
    ++tried;
    const Tokens text = random_tokens(kSanitized ? 300 : 520);
    const auto logits = [&](const session::EngineOptions& with, size_t step) {
      Opened opened = open_model(path, with);
      return opened.session == nullptr ? std::vector<float>() : all_logits(opened, text, step);
    };
    for (const Kept& kept : kKept) {
      session::EngineOptions options = heavy_options(kv::kDefaultSinks, kept.type);
      const auto header = native::read_header(path, {});
      ASSERT_TRUE(header.ok()) << name;
      if (const auto found = session::inspect(header->header, options); !found.ok()) {
        EXPECT_TRUE(of_two_types(kept)) << name << kept.type << found.status().message();
        continue;
      }
      options.logits_rows = 20;
      const std::vector<float> expected = logits(options, 20);  // crosses the ends of blocks
      ASSERT_FALSE(expected.empty()) << name;
      options.n_threads = 1;
      EXPECT_EQ(logits(options, 7), expected) << name << kept.type << ": 7 a pass";
      options.logits_rows = 1;
      options.memory_budget = smallest_budget(path, options);
      EXPECT_EQ(logits(options, 1), expected) << name << kept.type << ": 1 a pass";
    }
  }
  EXPECT_GE(tried, 3u);  // in tests/data
}

// Around the positions where a block is evicted, and far back.
class KvHeavyTypesTest : public testing::TestWithParam<Kept> {};
INSTANTIATE_TEST_SUITE_P(Types, KvHeavyTypesTest, testing::ValuesIn(kKept),
                         [](const auto& one) { return "Type" + std::to_string(one.index); });

TEST_P(KvHeavyTypesTest, RewindingAndRestoringChangeNoBit) {
  const std::string path = model("arch", "llama-gqa");
  ASSERT_FALSE(path.empty());
  const Kept kept = GetParam();
  const session::EngineOptions options = heavy_options(kv::kDefaultSinks, kept.type);
  Opened fresh = open_model(path, options), opened = open_model(path, options);
  ASSERT_NE(opened.session, nullptr);
  const Tokens whole = random_tokens(500);
  for (const size_t length : {100, 191, 192, 193, 225, 319, 320, 321, 350}) {
    Tokens text = first(whole, length);
    opened.session->clear();
    logits_after(opened, text);
    std::vector<uint8_t> saved(opened.session->sequence().state_bytes());
    ASSERT_TRUE(opened.session->read_state(0, saved).ok());
    ASSERT_TRUE(fresh.session->begin_restore(saved.size()).ok());
    ASSERT_TRUE(fresh.session->write_state(saved).ok()) << length;
    EXPECT_EQ(fresh.session->position(), static_cast<int32_t>(length));
    const Tokens more = first(whole, length + 40);
    const std::vector<float> on = logits_after(opened, more);
    EXPECT_EQ(logits_after(fresh, more), on) << length;
    for (const size_t back : {1, 9, 60, 90}) {
      text = first(more, more.size() - back);
      text.push_back(3);
      const std::vector<float> ours = logits_after(opened, text);
      fresh.session->clear();
      EXPECT_EQ(ours, logits_after(fresh, text)) << length << " " << back;
    }
  }
  // A rewind within a block recomputes nothing.
  logits_after(opened, first(whole, 380));
  const int32_t block = kRing + (380 - kRing) / kept.block * kept.block;
  EXPECT_EQ(opened.session->rewind(block + 3), block + 3);
  EXPECT_EQ(opened.session->rewind(block - 1), 0);
  // A state with impossible contents is an error.
  logits_after(opened, first(whole, 200));
  std::vector<uint8_t> saved(opened.session->sequence().state_bytes());
  ASSERT_TRUE(opened.session->read_state(0, saved).ok());
  for (const uint32_t gone : {0u, 2 * static_cast<uint32_t>(kept.block), 100u, 160u}) {
    std::vector<uint8_t> other = saved;
    constexpr size_t kHead = 32 + sizeof(session::Fingerprint);  // StateHeader
    std::memcpy(&other[kHead], &gone, sizeof gone);              // in the first layer
    ASSERT_TRUE(fresh.session->begin_restore(other.size()).ok());
    EXPECT_EQ(fresh.session->write_state(other).code(), Code::kCorrupt) << gone;
  }
  session::EngineOptions window = options;
  window.kv_policy.heavy_hitter = false;
  window.kv_policy.window = true;
  Opened foreign = open_model(path, window);
  ASSERT_TRUE(foreign.session->begin_restore(saved.size()).ok());
  EXPECT_EQ(foreign.session->write_state(saved).code(), Code::kCorrupt);
}

// A pass abandoned at any operation, also after a block was evicted from some layers.
TEST_P(KvHeavyTypesTest, AbandonedPassesChangeNoBit) {
  const std::string path = model("arch", "llama-gqa");
  ASSERT_FALSE(path.empty());
  const session::EngineOptions options = heavy_options(kv::kDefaultSinks, GetParam().type);
  Opened fresh = open_model(path, options), opened = open_model(path, options);
  ASSERT_NE(opened.session, nullptr);
  const Tokens text = random_tokens(330);
  const std::vector<float> expected = logits_after(fresh, text);
  logits_after(opened, first(text, 320));
  for (int32_t ops = 1; ops < 60; ops += 7) {
    ASSERT_TRUE(opened.session->begin({&text[320], 10}).ok());
    while (opened.session->step(ops) == session::Step::kBlocked) {
      ASSERT_TRUE(opened.model->wait().ok());
    }
    opened.session->cancel();
    if (opened.session->position() != 320) break;  // the whole pass was computed
    std::vector<uint8_t> saved(opened.session->sequence().state_bytes());
    ASSERT_TRUE(opened.session->read_state(0, saved).ok());
    ASSERT_TRUE(fresh.session->begin_restore(saved.size()).ok());
    ASSERT_TRUE(fresh.session->write_state(saved).ok()) << ops;
    EXPECT_EQ(logits_after(fresh, text), expected) << ops;
  }
  EXPECT_EQ(logits_after(opened, text), expected);
}

TEST(KvHeavyTest, ErrorsNameWhatIsUnsupported) {
  const auto refused = [](const std::string& path, session::EngineOptions options,
                          const char* why) {
    if (path.empty()) return;  // without ../shared
    const auto header = native::read_header(path, {});
    ASSERT_TRUE(header.ok());
    const auto found = session::inspect(header->header, options);
    EXPECT_EQ(found.status().code(), Code::kInvalidArgument) << path;
    EXPECT_NE(found.status().message().find(why), std::string::npos) << found.status().message();
  };
  refused(model("arch", "gpt2"), heavy_options(), "position embeddings");
  refused(model("families", "bloom"), heavy_options(), "ALiBi");
  const std::string llama = model("arch", "llama-gqa");
  session::EngineOptions options = heavy_options();
  options.kv = *kv::parse_kv_types("q2");
  refused(llama, options, "single keys");
  options.kv = *kv::parse_kv_types("q4_0");
  options.kv_policy.capacity = 3 * kernels::kKvGroup - 1;
  refused(llama, options, "192 to");
  refused(llama, heavy_options(100), "KV sinks");
  options.kv_policy.capacity = 1024;
  options.kv = *kv::parse_kv_types("auto");
  const auto header = native::read_header(sample_model(), {});
  ASSERT_TRUE(header.ok());
  options.memory_budget = 8 << 20;
  const auto found = session::inspect(header->header, options);
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_NE(found->plan.kv.types.k, kv::KvType::kQ2);
}

// --- texts whose beginning matters ---------------------------------------------------------------

struct Tale {
  const char *name, *kind, *thing, *colour, *adult;
};
constexpr Tale kTales[] = {
    {"Lucy", "girl", "scarf", "red", "Grandma"},  {"Tim", "boy", "ball", "blue", "Dad"},
    {"Amy", "girl", "key", "pink", "Grandpa"},    {"Leo", "boy", "kite", "green", "Mom"},
    {"Sara", "girl", "box", "yellow", "Grandma"}, {"Ben", "boy", "hat", "red", "Grandpa"},
    {"Mia", "girl", "cup", "blue", "Dad"},        {"Max", "boy", "boat", "green", "Mom"},
};

// The end asks about the beginning; the story between them is about others.
std::string story(const Tale& t) {
  const std::string name = t.name;
  return "<|user|>Please tell me a story.<|end|><|assistant|>" + name + " was a little " + t.kind +
         " with a " + t.colour + " " + t.thing + ". " + name + " lived in a small house with " +
         t.adult +
         ".\nOne morning, a frog met a monkey by the pond. The monkey was thin and hungry. \"Are "
         "you hungry?\" asked the frog. \"Yes, very,\" said the monkey. The frog ran home and came "
         "back with some bananas. \"You are kind,\" said the monkey.\nIn winter, the frog got lost "
         "in the forest. The frog did not know what to do. Then the monkey came. The monkey showed "
         "the way home. \"You helped me, and now I helped you,\" said the monkey. The frog learned "
         "that kindness comes back. After that, the frog and the monkey played together every "
         "day.\nOn Sunday, a turtle came to the frog. \"Come with me,\" said the turtle. \"No, I "
         "cannot go down the slide,\" said the frog. \"I was afraid too,\" said the turtle. \"Sit "
         "down and count to three.\" The frog was very brave. Slowly, the frog tried it. It was "
         "fun! \"I did it!\" shouted the frog. That day, the frog went down the slide and was not "
         "afraid. And they all lived happily.<|end|>";
}

struct Asked {
  std::string question, before, answer;  // `before` is not scored
};

std::vector<Asked> questions(const Tale& t) {
  const std::string name = t.name, thing = t.thing;
  return {
      {"What color was the " + thing + "?", "The " + thing + " was", std::string(" ") + t.colour},
      {"Who did " + name + " live with?", name + " lived with", std::string(" ") + t.adult}};
}

// Perplexity of the answers only, and their number of tokens.
double forgotten(const std::string& path, const session::EngineOptions& options, size_t tales) {
  Opened opened = open_model(path, options);
  if (opened.session == nullptr) return 0;
  const tokenizer::Tokenizer& vocabulary = opened.model->engine().tokenizer();
  double nats = 0, n = 0;
  for (size_t i = 0; i < tales; ++i) {
    for (const Asked& q : questions(kTales[i])) {
      const std::string text =
          story(kTales[i]) + "<|user|>" + q.question + "<|end|><|assistant|>" + q.before;
      Tokens tokens = vocabulary.encode(text, {true, true});
      const std::vector<float> logits = logits_after(opened, tokens);
      const Tokens answer = vocabulary.encode(q.answer, {false, false});
      const float top = *std::max_element(logits.begin(), logits.end());
      double sum = 0;
      for (const float x : logits) sum += std::exp(static_cast<double>(x - top));
      nats += std::log(sum) - static_cast<double>(logits[static_cast<size_t>(answer[0])] - top);
      n += 1;
    }
  }
  return std::exp(nats / n);
}

TEST(KvHeavyTest, TheBeginningIsRememberedBetterThanByAWindow) {
  const std::string path = sample_model();
  const size_t tales = kSanitized ? 1 : std::size(kTales);
  session::EngineOptions full, heavy, window;
  full.n_ctx = 512;
  heavy.kv_policy.heavy_hitter = true;
  heavy.kv_policy.capacity = 128;
  window.kv_policy.window = true;
  const auto bytes = [&](const session::EngineOptions& options) {
    const auto header = native::read_header(path, {});
    return session::inspect(header->header, options)->plan.bytes.kv;
  };
  // A window with as many positions as fit in the heavy-hitter cache's bytes, sums and queries
  // included.
  for (window.kv_policy.capacity = 128; bytes(window) < bytes(heavy);)
    window.kv_policy.capacity += 32;
  session::EngineOptions small = heavy;
  small.kv_policy.capacity = 192;
  small.kv = *kv::parse_kv_types("q4_0");
  const double all = forgotten(path, full, tales), ours = forgotten(path, heavy, tales),
               theirs = forgotten(path, window, tales), four = forgotten(path, small, tales);
  std::printf(
      "answers from the beginning: perplexity %.2f with all of the text, %.2f heavy in %llu bytes, "
      "%.2f window in %llu, %.2f heavy of q4_0 in %llu\n",
      all, ours, static_cast<unsigned long long>(bytes(heavy)), theirs,
      static_cast<unsigned long long>(bytes(window)), four,
      static_cast<unsigned long long>(bytes(small)));
  EXPECT_LT(ours, theirs);
  EXPECT_LT(four, theirs);
}

}  // namespace
}  // namespace sluice::test
