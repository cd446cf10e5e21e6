// Checks the requests of Ollama's API. Each is rewritten as one of OpenAI's, whose check has the
// types and ranges of the fields that both have. Options that choose the hardware or the context,
// which are those of the running server, are ignored. An unknown field is an error that names it.
#pragma once

#include <string_view>

#include "openai/request.h"

namespace sluice::ollama {

// Each reads a request body into *out. Returns an error, or nothing. A request without messages or
// prompt generates nothing: it loads the model.
[[nodiscard]] openai::Problem read_chat(std::string_view body, openai::GenerateRequest* out);
[[nodiscard]] openai::Problem read_generate(std::string_view body, openai::GenerateRequest* out);
// /api/embed, and the older /api/embeddings.
[[nodiscard]] openai::Problem read_embed(std::string_view body, openai::EmbeddingRequest* out);
[[nodiscard]] openai::Problem read_embeddings(std::string_view body, openai::EmbeddingRequest* out);
[[nodiscard]] openai::Problem read_show(std::string_view body);

}  // namespace sluice::ollama
