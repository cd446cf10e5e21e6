// The pickle of a PyTorch checkpoint, read as a list of tensors. Pickle is a program for a stack
// machine that may call any function; this runs the few instructions that a dictionary of tensors
// takes, calls nothing, and refuses every other instruction and every other name by name. What the
// file calls _rebuild_tensor_v2 and a storage is a description here.
// Formats: https://docs.python.org/3/library/pickletools.html, torch/_utils.py
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"

namespace sluice::hf {

inline constexpr uint64_t kMaxPickleBytes = 64ull << 20;
inline constexpr size_t kMaxPickleValues = 1u << 22;

struct PickledTensor {
  std::string name;
  std::string dtype;            // as safetensors call it: "BF16"
  std::vector<uint64_t> shape;  // rows first
  std::string storage;          // key of the storage
  uint64_t begin = 0, end = 0;  // in the storage, bytes
};

// The tensors of the dictionary that `pickle` leaves, in its order; entries of other kinds are left
// out. Every tensor is contiguous and lies in its storage as that is announced.
// Errors: kBadHeader, kTruncated, kUnsupportedType, kBadShape; messages begin with `file`.
[[nodiscard]] Result<std::vector<PickledTensor>> parse_pickle(gguf::Bytes pickle, const char* file);

}  // namespace sluice::hf
