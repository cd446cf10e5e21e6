// llama-perplexity's log-probabilities: values as llama.cpp reads them, and files that are damaged.
#include "measure/saved_logits.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>

namespace sluice::test {
namespace {

using measure::SavedLogits;

// One chunk of 6 tokens over 3 tokens' vocabulary: rows at positions 3 and 4.
std::string file_of(float step) {
  std::string out = "_logits_";
  const auto put = [&out](const auto& value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  for (const int32_t n : {6, 3, 1}) put(n);
  for (const int32_t token : {0, 1, 2, 0, 1, 2}) put(token);
  for (int row = 0; row < 2; ++row) {
    put(step);
    put(-4.0f);
    for (const uint16_t value : {uint16_t{0}, uint16_t{1000}, uint16_t{65535}, uint16_t{0}}) {
      put(value);
    }
  }
  return out;
}

class SavedLogitsFile : public testing::Test {
 protected:
  void TearDown() override { std::remove(path_.c_str()); }
  Result<SavedLogits> open(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary) << bytes;
    return SavedLogits::open(path_);
  }
  std::string path_ = testing::TempDir() + "saved-logits-" + std::to_string(getpid());
};

TEST_F(SavedLogitsFile, RowsAreLeastPlusSteps) {
  Result<SavedLogits> saved = open(file_of(0x1p-14f));
  ASSERT_TRUE(saved.ok()) << saved.status().message();
  EXPECT_EQ(saved->tokens(), (std::vector<int32_t>{0, 1, 2, 0, 1, 2}));
  std::vector<float> row;
  ASSERT_TRUE(saved->next_row(&row).ok());
  EXPECT_EQ(row, (std::vector<float>{-4, -4 + 1000 * 0x1p-14f, -4 + 65535 * 0x1p-14f}));
  EXPECT_EQ(saved->rounding(), 0x1p-15);
  ASSERT_TRUE(saved->next_row(&row).ok());
  EXPECT_EQ(saved->next_row(&row).code(), Code::kIo);
}

TEST_F(SavedLogitsFile, WhatWasCutOffIsAbsent) {
  Result<SavedLogits> saved = open(file_of(16.0f / 65535));
  ASSERT_TRUE(saved.ok());
  std::vector<float> row;
  ASSERT_TRUE(saved->next_row(&row).ok());
  EXPECT_EQ(row[0], SavedLogits::kAbsent);
  EXPECT_NEAR(row[2], 12, 1e-4);
}

TEST_F(SavedLogitsFile, EveryOtherLengthIsAnError) {
  const std::string whole = file_of(1);
  for (size_t n = 0; n < whole.size(); ++n) {
    const auto saved = open(whole.substr(0, n));
    ASSERT_FALSE(saved.ok()) << n;
    EXPECT_EQ(saved.status().code(), Code::kBadHeader) << n;
  }
  EXPECT_FALSE(open(whole + '\0').ok());
}

TEST_F(SavedLogitsFile, SizesAndTokensAreChecked) {
  for (const size_t at : {size_t{0}, size_t{8}, size_t{12}, size_t{16}, size_t{24}}) {
    std::string bytes = file_of(1);
    bytes[at + (at == 0 ? 0 : 3)] = '\x7f';
    EXPECT_FALSE(open(bytes).ok()) << at;
  }
  Result<SavedLogits> saved = open(file_of(INFINITY));
  ASSERT_TRUE(saved.ok());
  std::vector<float> row;
  EXPECT_EQ(saved->next_row(&row).code(), Code::kBadHeader);
}

}  // namespace
}  // namespace sluice::test
