// A model from a server through sluice.h: the same output, the transfer statistics, and cancelling
// a call that waits for a silent server.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "../unit/http_test_server.h"
#include "api_util.h"

namespace sluice::test {
namespace {

std::string model_bytes() {
  std::ifstream file(kSample, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(ApiThreads, AServerProvidesTheModel) {
  const std::string model = model_bytes();
  HttpTestServer server([&](const HttpRequest& request) { return serve_file(request, model); });
  const Greedy greedy(12);
  const Engine local = load(), remote = load(load_options(), server.url());
  EXPECT_EQ(answer(create(remote), kPrompt, greedy.options).text,
            answer(create(local), kPrompt, greedy.options).text);
  sluice_stats stats = {};
  stats.size = sizeof stats;
  expect_ok(sluice_engine_stats(remote.get(), &stats));
  EXPECT_GT(stats.bytes_fetched, model.size() / 2);
  HttpTestServer empty([](const HttpRequest&) {
    HttpReply reply;
    reply.status = 404;
    return reply;
  });
  sluice_engine* none = nullptr;
  EXPECT_EQ(sluice_load(empty.url().c_str(), nullptr, &none), SLUICE_HTTP_STATUS);
}

TEST(ApiThreads, AHubThatWantsAHeaderAndAToken) {
  const std::string model = model_bytes();
  HttpTestServer server([&](const HttpRequest& request) -> HttpReply {
    const auto is = [&](const char* name, const char* value) {
      const auto found = request.headers.find(name);
      return found != request.headers.end() && found->second == value;
    };
    if (!is("x-key", "secret") || !is("authorization", "Bearer hf_1"))
      return {.status = 401, .headers = {}, .body = ""};
    if (request.target == "/api/models/owner/repo/tree/main?recursive=true") {
      return {.status = 200,
              .headers = {},
              .body = R"([{"type": "file", "path": "m-Q8_0.gguf", "size": 5}])"};
    }
    if (request.target != "/owner/repo/resolve/main/m-Q8_0.gguf")
      return {.status = 404, .headers = {}, .body = ""};
    return serve_file(request, model);
  });
  const std::string hub = server.url("/");
  const char* const header = "X-Key: secret";
  sluice_load_options options = load_options();
  options.hf_endpoint = hub.c_str();
  options.token = "hf_1";
  options.headers = &header;
  options.n_headers = 1;
  (void)load(options, "hf:owner/repo");
  options.n_headers = 0;
  sluice_engine* none = nullptr;
  EXPECT_EQ(sluice_load("hf:owner/repo", &options, &none), SLUICE_HTTP_STATUS);
  EXPECT_NE(std::string(sluice_last_error()).find("the token does not allow it"),
            std::string::npos);
}

TEST(ApiThreads, DownloadsAreCachedWhereTheCallerOrTheEnvironmentSays) {
  const std::string model = model_bytes();
  HttpTestServer server([&](const HttpRequest& request) { return serve_file(request, model); });
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / "sluice-api-cache";
  std::filesystem::remove_all(folder);
  const auto cached = [&](const char* name) { return std::filesystem::exists(folder / name); };
  sluice_load_options options = load_options();
  ::setenv("SLUICE_CACHE", (folder / "environment").c_str(), 1);
  options.cache_directory = "none";
  (void)load(options, server.url());
  EXPECT_FALSE(std::filesystem::exists(folder));
  const std::string given = (folder / "given").string();
  options.cache_directory = given.c_str();
  (void)load(options, server.url());
  EXPECT_TRUE(cached("given") && !cached("environment"));
  options.cache_directory = nullptr;
  (void)load(options, server.url());
  EXPECT_TRUE(cached("environment"));
  ::setenv("SLUICE_CACHE", "none", 1);
  std::filesystem::remove_all(folder);
}

TEST(ApiThreads, ACallWaitingForAServerIsCancelled) {
  constexpr size_t kServed = 600'000;  // then silence, after the header and half of the weights
  const std::string model = model_bytes();
  HttpTestServer server([&](const HttpRequest& request) {
    HttpReply reply = serve_file(request, model);
    const size_t first = request.range() ? static_cast<size_t>(request.range()->first) : 0;
    if (first + reply.body.size() > kServed) {
      reply.stall_after = first < kServed ? kServed - first : 0;
    }
    return reply;
  });
  sluice_load_options options = load_options();
  options.preload = 0;
  const Engine engine = load(options, server.url());
  const Session session = create(engine);
  std::atomic<bool> ended{false};
  std::thread ending([&] {
    while (!ended) {  // the first cancellations may come before the call
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      expect_ok(sluice_session_cancel(session.get()));
    }
  });
  const Answer cut = answer(session, kPrompt, Greedy(8).options);
  ended = true;
  ending.join();
  expect_ok(cut.status);
  EXPECT_EQ(cut.result.finish, SLUICE_FINISH_CANCELLED);
  EXPECT_TRUE(cut.tokens.empty());
}

}  // namespace
}  // namespace sluice::test
