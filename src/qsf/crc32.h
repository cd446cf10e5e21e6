// CRC-32 as in zlib, PNG and QSF (polynomial 0xEDB88320, reflected).
#pragma once

#include <cstdint>
#include <span>

namespace sluice::qsf {

// The CRC of `bytes`, continuing from bytes whose CRC is `before`.
[[nodiscard]] uint32_t crc32(std::span<const uint8_t> bytes, uint32_t before = 0);
// The same without special instructions, for processors that lack them.
[[nodiscard]] uint32_t crc32_by_tables(std::span<const uint8_t> bytes, uint32_t before = 0);
// The CRC of A followed by B, from the CRC of each and the length of B in bytes.
[[nodiscard]] uint32_t crc32_joined(uint32_t a, uint32_t b, uint64_t b_bytes);

}  // namespace sluice::qsf
