// Quantizes 16 rows of a span with error feedback, one row in each SIMD lane. A block is first
// quantized as a whole, which finds its scales. Then its codes are chosen one after another, each
// compensating the errors before it. The targets that they saw give the scales of the next round,
// and the round with the least cost stays. Codebooks do the same by octets and entries.
#pragma once

#include "convert/block_codes.h"
#include "convert/gptq.h"
#include "convert/quantize.h"

namespace sluice::convert {
namespace {

constexpr int kGptqRounds = 3;
static_assert(GptqRoom::kColumns == kMaxSpan);

// A type as its blocks are quantized here.
struct GptqType {
  int n;         // values in a block
  size_t bytes;  // of a block
  Quantize* quantize;
  int codes;  // kCodes
  void (*put)(const uint8_t* codes, uint8_t* block);
  EntryForm entries;
  void (*put_entries)(const uint16_t* entries, const uint8_t* signs, uint8_t* block);
};

using GptqLanes = Lanes<GptqRoom::kRows>;

inline GptqLanes load_rows(const float* from) {
  GptqLanes out;
  std::memcpy(&out, from, sizeof out);
  return out;
}
// The sum over k from `first` to `last` of e_k M_ki, M of a triangle of factors.
inline GptqLanes feedback_of(const float (*errors)[GptqRoom::kRows],
                             const std::vector<float>& triangle, int64_t i, int64_t first,
                             int64_t last) {
  const float* const m = triangle.data() + i * (i - 1) / 2;
  GptqLanes sums[4] = {};
  int64_t k = first;
  for (; k + 4 <= last; k += 4) {
    for (int u = 0; u < 4; ++u) sums[u] += load_rows(errors[k + u]) * m[k + u];
  }
  for (; k < last; ++k) sums[0] += load_rows(errors[k]) * m[k];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

class SpanQuantizer {
  static constexpr int L = GptqRoom::kRows, kOctet = static_cast<int>(SpanFactors::kOctet);
  static constexpr int kShared = 32;  // values with one shift, at most
  using F = GptqLanes;

 public:
  SpanQuantizer(const GptqType& type, const SpanFactors& factors, const GptqRows& rows,
                GptqRoom* room)
      : type_(type), factors_(factors), rows_(rows), room_(*room) {}

  void run() {
    for (int64_t at = 0; at < static_cast<int64_t>(factors_.cols); at += type_.n) quantize(at);
  }

 private:
  static F load(const float* from) { return load_rows(from); }
  static void store(const F& x, float* to) { std::memcpy(to, &x, sizeof x); }
  [[nodiscard]] F feedback(const std::vector<float>& triangle, int64_t i, int64_t first,
                           int64_t last) const {
    return feedback_of(room_.errors, triangle, i, first, last);
  }

  void quantize(int64_t at) {
    load_block(at);
    best_ = all<F>(3e38f);
    for (int round = 0; round < kGptqRounds; ++round) {
      fit_blocks(at);
      if (round == 0) consider(cost_of_values(at));
      if (type_.entries.is) {
        choose_entries(at);
        consider(cost_of_values(at));
      } else {
        fill_table();
        consider(choose_codes(at));
      }
    }
    for (int i = 0; i < type_.n; ++i) {
      store(load(room_.x[i]) - load(room_.best_values[i]), room_.errors[at + i]);
    }
    for (int l = 0; l < rows_.n; ++l) {
      std::memcpy(rows_.out + l * rows_.out_ld + at / type_.n * static_cast<int64_t>(type_.bytes),
                  block_of(room_.best_blocks, l), type_.bytes);
    }
  }
  // The values of a block, and its first targets.
  void load_block(int64_t at) {
    for (int i = 0; i < type_.n; ++i) {
      F x{};
      for (int l = 0; l < rows_.n; ++l) x[l] = rows_.x[l * rows_.ld + at + i];
      const F base = x + feedback(factors_.feedback, at + i, 0, at);
      store(x, room_.x[i]);
      store(base, room_.base[i]);
      const F target =
          type_.entries.is ? x + feedback(factors_.octet_feedback, at + i, 0, at) : base;
      store(target, room_.octet_base[i]);
      store(target, room_.targets[i]);
    }
  }

  // Quantizes the targets and decodes them.
  void fit_blocks(int64_t at) {
    const auto n = static_cast<size_t>(type_.n);
    for (size_t l = 0; l < L; ++l) {
      for (size_t i = 0; i < n; ++i) room_.row_x[l * n + i] = room_.targets[i][l];
      std::memcpy(room_.row_w + l * n, weights_at(at), n * sizeof(float));
    }
    type_.quantize(room_.row_x, room_.row_w, L * type_.n, room_.blocks);
    decode(room_.values, 1);
  }
  [[nodiscard]] const float* weights_at(int64_t at) const {
    return (type_.entries.is ? factors_.octet_weights : factors_.weights).data() + at;
  }
  // Decodes the blocks; value i of row l goes to values[i * stride][l].
  void decode(float (*values)[L], int stride) {
    rows_.kernels->dequantize(rows_.type, room_.blocks, L * type_.n, room_.row_x);
    for (int i = 0; i < type_.n; ++i) {
      for (int l = 0; l < L; ++l) values[i * stride][l] = room_.row_x[l * type_.n + i];
    }
  }
  [[nodiscard]] uint8_t* block_of(uint8_t* blocks, int l) const {
    return blocks + static_cast<size_t>(l) * type_.bytes;
  }

  // What column i of the block should be, after the errors before it.
  [[nodiscard]] F target_of(int64_t at, int i) const {
    return load(room_.base[i]) + feedback(factors_.feedback, at + i, at, at + i);
  }
  // The cost of the block's values. Leaves their errors.
  F cost_of_values(int64_t at) {
    F cost{};
    for (int i = 0; i < type_.n; ++i) {
      const F value = load(room_.values[i]), rest = target_of(at, i) - value;
      cost += factors_.weights[static_cast<size_t>(at + i)] * rest * rest;
      store(load(room_.x[i]) - value, room_.errors[at + i]);
    }
    return cost;
  }

  // The values of all codes at every place of the blocks.
  void fill_table() {
    uint8_t same[kSuper];
    for (int code = 0; code < type_.codes; ++code) {
      std::memset(same, code, sizeof same);
      for (int l = 0; l < L; ++l) type_.put(same, block_of(room_.blocks, l));
      decode(room_.table + code, type_.codes);
    }
  }
  // Chooses the codes in order and leaves the targets that they saw.
  F choose_codes(int64_t at) {
    F cost{};
    for (int i = 0; i < type_.n; ++i) {
      const F target = target_of(at, i);
      F least = all<F>(3e38f), value{}, chosen{};
      for (int code = 0; code < type_.codes; ++code) {
        const F other = load(room_.table[i * type_.codes + code]);
        const F rest = magnitude(F(target - other));
        const auto better = rest < least;
        least = better ? rest : least;
        value = better ? other : value;
        chosen = better ? all<F>(static_cast<float>(code)) : chosen;
      }
      cost += factors_.weights[static_cast<size_t>(at + i)] * least * least;
      store(value, room_.values[i]);
      store(target, room_.targets[i]);
      store(load(room_.x[i]) - value, room_.errors[at + i]);
      for (int l = 0; l < L; ++l) {
        room_.codes[l * type_.n + i] = byte(static_cast<int>(chosen[l]));
      }
    }
    for (int l = 0; l < L; ++l) type_.put(room_.codes + l * type_.n, block_of(room_.blocks, l));
    return cost;
  }

  // Chooses the entries of octets in order, and leaves the targets that they saw.
  void choose_entries(int64_t at) {
    const CodebookTable& table = codebook_table(type_.entries.codebook);
    std::memset(room_.entries, 0, sizeof room_.entries);
    std::memset(room_.signs, 0, sizeof room_.signs);
    put_entries();
    decode(room_.table, 1);  // the first entry everywhere, which gives the scales
    if (type_.entries.shifted > 0) {
      for (int first = 0; first < type_.n; first += type_.entries.shifted) {
        choose_shift(at, first, table);
      }
    } else {
      for (int first = 0; first < type_.n; first += kOctet) {
        set_targets(at, first);
        choose_octet(at, first, table);
      }
    }
    put_entries();
    decode(room_.values, 1);
  }
  // What the octet from value `first` of the block should be, after the errors before it.
  void set_targets(int64_t at, int first) {
    for (int i = first; i < first + kOctet; ++i) {
      const F before = feedback(factors_.octet_feedback, at + i, at, at + first);
      store(load(room_.octet_base[i]) + before, room_.targets[i]);
    }
  }
  void put_entries() {
    for (int l = 0; l < L; ++l) {
      type_.put_entries(room_.entries[l], room_.signs[l], block_of(room_.blocks, l));
    }
  }
  // Chooses the entries of the octet from value `first` of the block, and leaves its errors.
  void choose_octet(int64_t at, int first, const CodebookTable& table) {
    const float* const w = weights_at(at + first);
    for (int l = 0; l < L; ++l) {
      float x[kOctet];
      for (int i = 0; i < kOctet; ++i) x[i] = room_.targets[first + i][l];
      room_.signs[l][first / kOctet] =
          split_signs(x, w, type_.entries.even, room_.row_x + l * kOctet);
    }
    for (int part = 0; part < kOctet; part += table.size) {
      const EntrySearch search(table, w + part);
      const int from = first + part;
      for (int l = 0; l < L; ++l) {
        const float c = room_.table[from][l] / table.value(0, 0);
        const int entry = search.best(room_.row_x + l * kOctet + part, c);
        room_.entries[l][from / table.size] = static_cast<uint16_t>(entry);
        for (int i = 0; i < table.size; ++i) {
          const float size = c * table.value(entry, i);
          const bool negative = (room_.signs[l][first / kOctet] >> (part + i) & 1) != 0;
          room_.errors[at + from + i][l] = room_.x[from + i][l] - (negative ? -size : size);
        }
      }
    }
  }

  // Chooses the entries of the values that share a shift with both shifts, and keeps the better
  // shift of each row.
  void choose_shift(int64_t at, int first, const CodebookTable& table) {
    const int n = type_.entries.shifted, octets = n / kOctet;
    float targets[kShared][L], errors[kShared][L];
    uint16_t entries[L][kShared / kOctet];
    F cost[2] = {};
    for (int up = 0; up < 2; ++up) {
      for (int o = 0; o < octets; ++o) {
        set_targets(at, first + kOctet * o);
        cost[up] += choose_shifted_octet(at, first + kOctet * o, up != 0, table);
      }
      if (up != 0) break;
      std::memcpy(targets, room_.targets[first], static_cast<size_t>(n) * sizeof targets[0]);
      std::memcpy(errors, room_.errors[at + first], static_cast<size_t>(n) * sizeof errors[0]);
      for (int l = 0; l < L; ++l) {
        std::memcpy(entries[l], &room_.entries[l][first / kOctet],
                    static_cast<size_t>(octets) * sizeof entries[0][0]);
      }
    }
    for (int l = 0; l < L; ++l) {
      const bool up = cost[1][l] < cost[0][l];
      for (int o = 0; o < octets; ++o) {
        room_.signs[l][first / kOctet + o] = up ? 1 : 0;
        if (!up) room_.entries[l][first / kOctet + o] = entries[l][o];
      }
      for (int i = 0; i < n && !up; ++i) {
        room_.targets[first + i][l] = targets[i][l];
        room_.errors[at + first + i][l] = errors[i][l];
      }
    }
  }
  // Chooses the entries of an octet with one shift, and leaves its errors. Returns their cost.
  F choose_shifted_octet(int64_t at, int first, bool up, const CodebookTable& table) {
    const float* const w = weights_at(at + first);
    const EntrySearch search(table, w);
    const float shift = up ? kShift : -kShift;
    F cost{};
    for (int l = 0; l < L; ++l) {
      const float c = room_.table[first][l] / (table.value(0, 0) - kShift);
      float x[kOctet];
      for (int i = 0; i < kOctet; ++i) x[i] = room_.targets[first + i][l] - c * shift;
      const int entry = search.best(x, c);
      room_.entries[l][first / kOctet] = static_cast<uint16_t>(entry);
      for (int i = 0; i < kOctet; ++i) {
        const float value = table.value(entry, i), rest = x[i] - c * value;
        cost[l] += w[i] * rest * rest;
        room_.errors[at + first + i][l] = room_.x[first + i][l] - c * (value + shift);
      }
    }
    return cost;
  }

  // Keeps the blocks of the rows that cost less than before.
  void consider(const F& cost) {
    for (int l = 0; l < L; ++l) {
      if (!(cost[l] < best_[l])) continue;
      best_[l] = cost[l];
      std::memcpy(block_of(room_.best_blocks, l), block_of(room_.blocks, l), type_.bytes);
      for (int i = 0; i < type_.n; ++i) room_.best_values[i][l] = room_.values[i][l];
    }
  }

  const GptqType& type_;
  const SpanFactors& factors_;
  const GptqRows& rows_;
  GptqRoom& room_;
  F best_{};
};

// Calls change(block) on the block at `bytes`.
template <class Block, class Change>
void in_block(uint8_t* bytes, Change&& change) {
  Block block;
  std::memcpy(&block, bytes, sizeof block);
  change(&block);
  std::memcpy(bytes, &block, sizeof block);
}
template <class Block, int N>
void gptq_blocks(const SpanFactors& factors, const GptqRows& rows, GptqRoom* room) {
  GptqType type{
      N,      sizeof(Block), quantize_blocks<Block, N>, kCodes<Block>, nullptr, kEntryForm<Block>,
      nullptr};
  if constexpr (kEntryForm<Block>.is) {
    type.put_entries = [](const uint16_t* entries, const uint8_t* signs, uint8_t* bytes) {
      in_block<Block>(bytes, [&](Block* b) { pack_entries(entries, signs, b); });
    };
  } else {
    type.put = [](const uint8_t* codes, uint8_t* bytes) {
      in_block<Block>(bytes, [&](Block* b) { put_codes(codes, b); });
    };
  }
  SpanQuantizer(type, factors, rows, room).run();
}

// Adds the products of four columns, from `col` on, with those up to each of them.
void add_products(const float* x, int64_t ld, int32_t n, int64_t cols, int64_t col,
                  float* triangle) {
  constexpr int64_t L = 16, kAtOnce = 4;
  using F = Lanes<L>;
  const int64_t rows = cols - col < kAtOnce ? cols - col : kAtOnce;
  for (int64_t j = 0; j < col + rows; j += L) {
    const auto bytes = static_cast<size_t>(cols - j < L ? cols - j : L) * sizeof(float);
    F sums[kAtOnce] = {};
    for (int32_t t = 0; t < n; ++t) {
      const float* const at = x + t * ld;
      F others{};
      if (bytes == sizeof others) {
        std::memcpy(&others, at + j, sizeof others);
      } else {
        std::memcpy(&others, at + j, bytes);
      }
      for (int64_t r = 0; r < kAtOnce; ++r) sums[r] += others * at[col + (r < rows ? r : 0)];
    }
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t row = col + r, last = row - j < L - 1 ? row - j : L - 1;
      float* const to = triangle + row * (row + 1) / 2 + j;
      for (int64_t l = 0; l <= last; ++l) to[l] += sums[r][l];
    }
  }
}

}  // namespace
}  // namespace sluice::convert
