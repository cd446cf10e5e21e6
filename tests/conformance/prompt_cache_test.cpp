// The prompt cache on disk. A restored prompt is bit-identical to a recomputed one. An entry with
// any wrong byte is rejected with an error code and the prompt is computed. The directory stays
// within its size limit.
#include "native/prompt_cache.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "fixtures_util.h"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;
using Tokens = std::vector<int32_t>;

constexpr uint64_t kRoom = 64 << 20;

Tokens text_of(size_t n, int32_t seed) {
  Tokens out;
  for (size_t i = 0; i < n; ++i) out.push_back(static_cast<int32_t>(i * 7 + i / 5) % 90 + seed % 3);
  if (n > 0) out[0] = seed % 90;
  return out;
}

class PromptCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = fixture_folder("arch") + "/llama-gqa.gguf";
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    directory_ = testing::TempDir() + "sluice-prompts-" + test->name();
    fs::remove_all(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }

  Opened model(const char* type = "f16") {
    session::EngineOptions options;
    options.n_threads = 1;
    options.n_ctx = 400;
    options.kv = *kv::parse_kv_types(type);
    return open_model(path_, options);
  }
  native::PromptCache cache(Opened& opened, uint64_t most = kRoom) {
    auto made = native::PromptCache::open(directory_, most, *opened.model);
    EXPECT_TRUE(made.ok()) << made.status().message();
    return std::move(*made);
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> out;
    for (const auto& entry : fs::directory_iterator(directory_)) out.push_back(entry.path());
    return out;
  }

  std::string path_, directory_;
};

TEST_F(PromptCacheTest, RestoredPromptsAreBitIdentical) {
  for (const char* type : {"f16", "q4_0"}) {
    const Tokens prompt = text_of(150, 1);
    {
      Opened first = model(type);
      logits_after(first, prompt);
      ASSERT_TRUE(cache(first).save(*first.session).ok());
      ASSERT_TRUE(cache(first).save(*first.session).ok());  // exists already
    }
    Opened again = model(type), fresh = model(type);
    auto prompts = cache(again);
    Tokens longer(prompt.begin(), prompt.begin() + 120);
    for (const int32_t token : text_of(60, 2)) longer.push_back(token);
    const Result<int32_t> found = prompts.restore(*again.session, longer);
    ASSERT_TRUE(found.ok()) << found.status().message();
    EXPECT_EQ(*found, 120);
    EXPECT_EQ(again.session->position(), 150);
    auto synced = again.session->sync(longer);
    ASSERT_TRUE(synced.ok());
    EXPECT_GT(*synced, 60);
    again.session->cancel();
    EXPECT_EQ(logits_after(again, longer), logits_after(fresh, longer)) << type;
    // Nothing is read that the session already has, or that shares almost nothing with the prompt.
    EXPECT_EQ(*prompts.restore(*again.session, longer), 0);
    EXPECT_EQ(*prompts.restore(*again.session, text_of(50, 2)), 0);
  }
  EXPECT_EQ(files().size(), 2u);  // one per KV cache type; the other's is ignored
}

TEST_F(PromptCacheTest, AnEntryWithAnyWrongByteIsRejected) {
  Opened opened = model(), fresh = model();
  const Tokens prompt = text_of(40, 1);
  const std::vector<float> expected = logits_after(fresh, prompt);
  logits_after(opened, prompt);
  auto prompts = cache(opened);
  ASSERT_TRUE(prompts.save(*opened.session).ok());
  ASSERT_EQ(files().size(), 1u);
  const fs::path file = files()[0];
  std::ifstream in(file, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  in.close();
  const size_t n = whole.size();
  for (size_t i = 0; i < 60; ++i) {
    std::string bytes = whole;
    if (i % 2 == 0) {
      bytes.resize(i < 40 ? i * 10 : n - i);
    } else {
      const size_t at = i < 40 ? i * 9 : (n - 1) * i / 60;
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << i % 8));
    }
    std::ofstream(file, std::ios::binary) << bytes;
    opened.session->clear();
    const Result<int32_t> found = prompts.restore(*opened.session, prompt);
    if (found.ok()) {
      EXPECT_EQ(*found, 0) << i;
    } else {
      EXPECT_EQ(found.status().code(), Code::kCorrupt) << i;
    }
    EXPECT_EQ(opened.session->position(), 0) << i;
    EXPECT_FALSE(fs::exists(file) && bytes.size() != n) << i << ": truncated but not deleted";
    if (i % 10 == 0) {
      EXPECT_EQ(logits_after(opened, prompt), expected) << i;
    }
    fs::remove(file);
  }
}

TEST_F(PromptCacheTest, AnotherModelOfTheSameSizeHasOtherEntries) {
  const Tokens prompt = text_of(150, 1);
  {
    Opened first = model();
    logits_after(first, prompt);
    ASSERT_TRUE(cache(first).save(*first.session).ok());
  }
  std::ifstream in(path_, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  const std::string key = "llama.rope.freq_base";
  const size_t rope = bytes.find(key) + key.size() + 4;
  // The last weight; the rotation's base; nothing.
  for (const size_t at : {bytes.size() - 1, rope + 2, size_t{0}}) {
    std::string other = bytes;
    if (at > 0) other[at] = static_cast<char>(other[at] ^ 1);
    path_ = testing::TempDir() + "sluice-prompts-other.gguf";
    std::ofstream(path_, std::ios::binary) << other;
    Opened opened = model();
    const Result<int32_t> found = cache(opened).restore(*opened.session, prompt);
    fs::remove(path_);
    ASSERT_TRUE(found.ok()) << found.status().message();
    EXPECT_EQ(*found, at == 0 ? 150 : 0) << at;
  }
}

TEST_F(PromptCacheTest, TheDirectoryKeepsTheLatestWithinItsLimit) {
  Opened opened = model();
  auto prompts = cache(opened);
  logits_after(opened, text_of(100, 1));
  ASSERT_TRUE(prompts.save(*opened.session).ok());
  const uint64_t each = fs::file_size(files()[0]);
  // An entry replaces those that are a prefix of it.
  Tokens longer = text_of(100, 1);
  longer.push_back(5);
  logits_after(opened, longer);
  ASSERT_TRUE(prompts.save(*opened.session).ok());
  EXPECT_EQ(files().size(), 1u);
  auto narrow = cache(opened, 3 * each + each / 2);
  for (int32_t seed = 2; seed < 8; ++seed) {
    for (const fs::path& file : files()) {  // file system clocks are coarse
      fs::last_write_time(file, fs::last_write_time(file) - std::chrono::seconds(10));
    }
    logits_after(opened, text_of(100, seed));
    ASSERT_TRUE(narrow.save(*opened.session).ok());
    uint64_t bytes = 0;
    for (const fs::path& file : files()) bytes += fs::file_size(file);
    EXPECT_LE(bytes, 3 * each + each / 2);
  }
  EXPECT_EQ(files().size(), 3u);
  for (const int32_t seed : {7, 6, 5, 4}) {
    opened.session->clear();
    EXPECT_EQ(*narrow.restore(*opened.session, text_of(100, seed)), seed > 4 ? 100 : 0) << seed;
  }
  EXPECT_EQ(native::PromptCache::open(directory_, 0, *opened.model).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(native::PromptCache::open(path_ + "/x", kRoom, *opened.model).status().code(),
            Code::kIo);
}

}  // namespace
}  // namespace sluice::test
