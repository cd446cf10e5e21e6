// What each type of keys and values costs the sample model: the perplexity of its held-out text,
// and how many of 2,048 tokens that it would say next are others. The same with outliers made into
// its keys: channels that are sixteen times larger, which queries that are as much smaller undo, so
// that in f16 nothing changes, and in four bits everything would that shared their scale.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

#include "../sanitized.h"
#include "fixtures_util.h"

namespace sluice::test {
namespace {

constexpr size_t kWindow = 512, kWindows = kSanitized ? 1 : 4, kStep = 128;
constexpr const char* kFolder = SLUICE_SOURCE_DIR "/examples/models/";

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Channels 2, 3, 8 and 9 of each head, which RoPE turns in pairs: keys by 16, queries by 1/16.
std::string with_outliers(const std::string& path) {
  std::string bytes = text_of(path);
  auto header = native::read_header(path, {});
  EXPECT_TRUE(header.ok());
  constexpr uint64_t kHead = 32;
  for (const gguf::Tensor& t : header->header.tensors) {
    const bool keys = t.name.ends_with("attn_k.weight");
    if (!keys && !t.name.ends_with("attn_q.weight")) continue;
    EXPECT_EQ(t.row_bytes(), 2 * t.cols()) << "f16";
    for (uint64_t row = 0; row < t.rows(); ++row) {
      const uint64_t c = row % kHead;
      if (c != 2 && c != 3 && c != 8 && c != 9) continue;
      for (uint64_t i = 0; i < t.cols(); ++i) {
        char* const at = &bytes[t.offset + row * t.row_bytes() + 2 * i];
        kernels::f16 half;
        std::memcpy(&half, at, sizeof half);
        const int exponent = half >> 10 & 31, moved = keys ? exponent + 4 : exponent - 4;
        half = static_cast<kernels::f16>((half & 0x83ff) | moved << 10);
        if (exponent == 0 || moved <= 0 || moved > 30) half = 0;
        std::memcpy(at, &half, sizeof half);
      }
    }
  }
  const std::string out = testing::TempDir() + "sluice-outliers.gguf";
  std::ofstream(out, std::ios::binary) << bytes;
  return out;
}

struct Told {
  double perplexity = 0;
  std::vector<size_t> next;  // the likeliest token after each
};

Told tell(const std::string& path, const std::string& type) {
  session::EngineOptions options;
  options.n_ctx = kWindow;
  options.n_threads = 2;
  options.logits_rows = kStep;
  options.kv = *kv::parse_kv_types(type);
  Opened opened = open_model(path, options);
  Told told;
  if (opened.session == nullptr) return told;
  const std::vector<int32_t> tokens =
      opened.model->engine().tokenizer().encode(text_of(std::string(kFolder) + "heldout.txt"), {});
  EXPECT_GT(tokens.size(), kWindow * kWindows);
  double nats = 0;
  size_t scored = 0;
  for (size_t w = 0; w < kWindows; ++w) {
    const auto from = tokens.begin() + static_cast<ptrdiff_t>(w * kWindow);
    const std::vector<int32_t> window(from, from + static_cast<ptrdiff_t>(kWindow));
    opened.session->clear();
    const std::vector<float> logits = all_logits(opened, window, kStep);
    const size_t n_vocab = logits.size() / kWindow;
    for (size_t t = 0; t < kWindow; ++t) {
      const auto row = logits.begin() + static_cast<ptrdiff_t>(t * n_vocab);
      const auto top = std::max_element(row, row + static_cast<ptrdiff_t>(n_vocab));
      told.next.push_back(static_cast<size_t>(top - row));
      if (t + 1 == kWindow) continue;
      double sum = 0;
      for (size_t i = 0; i < n_vocab; ++i) {
        sum += std::exp(static_cast<double>(row[static_cast<ptrdiff_t>(i)] - *top));
      }
      nats += std::log(sum) + static_cast<double>(*top - row[window[t + 1]]);
      ++scored;
    }
  }
  told.perplexity = std::exp(nats / static_cast<double>(scored));
  return told;
}

TEST(KvQualityTest, TypesCostWhatIsSaidOfThem) {
  const std::string plain = std::string(kFolder) + "sluice-tales-F16.gguf";
  const std::string outliers = with_outliers(plain);
  const Told f16 = tell(plain, "f16");
  struct Bound {
    const char* type;
    double perplexity, unchanged;
  };
  for (const std::string& path : {plain, outliers}) {
    for (const Bound& b : {Bound{"f16", 1.0005, 0.998},
                           {"q8_0", 1.001, 0.995},
                           {"q4_0", 1.01, 0.98},
                           {"q2", 1.2, 0.9}}) {
      if (kSanitized && std::strcmp(b.type, "q4_0") != 0) continue;
      const Told ours = tell(path, b.type);
      size_t same = 0;
      for (size_t i = 0; i < ours.next.size(); ++i) same += ours.next[i] == f16.next[i] ? 1 : 0;
      const double share = static_cast<double>(same) / static_cast<double>(ours.next.size());
      std::printf("%-8s %-5s perplexity %.4f (%+.3f %%), %.2f %% of %zu tokens unchanged\n",
                  path == plain ? "plain" : "outliers", b.type, ours.perplexity,
                  100 * (ours.perplexity / f16.perplexity - 1), 100 * share, ours.next.size());
      EXPECT_LE(ours.perplexity, b.perplexity * f16.perplexity) << b.type;
      EXPECT_GE(share, b.unchanged) << b.type;
    }
  }
  std::remove(outliers.c_str());
}

}  // namespace
}  // namespace sluice::test
