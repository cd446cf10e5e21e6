// SHA-256 (FIPS 180-4), for fixtures that are listed by their hash.
#pragma once

#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

namespace sluice::test {

// Tests are compiled without optimization, where calls of std::array and std::rotr cost most.
inline std::string sha256(std::span<const uint8_t> data) {
  static constexpr uint32_t kRounds[64] = {
      0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
      0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
      0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
      0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
      0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
      0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
      0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
      0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
      0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
      0xc67178f2};
  uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                       0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::vector<uint8_t> padded(data.begin(), data.end());
  padded.push_back(0x80);
  while (padded.size() % 64 != 56) padded.push_back(0);
  for (int shift = 56; shift >= 0; shift -= 8) {
    padded.push_back(static_cast<uint8_t>(uint64_t{data.size()} * 8 >> shift));
  }
  uint32_t w[64];
  const auto turned = [&w](size_t i, int low, int high, int shift) {
    const uint32_t x = w[i];
    return (x >> low | x << (32 - low)) ^ (x >> high | x << (32 - high)) ^ x >> shift;
  };
  for (size_t at = 0; at < padded.size(); at += 64) {
    const uint8_t* in = &padded[at];
    for (size_t i = 0; i < 16; ++i, in += 4) {
      w[i] = uint32_t{in[0]} << 24 | uint32_t{in[1]} << 16 | uint32_t{in[2]} << 8 | in[3];
    }
    for (size_t i = 16; i < 64; ++i) {
      w[i] = w[i - 16] + w[i - 7] + turned(i - 15, 7, 18, 3) + turned(i - 2, 17, 19, 10);
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (size_t i = 0; i < 64; ++i) {
      const uint32_t one = h + ((e >> 6 | e << 26) ^ (e >> 11 | e << 21) ^ (e >> 25 | e << 7)) +
                           ((e & f) ^ (~e & g)) + kRounds[i] + w[i];
      const uint32_t two = ((a >> 2 | a << 30) ^ (a >> 13 | a << 19) ^ (a >> 22 | a << 10)) +
                           ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + one, d = c, c = b, b = a, a = one + two;
    }
    const uint32_t end[8] = {a, b, c, d, e, f, g, h};
    for (size_t i = 0; i < 8; ++i) state[i] += end[i];
  }
  std::string hex;
  for (const uint32_t word : state) {
    char text[9];
    std::snprintf(text, sizeof text, "%08x", word);
    hex += text;
  }
  return hex;
}

}  // namespace sluice::test
