// The cache of streamed token embedding rows: used if the plan has room for it. Logits are
// bit-identical with and without it, and its statistics add up.
#include "session/embedding_row_cache.h"

#include <gtest/gtest.h>

#include "fixtures_util.h"

namespace sluice::test {
namespace {

using session::EmbeddingRowCache;

TEST(EmbeddingRowCache, KeepsRecentlyUsedRows) {
  constexpr uint64_t kRows = 16, kBytes = 24;
  std::vector<uint64_t> memory(EmbeddingRowCache::bytes(kRows, kBytes) / 8);
  EmbeddingRowCache cache;
  EXPECT_EQ(cache.find(1), nullptr);  // no entries at all
  cache.place(reinterpret_cast<uint8_t*>(memory.data()), kRows, kBytes);
  const auto row = [](int32_t token) {
    return std::vector<uint8_t>(kBytes, static_cast<uint8_t>(token));
  };
  for (int32_t token = 0; token < 16; ++token) cache.keep(token, row(token).data());
  for (int32_t token = 0; token < 16; ++token) {
    const uint8_t* found = cache.find(token);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(std::vector<uint8_t>(found, found + kBytes), row(token));
  }
  EXPECT_EQ(cache.found(), 16u);
  // Even tokens share a set of eight: 2 is evicted, the least recently used.
  for (const int32_t token : {0, 4, 6, 8, 10, 12, 14}) EXPECT_NE(cache.find(token), nullptr);
  cache.keep(16, row(16).data());
  EXPECT_EQ(cache.find(2), nullptr);
  EXPECT_NE(cache.find(16), nullptr);
  EXPECT_NE(cache.find(3), nullptr);
  cache.keep(16, row(99).data());  // an existing entry stays
  EXPECT_EQ(*cache.find(16), 16);
  cache.place(reinterpret_cast<uint8_t*>(memory.data()), kRows, kBytes);
  EXPECT_EQ(cache.find(16), nullptr);
}

struct Streamed {
  std::vector<float> logits;
  uint64_t found = 0, read = 0, kept = 0;
};
Streamed run(const std::string& path, const std::vector<int32_t>& tokens, uint64_t budget) {
  session::EngineOptions options;
  options.n_ctx = 64;
  options.logits_rows = options.n_batch = 4;
  options.n_threads = 2;
  options.memory_budget = budget;
  Opened opened = open_model(path, options);
  Streamed out;
  if (opened.session == nullptr) return out;
  session::Engine& engine = opened.model->engine();
  EXPECT_LE(engine.plan().total(), budget == 0 ? UINT64_MAX : budget);
  const auto step = static_cast<size_t>(engine.plan().batch.n_batch);
  out.logits = all_logits(opened, tokens, step);
  const EmbeddingRowCache& rows = engine.working().embedding_row_cache(0);
  const uint64_t before = rows.read();
  opened.session->clear();
  EXPECT_EQ(all_logits(opened, tokens, step), out.logits);
  out.found = rows.found();
  out.read = rows.read();
  out.kept = engine.plan().buffers.cached_rows[0];
  if (out.kept >= 64) {
    EXPECT_EQ(rows.read(), before);  // everything is cached the second time
  }
  return out;
}

TEST(EmbeddingRowCache, GivesTheSameLogitsAndCounts) {
  const std::vector<int32_t> tokens = {1, 17, 29, 45, 17, 8, 12, 17, 5, 9, 29, 41, 17, 17, 8, 1};
  const std::string untied = own_folder("families") + "/llama-biases.gguf";
  for (const std::string& path : {sample_model(), untied}) {
    const Streamed whole = run(path, tokens, 0);
    ASSERT_FALSE(whole.logits.empty());
    EXPECT_EQ(whole.kept, 0u);
    session::EngineOptions options;
    options.n_ctx = 64;
    options.logits_rows = options.n_batch = 4;
    options.n_threads = 2;
    const uint64_t least = smallest_budget(path, options);
    uint64_t found = 0;
    for (const uint64_t more : {uint64_t{0}, least / 16, least / 8, least / 4, least / 2, least}) {
      const Streamed some = run(path, tokens, least + more);
      EXPECT_EQ(some.logits, whole.logits) << path << " " << more;
      if (some.kept == 0) {
        EXPECT_EQ(some.found, 0u);
      }
      found += some.found;
    }
    EXPECT_GT(found, 0u) << path;
  }
}

// The budget changes while a session is open: entries are laid out again.
TEST(EmbeddingRowCache, SurvivesABudgetChange) {
  const std::vector<int32_t> tokens = {1, 17, 29, 45, 17, 8, 12, 17};
  session::EngineOptions options;
  options.n_ctx = 64;
  options.n_batch = 4;
  const uint64_t least = smallest_budget(sample_model(), options);
  options.memory_budget = least + least / 2;
  Opened opened = open_model(sample_model(), options);
  ASSERT_NE(opened.session, nullptr);
  const std::vector<float> before = logits_after(opened, tokens);
  for (const uint64_t budget : {least, least + least / 4, 64 * least, least + least / 2}) {
    ASSERT_TRUE(opened.model->set_memory_budget(budget).ok());
    opened.session->clear();
    EXPECT_EQ(logits_after(opened, tokens), before) << budget;
  }
}

}  // namespace
}  // namespace sluice::test
