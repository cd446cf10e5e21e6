// Writes what Ollama's API says about models: here, the one that is served.
#pragma once

#include <cstdint>
#include <string>

namespace sluice::ollama {

// The version of Ollama whose API this is. Clients refuse servers that are too old for them.
inline constexpr const char* kApiVersion = "0.13.0";

struct ModelFacts {
  std::string name{}, architecture{};
  std::string quantization{};  // the type of most of its weights
  std::string chat_template{};
  uint64_t parameters = 0, bytes = 0;
  int64_t created = 0;   // seconds: when the server started
  int64_t parallel = 1;  // requests at a time
  int64_t n_ctx = 0, n_ctx_train = 0, n_layer = 0, n_embd = 0, n_vocab = 0, n_head = 0,
          n_head_kv = 0;
  bool completes = false, embeds = false;  // generates text; was trained for embeddings
  bool tools = false, thinks = false;      // formats that its chat template knows
  bool inserts = false;                    // fills in the middle
  bool sees = false;                       // takes pictures
};

[[nodiscard]] std::string tags_body(const ModelFacts& model);     // /api/tags
[[nodiscard]] std::string running_body(const ModelFacts& model);  // /api/ps
[[nodiscard]] std::string show_body(const ModelFacts& model);     // /api/show
[[nodiscard]] std::string version_body();                         // /api/version

}  // namespace sluice::ollama
