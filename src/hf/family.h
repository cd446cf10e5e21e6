// Families whose checkpoints differ from GGUF files only in names and a few settings. further.h has
// the other families.
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
  bool windowed = false;        // sliding_window always applies if it is set
  bool tied = false;            // embeddings are tied unless the config says otherwise
  bool lfm2 = false;            // lfm2.h
};

[[nodiscard]] std::span<const Family> families();

// The row order of query and key matrices in a GGUF of the family: as in Hugging Face's checkpoint,
// or permuted.
enum class RowOrder : uint8_t { kUnknown, kAsThere, kPermuted };
[[nodiscard]] RowOrder row_order(std::string_view arch);

}  // namespace sluice::hf
