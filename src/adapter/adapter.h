// LoRA adapters (https://arxiv.org/abs/2106.09685) as their files describe them: for some of a
// model's matrices W two thin ones, with which W x becomes W x + scale B (A x). Like the headers of
// models this is read without I/O; what a model makes of it, session/adapter_set.h says. Two forms:
// GGUF (general.type "adapter"), whose tensors have the model's own names, and PEFT's directories
// (adapter_config.json, adapter_model.safetensors), whose modules have Hugging Face's. The package
// hands on the latter as a GGUF with the key sluice.checkpoint (web/api/peft.ts).
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
inline constexpr uint64_t kMaxConfig = 1ull << 20;      // of adapter_config.json
inline constexpr size_t kMaxAdapters = 16;              // at once

inline constexpr std::string_view kEmbedding = "token_embd.weight";

// Offsets are from the start of the file that holds the tensors; the tensors' own names are empty.
struct Pair {
  std::string name;     // of the model's tensor
  gguf::Tensor a;       // [slices][rank][columns]; of the embedding [tokens][rank]
  gguf::Tensor b;       // [slices][rows][rank]
  int64_t rank = 0;     // 1 to kMaxRank
  bool turned = false;  // the embedding's a is [rank][tokens]
};

struct Adapter {
  std::string arch;              // general.architecture; empty: the file does not say
  bool hugging_face = false;     // modules are named, and rows ordered, as in Hugging Face's models
  double alpha = 0;              // 0: pairs are not scaled by it
  bool rank_stabilized = false;  // https://arxiv.org/abs/2312.03732
  std::vector<Pair> pairs;       // by name

  // What B (A x) is multiplied by, before the caller's own factor.
  [[nodiscard]] double scale(int64_t rank) const;
};

// An adapter to be used, and how its file is read.
struct Source {
  const Adapter* adapter = nullptr;
  float scale = 1;  // 0: as if it were not there
  std::function<Status(uint64_t offset, std::span<uint8_t> out)> read;
};

// Both look at the first bytes of the file that holds the tensors, of `file_size` bytes (0: not
// known), and say how many more they need. Errors: those of the containers' parsers; kBadHeader
// (no adapter, a value that is impossible, half of a pair), kBadShape, kUnsupportedType,
// kUnsupportedArchitecture for what is no plain LoRA, naming the tensor or the key.
[[nodiscard]] Result<gguf::ParseProgress> parse_gguf(gguf::Bytes prefix, uint64_t file_size,
                                                     Adapter* out);
[[nodiscard]] Result<gguf::ParseProgress> parse_peft(std::string_view config, gguf::Bytes prefix,
                                                     uint64_t file_size, Adapter* out);

}  // namespace sluice::adapter
