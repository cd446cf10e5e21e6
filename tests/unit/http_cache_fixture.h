// An HTTP source of one file with its own cache directory, and the server that has the file.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "http_test_server.h"
#include "io/byte_source.h"
#include "io/cache_native.h"

namespace sluice::io {

inline constexpr uint64_t kBlock = ChunkStore::kBlockBytes;
inline constexpr uint64_t kChunk = kCacheChunkBytes;
inline constexpr uint64_t kLongFile = 2 * kBlock + 1'500'000;  // the last chunk is short
inline constexpr uint64_t kProbe = 512;                        // body bytes of the initial request

class HttpCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"http_proxy", "all_proxy", "ALL_PROXY"}) ::unsetenv(name);
    std::string name = (std::filesystem::temp_directory_path() / "sluice-cache-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    dir_ = name;
    options_.cache_dir = (dir_ / "deeper" / "cache").string();
    options_.http.backoff_ms = 1;
    options_.http.max_backoff_ms = 2;
    options_.http.attempts = 3;
    options_.on_warning = [this](const std::string& text) { warnings_.push_back(text); };
    server_ = std::make_unique<test::HttpTestServer>([this](const test::HttpRequest& request) {
      if (!ranges_)
        return test::HttpReply{.status = 200, .headers = {{"ETag", etag_}}, .body = file_};
      test::HttpReply reply = test::serve_file(request, file_, etag_);
      if (request.range() && request.range()->second != kProbe - 1) reply.cut_after = cut_after_;
      if (faulty_) fault_(&reply);
      return reply;
    });
  }
  void TearDown() override {
    source_.reset();
    server_.reset();  // before what derived classes add and fault_ reads
    std::filesystem::remove_all(dir_);
  }

  void open() {
    source_.reset();
    auto source = open_source(server_->url(), options_);
    ASSERT_TRUE(source.ok()) << source.status().message();
    source_ = std::move(*source);
  }
  Status read(uint64_t offset, uint64_t length) {
    if (source_ == nullptr) return error(Code::kInternal, "the source did not open");
    std::vector<uint8_t> out(static_cast<size_t>(length));
    Status status = source_->read(offset, out);
    if (status.ok()) {
      EXPECT_EQ(file_.compare(static_cast<size_t>(offset), out.size(),
                              reinterpret_cast<const char*>(out.data()), out.size()),
                0)
          << offset;
    }
    return status;
  }
  void expect_read(uint64_t offset, uint64_t length) {
    const Status status = read(offset, length);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  void expect_all() { expect_read(0, file_.size()); }
  // Body bytes that the server sends while `what` runs.
  template <typename Fn>
  uint64_t sent(Fn&& what) {
    const uint64_t before = server_->body_bytes();
    what();
    return server_->body_bytes() - before;
  }
  // A file of the only entry: "data" or "index". Empty: there is no entry.
  [[nodiscard]] std::filesystem::path entry(const char* file) const {
    for (const auto& e : std::filesystem::directory_iterator(options_.cache_dir)) {
      if (is_cache_name(e.path().filename().string())) return e.path() / file;
    }
    return {};
  }
  [[nodiscard]] CacheHeader version(uint64_t size = kLongFile) const {
    CacheHeader header;
    header.url = server_->url();
    header.etag = etag_;
    header.size = size;
    return header;
  }
  // Stores a chunk, as a source does.
  [[nodiscard]] static Status store_chunk(ChunkStore& store, uint64_t chunk,
                                          const std::string& file) {
    ChunkStore::Writer writer(&store, chunk);
    const auto* bytes = reinterpret_cast<const uint8_t*>(file.data());
    (void)writer.append({bytes + chunk * store.header().chunk_bytes,
                         static_cast<size_t>(store.chunk_bytes(chunk))});
    return writer.status();
  }
  static void flip(const std::filesystem::path& path, uint64_t at) {
    std::fstream f(path, std::ios::binary | std::ios::in | std::ios::out);
    f.seekg(static_cast<std::streamoff>(at));
    const auto c = static_cast<char>(f.get() ^ 0x10);
    f.seekp(static_cast<std::streamoff>(at));
    f.put(c);
  }

  std::filesystem::path dir_;
  std::string file_ = test::patterned(kLongFile);
  std::string etag_ = "\"v1\"";
  bool ranges_ = true;
  std::atomic<size_t> cut_after_{SIZE_MAX};
  std::atomic<bool> faulty_{false};
  std::function<void(test::HttpReply*)> fault_;
  OpenOptions options_;
  std::vector<std::string> warnings_;
  std::unique_ptr<test::HttpTestServer> server_;
  std::unique_ptr<ByteSource> source_;
};

}  // namespace sluice::io
