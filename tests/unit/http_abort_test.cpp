// Aborts reads from another thread, at any point: in a body, while waiting, behind a whole
// download.
#include <atomic>
#include <thread>

#include "http_fixture.h"

namespace sluice::io {
namespace {

using test::HttpReply;
using test::HttpRequest;

class HttpAbortTest : public HttpTest {
 protected:
  // Calls abort() repeatedly until the read returns, since it ends only reads that have begun.
  void expect_aborted() {
    std::atomic<bool> done{false};
    Status status;
    std::thread reader([&] {
      status = read(0, 1000);
      done = true;
    });
    while (!done) {
      source_->abort();
      std::this_thread::yield();
    }
    reader.join();
    EXPECT_EQ(status.code(), Code::kAborted) << status.message();
  }
};

TEST_F(HttpAbortTest, AbortEndsAStalledRead) {
  options_.http.stall_timeout_ms = 3'600'000;
  const Serving serving = start([&](const HttpRequest& request, HttpReply* reply) {
    if (!is_probe(request)) reply->stall_after = 100;
  });
  open();
  expect_aborted();
}

TEST_F(HttpAbortTest, AbortEndsAWaitAndTheSourceStaysUsable) {
  bool busy = true;
  options_.http.max_retry_after_ms = 3'600'000;
  const Serving serving = start([&](const HttpRequest& request, HttpReply* reply) {
    if (is_probe(request) || !busy) return;
    *reply = HttpReply{.status = 503, .headers = {{"Retry-After", "3600"}}, .body = ""};
  });
  open();
  expect_aborted();
  busy = false;
  expect_ok(read(0, 1000));
}

TEST_F(HttpAbortTest, AbortEndsAReadFromAServerWithoutRanges) {
  const Serving serving = start([this](const HttpRequest&, HttpReply* reply) {
    *reply = HttpReply{};
    reply->body = file_;
    reply->stall_after = 1000;
  });
  open();
  expect_aborted();
  source_.reset();  // must not hang on the stalled download
}

}  // namespace
}  // namespace sluice::io
