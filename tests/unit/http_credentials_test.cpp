// Headers and tokens: they reach the server that they are for, and no redirect takes them to
// another.
#include <mutex>

#include "http_fixture.h"
#include "io/credentials_native.h"

namespace sluice::io {
namespace {

using test::HttpReply;
using test::HttpRequest;
using test::HttpTestServer;
using test::serve_file;

std::string value_of(const HttpRequest& request, const char* name) {
  const auto it = request.headers.find(name);
  return it == request.headers.end() ? "" : it->second;
}

std::string nothing(const char*) {
  return {};
}

// A server that may redirect to another, and what both were asked.
class HttpCredentialsTest : public HttpTest {
 protected:
  void SetUp() override {
    HttpTest::SetUp();
    other_ = std::make_unique<HttpTestServer>([this](const HttpRequest& request) {
      note(request, &asked_other_);
      return serve_file(request, file_);
    });
    serving_ = serve([this](const HttpRequest& request) {
      note(request, &asked_);
      if (request.target == "/final.gguf" || target_.empty()) return serve_file(request, file_);
      return HttpReply{.status = 302, .headers = {{"Location", target_}}, .body = "moved"};
    });
    options_.credentials.headers = {"X-Key: secret", "X-More: 2"};
  }
  void note(const HttpRequest& request, std::vector<std::string>* asked) {
    const std::lock_guard<std::mutex> lock(mutex_);
    asked->push_back(value_of(request, "x-key") + value_of(request, "x-more") + "/" +
                     value_of(request, "authorization"));
  }
  // Opens the file and reads some of it: what the servers were asked, without repetitions.
  void read_all(const std::string& url) {
    asked_.clear();
    asked_other_.clear();
    source_.reset();
    auto source = open_source(url, options_);
    ASSERT_TRUE(source.ok()) << source.status().message();
    source_ = std::move(*source);
    for (const uint64_t at : {0, 100'000}) expect_ok(read(at, 1000));
    for (auto* list : {&asked_, &asked_other_}) {
      list->erase(std::unique(list->begin(), list->end()), list->end());
    }
  }

  std::mutex mutex_;
  std::string target_;
  std::vector<std::string> asked_, asked_other_;
  std::unique_ptr<HttpTestServer> other_;
  Serving serving_;
};

using Asked = std::vector<std::string>;

TEST_F(HttpCredentialsTest, HeadersGoToTheServerOfTheAddressOnly) {
  read_all(server_->url());
  EXPECT_EQ(asked_, Asked{"secret2/"});
  for (const std::string& target : {server_->url("/final.gguf"), std::string("/final.gguf")}) {
    target_ = target;
    read_all(server_->url());
    EXPECT_EQ(asked_, Asked{"secret2/"});
  }
  target_ = other_->url();
  read_all(server_->url());
  EXPECT_EQ(asked_, Asked{"secret2/"});
  EXPECT_EQ(asked_other_, Asked{"/"});
  options_.credentials.model = server_->url("/final.gguf");  // the other file is its adapter
  read_all(other_->url());
  EXPECT_EQ(asked_other_, Asked{"/"});
  target_.clear();
  read_all(server_->url());
  EXPECT_EQ(asked_, Asked{"secret2/"});
  options_.credentials.model = "hf:owner/repo";
  options_.credentials.hub = other_->url("");
  read_all(other_->url());
  EXPECT_EQ(asked_other_, Asked{"secret2/"});
  options_.credentials.model = "/a/model.gguf";
  read_all(other_->url());
  EXPECT_EQ(asked_other_, Asked{"/"});
}

TEST_F(HttpCredentialsTest, TheTokenGoesToTheHubOnly) {
  options_.credentials.headers.clear();
  options_.credentials.token = "hf_secret";
  read_all(server_->url());
  EXPECT_EQ(asked_, Asked{"/"});
  options_.credentials.hub = server_->url("");
  read_all(server_->url());
  EXPECT_EQ(asked_, Asked{"/Bearer hf_secret"});
  target_ = other_->url();
  read_all(server_->url());
  EXPECT_EQ(asked_, Asked{"/Bearer hf_secret"});
  EXPECT_EQ(asked_other_, Asked{"/"});
  target_.clear();
  options_.credentials.headers = {"authorization: Basic mine"};  // the caller knows better
  read_all(server_->url());
  EXPECT_EQ(asked_, Asked{"/Basic mine"});
  // A name in the place of a user, or as a part of another's, is not the hub.
  options_.credentials.hub = "http://127.0.0.1";
  options_.credentials.headers.clear();
  std::string address = other_->url();
  address.insert(address.find("127"), "127.0.0.1@");
  read_all(address);
  EXPECT_EQ(asked_other_, Asked{"/Basic MTI3LjAuMC4xOg=="});
}

TEST_F(HttpCredentialsTest, APasswordFollowsRedirectsOnItsServer) {
  options_.credentials.headers.clear();
  std::string address = server_->url();
  address.insert(address.find("127"), "u:p@");
  for (const std::string& target : {server_->url("/final.gguf"), std::string("/final.gguf")}) {
    target_ = target;
    read_all(address);
    EXPECT_EQ(asked_, Asked{"/Basic dTpw"}) << target;
  }
  target_ = other_->url();
  read_all(address);
  EXPECT_EQ(asked_other_, Asked{"/"});
}

TEST_F(HttpCredentialsTest, TextsAndTheirNextPage) {
  std::string link;
  HttpTestServer hub([&](const HttpRequest& request) {
    if (request.target == "/private") return HttpReply{.status = 401, .headers = {}, .body = "no"};
    HttpReply reply{.status = 200, .headers = {}, .body = value_of(request, "x-key")};
    if (!link.empty()) reply.headers.emplace_back("Link", link);
    return reply;
  });
  const auto get = [&](const char* path) { return fetch_text(hub.url(path), 1000, options_); };
  link = "<" + hub.url("/list?cursor=a%3D") + ">; rel=\"next\"";
  auto page = get("/list");
  ASSERT_TRUE(page.ok()) << page.status().message();
  EXPECT_EQ(page->text, "secret");
  EXPECT_EQ(page->next, hub.url("/list?cursor=a%3D"));
  link = "<" + other_->url("/list") + ">; rel=\"next\"";
  EXPECT_EQ(get("/list")->next, "");
  link = "<http://" + std::string(5000, 'x') + ">; rel=\"next\"";
  EXPECT_EQ(get("/list")->next, "");
  EXPECT_EQ(get("/private")->status, 401);
  options_.credentials.headers = {"X-Key: " + std::string(1001, 'x')};
  expect_error(get("/list").status(), Code::kNetwork, "more bytes");
}

TEST(Credentials, AreCheckedAndNeverShown) {
  const auto fails = [](std::vector<std::string> headers, const std::string& token,
                        const std::string& hub, const char* says) {
    const Status status = make_credentials(std::move(headers), token, hub, nothing).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << says;
    EXPECT_NE(status.message().find(says), std::string::npos) << status.message();
    EXPECT_EQ(status.message().find("secret"), std::string::npos) << status.message();
  };
  for (const char* wrong : {"", "secret", ": secret", "X Y: secret", "X\n: secret"}) {
    fails({wrong}, "", "", "Name: value");
  }
  fails({"X-Key: secret\r\nHost: h"}, "", "", "X-Key");
  fails({"Range: secret"}, "", "", "Range");
  fails({}, "secret secret", "", "token");
  fails({}, "secret\r\nX: y", "", "token");
  for (const char* hub : {"huggingface.co", "ftp://h", "https://u:secret@h", "https://h?secret"}) {
    fails({}, "", hub, "endpoint");
  }
  const auto variable = [](const char* name) -> std::string {
    return std::string(name) == "HF_TOKEN"      ? "hf_1\n"
           : std::string(name) == "HF_ENDPOINT" ? "https://mirror/hub/"
                                                : "";
  };
  Result<Credentials> made = make_credentials({"A: b"}, "", "", variable);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(made->token, "hf_1");
  EXPECT_EQ(made->hub, "https://mirror/hub");
  made = make_credentials({}, "hf_2", "http://127.0.0.1:1", variable);
  EXPECT_EQ(made->token, "hf_2");
  EXPECT_EQ(made->hub, "http://127.0.0.1:1");
  EXPECT_EQ(make_credentials({}, "", "", nothing)->hub, "https://huggingface.co");
}

}  // namespace
}  // namespace sluice::io
