// The merges of byte-level BPE: a hash table from a pair of token ids to the rank and the merged
// token. A slot is one 64-bit word (left, right and rank packed); merged tokens are stored by rank.
// 152k merges take 2.2 MB.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"
#include "tokenizer/merge.h"
#include "tokenizer/vocab.h"

namespace sluice::tokenizer {

class MergeTable {
 public:
  // Reads tokenizer.ggml.merges ("left right", best first). Both sides and the merged text must be
  // tokens. Merges that give a control token are skipped, so that text never becomes one.
  [[nodiscard]] Status load(const gguf::Header& header, const Vocab& vocab);

  [[nodiscard]] Merge find(Token left, Token right) const {
    const uint64_t key = pair_key(left, right);
    size_t slot = slot_of(key);
    for (uint64_t entry; (entry = slots_[slot]) != kFree;) {
      if (entry >> kRankBits == key) {
        const auto rank = static_cast<uint32_t>(entry & kRankMask);
        return {rank, products_[rank]};
      }
      if (++slot == slots_.size()) slot = 0;
    }
    return {};
  }
  [[nodiscard]] uint64_t memory_bytes() const {
    return slots_.capacity() * sizeof(uint64_t) + products_.capacity() * sizeof(Token);
  }

 private:
  static constexpr int kRankBits = 22;
  static constexpr int kTokenBits = 21;
  static constexpr uint64_t kRankMask = (1u << kRankBits) - 1;
  static constexpr uint64_t kFree = UINT64_MAX;
  static_assert(kMaxMerges < kRankMask && kMaxVocab <= 1u << (kTokenBits - 1));

  static uint64_t pair_key(Token left, Token right) {
    return static_cast<uint64_t>(left) << kTokenBits | static_cast<uint64_t>(right);
  }
  [[nodiscard]] size_t slot_of(uint64_t key) const {
    uint64_t h = key * 0x9E3779B97F4A7C15ull;
    h ^= h >> 32;
    h *= 0xD6E8FEB86659FD93ull;
    return static_cast<size_t>((h >> 32) * slots_.size() >> 32);
  }
  // Keeps the first of equal pairs.
  [[nodiscard]] Status insert(Token left, Token right, uint32_t rank);

  std::vector<uint64_t> slots_;
  std::vector<Token> products_;  // by rank
};

}  // namespace sluice::tokenizer
