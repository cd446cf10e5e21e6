// The chunk store behind the HTTP source: each byte is downloaded once, downloads resume, data is
// verified, entries are shared, and a full disk disables the cache. The test server counts bytes
// sent.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "http_cache_fixture.h"

namespace sluice::io {
namespace {

using test::HttpReply;
using test::HttpRequest;

TEST_F(HttpCacheTest, DownloadsOnce) {
  EXPECT_EQ(sent([&] {
              open();
              expect_all();
            }),
            kLongFile + kProbe);
  EXPECT_EQ(source_->bytes_from_cache(), 0u);
  EXPECT_EQ(sent([&] {
              open();
              expect_all();
            }),
            kProbe);
  EXPECT_EQ(source_->bytes_from_cache(), kLongFile);
  EXPECT_EQ(source_->bytes_fetched(), kProbe);
}

TEST_F(HttpCacheTest, ResumesAtTheMissingChunks) {
  open();
  expect_read(kChunk - 10, 20);  // chunks 0 and 1
  EXPECT_EQ(sent([&] {
              open();
              expect_all();
            }),
            kLongFile - 2 * kChunk + kProbe);
  EXPECT_EQ(sent([&] { expect_all(); }), 0u);
}

TEST_F(HttpCacheTest, CutInsideAChunkCostsAtMostThatChunk) {
  open();
  expect_read(0, 100);
  cut_after_ = 1000;  // the connection dies inside chunk 1, on every attempt
  EXPECT_EQ(read(kChunk, 100).code(), Code::kNetwork);
  cut_after_ = SIZE_MAX;
  EXPECT_EQ(sent([&] {
              open();
              expect_all();
            }),
            kLongFile - kChunk + kProbe);
}

TEST_F(HttpCacheTest, KilledProcessLosesAtMostOneChunk) {
  open();
  source_.reset();
  for (const uint64_t written : {uint64_t{0}, uint64_t{1}, kChunk - 1, kChunk}) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {  // writes part of a chunk, then is killed
      auto store = ChunkStore::open(options_.cache_dir, server_->url(), etag_, kLongFile);
      if (!store.ok()) ::_exit(2);
      ChunkStore::Writer writer(store->get(), 1);
      const std::string wrong(static_cast<size_t>(written), 'w');
      const bool kept = writer.append({reinterpret_cast<const uint8_t*>(wrong.data()), written});
      (void)::raise(kept ? SIGKILL : SIGABRT);
    }
    int state = 0;
    ASSERT_EQ(::waitpid(child, &state, 0), child);
    ASSERT_TRUE(WIFSIGNALED(state) && WTERMSIG(state) == SIGKILL);
    auto store = ChunkStore::open(options_.cache_dir, server_->url(), etag_, kLongFile);
    ASSERT_TRUE(store.ok());
    EXPECT_FALSE((*store)->has(1));
  }
  open();
  expect_all();
}

TEST_F(HttpCacheTest, OnlyDamagedChunksAreFetchedAgain) {
  open();
  expect_all();
  source_.reset();
  const uint64_t kPlaces[] = {0, kChunk - 1, kChunk, kChunk + 123'456, 2 * kChunk, kLongFile - 1};
  for (const uint64_t at : kPlaces) {
    flip(entry(".data"), at);
    const uint64_t chunk = at / kChunk;
    EXPECT_EQ(sent([&] {
                open();
                expect_all();
              }),
              std::min(kChunk, kLongFile - chunk * kChunk) + kProbe)
        << at;
    source_.reset();
  }
  EXPECT_EQ(sent([&] {
              open();
              expect_all();
            }),
            kProbe);
}

TEST_F(HttpCacheTest, DamagedMetaIsRebuilt) {
  open();
  expect_all();
  source_.reset();
  const auto size = std::filesystem::file_size(entry(".meta"));
  for (uint64_t at = 0; at < size; at += at < 200 ? 17 : at < 16'000 ? 5000 : 7) {
    flip(entry(".meta"), at);
    open();
    expect_all();
    source_.reset();
  }
  for (uint64_t length = 0; length < size; length += length < 40 ? 7 : 3001) {
    std::filesystem::resize_file(entry(".meta"), length);
    open();
    expect_all();
    source_.reset();
  }
}

TEST_F(HttpCacheTest, TruncatedDataIsRefetched) {
  open();
  expect_all();
  source_.reset();
  std::filesystem::resize_file(entry(".data"), kChunk + 5);
  EXPECT_EQ(sent([&] {
              open();
              expect_all();
            }),
            kLongFile - kChunk + kProbe);
}

TEST_F(HttpCacheTest, DataMayShrinkWhileInUse) {
  open();
  expect_all();
  std::filesystem::resize_file(entry(".data"), 5);
  expect_all();
}

TEST_F(HttpCacheTest, ReplacedFileIsNeverMixed) {
  open();
  expect_read(0, 100);
  file_ = test::patterned(kLongFile + 1).substr(1);  // same length, other bytes
  etag_ = "\"v2\"";
  EXPECT_EQ(read(kChunk, 100).code(), Code::kSourceChanged);
  EXPECT_EQ(sent([&] {
              open();
              expect_all();
            }),
            kLongFile + kProbe + 16);  // the new file's beginning identifies it
  int entries = 0;
  for (const auto& e : std::filesystem::directory_iterator(options_.cache_dir)) {
    entries += e.path().extension() == ".data";
  }
  EXPECT_EQ(entries, 1);  // the old version is deleted
}

TEST_F(HttpCacheTest, AReplacedFileWithoutVersionIsDetectedByItsBeginning) {
  etag_ = "";
  open();
  expect_all();
  EXPECT_LT(sent([&] {
              open();
              expect_all();
            }),
            kChunk);
  file_ = test::patterned(kLongFile + 1).substr(1);
  open();
  expect_all();
}

TEST_F(HttpCacheTest, TwoSourcesShareOneEntry) {
  const auto use = [&] {
    auto source = open_source(server_->url(), options_);
    ASSERT_TRUE(source.ok());
    std::vector<uint8_t> out(kLongFile);
    ASSERT_TRUE((*source)->read(0, out).ok());
    EXPECT_TRUE(std::equal(out.begin(), out.end(), reinterpret_cast<const uint8_t*>(file_.data())));
  };
  EXPECT_EQ(sent([&] {
              std::thread a(use);
              std::thread b(use);
              std::thread c(use);
              a.join();
              b.join();
              c.join();
            }),
            kLongFile + 3 * kProbe);
}

TEST_F(HttpCacheTest, ReadersOfOneSourceShareFetches) {
  EXPECT_EQ(sent([&] {
              open();
              std::vector<std::thread> threads;
              for (uint64_t t = 0; t < 6; t++) {
                threads.emplace_back([&, t] {
                  for (uint64_t i = 0; i < 5; i++) {
                    const uint64_t n = kLongFile / 30;
                    expect_read((i * 6 + t) * n, n);
                  }
                });
              }
              for (auto& t : threads) t.join();
              expect_all();
            }),
            kLongFile + kProbe);
}

TEST_F(HttpCacheTest, SoakOfFaultsAndFlipsLeavesACompleteStore) {
  options_.http.attempts = options_.http.open_attempts = 60;
  options_.http.stall_timeout_ms = 400;  // generous for a slow machine, so few stalls
  int stalls = 4;
  std::mutex mutex;
  std::mt19937 rng(11);
  fault_ = [&](HttpReply* reply) {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto kind = rng() % 6;
    if (kind == 0) *reply = HttpReply{.status = 503, .headers = {}, .body = "busy"};
    if (kind == 1) reply->cut_after = rng() % (reply->body.size() + 1);
    if (kind == 2 && stalls-- > 0) reply->stall_after = rng() % (reply->body.size() + 1);
  };
  faulty_ = true;
  for (int round = 0; round < 10; round++) {
    open();
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < 3; t++) {
      threads.emplace_back([&, seed = static_cast<uint32_t>(round) * 3 + t] {
        std::mt19937 mine(seed);
        for (int i = 0; i < 8; i++) {
          const uint64_t length = mine() % 300'000 + 1;
          expect_read(mine() % (kLongFile - length), length);
        }
      });
    }
    for (auto& t : threads) t.join();
    source_.reset();
    flip(entry(".data"), static_cast<uint64_t>(round) * 919'191 % kLongFile);
  }
  open();
  expect_all();
  faulty_ = false;
  EXPECT_EQ(sent([&] {
              open();
              expect_all();
            }),
            kProbe);
}

// Limits the size of files that this process may write, like a full disk.
class WriteLimit {
 public:
  explicit WriteLimit(uint64_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    old_handler_ = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~WriteLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, old_handler_);
  }
  WriteLimit(const WriteLimit&) = delete;
  WriteLimit& operator=(const WriteLimit&) = delete;

 private:
  rlimit before_{};
  void (*old_handler_)(int) = nullptr;
};

TEST_F(HttpCacheTest, FullDiskMeansNetworkOnlyWithOneWarning) {
  open();
  {
    const WriteLimit limit(kChunk + 1000);
    expect_all();
    expect_all();
  }
  EXPECT_EQ(warnings_.size(), 1u);
  open();
  expect_all();
  EXPECT_EQ(source_->bytes_fetched(), kLongFile - kChunk + kProbe);  // chunk 0 was kept
}

TEST_F(HttpCacheTest, FullDiskFromTheBeginning) {
  const WriteLimit limit(100);
  open();
  expect_all();
  EXPECT_EQ(warnings_.size(), 1u);
}

TEST_F(HttpCacheTest, UnusableDirectory) {
  std::ofstream(dir_ / "file") << "x";
  options_.cache_dir = (dir_ / "file" / "cache").string();
  open();
  expect_all();
  EXPECT_EQ(warnings_.size(), 1u);
}

TEST_F(HttpCacheTest, AServerWithoutRangesIsDownloadedOnce) {
  ranges_ = false;
  open();
  expect_read(kChunk, 100);
  expect_all();
  EXPECT_EQ(source_->bytes_fetched(), kLongFile);
  open();
  expect_all();
  EXPECT_EQ(source_->bytes_fetched(), 0u);
  flip(entry(".data"), kChunk + 5);
  open();
  expect_all();
}

TEST_F(HttpCacheTest, ServerWithoutRangesAndFullDisk) {
  ranges_ = false;
  open();
  const WriteLimit limit(kChunk + 1000);
  expect_read(0, 1000);
  EXPECT_EQ(read(kChunk, 1000).code(), Code::kIo);
}

TEST_F(HttpCacheTest, SignaturesAndPasswordsAreNotStored) {
  const auto stored = [&](const char* query) {
    auto source = open_source(server_->url(std::string("/m.gguf") + query), options_);
    ASSERT_TRUE(source.ok()) << source.status().message();
    std::vector<uint8_t> all(kLongFile);
    ASSERT_TRUE((*source)->read(0, all).ok());
  };
  stored("?X-Amz-Signature=secret1&v=2");
  EXPECT_EQ(sent([&] { stored("?v=2&X-Amz-Signature=secret2#x"); }), kProbe);
  const auto entries = list_cache(options_.cache_dir);
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].url, server_->url("/m.gguf?v=2"));
  EXPECT_TRUE(*delete_cached(options_.cache_dir, entries[0].url));
}

TEST_F(HttpCacheTest, FilesOfADirectoryAreOneEntry) {
  const auto fill = [&](const char* name, uint64_t size, bool all = true) {
    auto store =
        ChunkStore::open(options_.cache_dir, std::string("http://h/dir/") + name, "", size);
    ASSERT_TRUE(store.ok());
    const std::vector<uint8_t> bytes(size, 7);
    ChunkStore::Writer writer(store->get(), 0);
    ASSERT_TRUE(!all || (writer.append(bytes) && writer.commit().ok()));
  };
  fill("config.json", 10);
  fill("tokenizer.json", 20);
  fill("model-00001-of-00002.safetensors", 300);
  const auto directory = [&] {
    for (const CacheEntry& entry : list_cache(options_.cache_dir)) {
      if (entry.url == "http://h/dir/") return entry;
    }
    return CacheEntry{};
  };
  EXPECT_FALSE(directory().complete);  // another shard is missing
  fill("model-00002-of-00002.safetensors", 400);
  fill("other.gguf", 50);
  EXPECT_TRUE(directory().complete);
  EXPECT_EQ(directory().size, 730u);
  EXPECT_EQ(directory().stored_bytes, 730u);
  EXPECT_EQ(list_cache(options_.cache_dir).size(), 2u);
  {
    auto held = ChunkStore::open(options_.cache_dir,
                                 "http://h/dir/model-00002-of-00002.safetensors", "", 400);
    ASSERT_TRUE(held.ok());
    EXPECT_EQ(delete_cached(options_.cache_dir, "http://h/dir/").status().code(),
              Code::kCacheLocked);
    EXPECT_EQ(directory().bases.size(), 4u);
  }
  EXPECT_TRUE(*delete_cached(options_.cache_dir, "http://h/dir/"));
  EXPECT_FALSE(*delete_cached(options_.cache_dir, "http://h/dir/"));
  EXPECT_EQ(list_cache(options_.cache_dir).size(), 1u);
  fill("config.json", 10);
  fill("model.safetensors", 300);
  EXPECT_TRUE(*delete_cached(options_.cache_dir, "http://h/dir/config.json"));
  fill("m-00001-of-00002.gguf", 10);
  fill("m-00002-of-00002.gguf", 10);
  EXPECT_TRUE(*delete_cached(options_.cache_dir, "http://h/dir/m-00001-of-00002.gguf"));
  EXPECT_EQ(list_cache(options_.cache_dir).size(), 1u);
}

TEST_F(HttpCacheTest, ListsDeletesAndEvicts) {
  open();
  expect_read(0, 1000);
  const std::string url = server_->url();
  std::vector<CacheEntry> entries = list_cache(options_.cache_dir);
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].url, url);
  EXPECT_EQ(entries[0].size, kLongFile);
  EXPECT_GE(entries[0].stored_bytes, 1000u);
  EXPECT_EQ(delete_cached(options_.cache_dir, url).status().code(), Code::kCacheLocked);
  EXPECT_TRUE(evict_cache(options_.cache_dir, 0).empty());
  source_.reset();
  for (const auto& file : std::filesystem::directory_iterator(options_.cache_dir)) {
    std::filesystem::last_write_time(
        file, std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  }
  ASSERT_TRUE(ChunkStore::open(options_.cache_dir, "http://other/x", "", 100).ok());
  EXPECT_EQ(list_cache(options_.cache_dir).size(), 2u);
  EXPECT_TRUE(evict_cache(options_.cache_dir, entries[0].stored_bytes).empty());
  EXPECT_EQ(evict_cache(options_.cache_dir, 999), std::vector<std::string>{url});
  EXPECT_TRUE(*delete_cached(options_.cache_dir, "http://other/x"));
  EXPECT_FALSE(*delete_cached(options_.cache_dir, "http://other/x"));
  EXPECT_TRUE(list_cache(options_.cache_dir).empty());
  EXPECT_TRUE(list_cache("/nonexistent/folder").empty());
}

TEST(ChunkStore, WriterRejectsWrongLengths) {
  auto store = ChunkStore::open_temporary(kChunk + 10);
  ASSERT_TRUE(store.ok()) << store.status().message();
  const std::vector<uint8_t> bytes(11, 7);
  ChunkStore::Writer too_long(store->get(), 1);
  EXPECT_FALSE(too_long.append(bytes));
  ChunkStore::Writer too_short(store->get(), 1);
  EXPECT_TRUE(too_short.append(std::span(bytes).first(9)));
  EXPECT_EQ(too_short.commit().code(), Code::kIo);
  EXPECT_FALSE((*store)->has(1));
  ChunkStore::Writer right(store->get(), 1);
  EXPECT_TRUE(right.append(std::span(bytes).first(10)));
  EXPECT_TRUE(right.commit().ok());
  EXPECT_TRUE((*store)->has(1));
}

}  // namespace
}  // namespace sluice::io
