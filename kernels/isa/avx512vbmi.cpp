// A table entry of four or eight values is kept as one or two bytes of small codes, in tables of
// bytes by index. A shuffle looks up the codes of 64 indices in 128 entries. A second shuffle takes
// the codes of a quad apart, for all sixteen rows, and a third turns them into values. That takes a
// third of the instructions of copying entries row by row.
#define SLUICE_TARGET avx512vbmi
#include "kernels/isa/avx512vbmi.h"

#include "kernels/generic/decoded_types.h"
#include "kernels/isa/vbmi_decoders.h"

namespace sluice::kernels::avx512vbmi {
namespace {

constexpr int kPart = 128;  // entries that one shuffle looks up

SLUICE_INLINE __m512i vector_of(UnsignedLanes a) {
  return __builtin_bit_cast(__m512i, a);
}
SLUICE_INLINE LaneBytes lane_bytes(__m512i a) {
  return __builtin_bit_cast(LaneBytes, a);
}

// What an index stands for: kWidth values of at most kBits bits, in two bytes.
template <int kEntries>
struct CodeTables {
  alignas(64) uint8_t half[2][kEntries];
};

// Codes are places in `values`, which are distinct.
template <int kBits, int kEntries, class Entry, size_t kValues>
CodeTables<kEntries> code_tables(const Entry (&entries)[kEntries],
                                 const uint8_t (&values)[kValues]) {
  constexpr int kWidth = sizeof(Entry), kHalfWidth = kWidth / 2;
  CodeTables<kEntries> out = {};
  for (int k = 0; k < kEntries; ++k) {
    for (int i = 0; i < kWidth; ++i) {
      const uint8_t value = static_cast<uint8_t>(entries[k] >> 8 * i);
      unsigned code = 0;
      while (values[code] != value) ++code;
      out.half[i / kHalfWidth][k] |= static_cast<uint8_t>(code << kBits * (i % kHalfWidth));
    }
  }
  return out;
}

// The bytes of `table` at the indices whose low seven bits are in `low`; bit 7 + n is in upper[n].
template <int kEntries>
SLUICE_INLINE __m512i look_up_bytes(const uint8_t* table, __m512i low, const __mmask64* upper) {
  if constexpr (kEntries == kPart) {
    return _mm512_permutex2var_epi8(_mm512_load_si512(table), low, _mm512_load_si512(table + 64));
  } else {
    constexpr int kHalfOf = kEntries / 2;
    constexpr int kBit = __builtin_ctz(kHalfOf) - 7;
    const __m512i a = look_up_bytes<kHalfOf>(table, low, upper);
    const __m512i b = look_up_bytes<kHalfOf>(table + kHalfOf, low, upper);
    return _mm512_mask_blend_epi8(upper[kBit], a, b);
  }
}

// The codes of four indices of each row, in the bytes of its lane. The bits from 8 on of an index
// are the low bits of its byte of `high`.
struct FourCodes {
  __m512i half[2];
};
template <int kEntries>
SLUICE_INLINE FourCodes look_up_codes(const CodeTables<kEntries>& tables, __m512i low,
                                      __m512i high) {
  constexpr int kUpper = __builtin_ctz(kEntries) - 7;
  __mmask64 upper[kUpper];
  upper[0] = _mm512_movepi8_mask(low);
  SLUICE_UNROLL for (int n = 1; n < kUpper; ++n) {
    upper[n] = _mm512_test_epi8_mask(high, _mm512_set1_epi8(static_cast<char>(1 << (n - 1))));
  }
  return {{look_up_bytes<kEntries>(tables.half[0], low, upper),
           look_up_bytes<kEntries>(tables.half[1], low, upper)}};
}

// For a shuffle that takes eight bits from any place of 64: bit first + step * i of its row's lane
// for byte i.
SLUICE_INLINE __m512i places(int first, int step) {
  const auto byte = [&](int i) { return static_cast<uint64_t>((first + step * i) & 63); };
  const uint64_t lane = byte(0) | byte(1) << 8 | byte(2) << 16 | byte(3) << 24;
  return _mm512_set1_epi64(static_cast<int64_t>(lane | (lane + 0x20202020u) << 32));
}
SLUICE_INLINE __m512i take_bits(__m512i places, __m512i from) {
  return _mm512_multishift_epi64_epi8(places, from);
}
// `values` with kCodeOffset, repeated every four or eight bytes: a shuffle looks at six bits, and
// codes have two or three.
template <size_t kValues>
SLUICE_INLINE __m512i repeated(const uint8_t (&values)[kValues]) {
  static_assert(kValues == 3 || kValues == 8);
  const __m512i offset = _mm512_set1_epi8(kCodeOffset);
  if constexpr (kValues == 3) {
    return _mm512_add_epi8(_mm512_set1_epi32(values[0] | values[1] << 8 | values[2] << 16), offset);
  } else {
    int64_t eight;
    memcpy(&eight, values, 8);
    return _mm512_add_epi8(_mm512_set1_epi64(eight), offset);
  }
}

// The quads of octet `at` of codes of two bits.
SLUICE_INLINE Octet octet_of(const FourCodes& codes, int at, __m512i values) {
  const __m512i from = places(8 * at, 2);
  Octet out;
  SLUICE_UNROLL for (int i = 0; i < 2; ++i) {
    const __m512i code = take_bits(from, codes.half[i]);
    out.quad[i] = lane_bytes(_mm512_permutexvar_epi8(code, values));
  }
  return out;
}
// Quad `at` of codes of three bits, two in a byte.
SLUICE_INLINE LaneBytes quad_of(const FourCodes& codes, int at, __m512i values) {
  constexpr __mmask64 kSecond = 0xccccccccccccccccu;
  const __m512i first = take_bits(places(8 * at, 4), codes.half[0]);
  const __m512i code =
      _mm512_mask_multishift_epi64_epi8(first, kSecond, places(8 * at - 8, 4), codes.half[1]);
  return lane_bytes(_mm512_permutexvar_epi8(code, values));
}

// As put_signed, for entries that have the offset already.
SLUICE_INLINE void put_signed_offset(int octet, const Octet& entries, UnsignedLanes signs,
                                     Decoded out) {
  constexpr int kOwn[2] = {0x08040201, static_cast<int>(0x80402010u)};
  const __m512i own = vector_of(__builtin_bit_cast(UnsignedLanes, repeat_low_byte(signs)));
  const __m512i twice = _mm512_set1_epi8(static_cast<char>(2 * kCodeOffset));
  SLUICE_UNROLL for (int i = 0; i < 2; ++i) {
    const __m512i entry = __builtin_bit_cast(__m512i, entries.quad[i]);
    const __mmask64 negative = _mm512_test_epi8_mask(own, _mm512_set1_epi32(kOwn[i]));
    out.put_offset(2 * octet + i, 0,
                   lane_bytes(_mm512_mask_sub_epi8(entry, negative, twice, entry)));
  }
}

// Four octets of IQ2 with a byte of signs each; octet l is in byte kAt[l] of the codes.
template <int kEntries>
SLUICE_INLINE void put_iq2(const CodeTables<kEntries>& tables, int b, __m512i low, __m512i high,
                           const int (&at)[4], UnsignedLanes signs, Decoded out) {
  const FourCodes codes = look_up_codes(tables, low, high);
  const __m512i values = repeated(kIq2Values);
  SLUICE_UNROLL for (int l = 0; l < 4; ++l) {
    put_signed_offset(4 * b + l, octet_of(codes, at[l], values), signs >> 8 * l, out);
  }
}
constexpr int kInOrder[4] = {0, 1, 2, 3};

// Eight quads of IQ3, four of each half of sub-block b.
template <int kEntries>
SLUICE_INLINE void put_iq3(const CodeTables<kEntries>& tables, const uint8_t (&values)[8], int b,
                           const __m512i (&low)[2], const __m512i (&high)[2], UnsignedLanes signs,
                           Decoded out) {
  const __m512i value = repeated(values);
  SLUICE_UNROLL for (int half = 0; half < 2; ++half) {
    const FourCodes codes = look_up_codes(tables, low[half], high[half]);
    SLUICE_UNROLL for (int i = 0; i < 2; ++i) {
      const Octet octet = {{quad_of(codes, 2 * i, value), quad_of(codes, 2 * i + 1, value)}};
      put_signed_offset(4 * b + 2 * half + i, octet, signs >> 8 * (2 * half + i), out);
    }
  }
}

// Four octets of IQ1; the upper bits of their indices and delta's sign are kStep bits apart.
template <int kStep, int kDeltaBit>
SLUICE_INLINE void put_iq1(const uint8_t* words, int b, UnsignedLanes upper, Decoded out) {
  static const CodeTables<2048> tables = code_tables<2>(codebooks().iq1, kIq1Values);
  const __m512i high = take_bits(places(0, kStep), vector_of(upper));
  const FourCodes codes = look_up_codes(tables, vector_of(load_word(words, b, 0)), high);
  const __m512i values = repeated(kIq1Values);
  SLUICE_UNROLL for (int l = 0; l < 4; ++l) {
    const LaneBytes delta = delta_of(upper, kDeltaBit == 15 ? 15 : kStep * l + kDeltaBit);
    const Octet octet = octet_of(codes, l, values);
    out.put_offset(2 * (4 * b + l), 0, octet.quad[0] + delta);
    out.put_offset(2 * (4 * b + l) + 1, 0, octet.quad[1] + delta);
  }
}

}  // namespace

void decode_iq1_s(const uint8_t* block, uint8_t* codes, float* scales) {
  const Decoded out = {codes, scales};
  const uint8_t* words = block + kHalfStep;
  SLUICE_NO_UNROLL for (int b = 0; b < 8; ++b) {
    const UnsignedLanes high = load_word(words, 8 + b / 2, 0) >> 16 * (b % 2);
    out.put_scale(b, 0, odd_scale(high >> 12 & 7) * block_scale(block, 0, 0.125f));
    put_iq1<3, 15>(words, b, high, out);
  }
}

void decode_iq1_m(const uint8_t* words, uint8_t* codes, float* scales) {
  const Decoded out = {codes, scales};
  const F32 d = iq1_m_scale(words, 0);
  SLUICE_NO_UNROLL for (int b = 0; b < 8; ++b) {
    const UnsignedLanes high = load_word(words, 8 + b / 2, 0) >> 16 * (b % 2);
    out.put_half_scales(b, 0, iq1_m_scales(words, d, b, 0));
    put_iq1<4, 3>(words, b, high, out);
  }
}

void decode_iq2_xxs(const uint8_t* block, uint8_t* codes, float* scales) {
  static const CodeTables<256> tables = code_tables<2>(codebooks().iq2_xxs, kIq2Values);
  const Decoded out = {codes, scales};
  const uint8_t* words = block + kHalfStep;
  SLUICE_NO_UNROLL for (int b = 0; b < 8; ++b) {
    const __m512i low = vector_of(load_word(words, 2 * b, 0));
    const UnsignedLanes w = load_word(words, 2 * b + 1, 0);
    out.put_scale(b, 0, odd_scale(w >> 28) * block_scale(block, 0, 0.125f));
    put_iq2(tables, b, low, low, kInOrder, eight_signs(w), out);
  }
}

void decode_iq2_xs(const uint8_t* block, uint8_t* codes, float* scales) {
  static const CodeTables<512> tables = code_tables<2>(codebooks().iq2_xs, kIq2Values);
  constexpr int kAlternating[4] = {0, 2, 1, 3};
  const Decoded out = {codes, scales};
  const uint8_t* words = block + kHalfStep;
  const F32 d = block_scale(block, 0, 0.125f);
  SLUICE_NO_UNROLL for (int b = 0; b < 8; ++b) {
    const UnsignedLanes first = load_word(words, 2 * b, 0), last = load_word(words, 2 * b + 1, 0);
    const UnsignedLanes low = (first & 0x00ff00ffu) | (last & 0x00ff00ffu) << 8;
    const UnsignedLanes high = (first >> 8 & 0x00ff00ffu) | (last & 0xff00ff00u);
    out.put_half_scales(b, 0, nibble_scales(words + kBytesStep * 16, d, b, 0));
    put_iq2(tables, b, vector_of(low), vector_of(high), kAlternating, iq2_xs_signs(first, last),
            out);
  }
}

void decode_iq2_s(const uint8_t* block, uint8_t* codes, float* scales) {
  static const CodeTables<1024> tables = code_tables<2>(codebooks().iq2_s, kIq2Values);
  const Decoded out = {codes, scales};
  const uint8_t* words = block + kHalfStep;
  const F32 d = block_scale(block, 0, 0.125f);
  SLUICE_NO_UNROLL for (int b = 0; b < 8; ++b) {
    const UnsignedLanes upper = load_word(words, 16 + b / 4, 0) >> 8 * (b % 4);
    const __m512i high = take_bits(places(0, 2), vector_of(upper));
    out.put_half_scales(b, 0, nibble_scales(words + kBytesStep * 18, d, b, 0));
    put_iq2(tables, b, vector_of(load_word(words, b, 0)), high, kInOrder,
            load_word(words, 8 + b, 0), out);
  }
}

void decode_iq3_xxs(const uint8_t* block, uint8_t* codes, float* scales) {
  static const CodeTables<256> tables = code_tables<4>(codebooks().iq3_xxs, kIq3XxsValues);
  const Decoded out = {codes, scales};
  const uint8_t* words = block + kHalfStep;
  SLUICE_NO_UNROLL for (int b = 0; b < 8; ++b) {
    const __m512i low[2] = {vector_of(load_word(words, 2 * b, 0)),
                            vector_of(load_word(words, 2 * b + 1, 0))};
    const UnsignedLanes w = load_word(words, 16 + b, 0);
    out.put_scale(b, 0, odd_scale(w >> 28) * block_scale(block, 0, 0.25f));
    put_iq3(tables, kIq3XxsValues, b, low, low, eight_signs(w), out);
  }
}

void decode_iq3_s(const uint8_t* block, uint8_t* codes, float* scales) {
  static const CodeTables<512> tables = code_tables<4>(codebooks().iq3_s, kIq3SValues);
  const Decoded out = {codes, scales};
  const uint8_t* words = block + kHalfStep;
  SLUICE_NO_UNROLL for (int b = 0; b < 8; ++b) {
    const UnsignedLanes upper = load_word(words, 16 + b / 4, 0) >> 8 * (b % 4);
    const __m512i low[2] = {vector_of(load_word(words, 2 * b, 0)),
                            vector_of(load_word(words, 2 * b + 1, 0))};
    const __m512i high[2] = {take_bits(places(0, 1), vector_of(upper)),
                             take_bits(places(4, 1), vector_of(upper))};
    out.put_scale(b, 0,
                  odd_scale(load_word(words, 26, 0) >> 4 * b & 15) * block_scale(block, 0, 1));
    put_iq3(tables, kIq3SValues, b, low, high, load_word(words, 18 + b, 0), out);
  }
}

}  // namespace sluice::kernels::avx512vbmi
