// The server without HTTP: from a request's method, path and body to a reply. Any number of threads
// call it, one for each connection; they wait here for the engine's thread, and watch their clients
// meanwhile. Nothing here knows of sockets, but through Client.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "chat/template.h"
#include "serve/metrics.h"
#include "serve/response.h"
#include "serve/worker.h"

namespace sluice::serve {

struct Limits {
  uint64_t max_body = 4u << 20;  // bytes
  double request_ms = 600'000;   // from a request's arrival to its answer's end
};

// Whoever asked.
class Client {
 public:
  enum class Woken : uint8_t { kReadable, kGone, kTimeout };
  virtual ~Client() = default;
  // Waits until the descriptor is readable, the client has gone or `timeout_ms` are over.
  [[nodiscard]] virtual Woken wait(int descriptor, double timeout_ms) = 0;
};

// A line of the access log; no text of prompts or answers.
struct Record {
  std::string route;  // one of the server's paths; "": none of them
  int status = 0;
  std::string error;  // code
  const char* finish = "";
  Usage usage;
  double queued_ms = 0;
  bool stream = false;
};

struct Call {
  std::string_view method, path, authorization, body;
  Client& client;
  double arrived = 0;  // monotonic_ms
};

struct Reply {
  using Write = std::function<bool(std::string_view)>;  // false: the client has gone
  int status = 200;
  const char* type = "application/json";
  std::string body{};
  int retry_after = 0;     // seconds; 0: none
  const char* allow = "";  // methods, with 405
  // Writes a body that comes in parts, to its end; false when it broke off. Null: `body` is all.
  std::function<bool(const Write&)> stream{};
};

struct ModelFacts {
  std::string name{};
  const tokenizer::Tokenizer* tokenizer = nullptr;  // outlives the service
  const chat::Template* chat_template = nullptr;    // null: the model cannot chat
  int32_t n_ctx = 0;
  int64_t n_vocab = 0;
  int32_t width = 0;          // of embeddings
  bool ngram_drafts = false;  // the plan has room for guesses
};

class Service {
 public:
  Service(Worker& worker, Metrics& metrics, ModelFacts model, Limits limits, std::string api_key);

  // What is wrong with a request before its body is read: the path, the method, the key.
  [[nodiscard]] bool refuse(const Call& call, Reply* reply, Record* record) const;
  // Answers. The stream of the reply, if any, adds to *record, which outlives it.
  [[nodiscard]] Reply answer(const Call& call, Record* record);

  // From now on everything is refused: the server ends.
  void close() { closed_ = true; }
  [[nodiscard]] const Limits& limits() const { return limits_; }
  [[nodiscard]] Metrics& metrics() { return metrics_; }
  std::atomic<size_t> connections{0};

 private:
  struct Exchange;
  [[nodiscard]] bool authorized(std::string_view authorization) const;
  [[nodiscard]] Reply health() const;
  [[nodiscard]] Reply generate(const Call& call, GenerateRequest request, Record* record);
  [[nodiscard]] Reply embeddings(const Call& call, Record* record);
  [[nodiscard]] Reply tokenize(const Call& call, Record* record);
  [[nodiscard]] Reply detokenize(const Call& call, Record* record);
  [[nodiscard]] Problem prompt_tokens(GenerateRequest* request, Job* job, bool* opens_reasoning);
  [[nodiscard]] Problem too_long(size_t bytes) const;
  [[nodiscard]] Problem input_tokens(const Input& input, bool parse_special,
                                     std::vector<Token>* out);
  [[nodiscard]] Problem submit(const Call& call, const std::shared_ptr<Job>& job, Reply* reply);

  Worker& worker_;
  Metrics& metrics_;
  const ModelFacts model_;
  const Limits limits_;
  const std::string api_key_;
  const int64_t created_;
  std::mutex
      texts_;  // one request's text is parsed or encoded at a time: it takes many times its size
  std::atomic<bool> closed_{false};
};

}  // namespace sluice::serve
