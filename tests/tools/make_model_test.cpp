// Synthetic models, which every speed figure rests on: their blocks must decode to sane weights,
// their headers must parse, their vocabularies must be usable, and a seed must determine every
// byte.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <unordered_set>

#include "../paths.h"
#include "kernels/reference/reference.h"
#include "tests/make-model/gguf_writer.h"
#include "tests/make-model/made_vocabulary.h"
#include "tests/make-model/model_plan.h"
#include "tests/make-model/random_blocks.h"

namespace sluice::make_model {
namespace {

namespace fs = std::filesystem;

TEST(RandomBlocks, BlocksHaveTheSizesOfTheFormats) {
  for (const BlockType& block : block_types()) {
    const gguf::TypeInfo* info = gguf::type_info(block.type);
    ASSERT_NE(info, nullptr) << block.name;
    EXPECT_EQ(block.block_size, info->block_size) << block.name;
    EXPECT_EQ(block.block_bytes, info->block_bytes) << block.name;
  }
}

TEST(RandomBlocks, DecodeToTheRequestedMeanAndDeviation) {
  constexpr int64_t kWeights = 1 << 16;
  constexpr float kSigma = 0.022f;
  for (const BlockType& block : block_types()) {
    const uint64_t n_blocks = kWeights / block.block_size;
    std::vector<uint8_t> bytes(n_blocks * block.block_bytes);
    Random random(7, 0);
    block.fill(bytes.data(), n_blocks, kSigma, 0.0f, random);
    std::vector<float> values(kWeights);
    kernels::reference::dequantize(static_cast<kernels::Type>(block.type), bytes.data(), kWeights,
                                   values.data());
    double sum = 0, squares = 0;
    for (const float value : values) {
      ASSERT_TRUE(std::isfinite(value)) << block.name;
      sum += value;
      squares += static_cast<double>(value) * value;
    }
    const double mean = sum / kWeights;
    EXPECT_NEAR(mean, 0, 0.08 * kSigma) << block.name;
    // MXFP4's scales are powers of two: the nearest one is up to a factor of 1.42 away.
    const double tolerance = block.type == gguf::TensorType::kMXFP4 ? 0.45 : 0.1;
    EXPECT_NEAR(std::sqrt(squares / kWeights - mean * mean) / kSigma, 1.0, tolerance) << block.name;
  }
}

gguf::Header parsed(const std::string& bytes, uint64_t file_size) {
  gguf::Header header;
  const gguf::Bytes prefix(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  const auto progress = gguf::parse_header(prefix, file_size, &header);
  EXPECT_TRUE(progress.ok()) << (progress.ok() ? "" : progress.status().message());
  EXPECT_TRUE(progress.ok() && progress.value().done);
  return header;
}

TEST(ModelPlan, EveryShapeOfEveryTypeParses) {
  for (const Shape& shape : shapes()) {
    for (const FileType& type : file_types()) {
      GgufWriter writer;
      add_hyperparameters(&writer, shape, type);
      const auto tensors = plan_tensors(shape, type, false);
      for (const PlannedTensor& t : tensors) writer.add_tensor(t.name, t.type, t.ne, t.bytes);
      const std::string bytes = writer.header();
      const gguf::Header header = parsed(bytes, bytes.size() + writer.data_bytes());
      ASSERT_EQ(header.tensors.size(), tensors.size());
      EXPECT_EQ(header.data_offset, bytes.size());
      for (const PlannedTensor& t : tensors) {
        const gguf::Tensor* found = header.find_tensor(t.name);
        ASSERT_NE(found, nullptr) << t.name;
        EXPECT_EQ(found->bytes, t.bytes) << shape.name << " " << type.name << " " << t.name;
      }
    }
  }
}

// The counts that llama.cpp prints for the published TinyLlama-1.1B Q4_K_M.
TEST(ModelPlan, QuantizationMixEqualsLlamaQuantizes) {
  std::map<gguf::TensorType, int> counts;
  for (const PlannedTensor& tensor : plan_tensors(shapes()[0], file_types()[11], false)) {
    ++counts[tensor.type];
  }
  ASSERT_EQ(file_types()[11].name, "q4_k_m");
  EXPECT_EQ(counts[gguf::TensorType::kF32], 45);
  EXPECT_EQ(counts[gguf::TensorType::kQ4_K], 135);
  EXPECT_EQ(counts[gguf::TensorType::kQ6_K], 21);
}

// The count on the model card of Qwen3-30B-A3B: 30.5 billion, 29.9 without embeddings.
TEST(ModelPlan, AMixtureOfExpertsHasItsPublishedSize) {
  const auto moe = std::find_if(shapes().begin(), shapes().end(),
                                [](const Shape& s) { return s.name == "qwen3-30b-a3b"; });
  ASSERT_NE(moe, shapes().end());
  uint64_t all = 0, embeddings = 0;
  for (const PlannedTensor& tensor : plan_tensors(*moe, file_types()[0], false)) {
    all += tensor.n_weights;
    const bool table = tensor.name == "token_embd.weight" || tensor.name == "output.weight";
    if (table) embeddings += tensor.n_weights;
  }
  EXPECT_EQ((all + 50'000'000) / 100'000'000, 305u);
  EXPECT_EQ((all - embeddings + 50'000'000) / 100'000'000, 299u);
}

// As in the published gpt-oss-20b: experts in MXFP4, the other matrices in Q8_0.
TEST(ModelPlan, MxfpOfAMixtureIsOfItsExperts) {
  const auto find = [](const auto& all, std::string_view name) {
    return *std::find_if(all.begin(), all.end(), [&](const auto& x) { return x.name == name; });
  };
  const FileType type = find(file_types(), "mxfp4");
  for (const PlannedTensor& t : plan_tensors(find(shapes(), "gpt-oss-20b"), type, false)) {
    const bool expert = t.name.ends_with("_exps.weight");
    const bool small = t.name.ends_with(".bias") || t.ne.size() == 1 ||
                       t.name.find("gate_inp") != std::string::npos;
    EXPECT_EQ(t.type, expert  ? gguf::TensorType::kMXFP4
                      : small ? gguf::TensorType::kF32
                              : gguf::TensorType::kQ8_0)
        << t.name;
  }
  for (const PlannedTensor& t : plan_tensors(find(shapes(), "tiny"), type, false)) {
    if (t.ne.size() != 2 || t.name == "output.weight") continue;
    EXPECT_EQ(t.type, gguf::TensorType::kMXFP4) << t.name;
  }
}

// Qwen3-VL-2B has 2.13 billion weights, 407 million of them of its projector; SmolVLM2-500M 507 and
// 98 million, as on their model cards.
TEST(ModelPlan, ShapesWithVisionHaveTheirPublishedSizes) {
  const std::map<std::string, std::pair<uint64_t, uint64_t>> sizes = {{"qwen3-vl-2b", {2128, 407}},
                                                                      {"smolvlm2-500m", {507, 98}}};
  size_t found = 0;
  for (const Shape& shape : shapes()) {
    if (shape.vision == nullptr) continue;
    const auto size = sizes.find(shape.name);
    ASSERT_NE(size, sizes.end()) << shape.name;
    ++found;
    uint64_t text = 0, vision = 0;
    for (const PlannedTensor& t : plan_tensors(shape, file_types()[0], false)) text += t.n_weights;
    for (const PlannedTensor& t : plan_projector(shape, file_types()[1])) vision += t.n_weights;
    EXPECT_EQ((text + vision + 500'000) / 1'000'000, size->second.first) << shape.name;
    EXPECT_EQ((vision + 500'000) / 1'000'000, size->second.second) << shape.name;
  }
  EXPECT_EQ(found, sizes.size());
}

// Falcon-H1-0.5B and Qwen3.5-0.8B have as many weights as their names say.
TEST(ModelPlan, RecurrentShapesHaveTheirPublishedSizes) {
  const std::map<std::string, uint64_t> sizes = {{"falcon-h1-0.5b", 5}, {"qwen3.5-0.8b", 8}};
  size_t found = 0;
  for (const Shape& shape : shapes()) {
    const auto size = sizes.find(shape.name);
    if (size == sizes.end()) continue;
    ++found;
    uint64_t all = 0;
    for (const PlannedTensor& tensor : plan_tensors(shape, file_types()[0], false)) {
      all += tensor.n_weights;
    }
    EXPECT_EQ((all + 50'000'000) / 100'000'000, size->second) << shape.name << ": " << all;
  }
  EXPECT_EQ(found, sizes.size());
}

TEST(ModelPlan, Llama3FactorsRunFromOneToThirtyTwo) {
  const auto factors = llama3_rope_factors(shapes()[2]);
  ASSERT_EQ(factors.size(), 32u);
  EXPECT_EQ(factors.front(), 1.0f);
  EXPECT_NEAR(factors.back(), 32.0f, 1e-4f);
  for (size_t i = 1; i < factors.size(); ++i) EXPECT_GE(factors[i], factors[i - 1]);
}

std::vector<std::string> strings(const gguf::Header& header, const char* key) {
  std::vector<std::string> out;
  const gguf::Value* value = header.find(key);
  if (value == nullptr) return out;
  gguf::StringCursor cursor(*value);
  for (std::string_view text; cursor.next(&text);) out.emplace_back(text);
  return out;
}

TEST(SyntheticVocabulary, TokensAreDistinctAndMergesNameThem) {
  for (const auto kind : {VocabularyKind::kSentencePiece, VocabularyKind::kQwen,
                          VocabularyKind::kSmolVlm, VocabularyKind::kLlama3}) {
    for (const uint32_t size : {smallest_vocabulary(kind), 2000u}) {
      GgufWriter writer;
      add_vocabulary(&writer, kind, size, 3);
      const std::string bytes = writer.header();
      const gguf::Header header = parsed(bytes, bytes.size());
      const auto tokens = strings(header, "tokenizer.ggml.tokens");
      EXPECT_EQ(tokens.size(), size);
      const std::unordered_set<std::string> known(tokens.begin(), tokens.end());
      EXPECT_EQ(known.size(), tokens.size());
      EXPECT_EQ(header.find("tokenizer.ggml.token_type")->count, size);
      const auto merges = strings(header, "tokenizer.ggml.merges");
      for (const std::string& merge : merges) {
        const size_t space = merge.find(' ');
        EXPECT_TRUE(known.contains(merge.substr(0, space)) &&
                    known.contains(merge.substr(space + 1)) &&
                    known.contains(merge.substr(0, space) + merge.substr(space + 1)))
            << merge;
      }
      if (kind != VocabularyKind::kSentencePiece && size == 2000u) {
        EXPECT_GT(merges.size(), 1000u);
      }
    }
  }
}

class MakeModel : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("sluice-make-" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  int run(const std::string& arguments) {
    return std::system(
        (sluice::test::program_path("sluice-make-model") + " " + arguments + " > /dev/null 2>&1")
            .c_str());
  }
  std::string made(const char* name, const std::string& arguments) {
    const fs::path path = folder_ / name;
    EXPECT_EQ(run(path.string() + " " + arguments), 0);
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  fs::path folder_;
};

// So a shorter model can be the draft of a longer one.
TEST_F(MakeModel, ModelsOfOneSeedShareTheirCommonLayers) {
  const std::string dimensions = "-t q4_0 --embd 64 --heads 2 --heads-kv 2 --ff 64 --vocab 600";
  const std::string draft = made("draft", dimensions + " --layers 1");
  const std::string target = made("target", dimensions + " --layers 2 --faint-from 1 --faint 0.1");
  const gguf::Header small = parsed(draft, draft.size());
  const gguf::Header large = parsed(target, target.size());
  for (const gguf::Tensor& tensor : small.tensors) {
    const gguf::Tensor* other = large.find_tensor(tensor.name);
    ASSERT_NE(other, nullptr) << tensor.name;
    EXPECT_EQ(draft.substr(tensor.offset, tensor.bytes), target.substr(other->offset, tensor.bytes))
        << tensor.name;
  }
  const auto spread = [&](const char* name) {
    const gguf::Tensor* tensor = large.find_tensor(name);
    std::vector<float> values(tensor->ne[0] * tensor->ne[1]);
    kernels::reference::dequantize(kernels::Type::kQ4_0, target.data() + tensor->offset,
                                   static_cast<int64_t>(values.size()), values.data());
    double squares = 0;
    for (const float v : values) squares += double{v} * v;
    return std::sqrt(squares / static_cast<double>(values.size()));
  };
  EXPECT_NEAR(spread("blk.1.ffn_down.weight") / spread("blk.0.ffn_down.weight"), 0.1, 0.01);
  EXPECT_NEAR(spread("blk.1.ffn_up.weight") / spread("blk.0.ffn_up.weight"), 1, 0.1);
}

TEST_F(MakeModel, SeedDeterminesEveryByteAndThreadsDoNot) {
  const std::string dimensions = "-t f32 --layers 1 --embd 512 --ff 4096 --vocab 600 --seed ";
  const std::string one = made("one.gguf", dimensions + "5 --threads 1");
  EXPECT_GT(one.size(), size_t{3} * 512 * 4096 * 4);  // several chunks
  EXPECT_EQ(one, made("three.gguf", dimensions + "5 --threads 3"));
  const std::string other = made("other.gguf", dimensions + "6");
  EXPECT_EQ(one.size(), other.size());
  EXPECT_NE(one, other);
  const gguf::Header header = parsed(one, one.size());
  EXPECT_EQ(header.get_u64("llama.feed_forward_length"), 4096u);
  EXPECT_EQ(header.get_u64("llama.block_count"), 1u);
  // The last weights of the last tensor were written too.
  EXPECT_NE(one.substr(one.size() - 64), std::string(64, '\0'));
}

TEST_F(MakeModel, RejectsImpossibleShapes) {
  const std::string out = (folder_ / "x.gguf").string();
  EXPECT_NE(run(out + " --heads 7 --heads-kv 2"), 0);
  EXPECT_NE(run(out + " --vocab 100"), 0);
  EXPECT_NE(run(out + " --embd 10 --heads 10 --heads-kv 1"), 0);
  EXPECT_NE(run(out + " --experts 2 --experts-used 3"), 0);
  EXPECT_NE(run(out + " --type q9"), 0);
  EXPECT_NE(run(out + " --layers 100000"), 0);
  EXPECT_NE(run("/nonexistent/folder/x.gguf"), 0);
  EXPECT_FALSE(fs::exists(out));
}

}  // namespace
}  // namespace sluice::make_model
