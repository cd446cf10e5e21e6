// Replaces the codes of a block whose scales stay: a code for each value, or an entry of a codebook
// for several.
#pragma once

#include <type_traits>

#include "convert/codebook_writers.h"

namespace sluice::convert {
namespace {

// Number of codes that a value can have; 0: it has none of its own, or 256, where rounding hardly
// matters.
template <class Block>
constexpr int kCodes = 0;
template <>
constexpr int kCodes<kernels::BlockQ4_0> = 16;
template <>
constexpr int kCodes<kernels::BlockQ4_1> = 16;
template <>
constexpr int kCodes<kernels::BlockQ5_0> = 32;
template <>
constexpr int kCodes<kernels::BlockQ5_1> = 32;
template <>
constexpr int kCodes<kernels::BlockIQ4_NL> = 16;
template <>
constexpr int kCodes<kernels::BlockMXFP4> = 16;
template <>
constexpr int kCodes<kernels::BlockNVFP4> = 16;
template <>
constexpr int kCodes<kernels::BlockQ2_K> = 4;
template <>
constexpr int kCodes<kernels::BlockQ3_K> = 8;
template <>
constexpr int kCodes<kernels::BlockQ4_K> = 16;
template <>
constexpr int kCodes<kernels::BlockQ5_K> = 32;
template <>
constexpr int kCodes<kernels::BlockQ6_K> = 64;
template <>
constexpr int kCodes<kernels::BlockIQ4_XS> = 16;
template <>
constexpr int kCodes<kernels::BlockTQ1_0> = 3;
template <>
constexpr int kCodes<kernels::BlockTQ2_0> = 3;
template <>
constexpr int kCodes<kernels::BlockQ1_0> = 2;
template <>
constexpr int kCodes<kernels::BlockQ2_0> = 4;
template <>
constexpr int kCodes<kernels::BlockQSF2> = 4;
template <>
constexpr int kCodes<kernels::BlockQSF3> = 8;
template <>
constexpr int kCodes<kernels::BlockQSF4> = 16;
template <>
constexpr int kCodes<kernels::BlockQSFT> = 3;

// Codebooks of sizes with separate signs, or of values with one shift for some of them.
struct EntryForm {
  bool is = false;
  Codebook codebook = {};
  bool even = false;  // the number of negative values in an octet is even
  int shifted = 0;    // values with the same shift, whole octets; 0: sizes with signs
};
template <class Block>
constexpr EntryForm kEntryForm = {};
template <>
constexpr EntryForm kEntryForm<kernels::BlockIQ1_S> = {true, Codebook::kIq1, false, 32};
template <>
constexpr EntryForm kEntryForm<kernels::BlockIQ1_M> = {true, Codebook::kIq1, false, 8};
template <>
constexpr EntryForm kEntryForm<kernels::BlockIQ2_XXS> = {true, Codebook::kIq2Xxs, true};
template <>
constexpr EntryForm kEntryForm<kernels::BlockIQ2_XS> = {true, Codebook::kIq2Xs, true};
template <>
constexpr EntryForm kEntryForm<kernels::BlockIQ2_S> = {true, Codebook::kIq2S, false};
template <>
constexpr EntryForm kEntryForm<kernels::BlockIQ3_XXS> = {true, Codebook::kIq3Xxs, true};
template <>
constexpr EntryForm kEntryForm<kernels::BlockIQ3_S> = {true, Codebook::kIq3S, false};

// The best entries of a codebook for scales that are known. `w` are the weights of SIZE values.
class EntrySearch {
 public:
  EntrySearch(const CodebookTable& table, const float* w) : table_(table) {
    for (int i = 0; i < table.size; ++i) w_[i] = w[i];
    for (int v = 0; v < vectors(); ++v) {
      F16 q{};
      for (int i = 0; i < table.size; ++i) q += w[i] * values(v, i) * values(v, i);
      squares_[v] = q;
    }
  }
  // The entry e with the least sum of w (x - c e)^2.
  [[nodiscard]] int best(const float* x, float c) const {
    F16 most = all<F16>(-3e38f), found{};
    for (int v = 0; v < vectors(); ++v) {
      F16 p{};
      for (int i = 0; i < table_.size; ++i) p += (w_[i] * x[i]) * values(v, i);
      const F16 gain = 2 * c * p - c * c * squares_[v];
      const auto better = gain > most;
      most = better ? gain : most;
      found = better ? all<F16>(static_cast<float>(v)) : found;
    }
    int lane = 0;
    for (int l = 1; l < 16; ++l) lane = most[l] > most[lane] ? l : lane;
    return static_cast<int>(found[lane]) * 16 + lane;
  }

 private:
  [[nodiscard]] int vectors() const { return table_.entries / 16; }
  [[nodiscard]] F16 values(int vector, int i) const {
    F16 out;
    std::memcpy(&out, &table_.values[static_cast<size_t>((vector * table_.size + i) * 16)],
                sizeof out);
    return out;
  }

  const CodebookTable& table_;
  float w_[8] = {};
  F16 squares_[kVectors];
};

// Writes the codes q of a block, in the order of its values.
template <class Block>
void put_codes(const uint8_t* q, Block* b) {
  using namespace kernels;
  if constexpr (std::is_same_v<Block, BlockQ5_0> || std::is_same_v<Block, BlockQ5_1>) {
    pack_small<5>(q, b);
  } else if constexpr (std::is_same_v<Block, BlockQ3_K>) {
    pack_two_bits(q, b->qs);
    pack_high_bits(q, 2, b->hmask);
  } else if constexpr (std::is_same_v<Block, BlockQ2_K> || std::is_same_v<Block, BlockTQ2_0>) {
    pack_two_bits(q, b->qs);
  } else if constexpr (std::is_same_v<Block, BlockQ4_K>) {
    pack_k_nibbles(q, b->qs);
  } else if constexpr (std::is_same_v<Block, BlockQ5_K>) {
    pack_k_nibbles(q, b->qs);
    pack_high_bits(q, 4, b->qh);
  } else if constexpr (std::is_same_v<Block, BlockQ6_K>) {
    pack_six_bits(q, b);
  } else if constexpr (std::is_same_v<Block, BlockIQ4_XS>) {
    for (int j = 0; j < 8; ++j) pack_nibbles(q + 32 * j, b->qs + 16 * j);
  } else if constexpr (std::is_same_v<Block, BlockNVFP4>) {
    for (int j = 0; j < 4; ++j) {
      for (int i = 0; i < 8; ++i) b->qs[8 * j + i] = byte(q[16 * j + i] | q[16 * j + i + 8] << 4);
    }
  } else if constexpr (std::is_same_v<Block, BlockTQ1_0>) {
    pack_base3(q, b);
  } else if constexpr (std::is_same_v<Block, BlockQSFT>) {
    pack_ternary(q, b);
  } else if constexpr (std::is_same_v<Block, BlockQ1_0>) {
    pack_in_order<1>(q, b->qs);
  } else if constexpr (std::is_same_v<Block, BlockQ2_0> || std::is_same_v<Block, BlockQSF2>) {
    pack_in_order<2>(q, b->qs);
  } else if constexpr (std::is_same_v<Block, BlockQSF3>) {
    pack_in_order<3>(q, b->qs);
  } else if constexpr (std::is_same_v<Block, BlockQSF4>) {
    pack_in_order<4>(q, b->qs);
  } else {
    pack_nibbles(q, b->qs);
  }
}

}  // namespace
}  // namespace sluice::convert
