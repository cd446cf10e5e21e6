// Conversion without a model: the type and the order of tensors, importance matrices, and small
// files converted from memory to memory.
#include "convert/convert.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "gguf/metadata_writer.h"
#include "gguf_builder.h"
#include "kernels/blocks.h"
#include "kernels/reference/reference.h"

namespace sluice::convert {
namespace {

using gguf::TensorType;

gguf::Tensor tensor(std::string_view name, std::array<uint64_t, 4> ne,
                    TensorType type = TensorType::kF16) {
  gguf::Tensor t;
  t.name = name;
  t.type = type;
  t.n_dims = ne[2] > 1 ? 3 : ne[1] > 1 ? 2 : 1;
  t.ne = ne;
  return t;
}

// A model of 16 layers with eight query heads per KV head.
struct Model {
  gguf::Header header;
  std::deque<std::string> names;

  explicit Model(uint32_t experts = 0, uint64_t cols = 256, bool tied = false) {
    gguf::MetadataWriter writer(&header);
    writer.string("general.architecture", "llama");
    writer.number("llama.block_count", 16u);
    writer.number("llama.attention.head_count", 8u);
    writer.number("llama.attention.head_count_kv", 1u);
    if (experts > 0) writer.number("llama.expert_count", experts);
    add("token_embd.weight", {cols, 1000, 1, 1});
    for (int layer = 0; layer < 16; ++layer) {
      const std::string blk = "blk." + std::to_string(layer) + ".";
      add(blk + "attn_norm.weight", {cols, 1, 1, 1});
      add(blk + "attn_q.weight", {cols, cols, 1, 1});
      add(blk + "attn_k.weight", {cols, cols, 1, 1});
      add(blk + "attn_v.weight", {cols, cols, 1, 1});
      add(blk + "attn_output.weight", {cols, cols, 1, 1});
      add(blk + "ffn_gate_inp.weight", {cols, 8, 1, 1});
      add(blk + "ffn_up.weight", {cols, cols, experts > 0 ? experts : 1, 1});
      add(blk + "ffn_down.weight", {cols, cols, experts > 0 ? experts : 1, 1});
    }
    if (!tied) add("output.weight", {cols, 1000, 1, 1});
    EXPECT_TRUE(gguf::index_tensors(&header).ok());
  }
  void add(std::string name, std::array<uint64_t, 4> ne) {
    names.push_back(std::move(name));
    header.tensors.push_back(tensor(names.back(), ne));
  }
  [[nodiscard]] Choice choice(std::string_view name, std::string_view recipe, bool pure = false,
                              bool imatrix = false) const {
    const std::vector<Choice> all = choose_types(header, **find_recipe(recipe), pure, imatrix);
    for (size_t i = 0; i < all.size(); ++i) {
      if (header.tensors[i].name == name) return all[i];
    }
    ADD_FAILURE() << name;
    return {};
  }
};

TEST(ConvertTypes, QuantizationMixesGiveSomeTensorsMoreBits) {
  const Model m;
  EXPECT_EQ(m.choice("blk.5.attn_q.weight", "q4_k_m").type, TensorType::kQ4_K);
  EXPECT_EQ(m.choice("output.weight", "q4_k_m").type, TensorType::kQ6_K);
  EXPECT_EQ(m.choice("token_embd.weight", "q4_k_m").type, TensorType::kQ4_K);
  // The first two and the last two of 16 layers, and every third one from the third on.
  for (int layer = 0; layer < 16; ++layer) {
    const bool more = layer < 2 || layer >= 14 || (layer - 2) % 3 == 2;
    const std::string blk = "blk." + std::to_string(layer) + ".";
    const TensorType wanted = more ? TensorType::kQ6_K : TensorType::kQ4_K;
    EXPECT_EQ(m.choice(blk + "attn_v.weight", "q4_k_m").type, wanted) << layer;
    EXPECT_EQ(m.choice(blk + "ffn_down.weight", "q4_k_m").type, wanted) << layer;
  }
  EXPECT_EQ(m.choice("blk.3.attn_v.weight", "Q4_K_S").type, TensorType::kQ5_K);
  EXPECT_EQ(m.choice("blk.4.attn_v.weight", "Q4_K_S").type, TensorType::kQ4_K);
  EXPECT_EQ(m.choice("blk.9.ffn_down.weight", "q3_k_l").type, TensorType::kQ5_K);
  EXPECT_EQ(m.choice("blk.9.attn_v.weight", "q2_k").type, TensorType::kQ4_K);
  EXPECT_EQ(m.choice("output.weight", "q8_0").type, TensorType::kQ8_0);
  EXPECT_EQ(m.choice("token_embd.weight", "tq2_0").type, TensorType::kQ4_K);
  EXPECT_EQ(m.choice("blk.0.ffn_down.weight", "q4_0").type, TensorType::kQ4_0);
  EXPECT_EQ(m.choice("blk.0.ffn_down.weight", "q4_0", false, true).type, TensorType::kQ4_1);
}

TEST(ConvertTypes, MixesOfOneToThreeBits) {
  using T = TensorType;
  struct Row {
    const char* recipe;
    T head, embedding, value, key, out, first_down, down, up;
  };
  // llama-quantize's types for a model with eight query heads per KV head; then QSF's own mixes.
  const Row rows[] = {
      {"iq1_s", T::kQ5_K, T::kQ2_K, T::kQ4_K, T::kIQ1_S, T::kIQ2_XXS, T::kQ2_K, T::kIQ1_S,
       T::kIQ1_S},
      {"iq1_m", T::kQ5_K, T::kQ2_K, T::kQ4_K, T::kIQ1_M, T::kIQ2_XXS, T::kQ2_K, T::kIQ1_M,
       T::kIQ1_M},
      {"iq2_xxs", T::kQ5_K, T::kQ2_K, T::kQ4_K, T::kIQ2_XXS, T::kIQ2_XXS, T::kQ2_K, T::kIQ2_XXS,
       T::kIQ2_XXS},
      {"iq2_xs", T::kQ5_K, T::kQ2_K, T::kQ4_K, T::kIQ2_XS, T::kIQ2_XS, T::kQ2_K, T::kIQ2_XS,
       T::kIQ2_XS},
      {"iq2_s", T::kQ5_K, T::kIQ3_S, T::kQ4_K, T::kIQ2_XS, T::kIQ3_S, T::kIQ3_S, T::kIQ2_XS,
       T::kIQ2_XS},
      {"iq2_m", T::kQ5_K, T::kIQ3_S, T::kQ4_K, T::kIQ2_S, T::kIQ3_S, T::kIQ3_S, T::kIQ2_S,
       T::kIQ2_S},
      {"iq3_xxs", T::kQ5_K, T::kIQ3_S, T::kQ4_K, T::kIQ2_S, T::kIQ3_S, T::kIQ3_XXS, T::kIQ3_XXS,
       T::kIQ3_XXS},
      {"iq3_xs", T::kQ6_K, T::kIQ3_S, T::kQ4_K, T::kIQ3_XXS, T::kIQ3_S, T::kIQ3_S, T::kIQ3_S,
       T::kIQ3_XXS},
      {"iq3_s", T::kQ6_K, T::kIQ3_S, T::kQ4_K, T::kIQ3_S, T::kIQ3_S, T::kIQ3_S, T::kIQ3_S,
       T::kIQ3_S},
      {"iq3_m", T::kQ6_K, T::kIQ3_S, T::kQ4_K, T::kIQ3_S, T::kQ4_K, T::kQ4_K, T::kIQ3_S, T::kIQ3_S},
      {"nvfp4", T::kQ6_K, T::kNVFP4, T::kNVFP4, T::kNVFP4, T::kNVFP4, T::kNVFP4, T::kNVFP4,
       T::kNVFP4},
      {"q2_0", T::kQ6_K, T::kQ4_K, T::kQ2_0, T::kQ2_0, T::kQ2_0, T::kQ2_0, T::kQ2_0, T::kQ2_0},
      {"qsf2_m", T::kQ6_K, T::kQSF4, T::kQSF4, T::kQSF2, T::kQSF2, T::kQSF3, T::kQSF3, T::kQSF2},
      {"qsf3_m", T::kQ6_K, T::kQSF4, T::kQSF4, T::kQSF3, T::kQSF3, T::kQSF4, T::kQSF4, T::kQSF3},
  };
  const Model m;
  for (const Row& row : rows) {
    const auto type = [&](const char* name) {
      return m.choice(name, row.recipe, false, true).type;
    };
    EXPECT_EQ(type("output.weight"), row.head) << row.recipe;
    EXPECT_EQ(type("token_embd.weight"), row.embedding) << row.recipe;
    EXPECT_EQ(type("blk.5.attn_v.weight"), row.value) << row.recipe;
    EXPECT_EQ(type("blk.5.attn_k.weight"), row.key) << row.recipe;
    EXPECT_EQ(type("blk.5.attn_q.weight"), row.key) << row.recipe;
    EXPECT_EQ(type("blk.5.attn_output.weight"), row.out) << row.recipe;
    EXPECT_EQ(type("blk.1.ffn_down.weight"), row.first_down) << row.recipe;
    EXPECT_EQ(type("blk.2.ffn_down.weight"), row.down) << row.recipe;
    EXPECT_EQ(type("blk.5.ffn_up.weight"), row.up) << row.recipe;
  }
  EXPECT_EQ(m.choice("blk.1.ffn_up.weight", "iq3_xs", false, true).type,
            T::kIQ3_S);  // outer layers
  EXPECT_EQ(m.choice("blk.14.ffn_up.weight", "iq3_xs", false, true).type, T::kIQ3_S);
  const Model mixture(8);
  EXPECT_EQ(mixture.choice("blk.5.attn_k.weight", "iq2_xs", false, true).type, T::kQ4_K);
  EXPECT_EQ(mixture.choice("blk.5.attn_output.weight", "iq1_s", false, true).type, T::kQ5_K);
  EXPECT_EQ(mixture.choice("blk.5.attn_output.weight", "iq3_s", false, true).type, T::kQ5_K);
  EXPECT_EQ(mixture.choice("blk.4.ffn_down.weight", "iq3_m", false, true).type, T::kQ4_K);
  EXPECT_EQ(mixture.choice("blk.5.ffn_down.weight", "iq3_m", false, true).type, T::kIQ3_S);
}

TEST(ConvertTypes, FewBitsNeedAnImportanceMatrix) {
  using T = TensorType;
  for (const T type : {T::kIQ1_S, T::kIQ1_M, T::kIQ2_XXS, T::kIQ2_XS, T::kIQ2_S, T::kIQ3_XXS}) {
    EXPECT_TRUE(needs_imatrix("blk.0.attn_q.weight", type, nullptr));
    EXPECT_FALSE(needs_imatrix("token_embd.weight", type, nullptr));
    EXPECT_FALSE(needs_imatrix("output.weight", type, nullptr));
  }
  EXPECT_FALSE(needs_imatrix("blk.0.attn_q.weight", T::kIQ3_S, nullptr));
  EXPECT_TRUE(needs_imatrix("blk.0.attn_q.weight", T::kQ2_K, *find_recipe("q2_k_s")));
  EXPECT_FALSE(needs_imatrix("blk.0.attn_q.weight", T::kQ2_K, *find_recipe("q2_k")));
}

TEST(ConvertTypes, VectorsAndRoutersAreNotQuantized) {
  const Model m(8);
  EXPECT_EQ(m.choice("blk.0.attn_norm.weight", "q2_k", true).type, TensorType::kF32);
  EXPECT_EQ(m.choice("blk.0.ffn_gate_inp.weight", "q2_k", true).type, TensorType::kF16);
  EXPECT_EQ(m.choice("blk.0.attn_norm.weight", "f16").type, TensorType::kF32);
  EXPECT_EQ(m.choice("blk.9.attn_v.weight", "q4_k_m").type, TensorType::kQ8_0);  // 8 experts
  EXPECT_EQ(m.choice("blk.9.ffn_down.weight", "mxfp4_moe").type, TensorType::kMXFP4);
  EXPECT_EQ(m.choice("blk.9.attn_q.weight", "mxfp4_moe").type, TensorType::kQ8_0);
}

TEST(ConvertTypes, PureGivesEveryMatrixOneType) {
  const Model m(0, 256, true);
  for (const char* name : {"token_embd.weight", "blk.0.attn_v.weight", "blk.15.ffn_down.weight"}) {
    EXPECT_EQ(m.choice(name, "q4_k_m", true).type, TensorType::kQ4_K);
  }
  EXPECT_EQ(m.choice("token_embd.weight", "q4_k_m").type, TensorType::kQ6_K);  // tied head
}

TEST(ConvertTypes, RowsThatAreNotWholeBlocksFallBack) {
  const Model by32(0, 96), odd(0, 40);
  const std::pair<const char*, TensorType> wanted[] = {
      {"q4_k_m", TensorType::kQ5_0},   {"q5_k_s", TensorType::kQ5_1},
      {"q6_k", TensorType::kQ8_0},     {"q2_k", TensorType::kQ4_0},
      {"iq4_xs", TensorType::kIQ4_NL}, {"iq2_xxs", TensorType::kIQ4_NL},
      {"nvfp4", TensorType::kMXFP4},   {"q1_0", TensorType::kQ4_0},
      {"q2_0", TensorType::kQ4_0}};
  for (const auto& [recipe, type] : wanted) {
    const Choice choice = by32.choice("blk.5.attn_q.weight", recipe);
    EXPECT_EQ(choice.type, type) << recipe;
    EXPECT_TRUE(choice.fallback);
    EXPECT_EQ(odd.choice("blk.5.attn_q.weight", recipe).type, TensorType::kF16) << recipe;
  }
  EXPECT_FALSE(by32.choice("blk.5.attn_q.weight", "q4_0").fallback);
}

TEST(ConvertTypes, UnknownTypeNamesAreErrorsWithTheList) {
  const auto none = find_recipe("q4_k_xl");
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.status().message().find("q4_k_m"), std::string::npos);
}

TEST(ConvertOrder, FollowsAForwardPass) {
  gguf::Header h;
  const std::vector<std::string> wanted = {"token_embd.weight",
                                           "blk.0.attn_norm.weight",
                                           "blk.0.attn_q.weight",
                                           "blk.0.attn_k.weight",
                                           "blk.0.attn_v.weight",
                                           "blk.0.attn_output.weight",
                                           "blk.0.ffn_norm.weight",
                                           "blk.0.ffn_gate.weight",
                                           "blk.0.ffn_up.weight",
                                           "blk.0.ffn_down.weight",
                                           "blk.2.attn_norm.weight",
                                           "blk.2.attn_q_norm.weight",
                                           "blk.10.attn_norm.weight",
                                           "dec.blk.0.attn_k.weight",
                                           "dec.output_norm.weight",
                                           "output_norm.weight",
                                           "output.weight"};
  std::vector<std::string> names = wanted;
  std::mt19937 random(3);
  std::shuffle(names.begin(), names.end(), random);
  for (const std::string& name : names) h.tensors.push_back(tensor(name, {32, 1, 1, 1}));
  std::vector<std::string> got;
  for (const uint32_t i : order_of_use(h)) got.push_back(names[i]);
  // Encoder and decoder layers have their own prefixes; no file has both these and plain names.
  EXPECT_EQ(std::count(got.begin(), got.end(), "dec.output_norm.weight"), 1);
  std::erase_if(got, [](const std::string& n) { return n.starts_with("dec."); });
  std::vector<std::string> plain = wanted;
  std::erase_if(plain, [](const std::string& n) { return n.starts_with("dec."); });
  EXPECT_EQ(got, plain);
}

// --- importance

std::string old_matrix(const std::string& name, int32_t calls, const std::vector<float>& values) {
  std::string out;
  const auto put = [&out](int32_t n) { out.append(reinterpret_cast<const char*>(&n), 4); };
  put(1);
  put(static_cast<int32_t>(name.size()));
  out += name;
  put(calls);
  put(static_cast<int32_t>(values.size()));
  out.append(reinterpret_cast<const char*>(values.data()), values.size() * 4);
  return out;
}
gguf::Bytes bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

TEST(ConvertImatrix, ReadsTheOlderFormat) {
  const std::string file = old_matrix("blk.0.attn_q.weight", 2, {2, 4, 6});
  const Result<Imatrix> got = Imatrix::parse(bytes_of(file));
  ASSERT_TRUE(got.ok()) << got.status().message();
  const auto found = got->find(tensor("blk.0.attn_q.weight", {3, 5, 1, 1}));
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(**found, (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(*got->find(tensor("other", {3, 5, 1, 1})), nullptr);
  EXPECT_EQ(got->find(tensor("blk.0.attn_q.weight", {4, 5, 1, 1})).status().code(),
            Code::kBadShape);
}

TEST(ConvertImatrix, ReadsTheNewerFormat) {
  const auto floats = [](std::vector<float> v) {
    std::vector<uint8_t> bytes(v.size() * 4);
    std::memcpy(bytes.data(), v.data(), bytes.size());
    return bytes;
  };
  test::GgufBuilder file;
  file.string("general.type", "imatrix")
      .tensor("blk.0.ffn_up_exps.weight.in_sum2", 0, {2, 2}, floats({4, 8, 5, 6}))
      .tensor("blk.0.ffn_up_exps.weight.counts", 0, {1, 2}, floats({4, 0}));
  const std::vector<uint8_t> bytes = file.build();
  const Result<Imatrix> got = Imatrix::parse(bytes);
  ASSERT_TRUE(got.ok()) << got.status().message();
  const auto found = got->find(tensor("blk.0.ffn_up_exps.weight", {2, 7, 2, 1}));
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(**found, (std::vector<float>{1, 2, 1, 1}));  // the second expert has no data
}

TEST(ConvertImatrix, RoundTrips) {
  Imatrix written;
  ASSERT_TRUE(written.set("blk.0.attn_q.weight", {1, 2, 0.5f}).ok());
  ASSERT_TRUE(written.set("blk.0.ffn_up_exps.weight", {3, 4, 1, 7}).ok());  // two experts
  const std::string file = written.file("a text");
  const Result<Imatrix> read = Imatrix::parse(bytes_of(file));
  ASSERT_TRUE(read.ok()) << read.status().message();
  ASSERT_EQ(read->size(), 2u);
  const auto plain = read->find(tensor("blk.0.attn_q.weight", {3, 5, 1, 1}));
  ASSERT_TRUE(plain.ok() && *plain != nullptr);
  EXPECT_EQ(**plain, (std::vector<float>{1, 2, 0.5f}));
  const auto experts = read->find(tensor("blk.0.ffn_up_exps.weight", {2, 7, 2, 1}));
  ASSERT_TRUE(experts.ok() && *experts != nullptr);
  EXPECT_EQ(**experts, (std::vector<float>{3, 4, 1, 7}));
}

TEST(ConvertImatrix, EveryTruncationIsAnError) {
  const std::string file = old_matrix("blk.0.attn_q.weight", 2, {2, 4, 6});
  for (size_t n = 0; n < file.size(); ++n) {
    EXPECT_FALSE(Imatrix::parse(bytes_of(file.substr(0, n))).ok()) << n;
  }
  EXPECT_EQ(Imatrix::parse(bytes_of(old_matrix("x", 1, {-1}))).status().code(), Code::kBadWeights);
  EXPECT_EQ(Imatrix::parse(bytes_of(old_matrix("x", 1, {NAN}))).status().code(), Code::kBadWeights);
}

// --- whole files, in memory

class MemorySink final : public Sink {
 public:
  [[nodiscard]] Status write(std::span<const uint8_t> bytes) override {
    if (file.size() + bytes.size() > most) return error(Code::kIo, "full");
    file.insert(file.end(), bytes.begin(), bytes.end());
    return {};
  }
  [[nodiscard]] Status patch(uint64_t offset, std::span<const uint8_t> bytes) override {
    std::copy(bytes.begin(), bytes.end(), file.begin() + static_cast<ptrdiff_t>(offset));
    return {};
  }
  std::vector<uint8_t> file;
  size_t most = SIZE_MAX;
};

// A file with an embedding, a 3-D tensor of experts, and a norm. Columns are whole blocks.
std::vector<uint8_t> source_file(float spoilt = 0) {
  std::mt19937 random(5);
  std::normal_distribution<float> draw(0, 0.03f);
  const auto values = [&](size_t n) {
    std::vector<float> v(n);
    for (float& x : v) x = draw(random);
    if (spoilt != 0) v[n / 2] = spoilt;
    std::vector<uint8_t> bytes(n * 4);
    std::memcpy(bytes.data(), v.data(), bytes.size());
    return bytes;
  };
  test::GgufBuilder file;
  file.string("general.architecture", "llama")
      .string("general.name", "made")
      .number("general.file_type", uint32_t{0})
      .number("split.count", uint16_t{1})
      .tensor("output.weight", 0, {256, 20}, values(256 * 20))
      .tensor("blk.0.ffn_down_exps.weight", 0, {512, 50, 3}, values(512 * 50 * 3))
      .tensor("blk.0.attn_norm.weight", 0, {256}, values(256))
      .tensor("token_embd.weight", 0, {256, 20}, values(256 * 20));
  return file.build();
}

struct Converted {
  Status status;
  Report report;
  std::vector<uint8_t> file;
};
Converted convert_file(const std::vector<uint8_t>& file, const Options& options,
                       size_t most = SIZE_MAX) {
  Converted out;
  gguf::Header header;
  EXPECT_TRUE(gguf::parse_header(file, file.size(), &header)->done);
  std::vector<std::unique_ptr<io::ByteSource>> sources;
  sources.push_back(io::open_memory(file));
  const Result<Source> source = Source::create(header, sources);
  EXPECT_TRUE(source.ok());
  MemorySink sink;
  sink.most = most;
  Result<Report> report = to_gguf(*source, options, &sink);
  out.status = report.status();
  if (report.ok()) out.report = std::move(*report);
  out.file = std::move(sink.file);
  return out;
}

TEST(ConvertFile, WritesWhatItReports) {
  Options options;
  options.type = "q4_k_m";
  const Converted made = convert_file(source_file(), options);
  ASSERT_TRUE(made.status.ok()) << made.status.message();
  gguf::Header header;
  ASSERT_TRUE(gguf::parse_header(made.file, made.file.size(), &header)->done);
  EXPECT_EQ(header.get_u64("general.file_type"), 15u);
  EXPECT_EQ(header.get_u64("general.quantization_version"), 2u);
  EXPECT_EQ(header.get_string("general.name"), "made");
  EXPECT_EQ(header.find("split.count"), nullptr);
  ASSERT_EQ(header.tensors.size(), 4u);
  ASSERT_EQ(made.report.tensors.size(), 4u);
  EXPECT_EQ(made.report.bytes, made.file.size());
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(header.tensors[i].name, made.report.tensors[i].name);
    EXPECT_EQ(header.tensors[i].type, made.report.tensors[i].to);
    EXPECT_EQ(header.tensors[i].bytes, made.report.tensors[i].bytes);
    EXPECT_GT(made.report.tensors[i].cosine, 0.995) << i;
  }
  EXPECT_EQ(header.tensors[0].name, "token_embd.weight");
  EXPECT_EQ(header.tensors[1].type, TensorType::kF32);
  EXPECT_EQ(header.tensors[2].name, "blk.0.ffn_down_exps.weight");
  EXPECT_EQ(header.tensors[2].type, TensorType::kQ6_K);  // from a last layer
  EXPECT_EQ(header.tensors[3].type, TensorType::kQ6_K);
}

TEST(ConvertFile, IsTheSameForAnyThreadsAndBudget) {
  Options options;
  options.type = "q5_k_s";
  options.threads = 1;
  const Converted first = convert_file(source_file(), options);
  options.threads = 3;
  EXPECT_EQ(convert_file(source_file(), options).file, first.file);
  options.memory_budget = 200 << 10;
  const Converted small = convert_file(source_file(), options);
  ASSERT_TRUE(small.status.ok()) << small.status.message();
  EXPECT_EQ(small.file, first.file);
  EXPECT_LE(small.report.memory, options.memory_budget);
  options.memory_budget = 60 << 10;
  EXPECT_EQ(convert_file(source_file(), options).status.code(), Code::kBudgetTooSmall);
}

// Values of one magnitude; in every `every` groups of 16, ten are larger, all different.
std::vector<uint8_t> file_with_outliers(size_t every) {
  std::mt19937 random(7);
  std::vector<float> values(size_t{256} * 1024);
  for (float& x : values) x = random() % 2 == 0 ? 0.02f : -0.02f;
  for (size_t group = 0; group < values.size() / 16; group += every) {
    for (size_t i = 0; i < 10; ++i) {
      const auto size = 0.14f + 0.02f * static_cast<float>(random() % 20);
      values[group * 16 + i] = random() % 2 == 0 ? size : -size;
    }
  }
  std::vector<uint8_t> bytes(values.size() * 4);
  std::memcpy(bytes.data(), values.data(), bytes.size());
  test::GgufBuilder file;
  file.string("general.architecture", "llama").tensor("blk.0.ffn_up.weight", 0, {256, 1024}, bytes);
  return file.build();
}

TEST(ConvertOutliers, AreCountedAndKeptOrClamped) {
  for (const size_t every : {200, 1000}) {
    const double n = 1 + (16384 - 1) / static_cast<double>(every);
    for (const auto& [type, wanted] : {std::pair("q8_0", Outliers::kKept),
                                       {"q4_0", Outliers::kKept},
                                       {"tq2_0", Outliers::kClamped}}) {
      Options options;
      options.type = type;
      const Converted made = convert_file(file_with_outliers(every), options);
      ASSERT_TRUE(made.status.ok()) << made.status.message();
      const TensorReport& line = made.report.tensors[0];
      EXPECT_DOUBLE_EQ(line.outlier_share, 10 * std::floor(n) / (256 * 1024)) << type;
      EXPECT_EQ(line.outliers, wanted) << type << " " << every << " " << line.outlier_error;
    }
  }
  Options options;
  options.type = "f16";  // rounds each value by itself
  EXPECT_EQ(convert_file(file_with_outliers(200), options).report.tensors[0].outliers,
            Outliers::kNone);
}

TEST(ConvertOutliers, MakeTheTypeLargerWhereTheyAreMany) {
  const std::vector<uint8_t> few = file_with_outliers(1000), many = file_with_outliers(500);
  Options options;
  options.target_bytes = 90 << 10;  // as Q2_K
  const Converted clamped = convert_file(few, options);
  ASSERT_TRUE(clamped.status.ok()) << clamped.status.message();
  EXPECT_EQ(clamped.report.tensors[0].to, TensorType::kQ2_K);
  EXPECT_EQ(clamped.report.tensors[0].outliers, Outliers::kClamped);
  EXPECT_LT(clamped.report.tensors[0].outlier_share, 0.001);
  EXPECT_EQ(convert_file(many, options).status.code(), Code::kInvalidArgument);

  options.target_bytes = 115 << 10;  // as Q3_K
  const Converted raised = convert_file(many, options);
  ASSERT_TRUE(raised.status.ok()) << raised.status.message();
  EXPECT_EQ(raised.report.tensors[0].to, TensorType::kQ3_K);
  EXPECT_EQ(raised.report.tensors[0].outliers, Outliers::kRaised);
  EXPECT_GT(raised.report.tensors[0].outlier_share, 0.001);

  options.target_bytes = 90 << 10;
  options.min_cosine = 0.9;
  const Converted forced = convert_file(many, options);
  ASSERT_TRUE(forced.status.ok()) << forced.status.message();
  EXPECT_EQ(forced.report.tensors[0].to, TensorType::kQ2_K);
  EXPECT_GT(forced.report.tensors[0].cosine, 0.99);  // it was outliers that excluded the type
  EXPECT_EQ(forced.report.tensors[0].outliers, Outliers::kKept);
}

// A minimum cosine raises the matrices that --type does not keep as close, and only these.
TEST(ConvertFile, RaisesTypesToTheMinimumCosine) {
  Options options;
  options.type = "q2_k";
  options.pure = true;
  const Converted plain = convert_file(source_file(), options);
  ASSERT_TRUE(plain.status.ok()) << plain.status.message();
  for (const double least : {0.5, 0.99, 0.9999}) {
    options.min_cosine = least;
    const Converted made = convert_file(source_file(), options);
    ASSERT_TRUE(made.status.ok()) << made.status.message();
    size_t raised = 0;
    for (size_t i = 0; i < made.report.tensors.size(); ++i) {
      const TensorReport &line = made.report.tensors[i], &before = plain.report.tensors[i];
      EXPECT_GE(line.cosine, least) << line.name;
      const bool larger = line.to != before.to;
      EXPECT_EQ(larger, before.cosine < least) << line.name;
      EXPECT_EQ(larger, line.bytes > before.bytes) << line.name;
      raised += larger ? 1 : 0;
    }
    EXPECT_EQ(raised > 0, least > 0.6) << least;
  }
  options.tensor_types = {{"token", "q4_0"}};  // asked for by name
  const Converted named = convert_file(source_file(), options);
  ASSERT_TRUE(named.status.ok()) << named.status.message();
  EXPECT_EQ(named.report.tensors[0].to, TensorType::kQ4_0);
}

// llama.cpp's guesses for files without a file type (llama-model-loader.cpp).
TEST(ConvertTypes, FileTypesAreThoseThatLlamaCppAssumes) {
  const std::pair<TensorType, uint32_t> types[] = {
      {TensorType::kF32, 0},      {TensorType::kF16, 1},     {TensorType::kQ4_0, 2},
      {TensorType::kQ4_1, 3},     {TensorType::kQ8_0, 7},    {TensorType::kQ5_0, 8},
      {TensorType::kQ5_1, 9},     {TensorType::kQ2_K, 10},   {TensorType::kQ3_K, 12},
      {TensorType::kQ4_K, 15},    {TensorType::kQ5_K, 17},   {TensorType::kQ6_K, 18},
      {TensorType::kIQ2_XXS, 19}, {TensorType::kIQ2_XS, 20}, {TensorType::kIQ3_XXS, 23},
      {TensorType::kIQ1_S, 24},   {TensorType::kIQ4_NL, 25}, {TensorType::kIQ3_S, 26},
      {TensorType::kIQ2_S, 28},   {TensorType::kIQ4_XS, 30}, {TensorType::kIQ1_M, 31},
      {TensorType::kBF16, 32},    {TensorType::kTQ1_0, 36},  {TensorType::kTQ2_0, 37}};
  for (const auto& [type, number] : types) {
    EXPECT_EQ(file_type_of(type), number) << gguf::type_info(type)->name;
  }
}

TEST(ConvertFile, GivesTensorsTheRequestedTypes) {
  Options options;
  options.type = "q8_0";
  options.tensor_types = {{"token", "q4_k"}, {"ffn_down", "q6_k"}, {"exps", "q5_0"}};
  const Converted made = convert_file(source_file(), options);
  ASSERT_TRUE(made.status.ok()) << made.status.message();
  EXPECT_EQ(made.report.tensors[0].to, TensorType::kQ4_K);
  EXPECT_EQ(made.report.tensors[1].to, TensorType::kF32);   // a vector
  EXPECT_EQ(made.report.tensors[2].to, TensorType::kQ5_0);  // the last match counts
  EXPECT_EQ(made.report.tensors[3].to, TensorType::kQ8_0);
  for (const auto& [name, type] :
       {std::pair("attn_norm", "q4_0"), {"nothing", "q4_0"}, {"token", "q9"}}) {
    options.tensor_types = {{name, type}};
    EXPECT_EQ(convert_file(source_file(), options).status.code(), Code::kInvalidArgument) << name;
  }
}

TEST(ConvertFile, QsfTypesAreCopied) {
  Options options;
  options.type = "q4_k_m";
  const Converted once = convert_file(source_file(), options);
  EXPECT_EQ(convert_file(once.file, options).file, once.file);
  options.type.clear();
  EXPECT_EQ(convert_file(once.file, options).file, once.file);
}

// An expert's own error weights apply only to its rows.
TEST(ConvertFile, WeighsEachExpertByItsOwnMoments) {
  std::vector<float> moments(512 * 3, 1);
  for (size_t i = 0; i < 512; ++i) moments[512 + i] = i % 5 == 0 ? 30 : 0.1f;
  Imatrix importance;
  ASSERT_TRUE(importance.set("blk.0.ffn_down_exps.weight", moments).ok());
  Options options;
  options.type = "q4_k_s";
  const Converted plain = convert_file(source_file(), options);
  options.importance = &importance;
  const Converted weighed = convert_file(source_file(), options);
  ASSERT_TRUE(weighed.status.ok());
  EXPECT_TRUE(weighed.report.tensors[2].weighted);
  gguf::Header header;
  ASSERT_TRUE(gguf::parse_header(plain.file, plain.file.size(), &header)->done);
  const gguf::Tensor& t = header.tensors[2];
  const auto expert = [&t](const std::vector<uint8_t>& file, uint64_t i) {
    const auto* from = file.data() + t.offset + i * t.bytes / 3;
    return std::vector<uint8_t>(from, from + t.bytes / 3);
  };
  EXPECT_EQ(expert(weighed.file, 0), expert(plain.file, 0));
  EXPECT_NE(expert(weighed.file, 1), expert(plain.file, 1));
  EXPECT_EQ(expert(weighed.file, 2), expert(plain.file, 2));
}

TEST(ConvertFile, RejectsWhatItCannotRepresent) {
  Options options;
  options.type = "f16";
  EXPECT_EQ(convert_file(source_file(NAN), options).status.code(), Code::kBadWeights);
  const Converted large = convert_file(source_file(1e6f), options);
  EXPECT_EQ(large.status.code(), Code::kBadWeights);
  EXPECT_NE(large.status.message().find("token_embd.weight"), std::string::npos);
  for (const char* type : {"q2_k", "q4_k_s", "q6_k", "q4_0", "iq4_xs", "tq2_0"}) {
    options.type = type;
    EXPECT_EQ(convert_file(source_file(1e20f), options).status.code(), Code::kBadWeights) << type;
  }
  options.type = "bf16";
  EXPECT_TRUE(convert_file(source_file(1e6f), options).status.ok());
  EXPECT_EQ(convert_file(source_file(), options, 1000).status.code(), Code::kIo);

  test::GgufBuilder unknown;  // a type without a decoder
  unknown.string("general.architecture", "llama")
      .tensor("token_embd.weight", 15, {256, 2}, std::vector<uint8_t>(584));
  const Converted q8_k = convert_file(unknown.build(), options);
  EXPECT_EQ(q8_k.status.code(), Code::kUnsupportedType);
  EXPECT_NE(q8_k.status.message().find("Q8_K"), std::string::npos);
}

// Types that can be read, but not written, are decoded or copied.
TEST(ConvertFile, ReadsDecodedTypes) {
  std::vector<uint8_t> blocks(2 * sizeof(kernels::BlockIQ3_XXS));
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<uint8_t>(i * 37);
  for (const size_t at : {size_t{0}, sizeof(kernels::BlockIQ3_XXS)}) blocks[at + 1] = 0x1c;
  test::GgufBuilder file;
  file.string("general.architecture", "llama").tensor("token_embd.weight", 18, {256, 2}, blocks);
  const std::vector<uint8_t> source = file.build();
  Options options;
  options.type = "f32";
  const Converted f32 = convert_file(source, options);
  ASSERT_TRUE(f32.status.ok()) << f32.status.message();
  gguf::Header header;
  ASSERT_TRUE(gguf::parse_header(f32.file, f32.file.size(), &header)->done);
  std::vector<float> expected(512), values(512);
  kernels::reference::dequantize(kernels::Type::kIQ3_XXS, blocks.data(), 512, expected.data());
  std::memcpy(values.data(), f32.file.data() + header.tensors[0].offset, sizeof(float) * 512);
  EXPECT_EQ(values, expected);
  options.type.clear();
  const Converted same = convert_file(source, options);
  ASSERT_TRUE(same.status.ok());
  ASSERT_TRUE(gguf::parse_header(same.file, same.file.size(), &header)->done);
  EXPECT_EQ(header.tensors[0].type, gguf::TensorType::kIQ3_XXS);
  const auto* from = same.file.data() + header.tensors[0].offset;
  EXPECT_EQ(std::vector<uint8_t>(from, from + blocks.size()), blocks);
}

// Checkpoints store queries in halves and norms minus one; GGUF stores neither.
TEST(ConvertFile, TransformsTensorsThatCheckpointsStoreDifferently) {
  std::vector<float> rows(8 * 32), norm(32, 0.5f);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i / 32);
  const auto bytes = [](const std::vector<float>& v) {
    std::vector<uint8_t> out(v.size() * 4);
    std::memcpy(out.data(), v.data(), out.size());
    return out;
  };
  test::GgufBuilder file;
  file.string("general.architecture", "mistral")
      .string("sluice.format", "safetensors")
      .number("mistral.attention.key_length", uint32_t{4})
      .number("mistral.block_count", uint32_t{1})
      .number("sluice.norm_offset", 1.0f)
      .raw("sluice.rope_neox", 7, {1})
      .tensor("blk.0.attn_q.weight", 0, {32, 8}, bytes(rows))
      .tensor("blk.0.attn_norm.weight", 0, {32}, bytes(norm));
  const Converted made = convert_file(file.build(), {});
  ASSERT_TRUE(made.status.ok()) << made.status.message();
  gguf::Header header;
  ASSERT_TRUE(gguf::parse_header(made.file, made.file.size(), &header)->done);
  EXPECT_EQ(header.find("sluice.rope_neox"), nullptr);
  EXPECT_EQ(header.find("sluice.norm_offset"), nullptr);
  EXPECT_EQ(header.get_string("general.architecture"), "llama");  // it has no sliding window
  EXPECT_EQ(header.get_u64("llama.block_count"), 1u);
  const auto value = [&](const char* name, uint64_t i) {
    float x = 0;
    std::memcpy(&x, made.file.data() + header.find_tensor(name)->offset + 4 * i, 4);
    return x;
  };
  EXPECT_EQ(value("blk.0.attn_norm.weight", 3), 1.5f);
  const float wanted[] = {0, 2, 1, 3, 4, 6, 5, 7};  // the two halves of each head, interleaved
  for (uint64_t row = 0; row < 8; ++row) {
    EXPECT_EQ(value("blk.0.attn_q.weight", row * 32 + 5), wanted[row]);
  }
}

}  // namespace
}  // namespace sluice::convert
