// Directories of checkpoint tensors: one little-endian f32 file per tensor, NAME.f32, and an
// index.txt with a line "name op ne0 ne1 ne2 ne3" each (tabs and spaces; ne0 is contiguous).
// Written by `sluice dump` and by the reference. Sizes are limited, because the input is untrusted.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/status.h"

namespace sluice::measure {

inline constexpr uint64_t kMaxIndexBytes = 1 << 22;
inline constexpr uint64_t kMaxCheckpointValues = 1ull << 28;

struct Checkpoint {
  std::string name, op;
  std::array<uint64_t, 4> ne{1, 1, 1, 1};

  [[nodiscard]] uint64_t n_values() const { return ne[0] * ne[1] * ne[2] * ne[3]; }
};

// Reads folder/index.txt, in order. Errors: kNotFound, kIo, kBadHeader (naming the line).
[[nodiscard]] Result<std::vector<Checkpoint>> read_index(const std::filesystem::path& folder);

// Reads a checkpoint's values. Errors: kNotFound, kIo, kBadShape if the file's size is not the
// index's.
[[nodiscard]] Result<std::vector<float>> read_values(const std::filesystem::path& folder,
                                                     const Checkpoint& checkpoint);

struct Difference {
  double nmse = 0;    // mean squared error over the reference's mean square
  double mse = 0;     // mean squared error
  double cosine = 1;  // cosine of the angle between both
  double largest = 0;
  uint64_t n_compared = 0;
};

// Compares over the reference's shape. Attention scores and probabilities ("kq...") count only
// where the causal mask allows (ne0: key, ne1: query). The reference may pad ne0; values beyond our
// ne0 must be 0. Errors: kBadShape. A value that is not finite makes every measure infinite.
[[nodiscard]] Result<Difference> compare_values(const Checkpoint& ours,
                                                const std::vector<float>& our_values,
                                                const Checkpoint& reference,
                                                const std::vector<float>& reference_values);

}  // namespace sluice::measure
