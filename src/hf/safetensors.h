// The safetensors container: a JSON directory of tensors, followed by their bytes. Like
// parse_header, this parses a prefix and does no I/O. Unlike GGUF, the file does not describe the
// model; see config.h. Format: https://github.com/huggingface/safetensors#format
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"

namespace sluice::hf {

inline constexpr size_t kMaxDimensions = 8;  // of a tensor, in any format

inline constexpr uint64_t kMaxSafetensorsHeader = 64ull << 20;

struct SafetensorsEntry {
  std::string name;
  std::string dtype;            // "BF16"
  std::vector<uint64_t> shape;  // rows first: the reverse of GGUF's ne
  uint64_t begin = 0;           // from the start of the file, in bytes
  uint64_t end = 0;
};

struct SafetensorsFile {
  uint64_t data_offset = 0;
  std::vector<SafetensorsEntry> entries;
};

// Parses the directory in `prefix`, the first bytes of a file of `file_size` bytes.
// Errors: kBadHeader, kTruncated; messages begin with `file`.
[[nodiscard]] Result<gguf::ParseProgress> parse_safetensors(gguf::Bytes prefix, uint64_t file_size,
                                                            const char* file, SafetensorsFile* out);

// The files listed in model.safetensors.index.json, in order. Names outside of the directory are
// rejected. Errors: kBadHeader.
[[nodiscard]] Result<std::vector<std::string>> safetensors_shards(std::string_view index_json);

}  // namespace sluice::hf
