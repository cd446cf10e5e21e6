// `sluice compare` must find the first checkpoint that diverges. It must fail on what it cannot
// compare: missing files, wrong sizes, NaN.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>

#include "../paths.h"
#include "measure/checkpoints.h"

namespace sluice::measure {
namespace {

namespace fs = std::filesystem;

class Compare : public testing::Test {
 protected:
  void SetUp() override {
    base_ = fs::temp_directory_path() / ("sluice-compare-" + std::to_string(getpid()));
    for (const char* folder : {"ours", "reference"}) {
      fs::create_directories(base_ / folder);
      write(folder, "index.txt",
            "embd.GET_ROWS\tGET_ROWS\t4 2 1 1\nnorm-0.RMS_NORM\tRMS_NORM\t4 2 1 1\n"
            "result_output.MUL_MAT\tMUL_MAT\t4 2 1 1\n");
      for (const char* name : {"embd.GET_ROWS", "norm-0.RMS_NORM", "result_output.MUL_MAT"}) {
        values(folder, name, {1, -2, 3, -4, 5, -6, 7, -8});
      }
    }
  }
  void TearDown() override { fs::remove_all(base_); }

  void write(const char* folder, const std::string& name, const std::string& text) {
    std::ofstream(base_ / folder / name, std::ios::binary) << text;
  }
  void values(const char* folder, const std::string& name, const std::vector<float>& data) {
    write(folder, name + ".f32",
          {reinterpret_cast<const char*>(data.data()), data.size() * sizeof(float)});
  }
  // Exit status and output.
  std::pair<int, std::string> run(const std::string& options = "") {
    const std::string command = sluice::test::program_path("sluice") + " compare " +
                                (base_ / "ours").string() + " " + (base_ / "reference").string() +
                                " " + options + " 2>&1";
    FILE* pipe = popen(command.c_str(), "r");
    std::string text;
    std::array<char, 256> buffer;
    while (fgets(buffer.data(), buffer.size(), pipe) != nullptr) text += buffer.data();
    const int status = pclose(pipe);
    return {WEXITSTATUS(status), text};
  }

  fs::path base_;
};

TEST_F(Compare, EqualDirectoriesAgree) {
  const auto [status, text] = run();
  EXPECT_EQ(status, 0) << text;
  EXPECT_NE(text.find("all 3 checkpoints agree"), std::string::npos) << text;
}

TEST_F(Compare, NamesTheFirstDivergence) {
  values("ours", "norm-0.RMS_NORM", {1, -2, 3, -4, 5, -6, 7, -8.00003f});  // beyond 1e-5
  values("ours", "result_output.MUL_MAT", {1, -2, 3, -4, 5, -6, 7, -9});
  const auto [status, text] = run();
  EXPECT_EQ(status, 1);
  EXPECT_NE(text.find("first divergence: norm-0.RMS_NORM has"), std::string::npos) << text;
}

TEST_F(Compare, ToleranceDependsOnTheOperation) {
  values("ours", "embd.GET_ROWS", {1, -2, 3, -4, 5, -6, 7, -8.00003f});         // within 1e-4
  values("ours", "result_output.MUL_MAT", {1, -2, 3, -4, 5, -6, 7, -8.0005f});  // within 1e-3
  EXPECT_EQ(run().first, 0);
  EXPECT_EQ(run("--tolerance 1e-5").first, 1);
  EXPECT_EQ(run("--tolerance 1e-5 --measure nmse").first, 0);
}

TEST_F(Compare, WhatCannotBeComparedFails) {
  fs::remove(base_ / "ours" / "norm-0.RMS_NORM.f32");
  EXPECT_EQ(run().first, 1);
  values("ours", "norm-0.RMS_NORM", {1, -2, 3});
  EXPECT_EQ(run().first, 1);
  values("ours", "norm-0.RMS_NORM", {1, -2, 3, -4, 5, -6, 7, NAN});
  EXPECT_EQ(run().first, 1);
  write("ours", "index.txt", "embd.GET_ROWS\tGET_ROWS\t4 2 1 1\n");
  EXPECT_EQ(run().first, 1);
  EXPECT_EQ(run("--allow-missing").first, 0);
  write("reference", "index.txt", "");
  EXPECT_EQ(run().first, 1);
  fs::remove(base_ / "reference" / "index.txt");
  EXPECT_EQ(run().first, 2);
}

TEST_F(Compare, IndexLinesAreChecked) {
  for (const char* line : {"a", "a OP", "a OP 1 2 3", "a OP 1 2 3 0", "a OP 1 2 3 4 5",
                           "../a OP 1 1 1 1", "a OP 4294967296 4294967296 1 1", "a OP x 1 1 1"}) {
    write("ours", "index.txt", line);
    const auto index = read_index(base_ / "ours");
    ASSERT_FALSE(index.ok()) << line;
    EXPECT_EQ(index.status().code(), Code::kBadHeader) << line;
  }
}

TEST(CompareValues, MeasuresAreTheirDefinitions) {
  const Checkpoint c{"x", "ADD", {2, 1, 1, 1}};
  const auto result = compare_values(c, {3, 5}, c, {3, 4});
  ASSERT_TRUE(result.ok());
  EXPECT_DOUBLE_EQ(result.value().mse, 0.5);
  EXPECT_DOUBLE_EQ(result.value().nmse, 1.0 / 25.0);
  EXPECT_DOUBLE_EQ(result.value().largest, 1.0);
  EXPECT_DOUBLE_EQ(result.value().cosine, 29.0 / (5.0 * std::sqrt(34.0)));
}

TEST(CompareValues, AttentionScoresCompareOnlyCausalPositions) {
  const Checkpoint reference{"kq-0.MUL_MAT", "MUL_MAT", {4, 2, 1, 1}};
  const Checkpoint ours{"kq-0.MUL_MAT", "MUL_MAT", {2, 2, 1, 1}};
  const std::vector<float> padded = {1, 9, 0, 0, 2, 3, 0, 0};
  const auto same = compare_values(ours, {1, 7, 2, 3}, reference, padded);
  ASSERT_TRUE(same.ok());
  EXPECT_EQ(same.value().largest, 0);
  const auto other = compare_values(ours, {1, 7, 2, 4}, reference, padded);
  EXPECT_EQ(other.value().largest, 1);
  const auto beyond = compare_values(ours, {1, 7, 2, 3}, reference, {1, 9, 0, 0, 2, 3, 0, 6});
  EXPECT_EQ(beyond.value().largest, 6);
  const Checkpoint plain{"ffn", "MUL_MAT", {2, 2, 1, 1}};
  EXPECT_FALSE(compare_values(plain, {1, 7, 2, 3}, {"ffn", "MUL_MAT", {4, 2, 1, 1}}, padded).ok());
}

// Stand-ins for llama.cpp's programs: scripts that print and write what a test has prepared, in the
// formats of llama.cpp (tools/perplexity, tools/completion, tools/llama-bench).
class LlamaCppPrograms : public testing::Test {
 protected:
  static constexpr int kContext = 32, kChunks = 2;

  void SetUp() override {
    base_ = fs::temp_directory_path() / ("sluice-llama-" + std::to_string(getpid()));
    fs::create_directories(base_ / "bin");
    model_ = (base_ / "tiny.gguf").string();
    ASSERT_EQ(call(test::program_path("sluice-make-model") + " -q " + model_).first, 0);
    std::ofstream(base_ / "text")
        << "Water came down from the hills, and the miller opened both of "
           "the gates so that the meadows would not be flooded again. In "
           "summer he closed one of them, for the stream was thin then.";
    script("llama-perplexity",
           "echo \"$@\" > $D/arguments\nwhile [ $# -gt 0 ]; do\n"
           "  [ \"$1\" = --save-all-logits ] && cp $D/logits \"$2\"\n  shift\ndone\n");
    script("llama-completion", "cat $D/completion\nprintf '\\n\\n'\n");
    script("llama-bench", "cat $D/bench\n");
    std::ofstream(base_ / "bench") << R"([
  {"n_prompt": 128, "n_gen": 0, "avg_ts": 1234.5, "samples_ts": [1]},
  {"n_prompt": 0, "n_gen": 32, "avg_ts": 67.25, "samples_ts": [1]}
])";
    // One token: more of this model's tokens are no text.
    std::ofstream(base_ / "completion")
        << nlohmann::json::parse(call(test::program_path("sluice") + " run --raw " + model_ +
                                      " -p 'Once upon' -n 1 --temp 0 --json")
                                     .second)["text"]
               .get<std::string>();
    save_logits(0);
  }
  void TearDown() override { fs::remove_all(base_); }

  void script(const char* name, const std::string& text) {
    const fs::path path = base_ / "bin" / name;
    std::ofstream(path) << "#!/bin/sh\nD=" << base_.string() << '\n' << text;
    fs::permissions(path, fs::perms::owner_all);
  }
  static std::pair<int, std::string> call(const std::string& command) {
    FILE* pipe = popen(command.c_str(), "r");
    std::string text;
    std::array<char, 4096> buffer;
    for (size_t n = 0; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
      text.append(buffer.data(), n);
    }
    const int status = pclose(pipe);
    return {WEXITSTATUS(status), text};
  }
  std::pair<int, std::string> compare(const std::string& more) {
    return call(test::program_path("sluice") + " compare " + model_ + " --llama-cpp " +
                (base_ / "bin").string() + " -f " + (base_ / "text").string() + " -c " +
                std::to_string(kContext) + " --chunks " + std::to_string(kChunks) +
                " -t 1 -p 'Once upon' " + more + " 2>&1");
  }

  // Writes this model's own log-probabilities as llama-perplexity does. The logit of token 7 is
  // raised by `shift`.
  void save_logits(float shift) {
    auto ids = nlohmann::json::parse(call(test::program_path("sluice") + " tokenize " + model_ +
                                          " -f " + (base_ / "text").string())
                                         .second)
                   .get<std::vector<int32_t>>();
    ASSERT_GE(ids.size(), size_t{kContext} * kChunks);
    ids.resize(size_t{kContext} * kChunks);
    std::ofstream out(base_ / "logits", std::ios::binary);
    const auto put = [&out](const auto& value) {
      out.write(reinterpret_cast<const char*>(&value), sizeof value);
    };
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      std::string list = std::to_string(ids[0]);  // BOS replaces the first token
      for (int i = 1; i < kContext; ++i) list += ',' + std::to_string(ids[chunk * kContext + i]);
      const std::string path = (base_ / "rows").string();
      ASSERT_EQ(call(test::program_path("sluice") + " logits " + model_ + " -t 1 --tokens " + list +
                     " --out " + path)
                    .first,
                0);
      const auto n_vocab = static_cast<int32_t>(fs::file_size(path) / sizeof(float) / kContext);
      if (chunk == 0) {
        out << "_logits_";
        put(int32_t{kContext});
        put(n_vocab);
        put(int32_t{kChunks});
        for (const int32_t id : ids) put(id);
      }
      std::ifstream in(path, std::ios::binary);
      std::vector<float> row(static_cast<size_t>(n_vocab));
      for (int i = 0; i < kContext - 1; ++i) {
        in.read(reinterpret_cast<char*>(row.data()),
                static_cast<std::streamsize>(row.size() * sizeof(float)));
        if (i < kContext / 2) continue;
        row[7] += shift;
        put_row(row, put);
      }
    }
  }
  static void put_row(const std::vector<float>& row, const auto& put) {
    const float top = *std::max_element(row.begin(), row.end());
    const float least = std::max(*std::min_element(row.begin(), row.end()), top - 16);
    double sum = 0;
    for (const float x : row) sum += std::exp(x - top);
    const float step = (top - least) / 65535;
    put(step);
    put(static_cast<float>(least - top - std::log(sum)));
    for (const float x : row) {
      put(static_cast<uint16_t>(x > least ? std::lround((x - least) / step) : 0));
    }
    if (row.size() % 2 != 0) put(uint16_t{0});
  }

  fs::path base_;
  std::string model_;
};

TEST_F(LlamaCppPrograms, TheSameResultsAgree) {
  const auto [status, text] = compare("-n 1 --json");
  ASSERT_EQ(status, 0) << text;
  const nlohmann::json found = nlohmann::json::parse(text);
  EXPECT_TRUE(found["agrees"]);
  EXPECT_EQ(found["greedy"][0]["equalTokens"], 1);
  EXPECT_EQ(found["logits"]["positions"], kChunks * (kContext - 1 - kContext / 2));
  EXPECT_LT(found["logits"]["meanKl"], 1e-6);  // the rounding to 16 bits
  EXPECT_GT(found["logits"]["rounding"], 0);
  EXPECT_NEAR(
      found["perplexity"]["ours"].get<double>() / found["perplexity"]["other"].get<double>(), 1,
      1e-3);
  EXPECT_EQ(found["speed"]["other"]["prefillTokensPerSecond"], 1234.5);
  EXPECT_EQ(found["speed"]["other"]["decodeTokensPerSecond"], 67.25);
  std::ifstream arguments(base_ / "arguments");
  std::string line;
  std::getline(arguments, line);
  EXPECT_TRUE(line.starts_with("-m " + model_ + " -t 1 -ngl 0 -f ")) << line;
  EXPECT_NE(line.find(" -c 32 -b 32 --chunks 2 "), std::string::npos) << line;
}

TEST_F(LlamaCppPrograms, OtherResultsDisagreeWithStatus1) {
  save_logits(6);
  const auto [status, text] = compare("");
  EXPECT_EQ(status, 1) << text;
  EXPECT_NE(text.find("they disagree: the mean KL divergence is "), std::string::npos) << text;
  EXPECT_EQ(compare("--max-kl 100 --max-perplexity-change 1000").first, 0);
}

TEST_F(LlamaCppPrograms, GreedyTextMayPartWhereTwoTokensAreClose) {
  std::ofstream(base_ / "completion") << "something else";
  EXPECT_EQ(compare("--max-gap 1000").first, 0);
  const auto [status, text] = compare("--max-gap 0");
  EXPECT_EQ(status, 1);
  EXPECT_NE(text.find("they disagree: greedy token 1 after \"Once upon\" differs"),
            std::string::npos)
      << text;
}

TEST_F(LlamaCppPrograms, GreedyTextThatIsCutOffIsAskedForAgain) {
  script("llama-completion",
         "if [ -f $D/again ]; then cat $D/completion; printf '\\n\\n'; fi\ntouch $D/again\n");
  const auto [status, text] = compare("-n 1 --max-gap 0");
  EXPECT_EQ(status, 0) << text;
}

TEST_F(LlamaCppPrograms, AMissingProgramIsNamed) {
  fs::remove(base_ / "bin" / "llama-bench");
  auto [status, text] = compare("");
  EXPECT_EQ(status, 0) << text;
  EXPECT_NE(text.find("not compared: speed: there is no llama-bench"), std::string::npos) << text;
  script("llama-bench", "kill -SEGV $$\n");
  std::tie(status, text) = compare("");
  EXPECT_EQ(status, 0) << text;
  EXPECT_NE(text.find("not compared: speed: llama-bench ended with signal 11"), std::string::npos)
      << text;
  fs::remove(base_ / "bin" / "llama-perplexity");
  std::tie(status, text) = compare("");
  EXPECT_EQ(status, 2);
  EXPECT_NE(text.find("there is no llama-perplexity in "), std::string::npos) << text;
}

TEST_F(LlamaCppPrograms, AProgramThatFailsIsNamed) {
  script("llama-perplexity", "echo 'error: invalid argument: --save-all-logits' >&2\nexit 1\n");
  auto [status, text] = compare("");
  EXPECT_EQ(status, 2);
  EXPECT_NE(text.find("its llama-perplexity does not know --save-all-logits"), std::string::npos)
      << text;
  script("llama-perplexity",
         "echo one >&2\necho 'main: error: unable to load model' >&2\nexit 3\n");
  std::tie(status, text) = compare("");
  EXPECT_EQ(status, 2);
  EXPECT_NE(text.find("llama-perplexity failed with status 3: main: error: unable to load model"),
            std::string::npos)
      << text;
}

// Its text is so unlikely for this model that a limit of log-probabilities would show.
TEST_F(LlamaCppPrograms, AModelAgreesWithItself) {
  const std::string model = test::source_dir() + "/examples/models/sluice-tales-F16.gguf";
  const auto [status, text] = call(test::program_path("sluice") + " compare " + model + " " +
                                   model + " --ctx 32 --chunks 2 -n 1 --json");
  ASSERT_EQ(status, 0) << text;
  const nlohmann::json found = nlohmann::json::parse(text)["perplexity"];
  EXPECT_NEAR(found["ours"].get<double>() / found["other"].get<double>(), 1, 1e-6);
}

TEST_F(LlamaCppPrograms, AnotherModelComparesWithoutThem) {
  const std::string itself = test::program_path("sluice") + " compare " + model_ + ' ' + model_;
  const auto [status, text] = call(itself + " -c 32 --json 2>&1");
  ASSERT_EQ(status, 0) << text;
  EXPECT_EQ(nlohmann::json::parse(text)["logits"]["meanKl"], 0);
  const auto [layers, table] = call(itself + " --layers 2>&1");
  EXPECT_EQ(layers, 0) << table;
  EXPECT_NE(table.find(" checkpoints agree"), std::string::npos) << table;
}

}  // namespace
}  // namespace sluice::measure
