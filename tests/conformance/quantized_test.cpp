// Quantization types compared with exact arithmetic on the same weights: only the rounding of
// activations causes an error, and no more than llama.cpp's on the same file.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <filesystem>

#include "../file_contents.h"
#include "fixtures_util.h"
#include "gguf/write.h"
#include "kernels/blocks.h"

namespace sluice::test {
namespace {

// The error of an f16 KV cache if nothing else is rounded. llama.cpp's own figure for F32 is 0,
// because it produced the reference logits.
constexpr double kFloor = 1e-6;

class Quantized : public testing::TestWithParam<const char*> {
 protected:
  static session::EngineOptions options_of(const Reference& r, int32_t logits_rows) {
    session::EngineOptions options;
    options.n_ctx = static_cast<int32_t>(r.prompt.size() + r.greedy.size());
    options.logits_rows = logits_rows;
    options.n_threads = 2;
    options.kernels = GetParam();
    return options;
  }
  static std::vector<float> logits_of(const Reference& r, const session::EngineOptions& options,
                                      size_t step) {
    Opened opened = open_model(r.path, options);
    return opened.session == nullptr ? std::vector<float>() : all_logits(opened, r.prompt, step);
  }
};

TEST_P(Quantized, ErrorIsAtMostLlamaCpps) {
  for (const char* name : {"quant", "quant-iq"}) {
    const std::string folder = fixture_folder(name);
    ASSERT_FALSE(folder.empty());
    const std::vector<Reference> all = read_manifest(folder);
    ASSERT_GE(all.size(), 3u);
    for (const Reference& r : all) {
      const auto rows = static_cast<int32_t>(r.prompt.size());
      const std::vector<float> ours = logits_of(r, options_of(r, rows), r.prompt.size());
      ASSERT_EQ(ours.size(), r.logits.size());
      const double error = nmse(ours.data(), r.logits.data(), ours.size());
      EXPECT_LE(error, std::max(kFloor, r.llama_nmse)) << r.name << " on " << GetParam();
    }
  }
}

TEST_P(Quantized, GreedyTokensOfDecodedTypesMatchWhereTheLeadAllows) {
  for (const Reference& r : read_manifest(fixture_folder("quant-iq"))) {
    Opened opened = open_model(r.path, options_of(r, 1));
    ASSERT_NE(opened.session, nullptr);
    std::vector<float> lead;
    const std::vector<int32_t> ours = greedy(opened, r.prompt, r.greedy.size(), &lead);
    ASSERT_EQ(ours.size(), r.greedy.size());
    const auto [mine, theirs] = std::mismatch(ours.begin(), ours.end(), r.greedy.begin());
    if (mine == ours.end()) continue;
    double size = 0;
    for (const float x : r.logits) size += static_cast<double>(x) * x;
    const double rms = std::sqrt(size / static_cast<double>(r.logits.size()));
    EXPECT_LT(lead[static_cast<size_t>(mine - ours.begin())], 4 * std::sqrt(r.llama_nmse) * rms)
        << r.name << ": " << *mine << ", not " << *theirs;
  }
}

TEST_P(Quantized, BudgetAndPassLengthOfDecodedTypesChangeNoBit) {
  for (const Reference& r : read_manifest(fixture_folder("quant-iq"))) {
    session::EngineOptions options = options_of(r, static_cast<int32_t>(r.prompt.size()));
    const std::vector<float> resident = logits_of(r, options, r.prompt.size());
    ASSERT_FALSE(resident.empty());
    EXPECT_EQ(logits_of(r, options, 7), resident) << r.name;
    options.logits_rows = 1;
    options.memory_budget = smallest_budget(r.path, options);
    EXPECT_EQ(logits_of(r, options, 1), resident) << r.name;
  }
}

// Copies an NVFP4 model with all scales of its layers' matrices doubled, and with tensors
// "....scale" of a half. "....input_scale" is for 4-bit activations, and changes nothing here.
std::string with_tensor_scales(const std::string& path) {
  const std::string bytes = sluice::test::file_contents(path);
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  gguf::Header header;
  EXPECT_TRUE(gguf::parse_header({data, bytes.size()}, bytes.size(), &header)->done);
  const std::vector<gguf::Tensor> from = header.tensors;
  std::deque<std::string> names, contents;
  for (const gguf::Tensor& t : from) {
    std::string& content = contents.emplace_back(bytes.substr(t.offset, t.bytes));
    if (t.type != gguf::TensorType::kNVFP4 || !t.name.starts_with("blk.")) continue;
    for (size_t at = 0; at < content.size(); at += sizeof(kernels::BlockNVFP4)) {
      for (size_t i = at; i < at + 4; ++i) {
        const auto e = static_cast<uint8_t>(content[i]);
        content[i] = static_cast<char>(e < 8 ? 2 * e : e + 8);  // subnormal numbers, or normal ones
      }
    }
  }
  for (const gguf::Tensor& t : from) {
    if (t.type != gguf::TensorType::kNVFP4 || !t.name.starts_with("blk.")) continue;
    const std::string_view stem = t.name.substr(0, t.name.size() - std::strlen("weight"));
    for (const auto& [suffix, value] : {std::pair("scale", 0.5f), {"input_scale", 7.0f}}) {
      gguf::Tensor scale;
      scale.name = names.emplace_back(std::string(stem) + suffix);
      scale.n_dims = 1;
      scale.bytes = sizeof value;
      header.tensors.push_back(scale);
      contents.emplace_back(reinterpret_cast<const char*>(&value), sizeof value);
    }
  }
  EXPECT_TRUE(gguf::index_tensors(&header).ok());
  std::string out = gguf::place_and_write(&header);
  for (size_t i = 0; i < contents.size(); ++i) {
    out.resize(header.tensors[i].offset);
    out += contents[i];
  }
  out.resize((out.size() + 31) / 32 * 32);
  const std::string name = "sluice-scales-" + std::to_string(getpid()) + ".gguf";
  const std::string to = (std::filesystem::temp_directory_path() / name).string();
  std::ofstream(to, std::ios::binary) << out;
  return to;
}

TEST(Nvfp4, ATensorMayHaveAScale) {
  const std::string folder = fixture_folder("quant-iq");
  const std::vector<std::string> only = {"NVFP4"};
  const std::vector<Reference> plain = read_manifest(folder, &only);
  ASSERT_EQ(plain.size(), 1u);
  const std::string path = with_tensor_scales(plain[0].path);
  session::EngineOptions options;
  options.n_ctx = options.logits_rows = static_cast<int32_t>(plain[0].prompt.size());
  Opened scaled = open_model(path, options), same = open_model(plain[0].path, options);
  ASSERT_TRUE(scaled.session != nullptr && same.session != nullptr);
  EXPECT_EQ(all_logits(scaled, plain[0].prompt, plain[0].prompt.size()),
            all_logits(same, plain[0].prompt, plain[0].prompt.size()));
  std::filesystem::remove(path);
}

INSTANTIATE_TEST_SUITE_P(Kernels, Quantized, testing::ValuesIn(available_kernels()),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace sluice::test
