#include "endpoints/pages.h"

#include <algorithm>

#include "chat/answer.h"
#include "chat/reasoning.h"
#include "endpoints/endpoints.h"
#include "jinja/json_text.h"
#include "ollama/request.h"
#include "openai/response.h"

namespace sluice::endpoints {
namespace {

using openai::ApiError;
using openai::Problem;

constexpr std::string_view kGet = "GET", kPost = "POST", kAny = "";
constexpr Route kPages[] = {
    {"/", kGet},
    {"/health", kGet},
    {"/metrics", kGet},
    {"/props", kGet},
    {"/v1/models", kGet},
    {"/api/tags", kGet},
    {"/api/ps", kGet},
    {"/api/version", kGet},
    {"/api/show", kPost},
    // What Ollama does to its models.
    {"/api/pull", kAny},
    {"/api/push", kAny},
    {"/api/create", kAny},
    {"/api/copy", kAny},
    {"/api/delete", kAny},
};
constexpr std::string_view kModel = "/v1/models/";

// What llama-server's clients look for: context, slots and the chat template.
std::string props_body(const ollama::ModelFacts& model) {
  return "{\"default_generation_settings\":{\"n_ctx\":" + std::to_string(model.n_ctx) +
         "},\"total_slots\":" + std::to_string(model.parallel) +
         ",\"model_alias\":" + json_quote(model.name) +
         ",\"chat_template\":" + json_quote(model.chat_template) +
         ",\"modalities\":{\"vision\":" + (model.sees ? "true" : "false") + ",\"audio\":false}}";
}

}  // namespace

const std::vector<Route>& routes() {
  static const std::vector<Route> all = [] {
    std::vector<Route> out(std::begin(kPages), std::end(kPages));
    for (const std::string_view each : paths()) out.push_back({each, kPost});
    return out;
  }();
  return all;
}

std::optional<Route> find_route(std::string_view path) {
  if (path.starts_with(kModel)) path = kModel.substr(0, kModel.size() - 1);
  const auto found = std::find_if(routes().begin(), routes().end(),
                                  [path](const Route& each) { return each.path == path; });
  return found == routes().end() ? std::nullopt : std::make_optional(*found);
}

std::string full_path(std::string_view path) {
  std::string full = "/v1" + std::string(path);
  return find_route(full) ? full : std::string(path);
}

Problem write_page(std::string_view path, std::string_view body, const ollama::ModelFacts& model,
                   Page* out) {
  const std::optional<Route> route = find_route(path);
  if (path == "/") {
    *out = {.type = "text/plain; charset=utf-8", .body = "Sluice is running"};
  } else if (path == "/props") {
    out->body = props_body(model);
  } else if (path == "/v1/models") {
    out->body = openai::models_body(model.name, model.created, model.sees);
  } else if (path == "/api/tags") {
    out->body = ollama::tags_body(model);
  } else if (path == "/api/ps") {
    out->body = ollama::running_body(model);
  } else if (path == "/api/version") {
    out->body = ollama::version_body();
  } else if (path == "/api/show") {
    out->body = ollama::show_body(model);
    return ollama::read_show(body);
  } else if (path.starts_with(kModel)) {
    out->body = openai::model_body(model.name, model.created, model.sees);
    if (path.substr(kModel.size()) == model.name) return {};
    return ApiError{404, "There is no such model here.", "model", "model_not_found"};
  } else if (route && route->method == kAny) {
    return ApiError{501,
                    "This server has one model, which cannot be changed here: " + model.name + ".",
                    "", "NOT_SUPPORTED"};
  } else {
    return openai::unknown_path();
  }
  return {};
}

void find_abilities(bool inserts, std::string_view chat_template, ollama::ModelFacts* model) {
  model->inserts = inserts;
  if (chat_template.empty() || !model->completes) return;
  model->tools = chat::AnswerFormat(chat_template, {}).has_tools();
  model->thinks = chat::teaches_reasoning(chat_template);
}

}  // namespace sluice::endpoints
