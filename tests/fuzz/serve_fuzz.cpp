// Fuzzes parsing request bodies. The first byte selects the kind of request: a small letter is an
// endpoint that generates text or embeds. Accepted values are within the caps that the server
// relies on.
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "anthropic/request.h"
#include "endpoints/endpoints.h"
#include "ollama/request.h"
#include "openai/json.h"
#include "openai/request.h"

namespace {

using namespace sluice;

void check(bool ok) {
  if (!ok) std::abort();
}

bool is_json(const std::string& text) {
  return openai::parse_body(text).ok();
}

void check_problem(const openai::Problem& problem) {
  check(problem->status == 400 && !problem->message.empty() && problem->message.size() < 4096);
}

void check_request(const openai::GenerateRequest& request) {
  const generate::Options& options = request.options;
  check(request.n >= 1 && request.n <= openai::kMaxChoices);
  check(options.max_tokens >= -1 && options.max_tokens <= INT32_MAX);
  check(options.logprobs >= -1 && options.logprobs <= openai::kMaxTopLogprobs);
  check(options.stop.size() <= static_cast<size_t>(generate::kMaxStops));
  check(options.sampling.logit_bias.size() <= sample::kMaxLogitBias);
  check(std::isfinite(options.sampling.temperature) && std::isfinite(options.sampling.top_p));
  check(request.n_stop == options.stop.size());
  check(request.echo.empty() ||
        (request.echo.ends_with(',') && is_json('{' + request.echo + "\"a\":1}")));
  const bool completes = !request.prompts.empty();
  check(int{request.chat} + int{request.infill.has_value()} + int{completes} <= 1);
  check(request.chat == !request.messages.empty());
  check(request.prompts.size() * static_cast<size_t>(request.n) <=
        static_cast<size_t>(openai::kMaxChoices));
  const std::optional<generate::Constraint>& bound = options.constraint;
  check(!bound || bound->kind == grammar::Kind::kGbnf || is_json(bound->text));
  // Texts that are handed on are JSON, too.
  for (const std::string& text : {request.messages, request.tools, request.variables}) {
    check(text.empty() || is_json(text));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  openai::Problem problem;
  openai::GenerateRequest request;
  openai::EmbeddingRequest embedding;
  openai::RerankRequest rerank;
  openai::TokenizeRequest text;
  std::vector<openai::Token> tokens;
  if (data[0] >= 'a') {
    const auto writers = endpoints::generating();
    const auto embedders = endpoints::embedding();
    const size_t at = data[0] - size_t{'a'};
    if (at < writers.size()) {
      problem = writers[at].read(body, &request);
      if (!problem) check_request(request);
    } else if (at - writers.size() < embedders.size()) {
      problem = embedders[at - writers.size()].read(body, &embedding);
      if (!problem) check(!embedding.inputs.empty());
    } else {
      problem = ollama::read_show(body);
    }
    if (problem) check_problem(problem);
    return 0;
  }
  switch ((data[0] + 7) % 8) {  // 'A' to 'H'
    case 0:
      problem = read_completion(body, &request);
      if (!problem) check_request(request);
      break;
    case 1:
      problem = read_chat(body, &request);
      if (!problem) check_request(request);
      break;
    case 2:
      problem = read_embedding(body, &embedding);
      if (!problem)
        check(!embedding.inputs.empty() && embedding.inputs.size() <= openai::kMaxInputs);
      break;
    case 3:
      problem = read_tokenize(body, &text);
      break;
    case 5:
      problem = read_rerank(body, &rerank);
      if (!problem) check(!rerank.documents.empty() && rerank.top_n >= 1);
      break;
    case 6:
      problem = read_apply_template(body, &request);
      if (!problem) check(is_json(request.messages));
      break;
    case 7:
      problem = sluice::anthropic::read_count(body, &request);
      if (!problem) check_request(request);
      break;
    default:
      problem = sluice::openai::read_detokenize(body, &tokens);
      if (!problem) check(tokens.size() <= openai::kMaxValues);
  }
  if (problem) check_problem(problem);
  return 0;
}
