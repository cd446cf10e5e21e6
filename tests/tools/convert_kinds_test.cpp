// `sluice convert` on kinds of models and files: mixtures of experts, encoders, QSF and back, and
// every type to others. The result agrees with its source within the type's precision, or is
// bit-identical. All models have a few megabytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "../extent.h"
#include "../paths.h"
#include "../sanitized.h"
#include "program_util.h"

namespace sluice::tools {
namespace {

namespace fs = std::filesystem;

const std::string kSource = sluice::test::source_dir();
const std::string kFixtures = kSource + "/../shared/fixtures/";
const std::string kSample = kSource + "/examples/models/sluice-tales-F16.gguf";
constexpr const char* kTokens = "2,17,29,45,31,8,12,77,100,9,61,3";
constexpr const char* kBudget = "3M";
// The short suite and sanitizers, which take ten times as long, run a part.
const bool kFew = test::kSanitized || !test::long_suite();

class ConvertKinds : public ProgramTest {
 protected:
  [[nodiscard]] std::vector<float> answers(const std::string& model, bool encoder) const {
    std::vector<std::string> how = {encoder ? "embed" : "logits", model, "--tokens", kTokens};
    if (encoder) how.insert(how.end(), {"--pooling", "none"});
    how.insert(how.end(), {"--out", at("answers")});
    const Ran ran = run(how);
    EXPECT_EQ(ran.status, 0) << ran.err;
    return floats_of(at("answers"));
  }
  void convert(const std::string& in, const std::string& out, std::vector<std::string> more = {},
               const char* budget = kBudget) const {
    more.insert(more.begin(), {"convert", in, out, "--force", "--memory-budget", budget});
    const Ran ran = run(more);
    ASSERT_EQ(ran.status, 0) << in << ": " << ran.err;
  }
  // A mixture of experts whose rows are whole blocks of every type.
  [[nodiscard]] std::string made_mixture() const {
    const std::string command =
        sluice::test::program_path("sluice-make-model") +
        " -q -s tiny --arch qwen3moe --experts 4 --experts-used 2 --embd 256 --ff 256 --layers 2"
        " --vocab 512 --heads 4 --heads-kv 2 -t f16 " +
        at("mixture.gguf");
    EXPECT_EQ(std::system(command.c_str()), 0);
    return at("mixture.gguf");
  }

  struct Bound {
    const char* type;
    double most;  // normalized error of the outputs
  };
  void expect_near(const std::string& model, bool encoder, const std::vector<Bound>& bounds) const {
    const std::vector<float> wanted = answers(model, encoder);
    for (const Bound& b : bounds) {
      convert(model, at("out"), {"--type", b.type});
      EXPECT_LE(error_of(answers(at("out"), encoder), wanted), b.most) << model << " " << b.type;
      convert(model, at("again"), {"--type", b.type, "--threads", "1"}, "16M");
      EXPECT_EQ(bytes_of(at("again")), bytes_of(at("out"))) << model << " " << b.type;
      convert(at("out"), at("again"));
      EXPECT_EQ(bytes_of(at("again")), bytes_of(at("out"))) << model << " " << b.type;
    }
  }
};

TEST_F(ConvertKinds, MixturesOfExperts) {
  const std::string made = made_mixture();
  std::vector<Bound> bounds = {
      {"q4_k_m", 0.06}, {"q8_0", 2e-3}, {"f32", 0}, {"q6_k", 0.01}, {"mxfp4", 0.15}};
  if (kFew) bounds.resize(2);
  expect_near(made, false, bounds);
  const Ran ran = run({"convert", made, at("out"), "--force", "--type", "q4_k_s", "--json"});
  const nlohmann::json report = nlohmann::json::parse(ran.out);
  size_t experts = 0;
  for (const auto& t : report["tensors"]) {
    const std::string name = t["name"];
    if (name.ends_with("_exps.weight")) {
      ++experts;
      EXPECT_EQ(t["type"].get<std::string>().substr(1), "4_K") << name;
      EXPECT_GT(t["cosine"].get<double>(), 0.997) << name;
    } else if (name.find("ffn_gate_inp") != std::string::npos) {
      EXPECT_EQ(t["type"], "F32");
    }
  }
  EXPECT_GT(experts, 2u);
  const std::string own = kSource + "/tests/data/families/";
  expect_near(own + "qwen3moe.gguf", false, {{"f32", 0}, {"q8_0", 0.03}, {"q5_k_m", 0.15}});
  if (kFew) return;
  expect_near(own + "granitemoe.gguf", false, {{"f32", 0}, {"q8_0", 0.01}, {"q5_k_m", 0.15}});
}

TEST_F(ConvertKinds, Encoders) {
  if (!fs::exists(kFixtures + "embeddings")) GTEST_SKIP() << "no ../shared/fixtures";
  std::vector<const char*> names = {
      "bert-cls",   "nomic-bert-moe",       "bert-rank", "jina-bert-v2", "modern-bert",
      "nomic-bert", "gemma-embedding-dense"};
  if (kFew) names.resize(2);
  for (const char* name : names) {
    expect_near(kFixtures + "embeddings/" + name + ".gguf", true,
                {{"f32", 0}, {"q8_0", 0.02}, {"q5_0", 0.2}});
  }
}

// To QSF and back gives the same file as straight to GGUF; the same types again give the same
// bytes.
TEST_F(ConvertKinds, QsfRoundTripIsBitIdentical) {
  std::vector<std::string> models = {made_mixture(),
                                     kSource + "/examples/models/sluice-tales-Q8_0.gguf",
                                     kSource + "/tests/data/families/granitemoe.gguf",
                                     kSource + "/tests/data/families/exaone.gguf"};
  for (const char* more : {"arch/phi2.gguf", "families/phimoe.gguf", "families/gpt-oss.gguf",
                           "families/t5.gguf", "embeddings/bert-rank.gguf"}) {
    if (fs::exists(kFixtures + more)) models.push_back(kFixtures + more);
  }
  if (kFew) models.resize(std::min<size_t>(models.size(), 5));
  for (const std::string& model : models) {
    convert(model, at("straight"));
    for (const std::string_view name : {"none", "lz4", "zstd"}) {
      if (kFew && name != "zstd" && model != models[0]) continue;
      const std::string packing(name);
      convert(model, at("out.qsf"), {"--compress", packing}, "16M");
      convert(at("out.qsf"), at("again.qsf"), {"--compress", packing}, "16M");
      EXPECT_EQ(bytes_of(at("again.qsf")), bytes_of(at("out.qsf"))) << model << " " << packing;
      convert(at("out.qsf"), at("back"), {}, "16M");
      EXPECT_EQ(bytes_of(at("back")), bytes_of(at("straight"))) << model << " " << packing;
    }
  }
}

TEST_F(ConvertKinds, EveryTypeConvertsToOthers) {
  constexpr double kRounding = 5e-4;  // of activations; floats are multiplied without it
  const std::vector<Bound> types = {
      {"f32", 0},     {"f16", 1e-9},    {"bf16", 1e-4},   {"q4_0", 0.06},   {"q4_1", 0.06},
      {"q5_0", 0.02}, {"q5_1", 0.02},   {"q8_0", 2e-3},   {"q2_k", 0.35},   {"q3_k_s", 0.15},
      {"q6_k", 5e-3}, {"q4_k_s", 0.06}, {"q5_k_s", 0.02}, {"iq4_nl", 0.06}, {"iq4_xs", 0.06},
      {"tq2_0", 0.6}, {"mxfp4", 0.1},   {"tq1_0", 0.6}};
  for (size_t i = 0; i < types.size(); ++i) {
    const std::string from = at("from");
    convert(kSample, from, {"--type", types[i].type, "--pure"});
    const std::vector<float> wanted = answers(from, false);
    for (const size_t step : {0u, 1u, 5u}) {
      if (kFew && (step == 1 || (step == 0 && i % 3 != 0))) continue;
      const Bound& to = types[(i + step) % types.size()];
      convert(from, at("to"), {"--type", to.type, "--pure"});
      if (step == 0) {
        EXPECT_EQ(bytes_of(at("to")), bytes_of(from)) << to.type;
      } else {
        EXPECT_LE(error_of(answers(at("to"), false), wanted), to.most + kRounding)
            << types[i].type << " to " << to.type;
      }
    }
    convert(from, at("to"), {"--type", "f32"});
    EXPECT_LE(error_of(answers(at("to"), false), wanted), kRounding) << types[i].type;
  }
}

// A model of random weights, which changes much, and whose rows hold blocks of 256 values.
TEST_F(ConvertKinds, TypesOfOneToThreeBitsRun) {
  const std::string model = kSource + "/tests/data/quant-iq/llama-NVFP4.gguf";
  const std::string text = at("text");
  std::ofstream(text) << "Once upon a time there was a small river in the hills.";
  const std::vector<float> wanted = answers(model, false);
  const std::pair<const char*, double> kTypes[] = {
      {"iq1_s", 1.1},    {"iq1_m", 1.1},   {"iq2_xxs", 0.85}, {"iq2_xs", 0.8}, {"iq2_s", 0.45},
      {"iq3_xxs", 0.55}, {"iq3_s", 0.3},   {"q1_0", 1.6},     {"q2_0", 0.85},  {"nvfp4", 0.001},
      {"iq2_m", 0.5},    {"iq3_xs", 0.35}, {"iq3_m", 0.25},   {"q2_k_s", 0.8}};
  for (const auto& [type, bound] : kTypes) {
    const std::string_view name = type;
    const bool mixture = name == "iq2_m" || name == "iq3_xs" || name == "iq3_m" || name == "q2_k_s";
    if (mixture && kFew) continue;
    const Ran ran = run({"convert", model, at("out.gguf"), "--type", type, "--calibrate", text,
                         "--quiet", "--json", "--force"});
    ASSERT_EQ(ran.status, 0) << type << ": " << ran.err;
    EXPECT_EQ(nlohmann::json::parse(ran.out)["bytes"], fs::file_size(at("out.gguf")));
    EXPECT_LE(error_of(answers(at("out.gguf"), false), wanted), bound) << type;
  }
  for (const char* type : {"iq2_xs", "iq3_xxs", "iq1_s", "q2_k_s"}) {
    const Ran ran = run({"convert", model, at("none.gguf"), "--type", type});
    EXPECT_NE(ran.status, 0) << type;
    EXPECT_NE(ran.err.find("needs an importance matrix: --calibrate"), std::string::npos)
        << ran.err;
    EXPECT_FALSE(fs::exists(at("none.gguf")));
  }
  EXPECT_EQ(run({"convert", model, at("iq3.gguf"), "--type", "iq3_s"}).status, 0);
}

// The computed size is the file's size: a size that was reached can be reached again, and the
// smallest size named by an error is possible, one byte less is not.
TEST_F(ConvertKinds, TargetSizesAreExactInBothFormats) {
  const std::string small_model = kSource + "/tests/data/hf/qwen3";
  for (const std::string& model : {small_model, kSample}) {
    if (kFew && model == kSample) continue;
    for (const char* name : {"out.gguf", "out.qsf"}) {
      const std::string out = at(name);
      const auto sized = [&](uint64_t most) {
        return run({"convert", model, out, "--force", "--target-size", std::to_string(most),
                    "--sensitivity", "off", "--min-cosine", "0.999"});
      };
      convert(model, out, {"--type", "q4_k_m"});
      const uint64_t most = fs::file_size(out) * 5 / 4;
      ASSERT_EQ(sized(most).status, 0);
      const uint64_t size = fs::file_size(out);
      EXPECT_LE(size, most) << out;
      EXPECT_GE(size, most - most / 20) << out;
      const std::string bytes = bytes_of(out);
      ASSERT_EQ(sized(size).status, 0);
      EXPECT_EQ(bytes_of(out), bytes) << out;
      if (kFew && name == std::string_view("out.qsf")) continue;  // the errors are the same
      // From shapes alone, from quantization errors, and earlier if a text is needed.
      const auto named = [](const Ran& refused, const std::string& before) {
        EXPECT_NE(refused.status, 0);
        const size_t place = refused.err.find(before);
        EXPECT_NE(place, std::string::npos) << refused.err;
        return place == std::string::npos ? 0
                                          : std::stoull(refused.err.substr(place + before.size()));
      };
      const uint64_t small = named(sized(1), " at least ");
      const uint64_t least = named(sized(small), " has ");
      ASSERT_GT(least, small);
      EXPECT_NE(sized(least - 1).status, 0);
      ASSERT_EQ(sized(least).status, 0);
      EXPECT_EQ(fs::file_size(out), least);
      const Ran early =
          run({"convert", model, out, "--force", "--target-size", std::to_string(small),
               "--min-cosine", "0.999", "--calibrate", at("no such text")});
      EXPECT_NE(early.err.find("with a cosine of"), std::string::npos) << early.err;
      const Ran never = run({"convert", model, out, "--force", "--target-size",
                             std::to_string(least * 2), "--calibrate", at("no such text")});
      EXPECT_NE(never.err.find("no such text"), std::string::npos) << never.err;
    }
  }
}

// Compressed layers count as if nothing were saved.
TEST_F(ConvertKinds, CompressedFilesKeepTheTargetSize) {
  for (const char* packing : {"auto", "lz4", "zstd"}) {
    if (kFew && packing != std::string_view("auto")) continue;
    const Ran ran = run({"convert", kSample, at("out.qsf"), "--force", "--target-size", "750k",
                         "--compress", packing, "--sensitivity", "off"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    EXPECT_LE(fs::file_size(at("out.qsf")), 750u << 10) << packing;
  }
}

}  // namespace
}  // namespace sluice::tools
