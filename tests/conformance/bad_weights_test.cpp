// NaN weights are an error that names the tensor and its rows, however they reach the engine:
// packed on arrival, streamed through slots, read directly by compute threads, as single rows of
// the embedding, as vectors. Int8 activations would hide them.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <regex>

#include "../file_contents.h"
#include "../paths.h"
#include "tests/conformance/fixtures_util.h"

namespace sluice::test {
namespace {

const std::string kData = source_dir() + "/tests/data/";
const std::vector<int32_t> kTokens = {1, 17, 29, 45, 31, 8, 12, 5};
constexpr int64_t kTokenRow = 5;  // row of the embedding

// Where to put the NaN: the last block of a row, or the last value of a vector.
struct Spot {
  std::string tensor;
  int64_t row = 0;
  uint64_t offset = 0, bytes = 0;  // in the file
};

std::vector<Spot> spots(const std::string& path) {
  const auto header = native::read_header(path, {});
  EXPECT_TRUE(header.ok());
  const auto found = session::inspect(header->header, {});
  EXPECT_TRUE(found.ok());
  std::vector<Spot> all;
  const model::Program& p = found->program;
  for (size_t i = 0; i < p.mats.size(); ++i) {
    const model::Mat& m = p.mats[i];
    const int64_t row = static_cast<int32_t>(i) == p.embedding ? kTokenRow : m.rows - 1;
    const uint64_t end = m.offset + static_cast<uint64_t>((row + 1) * m.row_bytes);
    const uint64_t block = gguf::type_info(static_cast<gguf::TensorType>(m.type))->block_bytes;
    all.push_back({m.name, row, end - block, block});
  }
  for (const model::Vec& v : p.vecs) {
    const uint64_t value = v.bytes / static_cast<uint64_t>(v.n);
    all.push_back({v.name, 0, v.offset + v.bytes - value, value});
  }
  return all;
}

// NaN in every type: in a block's scale, or in a value.
std::string spoiled(std::string bytes, const Spot& spot) {
  std::memset(&bytes[spot.offset], 0xff, spot.bytes);
  return bytes;
}

class BadWeights : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    path_ = (std::filesystem::temp_directory_path() / ("sluice-nan-" + std::to_string(getpid())))
                .string();
    good_ = sluice::test::file_contents(kData + GetParam());
  }
  void TearDown() override { std::filesystem::remove(path_); }

  std::string path_, good_;
};

void expect_named(const Status& status, const Spot& spot, const std::string& how) {
  ASSERT_EQ(status.code(), Code::kBadWeights) << spot.tensor << how << status.message();
  std::smatch rows;
  const std::string& text = status.message();
  ASSERT_TRUE(std::regex_search(text, rows, std::regex(R"(\(rows? (\d+)(?: to (\d+))?\))")))
      << text;
  EXPECT_NE(text.find("the tensor " + spot.tensor + " "), std::string::npos) << text << how;
  EXPECT_LE(std::stoll(rows[1]), spot.row) << text << how;
  EXPECT_GE(std::stoll(rows[2].matched ? rows[2] : rows[1]), spot.row) << text << how;
}

TEST_P(BadWeights, AreNamedHoweverTheyArrive) {
  const std::string good = kData + GetParam();
  session::EngineOptions options;
  options.n_ctx = 32;
  const uint64_t least = smallest_budget(good, options);
  for (const Spot& spot : spots(good)) {
    std::ofstream(path_, std::ios::binary) << spoiled(good_, spot);
    for (const uint64_t budget : {uint64_t{0}, least, least + least / 8}) {
      for (const int32_t threads : {1, 2}) {
        options.memory_budget = budget;
        options.n_threads = threads;
        const std::string how = " " + std::to_string(budget) + " " + std::to_string(threads) + " ";
        auto model = native::Model::open(path_, {options, {}});
        ASSERT_TRUE(model.ok());
        auto session = session::Session::create((*model)->engine().context());
        ASSERT_TRUE((*session)->begin(kTokens).ok());
        expect_named((*model)->run(**session), spot, how);
        // The engine keeps reporting the error.
        EXPECT_EQ((*session)->begin(kTokens).code(), Code::kBadWeights) << how;
        EXPECT_EQ((*model)->set_memory_budget(0).code(), Code::kBadWeights) << how;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, BadWeights,
                         testing::Values("families/llama-biases.gguf", "arch/gpt2.gguf",
                                         "arch/qwen3.gguf", "quant/llama-Q4_0.gguf",
                                         "quant/llama-Q4_K.gguf", "quant/llama-Q8_0.gguf",
                                         "quant/llama-TQ1_0.gguf"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = std::isalnum(c) != 0 ? c : '_';
                           return name;
                         });

// A driver that fills the queue without direct reads: units pass through the slots.
TEST(BadWeightsInSlots, AreNamed) {
  const std::string good = kData + "quant/llama-Q4_0.gguf";
  session::EngineOptions options;
  options.n_ctx = 32;
  options.memory_budget = smallest_budget(good, options);
  const std::string all = sluice::test::file_contents(good);
  for (const Spot& spot : spots(good)) {
    const std::string bytes = spoiled(all, spot);
    const std::vector<uint8_t> file(bytes.begin(), bytes.end());
    gguf::Header header;
    ASSERT_TRUE(gguf::parse_header(file, file.size(), &header).ok());
    auto engine = session::Engine::open(header, options);
    ASSERT_TRUE(engine.ok());
    auto session = session::Session::create((*engine)->context());
    ASSERT_TRUE((*session)->begin(kTokens).ok());
    residency::FillQueue& queue = (*engine)->residency().requests().queue();
    uint32_t taken = 0;
    session::Step step = session::Step::kProgress;
    while (step == session::Step::kBlocked || step == session::Step::kProgress) {
      step = (*session)->step(20);
      for (; taken != queue.pushed; ++taken) {
        residency::FillRequest& r = queue.ring[taken % residency::kFillCapacity];
        std::memcpy(reinterpret_cast<uint8_t*>(static_cast<uintptr_t>(r.dst)), &file[r.offset],
                    r.length);
        r.state = residency::kFillDone;
      }
    }
    ASSERT_EQ(step, session::Step::kFailed) << spot.tensor;
    expect_named((*session)->failure(), spot, " in slots");
  }
}

// Experts are read when a token is routed to them, so all that it could choose have NaN.
TEST(BadWeightsOfExperts, AreNamed) {
  const std::string good = kData + "families/qwen3moe.gguf";
  std::string bytes = sluice::test::file_contents(good);
  for (const Spot& spot : spots(good)) {
    if (spot.tensor.find("down_exps") != std::string::npos) bytes = spoiled(bytes, spot);
  }
  const std::string path =
      (std::filesystem::temp_directory_path() / ("sluice-moe-" + std::to_string(getpid())))
          .string();
  std::ofstream(path, std::ios::binary) << bytes;
  session::EngineOptions options;
  options.n_ctx = 32;
  for (const uint64_t budget : {uint64_t{0}, smallest_budget(good, options)}) {
    options.memory_budget = budget;
    Opened opened = open_model(path, options);
    ASSERT_TRUE(opened.session->begin(kTokens).ok());
    const Status status = opened.model->run(*opened.session);
    EXPECT_EQ(status.code(), Code::kBadWeights) << budget << status.message();
    EXPECT_NE(status.message().find("down_exps"), std::string::npos) << status.message();
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace sluice::test
