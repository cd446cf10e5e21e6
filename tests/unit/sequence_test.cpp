// The sequence compared with a model that keeps everything. Keys and states are sums over the
// previous tokens, so after a rewind each visible entry is known to be right or stale.
#include "session/sequence.h"

#include <gtest/gtest.h>

#include <random>

#include "../extent.h"
#include "allocations.h"
#include "kv/kv_cache.h"

namespace sluice::session {
namespace {

const auto kSeeds = static_cast<uint32_t>(test::extent(10, 25));

constexpr int64_t kVocab = 50;
// A fingerprint with these adapters.
Fingerprint with_adapters(uint64_t adapters) {
  Fingerprint out;
  out[Fingerprint::kAdapters] = adapters;
  return out;
}
const Fingerprint kFingerprint = with_adapters(1);

// Tokens, and for each position the sum over those before it, which keys and states contain.
class Known {
 public:
  void resize(int32_t n) {
    tokens.resize(static_cast<size_t>(n));
    sums_.resize(static_cast<size_t>(n) + 1);
  }
  void add(Token token) {
    tokens.push_back(token);
    const uint32_t sum = sums_.back() * 31 + static_cast<uint32_t>(token) + 1;
    sums_.push_back(sum & 0xffffff);  // exact in f32
  }
  [[nodiscard]] uint32_t sum(int32_t n) const { return sums_[static_cast<size_t>(n)]; }

  std::vector<Token> tokens;

 private:
  std::vector<uint32_t> sums_ = {17};
};

struct Shape {
  bool full = true, windows = false, recurrent = false;
};

kv::KvShape shape_of(Shape s, int32_t n_ctx, int32_t n_checkpoints, int32_t capacity = 40) {
  kv::KvShape shape;
  shape.n_ctx = n_ctx;
  shape.n_checkpoints = n_checkpoints;
  if (s.full) shape.layers.push_back({2, 3, 2, 0, n_ctx, 0});
  if (s.windows) {
    shape.layers.push_back({1, 2, 4, 16, std::min(n_ctx, capacity), 0});
    shape.layers.push_back({2, 1, 1, 9, std::min(n_ctx, capacity / 2), 0});
  }
  if (s.recurrent) {
    shape.layers.push_back({0, 0, 0, 0, 0, 5});
    shape.layers.push_back({0, 0, 0, 0, 0, 2});
  }
  return shape;
}

// A sequence with its pool, and a writer of its keys and states.
class Rig {
 public:
  explicit Rig(kv::KvShape shape) {
    EXPECT_TRUE(pool_.init(std::move(shape), 1).ok());
    kv::KvCache cache;
    EXPECT_TRUE(pool_.acquire(&cache));
    EXPECT_FALSE(pool_.acquire(&cache));
    line_.emplace(cache);
  }
  Sequence& line() { return *line_; }
  [[nodiscard]] const kv::KvShape& shape() const { return line_->cache().shape(); }
  [[nodiscard]] std::span<const Token> known() const { return known_.tokens; }

  // One batch: begun, written up to `written`, and committed or abandoned.
  void batch(std::span<const Token> tokens, bool commit) {
    const int32_t n = static_cast<int32_t>(tokens.size()), from = line_->position();
    line_->append(tokens);
    line_->begin_batch(n);
    remember_more(from, tokens);
    for (int32_t p = from; p < from + n; ++p) write_keys(p);
    for (int32_t layer = 0; layer < layers(); ++layer) {
      const int64_t width = line_->cache().layer(layer).state;
      if (width == 0) continue;
      EXPECT_EQ(*line_->state_before(layer), state_at(from)) << "before " << from;
      std::fill_n(line_->state_after(layer), width, state_at(from + n));
      for (const auto& due : line_->due()) {
        EXPECT_TRUE(due.position > from && due.position <= from + n);
        std::fill_n(line_->cache().state(layer, due.copy), width, state_at(due.position));
      }
    }
    if (commit) {
      line_->commit_batch(n);
    } else {
      known_.resize(from);
    }
  }

  // Whether every layer has what a forward pass from `position` on would read.
  [[nodiscard]] bool keys_hold(int32_t position) const {
    for (int32_t layer = 0; layer < layers(); ++layer) {
      const kv::LayerShape& l = line_->cache().layer(layer);
      const int32_t first = l.window == 0 ? 0 : std::max(0, position + 1 - l.window);
      for (int32_t p = first; l.heads > 0 && p < position; ++p) {
        if (!row_holds(layer, p)) return false;
      }
    }
    return true;
  }
  [[nodiscard]] bool state_holds() const {
    for (int32_t layer = 0; layer < layers(); ++layer) {
      const float wanted = line_->position() == 0 ? 0 : state_at(line_->position());
      for (int64_t i = 0; i < line_->cache().layer(layer).state; ++i) {
        if (line_->state_before(layer)[i] != wanted) return false;
      }
    }
    return true;
  }

  void rewind(int32_t n) {
    const int32_t reachable = line_->reachable(n);
    EXPECT_TRUE(reachable >= 0 && reachable <= std::max(0, n));
    EXPECT_EQ(line_->rewind(n), reachable);
    EXPECT_EQ(line_->position(), reachable);
    known_.resize(reachable);
    expect_right();
  }
  void expect_right() const {
    EXPECT_TRUE(keys_hold(line_->position())) << line_->position();
    EXPECT_TRUE(state_holds()) << line_->position();
    EXPECT_TRUE(std::equal(known_.tokens.begin(), known_.tokens.end(), line_->tokens().begin(),
                           line_->tokens().end()));
  }
  void remember(std::span<const Token> tokens) { remember_more(0, tokens); }

 private:
  void remember_more(int32_t from, std::span<const Token> tokens) {
    known_.resize(from);
    for (const Token token : tokens) known_.add(token);
  }
  [[nodiscard]] int32_t layers() const { return static_cast<int32_t>(shape().layers.size()); }
  [[nodiscard]] float state_at(int32_t position) const {
    return position == 0 ? 0.0f : static_cast<float>(known_.sum(position));
  }
  // Visits the expected contents of a row.
  template <typename Visit>
  void visit_row(int32_t layer, int32_t position, Visit&& visit) const {
    const kv::LayerShape& l = line_->cache().layer(layer);
    const int64_t place = line_->cache().place(layer, position);
    const uint32_t sum = known_.sum(position + 1);
    for (int32_t head = 0; head < l.heads; ++head) {
      const auto value = [&](int32_t i) {
        return static_cast<uint16_t>(sum * 7 + static_cast<uint32_t>(layer * 64 + head * 16 + i));
      };
      uint16_t* keys = reinterpret_cast<uint16_t*>(line_->cache().keys(layer, head)) + place * l.dk;
      uint16_t* values =
          reinterpret_cast<uint16_t*>(line_->cache().values(layer, head)) + place * l.dv;
      for (int32_t i = 0; i < l.dk; ++i) visit(keys[i], value(i));
      for (int32_t i = 0; i < l.dv; ++i) visit(values[i], value(8 + i));
    }
  }
  void write_keys(int32_t position) {
    for (int32_t layer = 0; layer < layers(); ++layer) {
      if (line_->cache().layer(layer).heads == 0) continue;
      visit_row(layer, position, [](uint16_t& at, uint16_t value) { at = value; });
    }
  }
  [[nodiscard]] bool row_holds(int32_t layer, int32_t position) const {
    bool good = true;
    visit_row(layer, position, [&](uint16_t at, uint16_t value) { good &= at == value; });
    return good;
  }

  kv::KvPool pool_;
  std::optional<Sequence> line_;
  Known known_;
};

std::vector<Token> some_tokens(std::mt19937& random, int32_t n) {
  std::vector<Token> out(static_cast<size_t>(n));
  for (Token& t : out) t = static_cast<Token>(random() % kVocab);
  return out;
}

int32_t below(std::mt19937& random, int32_t n) {
  return static_cast<int32_t>(random() % static_cast<uint32_t>(std::max(1, n)));
}

// Commits, abandons or rewinds, a few hundred times.
void wander(Rig& rig, std::mt19937& random, int steps) {
  for (int i = 0; i < steps && !::testing::Test::HasFailure(); ++i) {
    const int32_t position = rig.line().position(), room = rig.shape().n_ctx - position;
    const uint32_t what = random() % 8;
    if (what < 6 && room > 0) {
      const int32_t most = random() % 4 == 0 ? 100 : 7;
      rig.batch(some_tokens(random, 1 + below(random, std::min(room, std::min(most, 20 + most)))),
                what < 5);
      rig.expect_right();
    } else {
      rig.rewind(random() % 3 == 0 ? below(random, position + 1) : position - below(random, 24));
    }
  }
}

constexpr Shape kShapes[] = {
    {true, false, false}, {true, true, false}, {false, false, true}, {true, true, true}};

TEST(Sequence, ARewindLeavesOnlyRightEntriesVisible) {
  for (uint32_t seed = 0; seed < kSeeds && !HasFailure(); ++seed) {
    for (const Shape shape : kShapes) {
      SCOPED_TRACE(seed);
      std::mt19937 random(seed);
      // Rings hold the longest batch beside the window, as in the plan.
      Rig rig(shape_of(shape, 300 + below(random, 300), below(random, 5), 2 * (100 + 16)));
      wander(rig, random, 150);
    }
  }
}

// Rewinds not only to a right state, but as far as the remaining keys allow.
TEST(Sequence, ARewindGoesAsFarAsTheRingsAllow) {
  for (uint32_t seed = 0; seed < kSeeds && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Rig rig(shape_of({true, true, false}, 400, 0, 2 * (100 + 16)));
    wander(rig, random, 60);
    for (int i = 0; i < 20; ++i) {
      const int32_t n = below(random, rig.line().position() + 1);
      EXPECT_EQ(rig.line().reachable(n), rig.keys_hold(n) ? n : 0) << n;
    }
  }
}

// A session that holds all of its next prompt computes nothing again, however far it once reached:
// the f16 copies of its last group are new.
TEST(Sequence, ItContinuesWhereItIs) {
  std::mt19937 random(4);
  kv::KvShape shape = shape_of({true, false, false}, 400, 0);
  shape.layers[0].v_type = kv::KvType::kQ4_0;
  shape.layers[0].recent = 2 * kernels::kKvGroup;
  Rig rig(shape);
  for (int i = 0; i < 6; ++i) {
    rig.line().append(some_tokens(random, 50));
    rig.line().begin_batch(50);
    rig.line().commit_batch(50);
  }
  const int32_t begin = 2 * kernels::kKvGroup;
  EXPECT_EQ(rig.line().rewind(begin + 7), begin);
  rig.line().begin_batch(7);
  rig.line().commit_batch(7);
  EXPECT_EQ(rig.line().rewind(begin + 7), begin + 7);
  EXPECT_EQ(rig.line().rewind(begin + 6), begin + 6);
}

// In a group it continues wherever the ring has f16 copies of what the sequence holds, computed
// again or not, and only there.
TEST(Sequence, AGroupContinuesBehindItsCopies) {
  constexpr int32_t kRecent = 2 * kernels::kKvGroup, kContext = 500;
  for (uint32_t seed = 0; seed < kSeeds && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    kv::KvShape shape = shape_of({true, false, false}, kContext, 0);
    shape.layers[0].v_type = kv::KvType::kQ4_0;
    shape.layers[0].recent = kRecent;
    Rig rig(shape);
    Sequence& line = rig.line();
    // The number of the write that each position, and each row of the ring, got last.
    std::vector<int> written(kContext), ring(kRecent);
    int writes = 0, within = 0, begins = 0;
    for (int i = 0; i < 200; ++i) {
      const int32_t from = line.position(), n = 1 + below(random, kernels::kKvGroup);
      if (random() % 3 > 0 && from + n <= kContext) {
        line.append(some_tokens(random, n));
        line.begin_batch(n);
        for (int32_t p = from; p < from + n; ++p) {
          ring[static_cast<size_t>(p % kRecent)] = written[static_cast<size_t>(p)] = ++writes;
        }
        if (random() % 4 > 0) line.commit_batch(n);
      } else {
        line.rewind(from - below(random, random() % 4 == 0 ? from + 1 : 20));
      }
      for (int32_t to = 0; to < line.position(); ++to) {
        const int32_t begin = to - to % kernels::kKvGroup;
        bool copied = true;
        for (int32_t p = begin; p < to; ++p) {
          copied &= ring[static_cast<size_t>(p % kRecent)] == written[static_cast<size_t>(p)];
        }
        EXPECT_EQ(line.reachable(to), copied ? to : begin) << to << " of " << line.position();
        ++(copied ? within : begins);
      }
    }
    EXPECT_GT(within, 0);
    EXPECT_GT(begins, 0);
  }
}

// With room for all of them, a checkpoint is at most kCheckpointEvery positions before any target.
TEST(Sequence, CheckpointsAreNear) {
  std::mt19937 random(3);
  Rig rig(shape_of({true, false, true}, 1000, 1000 / kCheckpointEvery + 1));
  while (rig.line().position() < 900) rig.batch(some_tokens(random, 1 + below(random, 100)), true);
  for (int32_t n = rig.line().position() - 1; n > 0; --n) {
    EXPECT_EQ(rig.line().reachable(n), n / kCheckpointEvery * kCheckpointEvery);
  }
  rig.rewind(500);
  EXPECT_EQ(rig.line().position(), 448);
}

// The state before the last batch needs no checkpoint: verifying draft tokens relies on it.
TEST(Sequence, TheLastBatchCanBeUndone) {
  std::mt19937 random(6);
  for (const Shape shape : {kShapes[2], kShapes[3]}) {
    Rig rig(shape_of(shape, 1000, 0, 2 * (100 + 16)));
    for (int i = 0; i < 40; ++i) {
      rig.batch(some_tokens(random, 1 + below(random, 9)), true);
      const int32_t from = rig.line().position();
      rig.batch(some_tokens(random, 2 + below(random, 9)), true);
      const int32_t to = from + below(random, rig.line().position() - from);
      rig.rewind(to);
      EXPECT_EQ(rig.line().position(), from);
      EXPECT_EQ(rig.line().reachable(from), from);
      EXPECT_EQ(rig.line().reachable(from - 1), 0);  // only once
      rig.batch(some_tokens(random, 3), true);
      rig.batch(some_tokens(random, 3), false);  // an abandoned batch has overwritten it
      if (i % 4 == 3) rig.rewind(rig.line().position() - 1);
      rig.expect_right();
    }
  }
}

#ifndef SLUICE_SANITIZED
TEST(Sequence, ABatchAllocatesNothing) {
  std::mt19937 random(4);
  Rig rig(shape_of({true, true, true}, 2000, 3, 2 * (100 + 16)));
  const std::vector<Token> tokens = some_tokens(random, 90);
  test::allocations = {.on = true};
  for (int i = 0; i < 20; ++i) {
    rig.line().append(tokens);
    rig.line().begin_batch(90);
    if (i % 3 == 0) rig.line().begin_batch(40);  // the first one was abandoned
    rig.line().commit_batch(i % 3 == 0 ? 40 : 90);
    if (i % 5 == 4) rig.line().rewind(rig.line().position() - 10);
  }
  test::allocations.on = false;
  EXPECT_EQ(test::allocations.count, 0u);
  EXPECT_GT(rig.line().position(), 0);
}
#endif

std::vector<uint8_t> saved(const Sequence& line, std::mt19937& random) {
  std::vector<uint8_t> out(line.state_bytes());
  for (size_t at = 0; at < out.size();) {
    const size_t n = std::min<size_t>(out.size() - at, 1 + random() % 700);
    EXPECT_TRUE(line.read_state(kFingerprint, at, std::span(out).subspan(at, n)).ok());
    at += n;
  }
  return out;
}

Status restore(Sequence& line, std::span<const uint8_t> state, std::mt19937& random,
               const Fingerprint& fingerprint = kFingerprint) {
  SLUICE_RETURN_IF_ERROR(line.begin_restore(state.size()));
  for (size_t at = 0; at < state.size();) {
    EXPECT_EQ(line.position(), 0) << "before it is complete";
    const size_t n = std::min<size_t>(state.size() - at, 1 + random() % 500);
    SLUICE_RETURN_IF_ERROR(line.write_state(fingerprint, kVocab, state.subspan(at, n)));
    at += n;
  }
  return {};
}

TEST(Sequence, ASavedStateIsRestoredIntoAnotherShape) {
  for (uint32_t seed = 0; seed < kSeeds && !HasFailure(); ++seed) {
    for (const Shape shape : kShapes) {
      SCOPED_TRACE(seed);
      std::mt19937 random(seed);
      Rig from(shape_of(shape, 350, below(random, 5), 2 * (100 + 16)));
      wander(from, random, 60);
      const std::vector<uint8_t> state = saved(from.line(), random);

      const int32_t position = from.line().position();
      Rig to(shape_of(shape, std::max(position, 1) + below(random, 300), below(random, 7),
                      2 * (100 + 16) + below(random, 100)));
      wander(to, random, 10);
      ASSERT_TRUE(restore(to.line(), state, random).ok());
      ASSERT_EQ(to.line().position(), position);
      to.remember(from.known());
      to.expect_right();
      wander(to, random, 60);

      if (position > 1) {
        Rig small(shape_of(shape, position - 1, 1, 2 * (100 + 16)));
        const Status status = restore(small.line(), state, random);
        EXPECT_EQ(status.code(), Code::kContextFull);
        EXPECT_EQ(small.line().position(), 0);
      }
    }
  }
}

TEST(Sequence, DamagedStatesAreErrorsAndLeaveItEmpty) {
  std::mt19937 random(5);
  Rig from(shape_of({true, true, true}, 200, 2, 2 * (100 + 16)));
  for (int i = 0; i < 3; ++i) from.batch(some_tokens(random, 50), true);
  const std::vector<uint8_t> state = saved(from.line(), random);
  Rig to(shape_of({true, true, true}, 200, 2, 2 * (100 + 16)));
  const auto expect_empty = [&] {
    EXPECT_EQ(to.line().position(), 0);
    EXPECT_TRUE(to.state_holds());
    to.remember({});
  };
  for (size_t n = 0; n < state.size(); ++n) {
    to.batch(some_tokens(random, 3), true);
    EXPECT_EQ(restore(to.line(), std::span(state).first(n), random).code(), Code::kCorrupt) << n;
    expect_empty();
  }
  for (int i = 0; i < 4000; ++i) {
    std::vector<uint8_t> flipped = state;
    const size_t bit = i < 1000 ? static_cast<size_t>(i) : random() % (8 * state.size());
    flipped[bit / 8] = static_cast<uint8_t>(flipped[bit / 8] ^ (1u << bit % 8));
    EXPECT_FALSE(restore(to.line(), flipped, random).ok()) << bit;
    expect_empty();
  }
  EXPECT_EQ(restore(to.line(), state, random, with_adapters(2)).code(), Code::kCorrupt);
  expect_empty();
  ASSERT_TRUE(to.line().begin_restore(state.size()).ok());
  ASSERT_TRUE(to.line().write_state(kFingerprint, kVocab, std::span(state).first(900)).ok());
  to.line().end_restore();  // abandoned half way
  expect_empty();
  to.batch(some_tokens(random, 70), true);
  to.expect_right();
  EXPECT_TRUE(restore(to.line(), state, random).ok());
  to.remember(from.known());
  to.expect_right();
}

// A KV cache on the GPU has no memory. The saved state of such a sequence has the caller's bytes in
// its place, and what memory has is restored.
TEST(Sequence, StatesOfAKvCacheOnTheGpu) {
  std::mt19937 random(7);
  const kv::KvShape shape = shape_of({true, true, true}, 70, 2);
  Rig rig(shape);
  rig.batch(some_tokens(random, 66), true);
  const std::vector<uint8_t> given = saved(rig.line(), random);
  // What a restored sequence with memory saves.
  Rig twin(shape);
  ASSERT_TRUE(restore(twin.line(), given, random).ok());
  const std::vector<uint8_t> state = saved(twin.line(), random);
  kv::KvShape apart = shape;
  apart.on_gpu = true;
  EXPECT_EQ(apart.bytes(), shape_of({false, false, true}, 70, 2).bytes());
  kv::KvPool pool;
  ASSERT_TRUE(pool.init(apart, 2).ok());
  kv::KvCache caches[2];
  for (kv::KvCache& cache : caches) ASSERT_TRUE(pool.acquire(&cache));
  EXPECT_EQ(caches[1].index(), 1u);
  EXPECT_EQ(caches[1].keys(0, 1), nullptr);
  EXPECT_EQ(caches[1].part(1, 0, kv::KvPart::kValues), nullptr);
  Sequence line(caches[1]);
  ASSERT_TRUE(restore(line, given, random).ok());
  EXPECT_EQ(line.position(), 66);
  EXPECT_TRUE(std::equal(line.tokens().begin(), line.tokens().end(), rig.line().tokens().begin()));
  for (int32_t layer = 3; layer < 5; ++layer) {
    EXPECT_EQ(*line.state_before(layer), *rig.line().state_before(layer));
  }
  ASSERT_EQ(line.state_bytes(), state.size());
  std::vector<uint8_t> again = state;
  constexpr size_t kHash = sizeof(uint64_t);
  std::fill(again.end() - kHash, again.end(), uint8_t{0});
  ASSERT_TRUE(line.read_state(kFingerprint, 0, again).ok());
  EXPECT_TRUE(std::equal(state.begin(), state.end() - kHash, again.begin()));
  std::vector<uint8_t> blank(state.size());
  ASSERT_TRUE(line.read_state(kFingerprint, 0, blank).ok());
  EXPECT_FALSE(std::equal(state.begin(), state.end() - kHash, blank.begin()));
}

TEST(KvPool, BeginsAgainWithTheSameSequences) {
  kv::KvShape shape = shape_of({true, false, false}, 70, 0);
  shape.on_gpu = true;
  kv::KvPool pool;
  ASSERT_TRUE(pool.init(shape, 2).ok());
  kv::KvCache one, other;
  ASSERT_TRUE(pool.acquire(&one));
  shape.on_gpu = false;
  ASSERT_TRUE(pool.init(shape, 2).ok());
  ASSERT_TRUE(pool.acquire(&other));
  EXPECT_FALSE(pool.acquire(&other));
  EXPECT_NE(one.keys(0, 0), nullptr);
  EXPECT_EQ(other.keys(0, 0) - one.keys(0, 0), static_cast<ptrdiff_t>(shape.bytes()));
}

TEST(KvPool, SequencesShareNothing) {
  kv::KvPool pool;
  ASSERT_TRUE(pool.init(shape_of({true, true, true}, 70, 2), 3).ok());
  kv::KvCache caches[3];
  for (size_t i = 0; i < 3; ++i) ASSERT_TRUE(pool.acquire(&caches[i]));
  const kv::KvShape& shape = caches[0].shape();
  const auto visit = [&](size_t i, auto&& rows) {
    for (size_t at = 0; at < shape.layers.size(); ++at) {
      const int32_t layer = static_cast<int32_t>(at);
      const kv::LayerShape& l = shape.layers[at];
      for (int32_t h = 0; h < l.heads; ++h) {
        rows(reinterpret_cast<uint16_t*>(caches[i].keys(layer, h)), l.capacity * l.dk,
             i * 100 + at * 10 + 1);
        rows(reinterpret_cast<uint16_t*>(caches[i].values(layer, h)), l.capacity * l.dv,
             i * 100 + at * 10 + 2);
      }
      for (int32_t copy = 0; l.state > 0 && copy < 2 + shape.n_checkpoints; ++copy) {
        rows(reinterpret_cast<uint16_t*>(caches[i].state(layer, copy)),
             2 * static_cast<int32_t>(l.state), i * 100 + at * 10 + 3 + static_cast<size_t>(copy));
      }
    }
  };
  for (size_t i = 0; i < 3; ++i) {
    visit(i, [](uint16_t* at, int32_t n, size_t v) { std::fill_n(at, n, uint16_t(v)); });
  }
  for (size_t i = 0; i < 3; ++i) {
    visit(i, [](const uint16_t* at, int32_t n, size_t v) {
      EXPECT_EQ(std::count(at, at + n, uint16_t(v)), n);
    });
  }
  kv::KvCache again;
  EXPECT_FALSE(pool.acquire(&again));
  pool.release(caches[1]);
  ASSERT_TRUE(pool.acquire(&again));
  EXPECT_EQ(again.keys(0, 0), caches[1].keys(0, 0));
}

}  // namespace
}  // namespace sluice::session
