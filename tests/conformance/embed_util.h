// Computes embeddings of inputs given as tokens.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "embed/embedder.h"
#include "fixtures_util.h"

namespace sluice::test {

using Texts = std::vector<std::vector<int32_t>>;

// Results of all inputs, one after another.
inline std::vector<float> embed(Opened& opened, const Texts& texts, const embed::Options& options) {
  std::vector<int32_t> tokens, ends;
  for (const auto& text : texts) {
    tokens.insert(tokens.end(), text.begin(), text.end());
    ends.push_back(static_cast<int32_t>(tokens.size()));
  }
  std::vector<float> out;
  embed::Embedder embedder(*opened.session);
  Status status = embedder.begin(tokens, ends, options);
  EXPECT_TRUE(status.ok()) << status.message();
  int32_t results = 0;
  while (status.ok()) {
    const Result<bool> more = embedder.next();
    EXPECT_TRUE(more.ok()) << more.status().message();
    if (!more.ok() || !*more) break;
    status = opened.model->drive([&](int32_t ops) { return embedder.step(ops); });
    EXPECT_TRUE(status.ok()) << status.message();
    if (embedder.n_results() > 0) {
      EXPECT_EQ(embedder.first_result(), results);
    }
    results += embedder.n_results();
    for (int32_t i = 0; i < embedder.n_results(); ++i) {
      const auto row = embedder.result(i);
      EXPECT_EQ(row.size(), static_cast<size_t>(embedder.width()));
      out.insert(out.end(), row.begin(), row.end());
    }
  }
  EXPECT_EQ(embedder.texts_done(), static_cast<int32_t>(texts.size()));
  return out;
}

}  // namespace sluice::test
