// Files of pictures and projectors for the tests of src/media.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "../file_contents.h"
#include "../paths.h"
#include "gguf/gguf.h"
#include "media/decode.h"

namespace sluice::test {

inline std::vector<uint8_t> read_bytes(const std::filesystem::path& path) {
  EXPECT_TRUE(std::filesystem::exists(path)) << path;
  return sluice::test::file_contents<std::vector<uint8_t>>(path);
}

// A header and the bytes that its views point into.
struct ParsedFile {
  std::vector<uint8_t> bytes;
  gguf::Header header;
};
inline std::unique_ptr<ParsedFile> parse_file(const std::filesystem::path& path) {
  auto file = std::make_unique<ParsedFile>();
  file->bytes = read_bytes(path);
  const auto parsed = gguf::parse_header(file->bytes, file->bytes.size(), &file->header);
  EXPECT_TRUE(parsed.ok() && parsed->done) << path;
  return file;
}

// False where the build has no decoder for the file's format: the test skips it.
inline bool can_decode(media::Bytes file) {
  const auto info = media::image_info(file);
  return info.ok() || info.status().code() != Code::kNotSupported;
}

}  // namespace sluice::test
