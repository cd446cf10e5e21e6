// The table of families.
#include "hf/family.h"

namespace sluice::hf {
namespace {

constexpr Family kFamilies[] = {
    {.model_type = "llama", .arch = "llama", .permuted = true},
    {.model_type = "mistral", .arch = "mistral", .permuted = true, .windowed = true},
    {.model_type = "smollm3", .arch = "smollm3", .permuted = true, .tied = true},
    {.model_type = "qwen2", .arch = "qwen2"},
    {.model_type = "qwen3", .arch = "qwen3"},
    {.model_type = "lfm2", .arch = "lfm2", .tied = true, .lfm2 = true},
    {.model_type = "lfm2_moe", .arch = "lfm2moe", .tied = true, .lfm2 = true},
    {.model_type = "gemma", .arch = "gemma", .gemma = true, .tied = true},
    {.model_type = "gemma2",
     .arch = "gemma2",
     .gemma = true,
     .post_norms = true,
     .windowed = true,
     .tied = true},
    {.model_type = "gemma3_text",
     .arch = "gemma3",
     .gemma = true,
     .post_norms = true,
     .windowed = true,
     .tied = true},
    {.model_type = "gemma3_text",
     .arch = "gemma-embedding",
     .gemma = true,
     .post_norms = true,
     .windowed = true,
     .tied = true},
};

}  // namespace

std::span<const Family> families() {
  return kFamilies;
}

RowOrder row_order(std::string_view arch) {
  for (const Family& family : families()) {
    if (family.arch == arch) return family.permuted ? RowOrder::kPermuted : RowOrder::kAsThere;
  }
  return RowOrder::kUnknown;
}

}  // namespace sluice::hf
