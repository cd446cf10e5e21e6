// chat.wasm: requests to a server's endpoints, and their responses, for web/chat/exchange.ts. An
// Exchange is one request. It checks the body and says what the engine must do, as JSON; the caller
// runs the engine and passes on what it returns; the Exchange writes the response. It owns its
// results, which stay valid until the next call for the same exchange. close_exchange() frees all
// of it. Templates are not rendered here: they are programs, which can use up memory and stack.
#include "bindings/chat/exchange.h"

#include <algorithm>

#include "jinja/json_text.h"
#include "openai/chat_prompt.h"
#include "openai/response.h"

namespace {

using namespace sluice;
using namespace sluice::bindings;
using openai::ApiError;
using openai::GenerateRequest;
using openai::Input;
using openai::Problem;

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

void read_embedding(Exchange& of, std::string_view body, Problem* problem) {
  openai::EmbeddingRequest& request = of.embedding;
  *problem = of.embedder->read(body, &request);
  of.show(ObjectText()
              .text("kind", "embed")
              .raw("inputs", inputs_json(request.inputs))
              .integer("dimensions", request.options.dimensions)
              .integer("truncate", request.truncate));
  request.inputs.clear();
}

void read_generation(Exchange& of, std::string_view body, Problem* problem) {
  GenerateRequest& request = of.request;
  *problem = of.endpoint->read(body, &request);
  if (request.infill) of.files = static_cast<uint32_t>(request.infill->files.size());
  const char* kind = request.chat ? "chat" : request.infill ? "infill" : "complete";
  of.show(ObjectText()
              .text("kind", kind)
              .flag("stream", request.stream)
              .text("type", of.endpoint->stream_type));
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
  const std::string_view body = texts[1].view();
  if (of->endpoint != nullptr) {
    read_generation(*of, body, &problem);
  } else if ((of->embedder = endpoints::find_embedding(of->path)) != nullptr) {
    read_embedding(*of, body, &problem);
  } else {
    problem = read_other(*of, body);
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
    std::string opening;
    problem = infill_opening(*of, *formats, &opening);
    plan.text("opening", opening);
  } else {
    plan.raw("prompts", inputs_json(request.prompts));
  }
  for (Input& prompt : request.prompts) prompt = {};  // only their number is needed from now on
  if (problem) return of->fail(*problem);
  show_plan(*of, std::move(plan));
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
  if (of->embedder == nullptr) return of->show(other_document(*of, texts, n_texts, width, tokens));
  const std::vector<float> values = values_of<float>(texts[0]);
  of->prompt = static_cast<uint32_t>(tokens);
  const openai::Vectors vectors{values, width, static_cast<int64_t>(tokens)};
  of->show(of->embedder->write(vectors, of->embedding, of->model));
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

SLUICE_EXPORT void close_exchange(Exchange* of) {
  delete of;
}
