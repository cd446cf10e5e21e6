// Servers behind one name that have different ETags for the same file, and new versions that look
// like it.
#include "http_cache_fixture.h"
#include "http_fixture.h"

namespace sluice::io {
namespace {

using test::HttpReply;
using test::HttpRequest;

const char* const kDate = "Mon, 01 Jan 2024 00:00:00 GMT";

// Two servers behind one address, which answer in turn.
class HttpNodesTest : public HttpTest {
 protected:
  void start_nodes() {
    serving_ = serve([this](const HttpRequest& request) {
      const bool second = request.number % 2 == 1;
      HttpReply reply =
          test::serve_file(request, second ? other_ : file_, second ? "\"b\"" : "\"a\"");
      const std::string& date = second ? other_date_ : date_;
      if (!date.empty()) reply.headers.emplace_back("Last-Modified", date);
      return reply;
    });
  }
  // Opens the file of the first server and reads from the second.
  Status read_second() {
    start_nodes();
    open();
    const Status status = read(500'000, 1000);
    for (int i = 0; i < 6 && status.ok(); ++i) expect_ok(read(1000, 50'000));
    return status;
  }
  std::string other_, date_, other_date_;
  Serving serving_;
};

TEST_F(HttpNodesTest, TheSameBytesAreTheSameFile) {
  other_ = file_;
  for (const char* date : {kDate, ""}) {
    for (const char* other : {kDate, ""}) {
      date_ = date;
      other_date_ = other;
      if (date_.empty() && other_date_.empty()) continue;
      expect_ok(read_second());
      EXPECT_LE(server_->requests(), 20);  // the answer is remembered
    }
  }
}

TEST_F(HttpNodesTest, OtherBytesAreAnotherFile) {
  other_ = file_;
  other_[5] ^= 1;  // among the first bytes
  for (const char* date : {kDate, ""}) {
    date_ = other_date_ = date;
    expect_error(read_second(), Code::kSourceChanged, "no longer the file");
  }
  other_ = file_;
  date_ = other_date_ = "";  // a new version may have the beginning and the end of the old one
  expect_error(read_second(), Code::kSourceChanged, "no longer the file");
  other_.back() ^= 1;  // a model that was trained further has the same header
  date_ = kDate;
  expect_error(read_second(), Code::kSourceChanged, "no longer the file");
  other_ = file_;
  date_ = kDate;
  other_date_ = "Tue, 02 Jan 2024 00:00:00 GMT";
  expect_error(read_second(), Code::kSourceChanged, "no longer the file");
}

class HttpCacheNodesTest : public HttpCacheTest {
 protected:
  void SetUp() override {
    HttpCacheTest::SetUp();
    fault_ = [this](HttpReply* reply) {
      if (!date_.empty()) reply->headers.emplace_back("Last-Modified", date_);
    };
    faulty_ = true;
  }
  std::string date_;
};

TEST_F(HttpCacheNodesTest, AnotherETagOfTheSameBytesKeepsTheCopy) {
  for (const char* date : {kDate, ""}) {
    for (const char* other : {kDate, ""}) {
      std::filesystem::remove_all(options_.cache_dir);
      if (*date == 0 && *other == 0) continue;
      date_ = date;
      etag_ = "\"a\"";
      open();
      expect_all();
      date_ = other;
      etag_ = "\"b\"";
      EXPECT_LE(sent([&] {
                  open();
                  expect_all();
                }),
                2 * kCacheHeadBytes + kProbe);
    }
  }
}

TEST_F(HttpCacheNodesTest, AVersionWithTheSameHeaderIsFetched) {
  open();
  expect_all();
  etag_ = "\"b\"";
  file_.back() ^= 1;
  EXPECT_GE(sent([&] {
              open();
              expect_all();
            }),
            kLongFile);
}

TEST_F(HttpCacheNodesTest, AWebPageLeavesNoEntry) {
  fault_ = [](HttpReply* reply) {
    *reply = HttpReply{.status = 200, .headers = {}, .body = "<!doctype html><p>Log in"};
  };
  EXPECT_EQ(open_source(server_->url(), options_).status().code(), Code::kNotGguf);
  EXPECT_TRUE(list_cache(options_.cache_dir).empty());
}

}  // namespace
}  // namespace sluice::io
