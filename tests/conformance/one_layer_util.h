// A model's first layer as a model of its own: its keys do not depend on earlier tokens.
#pragma once

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>

#include "../file_contents.h"

namespace sluice::test {

// Returns the path of a file that the caller removes.
inline std::string one_layer(const std::string& model) {
  std::string bytes = file_contents(model);
  const std::string key = ".block_count";
  const size_t at = bytes.find(key) + key.size() + sizeof(uint32_t);
  const uint32_t one = 1;
  std::memcpy(&bytes[at], &one, sizeof one);
  const std::string name = "sluice-one-layer-" + std::to_string(getpid()) + "-" +
                           std::filesystem::path(model).filename().string();
  std::string out = (std::filesystem::temp_directory_path() / name).string();
  std::ofstream(out, std::ios::binary) << bytes;
  return out;
}

}  // namespace sluice::test
