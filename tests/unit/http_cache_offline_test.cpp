// The cache when the server lacks the file or has another one: a complete copy is used without the
// server, and no response costs cached bytes.
#include <cstring>

#include "http_cache_fixture.h"

namespace sluice::io {
namespace {

using test::HttpReply;
using test::HttpRequest;

TEST_F(HttpCacheTest, CompleteCopyServesWithoutTheServer) {
  options_.http.open_attempts = 1;
  open();
  expect_read(0, 100);
  source_.reset();
  const std::string url = server_->url();
  const auto open_again = [&] { return open_source(url, options_); };
  auto partial = [&] {
    server_.reset();
    return open_again();
  }();
  EXPECT_EQ(partial.status().code(), Code::kNetwork);

  // Completed by hand, since the server's port is closed.
  const CachedFile file = ChunkStore::versions(options_.cache_dir, url).at(0);
  auto store = ChunkStore::open(file.path, file.header);
  ASSERT_NE(store, nullptr);
  for (uint64_t c = kBlock / kChunk; c < store->n_chunks(); c++) {
    ASSERT_TRUE(store_chunk(*store, c, file_).ok());
  }
  store.reset();
  auto complete = open_again();
  ASSERT_TRUE(complete.ok()) << complete.status().message();
  source_ = std::move(*complete);
  expect_all();
  EXPECT_EQ(warnings_.size(), 1u);
  source_.reset();
  flip(entry("data"), 5);  // nothing to repair it with
  complete = open_again();
  ASSERT_TRUE(complete.ok());
  source_ = std::move(*complete);
  EXPECT_EQ(read(0, 100).code(), Code::kNetwork);
}

// What a server may send instead of the file. None of it costs cached bytes, and a complete copy is
// used with a warning.
const std::pair<const char*, HttpReply> kNotTheFile[] = {
    {"page", {.status = 200, .headers = {}, .body = "<!DOCTYPE html>" + std::string(99'000, ' ')}},
    {"page with ETag",
     {.status = 200, .headers = {{"ETag", "\"p\""}}, .body = "\n<html>Back soon"}},
    {"page without length",
     {.status = 200, .headers = {}, .body = "<html>", .announce_length = false}},
    {"compressed page", {.status = 200, .headers = {{"Content-Encoding", "gzip"}}, .body = "\x1f"}},
    {"JSON", {.status = 200, .headers = {}, .body = "{\"error\":\"too many requests\"}"}},
    {"text", {.status = 200, .headers = {}, .body = "Service temporarily unavailable"}},
    {"nothing", {.status = 200, .headers = {}, .body = ""}},
    {"an empty file", {.status = 416, .headers = {{"Content-Range", "bytes */0"}}, .body = ""}},
    {"404", {.status = 404, .headers = {}, .body = "<html>"}},
    {"503", {.status = 503, .headers = {}, .body = "<html>"}},
    {"loop", {.status = 302, .headers = {{"Location", "/again"}}, .body = ""}},
};

TEST_F(HttpCacheTest, OtherResponsesCostNoCachedBytes) {
  options_.http.open_attempts = 1;
  for (const char* magic : {"GGUF\3\0\0\0", "\x40\0\0\0\0\0\0\0{", "{\n  \"model_type\""}) {
    for (const char* etag : {"\"v1\"", ""}) {
      std::filesystem::remove_all(options_.cache_dir);
      etag_ = etag;
      const bool binary = magic[0] != '{';
      file_.replace(0, binary ? 9 : std::strlen(magic), magic, binary ? 9 : std::strlen(magic));
      faulty_ = false;
      open();
      expect_all();
      for (const auto& [what, reply] : kNotTheFile) {
        fault_ = [&reply = reply](HttpReply* answer) { *answer = reply; };
        faulty_ = true;
        warnings_.clear();
        open();
        expect_all();
        EXPECT_EQ(warnings_.size(), 1u) << what;
      }
      faulty_ = false;
      EXPECT_LE(sent([&] {
                  open();
                  expect_all();
                }),
                kCacheHeadBytes + kProbe);
    }
  }
}

TEST_F(HttpCacheTest, OtherResponsesKeepAnIncompleteCopy) {
  open();
  expect_read(0, 100);
  fault_ = [&](HttpReply* answer) { *answer = kNotTheFile[0].second; };
  faulty_ = true;
  EXPECT_EQ(open_source(server_->url(), options_).status().code(), Code::kNotGguf);
  faulty_ = false;
  EXPECT_EQ(sent([&] {
              open();
              expect_all();
            }),
            kLongFile - kBlock + kProbe);
}

TEST_F(HttpCacheTest, TheOldVersionStaysUntilTheNewOneArrives) {
  open();
  expect_all();
  const std::string old = file_;
  file_ = test::patterned(kLongFile + 1).substr(1);
  etag_ = "\"v2\"";
  fault_ = [&](HttpReply* answer) {
    if (answer->body.size() > kCacheHeadBytes) answer->cut_after = 1000;
  };
  faulty_ = true;  // the beginning arrives, but no complete chunk
  open();
  EXPECT_EQ(read(kBlock, 100).code(), Code::kNetwork);
  source_.reset();
  const std::string url = server_->url();
  {
    std::unique_ptr<ChunkStore> kept;
    for (const CachedFile& file : ChunkStore::versions(options_.cache_dir, url)) {
      if (file.stored_bytes == kLongFile) kept = ChunkStore::open(file.path, file.header);
    }
    ASSERT_NE(kept, nullptr);
    std::vector<uint8_t> bytes(1000);
    ASSERT_TRUE(kept->read(kBlock, bytes).ok());
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(),
                           reinterpret_cast<const uint8_t*>(old.data()) + kBlock));
  }
  faulty_ = false;
  open();
  expect_all();
  EXPECT_EQ(list_cache(options_.cache_dir).at(0).files.size(), 1u);
}

}  // namespace
}  // namespace sluice::io
