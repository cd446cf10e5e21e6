#include "serve/service.h"

#include <algorithm>
#include <ctime>
#include <random>

#include "base/clock.h"

namespace sluice::serve {
namespace {

using Kind = Event::Kind;

constexpr int64_t kMaxVectorValues = 1 << 21;  // values of one embeddings request
constexpr size_t kTextPerToken = 32;           // bytes; longer texts are refused untokenized

struct Route {
  std::string_view path, method;
  const char* allow;
};
constexpr Route kRoutes[] = {
    {"/health", "GET", "GET, HEAD"},
    {"/metrics", "GET", "GET, HEAD"},
    {"/v1/models", "GET", "GET, HEAD"},
    {"/v1/completions", "POST", "POST"},
    {"/v1/chat/completions", "POST", "POST"},
    {"/v1/embeddings", "POST", "POST"},
    {"/tokenize", "POST", "POST"},
    {"/detokenize", "POST", "POST"},
};
constexpr std::string_view kModels = "/v1/models/";

Reply failed(const ApiError& error, Record* record) {
  record->error = error.code.empty() ? "invalid_request" : error.code;
  return {.status = error.status, .body = error_body(error)};
}

ApiError unavailable(const char* why) {
  return {.status = 503, .message = why, .code = "unavailable"};
}

// Compares in constant time, so that the key cannot be found by timing.
bool same(std::string_view a, std::string_view b) {
  unsigned differ = a.size() != b.size();
  for (size_t i = 0; i < a.size(); ++i) {
    differ |= static_cast<unsigned char>(a[i]) ^
              static_cast<unsigned char>(b[b.empty() ? 0 : i % b.size()]);
  }
  return differ == 0;
}

uint64_t random_seed() {
  std::random_device random;
  return static_cast<uint64_t>(random()) << 32 | random();
}

}  // namespace

// The reader's side of a job: waits for events and watches for a disconnected client.
struct Service::Exchange {
  Exchange(Worker& w, Client& c, std::shared_ptr<Job> j)
      : worker(w), client(c), job(std::move(j)) {}
  ~Exchange() { leave(); }

  void leave() {
    job->channel.leave();
    worker.look();
  }

  // Waits for the next event; false if the client has disconnected or after a timeout.
  bool next(Event* out) {
    while (!job->channel.pop(out)) {
      if (job->channel.left()) return false;  // the engine's thread gave up a slow reader
      const double patience = job->deadline + 60'000 - monotonic_ms();
      if (client.wait(job->channel.descriptor(), patience) != Client::Woken::kReadable) {
        leave();
        return false;
      }
    }
    return true;
  }

  Worker& worker;
  Client& client;
  const std::shared_ptr<Job> job;
};

Service::Service(Worker& worker, Metrics& metrics, ModelFacts model, Limits limits,
                 std::string api_key)
    : worker_(worker),
      metrics_(metrics),
      model_(std::move(model)),
      limits_(limits),
      api_key_(std::move(api_key)),
      created_(std::time(nullptr)) {
  if (model_.chat_template == nullptr) return;
  format_.emplace(model_.chat_template->source(), chat::control_tokens(*model_.tokenizer));
}

bool Service::authorized(std::string_view authorization) const {
  constexpr std::string_view kScheme = "Bearer ";
  if (api_key_.empty()) return true;
  return authorization.starts_with(kScheme) && same(authorization.substr(kScheme.size()), api_key_);
}

bool Service::refuse(const Call& call, Reply* reply, Record* record) const {
  const bool one_model = call.path.starts_with(kModels);
  const auto* route = std::find_if(std::begin(kRoutes), std::end(kRoutes), [&](const Route& r) {
    return r.path == call.path || (one_model && r.path == "/v1/models");
  });
  if (route == std::end(kRoutes)) {
    *reply = failed({404, "There is nothing at this path.", "", "unknown_url"}, record);
    return true;
  }
  record->route = route->path;
  if (call.method != route->method && !(call.method == "HEAD" && route->method == "GET")) {
    *reply = failed({405, "This path takes another method.", "", "method_not_allowed"}, record);
    reply->allow = route->allow;
    return true;
  }
  if (route->path != "/health" && !authorized(call.authorization)) {
    *reply =
        failed({401, "The API key is missing, or is another one.", "", "invalid_api_key"}, record);
    return true;
  }
  if (route->method == "POST" && closed_) {
    *reply = failed(unavailable("The server is shutting down."), record);
    return true;
  }
  return false;
}

Reply Service::answer(const Call& call, Record* record) {
  Reply reply;
  if (refuse(call, &reply, record)) return reply;
  if (record->route == "/health") return health();
  if (record->route == "/metrics") {
    return {.type = "text/plain; version=0.0.4; charset=utf-8",
            .body = metrics_.text({worker_.queued(), worker_.running(), connections})};
  }
  if (call.path == "/v1/models") return {.body = models_body(model_.name, created_)};
  if (record->route == "/v1/models") {
    if (call.path.substr(kModels.size()) == model_.name) {
      return {.body = model_body(model_.name, created_)};
    }
    return failed({404, "There is no such model here.", "model", "model_not_found"}, record);
  }
  if (record->route == "/v1/embeddings") return embeddings(call, record);
  if (record->route == "/tokenize") return tokenize(call, record);
  if (record->route == "/detokenize") return detokenize(call, record);
  GenerateRequest request;
  request.options.sampling.seed = random_seed();
  Problem problem;
  {
    const std::lock_guard<std::mutex> lock(texts_);
    problem = record->route == "/v1/completions" ? read_completion(call.body, &request)
                                                 : read_chat(call.body, &request);
  }
  if (problem) return failed(*problem, record);
  return generate(call, std::move(request), record);
}

Reply Service::health() const {
  const Status failure = worker_.failure();
  const char* status = !failure.ok() ? "failed" : closed_ ? "closing" : "ok";
  Reply reply{.status = failure.ok() && !closed_ ? 200 : 503};
  Json body = {{"status", status}};
  if (!failure.ok()) body["error"] = failure.message();
  reply.body = to_text(body);
  return reply;
}

// Refuses texts that cannot fit the context, because tokenizing takes many times a text's size.
Problem Service::too_long(size_t bytes) const {
  const size_t most = kTextPerToken * static_cast<size_t>(model_.n_ctx) + (64u << 10);
  if (bytes <= most) return {};
  return api_error(
      error(Code::kPromptTooLong, "the text has %zu bytes but %zu is the maximum", bytes, most));
}

Problem Service::input_tokens(const Input& input, bool parse_special, std::vector<Token>* out) {
  if (input.is_tokens) {
    const auto known = [&](Token token) { return token < model_.n_vocab; };
    if (!std::all_of(input.tokens.begin(), input.tokens.end(), known)) {
      return ApiError{.message = "A token id is not in the model's vocabulary."};
    }
    *out = input.tokens;
    return {};
  }
  if (Problem problem = too_long(input.text.size())) return problem;
  const std::lock_guard<std::mutex> lock(texts_);
  auto tokens = model_.tokenizer->try_encode(input.text, {.parse_special = parse_special});
  if (!tokens.ok()) return api_error(tokens.status());
  *out = std::move(*tokens);
  return {};
}

Problem Service::prompt_tokens(GenerateRequest* request, Job* job,
                               std::optional<chat::AnswerPlan>* plan) {
  if (!request->chat) {
    for (const Input& prompt : request->prompts) {
      Problem problem = input_tokens(prompt, /*parse_special=*/true, &job->prompts.emplace_back());
      if (problem) return problem;
    }
    return {};
  }
  if (model_.chat_template == nullptr) {
    return ApiError{.message = "The model's chat template cannot be read.",
                    .code = "CHAT_TEMPLATE"};
  }
  const std::lock_guard<std::mutex> lock(texts_);
  if (Problem problem = too_long(request->messages.size())) return problem;
  auto prompt =
      model_.chat_template->render({.messages = request->messages,
                                    .tools = {},
                                    .documents = {},
                                    .variables = request->variables,
                                    .parse_special_in_content = request->parse_special_in_content,
                                    .now = {}});
  if (!prompt.ok()) return api_error(prompt.status());
  auto tokens = chat::encode(*model_.tokenizer, *prompt);
  if (!tokens.ok()) return api_error(tokens.status());
  job->prompts.push_back(std::move(*tokens));
  generate::Options& options = request->options;
  chat::AnswerRequest wanted;
  wanted.separate_reasoning = !request->inline_reasoning;
  if (options.constraint) wanted.response_schema = options.constraint->text;
  auto planned = format_->plan(wanted, *prompt);
  if (!planned.ok()) return api_error(planned.status());
  if (!planned->grammar.empty()) options.constraint = {grammar::Kind::kGbnf, planned->grammar, {}};
  options.special = planned->show_control_tokens;
  plan->emplace(std::move(*planned));
  std::vector<std::string>& stop = options.stop;
  stop.insert(stop.end(), prompt->stop.begin(), prompt->stop.end());
  return {};
}

// Queues the job, or returns an error; sets reply->retry_after if the queue is full.
Problem Service::submit(const Call& call, const std::shared_ptr<Job>& job, Reply* reply) {
  job->arrived = call.arrived;
  job->deadline = call.arrived + limits_.request_ms;
  if (!job->channel.usable()) return unavailable("The server has no file descriptors left.");
  switch (worker_.submit(job)) {
    case Worker::Admission::kAdmitted:
      return {};
    case Worker::Admission::kFull:
      reply->retry_after = worker_.retry_after();
      return ApiError{429, "Too many requests are waiting: try again later.", "",
                      "rate_limit_exceeded"};
    case Worker::Admission::kClosed:
      break;
  }
  return unavailable("The server accepts no more requests.");
}

Reply Service::generate(const Call& call, GenerateRequest request, Record* record) {
  // A streamed reply outlives this call.
  struct State {
    GenerateRequest request;
    std::unique_ptr<Exchange> exchange;
    std::unique_ptr<ApiResponse> answer;
  };
  auto state = std::make_shared<State>();
  state->request = std::move(request);
  GenerateRequest& wanted = state->request;
  record->stream = wanted.stream;
  auto job = std::make_shared<Job>();
  std::optional<chat::AnswerPlan> plan;
  Reply reply;
  Problem problem = prompt_tokens(&wanted, job.get(), &plan);
  if (!problem) {
    const Status valid = sample::validate(wanted.options.sampling, model_.n_vocab);
    if (!valid.ok()) problem = api_error(valid);
  }
  job->options = wanted.options;
  job->options.drafts.ngram = model_.ngram_drafts;
  job->n = wanted.n;
  if (!problem) problem = submit(call, job, &reply);
  if (problem) {
    const int retry_after = reply.retry_after;
    reply = failed(*problem, record);
    reply.retry_after = retry_after;
    return reply;
  }
  state->exchange = std::make_unique<Exchange>(worker_, call.client, job);
  state->answer = std::make_unique<ApiResponse>(wanted, *model_.tokenizer, model_.name,
                                                plan ? &*plan : nullptr);
  const auto gone = [record] {
    record->finish = "aborted";
    return Reply{.status = 499};
  };
  // Runs until the end of the response. `write` is null if it is not streamed.
  const auto work = [state, record](const Reply::Write* write, Problem* bad) -> bool {
    ApiResponse& answer = *state->answer;
    const auto done = [&] {
      record->usage = answer.usage();
      record->finish = answer.finish();
      return true;
    };
    const auto show = [&](std::string text) {
      const bool ok = write == nullptr || text.empty() || (*write)(text);
      if (!ok) record->finish = "aborted";
      return ok;
    };
    if (write != nullptr && !show(answer.take_frames())) return false;
    for (Event event;;) {
      if (!state->exchange->next(&event)) break;
      if (event.kind == Kind::kFailed) {
        *bad = api_error(event.failure);
        return false;
      }
      if (event.kind == Kind::kDone) return done() && show(answer.usage_frame());
      if (event.kind == Kind::kStarted) continue;
      answer.push(event);
      if (write != nullptr && !show(answer.take_frames())) return false;
    }
    record->finish = "aborted";
    return false;
  };
  Event first;
  if (!state->exchange->next(&first)) return gone();
  record->queued_ms = job->begun - job->arrived;
  if (first.kind == Kind::kFailed) return failed(api_error(first.failure), record);
  if (!wanted.stream) {
    if (work(nullptr, &problem)) return {.body = state->answer->document()};
    return problem ? failed(*problem, record) : gone();
  }
  reply.type = "text/event-stream";
  reply.stream = [state, record, work](const Reply::Write& write) {
    Problem bad;
    if (work(&write, &bad)) return write(kStreamEnd);
    if (!bad) return false;
    record->error = bad->code;
    return write(error_frame(*bad));
  };
  return reply;
}

Reply Service::embeddings(const Call& call, Record* record) {
  EmbeddingRequest request;
  Problem problem;
  {
    const std::lock_guard<std::mutex> lock(texts_);
    problem = read_embedding(call.body, &request);
  }
  auto job = std::make_shared<Job>();
  job->embedding = true;
  job->embed_options = request.options;
  const int64_t width = request.options.dimensions > 0 ? request.options.dimensions : model_.width;
  if (!problem && width * static_cast<int64_t>(request.inputs.size()) > kMaxVectorValues) {
    problem = ApiError{.message = "'input' has too many texts for one request: at most " +
                                  std::to_string(kMaxVectorValues / width) + " of this model.",
                       .param = "input"};
  }
  for (const Input& input : request.inputs) {
    if (problem) break;
    std::vector<Token> tokens;
    problem = input_tokens(input, /*parse_special=*/false, &tokens);
    job->tokens.insert(job->tokens.end(), tokens.begin(), tokens.end());
    job->ends.push_back(static_cast<int32_t>(job->tokens.size()));
  }
  Reply reply;
  if (!problem) problem = submit(call, job, &reply);
  if (problem) {
    const int retry_after = reply.retry_after;
    reply = failed(*problem, record);
    reply.retry_after = retry_after;
    return reply;
  }
  Exchange exchange(worker_, call.client, job);
  Event event;
  if (!exchange.next(&event)) {
    record->finish = "aborted";
    return {.status = 499};
  }
  record->queued_ms = job->begun - job->arrived;
  if (event.kind == Kind::kFailed) return failed(api_error(event.failure), record);
  record->usage.prompt = static_cast<int64_t>(job->tokens.size());
  return {.body = embeddings_body(*job, model_.name, request.base64)};
}

Reply Service::tokenize(const Call& call, Record* record) {
  TokenizeRequest request;
  const std::lock_guard<std::mutex> lock(texts_);
  if (const Problem problem = read_tokenize(call.body, &request)) return failed(*problem, record);
  if (const Problem problem = too_long(request.text.size())) return failed(*problem, record);
  const auto tokens = model_.tokenizer->try_encode(
      request.text, {.add_special = request.add_special, .parse_special = request.parse_special});
  if (!tokens.ok()) return failed(api_error(tokens.status()), record);
  return {.body = to_text({{"tokens", *tokens}})};
}

Reply Service::detokenize(const Call& call, Record* record) {
  std::vector<Token> tokens;
  const std::lock_guard<std::mutex> lock(texts_);
  if (const Problem problem = read_detokenize(call.body, &tokens)) return failed(*problem, record);
  for (const Token token : tokens) {
    if (token < model_.n_vocab) continue;
    return failed({.message = "A token id is not in the model's vocabulary.", .param = "tokens"},
                  record);
  }
  return {.body = to_text({{"content", model_.tokenizer->decode(tokens)}})};
}

}  // namespace sluice::serve
