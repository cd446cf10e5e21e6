#include "serve/service.h"

#include <algorithm>
#include <ctime>

#include "anthropic/request.h"
#include "anthropic/responder.h"
#include "base/random.h"
#include "endpoints/pages.h"
#include "serve/response.h"

namespace sluice::serve {
namespace {

using Kind = Event::Kind;

constexpr int64_t kMaxVectorValues = 1 << 21;  // values of one embeddings request
constexpr size_t kTextPerToken = 32;           // bytes; longer texts are refused untokenized

// `record` has the route, whose API decides about the form.
Reply failed(const ApiError& error, Record* record, const Reply& so_far = {}) {
  if (error.status == 499) return {.status = 499};  // nobody reads the body
  record->error = error.code;
  return {.status = error.status,
          .body = endpoints::error_body(record->route, error),
          .retry_after = so_far.retry_after};
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

Reply disconnected(Record* record) {
  record->finish = "aborted";
  return {.status = 499};
}

openai::Vectors vectors_of(const Job& job) {
  return {job.vectors, static_cast<size_t>(job.width), static_cast<int64_t>(job.tokens.size())};
}

}  // namespace

Service::Service(Worker& worker, Metrics& metrics, ModelFacts model, Limits limits,
                 std::string api_key)
    : worker_(worker),
      metrics_(metrics),
      model_(std::move(model)),
      limits_(limits),
      api_key_(std::move(api_key)) {
  model_.about.created = std::time(nullptr);
  model_.about.name = model_.name;
  model_.about.n_ctx = model_.n_ctx;
  model_.about.sees = model_.pictures.has_value();
  if (model_.chat_template != nullptr) model_.about.chat_template = model_.chat_template->source();
  if (model_.chat_template == nullptr) return;
  formats_.emplace(*model_.chat_template, chat::control_tokens(*model_.tokenizer));
}

bool Service::authorized(std::string_view key) const {
  return api_key_.empty() || same(key, api_key_);
}

bool Service::refuse(const Call& call, Reply* reply, Record* record) const {
  const std::string path = endpoints::full_path(call.path);
  const std::optional<endpoints::Route> route = endpoints::find_route(path);
  if (!route) {
    const ApiError unknown = openai::unknown_path();
    record->error = unknown.code;
    *reply = {.status = unknown.status, .body = endpoints::error_body(path, unknown)};
    return true;
  }
  record->route = route->path;
  const bool allowed = route->method.empty() || call.method == route->method ||
                       (call.method == "HEAD" && route->method == "GET");
  if (!allowed) {
    *reply = failed({405, "This path takes another method.", "", "method_not_allowed"}, record);
    reply->allow = route->method == "GET" ? "GET, HEAD" : "POST";
    return true;
  }
  if (route->path != "/health" && !authorized(call.api_key)) {
    *reply =
        failed({401, "The API key is missing, or is another one.", "", "invalid_api_key"}, record);
    return true;
  }
  if (route->method != "GET" && closed_) {
    *reply = failed(unavailable("The server is shutting down."), record);
    return true;
  }
  return false;
}

Reply Service::answer(const Call& call, Record* record) {
  Reply reply;
  if (refuse(call, &reply, record)) return reply;
  const std::string& route = record->route;
  if (const auto* endpoint = endpoints::find(route)) return generate(call, *endpoint, record);
  if (const auto* endpoint = endpoints::find_embedding(route)) {
    return embeddings(call, *endpoint, record);
  }
  if (route == "/v1/rerank") return rerank(call, record);
  if (route == "/apply-template") return apply_template(call, record);
  if (route == endpoints::kCountTokens) return count_tokens(call, record);
  if (route == "/tokenize") return tokenize(call, record);
  if (route == "/detokenize") return detokenize(call, record);
  return document(call, record);
}

Reply Service::document(const Call& call, Record* record) const {
  const std::string& route = record->route;
  if (route == "/health") return health();
  if (route == "/metrics") {
    return {.type = "text/plain; version=0.0.4; charset=utf-8",
            .body = metrics_.text({worker_.queued(), worker_.running(), connections})};
  }
  endpoints::Page page;
  const Problem problem =
      endpoints::write_page(endpoints::full_path(call.path), call.body, model_.about, &page);
  if (problem) return failed(*problem, record);
  return {.type = page.type, .body = std::move(page.body)};
}

Reply Service::health() const {
  const Status failure = worker_.failure();
  const char* status = !failure.ok() ? "failed" : closed_ ? "closing" : "ok";
  Reply reply{.status = failure.ok() && !closed_ ? 200 : 503};
  openai::Json body = {{"status", status}};
  if (!failure.ok()) body["error"] = failure.message();
  reply.body = openai::to_text(body);
  return reply;
}

size_t Service::most_bytes() const {
  return kTextPerToken * static_cast<size_t>(model_.n_ctx) + (64u << 10);
}

// Refuses texts that cannot fit the context, because tokenizing takes many times a text's size.
Problem Service::too_long(size_t bytes) const {
  const size_t most = most_bytes();
  if (bytes <= most) return {};
  return openai::api_error(
      error(Code::kPromptTooLong, "the text has %zu bytes but %zu is the maximum", bytes, most));
}

Problem Service::input_tokens(const Input& input, bool parse_special, int32_t truncate,
                              std::vector<Token>* out) {
  if (input.is_tokens) {
    const auto known = [&](Token token) { return token < model_.n_vocab; };
    if (!std::all_of(input.tokens.begin(), input.tokens.end(), known)) {
      return ApiError{.message = "A token id is not in the model's vocabulary."};
    }
    *out = input.tokens;
  } else {
    std::string_view text = input.text;
    if (truncate > 0) text = text.substr(0, most_bytes());
    if (Problem problem = too_long(text.size())) return problem;
    const std::lock_guard<std::mutex> lock(texts_);
    auto tokens = model_.tokenizer->try_encode(text, {.parse_special = parse_special});
    if (!tokens.ok()) return openai::api_error(tokens.status());
    *out = std::move(*tokens);
  }
  const size_t most = static_cast<size_t>(truncate);
  if (truncate > 0 && out->size() > most) {
    const Token last = out->back();  // [SEP] or EOS stays at the end
    out->resize(most);
    if (!input.is_tokens && model_.tokenizer->is_control(last)) out->back() = last;
  }
  return {};
}

Problem Service::can_chat(const GenerateRequest& request) const {
  if (!formats_) {
    return ApiError{.message = "The model's chat template cannot be read.",
                    .code = "CHAT_TEMPLATE"};
  }
  return model_.pictures ? Problem() : too_long(request.messages.size());
}

Problem Service::render(const GenerateRequest& request, chat::Prompt* out) const {
  if (Problem problem = can_chat(request)) return problem;
  return formats_->render(request, out);
}

Problem Service::read_pictures(const Call& call, const chat::Prompt& prompt, Job* job) const {
  native::PictureUrls allowed = *model_.pictures;
  allowed.cancelled = [&call] { return call.client.wait(-1, 0) == Client::Woken::kGone; };
  for (const std::string& url : prompt.pictures) {
    Result<std::vector<uint8_t>> file = native::fetch_picture(url, allowed);
    Status status = file.status();
    if (status.ok()) status = media::image_info(*file, model_.decoding).status();
    if (!status.ok()) {
      ApiError failure = openai::api_error(status);
      if (failure.status == 500) failure.status = 400;  // the client's picture, not the server
      return failure;
    }
    job->pictures.push_back(std::move(*file));
  }
  job->text = marked_text(prompt);
  job->encoding = {.add_special = prompt.add_special, .literal_spans = true};
  job->prompts.emplace_back();
  return {};
}

Result<size_t> Service::count_with_pictures(const Job& job) const {
  std::vector<media::PicturePlan> plans;
  for (const std::vector<uint8_t>& file : job.pictures) {
    const Result<media::ImageInfo> info = media::image_info(file, model_.decoding);
    if (!info.ok()) return info.status();
    Result<media::PicturePlan> plan = model_.projector->plan(info->width, info->height);
    if (!plan.ok()) return plan.status();
    plans.push_back(std::move(*plan));
  }
  const auto chunks = media::layout(job.text, model_.projector->projector(), plans,
                                    *model_.tokenizer, model_.text_model, job.encoding);
  if (!chunks.ok()) return chunks.status();
  size_t tokens = 0;
  for (const media::Chunk& chunk : *chunks) tokens += chunk.n_tokens;
  return tokens;
}

Problem Service::prompt_tokens(const Call& call, GenerateRequest* request, Job* job,
                               std::optional<chat::AnswerPlan>* plan) {
  if (request->infill) {
    const std::lock_guard<std::mutex> lock(texts_);
    return infill_tokens(*request, job);
  }
  if (!request->chat) {
    for (const Input& prompt : request->prompts) {
      Problem problem =
          input_tokens(prompt, /*parse_special=*/true, 0, &job->prompts.emplace_back());
      if (problem) return problem;
    }
    return {};
  }
  if (Problem problem = can_chat(*request)) return problem;
  request->pictures = model_.pictures.has_value();
  chat::Prompt prompt;
  {
    const std::lock_guard<std::mutex> lock(texts_);
    if (Problem problem = formats_->prepare(request, &prompt, plan)) return problem;
    if (Problem problem = too_long(prompt.text().size())) return problem;
    if (prompt.pictures.empty()) return encode(prompt, job);
  }
  return read_pictures(call, prompt, job);
}

// Files that do not fit beside the output are omitted, the first ones first.
Problem Service::infill_tokens(const GenerateRequest& request, Job* job) const {
  Infill infill = *request.infill;
  const int64_t n_ctx = model_.n_ctx, output = request.options.max_tokens;
  const int64_t most = n_ctx - (output < 0 ? n_ctx / 4 : std::min(output, n_ctx / 2));
  for (;; openai::drop_files(&infill)) {
    chat::Prompt prompt;
    Problem problem = openai::infill_prompt(model_.infill, infill, &prompt);
    if (problem) return problem;
    problem = too_long(prompt.text().size());
    job->prompts.clear();
    if (!problem) problem = encode(prompt, job);
    const bool fits = !problem && static_cast<int64_t>(job->prompts[0].size()) <= most;
    if (fits || infill.files.empty()) return problem;
  }
}

Problem Service::encode(const chat::Prompt& prompt, Job* job) const {
  auto tokens = chat::encode(*model_.tokenizer, prompt);
  if (!tokens.ok()) return openai::api_error(tokens.status());
  job->prompts.push_back(std::move(*tokens));
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

Reply Service::generate(const Call& call, const endpoints::Endpoint& endpoint, Record* record) {
  auto response = std::make_shared<Response>();
  response->record = record;
  GenerateRequest& wanted = response->request;
  wanted.options.sampling.seed = random_seed();
  Problem problem;
  {
    const std::lock_guard<std::mutex> lock(texts_);
    problem = endpoint.read(call.body, &wanted);
  }
  if (problem) return failed(*problem, record);
  if (wanted.prompt_count() == 0) {
    return {.body = endpoint.respond(wanted, token_bytes(), model_.name, nullptr)->document()};
  }
  record->stream = wanted.stream;
  auto job = std::make_shared<Job>();
  std::optional<chat::AnswerPlan> plan;
  Reply reply;
  problem = prompt_tokens(call, &wanted, job.get(), &plan);
  if (!problem) problem = openai::check_tokens(wanted, model_.n_vocab);
  job->options = wanted.options;
  job->options.drafts.ngram = model_.ngram_drafts;
  job->n = wanted.n;
  job->cache_key = wanted.cache_key;
  if (!problem) problem = submit(call, job, &reply);
  if (problem) return failed(*problem, record, reply);
  response->exchange = std::make_unique<Exchange>(worker_, call.client, job);
  response->answer = endpoint.respond(wanted, token_bytes(), model_.name, plan ? &*plan : nullptr);
  Event first;
  if (!response->exchange->next(&first)) return disconnected(record);
  record->queued_ms = job->begun - job->arrived;
  if (first.kind == Kind::kFailed) return failed(openai::api_error(first.failure), record);
  if (!wanted.stream) {
    if (response->run(nullptr, &problem)) return {.body = response->answer->document()};
    return problem ? failed(*problem, record) : disconnected(record);
  }
  reply.type = endpoint.stream_type;
  reply.stream = [response](const Reply::Write& write) { return response->stream(write); };
  return reply;
}

Problem Service::compute(const Call& call, const std::shared_ptr<Job>& job, Record* record,
                         Reply* reply) {
  if (Problem problem = submit(call, job, reply)) return problem;
  Exchange exchange(worker_, call.client, job);
  Event event;
  if (!exchange.next(&event)) {
    record->finish = "aborted";
    return ApiError{.status = 499};
  }
  record->queued_ms = job->begun - job->arrived;
  if (event.kind == Kind::kFailed) return openai::api_error(event.failure);
  record->usage.prompt = static_cast<int64_t>(job->tokens.size());
  return {};
}

Reply Service::embeddings(const Call& call, const endpoints::EmbeddingEndpoint& endpoint,
                          Record* record) {
  openai::EmbeddingRequest request;
  Problem problem;
  {
    const std::lock_guard<std::mutex> lock(texts_);
    problem = endpoint.read(call.body, &request);
  }
  auto job = std::make_shared<Job>();
  job->embedding = true;
  job->embed_options = request.options;
  if (!problem && model_.n_scores > 0) {
    problem =
        ApiError{.message = "This model is a reranker, which has no embeddings: use /v1/rerank."};
  }
  if (!problem && request.options.dimensions > model_.width) {
    problem = ApiError{.message = "'dimensions' must be a whole number from 1 to " +
                                  std::to_string(model_.width) + " with this model.",
                       .param = "dimensions"};
  }
  const int64_t width = request.options.dimensions > 0 ? request.options.dimensions : model_.width;
  if (!problem && width * static_cast<int64_t>(request.inputs.size()) > kMaxVectorValues) {
    problem = ApiError{.message = "'input' has too many texts for one request: at most " +
                                  std::to_string(kMaxVectorValues / width) + " of this model.",
                       .param = "input"};
  }
  const int32_t most =
      request.truncate < 0 ? model_.n_ctx : std::min(request.truncate, model_.n_ctx);
  for (const Input& input : request.inputs) {
    if (problem) break;
    std::vector<Token> tokens;
    problem = input_tokens(input, /*parse_special=*/false, most, &tokens);
    job->tokens.insert(job->tokens.end(), tokens.begin(), tokens.end());
    job->ends.push_back(static_cast<int32_t>(job->tokens.size()));
  }
  Reply reply;
  if (!problem) problem = compute(call, job, record, &reply);
  if (problem) return failed(*problem, record, reply);
  return {.body = endpoint.write(vectors_of(*job), request, model_.name)};
}

Reply Service::rerank(const Call& call, Record* record) {
  openai::RerankRequest request;
  auto job = std::make_shared<Job>();
  job->embedding = true;
  job->embed_options.pooling = model::Pooling::kRank;
  Problem problem;
  {
    const std::lock_guard<std::mutex> lock(texts_);
    problem = openai::read_rerank(call.body, &request);
    if (!problem && model_.n_scores == 0) {
      problem = ApiError{.message = "This model is not a reranker."};
    }
    for (const std::string& text : request.documents) {
      if (!problem) problem = too_long(request.query.size() + text.size());
      if (problem) break;
      const auto tokens = embed::pair_tokens(*model_.tokenizer, request.query, text);
      if (!tokens.ok()) {
        problem = openai::api_error(tokens.status());
        break;
      }
      job->tokens.insert(job->tokens.end(), tokens->begin(), tokens->end());
      job->ends.push_back(static_cast<int32_t>(job->tokens.size()));
    }
  }
  Reply reply;
  if (!problem) problem = compute(call, job, record, &reply);
  if (problem) return failed(*problem, record, reply);
  return {.body = openai::rerank_body(vectors_of(*job), request, model_.name)};
}

Reply Service::apply_template(const Call& call, Record* record) {
  GenerateRequest request;
  const std::lock_guard<std::mutex> lock(texts_);
  Problem problem = openai::read_apply_template(call.body, &request);
  request.pictures = model_.pictures.has_value();
  chat::Prompt prompt;
  if (!problem) problem = render(request, &prompt);
  if (problem) return failed(*problem, record);
  return {.body = openai::to_text({{"prompt", prompt.text()}})};
}

Reply Service::count_tokens(const Call& call, Record* record) {
  GenerateRequest request;
  Problem problem;
  {
    const std::lock_guard<std::mutex> lock(texts_);
    problem = anthropic::read_count(call.body, &request);
  }
  Job job;
  std::optional<chat::AnswerPlan> plan;
  if (!problem) problem = prompt_tokens(call, &request, &job, &plan);
  if (problem) return failed(*problem, record);
  if (job.pictures.empty()) return {.body = anthropic::count_body(job.prompts[0].size())};
  const Result<size_t> tokens = count_with_pictures(job);
  if (!tokens.ok()) return failed(openai::api_error(tokens.status()), record);
  return {.body = anthropic::count_body(*tokens)};
}

Reply Service::tokenize(const Call& call, Record* record) {
  openai::TokenizeRequest request;
  const std::lock_guard<std::mutex> lock(texts_);
  Problem problem = openai::read_tokenize(call.body, &request);
  if (!problem) problem = too_long(request.text.size());
  if (problem) return failed(*problem, record);
  const auto tokens = model_.tokenizer->try_encode(
      request.text, {.add_special = request.add_special, .parse_special = request.parse_special});
  if (!tokens.ok()) return failed(openai::api_error(tokens.status()), record);
  return {.body = openai::tokenize_body(*tokens, request.with_pieces ? token_bytes() : nullptr)};
}

Reply Service::detokenize(const Call& call, Record* record) {
  std::vector<Token> tokens;
  const std::lock_guard<std::mutex> lock(texts_);
  if (const Problem problem = openai::read_detokenize(call.body, &tokens)) {
    return failed(*problem, record);
  }
  for (const Token token : tokens) {
    if (token < model_.n_vocab) continue;
    return failed({.message = "A token id is not in the model's vocabulary.", .param = "tokens"},
                  record);
  }
  return {.body = openai::to_text({{"content", model_.tokenizer->decode(tokens)}})};
}

}  // namespace sluice::serve
