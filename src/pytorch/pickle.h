// Reads the pickle of a PyTorch checkpoint as a list of tensors. A pickle is a program for a stack
// machine that may call any function. This interpreter runs only the instructions that a dictionary
// of tensors needs, and never calls anything. Any other instruction or function is an error that
// names it. _rebuild_tensor_v2 and storages are only recorded.
// Formats: https://docs.python.org/3/library/pickletools.html, torch/_utils.py
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"

namespace sluice::pytorch {

inline constexpr uint64_t kMaxPickleBytes = 64ull << 20;
inline constexpr size_t kMaxPickleValues = 1u << 22;

struct PickledTensor {
  std::string name;
  std::string dtype;            // safetensors' name: "BF16"
  std::vector<uint64_t> shape;  // rows first
  std::string storage;          // key of the storage
  uint64_t begin = 0, end = 0;  // in the storage, bytes
};

// The tensors of the dictionary that the pickle builds, in its order; other entries are omitted.
// Every tensor is contiguous and lies within the declared size of its storage.
// Errors: kBadHeader, kTruncated, kUnsupportedType, kBadShape; messages begin with `file`.
[[nodiscard]] Result<std::vector<PickledTensor>> parse_pickle(gguf::Bytes pickle, const char* file);

}  // namespace sluice::pytorch
