// The one table of options: what loading and generation can be told, under which name on each
// surface. The command line and the C API take names, ranges, defaults and help from it;
// tests/layering/options.test.mjs compares it with the package's types and with docs/cli.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/byte_size.h"
#include "base/status.h"

namespace sluice::options {

enum class Type : uint8_t { kBytes, kWhole, kNumber, kFlag, kText, kOther };

struct Option {
  const char* name;       // in sluice.h
  const char* js;         // in the package: a member of a member is "approximate.skipLayersRatio"
  const char* cli;        // of `sluice`, all spellings
  Type type;              // kOther: checked where it is read
  double least, most;     // of numbers
  const char* otherwise;  // the default, in words; "": none is worth saying
  const char* help;
};

inline constexpr int32_t kMaxThreads = 64;
inline constexpr double kMaxInt = INT32_MAX;
inline constexpr double kMaxContext = 1 << 24;
inline constexpr double kMaxBytes = kMaxByteSize;

// "" in the place of a name: not on that surface.
inline constexpr Option kOptions[] = {
    // --- loading
    {"memory_budget", "memoryBudget", "--memory-budget", Type::kBytes, 0, kMaxBytes,
     "as many as the model needs", "maximum bytes that the engine may hold, such as 64M or 1.5G"},
    {"n_ctx", "contextLength", "-c,--ctx-size,--ctx", Type::kWhole, 0, kMaxContext,
     "the model's, at most 4096", "context length in tokens"},
    {"threads", "threads", "-t,--threads", Type::kWhole, 0, kMaxThreads, "0: chosen",
     "compute threads, at most 64"},
    {"kernels", "kernels", "--kernels", Type::kText, 0, 0, "the best",
     "instruction set of the kernels, such as avx2 or scalar"},
    {"kv_type", "kvType", "--kv-type", Type::kText, 0, 0, "f16",
     "KV cache type: f16, q8_0, q4_0 or q2; K,V such as q8_0,q4_0 sets keys and values separately; "
     "auto: the best that fits in a quarter of the budget"},
    {"kv_policy", "kvPolicy", "--kv-policy", Type::kText, 0, 0, "full",
     "when the KV cache is full: full is an error; window keeps the first and the last positions "
     "and continues without limit; heavy-hitter also keeps the most attended positions"},
    {"kv_sinks", "kvSinks", "--kv-sinks", Type::kWhole, 0, kMaxContext, "4",
     "first positions that window and heavy-hitter keep"},
    {"kv_capacity", "kvCapacity", "--kv-capacity", Type::kWhole, 1, kMaxContext, "the context",
     "positions that window and heavy-hitter hold in the KV cache"},
    {"skip_layers_ratio", "approximate.skipLayersRatio", "--skip-layers-ratio", Type::kNumber, 0, 1,
     "0",
     "share of the skippable layers to skip, the least important first, 0 to 1; needs a file "
     "made by sluice convert --calibrate"},
    {"early_exit", "", "--early-exit", Type::kNumber, 0, 1, "1: never",
     "confidence at which a token skips its remaining layers, 0 to 1; needs a file made "
     "by sluice convert --calibrate"},
    {"head_clusters", "approximate.headClusters", "--head-clusters", Type::kText, 0, 0,
     "off, unless layers are skipped",
     "clusters to compute in the clustered output head: a number, "
     "exact (as many as it takes to find the largest logit) or off; needs a file made by sluice "
     "convert --cluster-head"},
    {"adapters", "lora", "--lora", Type::kOther, 0, 0, "none",
     "FILE[=SCALE]: a LoRA adapter, GGUF or PEFT directory; may be repeated; without SCALE, 1"},
    {"cache_directory", "cacheDir", "--cache-dir", Type::kText, 0, 0,
     "SLUICE_CACHE, else ~/.cache/sluice", "directory of the model cache, or none"},
    {"headers", "headers", "--header", Type::kOther, 0, 0, "none",
     "\"Name: value\", sent with requests to the server of the model and to no other; may be "
     "repeated"},
    {"token", "token", "--token", Type::kText, 0, 0, "HF_TOKEN",
     "Hugging Face access token, sent to its server only; the variable is not visible in the "
     "process list"},
    {"hf_endpoint", "hfEndpoint", "--hf-endpoint", Type::kText, 0, 0,
     "HF_ENDPOINT, else https://huggingface.co", "URL of the Hugging Face hub or a mirror"},
    {"draft", "draft", "--draft", Type::kText, 0, 0, "off",
     "speculative decoding: ngram (repeat earlier text), nextn (the model's multi-token "
     "prediction head), a smaller MODEL with the same vocabulary, or off"},
    {"draft_max", "", "--draft-max", Type::kWhole, 1, 31, "chosen",
     "draft tokens in one forward pass"},
    {"structured_output", "structuredOutput", "", Type::kFlag, 0, 1, "", ""},
    {"sessions", "parallel", "", Type::kWhole, 1, 64, "", ""},
    {"logits_rows", "", "", Type::kWhole, 1, 256, "", ""},
    {"preload", "", "", Type::kFlag, 0, 1, "", ""},
    {"swap_directory", "", "", Type::kText, 0, 0, "", ""},
    {"on_progress", "onProgress", "", Type::kOther, 0, 0, "", ""},
    {"on_warning", "", "", Type::kOther, 0, 0, "", ""},
    {"", "signal", "", Type::kOther, 0, 0, "", ""},
    {"", "cache", "", Type::kText, 0, 0, "", ""},
    {"", "device", "", Type::kText, 0, 0, "", ""},
    {"", "gpuBudget", "", Type::kBytes, 0, kMaxBytes, "", ""},
    {"", "gpuLayers", "", Type::kOther, 0, 0, "", ""},
    {"", "fetch", "", Type::kOther, 0, 0, "", ""},
    {"", "wasmUrl", "", Type::kText, 0, 0, "", ""},
    {"", "wasmBinary", "", Type::kOther, 0, 0, "", ""},
    {"", "workerUrl", "", Type::kText, 0, 0, "", ""},
    {"", "ioWorker", "", Type::kFlag, 0, 1, "", ""},
    // --- generation
    {"temperature", "temperature", "--temp,--temperature", Type::kNumber, 0, 3.4e38, "0.8",
     "temperature; 0 is greedy"},
    {"top_k", "topK", "--top-k", Type::kWhole, 0, kMaxInt, "40",
     "keep the k most likely tokens; 0: all"},
    {"top_p", "topP", "--top-p", Type::kNumber, 0, 1, "0.95",
     "keep the smallest set with this probability; 1: off"},
    {"min_p", "minP", "--min-p", Type::kNumber, 0, 1, "0.05",
     "drop tokens less likely than this share of the best; 0: off"},
    {"repeat_penalty", "repeatPenalty", "--repeat-penalty", Type::kNumber, 0, 3.4e38, "1: off",
     "divides the logits of repeated tokens"},
    {"frequency_penalty", "frequencyPenalty", "--frequency-penalty", Type::kNumber, -3.4e38, 3.4e38,
     "0: off", "subtracted for each occurrence of a token"},
    {"presence_penalty", "presencePenalty", "--presence-penalty", Type::kNumber, -3.4e38, 3.4e38,
     "0: off", "subtracted from tokens that have occurred"},
    {"penalty_last_n", "penaltyLastN", "--repeat-last-n", Type::kWhole, -1, kMaxInt, "64",
     "tokens that penalties look back; -1: all"},
    {"seed", "seed", "--seed", Type::kOther, 0, 0, "0",
     "an integer; the same seed gives the same text"},
    {"logit_bias", "logitBias", "", Type::kOther, 0, 0, "", ""},
    {"max_tokens", "maxTokens", "", Type::kWhole, -1, kMaxBytes, "", ""},
    {"stop", "stop", "", Type::kOther, 0, 0, "", ""},
    {"stop_tokens", "stopTokenIds", "", Type::kOther, 0, 0, "", ""},
    {"skip_special_tokens", "skipSpecialTokens", "", Type::kFlag, 0, 1, "", ""},
    {"ignore_eos", "ignoreEos", "", Type::kFlag, 0, 1, "", ""},
    {"logprobs", "logprobs", "", Type::kWhole, -1, 64, "", ""},
    {"constraint", "", "", Type::kOther, 0, 0, "", ""},
    {"constraint_text", "", "", Type::kText, 0, 0, "", ""},
    {"whitespace", "", "", Type::kFlag, 0, 1, "", ""},
    {"on_token", "", "", Type::kOther, 0, 0, "", ""},
    {"sampling", "", "", Type::kOther, 0, 0, "", ""},
    {"prompt_flags", "", "", Type::kOther, 0, 0, "", ""},
    {"", "grammar", "", Type::kText, 0, 0, "", ""},
    {"", "regex", "", Type::kText, 0, 0, "", ""},
    {"", "choice", "", Type::kOther, 0, 0, "", ""},
    {"", "jsonSchema", "", Type::kOther, 0, 0, "", ""},
    {"", "postSamplingProbs", "", Type::kFlag, 0, 1, "", ""},
    {"", "cachePrompt", "", Type::kFlag, 0, 1, "", ""},
    {"", "addSpecial", "", Type::kFlag, 0, 1, "", ""},
    {"", "parseSpecial", "", Type::kFlag, 0, 1, "", ""},
    {"", "literalSpans", "", Type::kFlag, 0, 1, "", ""},
    {"", "continuation", "", Type::kFlag, 0, 1, "", ""},
};

void the_table_has_no_such_option();  // without a definition

// The row of a name in sluice.h, at compile time: a name without a row does not compile.
consteval const Option& find(std::string_view name) {
  for (const Option& option : kOptions) {
    if (name == option.name) return option;
  }
  the_table_has_no_such_option();
}

// Checks a number against the row's range. Errors: kInvalidArgument, naming option and limits.
[[nodiscard]] Status check(const Option& option, double value);

// Checks a budget in bytes. Errors: kInvalidArgument for more than kMaxBytes, which is what an int
// that overflowed becomes.
[[nodiscard]] Status check_budget(uint64_t bytes);

}  // namespace sluice::options
