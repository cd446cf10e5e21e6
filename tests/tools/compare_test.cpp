// sluice-compare must find the first checkpoint that diverges. It must fail on what it cannot
// compare: missing files, wrong sizes, NaN.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>

#include "../paths.h"
#include "tools/checkpoints.h"

namespace sluice::tools {
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
    const std::string command = sluice::test::program_path("sluice-compare") + " " +
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

}  // namespace
}  // namespace sluice::tools
