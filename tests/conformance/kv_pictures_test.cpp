// Pictures in a KV cache that evicts (kv/kv_policy.h). A query sees what it would see if the text
// consisted of its first and last tokens, pictures included; this is compared with just that text
// on a one-layer model, where keys do not depend on earlier tokens, and with a model whose own
// windows hide the same tokens. Nothing changes until something is evicted. No bit depends on
// budget, threads, batch length, saving or restoring. What cannot be evicted is an error that
// names it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <deque>
#include <random>

#include "../sanitized.h"
#include "fixtures_util.h"
#include "metadata_change_util.h"

namespace sluice::test {
namespace {

using Tokens = std::vector<int32_t>;

constexpr int32_t kCapacity = 256, kSinks = 4;
constexpr int32_t kVisible = kCapacity - kv::KvPolicy::spare(kCapacity);

// A picture, or a run of text.
struct Item {
  Tokens text;
  session::MediaInput media;
  [[nodiscard]] size_t size() const {
    return text.empty() ? static_cast<size_t>(media.n_tokens) : text.size();
  }
};
using Items = std::vector<Item>;

Item some_text(size_t n, uint32_t seed) {
  Item out;
  std::mt19937 random(seed);
  while (out.text.size() < n) out.text.push_back(static_cast<int32_t>(random() % 90));
  return out;
}

// Owns the rows of its pictures.
class Pictures {
 public:
  explicit Pictures(const Opened& opened) : n_embd_(opened.model->engine().program().hp.n_embd) {}

  // Rows and columns on a grid; without `grid` positions count up as those of text.
  Item make(int32_t rows, int32_t columns, bool grid, bool non_causal = false) {
    const int32_t n = rows * columns;
    std::mt19937 random(static_cast<uint32_t>(++made_));
    std::vector<float>& values = rows_.emplace_back();
    for (int64_t i = 0; i < n * n_embd_; ++i) {
      values.push_back(static_cast<float>(random() % 2001) / 1000 - 1);
    }
    Item out;
    out.media.rows = values;
    out.media.n_tokens = n;
    out.media.n_positions = grid ? std::max(rows, columns) : n;
    out.media.columns = grid ? columns : 0;
    out.media.non_causal = non_causal;
    out.media.hash = made_;
    return out;
  }

 private:
  int64_t n_embd_;
  uint64_t made_ = 0;
  std::deque<std::vector<float>> rows_;
};

size_t size_of(const Items& items) {
  size_t n = 0;
  for (const Item& item : items) n += item.size();
  return n;
}

// The last n tokens. A picture that this cuts must have no grid.
Items last_of(const Items& items, size_t n) {
  size_t skipped = size_of(items) - n;
  Items out;
  for (Item item : items) {
    const size_t cut = std::min(skipped, item.size());
    skipped -= cut;
    if (cut == item.size()) continue;
    if (item.text.empty()) {
      EXPECT_TRUE(cut == 0 || item.media.columns == 0);
      const size_t width = item.media.rows.size() / item.size();
      item.media.rows = item.media.rows.subspan(cut * width);
      item.media.n_tokens -= static_cast<int32_t>(cut);
      item.media.n_positions -= static_cast<int32_t>(cut);
    } else {
      item.text.erase(item.text.begin(), item.text.begin() + static_cast<ptrdiff_t>(cut));
    }
    out.push_back(std::move(item));
  }
  return out;
}

// Sinks, and the last `n` tokens behind them.
Items seen_of(const Items& items, size_t n) {
  Item sinks;
  sinks.text.assign(items[0].text.begin(), items[0].text.begin() + kSinks);
  Items out = last_of(items, n);
  out.insert(out.begin(), sinks);
  return out;
}

Status run_item(Opened& opened, const Item& item) {
  session::Session& s = *opened.session;
  SLUICE_RETURN_IF_ERROR(item.text.empty() ? s.begin_media(item.media) : s.begin(item.text));
  return opened.model->run(s);
}

// The logits behind the items, which end with text; the session continues.
std::vector<float> after_items(Opened& opened, std::span<const Item> items) {
  for (const Item& item : items) {
    const Status status = run_item(opened, item);
    EXPECT_TRUE(status.ok()) << status.message();
    if (!status.ok()) return {};
  }
  const auto logits = opened.session->logits();
  return {logits.begin(), logits.end()};
}

std::vector<float> logits_of(Opened& opened, const Items& items) {
  if (opened.session == nullptr) return {};
  opened.session->clear();
  return after_items(opened, items);
}

double error_between(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  return a.empty() || a.size() != b.size() ? HUGE_VAL : nmse(a.data(), b.data(), a.size());
}

session::EngineOptions evicting(bool heavy, int32_t sinks = kSinks, const char* type = "f16") {
  session::EngineOptions options;
  options.n_threads = 2;
  options.kv = *kv::parse_kv_types(type);
  options.kv_policy.window = !heavy;
  options.kv_policy.heavy_hitter = heavy;
  options.kv_policy.sinks = sinks;
  options.kv_policy.capacity = kCapacity;
  options.n_ctx = 8192;
  options.min_batch = 24;
  return options;
}

session::EngineOptions keeping_all(int32_t n_ctx, const char* type = "f16") {
  session::EngineOptions options = evicting(false, 0, type);
  options.kv_policy = {};
  options.n_ctx = n_ctx;
  return options;
}

struct Number {
  std::string key;
  uint32_t value;
};

// The model with other numbers in its metadata.
Opened open_with(const std::string& path, const session::EngineOptions& options,
                 const std::vector<Number>& changes) {
  Opened out;
  auto header = native::read_header(path, {});
  EXPECT_TRUE(header.ok());
  if (!header.ok()) return out;
  const std::string arch(header->header.get_string("general.architecture").value_or(""));
  std::deque<std::deque<std::string>> own;
  for (const Number& change : changes) {
    own.push_back(
        change_values(&header->header, {arch + change.key}, [&](std::string* bytes, gguf::Value*) {
          ASSERT_EQ(bytes->size(), sizeof change.value);
          std::memcpy(bytes->data(), &change.value, sizeof change.value);
        }));
    EXPECT_EQ(own.back().size(), 1u) << change.key;
  }
  auto model = native::Model::open(std::move(*header), options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  if (!model.ok()) return out;
  out.model = std::move(*model);
  auto session = session::Session::create(out.model->engine().context());
  if (session.ok()) out.session = std::move(*session);
  return out;
}

Opened first_layer(const std::string& path, const session::EngineOptions& options) {
  return open_with(path, options, {{".block_count", 1}});
}

// Plain positions; M-RoPE; M-RoPE whose sections take turns.
std::vector<std::string> seeing_models() {
  std::vector<std::string> out = {fixture_path("arch", "llama-gqa.gguf")};
  for (const char* name : {"qwen2vl.gguf", "qwen3vl.gguf"}) {
    const std::string path = fixture_path("families", name);
    if (!path.empty()) out.push_back(path);
  }
  return out;
}

// Windows, and pictures whose tokens see each other in all layers. "" without ../shared.
std::string gemma() {
  return shared_folder("vision").empty() ? "" : shared_folder("vision") + "/gemma3.gguf";
}

bool grids(const Opened& opened) {
  return opened.model->engine().program().hp.rope.sections[0] > 0;
}

TEST(KvPictures, NothingChangesBeforeAnEviction) {
  for (const std::string& path : seeing_models()) {
    for (const bool heavy : {false, true}) {
      SCOPED_TRACE(path + (heavy ? " heavy-hitter" : " window"));
      Opened ours = open_model(path, evicting(heavy)),
             theirs = open_model(path, keeping_all(kCapacity));
      ASSERT_NE(ours.session, nullptr);
      Pictures pictures(ours);
      const Items items = {some_text(40, 1), pictures.make(4, 6, grids(ours)), some_text(30, 2),
                           pictures.make(5, 4, false), some_text(60, 3)};
      EXPECT_EQ(logits_of(ours, items), logits_of(theirs, items));
    }
  }
}

TEST(KvPictures, EvictedPositionsHaveNoEffect) {
  for (const std::string& path : seeing_models()) {
    Opened ours = first_layer(path, evicting(false)),
           seen = first_layer(path, keeping_all(kCapacity)),
           whole = first_layer(path, keeping_all(1024));
    ASSERT_NE(ours.session, nullptr);
    Pictures pictures(ours);
    const bool grid = grids(ours);
    const Items begin = {some_text(34, 1),  pictures.make(4, 6, grid),
                         some_text(150, 2), pictures.make(4, 6, false),
                         some_text(60, 3),  pictures.make(5, 4, grid)};
    double worst = 0, apart = 0;
    // The ring begins in text behind a picture; in the middle of one; behind that; behind all.
    for (const size_t more : {40, 122, 129, 160, 400}) {
      Items items = begin;
      items.push_back(some_text(more, 4));
      const std::vector<float> found = logits_of(ours, items);
      const std::vector<float> wanted = logits_of(seen, seen_of(items, kVisible - kSinks));
      worst = std::max(worst, error_between(found, wanted));
      apart = std::max(apart, error_between(logits_of(whole, items), wanted));
    }
    std::printf("NMSE %.2g, compared with the whole text %.2g\n", worst, apart);
    EXPECT_LT(worst, 1e-5) << path;
    EXPECT_LT(10 * worst, apart) << path;
  }
}

// Kept entries all stand right before the ring, so where a picture was is forgotten. Its rows are
// equal: which of them stay makes no difference.
TEST(KvPictures, HeavyHittersCountFromTheRing) {
  for (const std::string& path : seeing_models()) {
    Opened ours = first_layer(path, evicting(true, 0));
    ASSERT_NE(ours.session, nullptr);
    if (!grids(ours)) continue;
    Pictures pictures(ours);
    std::vector<float> rows;
    const std::span<const float> row = pictures.make(1, 1, false).media.rows;
    for (int i = 0; i < 24; ++i) rows.insert(rows.end(), row.begin(), row.end());
    const auto behind = [&](bool grid, size_t n) {
      Item picture = pictures.make(4, 6, grid), equal;
      picture.media.rows = rows;
      equal.text.assign(n, 5);
      return logits_of(ours, {picture, equal, some_text(40, 7)});
    };
    const double gone = error_between(behind(true, 900), behind(false, 900));
    const double there = error_between(behind(true, 100), behind(false, 100));
    std::printf("NMSE %.2g behind an evicted picture, %.2g behind one that is seen\n", gone, there);
    EXPECT_LT(gone, 1e-5) << path;
    EXPECT_LT(10 * gone, there) << path;
  }
}

// A model whose own windows are as long, without sinks: it hides the same tokens, in all layers.
// The policy cuts pictures, and those whose tokens see each other keep the window of each token.
TEST(KvPictures, AWindowEqualsThatOfTheModel) {
  if (gemma().empty()) GTEST_SKIP() << "no ../shared/fixtures/vision";
  const std::vector<Number> layers = {{".block_count", 5}};  // those with a window
  std::vector<Number> same = layers, longer = layers;
  same.push_back({".attention.sliding_window", kVisible});
  longer.push_back({".attention.sliding_window", 4000});
  for (const char* type : {"f16", "q4_0"}) {
    Opened theirs = open_with(gemma(), keeping_all(1200, type), same);
    Opened ours = open_with(gemma(), evicting(false, 0, type), longer);
    ASSERT_NE(ours.session, nullptr);
    ASSERT_NE(theirs.session, nullptr);
    Pictures pictures(ours);
    Items items;
    for (uint32_t i = 0; i < 14; ++i) {
      items.push_back(some_text(20 + i * 3, i));
      items.push_back(pictures.make(4, 6, false, i % 3 != 0));
      items.push_back(some_text(1 + i, i));
      const double apart = error_between(logits_of(ours, items), logits_of(theirs, items));
      // Sums in another order, which 4 bits may round otherwise.
      EXPECT_LT(apart, type[0] == 'f' ? 1e-9 : 1e-4) << type << ": " << size_of(items) << " tokens";
    }
    EXPECT_GT(size_of(items), size_t{3} * kVisible);
    Opened whole = open_with(gemma(), keeping_all(1200, type), longer);
    const double unforgotten = error_between(logits_of(whole, items), logits_of(ours, items));
    std::printf("%s: NMSE %.2g without the window\n", type, unforgotten);
    EXPECT_GT(unforgotten, 1e-3) << type;
  }
}

struct Evicting {
  bool heavy;
  const char* type;
};

TEST(KvPictures, NoBitDependsOnAnythingElse) {
  std::vector<std::string> all = seeing_models();
  if (!gemma().empty()) all.push_back(gemma());
  for (const std::string& path : all) {
    for (const Evicting policy :
         {Evicting{false, "f16"}, Evicting{true, "f16"}, Evicting{false, "q4_0"},
          Evicting{true, "q8_0"}, Evicting{false, "q2"}}) {
      if (kSanitized && policy.type[0] == 'q') continue;
      SCOPED_TRACE(path + " " + policy.type + (policy.heavy ? " heavy-hitter" : " window"));
      session::EngineOptions options = evicting(policy.heavy, kSinks, policy.type);
      Opened one = open_model(path, options);
      ASSERT_NE(one.session, nullptr);
      Pictures pictures(one);
      Items items;
      for (uint32_t i = 0; i < 8; ++i) {
        items.push_back(some_text(30 + i * 11 % 50, i));
        items.push_back(pictures.make(4, 6, grids(one) && i % 2 == 0, !policy.heavy && i % 4 > 1));
      }
      items.push_back(some_text(30, 9));
      const std::vector<float> wanted = logits_of(one, items);
      options.n_threads = 1;
      options.n_batch = 24;
      options.memory_budget = smallest_budget(path, options);
      Opened small = open_model(path, options);
      EXPECT_EQ(logits_of(small, items), wanted) << "the smallest budget";
      // Saved in the middle, and continued by another engine.
      const std::span<const Item> rest = std::span(items).subspan(items.size() / 2);
      one.session->clear();
      after_items(one, std::span(items).first(items.size() / 2));
      std::vector<uint8_t> state(one.session->sequence().state_bytes());
      ASSERT_TRUE(one.session->read_state(0, state).ok());
      ASSERT_TRUE(small.session->begin_restore(state.size()).ok());
      ASSERT_TRUE(small.session->write_state(state).ok());
      EXPECT_EQ(after_items(small, rest), wanted) << "restored";
      // What was computed beyond the end, and rewound.
      const std::vector<float> again = logits_of(one, items);
      const int32_t end = one.session->position();
      ASSERT_TRUE(run_item(one, some_text(9, 3)).ok());
      if (one.session->rewind(end) == end) {
        EXPECT_EQ(after_items(one, Items{some_text(20, 4)}),
                  after_items(small, Items{some_text(20, 4)}))
            << "rewound";
      }
      EXPECT_EQ(again, wanted);
    }
  }
}

// A sequence that must begin again behind an evicted picture asks for it.
TEST(KvPictures, RewindingBehindWhatWasEvictedNeedsThePictures) {
  Opened ours = open_model(seeing_models()[0], evicting(false));
  ASSERT_NE(ours.session, nullptr);
  Pictures pictures(ours);
  const Items items = {some_text(40, 1), pictures.make(4, 6, false), some_text(600, 2)};
  ASSERT_FALSE(logits_of(ours, items).empty());
  session::Session& s = *ours.session;
  Tokens known(s.tokens().begin(), s.tokens().begin() + 300);
  known.push_back(1);
  EXPECT_EQ(s.sync(known).status().code(), Code::kMediaMissing);
  EXPECT_EQ(s.position(), static_cast<int32_t>(size_of(items)));
  EXPECT_EQ(s.keep(known), 0);
  Tokens end(items[2].text.begin(), items[2].text.begin() + 300 - 64);
  end.push_back(1);
  Opened fresh = open_model(seeing_models()[0], evicting(false));
  Item last;
  last.text = end;
  EXPECT_EQ(after_items(ours, Items{items[0], items[1], last}),
            logits_of(fresh, {items[0], items[1], last}));
}

// Opens the model; the message of the error.
std::string refusal(const session::EngineOptions& options) {
  const auto header = native::read_header(gemma(), {});
  EXPECT_TRUE(header.ok());
  const auto found = session::inspect(header->header, options);
  EXPECT_EQ(found.status().code(), Code::kInvalidArgument);
  return found.status().message();
}

TEST(KvPictures, TokensThatSeeEachOtherNeedAWindowOfTheirSize) {
  if (gemma().empty()) GTEST_SKIP() << "no ../shared/fixtures/vision";
  constexpr int32_t kTokens = 100, kLeast = kSinks + 2 * kTokens;
  session::EngineOptions options = evicting(false);
  options.min_batch = kTokens;
  options.kv_policy.capacity = kLeast - 1;
  const std::string message = refusal(options);
  EXPECT_NE(message.find("pictures of 100 tokens that see each other: use " +
                         std::to_string(kLeast) + " to"),
            std::string::npos)
      << message;
  options.kv_policy.capacity = kLeast;
  // All layers see all, so that what is evicted is that of the policy.
  const std::vector<Number> changes = {{".block_count", 1}, {".attention.sliding_window", 4000}};
  Opened ours = open_with(gemma(), options, changes);
  ASSERT_NE(ours.session, nullptr);
  const session::MemoryPlan& plan = ours.model->engine().plan();
  EXPECT_EQ(plan.batch.n_batch, kTokens);
  const auto seen = static_cast<size_t>(plan.kv.layout.window);
  EXPECT_GE(seen, size_t{kTokens});
  session::EngineOptions plain = keeping_all(plan.kv.layout.positions);
  plain.min_batch = kTokens;
  Opened theirs = open_with(gemma(), plain, changes);
  Pictures pictures(ours);
  for (const size_t more : {10, 40, 120}) {
    const Items items = {some_text(150, 1), pictures.make(10, 10, false, true), some_text(more, 2)};
    EXPECT_LT(error_between(logits_of(ours, items), logits_of(theirs, seen_of(items, seen))), 1e-5);
  }
  // Larger ones than the engine was loaded for.
  EXPECT_EQ(run_item(ours, pictures.make(1, 101, false, true)).code(), Code::kBudgetTooSmall);
  const Status status = run_item(ours, pictures.make(1, 200, false, true));
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("use at least 404"), std::string::npos) << status.message();
  EXPECT_TRUE(run_item(ours, pictures.make(1, 200, false)).ok());
  // Blocks would leave in the middle of a picture.
  Opened heavy = open_model(gemma(), evicting(true));
  ASSERT_NE(heavy.session, nullptr);
  const Status blocks = run_item(heavy, pictures.make(1, 5, false, true));
  EXPECT_EQ(blocks.code(), Code::kInvalidArgument);
  EXPECT_NE(blocks.message().find("heavy-hitter"), std::string::npos) << blocks.message();
  EXPECT_TRUE(run_item(heavy, pictures.make(1, 5, false)).ok());
}

// Pictures that make batches longer than text alone has leave the rings room for these.
TEST(KvPictures, RingsHoldTheLongestBatch) {
  if (gemma().empty()) GTEST_SKIP() << "no ../shared/fixtures/vision";
  for (const char* type : {"f16", "q4_0"}) {
    session::EngineOptions options = keeping_all(2600, type);
    Opened theirs = open_model(gemma(), options);
    options.min_batch = 1120;
    Opened ours = open_model(gemma(), options);
    ASSERT_NE(ours.session, nullptr);
    ASSERT_EQ(ours.model->engine().plan().batch.n_batch, 1120);
    const Items items = {some_text(2400, 1)};
    EXPECT_EQ(logits_of(ours, items), logits_of(theirs, items)) << type;
  }
}

}  // namespace
}  // namespace sluice::test
