// The chunk store behind the HTTP source: each byte is downloaded once, downloads resume, data is
// verified, entries are shared, and a full disk disables the cache. The test server counts bytes
// sent.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <thread>

#include "../extent.h"
#include "http_cache_fixture.h"
#include "platform/process.h"

namespace sluice::io {
namespace {

using test::HttpReply;
using test::HttpRequest;

// Sets an entry's time of use, in milliseconds since 1970.
void set_used(const std::filesystem::path& index, double used) {
  std::fstream file(index, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(kCacheUsedOffset);
  file.write(reinterpret_cast<const char*>(&used), sizeof used);
}

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
  EXPECT_EQ(source_->bytes_fetched(), 0u);
}

TEST_F(HttpCacheTest, ResumesAtTheMissingChunks) {
  open();
  expect_read(kBlock - 10, 20);  // chunks 0 and 1
  EXPECT_EQ(sent([&] {
              open();
              expect_all();
            }),
            kLongFile - 2 * kBlock + kProbe);
  EXPECT_EQ(sent([&] { expect_all(); }), 0u);
}

TEST_F(HttpCacheTest, ACutConnectionCostsAtMostOneChunk) {
  open();
  expect_read(0, 100);
  options_.http.attempts = 6;
  open();
  cut_after_ = 60'000;  // too few to count as progress; six attempts are a chunk and a part
  EXPECT_EQ(read(kBlock, 100).code(), Code::kNetwork);
  cut_after_ = SIZE_MAX;
  EXPECT_EQ(sent([&] {
              open();
              expect_all();
            }),
            kLongFile - kBlock - kChunk + kProbe);
}

TEST_F(HttpCacheTest, KilledProcessLosesAtMostOneChunk) {
  open();
  source_.reset();
  for (const uint64_t written : {uint64_t{0}, uint64_t{1}, kChunk - 1}) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {  // writes part of a chunk, then is killed
      auto store = ChunkStore::create(options_.cache_dir, version());
      if (!store.ok()) ::_exit(2);
      ChunkStore::Writer writer(store->get(), 1);
      const std::string wrong(static_cast<size_t>(written), 'w');
      const bool kept = writer.append({reinterpret_cast<const uint8_t*>(wrong.data()), written});
      (void)::raise(kept ? SIGKILL : SIGABRT);
    }
    int state = 0;
    ASSERT_EQ(::waitpid(child, &state, 0), child);
    ASSERT_TRUE(WIFSIGNALED(state) && WTERMSIG(state) == SIGKILL);
    auto store = ChunkStore::create(options_.cache_dir, version());
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
  const uint64_t kPlaces[] = {0, kBlock - 1, kBlock, kBlock + 123'456, 2 * kBlock, kLongFile - 1};
  for (const uint64_t at : kPlaces) {
    flip(entry("data"), at);
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

TEST_F(HttpCacheTest, AllDamagedChunksOfABlockAreReplacedAtOnce) {
  open();
  expect_all();
  source_.reset();
  for (uint64_t at = 0; at < kBlock; at += kChunk) flip(entry("data"), at);
  const auto all = [&] {
    open();
    expect_all();
  };
  EXPECT_EQ(sent(all), kBlock + kProbe);
  EXPECT_EQ(sent(all), kProbe);
}

TEST_F(HttpCacheTest, DamagedIndexIsRebuilt) {
  open();
  expect_all();
  source_.reset();
  const auto size = std::filesystem::file_size(entry("index"));
  for (uint64_t at = 0; at < size; at += at < 200 ? 17 : at < 8192 ? 3001 : 37) {
    flip(entry("index"), at);
    open();
    expect_all();
    source_.reset();
  }
  for (uint64_t length = 0; length < size; length += length < 40 ? 7 : 3001) {
    std::filesystem::resize_file(entry("index"), length);
    open();
    expect_all();
    source_.reset();
  }
}

TEST_F(HttpCacheTest, TruncatedDataIsRefetched) {
  open();
  expect_all();
  source_.reset();
  std::filesystem::resize_file(entry("data"), kChunk + 5);
  EXPECT_EQ(sent([&] {
              open();
              expect_all();
            }),
            kLongFile - kChunk + kProbe);
}

TEST_F(HttpCacheTest, DataMayShrinkWhileInUse) {
  open();
  expect_all();
  std::filesystem::resize_file(entry("data"), 5);
  expect_all();
}

TEST_F(HttpCacheTest, ReplacedFileIsNeverMixed) {
  open();
  expect_read(0, 100);
  file_ = test::patterned(kLongFile + 1).substr(1);  // same length, other bytes
  etag_ = "\"v2\"";
  EXPECT_EQ(read(kBlock, 100).code(), Code::kSourceChanged);
  EXPECT_EQ(sent([&] {
              open();
              expect_all();
            }),
            kLongFile + kProbe + kCacheHeadBytes);  // the new file's beginning identifies it
  int entries = 0;
  for (const auto& e : std::filesystem::directory_iterator(options_.cache_dir)) {
    entries += is_cache_name(e.path().filename().string());
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
            kBlock);
  file_ = test::patterned(kLongFile + 1).substr(1);
  open();
  expect_all();
}

TEST_F(HttpCacheTest, AnotherEtagWithTheSameDateSizeAndBeginningIsTheSameFile) {
  std::string date = "Tue, 14 Nov 2023 22:13:20 GMT";
  fault_ = [&](HttpReply* reply) { reply->headers.push_back({"Last-Modified", date}); };
  faulty_ = true;
  open();
  expect_all();
  etag_ = "\"another node's\"";
  EXPECT_EQ(sent([&] {
              open();
              expect_all();
            }),
            kCacheHeadBytes + kProbe);
  EXPECT_EQ(list_cache(options_.cache_dir).at(0).files.size(), 1u);
  etag_ = "\"v2\"";
  date = "Wed, 15 Nov 2023 22:13:20 GMT";
  file_.back() ^= 1;  // a new version with the same beginning
  open();
  expect_all();
}

TEST_F(HttpCacheTest, WithoutADateAnotherEtagIsAnotherVersion) {
  open();
  expect_all();
  etag_ = "\"v2\"";
  file_[kLongFile / 2] ^= 1;  // the beginning and the end are the same
  open();
  expect_all();
  EXPECT_EQ(list_cache(options_.cache_dir).at(0).files.size(), 1u);
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
  int stalls = test::extent(2, 4);
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
  for (int round = 0; round < test::extent(4, 10); round++) {
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
    flip(entry("data"), static_cast<uint64_t>(round) * 919'191 % kLongFile);
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
    const WriteLimit limit(kBlock + 1000);
    expect_all();
    expect_all();
  }
  EXPECT_EQ(warnings_.size(), 1u);
  open();
  expect_all();
  EXPECT_EQ(source_->bytes_fetched(), kLongFile - kBlock);  // chunk 0 was kept
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
  expect_read(kBlock, 100);
  expect_all();
  EXPECT_EQ(source_->bytes_fetched(), kLongFile);
  open();
  expect_all();
  EXPECT_EQ(source_->bytes_fetched(), 0u);
  flip(entry("data"), kBlock + 5);
  open();
  expect_all();
}

TEST_F(HttpCacheTest, ServerWithoutRangesAndFullDisk) {
  ranges_ = false;
  open();
  const WriteLimit limit(kBlock + 1000);
  expect_read(0, 1000);
  EXPECT_EQ(read(kBlock, 1000).code(), Code::kIo);
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
  const auto fill = [&](const char* name, uint64_t size) {
    CacheHeader header;
    header.url = std::string("http://h/dir/") + name;
    header.size = size;
    auto store = ChunkStore::create(options_.cache_dir, header);
    ASSERT_TRUE(store.ok());
    ASSERT_TRUE(store_chunk(**store, 0, std::string(size, 7)).ok());
  };
  fill("config.json", 10);
  fill("tokenizer.json", 20);
  fill("model-00001-of-00002.safetensors", 300);
  const auto directory = [&] {
    return find_cached(options_.cache_dir, "http://h/dir/").value_or(CacheEntry{});
  };
  EXPECT_FALSE(directory().complete);  // another shard is missing
  fill("model-00002-of-00002.safetensors", 400);
  fill("other.gguf", 50);
  EXPECT_TRUE(directory().complete);
  EXPECT_EQ(directory().size, 730u);
  EXPECT_EQ(directory().stored_bytes, 730u);
  EXPECT_EQ(list_cache(options_.cache_dir).size(), 2u);
  {
    const CachedFile file = directory().files[0];
    auto held = ChunkStore::open(file.path, file.header);
    ASSERT_NE(held, nullptr);
    EXPECT_EQ(held->header().url, "http://h/dir/model-00002-of-00002.safetensors");
    EXPECT_EQ(delete_cached(options_.cache_dir, "http://h/dir/").status().code(),
              Code::kCacheLocked);
    EXPECT_EQ(directory().files.size(), 4u);
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
  EXPECT_EQ(entries[0].stored_bytes, kBlock);
  EXPECT_LT(std::abs(entries[0].used / 1000 - std::time(nullptr)), 60);
  EXPECT_EQ(delete_cached(options_.cache_dir, url).status().code(), Code::kCacheLocked);
  EXPECT_TRUE(evict_cache(options_.cache_dir, 0).empty());
  source_.reset();
  set_used(entry("index"), 1000);
  CacheHeader other;
  other.url = "http://other/x";
  other.size = 100;
  ASSERT_TRUE(ChunkStore::create(options_.cache_dir, other).ok());
  EXPECT_EQ(list_cache(options_.cache_dir).size(), 2u);
  EXPECT_TRUE(evict_cache(options_.cache_dir, entries[0].stored_bytes).empty());
  EXPECT_EQ(evict_cache(options_.cache_dir, 999), std::vector<std::string>{url});
  EXPECT_TRUE(*delete_cached(options_.cache_dir, "http://other/x"));
  EXPECT_FALSE(*delete_cached(options_.cache_dir, "http://other/x"));
  EXPECT_TRUE(list_cache(options_.cache_dir).empty());
  EXPECT_TRUE(list_cache("/nonexistent/folder").empty());
}

TEST_F(HttpCacheTest, ALimitEvictsWhatWasUsedLeastRecently) {
  const auto store = [&](const char* name, uint64_t size) {
    CacheHeader header;
    header.url = std::string("http://h/") + name;
    header.etag = "1";
    header.size = size;
    auto made = ChunkStore::create(options_.cache_dir, header, {}, 1000);
    EXPECT_TRUE(!made.ok() || store_chunk(**made, 0, std::string(size, 'x')).ok());
    return made;
  };
  for (const char* name : {"a", "b", "c"}) ASSERT_TRUE(store(name, 300).ok());
  for (const CacheEntry& entry : list_cache(options_.cache_dir)) {
    set_used(std::filesystem::path(entry.files[0].path) / "index", entry.url.back());
  }
  ASSERT_TRUE(store("a", 300).ok());  // used again
  const auto held = store("b", 300);
  ASSERT_TRUE(held.ok());
  ASSERT_TRUE(store("d", 350).ok());
  std::set<std::string> left;
  for (const CacheEntry& entry : list_cache(options_.cache_dir)) left.insert(entry.url);
  EXPECT_EQ(left, (std::set<std::string>{"http://h/a", "http://h/b", "http://h/d"}));
  EXPECT_EQ(store("e", 1001).status().code(), Code::kIo);
  EXPECT_EQ(list_cache(options_.cache_dir).size(), 3u);
}

TEST_F(HttpCacheTest, AReadOnlyCacheServesWhatItHas) {
  open();
  expect_read(0, 100);
  source_.reset();
  const std::filesystem::path index = entry("index");
  for (const auto& path : {index, entry("data")}) {
    std::filesystem::permissions(path, std::filesystem::perms::owner_read);
  }
  std::filesystem::permissions(index.parent_path(), std::filesystem::perms(0500));
  if (::geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  EXPECT_EQ(sent([&] {
              open();
              expect_all();
            }),
            kLongFile - kBlock + kProbe);
  EXPECT_EQ(warnings_.size(), 1u);
  std::filesystem::permissions(index.parent_path(), std::filesystem::perms(0700));
}

TEST_F(HttpCacheTest, LocksOfDeadProcessesDoNotCount) {
  open();
  expect_read(0, 100);
  const std::filesystem::path dir = entry("index").parent_path();
  const std::string other_host = "1 another-machine\n";
  const auto lock = [&](const char* name, const std::string& text, int age) {
    std::ofstream(dir / name) << text;
    std::filesystem::last_write_time(
        dir / name, std::filesystem::file_time_type::clock::now() - std::chrono::seconds(age));
  };
  source_.reset();
  EXPECT_FALSE(is_in_use(dir));
  lock("use-1-1", other_host, 0);
  EXPECT_TRUE(is_in_use(dir));
  lock("use-1-1", other_host, 40);
  EXPECT_FALSE(is_in_use(dir));
  lock("use-1-1", "", 0);
  EXPECT_TRUE(is_in_use(dir));
  lock("use-1-1", "999999999 " + platform::host_name() + "\n", 0);
  EXPECT_FALSE(is_in_use(dir));
  lock("use-1-1", std::to_string(::getpid()) + " " + platform::host_name() + "\n", 0);
  EXPECT_TRUE(is_in_use(dir));

  lock("get-1", other_host, 0);
  EXPECT_EQ(BlockLock::try_take(dir, 1), nullptr);
  lock("get-1", other_host, 20);
  const auto taken = BlockLock::try_take(dir, 1);
  EXPECT_NE(taken, nullptr);
  EXPECT_EQ(BlockLock::try_take(dir, 1), nullptr);
}

TEST_F(HttpCacheTest, CleansUpDamagedEntriesAndLeftovers) {
  const std::filesystem::path dir = options_.cache_dir;
  const auto make = [&](const std::string& name, const char* file) {
    std::filesystem::create_directories(dir / name);
    std::ofstream(dir / name / file) << std::string(9000, 'x');
  };
  const std::string damaged = "1-0123456789abcdef-0123456789abcdef";
  make(damaged, "index");
  make("tmp-1-1", "index");
  make("tmp-1-2", "index");
  make("models", "index");  // not the cache's
  std::filesystem::last_write_time(
      dir / "tmp-1-1", std::filesystem::file_time_type::clock::now() - std::chrono::hours(2));
  EXPECT_TRUE(evict_cache(dir, 1 << 20).empty());
  EXPECT_FALSE(std::filesystem::exists(dir / damaged));
  EXPECT_FALSE(std::filesystem::exists(dir / "tmp-1-1"));
  EXPECT_TRUE(std::filesystem::exists(dir / "tmp-1-2"));
  EXPECT_TRUE(std::filesystem::exists(dir / "models" / "index"));
}

TEST(ChunkStore, WriterRejectsTooManyBytes) {
  auto store = ChunkStore::open_temporary(kChunk + 10);
  ASSERT_TRUE(store.ok()) << store.status().message();
  const std::vector<uint8_t> bytes(11, 7);
  ChunkStore::Writer too_short(store->get(), 1);
  EXPECT_TRUE(too_short.append(std::span(bytes).first(9)));
  EXPECT_FALSE((*store)->has(1));
  ChunkStore::Writer too_long(store->get(), 1);
  EXPECT_FALSE(too_long.append(bytes));
  EXPECT_EQ(too_long.status().code(), Code::kIo);
  EXPECT_TRUE((*store)->has(1));
}

}  // namespace
}  // namespace sluice::io
