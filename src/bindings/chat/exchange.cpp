// chat.wasm: requests to a server's endpoints, and their responses, for web/chat/exchange.ts. An
// Exchange is one request. It checks the body and says what the engine must do, as JSON; the caller
// runs the engine and passes on what it returns; the Exchange writes the response. It owns its
// results, which stay valid until the next call for the same exchange. close_exchange() frees all
// of it. Templates are not rendered here: they are programs, which can use up memory and stack.
#include <algorithm>
#include <cstring>
#include <ctime>

#include "anthropic/request.h"
#include "anthropic/responder.h"
#include "bindings/chat/calls.h"
#include "bindings/chat/formats.h"
#include "endpoints/endpoints.h"
#include "endpoints/pages.h"
#include "jinja/json_text.h"
#include "jinja/numbers.h"
#include "openai/chat_prompt.h"
#include "openai/infill.h"
#include "openai/response.h"

namespace {

using namespace sluice;
using namespace sluice::bindings;
using openai::ApiError;
using openai::GenerateRequest;
using openai::Input;
using openai::ObjectText;
using openai::Problem;
using openai::Token;

std::string list_of(const std::vector<std::string>& texts) {
  return openai::list_text(texts, openai::string_text);
}

std::string list_of(const std::vector<Token>& tokens) {
  return openai::list_text(tokens, [](Token token) { return std::to_string(token); });
}

struct Exchange {
  // What the caller reads. The status is 0, or that of an error, which `text` then describes:
  // {message, param, code, body}.
  uint32_t status = 0;
  Bytes text;
  // Of a chat: what the template renders.
  Bytes messages, tools, variables;
  uint32_t render_flags = 0;
  // So far.
  uint32_t prompt = 0, cached = 0, completion = 0;
  Bytes finish;
  uint32_t files = 0;  // of an infill: how many could be dropped

  std::string path, model, result, finish_text;
  GenerateRequest request;
  openai::EmbeddingRequest embedding;
  openai::RerankRequest rerank;
  const endpoints::Endpoint* endpoint = nullptr;           // null: it generates nothing
  const endpoints::EmbeddingEndpoint* embedder = nullptr;  // null: it embeds nothing
  std::optional<chat::AnswerPlan> plan;
  std::unique_ptr<openai::Responder> response;
  const generate::Piece* piece = nullptr;  // the one whose tokens have names
  std::vector<std::string> names;          // of piece->top

  void show(std::string next) {
    status = 0;
    result = std::move(next);
    text = bytes_of(result);
  }
  void show(const ObjectText& members) { show(members.object()); }
  void fail(const ApiError& error) {
    show(ObjectText()
             .text("message", error.message)
             .text("param", error.param)
             .text("code", error.code)
             .text("body", endpoints::error_body(path, error)));
    status = static_cast<uint32_t>(error.status);
  }
  void show_frames() {
    const openai::Usage& usage = response->usage();
    prompt = static_cast<uint32_t>(usage.prompt);
    cached = static_cast<uint32_t>(usage.cached);
    completion = static_cast<uint32_t>(usage.completion);
    finish_text = response->finish();
    finish = bytes_of(finish_text);
    show(response->take_frames());
  }
  void respond() {
    const auto name_of = [this](Token token) -> std::string {
      for (size_t i = 0; piece != nullptr && i < piece->top.size(); ++i) {
        if (piece->top[i].token == token) return names[i];
      }
      return {};
    };
    response = endpoint->respond(request, name_of, model, plan ? &*plan : nullptr);
  }
};

std::string inputs_json(const std::vector<Input>& inputs) {
  return openai::list_text(inputs, [](const Input& input) {
    return input.is_tokens ? list_of(input.tokens) : openai::string_text(input.text);
  });
}

// How to generate. `options` are GenerateOptions of the package. A seed is text, because it has 64
// bits, and minus infinity is null.
void show_plan(Exchange& of, ObjectText plan) {
  const generate::Options& options = of.request.options;
  const sample::Params& s = options.sampling;
  ObjectText biases;
  for (const auto& [token, bias] : s.logit_bias) {
    biases.number(std::to_string(token), static_cast<double>(bias));
  }
  plan.raw("logitBias", biases.object())
      .text("seed", std::to_string(s.seed))
      .integer("n", of.request.n)
      .text("cacheKey", of.request.cache_key)
      .flag("reportCounts", of.request.timings_per_token);
  if (options.constraint) {
    plan.raw("constraint", ObjectText()
                               .integer("kind", static_cast<int64_t>(options.constraint->kind))
                               .text("text", options.constraint->text)
                               .object());
  }
  ObjectText out;
  out.number("temperature", static_cast<double>(s.temperature))
      .integer("topK", s.top_k)
      .number("topP", static_cast<double>(s.top_p))
      .number("minP", static_cast<double>(s.min_p))
      .number("repeatPenalty", static_cast<double>(s.repeat_penalty))
      .number("frequencyPenalty", static_cast<double>(s.frequency_penalty))
      .number("presencePenalty", static_cast<double>(s.presence_penalty))
      .integer("penaltyLastN", s.penalty_last_n)
      .raw("stop", list_of(options.stop))
      .raw("stopTokenIds", list_of(options.stop_tokens))
      .flag("postSamplingProbs", options.post_sampling_probs)
      .flag("skipSpecialTokens", !options.special)
      .flag("cachePrompt", options.reuse_prefix)
      .flag("ignoreEos", options.ignore_eos);
  if (options.max_tokens >= 0) out.integer("maxTokens", options.max_tokens);
  if (options.logprobs >= 0) out.integer("logprobs", options.logprobs);
  of.show(plan.raw("options", out.object()));
}

template <class T>
std::vector<T> values_of(const Bytes& bytes) {
  std::vector<T> out(bytes.size / sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), bytes.data, out.size() * sizeof(T));
  return out;
}

// prompt, cached, generated, prompt_ms and generate_ms.
generate::Counts counts_of(const double* numbers) {
  generate::Counts counts;
  counts.prompt = static_cast<int32_t>(numbers[0]);
  counts.cached = static_cast<int32_t>(numbers[1]);
  counts.generated = static_cast<int32_t>(numbers[2]);
  counts.prompt_ms = numbers[3];
  counts.generate_ms = numbers[4];
  return counts;
}
constexpr size_t kCounts = 5;

openai::InfillTokens infill_tokens(const Formats& formats) {
  openai::InfillTokens tokens;
  const auto is_token = [&formats](std::string_view text) {
    const auto& all = formats.controls;
    return std::any_of(all.begin(), all.end(),
                       [text](const chat::ControlToken& each) { return each.text == text; });
  };
  openai::find_infill_tokens(is_token, &tokens);
  return tokens;
}

// Reads a request that generates nothing; false if its endpoint generates.
bool read_other(Exchange& of, std::string_view body, Problem* problem) {
  const std::string_view path = of.path;
  ObjectText work;
  if ((of.embedder = endpoints::find_embedding(path)) != nullptr) {
    openai::EmbeddingRequest& request = of.embedding;
    *problem = of.embedder->read(body, &request);
    work.text("kind", "embed")
        .raw("inputs", inputs_json(request.inputs))
        .integer("dimensions", request.options.dimensions)
        .integer("truncate", request.truncate);
    request.inputs.clear();
  } else if (path == "/v1/rerank") {
    *problem = openai::read_rerank(body, &of.rerank);
    work.text("kind", "rerank")
        .text("query", of.rerank.query)
        .raw("documents", list_of(of.rerank.documents));
  } else if (path == "/apply-template") {
    *problem = openai::read_apply_template(body, &of.request);
    work.text("kind", "render");
  } else if (path == endpoints::kCountTokens) {
    *problem = anthropic::read_count(body, &of.request);
    work.text("kind", "count");
  } else if (path == "/tokenize") {
    openai::TokenizeRequest request;
    *problem = openai::read_tokenize(body, &request);
    work.text("kind", "tokenize")
        .text("text", request.text)
        .flag("addSpecial", request.add_special)
        .flag("parseSpecial", request.parse_special)
        .flag("withPieces", request.with_pieces);
  } else if (path == "/detokenize") {
    std::vector<Token> tokens;
    *problem = openai::read_detokenize(body, &tokens);
    work.text("kind", "detokenize").raw("tokens", list_of(tokens));
  } else if (of.endpoint == nullptr) {
    if (!endpoints::find_route(path)) *problem = endpoints::unknown_path();
    work.text("kind", "page");
  } else {
    return false;
  }
  of.show(work);
  return true;
}

}  // namespace

// Reads a request. texts: the endpoint's path, the body, and the model's name. seed: random, for a
// request without one. Shows the work: {kind, stream, type …}.
SLUICE_EXPORT Exchange* open_exchange(const Bytes* texts, uint64_t seed) {
  auto* of = new Exchange;
  of->path = texts[0].view();
  of->model = texts[2].view();
  GenerateRequest& request = of->request;
  request.options.sampling.seed = seed;
  Problem problem;
  of->endpoint = endpoints::find(of->path);
  if (!read_other(*of, texts[1].view(), &problem)) {
    problem = of->endpoint->read(texts[1].view(), &request);
    if (request.infill) of->files = static_cast<uint32_t>(request.infill->files.size());
    const char* kind = request.chat ? "chat" : request.infill ? "infill" : "complete";
    of->show(ObjectText()
                 .text("kind", kind)
                 .flag("stream", request.stream)
                 .text("type", of->endpoint->stream_type));
  }
  if (problem) {
    of->fail(*problem);
    return of;
  }
  const chat::Request rendered = openai::template_request(request);
  of->messages = bytes_of(rendered.messages);
  of->tools = bytes_of(rendered.tools);
  of->variables = bytes_of(rendered.variables);
  of->render_flags = (rendered.add_generation_prompt ? kAddGenerationPrompt : 0u) |
                     (rendered.parse_special_in_content ? kParseSpecialInContent : 0u) |
                     (rendered.continue_final_message ? kContinueFinalMessage : 0u);
  return of;
}

// Plans the responses. texts, of a chat: the end of the prompt, and its stop strings, each of which
// ends with a zero byte. can_constrain: the engine has structured output. Shows how to generate,
// and the `opening` to append to a chat's prompt or the `prompts` of completions.
SLUICE_EXPORT void plan_exchange(Exchange* of, const Formats* formats, const Bytes* texts,
                                 uint32_t can_constrain, double n_vocab) {
  GenerateRequest& request = of->request;
  ObjectText plan;
  Problem problem = openai::check_tokens(request, static_cast<int64_t>(n_vocab));
  if (!problem && request.chat) {
    chat::Prompt prompt;
    prompt.pieces.push_back({std::string(texts[0].view()), false});
    std::string_view stops = texts[1].view();
    for (size_t end; (end = stops.find('\0')) != stops.npos; stops.remove_prefix(end + 1)) {
      prompt.stop.emplace_back(stops.substr(0, end));
    }
    problem =
        openai::plan_response(formats->formats, &request, &prompt, &of->plan, can_constrain != 0);
    prompt.pieces.erase(prompt.pieces.begin());
    plan.text("opening",
              request.parse_special_in_content ? prompt.text() : chat::marked_text(prompt));
    request.messages = {};  // rendered
  } else if (!problem && request.infill) {
    chat::Prompt prompt;
    problem = openai::infill_prompt(infill_tokens(*formats), *request.infill, &prompt);
    plan.text("opening", chat::marked_text(prompt));
  } else {
    plan.raw("prompts", inputs_json(request.prompts));
  }
  for (Input& prompt : request.prompts) prompt = {};  // only their number is needed from now on
  if (problem) return of->fail(*problem);
  show_plan(*of, std::move(plan));
}

// Drops half of the files of an infill, for plan_exchange() to be called again.
SLUICE_EXPORT void drop_files(Exchange* of) {
  openai::drop_files(&*of->request.infill);
  of->files = static_cast<uint32_t>(of->request.infill->files.size());
}

// Shows the page at the exchange's path: {type, body}. texts: the request's body, and the model's
// info as JSON.
SLUICE_EXPORT void show_page(Exchange* of, const Formats* formats, const Bytes* texts) {
  static const int64_t created = std::time(nullptr);
  const std::string_view info = texts[1].view();
  ollama::ModelFacts model;
  const auto text = [info](const char* name) {
    return json_string(json_member(info, name).value_or(""));
  };
  const auto number = [info](const char* name) {
    return static_cast<int64_t>(
        jinja::read_double(json_member(info, name).value_or("0")).value_or(0));
  };
  const auto flag = [info](const char* name) { return json_member(info, name) == "true"; };
  model.name = of->model;
  model.created = created;
  model.architecture = text("architecture");
  model.quantization = text("quantization");
  model.chat_template = text("chatTemplate");
  model.parameters = static_cast<uint64_t>(number("parameters"));
  model.bytes = static_cast<uint64_t>(number("bytes"));
  model.parallel = number("parallel");
  model.n_ctx = number("contextLength");
  model.n_ctx_train = number("trainContextLength");
  model.n_layer = number("layers");
  model.n_embd = number("embeddingLength");
  model.n_vocab = number("vocabSize");
  model.n_head = number("attentionHeads");
  model.n_head_kv = number("kvHeads");
  model.completes = flag("generates");
  model.embeds = flag("embeds");
  const std::string for_tools = text("toolTemplate");
  endpoints::find_abilities(infill_tokens(*formats).usable(),
                            for_tools.empty() ? model.chat_template : for_tools, &model);
  endpoints::Page page;
  if (const Problem problem = endpoints::write_page(of->path, texts[0].view(), model, &page)) {
    return of->fail(*problem);
  }
  of->show(ObjectText().text("type", page.type).text("body", page.body));
}

// Begins the response. Shows the first frames, if it is streamed, as the calls below do.
SLUICE_EXPORT void begin_response(Exchange* of) {
  of->respond();
  of->show_frames();
}

// Adds a token of the output `index`. texts: its text and its bytes; numbers: counts so far, the
// log-probability, and id and log-probability of each likely token; then the bytes of each of them.
SLUICE_EXPORT void push_token(Exchange* of, int32_t index, int32_t token, const Bytes* texts) {
  generate::Piece piece;
  piece.token = token;
  piece.text = texts[0].view();
  piece.bytes = texts[1].view();
  const std::vector<double> numbers = values_of<double>(texts[2]);
  of->names.clear();
  piece.logprob = static_cast<float>(numbers[kCounts]);
  for (size_t i = kCounts + 1; i + 1 < numbers.size(); i += 2) {
    piece.top.push_back({static_cast<Token>(numbers[i]), static_cast<float>(numbers[i + 1])});
    of->names.emplace_back(texts[3 + of->names.size()].view());
  }
  of->piece = &piece;
  of->response->push(index, piece, counts_of(numbers.data()));
  of->piece = nullptr;
  of->show_frames();
}

// Ends the output `index`. texts: numbers: the counts; the stop string that ended it, if one did.
SLUICE_EXPORT void end_output(Exchange* of, int32_t index, uint32_t complete, const Bytes* texts) {
  const std::vector<double> numbers = values_of<double>(texts[0]);
  of->response->set_stop_string(std::string(texts[1].view()));
  of->response->end(index, complete != 0 ? generate::Finish::kStop : generate::Finish::kLength,
                    counts_of(numbers.data()));
  of->show_frames();
}

// After all outputs: shows the last frames, or the document.
SLUICE_EXPORT void end_response(Exchange* of) {
  of->show(of->request.stream ? of->response->last_frames() : of->response->document());
}

// Shows the document of an endpoint that generates nothing. texts: a text or numbers: of
// embeddings and scores f32 [inputs][width], of tokens i32; then the bytes of each token, or none.
SLUICE_EXPORT void show_document(Exchange* of, const Bytes* texts, uint32_t n_texts, uint32_t width,
                                 double tokens) {
  const std::string_view path = of->path;
  if (path == "/tokenize") {
    const std::vector<Token> ids = values_of<Token>(texts[0]);
    size_t next = 1;
    const auto bytes = [&](Token) { return std::string(texts[next++].view()); };
    return of->show(openai::tokenize_body(ids, n_texts > 1 ? openai::TokenBytes(bytes) : nullptr));
  }
  if (path == endpoints::kCountTokens) {
    return of->show(anthropic::count_body(static_cast<size_t>(tokens)));
  }
  if (path == "/detokenize") {
    return of->show(ObjectText().text("content", texts[0].view()));
  }
  if (path == "/apply-template") {
    return of->show(ObjectText().text("prompt", texts[0].view()));
  }
  const std::vector<float> values = values_of<float>(texts[0]);
  const openai::Vectors vectors{values, width, static_cast<int64_t>(tokens)};
  of->prompt = static_cast<uint32_t>(tokens);
  of->show(of->embedder != nullptr ? of->embedder->write(vectors, of->embedding, of->model)
                                   : openai::rerank_body(vectors, of->rerank, of->model));
}

// Shows an error as the API of the exchange's path describes it. texts: message, parameter and
// code. status: 0: that of an engine's error with this code. Then `body` has the document, or the
// frames that end a stream that has begun.
SLUICE_EXPORT void show_error(Exchange* of, const Bytes* texts, uint32_t status) {
  ApiError error;
  error.code = texts[2].view();
  if (status == 0) {
    constexpr uint8_t kEnd = 128;  // more than there are
    uint8_t i = 0;
    while (i < kEnd && error.code != code_name(static_cast<Code>(i))) ++i;
    const std::string given = std::move(error.code);
    error = openai::api_error(Status(i < kEnd ? static_cast<Code>(i) : Code::kInternal, ""));
    if (i == kEnd) error.code = given;  // of the package alone
  } else {
    error.status = static_cast<int>(status);
  }
  error.message = texts[0].view();
  error.param = texts[1].view();
  of->fail(error);
}

// The same for a stream: shows the frames that end it.
SLUICE_EXPORT void show_error_frames(Exchange* of, const Bytes* texts, uint32_t status) {
  ApiError error{static_cast<int>(status), std::string(texts[0].view()),
                 std::string(texts[1].view()), std::string(texts[2].view())};
  of->show(of->response->error_frames(error));
}

// Methods and paths of all routes, a line each. An empty method is any.
SLUICE_EXPORT const char* routes() {
  static std::string lines;
  if (lines.empty()) {
    for (const endpoints::Route& each : endpoints::routes()) {
      lines += std::string(each.method) + ' ' + std::string(each.path) + '\n';
    }
    lines.pop_back();
  }
  return lines.c_str();
}

SLUICE_EXPORT void close_exchange(Exchange* of) {
  delete of;
}
