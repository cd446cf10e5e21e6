// The server without HTTP: maps a request's method, path and body to a reply. It is called by one
// thread per connection, which waits for the engine's thread and watches for disconnected clients.
// Sockets are accessed only through Client.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/template.h"
#include "endpoints/endpoints.h"
#include "native/picture_source.h"
#include "ollama/models.h"
#include "openai/chat_prompt.h"
#include "openai/infill.h"
#include "openai/response.h"
#include "serve/metrics.h"
#include "serve/worker.h"

namespace sluice::serve {

using openai::ApiError;
using openai::GenerateRequest;
using openai::Infill;
using openai::Input;
using openai::Problem;

struct Limits {
  uint64_t max_body = 4u << 20;  // bytes
  double request_ms = 600'000;   // from a request's arrival to the end of its response
};

// The client that sent a request.
class Client {
 public:
  enum class Woken : uint8_t { kReadable, kGone, kTimeout };
  virtual ~Client() = default;
  // Waits until the descriptor is readable, the client has disconnected, or the timeout.
  [[nodiscard]] virtual Woken wait(int descriptor, double timeout_ms) = 0;
};

// A line of the access log. Contains no text of prompts or outputs.
struct Record {
  std::string route;  // one of the server's paths; "": unknown path
  int status = 0;
  std::string error;  // error code
  const char* finish = "";
  openai::Usage usage;
  double queued_ms = 0;
  bool stream = false;
};

struct Call {
  std::string_view method, path;
  std::string_view api_key;  // that the client sent; "": none
  std::string_view body;
  Client& client;
  double arrived = 0;  // monotonic_ms
};

struct Reply {
  using Write = std::function<bool(std::string_view)>;  // false: the client has disconnected
  int status = 200;
  const char* type = "application/json";
  std::string body{};
  int retry_after = 0;     // seconds; 0: none
  const char* allow = "";  // allowed methods, with status 405
  // Writes a streamed body; false if it ended early. Null: `body` is the complete body.
  std::function<bool(const Write&)> stream{};
};

struct ModelFacts {
  std::string name{};
  const tokenizer::Tokenizer* tokenizer = nullptr;  // must outlive the service
  const chat::Template* chat_template = nullptr;    // null: the model cannot chat
  int32_t n_ctx = 0;
  int64_t n_vocab = 0;
  int32_t width = 0;     // of embeddings
  int32_t n_scores = 0;  // that a reranker gives a document; 0: not a reranker
  // How pictures of requests are read; none: the model takes no pictures.
  std::optional<native::PictureUrls> pictures{};
  const multimodal::Pictures* projector = nullptr;  // with `pictures`; must outlive the service
  media::TextModel text_model{};
  media::DecodeOptions decoding{};
  bool ngram_drafts = false;  // draft by n-gram; the plan must have memory for draft tokens
  openai::InfillTokens infill{};
  ollama::ModelFacts about{};  // created, name, n_ctx and chat_template are set by the service
};

class Service {
 public:
  Service(Worker& worker, Metrics& metrics, ModelFacts model, Limits limits, std::string api_key);

  // Checks path, method and API key before the body is read. True if *reply is an error.
  [[nodiscard]] bool refuse(const Call& call, Reply* reply, Record* record) const;
  // Handles a request. Reply::stream also writes to *record, which must outlive it.
  [[nodiscard]] Reply answer(const Call& call, Record* record);

  // Refuses all new POST requests from now on, for shutdown.
  void close() { closed_ = true; }
  [[nodiscard]] const Limits& limits() const { return limits_; }
  [[nodiscard]] Metrics& metrics() { return metrics_; }
  std::atomic<size_t> connections{0};

 private:
  [[nodiscard]] bool authorized(std::string_view key) const;
  [[nodiscard]] Reply health() const;
  // What GET requests ask, and /api/show.
  [[nodiscard]] Reply document(const Call& call, Record* record) const;
  [[nodiscard]] Reply generate(const Call& call, const endpoints::Endpoint& endpoint,
                               Record* record);
  [[nodiscard]] Reply embeddings(const Call& call, const endpoints::EmbeddingEndpoint& endpoint,
                                 Record* record);
  [[nodiscard]] Reply rerank(const Call& call, Record* record);
  // Computes the vectors of a job; the error, or none. 499: the client has disconnected.
  [[nodiscard]] Problem compute(const Call& call, const std::shared_ptr<Job>& job, Record* record,
                                Reply* reply);
  [[nodiscard]] Reply apply_template(const Call& call, Record* record);
  [[nodiscard]] Reply count_tokens(const Call& call, Record* record);
  [[nodiscard]] Reply tokenize(const Call& call, Record* record);
  [[nodiscard]] Reply detokenize(const Call& call, Record* record);
  [[nodiscard]] Problem can_chat(const GenerateRequest& request) const;
  [[nodiscard]] Problem render(const GenerateRequest& request, chat::Prompt* out) const;
  // `plan`: how to read the response of a chat.
  [[nodiscard]] Problem prompt_tokens(const Call& call, GenerateRequest* request, Job* job,
                                      std::optional<chat::AnswerPlan>* plan);
  [[nodiscard]] Problem infill_tokens(const GenerateRequest& request, Job* job) const;
  // Adds the tokens of a prompt to the job.
  [[nodiscard]] Problem encode(const chat::Prompt& prompt, Job* job) const;
  // Adds the files of a prompt's pictures to the job.
  [[nodiscard]] Problem read_pictures(const Call& call, const chat::Prompt& prompt, Job* job) const;
  // The number of tokens of a prompt with pictures.
  [[nodiscard]] Result<size_t> count_with_pictures(const Job& job) const;
  [[nodiscard]] size_t most_bytes() const;  // of a text
  [[nodiscard]] Problem too_long(size_t bytes) const;
  [[nodiscard]] openai::TokenBytes token_bytes() const {
    return [tokenizer = model_.tokenizer](Token token) {
      return tokenizer->token_bytes(token, /*special=*/true);
    };
  }
  // `truncate`: the most tokens, the rest is cut off; 0: any number.
  [[nodiscard]] Problem input_tokens(const Input& input, bool parse_special, int32_t truncate,
                                     std::vector<Token>* out);
  [[nodiscard]] Problem submit(const Call& call, const std::shared_ptr<Job>& job, Reply* reply);

  Worker& worker_;
  Metrics& metrics_;
  ModelFacts model_;
  std::optional<openai::ChatFormats> formats_;  // none: the model cannot chat
  const Limits limits_;
  const std::string api_key_;
  // Only one request is parsed or tokenized at a time, because that takes many times its size.
  std::mutex texts_;
  std::atomic<bool> closed_{false};
};

}  // namespace sluice::serve
