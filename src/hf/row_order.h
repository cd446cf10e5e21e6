// The order of the rows of query and key matrices in GGUF files. GGUF's converter permutes them for
// some architectures, so an adapter's rows must follow. Apart from the table of architectures
// (hf/architecture.h), because every engine has this.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice::hf {

// As in Hugging Face's checkpoint, or permuted.
enum class RowOrder : uint8_t { kUnknown, kAsThere, kPermuted };
[[nodiscard]] RowOrder row_order(std::string_view arch);

}  // namespace sluice::hf
