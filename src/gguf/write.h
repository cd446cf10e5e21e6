// The inverse of parse.cpp: writes a Header as the bytes of a GGUF v3 file. Values are written as
// they are stored, so metadata is copied without being interpreted.
#pragma once

#include <string>

#include "gguf/gguf.h"

namespace sluice::gguf {

// The key-value section of a header: each key, type and value, without the count.
[[nodiscard]] std::string metadata_bytes(const Header& header);

// Lays out the tensors in the order in which they are listed: sets their offsets from the start of
// the file, and the header's data_offset. Returns the header's bytes up to there. The alignment is
// header.alignment, a power of two; the metadata names it unless it is 32.
[[nodiscard]] std::string place_and_write(Header* header);

// Writes a GGUF header for a model whose tensors lie anywhere in several files, for a reader that
// has the list of files. An offset is the file number << kPlacedBits plus the offset in that file.
// Errors: kBadHeader if a file is too large for that.
inline constexpr int kPlacedBits = 44;
[[nodiscard]] Result<std::string> write_placed(Header* header);
// Parses the result of write_placed for `n_files` files. Views in *out point into `bytes`. Errors:
// those of parse_header.
[[nodiscard]] Status parse_placed(Bytes bytes, uint32_t n_files, Header* out);

}  // namespace sluice::gguf
