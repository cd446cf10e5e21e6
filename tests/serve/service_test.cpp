// The service without HTTP: many clients at once on one engine, some of which disconnect. Every
// response equals the one that the client would get alone.
#include "serve/service.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "../paths.h"
#include "base/clock.h"

namespace sluice::serve {
namespace {

using openai::Json;
using openai::parse_body;

// A client that disconnects after `patience` waits.
class Caller final : public Client {
 public:
  explicit Caller(int patience = 1 << 30) : patience_(patience) {}
  Woken wait(int descriptor, double timeout_ms) override {
    if (patience_-- <= 0) return Woken::kGone;
    pollfd one = {descriptor, POLLIN, 0};
    return ::poll(&one, 1, static_cast<int>(timeout_ms)) == 1 ? Woken::kReadable : Woken::kTimeout;
  }

 private:
  int patience_;
};

class ServeThreads : public testing::Test {
 protected:
  void start(int32_t parallel, size_t max_queued, const std::string& key = "",
             size_t conversations = 0) {
    service_.reset();
    worker_.reset();  // before its model
    native::LoadOptions options;
    options.engine.n_ctx = 128;
    options.engine.n_threads = 1;
    options.engine.parallel = parallel;
    options.on_header = [this](const gguf::Header& header) { texts_ = chat::read_texts(header); };
    auto opened = native::Model::open(
        sluice::test::source_dir() + "/examples/models/sluice-tales-Q8_0.gguf", options);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    model_ = std::move(*opened);
    template_ = std::make_unique<chat::Template>(std::move(*chat::Template::create(texts_)));
    worker_ = std::make_unique<Worker>(*model_, metrics_, max_queued);
    const session::Engine& engine = model_->engine();
    service_ = std::make_unique<Service>(*worker_, metrics_,
                                         ModelFacts{.name = "tales",
                                                    .tokenizer = &engine.tokenizer(),
                                                    .chat_template = template_.get(),
                                                    .n_ctx = engine.plan().context.n_ctx,
                                                    .n_vocab = engine.program().hp.n_vocab,
                                                    .width = engine.program().embed_tail.width},
                                         Limits{}, key);
    if (conversations > 0) {
      const Status swaps = worker_->swap_to(testing::TempDir() + "sluice-serve", conversations);
      ASSERT_TRUE(swaps.ok()) << swaps.message();
    }
    ASSERT_TRUE(worker_->start().ok());
  }
  Reply ask(std::string_view method, std::string_view path, std::string_view body, Client& client,
            std::string_view key = "") {
    Record record;
    return service_->answer({method, path, key, body, client, monotonic_ms()}, &record);
  }
  // The text of a completion; "" if the client disconnected.
  std::string complete(int prompt, bool stream, int patience = 1 << 30) {
    static constexpr const char* kPrompts[] = {"Once upon a time", "The little fox", "One day"};
    const std::string body = std::string(R"({"temperature":0,"max_tokens":12,"prompt":")") +
                             kPrompts[prompt] + R"(","stream":)" + (stream ? "true}" : "false}");
    Caller caller(patience);
    Record record;
    Reply reply =
        service_->answer({"POST", "/v1/completions", "", body, caller, monotonic_ms()}, &record);
    if (reply.status != 200) {
      EXPECT_EQ(reply.status, 499) << reply.body;
      return "";
    }
    if (!stream) return (*parse_body(reply.body))["choices"][0]["text"];
    std::string text;
    const bool whole = reply.stream([&](std::string_view frame) {
      const size_t from = frame.find("\"text\":\"");
      if (from == std::string_view::npos) return true;
      const Json chunk = *parse_body(frame.substr(6, frame.find("\n\n") - 6));
      text += chunk["choices"][0]["text"];
      return true;
    });
    return whole ? text : "";
  }

  struct Completed {
    std::string text;
    int cached = 0;  // tokens
  };
  Completed complete(const std::string& prompt, int max_tokens) {
    const Json asked = {{"temperature", 0}, {"max_tokens", max_tokens}, {"prompt", prompt}};
    Caller caller;
    const Reply reply = ask("POST", "/v1/completions", asked.dump(), caller);
    EXPECT_EQ(reply.status, 200) << reply.body;
    if (reply.status != 200) return {};
    const Json body = *parse_body(reply.body);
    return {body["choices"][0]["text"], body["usage"]["prompt_tokens_details"]["cached_tokens"]};
  }
  double metric(const std::string& name) {
    Caller caller;
    const std::string text = "\n" + ask("GET", "/metrics", "", caller).body;
    const size_t at = text.find("\n" + name + " ");
    EXPECT_NE(at, std::string::npos) << name;
    return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size() + 2));
  }

  chat::ModelTexts texts_;
  std::unique_ptr<native::Model> model_;
  std::unique_ptr<chat::Template> template_;
  Metrics metrics_;
  std::unique_ptr<Worker> worker_;
  std::unique_ptr<Service> service_;
};

class ServeThreadsBatched : public ServeThreads, public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Parallel, ServeThreadsBatched, testing::Values(1, 2, 8));

TEST_P(ServeThreadsBatched, ConcurrentClientsGetTheResponsesOfSingleOnes) {
  start(GetParam(), 64);
  std::string alone[3];
  for (int i = 0; i < 3; ++i) alone[i] = complete(i, false);
  EXPECT_NE(alone[0], alone[1]);
  std::atomic<int> answered{0}, gone{0};
  std::vector<std::thread> clients;
  for (int t = 0; t < 6; ++t) {
    clients.emplace_back([&, t] {
      for (int i = 0; i < 4; ++i) {
        const int prompt = (t + i) % 3, patience = (t * 7 + i * 5) % 3 == 0 ? i : 1 << 30;
        const std::string text = complete(prompt, (t + i) % 2 == 0, patience);
        if (text.empty()) {
          ++gone;
        } else {
          EXPECT_EQ(text, alone[prompt]);
          ++answered;
        }
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_GT(answered, 12);
  EXPECT_GT(gone, 0);
}

// The response is larger than the channel, so that it cannot be complete when the client leaves.
TEST_F(ServeThreads, ADisconnectedClientsRequestIsAborted) {
  start(1, 4);
  const std::string aborted = R"(sluice_answers_total{finish="aborted"})";
  const auto ends = *model_->engine().tokenizer().try_encode(
      "<|endoftext|><|end|>", {.add_special = false, .parse_special = true});
  Json bias = Json::object();
  for (const Token token : ends) bias[std::to_string(token)] = -100;
  Json asked = {{"prompt", "a"},      {"n", 16},        {"max_tokens", 120},
                {"logit_bias", bias}, {"logprobs", 20}, {"temperature", 0}};
  double before = 0;
  for (const bool stream : {false, true}) {
    {
      Caller caller(3);
      Record record;
      asked["stream"] = stream;
      const std::string body = asked.dump();
      const Reply reply =
          service_->answer({"POST", "/v1/completions", "", body, caller, monotonic_ms()}, &record);
      EXPECT_EQ(reply.status, stream ? 200 : 499);
      if (stream) {
        EXPECT_FALSE(reply.stream([](std::string_view) { return false; }));
      }
    }
    while (metric("sluice_requests_running") > 0) std::this_thread::yield();
    EXPECT_GT(metric(aborted), before);
    before = metric(aborted);
  }
}

// Several choices for one prompt, beside embeddings: the same as one after the other.
TEST_F(ServeThreads, ParallelChoicesAndEmbeddingsEqualSequentialOnes) {
  const char* several =
      R"({"prompt":["The little fox","One day"],"n":4,"seed":5,"temperature":1,"max_tokens":10})";
  const char* texts = R"({"input":["a fox","an owl","a dog that ran"]})";
  const auto choices = [&](Client& client) {
    const Json body = *parse_body(ask("POST", "/v1/completions", several, client).body);
    return body["choices"].dump() + body["usage"]["completion_tokens"].dump();
  };
  const auto vectors = [&](Client& client) {
    return ask("POST", "/v1/embeddings", texts, client).body;
  };
  start(1, 64);
  Caller caller;
  const std::string wanted = choices(caller), wanted_vectors = vectors(caller);
  EXPECT_NE(wanted.find("\"index\":7"), std::string::npos) << wanted;
  start(5, 64);
  std::vector<std::thread> clients;
  for (int t = 0; t < 4; ++t) {
    clients.emplace_back([&, t] {
      Caller own;
      if (t % 2 == 0) {
        EXPECT_EQ(choices(own), wanted);
      } else {
        EXPECT_EQ(vectors(own), wanted_vectors);
      }
    });
  }
  for (std::thread& client : clients) client.join();
}

// Sixteen times as many conversations as fit in memory, all at once. Each continues from its own KV
// cache and generates what it would alone.
TEST_F(ServeThreads, SwappedConversationsContinueAsIfAlone) {
  constexpr int kTalks = 64, kTurns = 3;
  const auto begins = [](int talk) {
    return std::to_string(talk * 7919) + " " + std::string(static_cast<size_t>(talk % 5), 'x') +
           " Once upon a time there was a little girl who";
  };
  const auto go_on = [](const std::string& text, int turn) {
    return text + " Then " + std::to_string(turn);
  };
  std::vector<std::vector<std::string>> alone(kTalks);
  start(1, 64);
  for (int t = 0; t < kTalks; ++t) {
    std::string text = begins(t);
    for (int turn = 0; turn < kTurns; ++turn) {
      alone[static_cast<size_t>(t)].push_back(complete(text, 6).text);
      text = go_on(text + alone[static_cast<size_t>(t)].back(), turn);
    }
  }
  start(4, 64, "", kTalks);
  std::vector<std::string> texts;
  for (int t = 0; t < kTalks; ++t) texts.push_back(begins(t));
  std::atomic<int> went_on{0};
  for (int turn = 0; turn < kTurns; ++turn) {
    std::vector<std::thread> clients;
    for (int c = 0; c < 8; ++c) {
      clients.emplace_back([&, c] {
        for (size_t t = static_cast<size_t>(c); t < kTalks; t += 8) {
          const Completed said = complete(texts[t], 6);
          EXPECT_EQ(said.text, alone[t][static_cast<size_t>(turn)]) << t << " " << turn;
          if (turn > 0 && said.cached > 10) ++went_on;
          texts[t] = go_on(texts[t] + said.text, turn);
        }
      });
    }
    for (std::thread& client : clients) client.join();
  }
  EXPECT_EQ(went_on, kTalks * (kTurns - 1));
  EXPECT_EQ(metric("sluice_sessions_swapped"), kTalks - 4);
  EXPECT_GT(metric("sluice_swap_in_bytes_total"), 0);
  EXPECT_EQ(metric("sluice_forgotten_total"), 0);

  // A full disk costs only time.
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit none{1000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &none);
  for (int t = 0; t < 12; ++t)
    EXPECT_EQ(complete(begins(t), 6).text, alone[static_cast<size_t>(t)][0]);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_GT(metric("sluice_forgotten_total"), 0);
  for (int t = 0; t < 12; ++t)
    EXPECT_EQ(complete(begins(t), 6).text, alone[static_cast<size_t>(t)][0]);
}

TEST_F(ServeThreads, AFullQueueAndShutdownAreReported) {
  start(1, 1);
  Caller patient;
  std::vector<std::thread> clients;
  std::atomic<int> busy{0}, ended{0};
  // Each generates for longer than the others take to send their requests.
  const char* body = R"({"prompt":"a","n":16,"max_tokens":100,"logit_bias":{"2":-100,"1":-100}})";
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back([&] {
      Caller caller;
      const Reply reply = ask("POST", "/v1/completions", body, caller);
      if (reply.status == 429) {
        EXPECT_GE(reply.retry_after, 1);
      }
      (reply.status == 429 ? busy : ended) += 1;
    });
  }
  while (busy == 0 && ended < 4) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  service_->close();
  EXPECT_EQ(ask("POST", "/v1/completions", body, patient).status, 503);
  EXPECT_EQ(ask("GET", "/health", "", patient).status, 503);
  worker_->stop();
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(busy + ended, 4);
  EXPECT_GT(busy.load(), 0);
}

}  // namespace
}  // namespace sluice::serve
