// Commands with hf: references, against a stand-in of the Hugging Face hub: what is requested, with
// which headers, and what they print.
#include <mutex>

#include "../unit/http_test_server.h"
#include "program_util.h"

namespace sluice::tools {
namespace {

using test::HttpReply;
using test::HttpRequest;

class HubTest : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    model_ = bytes_of(test::source_dir() + "/examples/models/sluice-tales-Q8_0.gguf");
    server_ = std::make_unique<test::HttpTestServer>([this](const HttpRequest& request) {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (const char* name : {"authorization", "x-key"}) {
        const auto header = request.headers.find(name);
        sent_ += header == request.headers.end() ? "-" : header->second;
      }
      return answer(request);
    });
  }
  [[nodiscard]] HttpReply answer(const HttpRequest& request) const {
    HttpReply reply;
    if (request.target == "/api/models/owner/tales/tree/main?recursive=true") {
      reply.body = R"([{"type": "file", "path": "tales-Q8_0.gguf", "size": 1},
                       {"type": "file", "path": "mmproj-Q4_K_M.gguf", "size": 1}])";
    } else if (request.target == "/owner/tales/resolve/main/tales-Q8_0.gguf") {
      reply = test::serve_file(request, model_);
    } else {
      reply.status = 404;
    }
    return reply;
  }
  [[nodiscard]] Ran hub(std::vector<std::string> arguments, bool online = true) const {
    arguments.insert(arguments.end(), {"--cache-dir", at("cache")});
    if (online) arguments.insert(arguments.end(), {"--hf-endpoint", server_->url("")});
    return run(arguments);
  }

  std::string model_, sent_;
  std::mutex mutex_;
  std::unique_ptr<test::HttpTestServer> server_;
};

TEST_F(HubTest, EveryCommandTakesAReference) {
  const std::string reference = "hf:owner/tales";
  std::ofstream(at("text")) << "Once upon a time";
  const Ran local = run({"run", test::source_dir() + "/examples/models/sluice-tales-Q8_0.gguf",
                         "-p", "Once", "-n", "4", "--temp", "0"});
  for (const std::string& model : {reference, reference + ":q8_0"}) {
    EXPECT_EQ(hub({"run", model, "-p", "Once", "-n", "4", "--temp", "0"}).out, local.out);
  }
  EXPECT_EQ(hub({"run", "-hf", "owner/tales", "-p", "Once", "-n", "4", "--temp", "0"}).out,
            local.out);
  EXPECT_NE(hub({"info", reference}).out.find("Sluice Tales"), std::string::npos);
  EXPECT_NE(hub({"tokenize", reference, "-f", at("text")}).out.find("711"), std::string::npos);
  EXPECT_EQ(hub({"dump", reference, "--tokens", "1", "--out", at("dump")}).status, 0);
  EXPECT_EQ(hub({"logits", reference, "--tokens", "1", "--out", at("logits")}).status, 0);
  EXPECT_EQ(hub({"convert", reference, at("q4.gguf"), "--type", "q4_0"}).status, 0);
  EXPECT_EQ(hub({"perplexity", reference, "-f", at("text")}).status, 0);
  EXPECT_NE(hub({"run", reference + ":Q4_K_M", "-p", "x"}).err.find("it has Q8_0"),
            std::string::npos);
}

TEST_F(HubTest, PulledModelsAreShownUsedAndDeletedByReference) {
  const Ran pulled =
      hub({"pull", "hf:owner/tales", "--header", "X-Key: secret", "--token", "hf_1"});
  EXPECT_EQ(pulled.status, 0) << pulled.err;
  for (size_t at = 0; at < sent_.size(); at += 17) {
    EXPECT_EQ(sent_.substr(at, 17), "Bearer hf_1secret");
  }
  const std::string file = server_->url("/owner/tales/resolve/main/tales-Q8_0.gguf");
  for (const char* command : {"show", "list"}) {
    const Ran shown = command == std::string("show") ? hub({command, "hf:owner/tales"}, false)
                                                     : hub({command}, false);
    EXPECT_NE(shown.out.find(file), std::string::npos) << shown.out;
  }
  const std::string gone = server_->url("");
  server_.reset();
  const auto offline = [&](const char* command, std::vector<std::string> more) {
    more.insert(more.begin(), {command, "hf:owner/tales", "--hf-endpoint", gone});
    return hub(more, false);
  };
  const Ran ran = offline("run", {"-p", "Once", "-n", "1"});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_NE(ran.err.find("connection refused, trying again"), std::string::npos) << ran.err;
  EXPECT_EQ(hub({"rm", "hf:owner/tales"}, false).status, 0);
  const Ran none = offline("run", {"-p", "Once"});
  EXPECT_EQ(none.status, 1);
  EXPECT_NE(none.err.find("connection refused (after"), std::string::npos) << none.err;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(at("cache"))) {
    EXPECT_EQ(bytes_of(entry.path()).find("secret"), std::string::npos) << entry.path();
  }
}

TEST_F(HubTest, WrongHeadersAndTokensAreNotPrinted) {
  for (const std::vector<std::string>& wrong :
       std::vector<std::vector<std::string>>{{"--header", "secret"},
                                             {"--header", "Range: secret"},
                                             {"--token", "secret secret"},
                                             {"--hf-endpoint", "secret"}}) {
    const Ran ran = run({"run", "hf:owner/tales", "-p", "x", wrong[0], wrong[1]});
    EXPECT_EQ(ran.status, 1);
    EXPECT_NE(ran.err.find("[INVALID_ARGUMENT]"), std::string::npos) << ran.err;
    EXPECT_EQ(ran.err.find("secret"), std::string::npos) << ran.err;
  }
}

}  // namespace
}  // namespace sluice::tools
