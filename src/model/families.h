// The model families that are implemented, by the name in general.architecture.
#pragma once

#include <string_view>

namespace sluice::model {

class Builder;

struct Family {
  const char* arch;
  bool neox;  // RoPE pairing of its GGUF files
  void (*build)(Builder& b);
};

// Null when there is none.
[[nodiscard]] const Family* find_family(std::string_view arch);

void build_llama(Builder& b);
void build_qwen(Builder& b);
void build_gemma(Builder& b);
void build_lfm2(Builder& b);
void build_dense(Builder& b);

}  // namespace sluice::model
