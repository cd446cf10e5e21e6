// hf: references against a stand-in of the hub: lists in pages, private repositories, mistakes, and
// what the cache has of a repository when the hub cannot be reached.
#include "native/hugging_face.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "http_fixture.h"
#include "io/cache_native.h"

namespace sluice::native {
namespace {

using test::HttpReply;
using test::HttpRequest;

class HuggingFaceTest : public io::HttpTest {
 protected:
  void SetUp() override {
    io::HttpTest::SetUp();
    serving_ = serve([this](const HttpRequest& request) { return answer(request); });
    options_.credentials.hub = server_->url("");
    options_.http.open_attempts = 1;
  }

  HttpReply answer(const HttpRequest& request) const {
    if (!request.target.starts_with("/api/")) return test::serve_file(request, file_);
    const std::string start = "/api/models/owner/repo/tree/main?recursive=true";
    const bool open = request.target.starts_with(start) && status_ == 200;
    const auto token = request.headers.find("authorization");
    if (token != request.headers.end() && token->second != "Bearer hf_1")
      return {.status = 403, .headers = {}, .body = ""};
    if (!open) return {.status = status_ == 200 ? 404 : status_, .headers = {}, .body = ""};
    const bool second = request.target.ends_with("&cursor=2");
    HttpReply reply{.status = 200, .headers = {}, .body = second ? second_ : first_};
    if (!second && !second_.empty()) {
      reply.headers.emplace_back("Link",
                                 "<" + server_->url(start + "&cursor=2") + ">; rel=\"next\"");
    }
    return reply;
  }
  static std::string list(const std::vector<std::pair<std::string, int>>& files) {
    std::string out = "[{\"type\":\"directory\",\"path\":\"sub.gguf\",\"size\":0}";
    for (const auto& [path, size] : files) {
      out += ",{\"type\":\"file\",\"path\":\"" + path + "\",\"size\":" + std::to_string(size) + "}";
    }
    return out + "]";
  }
  void expect_source(const char* reference, const char* target) const {
    const Result<std::string> found = model_source(reference, options_);
    ASSERT_TRUE(found.ok()) << found.status().message();
    EXPECT_EQ(*found, server_->url(target));
  }
  void expect_failure(const char* reference, Code code, const char* says) const {
    expect_error(model_source(reference, options_).status(), code, says);
  }

  std::string first_ = list({{"README.md", 3}, {"m-Q8_0.gguf", 9}, {"m-Q2_K.gguf", 3}});
  std::string second_ = list({{"m-Q4_0.gguf", 5}, {"mmproj-F16.gguf", 1}});
  int status_ = 200;
  Serving serving_;
};

TEST_F(HuggingFaceTest, FindsTheFileOfAReference) {
  expect_source("hf:owner/repo", "/owner/repo/resolve/main/m-Q4_0.gguf");
  expect_source("hf:owner/repo:q8_0", "/owner/repo/resolve/main/m-Q8_0.gguf");
  const int before = server_->requests();
  expect_source("hf:owner/repo/sub/a b.gguf@v1", "/owner/repo/resolve/v1/sub/a%20b.gguf");
  EXPECT_EQ(server_->requests(), before);
  EXPECT_EQ(*model_source("/a/m.gguf", options_), "/a/m.gguf");
  options_.credentials.token = "hf_1";
  expect_source("hf:owner/repo", "/owner/repo/resolve/main/m-Q4_0.gguf");
}

TEST_F(HuggingFaceTest, ARepositoryOfSafetensorsIsADirectory) {
  second_.clear();
  first_ = list({{"config.json", 3}, {"model.safetensors", 9}});
  expect_source("hf:owner/repo", "/owner/repo/resolve/main/");
  expect_failure("hf:owner/repo:Q8_0", Code::kNotFound, "no GGUF model; it has config.json");
  first_ = list({{"README.md", 3}, {"pytorch_model.bin", 9}});
  expect_failure("hf:owner/repo", Code::kNotFound, "it has README.md, pytorch_model.bin");
}

TEST_F(HuggingFaceTest, ErrorsSayWhatThereIs) {
  expect_failure("hf:owner/repo:Q6_K", Code::kNotFound,
                 "owner/repo has no Q6_K; it has Q2_K, Q4_0, Q8_0");
  expect_failure("hf:owner/other", Code::kNotFound, "does not exist");
  expect_failure("hf:owner/repo@v7", Code::kNotFound, "at revision v7 does not exist");
  for (const int status : {401, 403}) {
    status_ = status;
    expect_failure("hf:owner/repo", Code::kHttpStatus, "needs a token: set HF_TOKEN");
  }
  status_ = 500;
  expect_failure("hf:owner/repo", Code::kHttpStatus, "500");
  status_ = 200;
  options_.credentials.token = "hf_2";
  expect_failure("hf:owner/repo", Code::kHttpStatus,
                 "the token does not allow it (HTTP status 403)");
  options_.credentials.token.clear();
  for (const char* text : {"{}", "<html>", ""}) {
    first_ = text;
    expect_failure("hf:owner/repo", Code::kBadHeader, "the hub's list of files");
  }
}

TEST_F(HuggingFaceTest, WithoutAConnectionTheCacheAnswers) {
  const std::filesystem::path dir = std::filesystem::path(testing::TempDir()) / "sluice-hub-cache";
  std::filesystem::remove_all(dir);
  options_.cache_dir = dir.string();
  file_.resize(100'000);
  for (const char* name : {"m-Q8_0.gguf", "m-Q2_K.gguf"}) {
    auto source =
        io::open_source(server_->url(std::string("/owner/repo/resolve/main/") + name), options_);
    ASSERT_TRUE(source.ok()) << source.status().message();
    std::vector<uint8_t> bytes(file_.size());
    expect_ok((*source)->read(0, bytes));
  }
  const std::string hub = server_->url("");
  serving_.reset();
  EXPECT_EQ(*model_source("hf:owner/repo", options_), hub + "/owner/repo/resolve/main/m-Q8_0.gguf");
  EXPECT_EQ(*model_source("hf:owner/repo:Q2_K", options_),
            hub + "/owner/repo/resolve/main/m-Q2_K.gguf");
  expect_failure("hf:owner/repo:Q4_0", Code::kNetwork, "connection refused");
  expect_failure("hf:owner/repo@v1", Code::kNetwork, "connection refused");
  expect_failure("hf:owner/other", Code::kNetwork, "connection refused");
  std::filesystem::remove_all(dir);
}

TEST_F(HuggingFaceTest, CachedModelsOfAReference) {
  const std::string base = "https://h/owner/repo/resolve/main/";
  const std::vector<io::CachedModel> models = {{base + "m-Q8_0-00001-of-00002.gguf", 9},
                                               {base + "m-Q4_0.gguf", 5},
                                               {base + "a%20b.gguf", 1}};
  EXPECT_EQ(*cached_model("hf:owner/repo", models), base + "m-Q4_0.gguf");
  EXPECT_EQ(*cached_model("hf:owner/repo:Q8_0", models), base + "m-Q8_0-00001-of-00002.gguf");
  EXPECT_EQ(*cached_model("hf:owner/repo/a b.gguf", models), base + "a%20b.gguf");
  EXPECT_EQ(*cached_model("hf:owner/repo/b.gguf", models), "");
  EXPECT_EQ(*cached_model("hf:owner/other", models), "");
  EXPECT_EQ(*cached_model("hf:owner/repo", {{base, 9}}), base);
}

}  // namespace
}  // namespace sluice::native
