// The registry of model families.
#include "model/families.h"

#include <algorithm>
#include <iterator>

namespace sluice::model {

namespace {

constexpr Family kFamilies[] = {
    {"llama", false, build_llama},
    {"mistral", false, build_llama},
    {"mistral3", false, build_llama},
    {"smollm3", false, build_llama},
    {"granite", false, build_llama},
    {"granitemoe", false, build_llama},
    {"qwen2", true, build_qwen},
    {"qwen3", true, build_qwen},
    {"qwen3moe", true, build_qwen},
    {"olmo2", true, build_dense},
    {"phi2", true, build_dense},
    {"phi3", true, build_dense},
    {"gemma", true, build_gemma},
    {"gemma2", true, build_gemma},
    {"gemma3", true, build_gemma},
    {"gpt2", false, build_dense},
    {"stablelm", true, build_dense},
    {"starcoder2", true, build_dense},
    {"ernie4_5", false, build_llama},
    {"cogvlm", true, build_llama},
    {"internlm2", false, build_llama},
    {"exaone", true, build_llama},
    {"seed_oss", true, build_llama},
    {"glm4", false, build_dense},
    {"lfm2", true, build_lfm2},
    {"gemma3n", true, build_gemma3n},
    {"gemma4", true, build_gemma4},
    {"minicpm3", true, build_minicpm3},
    {"deepseek2", false, build_deepseek2},
    {"mistral4", false, build_deepseek2},
    {"llama4", false, build_llama4},
    {"llada", false, build_llama},
    {"dream", true, build_qwen},
    {"t5", false, build_t5},
    {"t5encoder", false, build_t5},
    {"bert", false, build_bert},
    {"nomic-bert", true, build_bert},
    {"nomic-bert-moe", true, build_bert},
    {"jina-bert-v2", false, build_bert},
    {"modern-bert", true, build_modern_bert},
    {"gemma-embedding", true, build_gemma},
    {"qwen2vl", true, build_qwen},
    {"qwen3vl", true, build_qwen},
    {"cohere2", false, build_dense},
    {"command-r", false, build_dense},
    {"olmo", false, build_dense},
    {"minicpm", false, build_dense},
    {"exaone4", true, build_dense},
    {"hunyuan-dense", true, build_dense},
    {"apertus", true, build_dense},
    {"arcee", false, build_dense},
    {"nemotron", true, build_dense},
    {"falcon", true, build_dense},
    {"mpt", false, build_dense},
    {"bloom", false, build_dense},
    {"baichuan", false, build_dense},
    {"gptneox", true, build_dense},
    {"starcoder", false, build_dense},
    {"refact", false, build_dense},
    {"codeshell", true, build_dense},
    {"orion", true, build_dense},
    {"xverse", false, build_dense},
    {"openelm", true, build_dense},
    {"jais", false, build_dense},
    {"chatglm", false, build_dense},
    {"plamo3", true, build_dense},
    {"bitnet", true, build_dense},
    {"qwen2moe", true, build_qwen},
    {"lfm2moe", true, build_lfm2},
    {"ernie4_5-moe", false, build_llama},
    {"paddleocr", true, build_llama},
    {"olmoe", true, build_moe},
    {"phimoe", true, build_moe},
    {"deepseek", false, build_moe},
    {"glm4moe", true, build_moe, true},
    {"hunyuan-moe", true, build_moe},
    {"dots1", true, build_moe},
    {"bailingmoe2", true, build_moe, true},
    {"minimax-m2", true, build_moe},
    {"maincoder", false, build_moe},
    {"dbrx", true, build_moe},
    {"granite_swa", false, build_moe},
    {"gpt-oss", true, build_moe},
    {"smallthinker", true, build_smallthinker},
    {"grovemoe", true, build_grovemoe},
    {"afmoe", true, build_afmoe},
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

}  // namespace

const Family* find_family(std::string_view arch) {
  const auto found = std::find_if(std::begin(kFamilies), std::end(kFamilies),
                                  [arch](const Family& family) { return arch == family.arch; });
  return found == std::end(kFamilies) ? nullptr : found;
}

bool reads_whole_texts(std::string_view arch) {
  constexpr std::string_view kNames[] = {
      "llada",       "dream",           "bert",      "nomic-bert", "nomic-bert-moe", "jina-bert-v2",
      "modern-bert", "gemma-embedding", "t5encoder",
  };
  return std::find(std::begin(kNames), std::end(kNames), arch) != std::end(kNames);
}

}  // namespace sluice::model
