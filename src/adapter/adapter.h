// Parses LoRA adapters (https://arxiv.org/abs/2106.09685). For some of a model's matrices W, an
// adapter has two low-rank matrices A and B, and W x becomes W x + scale B (A x). Parsing does no
// I/O; session/adapter_set.h applies the adapters. Two formats are supported: GGUF (general.type
// "adapter"), whose tensors have the model's own names, and PEFT directories (adapter_config.json,
// adapter_model.safetensors), whose modules have Hugging Face's names. The npm package passes the
// latter on as a GGUF with the key sluice.checkpoint (web/api/peft.ts).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"

namespace sluice::adapter {

inline constexpr uint64_t kMaxRank = 1024;
inline constexpr uint64_t kMaxDirectory = 16ull << 20;  // bytes before the tensors
inline constexpr uint64_t kMaxConfig = 1ull << 20;      // bytes of adapter_config.json
inline constexpr size_t kMaxAdapters = 16;              // in use at the same time

inline constexpr std::string_view kEmbedding = "token_embd.weight";

// Matrices A and B for one tensor of the model. Offsets are from the start of the file that holds
// the tensors; the names in `a` and `b` are empty.
struct Pair {
  std::string name;     // of the model's tensor
  gguf::Tensor a;       // [slices][rank][columns]; for the token embedding [tokens][rank]
  gguf::Tensor b;       // [slices][rows][rank]
  int64_t rank = 0;     // 1 to kMaxRank
  bool turned = false;  // for the token embedding: `a` is transposed, [rank][tokens]
};

struct Adapter {
  std::string arch;              // general.architecture; empty: unknown
  bool hugging_face = false;     // module names and row order are those of Hugging Face models
  double alpha = 0;              // 0: no scaling
  bool rank_stabilized = false;  // https://arxiv.org/abs/2312.03732
  std::vector<Pair> pairs;       // by name

  // The factor of B (A x), without the caller's own factor.
  [[nodiscard]] double scale(int64_t rank) const;
};

// An adapter to apply, and a function that reads its file.
struct Source {
  const Adapter* adapter = nullptr;
  float scale = 1;  // the caller's factor; 0: no effect
  std::function<Status(uint64_t offset, std::span<uint8_t> out)> read;
};

// Both parse the first bytes of the file that holds the tensors and report how many more they need.
// `file_size` is in bytes; 0: unknown. Errors: those of the GGUF and safetensors parsers;
// kBadHeader (not an adapter, an invalid value, half of a pair), kBadShape, kUnsupportedType, and
// kUnsupportedArchitecture for anything but plain LoRA, naming the tensor or key.
[[nodiscard]] Result<gguf::ParseProgress> parse_gguf(gguf::Bytes prefix, uint64_t file_size,
                                                     Adapter* out);
[[nodiscard]] Result<gguf::ParseProgress> parse_peft(std::string_view config, gguf::Bytes prefix,
                                                     uint64_t file_size, Adapter* out);

}  // namespace sluice::adapter
