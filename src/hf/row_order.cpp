// Architectures whose order is known.
#include "hf/row_order.h"

namespace sluice::hf {
namespace {

constexpr std::string_view kPermutedArchs[] = {"llama", "mistral", "smollm3"};
constexpr std::string_view kArchsAsThere[] = {"qwen2", "qwen3",  "lfm2",   "lfm2moe",
                                              "gemma", "gemma2", "gemma3", "gemma-embedding"};

}  // namespace

RowOrder row_order(std::string_view arch) {
  for (const std::string_view name : kPermutedArchs) {
    if (arch == name) return RowOrder::kPermuted;
  }
  for (const std::string_view name : kArchsAsThere) {
    if (arch == name) return RowOrder::kAsThere;
  }
  return RowOrder::kUnknown;
}

}  // namespace sluice::hf
