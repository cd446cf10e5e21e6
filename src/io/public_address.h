// Which addresses a server may be made to connect to by those who use it: those of the public
// internet. Judged by the address of a connection, behind name resolution and redirects.
#pragma once

#include <cstdint>
#include <span>

namespace sluice::io {

// `bytes`: an IPv4 (4) or IPv6 (16) address in network order. False for loopback, private,
// link-local, shared, multicast, documentation, benchmarking and reserved addresses; and for IPv6
// addresses that stand for IPv4 ones (mapped, translated, 6to4, Teredo). False for other lengths.
[[nodiscard]] bool is_public_address(std::span<const uint8_t> bytes);

}  // namespace sluice::io
