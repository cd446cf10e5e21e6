// The HTTP source against a server with real-world faults: each is scripted once, then a seeded
// soak mixes them. Every read gives the exact bytes, or a typed error that names the URL.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <random>
#include <thread>

#include "../extent.h"
#include "http_fixture.h"

namespace sluice::io {
namespace {

using test::HttpReply;
using test::HttpRequest;
using test::HttpTestServer;
using test::serve_file;

void set_header(HttpReply* reply, const std::string& name, const std::string& value) {
  std::erase_if(reply->headers, [&](const auto& h) { return h.first == name; });
  if (!value.empty()) reply->headers.emplace_back(name, value);
}

TEST_F(HttpTest, ReadsRangesOverOneConnection) {
  const Serving serving = start();
  open();
  for (uint64_t offset = 0; offset < kFile; offset += 100'000) {
    expect_ok(read(offset, std::min<size_t>(100'000, kFile - offset)));
  }
  expect_ok(read(kFile, 0));
  EXPECT_EQ(read(kFile - 1, 2).code(), Code::kTruncated);
  EXPECT_EQ(server_->connections(), 1);
  EXPECT_EQ(source_->bytes_fetched(), kFile);
}

TEST_F(HttpTest, ReadsInParallel) {
  const Serving serving = start();
  open();
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 8; t++) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 10; i++) expect_ok(read((t * 10 + i) * 13'000, 13'000));
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_LE(server_->connections(), options_.http.max_parallel);
}

TEST_F(HttpTest, RequestsNoEncodingAndOneRange) {
  const Serving serving = start([](const HttpRequest& request, HttpReply* reply) {
    const auto& encoding = request.headers.at("accept-encoding");
    if (encoding != "identity" || !request.range()) reply->status = 500;
  });
  open();
  expect_ok(read(5, 10));
}

TEST_F(HttpTest, PartsThatDoNotSayWhichTheyAreAreNotUsed) {
  for (const char* range : {"", "bytes 1000-1511/1048576", "bytes 0-5000/1048576"}) {
    const Serving serving = start([&](const HttpRequest& request, HttpReply* reply) {
      if (!request.range()) return;
      set_header(reply, "Content-Range", range);
      reply->body = file_.substr(1000, reply->body.size());
    });
    open();
    expect_ok(read(1000, 5000));  // from the whole file
    EXPECT_EQ(source_->bytes_fetched(), kFile) << range;
    source_.reset();
  }
  const Serving serving = start([&](const HttpRequest& request, HttpReply* reply) {
    if (is_probe(request)) return;
    set_header(reply, "Content-Range", "");
    reply->body = file_.substr(0, reply->body.size());
  });
  open();
  expect_error(read(1000, 5000), Code::kNetwork, "other bytes");
}

TEST_F(HttpTest, ContentRangeMayHideTheTotal) {
  const Serving serving = start([](const HttpRequest& request, HttpReply* reply) {
    if (request.range()) {
      set_header(reply, "Content-Range",
                 "bytes " + std::to_string(request.range()->first) + "-" +
                     std::to_string(request.range()->second) + "/*");
    }
  });
  open();
  expect_ok(read(1000, 5000));
}

TEST_F(HttpTest, AnotherRangeThanRequestedIsAnError) {
  bool always = false;
  const Serving serving = start([&](const HttpRequest& request, HttpReply* reply) {
    if (is_probe(request)) return;
    if (always || request.number == 1) {
      set_header(reply, "Content-Range", "bytes 0-99/" + std::to_string(kFile));
      reply->body.resize(100);
    }
  });
  open();
  expect_ok(read(1000, 100));
  always = true;
  expect_error(read(1000, 100), Code::kNetwork, "other bytes");
}

TEST_F(HttpTest, AMultipartResponseIsAnError) {
  const Serving serving = start([](const HttpRequest& request, HttpReply* reply) {
    if (is_probe(request)) return;
    set_header(reply, "Content-Type", "multipart/byteranges; boundary=x");
  });
  open();
  expect_error(read(1000, 100), Code::kNetwork, "other bytes");
}

TEST_F(HttpTest, ServerWithoutRanges) {
  const Serving serving = start([this](const HttpRequest&, HttpReply* reply) {
    *reply = HttpReply{};
    reply->body = file_;
  });
  open();
  expect_ok(read(kFile - 100, 100));
  expect_ok(read(0, 1000));
  const uint64_t fetched = source_->bytes_fetched();
  expect_ok(read(500'000, 100'000));
  EXPECT_EQ(source_->bytes_fetched(), fetched);
  EXPECT_EQ(fetched, kFile);
}

TEST_F(HttpTest, ServerWithoutRangesThatCutsConnections) {
  const Serving serving = start([this](const HttpRequest& request, HttpReply* reply) {
    *reply = HttpReply{};
    reply->body = file_;
    if (request.number < 3) reply->cut_after = 200'000 * static_cast<size_t>(request.number);
  });
  open();
  expect_ok(read(0, kFile));
}

TEST_F(HttpTest, ServerWithoutRangesAndFileTooLarge) {
  options_.http.max_whole_bytes = kFile - 1;
  const Serving serving = start([this](const HttpRequest&, HttpReply* reply) {
    *reply = HttpReply{};
    reply->body = file_;
  });
  expect_error(open_status(), Code::kNoRangeSupport, "do not fit");
}

TEST_F(HttpTest, ServerWithoutAContentLength) {
  const Serving serving = start([this](const HttpRequest&, HttpReply* reply) {
    *reply = HttpReply{};
    reply->body = file_;
    reply->announce_length = false;
  });
  expect_error(open_status(), Code::kNoRangeSupport, "file's length");
}

TEST_F(HttpTest, ServerWhoseRangesStopWorking) {
  const Serving serving = start([this](const HttpRequest& request, HttpReply* reply) {
    if (is_probe(request) || request.number == 2) return;
    *reply = HttpReply{};
    reply->body = file_;
  });
  open();
  expect_ok(read(1000, 1000));  // one 200 response, then 206 again
  expect_ok(read(0, kFile));    // 200 is fine if everything was requested
  expect_error(read(1000, 1000), Code::kNoRangeSupport, "whole file");
}

TEST_F(HttpTest, Status416) {
  const Serving serving = start([](const HttpRequest& request, HttpReply* reply) {
    if (!is_probe(request)) *reply = HttpReply{.status = 416, .headers = {}, .body = ""};
  });
  open();
  expect_error(read(1000, 1000), Code::kSourceChanged, "416");
}

TEST_F(HttpTest, EmptyFile) {
  file_.clear();
  const Serving serving = start();
  open();
  EXPECT_EQ(read(0, 1).code(), Code::kTruncated);
}

TEST_F(HttpTest, ABusyServerIsRetried) {
  int status = 503;
  const Serving serving = start([&](const HttpRequest& request, HttpReply* reply) {
    if (request.number % 3 == 0) return;
    *reply = HttpReply{.status = status, .headers = {{"Retry-After", "0"}}, .body = "busy"};
  });
  open();
  for (const int s : {503, 429, 500, 502, 504, 408}) {
    status = s;
    expect_ok(read(static_cast<uint64_t>(s), 1000));
  }
  EXPECT_EQ(server_->connections(), 1);  // an error's body is read, so the connection is reused
}

TEST_F(HttpTest, RetryAfterAsADate) {
  const Serving serving = start([&](const HttpRequest& request, HttpReply* reply) {
    if (request.number != 1) return;
    *reply = HttpReply{
        .status = 429, .headers = {{"Retry-After", "Wed, 21 Oct 2015 07:28:00 GMT"}}, .body = ""};
  });
  open();
  expect_ok(read(0, 1000));
  EXPECT_EQ(server_->requests(), 3);
}

TEST_F(HttpTest, ABusyServerIsGivenUp) {
  bool slow = false;
  const Serving serving = start([&](const HttpRequest& request, HttpReply* reply) {
    if (is_probe(request)) return;
    *reply = HttpReply{.status = 503, .headers = {}, .body = ""};
    if (slow) reply->headers.emplace_back("Retry-After", "86400");
  });
  open();
  const Status status = read(0, 1000);
  expect_error(status, Code::kHttpStatus, "503");
  expect_error(status, Code::kHttpStatus, "4 attempts");
  EXPECT_EQ(server_->requests(), 5);
  slow = true;
  expect_error(read(0, 1000), Code::kHttpStatus, "86400 seconds");
}

TEST_F(HttpTest, ErrorStatusesAreNamed) {
  int status = 0;
  const Serving serving = start([&](const HttpRequest&, HttpReply* reply) {
    *reply = HttpReply{.status = status, .headers = {}, .body = std::string(200'000, 'x')};
  });
  for (const int s : {401, 403, 404, 410, 451}) {
    status = s;
    const int before = server_->requests();
    expect_error(open_status(), Code::kHttpStatus, std::to_string(s).c_str());
    expect_error(open_status(), Code::kHttpStatus, "/dir/model.gguf");
    EXPECT_EQ(server_->requests(), before + 2);
  }
  status = 304;
  expect_error(open_status(), Code::kHttpStatus, "304");
}

TEST_F(HttpTest, RedirectIsRememberedUntilItExpires) {
  std::atomic<int> originals{0};
  std::atomic<int> valid{1};
  const Serving serving = serve([&](const HttpRequest& request) {
    if (request.target.find("/signed/") == std::string::npos) {
      originals++;
      HttpReply reply{.status = 302, .headers = {}, .body = "moved"};
      reply.headers.emplace_back("Location",
                                 server_->url("/signed/" + std::to_string(valid.load())));
      return reply;
    }
    if (request.target != "/signed/" + std::to_string(valid.load())) {
      return HttpReply{.status = 403, .headers = {}, .body = "expired"};
    }
    return serve_file(request, file_);
  });
  open();
  for (int i = 0; i < 5; i++) expect_ok(read(1000, 1000));
  EXPECT_EQ(originals, 1);
  valid = 2;
  for (int i = 0; i < 5; i++) expect_ok(read(1000, 1000));
  EXPECT_EQ(originals, 2);
}

TEST_F(HttpTest, RedirectLoopsAndOddTargetsEnd) {
  std::string target;
  const Serving serving = serve([&](const HttpRequest&) {
    HttpReply reply{.status = 302, .headers = {}, .body = ""};
    if (!target.empty()) reply.headers.emplace_back("Location", target);
    return reply;
  });
  target = server_->url("/again");
  expect_error(open_status(), Code::kNetwork, "redirect");
  EXPECT_LE(server_->requests(), 11);  // followed, but not retried
  for (const char* other : {"file:///etc/passwd", "ftp://127.0.0.1/", "FILE:/etc/passwd"}) {
    target = other;
    expect_error(open_status(), Code::kNetwork, "an address of another kind");
  }
  target = "";
  expect_error(open_status(), Code::kHttpStatus, "302");
}

TEST_F(HttpTest, ACutBodyIsResumedWhereItEnded) {
  std::mutex mutex;
  std::vector<uint64_t> starts;
  const Serving serving = start([&](const HttpRequest& request, HttpReply* reply) {
    if (is_probe(request)) return;
    const std::lock_guard<std::mutex> lock(mutex);
    starts.push_back(request.range()->first);
    if (starts.size() < 12) reply->cut_after = 65'536;  // more cuts than attempts
  });
  open();
  expect_ok(read(0, kFile));
  ASSERT_EQ(starts.size(), 12u);
  for (size_t i = 0; i < starts.size(); i++) EXPECT_EQ(starts[i], i * 65'536);
}

TEST_F(HttpTest, EndlessCutsAreGivenUp) {
  const Serving serving = start([&](const HttpRequest& request, HttpReply* reply) {
    if (!is_probe(request)) reply->cut_after = 10;
  });
  open();
  expect_error(read(0, kFile), Code::kNetwork, "4 attempts");
}

TEST_F(HttpTest, StalledConnectionIsCutAndResumed) {
  options_.http.stall_timeout_ms = 400;
  const Serving serving = start([&](const HttpRequest& request, HttpReply* reply) {
    if (request.number == 1) reply->stall_after = 300'000;
    if (request.number == 2) reply->stall_after = 0;
  });
  open();
  expect_ok(read(0, kFile));
  EXPECT_EQ(server_->requests(), 4);
}

TEST_F(HttpTest, WrongLengths) {
  int kind = 0;
  const Serving serving = start([&](const HttpRequest& request, HttpReply* reply) {
    if (is_probe(request)) return;
    if (kind == 0) set_header(reply, "Content-Length", "10");  // then sends more
    if (kind == 1) {                                           // a longer range than requested
      const uint64_t first = request.range()->first;
      reply->body = file_.substr(static_cast<size_t>(first), 5000);
      set_header(
          reply, "Content-Range",
          "bytes " + std::to_string(first) + "-" + std::to_string(first + 4999) + "/1048576");
    }
    if (kind == 2) {  // no length, no range, too many bytes
      reply->announce_length = false;
      set_header(reply, "Content-Range", "");
      reply->body.append("more");
    }
    if (kind == 3) set_header(reply, "Content-Length", "99999999999999999999");
  });
  options_.http.stall_timeout_ms = 400;
  open();
  for (kind = 0; kind < 3; kind++) {
    EXPECT_EQ(read(1000, 1000).code(), Code::kNetwork) << kind;
  }
  expect_ok(read(1000, 1000));  // everything arrived, then silence
}

TEST_F(HttpTest, ShorterRangesAreCompleted) {  // servers may limit a response's size
  options_.http.attempts = 1;                  // which is no failure
  const Serving serving = start([&](const HttpRequest& request, HttpReply* reply) {
    const auto [first, last] = *request.range();
    if (last - first < 100'000) return;
    reply->body.resize(100'000);
    set_header(
        reply, "Content-Range",
        "bytes " + std::to_string(first) + "-" + std::to_string(first + 99'999) + "/1048576");
  });
  open();
  expect_ok(read(0, kFile));
}

TEST_F(HttpTest, ACompressedResponseIsRequestedAgainOnce) {
  Serving serving = start([&](const HttpRequest& request, HttpReply* reply) {
    if (!is_probe(request)) set_header(reply, "Content-Encoding", "gzip");
  });
  open();
  options_.http.attempts = 1;
  const int before = server_->requests();
  expect_error(read(0, 1000), Code::kNetwork, "gzip");
  EXPECT_EQ(server_->requests(), before + 2);
  source_.reset();
  serving = start([&](const HttpRequest& request, HttpReply* reply) {  // only of parts
    if (request.range()) set_header(reply, "Content-Encoding", "gzip");
  });
  open();
  expect_ok(read(1000, 1000));
  source_.reset();
  serving = start(
      [](const HttpRequest&, HttpReply* reply) { set_header(reply, "Content-Encoding", "gzip"); });
  expect_error(open_status(), Code::kNetwork, "gzip");
  EXPECT_EQ(server_->requests(), 2);
}

TEST_F(HttpTest, AWebPageIsNoModel) {
  std::string type;
  const Serving serving = start([&](const HttpRequest&, HttpReply* reply) {
    *reply = HttpReply{};
    reply->body = file_;
    if (!type.empty()) reply->headers.emplace_back("Content-Type", type);
  });
  for (const char* page :
       {"<!DOCTYPE html><title>Log in</title>", "\xef\xbb\xbf\n <HTML lang=en>"}) {
    file_ = page;
    expect_error(open_status(), Code::kNotGguf, "web page");
    file_.resize(100'000, ' ');
    expect_error(open_status(), Code::kNotGguf, "web page");
  }
  file_ = "<!-- moved --><p>Not here";
  EXPECT_TRUE(open_status().ok());
  type = "text/HTML; charset=utf-8";
  expect_error(open_status(), Code::kNotGguf, "web page");
  file_ = "GGUF and so on";  // of a server that has no type for such files
  EXPECT_TRUE(open_status().ok());
  file_ = "<html>";
  expect_error(open_source(server_->url("/owner/repo/blob/main/m.gguf"), options_).status(),
               Code::kNotGguf, "resolve in place of blob");
}

TEST_F(HttpTest, AChangedFileIsDetected) {
  std::string etag = "\"v1\"";
  std::string modified = "Mon, 01 Jan 2024 00:00:00 GMT";
  const Serving serving = start([&](const HttpRequest&, HttpReply* reply) {
    set_header(reply, "ETag", etag);
    set_header(reply, "Last-Modified", modified);
  });
  open();
  modified = "Tue, 02 Jan 2024 00:00:00 GMT";
  expect_ok(read(0, 1000));  // the ETag takes precedence
  etag = "\"v2\"";
  expect_error(read(0, 1000), Code::kSourceChanged, "model.gguf");
  etag = "";
  open();
  modified = "Wed, 03 Jan 2024 00:00:00 GMT";
  expect_error(read(0, 1000), Code::kSourceChanged, "model.gguf");
  etag = "\"v3\"";
  open();
  file_ += "longer";
  expect_error(read(0, 1000), Code::kSourceChanged, "model.gguf");
}

TEST_F(HttpTest, NoServerListens) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), length), 0);  // and no listen()
  ASSERT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), 0);
  const std::string url =
      std::string("http://127.0.0.1:").append(std::to_string(ntohs(address.sin_port))).append("/m");
  std::vector<std::string> said;
  options_.on_warning = [&](const std::string& text) { said.push_back(text); };
  options_.http.open_attempts = 5;
  const Status status = open_source(url, options_).status();
  expect_error(status, Code::kNetwork, "127.0.0.1");
  expect_error(status, Code::kNetwork, "connection refused (after 5 attempts)");
  ASSERT_EQ(said.size(), 1u);
  EXPECT_TRUE(said[0].ends_with("connection refused, trying again")) << said[0];
  options_.http.refused_ms = 0;
  expect_error(open_source(url, options_).status(), Code::kNetwork, "(after 1 attempts)");
  ::close(fd);
}

TEST_F(HttpTest, NoMessageContainsAPassword) {
  for (const char* user :
       {"u:secret@", "u:secret@secret@", "u:a/secret@", "u:a?secret@", "u:a#secret@", "secret@"}) {
    const std::string url = std::string("http://") + user + "127.0.0.1:9/x?sig=secret";
    options_.http.open_attempts = 1;
    const Status status = open_source(url, options_).status();
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(status.message().find("secret"), std::string::npos) << status.message();
  }
  const Status ftp = open_source("ftp://u:secret@h/x?secret", options_).status();
  EXPECT_EQ(ftp.message().find("secret"), std::string::npos) << ftp.message();
}

TEST_F(HttpTest, NamesWithInvalidEscapes) {
  const Serving serving = start();
  for (const char* name : {"/100%.gguf", "/100%zz.gguf", "/%"}) {
    const auto source = open_source(server_->url(name), options_);
    EXPECT_TRUE(source.ok()) << source.status().message();
  }
}

TEST_F(HttpTest, ImplausibleLengthsAreErrors) {
  std::string total;
  const Serving serving = start([&](const HttpRequest&, HttpReply* reply) {
    set_header(reply, "Content-Range", "bytes 0-0/" + total);
  });
  for (const char* claim : {"4398046511105", "9007199254740992", "4611686018427387903"}) {
    total = claim;
    expect_error(open_status(), Code::kBadHeader, claim);
  }
}

TEST_F(HttpTest, OddAddresses) {
  EXPECT_EQ(open_source("ftp://h/x.gguf").status().code(), Code::kInvalidArgument);
  EXPECT_FALSE(open_source("http://", options_).ok());
  EXPECT_FALSE(open_source("http://exa mple/x", options_).ok());
}

// Applies one of the faults above, at random, to every second response.
void random_fault(std::mt19937* rng, int* stalls, const HttpRequest& request, HttpReply* reply) {
  const size_t n = reply->body.size();
  switch ((*rng)() % 18) {
    case 0:
      *reply = HttpReply{.status = 503, .headers = {{"Retry-After", "0"}}, .body = "busy"};
      break;
    case 1:
      *reply = HttpReply{.status = 429, .headers = {}, .body = std::string(100'000, 'x')};
      break;
    case 2:
      reply->cut_after = (*rng)() % (n + 1);
      break;
    case 3:
      if ((*stalls)-- > 0) reply->stall_after = (*rng)() % (n + 1);
      break;
    case 4:
      set_header(reply, "Content-Range", "");
      break;
    case 5:
      set_header(reply, "Content-Range", "bytes 1-2/1048576");
      break;
    case 6:
      set_header(reply, "Content-Length", std::to_string(n / 2));
      break;
    case 7:
      reply->body.resize(n / 2);
      set_header(reply, "Content-Length", std::to_string(n));
      reply->cut_after = n / 2;
      break;
    case 8:
      *reply = HttpReply{.status = request.number % 2 == 0 ? 500 : 200, .headers = {}, .body = "?"};
      break;
    default:
      break;
  }
}

TEST_F(HttpTest, SoakOfRandomFaults) {
  options_.http.stall_timeout_ms = 400;  // generous for a slow machine, so few stalls
  options_.http.attempts = 40;
  options_.http.open_attempts = 40;
  std::mutex mutex;
  std::mt19937 rng(7);
  int stalls = test::extent(3, 8);
  const Serving serving = start([&](const HttpRequest& request, HttpReply* reply) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!is_probe(request)) random_fault(&rng, &stalls, request, reply);
  });
  open();
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; t++) {
    threads.emplace_back([&, t] {
      std::mt19937 mine(t);
      for (int i = 0; i < 75; i++) {
        const size_t length = mine() % 60'000 + 1;
        expect_ok(read(mine() % (kFile - length), length));
      }
    });
  }
  for (auto& t : threads) t.join();
}

}  // namespace
}  // namespace sluice::io
