// Native builds use the processor's instructions (crc32_simd.h), or eight tables of 256 entries for
// eight bytes per step. The browser only checks headers with this code, so one table of 16 entries
// is enough.
#include "qsf/crc32.h"

#include <array>
#include <cstring>

#include "qsf/crc32_simd.h"

namespace sluice::qsf {
namespace {

#if defined(__EMSCRIPTEN__)

uint32_t table_pass(std::span<const uint8_t> bytes, uint32_t sum) {
  uint32_t table[16];
  for (uint32_t i = 0; i < 16; ++i) table[i] = shifted(i, 4);
  for (const uint8_t byte : bytes) {
    sum ^= byte;
    for (int half = 0; half < 2; ++half) sum = (sum >> 4) ^ table[sum & 15];
  }
  return sum;
}

#else

using Tables = std::array<std::array<uint32_t, 256>, 8>;

// tables[k][b]: the contribution of byte b to the CRC, k bytes later.
constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t sum = b;
    for (auto& table : tables) table[b] = sum = shifted(sum, 8);
  }
  return tables;
}
constexpr Tables kTables = make_tables();

uint32_t table_pass(std::span<const uint8_t> bytes, uint32_t sum) {
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
    uint32_t low = 0, high = 0;
    std::memcpy(&low, bytes.data(), 4);
    std::memcpy(&high, bytes.data() + 4, 4);
    low ^= sum;
    sum = 0;
    for (size_t i = 0; i < 4; ++i) {
      sum ^= kTables[7 - i][(low >> (8 * i)) & 255] ^ kTables[3 - i][(high >> (8 * i)) & 255];
    }
  }
  for (const uint8_t byte : bytes) sum = (sum >> 8) ^ kTables[0][(sum ^ byte) & 255];
  return sum;
}

#endif

// Multiplies two polynomials modulo kPolynomial. Their highest power is the lowest bit.
uint32_t product(uint32_t a, uint32_t b) {
  uint32_t sum = 0;
  for (uint32_t bit = 0x80000000u; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) sum ^= b;
    b = shifted(b, 1);
  }
  return sum;
}

}  // namespace

uint32_t crc32(std::span<const uint8_t> bytes, uint32_t before) {
  uint32_t sum = ~before;
  if (has_crc_instructions()) sum = instruction_pass(&bytes, sum);
  return ~table_pass(bytes, sum);
}

uint32_t crc32_by_tables(std::span<const uint8_t> bytes, uint32_t before) {
  return ~table_pass(bytes, ~before);
}

// Advances A's CRC by the length of B: multiplies it by x to the power of B's bits.
uint32_t crc32_joined(uint32_t a, uint32_t b, uint64_t b_bytes) {
  uint32_t power = 0x80000000u;         // x^0
  uint32_t square = shifted(power, 8);  // x^8, of one byte
  for (; b_bytes != 0; b_bytes >>= 1) {
    if ((b_bytes & 1) != 0) power = product(power, square);
    square = product(square, square);
  }
  return product(power, a) ^ b;
}

}  // namespace sluice::qsf
