// `sluice perplexity` compared with the trainer's own measurement of the sample model, and with
// itself: every token is scored once for any stride, and wrong inputs give an error in one
// sentence.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "../paths.h"
#include "../sanitized.h"

namespace sluice::tools {
namespace {

namespace fs = std::filesystem;

const std::string kModels = sluice::test::source_dir() + "/examples/models/";

class Perplexity : public testing::Test {
 protected:
  void SetUp() override {
    base_ = fs::temp_directory_path() / ("sluice-perplexity-" + std::to_string(getpid()));
    fs::create_directories(base_);
  }
  void TearDown() override { fs::remove_all(base_); }

  std::string text(const std::string& content) {
    std::ofstream(base_ / "text", std::ios::binary) << content;
    return (base_ / "text").string();
  }
  // Exit status and output.
  static std::pair<int, std::string> run(const std::string& file, const std::string& options = "") {
    const std::string command = sluice::test::program_path("sluice") + " perplexity " + kModels +
                                "sluice-tales-F16.gguf --file " + file + " " + options + " 2>&1";
    FILE* pipe = popen(command.c_str(), "r");
    std::string printed;
    std::array<char, 4096> buffer;
    while (fgets(buffer.data(), buffer.size(), pipe) != nullptr) printed += buffer.data();
    const int status = pclose(pipe);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, printed};
  }
  static nlohmann::json measure(const std::string& file, const std::string& options) {
    const auto [status, printed] = run(file, "--json --per-token " + options);
    EXPECT_EQ(status, 0) << printed;
    return status == 0 ? nlohmann::json::parse(printed) : nlohmann::json();
  }
  static double mean(const nlohmann::json& scores, size_t first, size_t last) {
    double sum = 0;
    for (size_t i = first; i < last; ++i) sum += scores[i]["nll"].get<double>();
    return sum / static_cast<double>(last - first);
  }

  fs::path base_;
};

TEST_F(Perplexity, EqualsTheTrainersMeasurement) {
  if (test::kSanitized) GTEST_SKIP() << "a long text; the shorter ones cover the same code";
  std::ifstream file(kModels + "reference/outputs.json");
  const nlohmann::json reference = nlohmann::json::parse(file);
  const size_t scored = reference["held_out_tokens"].get<size_t>() - 1;  // all but BOS
  const nlohmann::json found = measure(kModels + "heldout.txt", "");
  ASSERT_GT(found["perToken"].size(), scored);  // all of them are in the first window
  EXPECT_NEAR(mean(found["perToken"], 0, scored), reference["held_out_nats"].get<double>(), 1e-3);
  EXPECT_NEAR(mean(found["perToken"], 0, found["perToken"].size()), found["nll"].get<double>(),
              1e-9);
}

TEST_F(Perplexity, ScoresEveryTokenOnceForAnyStride) {
  std::string story;
  for (int i = 0; i < 12; ++i) story += "Tom went to the park. He saw a dog and a red ball. ";
  const std::string file = text(story);
  const nlohmann::json whole = measure(file, "--ctx 512");  // one window
  for (const char* stride : {"1", "17", "63"}) {
    const nlohmann::json found = measure(file, "--ctx 64 --stride " + std::string(stride));
    ASSERT_EQ(found["tokens"], whole["tokens"]) << stride;
    std::string joined;
    for (const auto& s : found["perToken"]) joined += s["text"].get<std::string>();
    EXPECT_EQ(joined, story) << stride;
    for (size_t i = 0; i < 63; ++i) {  // the first window has BOS and 63 tokens
      EXPECT_NEAR(found["perToken"][i]["nll"].get<double>(),
                  whole["perToken"][i]["nll"].get<double>(), 1e-6);
    }
  }
}

TEST_F(Perplexity, ReportsErrorsInOneSentence) {
  const std::string hi = text("Hi");
  const std::vector<std::array<std::string, 3>> cases = {
      {base_.string(), "", "NOT_FOUND"},  // a directory
      {(base_ / "absent").string(), "", "NOT_FOUND"},
      {"/dev/null", "", "PROMPT_EMPTY"},
      {hi, "--stride 0", "INVALID_ARGUMENT"},
      {hi, "--stride 512", "INVALID_ARGUMENT"},
      {hi, "--ctx 2", "INVALID_ARGUMENT"},
      {hi, "--memory-budget 10", "BUDGET_TOO_SMALL"}};
  for (const auto& [file, options, code] : cases) {
    const auto [status, printed] = run(file, options);
    EXPECT_GT(status, 0) << file << options;
    EXPECT_NE(printed.find("[" + code + "]"), std::string::npos) << printed;
    EXPECT_EQ(std::count(printed.begin(), printed.end(), '\n'), 1) << printed;
  }
}

}  // namespace
}  // namespace sluice::tools
