// `sluice convert` on whole models: every type gives a file that runs and says what the source
// says, within what the type can hold; a checkpoint's directory becomes a GGUF with the same
// logits; and a conversion that fails leaves nothing.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "../sanitized.h"
#include "gguf/gguf.h"
#include "program_util.h"

namespace sluice::tools {
namespace {

namespace fs = std::filesystem;

const std::string kSource = SLUICE_SOURCE_DIR;
const std::string kSample = kSource + "/examples/models/sluice-tales-F16.gguf";
constexpr const char* kTokens = "1,300,17,42,250,611,9,33,120,400,77,18,505,260,31,90";

class Convert : public ProgramTest {
 protected:
  [[nodiscard]] std::vector<float> logits(const std::string& model) const {
    const Ran ran = run({"logits", model, "--tokens", kTokens, "--out", at("logits")});
    EXPECT_EQ(ran.status, 0) << ran.err;
    const std::string bytes = bytes_of(at("logits"));
    std::vector<float> values(bytes.size() / 4);
    std::memcpy(values.data(), bytes.data(), values.size() * 4);
    return values;
  }
  [[nodiscard]] static double error_of(const std::vector<float>& got,
                                       const std::vector<float>& wanted) {
    if (got.size() != wanted.size() || got.empty()) return 1e9;
    double error = 0, power = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      error += std::pow(static_cast<double>(got[i]) - wanted[i], 2);
      power += std::pow(static_cast<double>(wanted[i]), 2);
    }
    return error / power;
  }
};

TEST_F(Convert, EveryTypeRuns) {
  const std::pair<const char*, double> kTypes[] = {
      {"f32", 1e-9},    {"f16", 1e-9},   {"bf16", 1e-4},   {"q4_0", 0.06},   {"q4_1", 0.06},
      {"q5_0", 0.02},   {"q5_1", 0.02},  {"q8_0", 2e-3},   {"q2_k", 0.3},    {"q3_k_s", 0.15},
      {"q3_k_m", 0.1},  {"q3_k_l", 0.1}, {"q4_k_s", 0.06}, {"q4_k_m", 0.06}, {"q5_k_s", 0.02},
      {"q5_k_m", 0.02}, {"q6_k", 5e-3},  {"iq4_nl", 0.06}, {"iq4_xs", 0.06}, {"mxfp4", 0.1},
      {"tq1_0", 0.6},   {"tq2_0", 0.6},
  };
  const std::vector<float> wanted = logits(kSample);
  for (const auto& [type, bound] : kTypes) {
    const Ran ran = run({"convert", kSample, at("out.gguf"), "--type", type, "--json"});
    ASSERT_EQ(ran.status, 0) << type << ": " << ran.err;
    const auto report = nlohmann::json::parse(ran.out);
    EXPECT_EQ(report["bytes"], fs::file_size(at("out.gguf")));
    EXPECT_LE(error_of(logits(at("out.gguf")), wanted), bound) << type;
    for (const auto& t : report["tensors"]) {
      EXPECT_GT(t["cosine"].get<double>(), 0.85) << type << " " << t["name"];
    }
  }
}

TEST_F(Convert, DirectoriesBecomeFilesWithTheSameLogits) {
  for (const char* name : {"gemma3", "llama3", "qwen3", "smollm3"}) {
    const std::string directory = kSource + "/tests/data/hf/" + name;
    const Ran ran = run({"convert", directory, at(name)});
    ASSERT_EQ(ran.status, 0) << ran.err;
    const auto tokens = [&](const std::string& model) {
      const Ran some = run({"logits", model, "--tokens", "1,5,9,20,33,40,50", "--out", at("some")});
      EXPECT_EQ(some.status, 0) << some.err;
      const std::string bytes = bytes_of(at("some"));
      std::vector<float> values(bytes.size() / 4);
      std::memcpy(values.data(), bytes.data(), values.size() * 4);
      return values;
    };
    EXPECT_LE(error_of(tokens(at(name)), tokens(directory)), 1e-9) << name;
  }
}

TEST_F(Convert, GivesTheSameBytesAgain) {
  ASSERT_EQ(run({"convert", kSample, at("a"), "--type", "q3_k_m", "--threads", "1"}).status, 0);
  ASSERT_EQ(run({"convert", kSample, at("b"), "--type", "q3_k_m", "--threads", "4",
                 "--memory-budget", "1M"})
                .status,
            0);
  EXPECT_EQ(bytes_of(at("a")), bytes_of(at("b")));
}

TEST_F(Convert, LeavesNothingBehindWhenItFails) {
  const std::vector<std::string> wrong[] = {
      {"--type", "q9_9"},
      {"--type", "q4_0", "--memory-budget", "10k"},
      {"--type", "q4_0", "--imatrix", at("none")},
      {"--pure"},
      {"--type", "q4_0", "--imatrix", kSample},
  };
  for (std::vector<std::string> options : wrong) {
    options.insert(options.begin(), {"convert", kSample, at("out.gguf")});
    const Ran ran = run(options);
    EXPECT_NE(ran.status, 0);
    EXPECT_EQ(ran.err.substr(0, 8), "sluice: ") << ran.err;
    for (const auto& entry : fs::directory_iterator(base_)) {
      EXPECT_EQ(entry.path().filename(), "stderr");
    }
  }
}

// Weights that a text multiplies with much lose less: the logits on such a text are nearer.
TEST_F(Convert, CalibrationServesTheText) {
  const std::string all = bytes_of(kSource + "/examples/models/heldout.txt"), text = at("text");
  std::ofstream(text) << all.substr(0, test::kSanitized ? 2000 : all.size());
  const auto loss = [&](const std::string& model) {
    const Ran ran = run({"perplexity", model, "--file", text, "--json"});
    EXPECT_EQ(ran.status, 0) << ran.err;
    return nlohmann::json::parse(ran.out)["nll"].get<double>();
  };
  ASSERT_EQ(run({"convert", kSample, at("plain"), "--type", "tq2_0", "--pure"}).status, 0);
  const Ran ran = run(
      {"convert", kSample, at("seen"), "--type", "tq2_0", "--pure", "--calibrate", text, "--json"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  const auto report = nlohmann::json::parse(ran.out);
  for (const auto& t : report["tensors"]) {
    if (t["from"] == "F16") {
      EXPECT_TRUE(t["weighted"].get<bool>()) << t["name"];
    }
  }
  EXPECT_LT(loss(at("seen")), loss(at("plain")));
  EXPECT_NE(run({"convert", kSample, at("seen"), "--type", "q2_k", "--calibrate", text, "--imatrix",
                 text})
                .status,
            0);
}

TEST_F(Convert, FitsTheSizeThatIsAskedFor) {
  const std::vector<float> wanted = logits(kSample);
  double before = 1e9;
  for (const char* size : {"750k", "3M"}) {
    const Ran ran = run({"convert", kSample, at("out"), "--target-size", size, "--json"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    const double most = std::stod(size) * (size[1] == 'M' ? 1 << 20 : 1 << 10);
    EXPECT_LE(fs::file_size(at("out")), most);
    const auto report = nlohmann::json::parse(ran.out);
    for (const auto& t : report["tensors"]) {
      EXPECT_GE(t["cosine"].get<double>(), 0.989) << t["name"];
    }
    const double error = error_of(logits(at("out")), wanted);
    EXPECT_LT(error, before) << size;
    before = error;
  }
  EXPECT_EQ(before, 0);  // there was room for everything
  const Ran small = run({"convert", kSample, at("out"), "--target-size", "300k"});
  EXPECT_NE(small.err.find("the smallest file"), std::string::npos) << small.err;
}

TEST_F(Convert, RefusesToWriteOverItsSource) {
  fs::copy_file(kSample, at("model.gguf"));
  fs::create_symlink(at("model.gguf"), at("link.gguf"));
  const std::string before = bytes_of(kSample);
  for (const char* out : {"model.gguf", "link.gguf"}) {
    const Ran ran = run({"convert", at("model.gguf"), at(out), "--type", "q4_0"});
    EXPECT_NE(ran.status, 0);
    EXPECT_NE(ran.err.find("INVALID_ARGUMENT"), std::string::npos) << ran.err;
    EXPECT_EQ(bytes_of(at("model.gguf")), before);
  }
}

}  // namespace
}  // namespace sluice::tools
