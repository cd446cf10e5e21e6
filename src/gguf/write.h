// The other direction of parse.cpp: a Header as the bytes of a GGUF v3 file. Values are written as
// they are stored, so that what one file says of itself is copied without being understood.
#pragma once

#include <string>

#include "gguf/gguf.h"

namespace sluice::gguf {

// The key-value part of a header: each key, type and value, without their count.
[[nodiscard]] std::string metadata_bytes(const Header& header);

// Sets the offset of every tensor from the start of the file, in the order in which they are
// listed, and the header's data_offset; returns the header's bytes up to there. The alignment is
// header.alignment, a power of two that the metadata names where it is not 32.
[[nodiscard]] std::string place_and_write(Header* header);

// The header of a model whose tensors lie in several files wherever they lie, for a program that
// knows the files: a GGUF header whose offsets are addresses, file number << kPlacedBits and the
// offset in that file. Errors: kBadHeader where a file is too large for that.
inline constexpr int kPlacedBits = 44;
[[nodiscard]] Result<std::string> write_placed(Header* header);
// The way back, where there are `n_files` files. Views in *out point into `bytes`. Errors:
// parse_header's.
[[nodiscard]] Status parse_placed(Bytes bytes, uint32_t n_files, Header* out);

}  // namespace sluice::gguf
