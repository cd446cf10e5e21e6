// Quantization types compared with exact arithmetic on the same weights: only the rounding of
// activations causes an error, and no more than llama.cpp's on the same file.
#include <gtest/gtest.h>

#include <algorithm>

#include "fixtures_util.h"

namespace sluice::test {
namespace {

// The error of an f16 KV cache if nothing else is rounded. llama.cpp's own figure for F32 is 0,
// because it produced the reference logits.
constexpr double kFloor = 1e-6;

class Quantized : public testing::TestWithParam<const char*> {};

TEST_P(Quantized, ErrorIsAtMostLlamaCpps) {
  const std::string folder = fixture_folder("quant");
  ASSERT_FALSE(folder.empty());
  const std::vector<Reference> all = read_manifest(folder);
  ASSERT_GE(all.size(), 4u);
  for (const Reference& r : all) {
    session::EngineOptions options;
    options.n_ctx = options.logits_rows = static_cast<int32_t>(r.prompt.size());
    options.n_threads = 2;
    options.kernels = GetParam();
    Opened opened = open_model(r.path, options);
    ASSERT_NE(opened.session, nullptr);
    const std::vector<float> ours = all_logits(opened, r.prompt, r.prompt.size());
    ASSERT_EQ(ours.size(), r.logits.size());
    const double error = nmse(ours.data(), r.logits.data(), ours.size());
    EXPECT_LE(error, std::max(kFloor, r.llama_nmse)) << r.name << " on " << GetParam();
  }
}

std::vector<const char*> tables() {
  std::vector<const char*> names;
  for (const char* const* name = kernels::available(); *name != nullptr; ++name) {
    names.push_back(*name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Kernels, Quantized, testing::ValuesIn(tables()),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace sluice::test
