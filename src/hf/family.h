// The families whose checkpoints differ from a GGUF file in names and a few settings; further.h has
// those that take more.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace sluice::hf {

struct Family {
  std::string_view model_type;  // config.json
  std::string_view arch;        // general.architecture
  bool gemma = false;           // norms stored as w - 1, GELU
  bool post_norms = false;      // norms after attention and FFN as well
  bool permuted = false;        // GGUF's converter permutes queries and keys
  bool windowed = false;        // sliding_window always applies where it is set
  bool tied = false;            // the head is the embedding unless the config says otherwise
  bool lfm2 = false;            // lfm2.h
};

[[nodiscard]] std::span<const Family> families();

// How the rows of queries and keys lie in a GGUF of the family: as in Hugging Face's, or permuted.
enum class RowOrder : uint8_t { kUnknown, kAsThere, kPermuted };
[[nodiscard]] RowOrder row_order(std::string_view arch);

}  // namespace sluice::hf
