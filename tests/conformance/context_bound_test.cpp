// GPT-2 has a learned position table. The automatic context ends with the table, a longer one is an
// error that names the limit, and the last row can be used.
#include <gtest/gtest.h>

#include "../paths.h"
#include "tests/conformance/fixtures_util.h"

namespace sluice::test {
namespace {

constexpr int32_t kRows = 512;

TEST(ContextBound, IsThePositionTable) {
  const std::string path = source_dir() + "/tests/data/arch/gpt2.gguf";
  session::EngineOptions options;
  options.n_ctx = kRows + 1;
  const auto longer = native::Model::open(path, {options, {}});
  ASSERT_FALSE(longer.ok());
  EXPECT_EQ(longer.status().code(), Code::kInvalidArgument);
  EXPECT_NE(longer.status().message().find("513"), std::string::npos);
  EXPECT_NE(longer.status().message().find("512"), std::string::npos);

  for (const int32_t n_ctx : {0, kRows}) {
    options.n_ctx = n_ctx;
    Opened opened = open_model(path, options);
    ASSERT_EQ(opened.model->engine().plan().context.n_ctx, kRows);
    std::vector<int32_t> tokens(kRows + 1, 7);
    EXPECT_EQ(opened.session->begin(tokens).code(), Code::kPromptTooLong);
    tokens.pop_back();
    ASSERT_TRUE(opened.session->begin(tokens).ok());
    ASSERT_TRUE(opened.model->run(*opened.session).ok());
    EXPECT_EQ(opened.session->begin({tokens.data(), 1}).code(), Code::kContextFull);
  }
}

TEST(ContextBound, IsNotLimitedByRotaryPositions) {
  const std::string path = source_dir() + "/tests/data/arch/llama-gqa.gguf";
  session::EngineOptions options;
  options.n_ctx = 6000;  // beyond its training context
  EXPECT_TRUE(native::Model::open(path, {options, {}}).ok());
}

}  // namespace
}  // namespace sluice::test
