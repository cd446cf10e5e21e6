// Files of pictures and projectors for the tests of src/media.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "../paths.h"
#include "gguf/gguf.h"
#include "media/decode.h"

namespace sluice::test {

inline std::vector<uint8_t> read_bytes(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
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
