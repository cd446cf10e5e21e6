// What each KV cache type costs the sample model on its held-out text: the error of the logits, the
// perplexity, and how many greedy tokens change. The same with outliers in the keys: four channels
// of each head are sixteen times larger, and the queries as much smaller, so nothing changes in
// f16. Prints the table of tests/bench/README.md. SLUICE_KV_TOKENS sets the number of tokens
// (default 512).
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "../file_contents.h"
#include "../paths.h"
#include "../sanitized.h"
#include "fixtures_util.h"

namespace sluice::test {
namespace {

constexpr size_t kWindow = 512, kStep = 128;
constexpr uint64_t kHead = 32;
const std::string kFolder = source_dir() + "/examples/models/";

std::string bytes_of(const std::string& path) {
  return sluice::test::file_contents(path);
}

// Channels 2, 3, 8 and 9 of each head: pairs of the rotary embedding.
bool stands_out(uint64_t row) {
  const uint64_t channel = row % kHead;
  return channel == 2 || channel == 3 || channel == 8 || channel == 9;
}

// The factors are powers of two, so products of queries and keys do not change.
std::string with_outliers(const std::string& path) {
  std::string bytes = bytes_of(path);
  const auto header = native::read_header(path, {});
  EXPECT_TRUE(header.ok());
  size_t changed = 0;
  for (const gguf::Tensor& t : header->header.tensors) {
    const bool keys = t.name.ends_with("attn_k.weight");
    if (!keys && !t.name.ends_with("attn_q.weight")) continue;
    const size_t cols = static_cast<size_t>(t.cols());
    EXPECT_EQ(t.row_bytes(), 2 * cols) << "f16";
    std::vector<float> wide(cols);
    for (uint64_t row = 0; row < t.rows(); ++row) {
      if (!stands_out(row)) continue;
      void* const at = &bytes[t.offset + row * t.row_bytes()];
      kernels::best().f16_to_f32(static_cast<kernels::f16*>(at), t.cols(), wide.data());
      for (float& x : wide) x *= keys ? 16.0f : 1 / 16.0f;
      kernels::best().f32_to_f16(wide.data(), t.cols(), static_cast<kernels::f16*>(at));
      ++changed;
    }
  }
  EXPECT_GT(changed, 0u);
  const std::string name = "sluice-outliers-" + std::to_string(getpid()) + ".gguf";
  std::string out = (std::filesystem::temp_directory_path() / name).string();
  std::ofstream(out, std::ios::binary) << bytes;
  return out;
}

struct Told {
  double perplexity = 0;
  std::vector<float> logits;
  std::vector<size_t> next;  // the most probable next token at each position
};

size_t n_tokens() {
  const char* const wanted = std::getenv("SLUICE_KV_TOKENS");
  return wanted != nullptr ? std::strtoul(wanted, nullptr, 10) : kSanitized ? 256 : kWindow;
}

// Chunks of the text, each read from its beginning.
Told tell(const std::string& path, const kv::KvTypes& types) {
  session::EngineOptions options;
  options.n_ctx = kWindow;
  options.n_threads = 2;
  options.logits_rows = kStep;
  options.kv = types;
  Opened opened = open_model(path, options);
  Told told;
  if (opened.session == nullptr) return told;
  std::vector<int32_t> tokens =
      opened.model->engine().tokenizer().encode(bytes_of(kFolder + "heldout.txt"), {});
  tokens.resize(std::min(tokens.size(), n_tokens()));
  double nats = 0;
  size_t scored = 0;
  for (size_t at = 0; at < tokens.size(); at += kWindow) {
    const auto from = tokens.begin() + static_cast<ptrdiff_t>(at);
    const std::vector<int32_t> window(
        from, from + static_cast<ptrdiff_t>(std::min(kWindow, tokens.size() - at)));
    opened.session->clear();
    const std::vector<float> logits = all_logits(opened, window, kStep);
    const size_t n_vocab = logits.size() / window.size();
    for (size_t t = 0; t < window.size(); ++t) {
      const float* const row = &logits[t * n_vocab];
      const float* const top = std::max_element(row, row + n_vocab);
      told.next.push_back(static_cast<size_t>(top - row));
      if (t + 1 == window.size()) continue;
      double sum = 0;
      for (size_t i = 0; i < n_vocab; ++i) sum += std::exp(double{row[i]} - double{*top});
      nats += std::log(sum) + double{*top} - double{row[window[t + 1]]};
      ++scored;
    }
    told.logits.insert(told.logits.end(), logits.begin(), logits.end());
  }
  told.perplexity = std::exp(nats / static_cast<double>(scored));
  return told;
}

// Maximum increase of perplexity over f16, and minimum share of unchanged next tokens.
struct Bound {
  const char* type;
  double perplexity, unchanged;
};

void measure(const char* name, const std::string& path, const Told& f16) {
  for (const Bound& b : {Bound{"f16", 1.0005, 0.995},
                         {"q8_0", 1.001, 0.99},
                         {"q4_0", 1.01, 0.97},
                         {"q2", 1.05, 0.9}}) {
    const kv::KvTypes types = *kv::parse_kv_types(b.type);
    const Told ours = tell(path, types);
    ASSERT_EQ(ours.next.size(), f16.next.size());
    size_t same = 0;
    for (size_t i = 0; i < ours.next.size(); ++i) same += ours.next[i] == f16.next[i] ? 1 : 0;
    const double share = static_cast<double>(same) / static_cast<double>(ours.next.size());
    const double error = nmse(ours.logits.data(), f16.logits.data(), f16.logits.size());
    std::printf(
        "%-8s %-5s %6lld bytes a position, NMSE %.1e, perplexity %.4f (%+.2f %%), %.1f %% of "
        "%zu tokens unchanged\n",
        name, b.type, static_cast<long long>(28 * 8 * 2 * kernels::kv_row_bytes(types.k, 128)),
        error, ours.perplexity, 100 * (ours.perplexity / f16.perplexity - 1), 100 * share,
        ours.next.size());
    EXPECT_LE(ours.perplexity, b.perplexity * f16.perplexity) << name << " " << b.type;
    EXPECT_GE(share, b.unchanged) << name << " " << b.type;
  }
}

TEST(KvQualityTest, TypesStayWithinTheirBounds) {
  const std::string plain = kFolder + "sluice-tales-F16.gguf";
  const std::string outliers = with_outliers(plain);
  const Told f16 = tell(plain, {});
  ASSERT_FALSE(f16.next.empty());
  measure("plain", plain, f16);
  measure("outliers", outliers, f16);
  std::remove(outliers.c_str());
}

}  // namespace
}  // namespace sluice::test
