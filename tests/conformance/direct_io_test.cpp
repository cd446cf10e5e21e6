// Weights that I/O threads read without the page cache give bit-identical logits: dense models,
// mixtures of experts and QSF records, under every budget, with and without joined reads.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "io/direct_io_native.h"
#include "tests/conformance/fixtures_util.h"
#include "tests/conformance/made_mixture_util.h"
#include "tests/conformance/random_budgets_util.h"
#include "tests/conformance/records_file_util.h"

namespace sluice::test {
namespace {

constexpr size_t kReadsInFlight = 4;  // as native/model_file.cpp

native::LoadOptions direct_options(uint64_t budget, io::DirectIo direct_io, bool join = true) {
  native::LoadOptions out;
  out.engine.n_ctx = 128;
  out.engine.n_threads = 2;
  out.engine.logits_rows = out.engine.n_batch = 8;
  out.engine.memory_budget = budget;
  out.source.direct_io = direct_io;
  out.source.join_reads = join;
  return out;
}

// Whether files in the directory of the test's models can be read so.
bool has_direct_io(const std::string& model) {
  Opened opened = open_model(model, direct_options(0, io::DirectIo::kOn));
  return opened.model != nullptr && opened.model->direct_io();
}

class DirectIoModel : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_direct_io(mixture_.path)) GTEST_SKIP() << "no direct I/O for " << mixture_.path;
  }
  static std::vector<float> logits_of(const std::string& path, const native::LoadOptions& load,
                                      const std::vector<int32_t>& tokens, size_t step) {
    Opened opened = open_model(path, load);
    if (opened.session == nullptr) return {};
    EXPECT_TRUE(opened.model->direct_io()) << path;
    return all_logits(opened, tokens, step);
  }
  static void expect_same(const std::string& path, const std::vector<int32_t>& tokens) {
    Opened whole = open_model(path, direct_options(0, io::DirectIo::kOff));
    ASSERT_NE(whole.session, nullptr);
    EXPECT_FALSE(whole.model->direct_io());
    const std::vector<float> wanted = all_logits(whole, tokens, 1);
    const uint64_t weights = whole.model->engine().residency().plan().total_bytes;
    const uint64_t least = smallest_budget(path, direct_options(0, io::DirectIo::kOff).engine) +
                           io::DirectBuffers::memory(kReadsInFlight);
    for (const uint64_t eighth : {0, 2, 5, 9}) {
      for (const size_t step : {size_t{1}, size_t{8}}) {
        const uint64_t budget = least + eighth * weights / 8;
        const native::LoadOptions load = direct_options(budget, io::DirectIo::kOn, step == 1);
        EXPECT_EQ(logits_of(path, load, tokens, step), wanted)
            << path << ", " << eighth << "/8, " << step << " tokens";
      }
    }
  }

  const MadeMixture mixture_{4};
};

TEST_F(DirectIoModel, EveryBudgetGivesTheSameLogits) {
  std::vector<int32_t> tokens = mixture_tokens();
  tokens.resize(24);
  expect_same(mixture_.path, tokens);
  expect_same(RecordsFile(mixture_.path).path, tokens);
  for (const char* name : {"llama-gqa", "gemma2"}) {
    const std::string path = own_folder("arch") + "/" + name + ".gguf";
    if (!has_direct_io(path)) continue;  // of another file system
    expect_same(path, {1, 17, 29, 45, 31, 8, 12, 50});
  }
}

TEST_F(DirectIoModel, RandomBudgetsChangeNoLogit) {
  Opened whole = open_model(mixture_.path, direct_options(0, io::DirectIo::kOff));
  ASSERT_NE(whole.session, nullptr);
  for (const bool records : {false, true}) {
    const RecordsFile file(mixture_.path);
    const std::string& path = records ? file.path : mixture_.path;
    const uint64_t least = smallest_budget(path, direct_options(0, io::DirectIo::kOff).engine) +
                           io::DirectBuffers::memory(kReadsInFlight);
    Opened opened = open_model(path, direct_options(least, io::DirectIo::kOn));
    ASSERT_NE(opened.session, nullptr);
    ASSERT_TRUE(opened.model->direct_io());
    random_budgets_keep_logits(opened, whole, least, {.seed = 13, .operations = 30});
    if (HasFatalFailure()) return;
  }
}

// A record has three matrices, and a matrix of this model is one unit.
TEST_F(DirectIoModel, JoinedReadsAreFewer) {
  const RecordsFile file(mixture_.path);
  std::vector<int32_t> tokens = mixture_tokens();
  const uint64_t budget = smallest_budget(file.path, direct_options(0, io::DirectIo::kOff).engine) +
                          io::DirectBuffers::memory(kReadsInFlight);
  io::SystemReads reads[2];
  for (const bool join : {false, true}) {
    Opened opened = open_model(file.path, direct_options(budget, io::DirectIo::kOn, join));
    ASSERT_NE(opened.session, nullptr);
    all_logits(opened, tokens, 1);
    const io::SystemReads before = opened.model->system_reads();  // records are verified by now
    opened.session->clear();
    all_logits(opened, tokens, 1);
    reads[join] = opened.model->system_reads();
    reads[join].count -= before.count;
    reads[join].bytes -= before.bytes;
  }
  EXPECT_GT(reads[0].count, 0u);
  EXPECT_LT(reads[1].count, reads[0].count);
}

TEST_F(DirectIoModel, TheSmallestBudgetHasNoRoomForBuffers) {
  const native::LoadOptions load = direct_options(0, io::DirectIo::kOn);
  const uint64_t least = smallest_budget(mixture_.path, load.engine);
  Opened opened = open_model(mixture_.path, direct_options(least, io::DirectIo::kOn));
  ASSERT_NE(opened.session, nullptr);
  EXPECT_FALSE(opened.model->direct_io());
  const auto none =
      native::Model::open(mixture_.path, direct_options(least - 1, io::DirectIo::kOn));
  EXPECT_EQ(none.status().code(), Code::kBudgetTooSmall);
}

}  // namespace
}  // namespace sluice::test
