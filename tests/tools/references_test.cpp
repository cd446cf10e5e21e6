// From the papers to the engine, end to end through the programs. The references still produce the
// stored logits. A forward pass over the safetensors directory, dumped and compared layer by layer,
// stays within f32 rounding (the mean square seen is 1e-10; 1e-5 is allowed).
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "../extent.h"
#include "../paths.h"

namespace sluice::tools {
namespace {

namespace fs = std::filesystem;

const std::string kData = sluice::test::source_dir() + "/tests/data/";

struct Ran {
  int status;
  std::string text;
};

Ran run(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  Ran ran;
  std::array<char, 512> buffer;
  while (fgets(buffer.data(), buffer.size(), pipe) != nullptr) ran.text += buffer.data();
  const int status = pclose(pipe);
  ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ran;
}

// A Python with numpy, or an empty string.
std::string python() {
  for (const char* name : {"/usr/bin/python3", "python3"}) {
    if (run(std::string(name) + " -c 'import numpy'").status == 0) return name;
  }
  return "";
}

// They and the data change seldom.
TEST(References, ProduceTheStoredLogits) {
  if (!test::long_suite()) GTEST_SKIP() << "in npm run test:all";
  const std::string interpreter = python();
  if (interpreter.empty()) GTEST_SKIP() << "no python3 with numpy";
  for (const char* folder : {"arch", "families"}) {
    const Ran ran = run("OPENBLAS_NUM_THREADS=1 " + interpreter + " " + sluice::test::source_dir() +
                        "/tests/reference/reference.py " + kData + folder + "/manifest.json");
    EXPECT_EQ(ran.status, 0) << ran.text;
  }
}

class SafetensorsPass : public testing::Test {
 protected:
  void SetUp() override {
    std::ifstream file(kData + "hf/qwen3/expected.json");
    expected_ = nlohmann::json::parse(file);
    out_ = fs::temp_directory_path() / ("sluice-pass-" + std::to_string(getpid()));
    fs::create_directories(out_);
  }
  void TearDown() override { fs::remove_all(out_); }

  static std::string listed(const std::vector<int>& ids) {
    std::ostringstream text;
    for (size_t i = 0; i < ids.size(); ++i) text << (i == 0 ? "" : ",") << ids[i];
    return text.str();
  }
  std::string model() const { return kData + "hf/qwen3"; }

  nlohmann::json expected_;
  fs::path out_;
};

TEST_F(SafetensorsPass, EveryLayerMatchesTheReference) {
  const std::string prompt = listed(expected_["prompt"].get<std::vector<int>>());
  const Ran dumped = run(sluice::test::program_path("sluice") + " dump " + model() +
                         " --layer all --tokens " + prompt + " --out " + out_.string());
  ASSERT_EQ(dumped.status, 0) << dumped.text;
  const Ran compared =
      run(sluice::test::program_path("sluice") + " compare --measure mse --tolerance 1e-8 " +
          out_.string() + " " + model() + "/checkpoints");
  EXPECT_EQ(compared.status, 0) << compared.text;
  EXPECT_NE(compared.text.find("all 15 checkpoints agree"), std::string::npos) << compared.text;
}

TEST_F(SafetensorsPass, GreedyTokensMatchTheReference) {
  auto tokens = expected_["prompt"].get<std::vector<int>>();
  const size_t n_prompt = tokens.size();
  const auto greedy = expected_["greedy"].get<std::vector<int>>();
  tokens.insert(tokens.end(), greedy.begin(), greedy.end());
  const std::string path = (out_ / "logits.f32").string();
  const Ran ran = run(sluice::test::program_path("sluice") + " logits " + model() + " --tokens " +
                      listed(tokens) + " --out " + path);
  ASSERT_EQ(ran.status, 0) << ran.text;
  const size_t n_vocab = 320;
  std::vector<float> logits(tokens.size() * n_vocab);
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(logits.data()),
            static_cast<std::streamsize>(logits.size() * sizeof(float)));
  ASSERT_TRUE(file.good());
  for (size_t i = 0; i < greedy.size(); ++i) {
    const auto row = logits.begin() + static_cast<ptrdiff_t>((n_prompt - 1 + i) * n_vocab);
    EXPECT_EQ(std::max_element(row, row + n_vocab) - row, greedy[i]) << "token " << i;
  }
}

TEST_F(SafetensorsPass, StringsBecomeTheExpectedTokens) {
  for (const auto& text : expected_["texts"]) {
    const std::string path = (out_ / "text").string();
    std::ofstream(path, std::ios::binary) << text["text"].get<std::string>();
    const Ran ran =
        run(sluice::test::program_path("sluice") + " tokenize " + model() + " --file " + path);
    ASSERT_EQ(ran.status, 0) << ran.text;
    EXPECT_EQ(nlohmann::json::parse(ran.text), text["ids"]) << text["text"];
  }
}

}  // namespace
}  // namespace sluice::tools
