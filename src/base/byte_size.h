// Sizes in bytes as people write them: "64M", "1.5 GB", "262144". One parser for options and
// environment variables; web/protocol/byte-size.ts is the package's, and tests/data/byte-sizes.json
// has cases for both.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace sluice {

inline constexpr uint64_t kMaxByteSize = 1ull << 53;  // what a double can count

// Digits with an optional fraction, an optional space, and B, or K, M, G or T (powers of 1024, also
// as KB or KiB) in either case. Errors: kInvalidArgument, also for more than kMaxByteSize.
[[nodiscard]] Result<uint64_t> parse_size(std::string_view text);

}  // namespace sluice
