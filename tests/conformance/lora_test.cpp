// Adapters end to end: reference logits on every instruction set; bit-identical results for any
// batch, threads and budget, and for both file formats; merged weights as a cross-check; adapter
// changes while sessions are open.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "../file_contents.h"
#include "fixtures_util.h"
#include "hf/safetensors.h"
#include "tests/unit/gguf_builder.h"
#include "tests/unit/hf_directory.h"

namespace sluice::test {
namespace {

using native::AdapterChoice;

struct LoraCase {
  std::string name, model;
  std::vector<AdapterChoice> adapters;
  std::vector<int32_t> prompt, greedy;
  std::vector<float> logits;
  double llama_nmse = 0;
};

// Empty if the shared folder is absent.
std::vector<LoraCase> lora_cases() {
  std::vector<LoraCase> out;
  const std::string folder = shared_folder("lora");
  if (folder.empty()) return out;
  std::ifstream file(folder + "/manifest.json");
  for (const auto& entry : nlohmann::json::parse(file)) {
    LoraCase c;
    c.name = entry["name"];
    c.model = shared_folder(entry["model"]);
    for (const auto& a : entry["adapters"]) {
      c.adapters.push_back({folder + "/" + a["file"].get<std::string>(), a["scale"]});
    }
    c.prompt = entry["prompt"].get<std::vector<int32_t>>();
    c.greedy = entry["greedy"].get<std::vector<int32_t>>();
    c.logits = read_floats(folder + "/" + entry["logits"].get<std::string>());
    c.llama_nmse = entry["llama_cpp_nmse"];
    out.push_back(std::move(c));
  }
  EXPECT_EQ(out.size(), 16u);
  return out;
}

// The cases with both adapters, one per model.
std::vector<LoraCase> of_both(const std::vector<LoraCase>& all) {
  std::vector<LoraCase> out;
  for (const LoraCase& c : all) {
    if (c.name.ends_with(".ab")) out.push_back(c);
  }
  EXPECT_EQ(out.size(), 4u);
  return out;
}

#define CASES_OR_SKIP(name)                        \
  const std::vector<LoraCase> name = lora_cases(); \
  if (name.empty()) GTEST_SKIP() << "no ../shared/fixtures/lora"

struct Setting {
  int32_t n_ctx = 96, threads = 2;
  const char* kernels = "";
  uint64_t budget = 0;
};

Opened open_adapted(const std::string& path, const std::vector<AdapterChoice>& adapters,
                    const Setting& setting = {}) {
  native::LoadOptions load;
  load.engine.n_ctx = load.engine.logits_rows = setting.n_ctx;
  if (setting.budget > 0) load.engine.logits_rows = 1;
  load.engine.n_threads = setting.threads;
  load.engine.kernels = setting.kernels;
  load.engine.memory_budget = setting.budget;
  load.adapters = adapters;
  return open_model(path, load);
}

std::vector<float> logits_of(const std::string& path, const std::vector<AdapterChoice>& adapters,
                             const std::vector<int32_t>& tokens, const Setting& setting = {},
                             size_t step = 96) {
  Opened opened = open_adapted(path, adapters, setting);
  return opened.session == nullptr ? std::vector<float>() : all_logits(opened, tokens, step);
}

class LoraKernels : public testing::TestWithParam<const char*> {};

TEST_P(LoraKernels, MatchesTheReferenceLogits) {
  CASES_OR_SKIP(all);
  for (const LoraCase& c : all) {
    const std::vector<float> ours = logits_of(c.model, c.adapters, c.prompt, {96, 2, GetParam()});
    ASSERT_EQ(ours.size(), c.logits.size()) << c.name;
    const double error = nmse(ours.data(), c.logits.data(), ours.size());
    EXPECT_LE(error, std::max(1e-4, c.llama_nmse)) << c.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, LoraKernels, testing::ValuesIn(available_kernels()),
                         [](const auto& info) { return std::string(info.param); });

// Equal, unless our own lead is within rounding.
TEST(Lora, GreedyTokensOfUnquantizedModels) {
  CASES_OR_SKIP(all);
  size_t tried = 0;
  for (const LoraCase& c : all) {
    if (c.llama_nmse > 1e-4) continue;  // rounding may decide there
    ++tried;
    Opened opened = open_adapted(c.model, c.adapters);
    ASSERT_NE(opened.session, nullptr);
    std::vector<float> lead;
    const std::vector<int32_t> ours = greedy(opened, c.prompt, c.greedy.size(), &lead);
    ASSERT_EQ(ours.size(), c.greedy.size());
    for (size_t i = 0; i < ours.size(); ++i) {
      if (ours[i] == c.greedy[i]) continue;
      EXPECT_LT(lead[i], 0.02f) << c.name << ", token " << i;
      EXPECT_GT(i, 4u) << c.name;
      break;
    }
  }
  EXPECT_EQ(tried, 12u);
}

TEST(Lora, SameBitsForEveryBatchThreadCountAndBudget) {
  CASES_OR_SKIP(all);
  for (const LoraCase& c : of_both(all)) {
    const std::vector<float> whole = logits_of(c.model, c.adapters, c.prompt);
    for (const int threads : {1, 3}) {
      for (const size_t step : {size_t{1}, size_t{33}}) {
        EXPECT_EQ(logits_of(c.model, c.adapters, c.prompt, {96, threads}, step), whole)
            << c.name << ", " << threads << " threads, batches of " << step;
      }
    }
    auto header = native::read_header(c.model, {});
    auto files = native::AdapterFiles::open(c.adapters, {});
    ASSERT_TRUE(header.ok() && files.ok());
    session::EngineOptions options;
    options.n_ctx = 96;
    options.n_threads = 2;
    options.adapters = files->sources();
    auto found = session::inspect(header->header, options);
    ASSERT_TRUE(found.ok()) << found.status().message();
    const uint64_t least = found->plan.budget.minimum;
    options.adapters = {};
    auto bare = session::inspect(header->header, options);
    ASSERT_TRUE(bare.ok());
    EXPECT_GE(least, bare->plan.budget.minimum + found->plan.bytes.adapters)
        << "counted in the plan";
    EXPECT_EQ(logits_of(c.model, c.adapters, c.prompt, {96, 2, "", least}, 1), whole) << c.name;
    native::LoadOptions load;
    load.engine.n_ctx = 96;
    load.engine.n_threads = 2;
    load.engine.memory_budget = least - 1;
    load.adapters = c.adapters;
    EXPECT_EQ(native::Model::open(c.model, load).status().code(), Code::kBudgetTooSmall);
  }
}

TEST(Lora, ScaleZeroMeansNoAdapter) {
  CASES_OR_SKIP(all);
  for (const LoraCase& c : of_both(all)) {
    std::vector<AdapterChoice> off = c.adapters, first = c.adapters;
    for (AdapterChoice& a : off) a.scale = 0;
    first[1].scale = 0;
    EXPECT_EQ(logits_of(c.model, off, c.prompt), logits_of(c.model, {}, c.prompt)) << c.name;
    EXPECT_EQ(logits_of(c.model, first, c.prompt), logits_of(c.model, {c.adapters[0]}, c.prompt));
    EXPECT_EQ(open_adapted(c.model, off).model->engine().plan().bytes.adapters, 0u);
  }
}

// --- a model of the repository's own, with adapters made here ------------------------------------

constexpr uint64_t kRank = 3;
constexpr float kAlpha = 12;
const std::vector<int32_t> kHfTokens = {1, 5, 9, 40, 70, 101, 200, 3, 3, 17, 250, 99};

std::string hf_model() {
  return own_folder("hf/llama3");
}

std::string bytes_of(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

// One pair as Hugging Face stores it: a [rank][cols], b [rows][rank].
struct Made {
  std::string module, name;  // "model.layers.0.self_attn.q_proj", "blk.0.attn_q.weight"
  uint64_t rows = 0, cols = 0;
  int64_t heads = 0;  // of queries or keys: GGUF permutes their rows
  std::vector<float> a, b;
};

// Pairs for some matrices of a directory: queries, keys, a layer's last matrix, embedding and head.
std::vector<Made> make_pairs(const std::string& model) {
  auto header = native::read_header(model, {});
  EXPECT_TRUE(header.ok());
  const auto number = [&](const char* key) {
    return static_cast<int64_t>(
        header->header.get_u64("llama.attention." + std::string(key)).value_or(0));
  };
  std::vector<Made> out = {
      {"model.layers.0.self_attn.q_proj",
       "blk.0.attn_q.weight",
       0,
       0,
       number("head_count"),
       {},
       {}},
      {"model.layers.1.self_attn.k_proj",
       "blk.1.attn_k.weight",
       0,
       0,
       number("head_count_kv"),
       {},
       {}},
      {"model.layers.1.mlp.down_proj", "blk.1.ffn_down.weight", 0, 0, 0, {}, {}},
      {"model.embed_tokens", "token_embd.weight", 0, 0, 0, {}, {}},
      {"lm_head", "output.weight", 0, 0, 0, {}, {}}};
  std::mt19937 random(7);
  std::uniform_real_distribution<float> value(-0.3f, 0.3f);
  for (Made& m : out) {
    const gguf::Tensor* t = header->header.find_tensor(m.name);
    if (t == nullptr) t = header->header.find_tensor("token_embd.weight");  // a tied head
    m.rows = t->rows();
    m.cols = t->cols();
    // An embedding is indexed by token where other matrices are by column.
    if (m.name == "token_embd.weight") std::swap(m.rows, m.cols);
    m.a.resize(kRank * m.cols);
    m.b.resize(m.rows * kRank);
    for (float& x : m.a) x = value(random);
    for (float& x : m.b) x = value(random);
  }
  return out;
}

std::filesystem::path scratch_folder(const std::string& name) {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  const auto path = std::filesystem::temp_directory_path() /
                    ("sluice-lora-" + std::string(test->name()) + "-" + name);
  std::filesystem::create_directories(path);
  return path;
}

void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string write_peft(const std::vector<Made>& pairs, bool rslora = false) {
  SafetensorsBuilder file;
  for (const Made& m : pairs) {
    const bool rows = m.name == "token_embd.weight";
    const std::string at = "base_model.model." + m.module + (rows ? ".lora_embedding_" : ".lora_");
    const char* end = rows ? "" : ".weight";
    file.tensor(at + "A" + end, "F32", {kRank, m.cols}, bytes_of(m.a));
    file.tensor(at + "B" + end, "F32", {m.rows, kRank}, bytes_of(m.b));
  }
  const auto folder = scratch_folder("peft");
  write_file(folder / "adapter_model.safetensors", file.build());
  write_file(folder / "adapter_config.json", nlohmann::json{{"peft_type", "LORA"},
                                                            {"r", kRank},
                                                            {"lora_alpha", kAlpha},
                                                            {"bias", "none"},
                                                            {"use_rslora", rslora},
                                                            {"modules_to_save", nullptr}}
                                                 .dump());
  return folder.string();
}

// As llama.cpp's converter writes it: rows of queries and keys in pairs, the embedding by tokens.
std::string write_gguf(const std::vector<Made>& pairs) {
  GgufBuilder file;
  file.string("general.architecture", "llama").string("general.type", "adapter");
  file.string("adapter.type", "lora").number("adapter.lora.alpha", kAlpha);
  const auto raw = [](const std::vector<float>& values) {
    const std::string bytes = bytes_of(values);
    return std::vector<uint8_t>(bytes.begin(), bytes.end());
  };
  for (const Made& m : pairs) {
    std::vector<float> a = m.a, b = m.b;
    std::vector<uint64_t> ne_a = {m.cols, kRank};
    if (m.name == "token_embd.weight") {
      ne_a = {kRank, m.cols};
      for (size_t t = 0; t < m.cols; ++t) {
        for (size_t r = 0; r < kRank; ++r) a[t * kRank + r] = m.a[r * m.cols + t];
      }
    }
    if (m.heads > 0) {
      const size_t head = m.rows / static_cast<size_t>(m.heads);
      for (size_t row = 0; row < m.rows; ++row) {
        const size_t in = row % head, there = in % 2 * (head / 2) + in / 2;
        std::copy_n(&m.b[(row - in + there) * kRank], kRank, &b[row * kRank]);
      }
    }
    file.tensor(m.name + ".lora_a", 0, ne_a, raw(a));
    file.tensor(m.name + ".lora_b", 0, {kRank, m.rows}, raw(b));
  }
  const auto path = scratch_folder("gguf") / "adapter.gguf";
  const std::vector<uint8_t> bytes = file.build();
  write_file(path, std::string(bytes.begin(), bytes.end()));
  return path.string();
}

std::string read_bytes(const std::filesystem::path& path) {
  return sluice::test::file_contents(path);
}

// One file of the directory with W replaced by W + scale B A, all in F32.
std::string merge(const std::string& bytes, const std::vector<Made>& pairs, float scale) {
  hf::SafetensorsFile file;
  const auto parsed = hf::parse_safetensors(
      {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, bytes.size(), "", &file);
  EXPECT_TRUE(parsed.ok() && parsed->done);
  SafetensorsBuilder out;
  for (const auto& e : file.entries) {
    uint64_t n = 1;
    for (const uint64_t d : e.shape) n *= d;
    const auto type = e.dtype == "F32"   ? kernels::Type::kF32
                      : e.dtype == "F16" ? kernels::Type::kF16
                                         : kernels::Type::kBF16;
    std::vector<float> w(n);
    kernels::best().dequantize(type, bytes.data() + e.begin, static_cast<int64_t>(n), w.data());
    for (const Made& m : pairs) {
      if (e.name != m.module + ".weight") continue;
      const bool by_token = m.name == "token_embd.weight";
      for (size_t i = 0; i < m.rows; ++i) {
        for (size_t j = 0; j < m.cols; ++j) {
          float sum = 0;
          for (size_t r = 0; r < kRank; ++r) sum += m.b[i * kRank + r] * m.a[r * m.cols + j];
          w[by_token ? j * m.rows + i : i * m.cols + j] += scale * sum;
        }
      }
    }
    out.tensor(e.name, "F32", e.shape, bytes_of(w));
  }
  return out.build();
}

std::string write_merged(const std::string& model, const std::vector<Made>& pairs, float scale) {
  const auto folder = scratch_folder("merged");
  for (const auto& entry : std::filesystem::directory_iterator(model)) {
    const std::string extension = entry.path().extension(), bytes = read_bytes(entry.path());
    const bool weights = extension == ".safetensors";
    if (!weights && extension != ".json") continue;
    write_file(folder / entry.path().filename(), weights ? merge(bytes, pairs, scale) : bytes);
  }
  return folder.string();
}

TEST(Lora, PeftEqualsMergedWeights) {
  const std::vector<Made> pairs = make_pairs(hf_model());
  auto header = native::read_header(hf_model(), {});
  ASSERT_TRUE(header.ok() && header->header.find_tensor("output.weight") != nullptr)
      << "merging would change both ends";
  for (const bool rslora : {false, true}) {
    const std::string adapter = write_peft(pairs, rslora);
    const float scale = rslora ? kAlpha / std::sqrt(static_cast<float>(kRank)) : kAlpha / kRank;
    const std::vector<float> merged =
        logits_of(write_merged(hf_model(), pairs, 0.5f * scale), {}, kHfTokens, {32});
    const std::vector<float> ours = logits_of(hf_model(), {{adapter, 0.5f}}, kHfTokens, {32});
    ASSERT_EQ(ours.size(), merged.size());
    EXPECT_LT(nmse(ours.data(), merged.data(), ours.size()), 1e-5);
    const std::vector<float> bare = logits_of(hf_model(), {}, kHfTokens, {32});
    EXPECT_GT(nmse(bare.data(), merged.data(), bare.size()), 1e-2) << "the adapter does something";
  }
}

// Rows of queries and keys are reordered for a directory, and for a GGUF.
TEST(Lora, BothFormatsAreBitIdenticalOnBothFormatsOfModels) {
  const std::string gguf_model = fixture_folder("arch") + "/llama-gqa.gguf";
  for (const std::string& model : {hf_model(), gguf_model}) {
    const std::vector<Made> pairs = make_pairs(model);
    const std::vector<float> peft = logits_of(model, {{write_peft(pairs), 1}}, kHfTokens, {32});
    const std::vector<float> gguf = logits_of(model, {{write_gguf(pairs), 1}}, kHfTokens, {32});
    EXPECT_EQ(peft, gguf) << model;
    EXPECT_NE(peft, logits_of(model, {}, kHfTokens, {32}));
  }
}

TEST(Lora, AdaptersChangeWhileSessionsAreOpen) {
  const std::vector<Made> pairs = make_pairs(hf_model());
  const std::vector<AdapterChoice> half = {{write_peft(pairs), 0.5f}};
  const std::vector<AdapterChoice> two = {{write_peft(pairs), 1}, {write_gguf(pairs), -0.25f}};
  Opened opened = open_adapted(hf_model(), half, {32});
  ASSERT_NE(opened.session, nullptr);
  session::Session& session = *opened.session;
  const auto last = [&] {
    const auto row = session.logits();
    return std::vector<float>(row.begin(), row.end());
  };
  const auto expected = [&](const std::vector<AdapterChoice>& adapters) {
    std::vector<float> all = logits_of(hf_model(), adapters, kHfTokens, {32});
    all.erase(all.begin(), all.end() - static_cast<std::ptrdiff_t>(all.size() / kHfTokens.size()));
    return all;
  };
  const auto compute = [&](int32_t kept) {
    const Result<int32_t> found = session.sync(kHfTokens);
    ASSERT_TRUE(found.ok()) << found.status().message();
    EXPECT_EQ(*found, kept);
    ASSERT_TRUE(opened.model->run(session).ok());
  };
  const int32_t all_but_one = static_cast<int32_t>(kHfTokens.size()) - 1;
  compute(0);
  EXPECT_EQ(last(), expected(half));
  std::vector<uint8_t> saved(session.sequence().state_bytes());
  ASSERT_TRUE(session.read_state(0, saved).ok());

  ASSERT_TRUE(opened.model->set_adapters(two).ok());
  EXPECT_EQ(session.begin(std::vector<int32_t>{4}).code(), Code::kInvalidArgument);
  compute(0);  // nothing is reused
  EXPECT_EQ(last(), expected(two));
  compute(all_but_one);
  ASSERT_TRUE(session.begin_restore(saved.size()).ok());
  EXPECT_EQ(session.write_state(saved).code(), Code::kCorrupt) << "saved with other adapters";

  ASSERT_TRUE(opened.model->set_adapters({}).ok());
  EXPECT_EQ(opened.model->engine().plan().bytes.adapters, 0u);
  compute(0);
  EXPECT_EQ(last(), expected({}));
  ASSERT_TRUE(opened.model->set_adapters(half).ok());
  ASSERT_TRUE(session.begin_restore(saved.size()).ok());
  ASSERT_TRUE(session.write_state(saved).ok()) << "the same adapters again";
  compute(all_but_one);
  EXPECT_EQ(last(), expected(half));

  const std::vector<AdapterChoice> absent = {{hf_model() + "/absent.gguf", 1}};
  EXPECT_EQ(opened.model->set_adapters(absent).code(), Code::kNotFound);
  EXPECT_FALSE(opened.model->set_adapters(std::vector<AdapterChoice>{{hf_model(), 1}}).ok());
  compute(all_but_one);  // as before
  EXPECT_EQ(last(), expected(half));
}

TEST(Lora, AForkBelongsToTheAdaptersThatComputedIt) {
  native::LoadOptions load;
  load.engine.n_ctx = 32;
  load.engine.n_threads = 1;
  load.engine.n_sessions = 2;
  load.adapters = {{write_gguf(make_pairs(hf_model())), 0.5f}};
  Opened opened = open_model(hf_model(), load);
  ASSERT_NE(opened.session, nullptr);
  auto copy = session::Session::create(opened.model->engine().context());
  ASSERT_TRUE(copy.ok());
  const std::vector<float> expected = logits_after(opened, kHfTokens);

  ASSERT_TRUE(opened.model->set_adapters({}).ok());
  const Status forked = (*copy)->fork_from(*opened.session);
  ASSERT_TRUE(forked.ok()) << forked.message();
  EXPECT_EQ((*copy)->position(), opened.session->position());
  EXPECT_EQ((*copy)->begin(std::vector<int32_t>{4}).code(), Code::kInvalidArgument);

  ASSERT_TRUE(opened.model->set_adapters(load.adapters).ok());
  const Result<int32_t> kept = (*copy)->sync(kHfTokens);
  ASSERT_TRUE(kept.ok());
  EXPECT_EQ(*kept, static_cast<int32_t>(kHfTokens.size()) - 1);
  ASSERT_TRUE(opened.model->run(**copy).ok());
  const auto logits = (*copy)->logits();
  EXPECT_EQ(std::vector<float>(logits.begin(), logits.end()), expected);
}

TEST(Lora, ErrorsNameWhatDoesNotFit) {
  const std::string qwen = fixture_folder("arch") + "/qwen3.gguf";
  const std::vector<Made> pairs = make_pairs(hf_model());
  const auto refused = [](const std::string& model, const std::string& adapter, float scale,
                          Code code, const char* word) {
    native::LoadOptions load;
    load.engine.n_ctx = 32;
    load.adapters = {{adapter, scale}};
    const Status status = native::Model::open(model, load).status();
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
  };
  refused(qwen, write_gguf(pairs), 1, Code::kUnsupportedArchitecture, "\"llama\"");
  refused(qwen, write_peft({pairs[0]}), 1, Code::kBadShape, "blk.0.attn_q.weight");
  refused(qwen, qwen, 1, Code::kBadHeader, "not an adapter");
  refused(hf_model(), write_gguf(pairs), 1e38f, Code::kInvalidArgument, "not a finite number");
  std::vector<Made> other = {pairs[2]};
  other[0].b[1] = std::numeric_limits<float>::quiet_NaN();
  refused(hf_model(), write_gguf(other), 1, Code::kBadWeights, "blk.1.ffn_down.weight");
  other = {pairs[2]};
  other[0].name = "blk.7.ffn_down.weight";
  refused(hf_model(), write_gguf(other), 1, Code::kMissingTensor, "blk.7.ffn_down.weight");
  refused(hf_model(), write_gguf(other), 0, Code::kMissingTensor, "blk.7.ffn_down.weight");
}

}  // namespace
}  // namespace sluice::test
