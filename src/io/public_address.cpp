// The ranges are those of IANA's registries of special-purpose addresses (RFC 6890 and later).
#include "io/public_address.h"

#include <algorithm>
#include <array>

namespace sluice::io {
namespace {

// The addresses whose first `bits` bits are those of `bytes`.
struct Range {
  std::array<uint8_t, 8> bytes;
  int bits;
};

constexpr Range kNotPublic4[] = {
    {{0}, 8},              // this network
    {{10}, 8},             // private
    {{100, 64}, 10},       // shared by a provider's customers
    {{127}, 8},            // loopback
    {{169, 254}, 16},      // link-local, with metadata of clouds
    {{172, 16}, 12},       // private
    {{192, 0, 0}, 24},     // protocol assignments
    {{192, 0, 2}, 24},     // documentation
    {{192, 88, 99}, 24},   // 6to4 relays
    {{192, 168}, 16},      // private
    {{198, 18}, 15},       // benchmarking
    {{198, 51, 100}, 24},  // documentation
    {{203, 0, 113}, 24},   // documentation
    {{224}, 4},            // multicast
    {{240}, 4},            // reserved, broadcast
};

constexpr Range kGlobal6 = {{0x20}, 3};
// Of the global ones.
constexpr Range kNotPublic6[] = {
    {{0x20, 0x01, 0x00}, 23},        // protocol assignments, Teredo
    {{0x20, 0x01, 0x0d, 0xb8}, 32},  // documentation
    {{0x20, 0x02}, 16},              // 6to4
    {{0x3f, 0xff}, 20},              // documentation
};

bool is_in(std::span<const uint8_t> address, const Range& range) {
  for (int bit = 0; bit < range.bits; ++bit) {
    const auto at = static_cast<size_t>(bit / 8);
    const int mask = 0x80 >> bit % 8;
    if (((address[at] ^ range.bytes[at]) & mask) != 0) return false;
  }
  return true;
}

}  // namespace

bool is_public_address(std::span<const uint8_t> bytes) {
  const auto holds = [bytes](const Range& range) { return is_in(bytes, range); };
  if (bytes.size() == 4) {
    return std::none_of(std::begin(kNotPublic4), std::end(kNotPublic4), holds);
  }
  return bytes.size() == 16 && holds(kGlobal6) &&
         std::none_of(std::begin(kNotPublic6), std::end(kNotPublic6), holds);
}

}  // namespace sluice::io
