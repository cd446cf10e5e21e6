// The registry of families.
#include "model/families.h"

namespace sluice::model {

const Family* find_family(std::string_view arch) {
  static constexpr Family kFamilies[] = {
      {"llama", false, build_llama},        {"mistral", false, build_llama},
      {"mistral3", false, build_llama},     {"smollm3", false, build_llama},
      {"granite", false, build_llama},      {"granitemoe", false, build_llama},
      {"qwen2", true, build_qwen},          {"qwen3", true, build_qwen},
      {"qwen3moe", true, build_qwen},       {"olmo2", true, build_dense},
      {"phi2", true, build_dense},          {"phi3", true, build_dense},
      {"gemma", true, build_gemma},         {"gemma2", true, build_gemma},
      {"gemma3", true, build_gemma},        {"gpt2", false, build_dense},
      {"stablelm", true, build_dense},      {"starcoder2", true, build_dense},
      {"ernie4_5", false, build_llama},     {"internlm2", false, build_llama},
      {"exaone", true, build_llama},        {"seed_oss", true, build_llama},
      {"glm4", false, build_dense},         {"lfm2", true, build_lfm2},
      {"qwen2vl", true, build_qwen},        {"qwen3vl", true, build_qwen},
      {"cohere2", false, build_dense},      {"command-r", false, build_dense},
      {"olmo", false, build_dense},         {"minicpm", false, build_dense},
      {"exaone4", true, build_dense},       {"hunyuan-dense", true, build_dense},
      {"apertus", true, build_dense},       {"arcee", false, build_dense},
      {"nemotron", true, build_dense},      {"falcon", true, build_dense},
      {"mpt", false, build_dense},          {"bloom", false, build_dense},
      {"baichuan", false, build_dense},     {"gptneox", true, build_dense},
      {"starcoder", false, build_dense},    {"refact", false, build_dense},
      {"codeshell", true, build_dense},     {"orion", true, build_dense},
      {"xverse", false, build_dense},       {"openelm", true, build_dense},
      {"jais", false, build_dense},         {"chatglm", false, build_dense},
      {"plamo3", true, build_dense},        {"bitnet", true, build_dense},
      {"gemma3n", true, build_gemma3n},     {"gemma4", true, build_gemma4},
      {"minicpm3", true, build_minicpm3},   {"deepseek2", false, build_deepseek2},
      {"mistral4", false, build_deepseek2}, {"llama4", false, build_llama4},
  };
  static constexpr Family kRecurrent[] = {
      {"mamba", false, build_mamba, false, true},
      {"mamba2", false, build_mamba, false, true},
      {"falcon-h1", true, build_hybrid_mamba, false, true},
      {"granitehybrid", false, build_hybrid_mamba, false, true},
      {"nemotron_h", false, build_hybrid_mamba, false, true},
      {"nemotron_h_moe", false, build_hybrid_mamba, false, true},
      {"jamba", false, build_hybrid_mamba, false, true},
      {"qwen35", true, build_qwen35, true, true},
      {"qwen35moe", true, build_qwen35, true, true},
      {"qwen3next", true, build_qwen35, false, true},
      {"rwkv6", false, build_rwkv6, false, true},
      {"rwkv7", false, build_rwkv7, false, true},
      {"plamo2", true, build_plamo2, false, true},
      {"kimi-linear", false, build_kimi_linear, false, true},
  };
  for (const Family& family : kFamilies) {
    if (arch == family.arch) return &family;
  }
  for (const Family& family : kRecurrent) {
    if (arch == family.arch) return &family;
  }
  return nullptr;
}

}  // namespace sluice::model
