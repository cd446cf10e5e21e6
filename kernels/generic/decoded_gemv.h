// One token times packed blocks of decoded types, without storing codes: entries go from their
// table into registers, a quad of four rows in each vector, and are multiplied there. The sums and
// their order are those of generic/decoded_matmul.h, so results are bit-identical. For WebAssembly
// only, where storing and reading codes took most of the time.
#pragma once

#include "kernels/generic/decoded_types.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

static_assert(kLanes == 4 && kHalvesOnly);

template <class To, class From>
SLUICE_INLINE To cast(From a) {
  return __builtin_bit_cast(To, a);
}

// Addresses of the entries of four rows, whose offsets in the table are given. They reach scalar
// registers by way of memory, so that adding the table takes one operation for all rows.
struct EntryAddresses {
  const uint32_t* rows;
  uint32_t stored[kLanes];

  SLUICE_INLINE_METHOD EntryAddresses(const void* table, UnsignedLanes offset) : rows(stored) {
    const UnsignedLanes at =
        offset + every_lane(static_cast<uint32_t>(reinterpret_cast<uintptr_t>(table)));
    memcpy(stored, &at, sizeof stored);
    asm("" : "+r"(rows));
  }
  SLUICE_INLINE_METHOD const void* operator[](int r) const {
    return reinterpret_cast<const void*>(static_cast<uintptr_t>(rows[r]));
  }
};

// A sub-block of kLanes rows and its activations.
struct SubBlock {
  const uint8_t* words;  // of the block
  int b, v;
  UnsignedLanes extra;  // four bytes of signs, or what has the deltas, or the bits
  const ActBlock& x;
};
template <class K>
SLUICE_INLINE UnsignedLanes extra_of(const uint8_t* words, int b, int v) {
  if constexpr (K::kCoding == Coding::kSigns) return K::signs(words, b, v);
  if constexpr (K::kCoding == Coding::kDeltas) return K::upper(words, b, v);
  if constexpr (K::kCoding == Coding::kBits) return load_word(words, b, v);
  return {};
}

// Octet `octet` of a sub-block's entries.
template <class K, class Entry>
SLUICE_INLINE Octet load_octet(const Entry* table, const SubBlock& s, int octet) {
  if constexpr (sizeof(Entry) == 8) {
    const EntryAddresses a(table, K::template index<3>(s.words, s.b, octet, s.v));
    return octet_of(cast<UnsignedLanes>(load_qwords(a[0], a[1])),
                    cast<UnsignedLanes>(load_qwords(a[2], a[3])));
  } else {
    Octet out;
    SLUICE_UNROLL for (int i = 0; i < 2; ++i) {
      const EntryAddresses a(table, K::template index<2>(s.words, s.b, 2 * octet + i, s.v));
      out.quad[i] = cast<LaneBytes>(load_dwords(a[0], a[1], a[2], a[3]));
    }
    return out;
  }
}

// The sum over columns from 16 * kWhich of the sub-block on, of entries with signs. The signs turn
// the activations, because entries are small positive numbers.
template <class K, int kWhich, class Entry>
SLUICE_INLINE I32 dot_signed_entries(const Entry* table, const SubBlock& s) {
  using S = Sum<K::kMax, 8>;
  constexpr int kEvery = kSettleEvery<S> < 4 ? kSettleEvery<S> : 4;
  S sum = start<S>(splat_i32(0));
  SLUICE_UNROLL for (int octet = 2 * kWhich; octet < 2 * kWhich + 2; ++octet) {
    const Octet entries = load_octet<K>(table, s, octet);
    const LaneBytes own = repeat_low_byte(s.extra >> 8 * octet);
    const LaneBytes negative[2] = {where_set<0>(own), where_set<1>(own)};
    SLUICE_UNROLL for (int i = 0; i < 2; ++i) {
      const int quad = 2 * octet + i;
      sum = dot_negated(sum, cast<Bytes>(entries.quad[i]), cast<Bytes>(negative[i]), s.x, quad);
      if ((quad + 1) % kEvery == 0) settle(sum);
    }
  }
  return finish(sum);
}
// The same for codes(octet), which have 1 << kShift added.
template <int kShift, int kWhich, class F>
SLUICE_INLINE I32 dot_offset_codes(const ActBlock& x, const F& codes) {
  using S = Sum<kMaxSmallCode, 8>;
  S sum = start_decoded<S, kShift, 4 * kWhich, 4>(x.m);
  SLUICE_UNROLL for (int octet = 2 * kWhich; octet < 2 * kWhich + 2; ++octet) {
    const Octet both = codes(octet);
    SLUICE_UNROLL for (int i = 0; i < 2; ++i) {
      sum = dot(sum, prepare(cast<Bytes>(both.quad[i])), load_quad(x, 2 * octet + i));
    }
  }
  settle(sum);
  return finish(sum);
}
// The same for bits, which stand for -1 and 1: twice the activations whose bit is set, less all.
template <int kWhich>
SLUICE_INLINE I32 dot_bits(const ActBlock& x, UnsignedLanes bits) {
  using S = Sum<1, 8>;
  S sum = start<S>(splat_i32(0));
  SLUICE_UNROLL for (int octet = 2 * kWhich; octet < 2 * kWhich + 2; ++octet) {
    const LaneBytes own = repeat_low_byte(bits >> 8 * octet);
    const LaneBytes set[2] = {own & own_bit<0>(), own & own_bit<1>()};
    SLUICE_UNROLL for (int i = 0; i < 2; ++i) {
      sum = dot(sum, prepare(at_most_one(cast<Bytes>(set[i]))), load_quad(x, 2 * octet + i));
    }
  }
  settle(sum);
  return shl<1>(finish(sum)) + splat_i32(half_sum(x.m.nsum16[kWhich]));
}

// IQ1's delta in every byte, with kCodeOffset: -1 where the bit is set, else 1.
SLUICE_INLINE LaneBytes offset_delta(UnsignedLanes high, int bit) {
  constexpr uint32_t kPlus = 0x01010101u * (kCodeOffset + 1),
                     kMinus = 0x01010101u * (kCodeOffset - 1);
  const auto set = cast<UnsignedLanes>(cast<Lanes>(high << (31 - bit)) >> 31);
  return cast<LaneBytes>((set & constant_lanes<kPlus ^ kMinus>()) ^ constant_lanes<kPlus>());
}

template <class K, int kWhich, class Entry>
SLUICE_INLINE I32 dot_half(const SubBlock& s, [[maybe_unused]] const Entry* table) {
  if constexpr (K::kCoding == Coding::kSigns) {
    return dot_signed_entries<K, kWhich>(table, s);
  } else if constexpr (K::kCoding == Coding::kDeltas) {
    return dot_offset_codes<kCodeShift, kWhich>(s.x, [&](int octet) SLUICE_INLINE_LAMBDA {
      const Octet entries = load_octet<K>(table, s, octet);
      const LaneBytes delta = offset_delta(s.extra, K::kDeltaBit + K::kDeltaStep * octet);
      return Octet{{entries.quad[0] + delta, entries.quad[1] + delta}};
    });
  } else if constexpr (K::kCoding == Coding::kBits) {
    return dot_bits<kWhich>(s.x, s.extra);
  } else {
    return dot_offset_codes<K::kShift, kWhich>(s.x, [&](int octet) SLUICE_INLINE_LAMBDA {
      const int half = 2 * s.b + octet / 2, j = octet % 2 * 2;
      return Octet{{K::codes(s.words, half, j, s.v), K::codes(s.words, half, j + 1, s.v)}};
    });
  }
}

template <class K>
constexpr bool kHasTable = K::kCoding == Coding::kSigns || K::kCoding == Coding::kDeltas;
template <class K>
SLUICE_INLINE auto table_of() {
  if constexpr (kHasTable<K>) {
    return K::table();
  } else {
    return static_cast<const void*>(nullptr);
  }
}

// Adds a block times its activations to the sums of its rows.
template <class K>
void multiply_block(const uint8_t* block, const ActBlock* x, float* sums) {
  const uint8_t* words = K::words(block);
  const auto* table = table_of<K>();
  SLUICE_NO_UNROLL for (int v = 0; v < kVecs; ++v) {
    const F32 d = K::scale(block, v);
    F32 acc[1][1] = {{load(sums + kLanes * v)}};
    SLUICE_NO_UNROLL for (int b = 0; b < K::kValues / kActValues; ++b) {
      const SubBlock s = {words, b, v, extra_of<K>(words, b, v), x[b]};
      const I32 first[1][1] = {{dot_half<K, 0>(s, table)}};
      const I32 second[1][1] = {{dot_half<K, 1>(s, table)}};
      const SubScales scales = K::scales(words, d, b, v);
      const F32 dw[2][1] = {{scales.half[0]}, {scales.half[1]}};
      accumulate_scaled_halves({reinterpret_cast<const uint8_t*>(x), 0}, b, first, second, dw[0],
                               dw[1], acc);
    }
    store(sums + kLanes * v, acc[0][0]);
  }
}

// The function for one token, or null: without relaxed instructions, types without a table gain too
// little for their code size.
using MultiplyBlock = void (*)(const uint8_t* block, const ActBlock* x, float* sums);
template <class K>
constexpr MultiplyBlock one_token_function() {
  if constexpr (kHasTable<K> || kTiledActs) {
    return multiply_block<K>;
  } else {
    return nullptr;
  }
}

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET
