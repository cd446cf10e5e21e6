// The format of the model cache and its directory, by tests/data/model-cache.json, which the tests
// of the package use too. Damaged and hostile headers.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "../paths.h"
#include "io/cache_format_native.h"
#include "io/default_cache_native.h"

namespace sluice::io {
namespace {

using nlohmann::json;

json vectors() {
  std::ifstream file(test::source_dir() + "/tests/data/model-cache.json");
  return json::parse(file);
}

std::span<const uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string hex(std::span<const uint8_t> bytes) {
  std::string out;
  for (const uint8_t byte : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    out += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return out;
}

CacheHeader header_of(const json& entry) {
  CacheHeader header;
  header.url = entry["url"];
  header.etag = entry["etag"];
  header.last_modified = entry["lastModified"];
  header.size = entry["size"];
  header.chunk_bytes = entry["chunkSize"];
  header.created = entry["created"];
  header.used = entry["used"];
  return header;
}

TEST(CacheFormat, ChecksumsAndHeadersAreThoseOfThePackage) {
  const json cases = vectors();
  ASSERT_GT(cases["checksums"].size(), 4u);
  for (const json& each : cases["checksums"]) {
    EXPECT_EQ(xxh32(bytes_of(each["text"].get<std::string>())), each["xxh32"]) << each;
  }
  ASSERT_GT(cases["entries"].size(), 3u);
  for (const json& each : cases["entries"]) {
    const CacheHeader header = header_of(each);
    const std::string head = each["head"];
    EXPECT_EQ(cache_name(header, bytes_of(head)), each["name"]);
    EXPECT_TRUE(is_cache_name(each["name"].get<std::string>()));
    const std::vector<uint8_t> bytes = encode_cache_header(header);
    ASSERT_EQ(bytes.size(), kCacheHeaderBytes);
    const std::string wanted = each["header"];
    EXPECT_EQ(hex(std::span(bytes).first(wanted.size() / 2)), wanted);
    const auto read = decode_cache_header(bytes);
    ASSERT_TRUE(read);
    EXPECT_EQ(encode_cache_header(*read), bytes);
    EXPECT_EQ(read->last_modified, header.last_modified);
  }
}

TEST(CacheFormat, EveryDamagedHeaderIsRejected) {
  const std::vector<uint8_t> good = encode_cache_header(header_of(vectors()["entries"][0]));
  const size_t used_end = kCacheUsedOffset + 8;
  const size_t end = 24 + good[20];
  for (size_t i = 0; i < end; ++i) {
    std::vector<uint8_t> bytes = good;
    bytes[i] ^= 0x20;
    const bool time_of_use = i >= kCacheUsedOffset && i < used_end;
    EXPECT_EQ(decode_cache_header(bytes).has_value(), time_of_use) << i;
  }
  for (size_t length = 0; length < good.size(); length += 101) {
    EXPECT_FALSE(decode_cache_header(std::span(good).first(length)));
  }
}

TEST(CacheFormat, ImpossibleSizesAreRejected) {
  CacheHeader header = header_of(vectors()["entries"][0]);
  const auto accepted = [&](uint64_t size, uint32_t chunk) {
    header.size = size;
    header.chunk_bytes = chunk;
    return decode_cache_header(encode_cache_header(header)).has_value();
  };
  EXPECT_TRUE(accepted(0, 4096));
  EXPECT_TRUE(accepted(kMaxCachedBytes, kCacheChunkBytes));
  EXPECT_FALSE(accepted(kMaxCachedBytes + 1, kCacheChunkBytes));
  EXPECT_FALSE(accepted(kMaxCachedBytes, 4096));  // too many chunks
  for (const uint32_t chunk : {0u, 2048u, 5000u, 8u << 20}) EXPECT_FALSE(accepted(100, chunk));
  header.url = std::string(9000, 'x');
  EXPECT_TRUE(encode_cache_header(header).empty());
}

TEST(CacheFormat, OtherNamesAreNoEntries) {
  const std::string good = vectors()["entries"][0]["name"];
  for (const std::string& name :
       {std::string(), good + "0", "2" + good.substr(1), good.substr(0, 34) + "G",
        good.substr(0, 18) + "_" + good.substr(19), std::string("models")}) {
    EXPECT_FALSE(is_cache_name(name)) << name;
  }
}

TEST(DefaultCache, DirectoriesAreThoseOfThePackage) {
  const json cases = vectors()["directories"];
  ASSERT_GT(cases.size(), 9u);
  for (const json& each : cases) {
    const std::string system = each["system"];
    const auto variable = [&](const char* name) {
      return each["environment"].value(name, std::string());
    };
    EXPECT_EQ(cache_directory(each["given"],
                              system == "win32"    ? platform::System::kWindows
                              : system == "darwin" ? platform::System::kMac
                                                   : platform::System::kLinux,
                              variable),
              each["directory"])
        << each;
  }
}

TEST(DefaultCache, LimitsAreThoseOfThePackage) {
  const json cases = vectors()["limits"];
  ASSERT_GT(cases.size(), 8u);
  for (const json& each : cases) {
    const Result<uint64_t> limit = cache_limit(each["text"]);
    ASSERT_EQ(limit.ok(), each.contains("bytes")) << each;
    if (limit.ok()) {
      EXPECT_EQ(*limit, each["bytes"]) << each;
    } else {
      EXPECT_EQ(limit.status().code(), Code::kInvalidArgument) << each;
      EXPECT_TRUE(limit.status().message().starts_with("SLUICE_CACHE_SIZE: ")) << each;
    }
  }
}

}  // namespace
}  // namespace sluice::io
