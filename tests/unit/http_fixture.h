// An HTTP source of one file, and the server that has it.
#pragma once

#include <gtest/gtest.h>

#include "http_test_server.h"
#include "io/byte_source.h"

namespace sluice::io {

inline constexpr uint64_t kFile = 1 << 20;

class HttpTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"http_proxy", "all_proxy", "ALL_PROXY"}) ::unsetenv(name);
    options_.http.backoff_ms = 1;
    options_.http.max_backoff_ms = 4;
    options_.http.stall_timeout_ms = 10'000;
    options_.http.attempts = 4;
  }

  // Stops the server before what its handler refers to is destroyed: a request that a read gave up
  // may still be on its way to the handler when the test has ended.
  using Serving = std::unique_ptr<test::HttpTestServer>;

  [[nodiscard]] Serving serve(test::HttpTestServer::Handler handler) {
    auto serving = std::make_unique<test::HttpTestServer>(std::move(handler));
    server_ = serving.get();
    return serving;
  }
  // Serves `file_`, after `change` has edited the correct response.
  [[nodiscard]] Serving start(
      std::function<void(const test::HttpRequest&, test::HttpReply*)> change = {}) {
    return serve([this, change](const test::HttpRequest& request) {
      test::HttpReply reply = test::serve_file(request, file_);
      if (change) change(request, &reply);
      return reply;
    });
  }
  void open() {
    auto source = open_source(server_->url("/dir/model.gguf?token=secret"), options_);
    ASSERT_TRUE(source.ok()) << source.status().message();
    source_ = std::move(*source);
    ASSERT_EQ(source_->size(), file_.size());
  }
  Status open_status() {
    return open_source(server_->url("/dir/model.gguf?token=secret"), options_).status();
  }
  Status read(uint64_t offset, size_t length) {
    if (source_ == nullptr) return error(Code::kInternal, "the source did not open");
    std::vector<uint8_t> out(length);
    Status status = source_->read(offset, out);
    if (status.ok()) {
      EXPECT_EQ(file_.compare(static_cast<size_t>(offset), length,
                              reinterpret_cast<const char*>(out.data()), length),
                0)
          << offset << "+" << length;
    }
    return status;
  }
  static void expect_error(const Status& status, Code code, const char* word) {
    EXPECT_STREQ(code_name(status.code()), code_name(code)) << status.message();
    EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
    EXPECT_EQ(status.message().find("secret"), std::string::npos) << status.message();
  }
  static void expect_ok(const Status& status) { EXPECT_TRUE(status.ok()) << status.message(); }

  std::string file_ = test::patterned(kFile);
  OpenOptions options_;
  test::HttpTestServer* server_ = nullptr;
  std::unique_ptr<ByteSource> source_;
};

inline bool is_probe(const test::HttpRequest& request) {
  return request.range() && request.range()->second == 511;
}

}  // namespace sluice::io
