// Merges adjacent symbols of a word, the core of both kinds of BPE. The pair of lowest rank merges
// first; among equal ranks, the leftmost. Short words are scanned, within one cache line. Longer
// ones use a heap over a linked list, so that even a megabyte of "a" takes n log n steps. The
// caller supplies `rank`, which returns the merge of two neighbours.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "tokenizer/tokenizer.h"
#include "tokenizer/try_reserve.h"

namespace sluice::tokenizer {

inline constexpr uint32_t kNoRank = 0xFFFFFFFF;

struct Symbol {
  uint32_t begin = 0;  // bytes into the word
  uint32_t bytes = 0;
  Token id = -1;
};

// The merge of a pair of neighbours; rank is kNoRank if they do not merge.
struct Merge {
  uint32_t rank = kNoRank;
  Token id = -1;
};

// Buffers reused from word to word within one encode call.
struct MergeScratch {
  std::vector<Symbol> symbols;
  std::vector<Merge> merges;   // of symbol i with its right neighbour
  std::vector<uint32_t> next;  // linked list for long words
  std::vector<uint32_t> prev;
  std::vector<uint64_t> heap;  // rank << 32 | index of the left symbol
  bool out_of_memory = false;  // a buffer could not grow; encoding stops
};

inline constexpr size_t kScanLimit = 40;

// Merges scratch->symbols until no pair has a rank. `rank(left, right)` returns a Merge.
template <typename Rank>
void merge_by_scan(MergeScratch* scratch, Rank&& rank) {
  auto& symbols = scratch->symbols;
  Merge merges[kScanLimit];
  size_t n = symbols.size();
  for (size_t i = 0; i + 1 < n; ++i) merges[i] = rank(symbols[i], symbols[i + 1]);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].rank == kNoRank) break;
    symbols[best].bytes += symbols[best + 1].bytes;
    symbols[best].id = merges[best].id;
    --n;
    for (size_t i = best + 1; i < n; ++i) symbols[i] = symbols[i + 1];
    for (size_t i = best; i + 1 < n; ++i) merges[i] = merges[i + 1];
    if (best > 0) merges[best - 1] = rank(symbols[best - 1], symbols[best]);
    if (best + 1 < n) merges[best] = rank(symbols[best], symbols[best + 1]);
  }
  symbols.resize(n);
}

// A merge removes one entry from the heap and adds at most two, so the heap never has more than
// twice as many entries as there are symbols.
[[nodiscard]] inline bool make_merge_room(MergeScratch* scratch, size_t n) {
  return renew_room(&scratch->merges, n) && renew_room(&scratch->next, n) &&
         renew_room(&scratch->prev, n) && renew_room(&scratch->heap, 2 * n);
}

template <typename Rank>
void merge_by_heap(MergeScratch* scratch, Rank&& rank) {
  auto& symbols = scratch->symbols;
  auto& merges = scratch->merges;
  auto& next = scratch->next;
  auto& prev = scratch->prev;
  auto& heap = scratch->heap;
  const auto n = static_cast<uint32_t>(symbols.size());
  constexpr uint32_t kEnd = 0xFFFFFFFF;
  if (!make_merge_room(scratch, n)) {
    scratch->out_of_memory = true;
    return;
  }
  merges.assign(n, Merge{});
  next.resize(n);
  prev.resize(n);
  for (uint32_t i = 0; i < n; ++i) {
    next[i] = i + 1 < n ? i + 1 : kEnd;
    prev[i] = i > 0 ? i - 1 : kEnd;
    if (i + 1 < n) merges[i] = rank(symbols[i], symbols[i + 1]);
    if (merges[i].rank != kNoRank) heap.push_back(static_cast<uint64_t>(merges[i].rank) << 32 | i);
  }
  const auto later = std::greater<uint64_t>();
  std::make_heap(heap.begin(), heap.end(), later);
  const auto update = [&](uint32_t i) {
    merges[i] = next[i] == kEnd ? Merge{} : rank(symbols[i], symbols[next[i]]);
    if (merges[i].rank == kNoRank) return;
    heap.push_back(static_cast<uint64_t>(merges[i].rank) << 32 | i);
    std::push_heap(heap.begin(), heap.end(), later);
  };
  while (!heap.empty()) {
    const uint64_t top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), later);
    heap.pop_back();
    const auto left = static_cast<uint32_t>(top);
    if (merges[left].rank != static_cast<uint32_t>(top >> 32)) continue;  // an outdated entry
    const uint32_t right = next[left];
    symbols[left].bytes += symbols[right].bytes;
    symbols[left].id = merges[left].id;
    merges[right] = Merge{};
    symbols[right].bytes = 0;
    next[left] = next[right];
    if (next[left] != kEnd) prev[next[left]] = left;
    update(left);
    if (prev[left] != kEnd) update(prev[left]);
  }
  symbols.erase(std::remove_if(symbols.begin(), symbols.end(),
                               [](const Symbol& symbol) { return symbol.bytes == 0; }),
                symbols.end());
}

template <typename Rank>
void merge_symbols(MergeScratch* scratch, Rank&& rank) {
  if (scratch->symbols.size() < 2) return;
  if (scratch->symbols.size() <= kScanLimit) {
    merge_by_scan(scratch, rank);
  } else {
    merge_by_heap(scratch, rank);
  }
}

}  // namespace sluice::tokenizer
