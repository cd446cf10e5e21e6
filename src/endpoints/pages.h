// What a server says about itself and its one model: OpenAI's list of models, llama.cpp's /props,
// and what Ollama says about models. Without I/O and without an engine, as endpoints.h.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ollama/models.h"
#include "openai/request.h"

namespace sluice::endpoints {

struct Route {
  std::string_view path;    // as logs and metrics name it: that of all models for each of them
  std::string_view method;  // "": any, because the path is an error
};

// All paths: pages, /health and /metrics, which each server writes by itself, and endpoints.h's.
[[nodiscard]] const std::vector<Route>& routes();

// The route of a path; none if there is nothing.
[[nodiscard]] std::optional<Route> find_route(std::string_view path);

// The path with /v1 where a route has it, as in /v1/models for /models: those are served without
// it, too.
[[nodiscard]] std::string full_path(std::string_view path);

struct Page {
  const char* type = "application/json";
  std::string body{};
};

// The page at a full path; `body`: of the request. Errors: there is none, the model is another one,
// or Ollama's client wants to change it.
[[nodiscard]] openai::Problem write_page(std::string_view path, std::string_view body,
                                         const ollama::ModelFacts& model, Page* out);

// Fills in what the chat template and the vocabulary tell: whether the model calls tools, reasons,
// and fills in the middle.
void find_abilities(bool inserts, std::string_view chat_template, ollama::ModelFacts* model);

}  // namespace sluice::endpoints
