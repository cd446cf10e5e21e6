// Hugging Face directories end to end. With everything resident, logits equal those that
// reference.py computed in double precision from the same rounded weights
// (tests/reference/make_hf.py). Streamed through the smallest budget they are bit-identical.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <regex>

#include "../file_contents.h"
#include "../paths.h"
#include "native/model_file.h"

namespace sluice::native {
namespace {

const std::vector<session::Token> kHfTokens = {1, 5, 9, 40, 70, 101, 200, 3, 3, 17, 250, 99};

std::filesystem::path folder(const std::string& name) {
  return std::filesystem::path(sluice::test::source_dir()) / "tests/data/hf" / name;
}

std::vector<float> read_floats(const std::filesystem::path& path) {
  const std::string bytes = sluice::test::file_contents(path);
  std::vector<float> out(bytes.size() / 4);
  std::memcpy(out.data(), bytes.data(), out.size() * 4);
  return out;
}

// The logits of each position; on failure the status has the reason.
Status compute(const std::string& path, uint64_t budget, std::vector<float>* out) {
  LoadOptions options;
  options.engine.memory_budget = budget;
  options.engine.n_ctx = 16;
  options.engine.n_threads = 1;
  options.engine.logits_rows = 1;
  auto model = Model::open(path, options);
  if (!model.ok()) return model.status();
  auto session = session::Session::create((*model)->engine().context());
  if (!session.ok()) return session.status();
  out->clear();
  for (const session::Token token : kHfTokens) {
    SLUICE_RETURN_IF_ERROR((*session)->begin({&token, 1}));
    SLUICE_RETURN_IF_ERROR((*model)->run(**session));
    const std::span<float> logits = (*session)->logits();
    out->insert(out->end(), logits.begin(), logits.end());
  }
  return {};
}

class HfConformance : public ::testing::TestWithParam<const char*> {};

TEST_P(HfConformance, EqualsTheReferenceAtEveryBudget) {
  const std::filesystem::path dir = folder(GetParam());
  const std::vector<float> expected = read_floats(dir / "reference.f32");
  ASSERT_FALSE(expected.empty());
  std::vector<float> resident;
  const Status status = compute(dir.string(), 0, &resident);
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(resident.size(), expected.size());
  const size_t n_vocab = expected.size() / kHfTokens.size();
  for (size_t row = 0; row < kHfTokens.size(); row++) {
    double squares = 0;
    double power = 0;
    for (size_t i = row * n_vocab; i < (row + 1) * n_vocab; i++) {
      squares += std::pow(static_cast<double>(resident[i]) - expected[i], 2);
      power += std::pow(static_cast<double>(expected[i]), 2);
    }
    EXPECT_LT(squares / power, 1e-4) << "position " << row;  // the KV cache is f16
  }

  std::vector<float> streamed;
  const Status refused = compute(dir.string(), 1000, &streamed);
  ASSERT_STREQ(code_name(refused.code()), "BUDGET_TOO_SMALL");
  std::smatch smallest;
  const std::string message = refused.message();
  ASSERT_TRUE(std::regex_search(message, smallest, std::regex("works is (\\d+) bytes"))) << message;
  const Status least = compute(dir.string(), std::stoull(smallest[1]), &streamed);
  ASSERT_TRUE(least.ok()) << least.message();
  EXPECT_EQ(streamed, resident);
}

INSTANTIATE_TEST_SUITE_P(Families, HfConformance,
                         ::testing::Values("qwen3", "llama3", "smollm3", "gemma3"));

TEST(HfDirectoryPath, EveryFormOfThePathOpensTheModel) {
  for (const char* name : {"", "config.json", "model.safetensors"}) {
    const auto header = read_header((folder("qwen3") / name).string(), {});
    ASSERT_TRUE(header.ok()) << header.status().message();
    EXPECT_EQ(header->header.get_string("general.architecture"), "qwen3");
    EXPECT_EQ(header->header.get_string("general.name"), "qwen3");
    EXPECT_EQ(header->sources.size(), 1u);
  }
}

TEST(HfDirectoryPath, NamesTheMissingFile) {
  const std::filesystem::path dir =
      std::filesystem::temp_directory_path() / ("sluice-hf-" + std::to_string(::getpid()));
  std::filesystem::create_directory(dir);
  for (const char* file : {"config.json", "model.safetensors", "tokenizer.json"}) {
    const auto header = read_header(dir.string(), {});
    EXPECT_EQ(header.status().code(), Code::kNotFound);
    EXPECT_NE(header.status().message().find(file), std::string::npos) << header.status().message();
    std::filesystem::copy(folder("qwen3") / file, dir / file);
  }
  EXPECT_TRUE(read_header(dir.string(), {}).ok());
  std::filesystem::resize_file(dir / "model.safetensors", 100'000);
  EXPECT_EQ(read_header(dir.string(), {}).status().code(), Code::kTruncated);
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace sluice::native
