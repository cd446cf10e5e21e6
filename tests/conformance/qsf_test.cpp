// A QSF file gives bit-identical logits to its GGUF source, resident and at the smallest budget,
// compressed or not, for any family.
#include "qsf/qsf.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <thread>

#include "../paths.h"
#include "../sanitized.h"
#include "convert/convert.h"
#include "file_sink_util.h"
#include "fixtures_util.h"
#include "residency/residency.h"

namespace sluice::test {
namespace {

using convert::Packing;

// The logits of a model under a budget; 0: unlimited, 1: the smallest.
std::vector<float> logits_of(const std::string& path, const std::vector<int32_t>& tokens,
                             uint64_t budget) {
  session::EngineOptions options;
  options.n_ctx = 128;
  options.logits_rows = options.n_batch = 8;
  options.n_threads = 2;
  options.memory_budget = budget == 1 ? smallest_budget(path, options) : budget;
  Opened opened = open_model(path, options);
  return opened.session == nullptr ? std::vector<float>()
                                   : all_logits(opened, tokens, budget == 1 ? 1 : 8);
}

void expect_same(const std::string& path, const std::vector<int32_t>& tokens,
                 std::initializer_list<Packing> packings) {
  Result<native::ModelHeader> model = native::read_header(path, {});
  ASSERT_TRUE(model.ok()) << model.status().message();
  const Result<convert::Source> source = convert::Source::create(model->header, model->sources);
  ASSERT_TRUE(source.ok());
  const std::vector<float> wanted = logits_of(path, tokens, 0);
  ASSERT_FALSE(wanted.empty());
  const std::string name =
      (std::filesystem::temp_directory_path() / ("sluice-" + std::to_string(::getpid()) + ".qsf"))
          .string();
  for (const Packing packing : packings) {
    {
      FileSink file(name);
      const Result<convert::Report> made = convert::to_qsf(*source, {}, packing, &file);
      ASSERT_TRUE(made.ok()) << made.status().message();
    }
    for (const uint64_t budget : {0, 1}) {
      EXPECT_EQ(logits_of(name, tokens, budget), wanted)
          << path << ", compression " << static_cast<int>(packing) << ", budget " << budget;
    }
  }
  std::filesystem::remove(name);
}

TEST(Qsf, GivesTheSampleModelsLogits) {
  const std::string folder = source_dir() + "/examples/models/sluice-tales-";
  const std::vector<int32_t> tokens = {1, 17, 29, 45, 31, 8, 12, 77, 5, 9, 200, 41};
  expect_same(folder + "F16.gguf", tokens, {Packing::kZstd});
  expect_same(folder + "Q8_0.gguf", tokens,
              {Packing::kNone, Packing::kLz4, Packing::kLz4Hc, Packing::kZstd, Packing::kAuto});
}

// A model at the smallest budget that works.
Opened open_smallest(const std::string& path, int threads) {
  session::EngineOptions options;
  options.n_ctx = 128;
  options.n_threads = threads;
  options.memory_budget = smallest_budget(path, options);
  return open_model(path, options);
}

// Flips a bit of a copy of the file, in the middle of its first layer.
std::string damaged_copy(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
  gguf::Header header;
  std::vector<qsf::Run> runs;
  std::vector<uint8_t> front(bytes.begin(), bytes.end());
  EXPECT_TRUE(qsf::parse(front, front.size(), &header, &runs)->done);
  const auto layer = std::find_if(runs.begin(), runs.end(), [](const auto& r) { return r.layer; });
  bytes[static_cast<size_t>(layer->offset + layer->stored / 2)] ^= 4;
  const std::string name =
      (std::filesystem::temp_directory_path() / ("sluice-bad-" + std::to_string(::getpid())))
          .string();
  std::ofstream(name, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return name;
}

// With one compute thread, a machine with another processor decompresses frames ahead, too.
TEST(Qsf, ADamagedCompressedLayerEndsThePass) {
  for (const char* packing : {"lz4", "zstd"}) {
    const std::string path = damaged_copy(own_folder("qsf") + "/" + packing + ".qsf");
    for (const int threads : {1, 2}) {
      Opened opened = open_smallest(path, threads);
      ASSERT_NE(opened.session, nullptr);
      const std::vector<int32_t> tokens = {1, 17, 29};
      ASSERT_TRUE(opened.session->begin(tokens).ok());
      EXPECT_EQ(opened.model->run(*opened.session).code(), Code::kCorrupt) << packing;
    }
    std::filesystem::remove(path);
  }
}

TEST(Qsf, CompressedLayersAreInterrupted) {
  for (const char* packing : {"lz4", "zstd"}) {
    const std::string path = own_folder("qsf") + "/" + packing + ".qsf";
    Opened opened = open_smallest(path, 1);
    ASSERT_NE(opened.session, nullptr);
    const std::vector<int32_t> tokens = {1, 17, 29};
    ASSERT_TRUE(opened.session->begin(tokens).ok());
    opened.model->interrupt();
    EXPECT_EQ(opened.model->run(*opened.session).code(), Code::kAborted) << packing;
  }
}

// After a pass, the stream buffer fills with the next pass's first units while nobody computes.
TEST(Qsf, LayersAreDecompressedAhead) {
  const std::string path = own_folder("qsf") + "/lz4.qsf";
  Opened opened = open_smallest(path, 2);
  ASSERT_NE(opened.session, nullptr);
  ASSERT_FALSE(all_logits(opened, {1, 17, 29}, 1).empty());
  residency::Residency& residency = opened.model->engine().residency();
  // The helper may be done already, so what counts is that the units arrive.
  const uint32_t first = residency.cursor_unit();
  const residency::FillQueue& queue = residency.requests().queue();
  const auto filled = [&] { return residency.ready(first) && queue.completed == queue.pushed; };
  (void)residency.poll();
  for (int i = 0; i < 5000 && !filled(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    (void)residency.collect();
  }
  EXPECT_TRUE(residency.ready(first));
  EXPECT_EQ(queue.completed, queue.pushed);
}

// QSF's own types: the same logits resident, at the smallest budget and one token at a time, close
// to those of the source.
TEST(Qsf, QsfTypesGiveTheSameLogitsUnderEveryBudget) {
  const std::string path = source_dir() + "/examples/models/sluice-tales-F16.gguf";
  const std::vector<int32_t> tokens = {1, 17, 29, 45, 31, 8, 12, 77, 5, 9, 200, 41};
  Result<native::ModelHeader> model = native::read_header(path, {});
  ASSERT_TRUE(model.ok()) << model.status().message();
  const Result<convert::Source> source = convert::Source::create(model->header, model->sources);
  ASSERT_TRUE(source.ok());
  const std::vector<float> exact = logits_of(path, tokens, 0);
  const std::string name = (std::filesystem::temp_directory_path() /
                            ("sluice-own-" + std::to_string(::getpid()) + ".qsf"))
                               .string();
  for (const auto& [type, most] : {std::pair{"qsf4", 0.05}, std::pair{"qsf3", 0.15},
                                   std::pair{"qsf2", 0.5}, std::pair{"qsft", 0.8}}) {
    convert::Options options;
    options.type = type;
    {
      FileSink file(name);
      const Result<convert::Report> made = convert::to_qsf(*source, options, Packing::kNone, &file);
      ASSERT_TRUE(made.ok()) << made.status().message();
    }
    const std::vector<float> resident = logits_of(name, tokens, 0);
    ASSERT_EQ(resident.size(), exact.size());
    EXPECT_EQ(logits_of(name, tokens, 1), resident) << type;
    double error = 0, power = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      error += std::pow(static_cast<double>(exact[i]) - resident[i], 2);
      power += std::pow(static_cast<double>(exact[i]), 2);
    }
    EXPECT_LT(error, most * power) << type << " " << error / power;
  }
  std::filesystem::remove(name);
}

// The activation of the FFN in a model's program, 255 for one that the format has no number for;
// none without an FFN, whose recurrent layers have gates of SiLU.
std::optional<int> activation_of(const model::Program& program) {
  const auto code = [](model::Activation act) {
    switch (act) {
      case model::Activation::kGeluMul:
      case model::Activation::kGeluTanh:
      case model::Activation::kGeluErf:
        return 0;
      case model::Activation::kSiluMul:
        return 1;
      case model::Activation::kReluMul:
      case model::Activation::kRelu:
        return 2;
      default:
        return 255;
    }
  };
  for (const model::Op& op : program.ops) {
    if (op.layer < 0) continue;
    if (const auto* of = op.get<model::ActivateOp>()) return code(of->act);
    if (const auto* of = op.get<model::MoeOp>()) {
      return code(program.moes[static_cast<size_t>(of->moe)].act);
    }
  }
  return {};
}

// Header byte 49 is the activation of every family, whatever its norm.
TEST(Qsf, HeadersNameTheActivation) {
  const std::string folder = fixture_folder("families");
  const std::vector<std::string> runs = further_families();
  std::set<int> seen;
  for (const Reference& reference : read_manifest(folder, &runs)) {
    Result<native::ModelHeader> model = native::read_header(reference.path, {});
    ASSERT_TRUE(model.ok()) << model.status().message();
    const auto program = model::build_program(model->header);
    ASSERT_TRUE(program.ok()) << program.status().message();
    const Result<convert::Source> source = convert::Source::create(model->header, model->sources);
    ASSERT_TRUE(source.ok());
    const std::string name =
        (std::filesystem::temp_directory_path() / ("sluice-act-" + std::to_string(::getpid())))
            .string();
    {
      FileSink file(name);
      ASSERT_TRUE(convert::to_qsf(*source, {}, Packing::kNone, &file).ok());
    }
    std::ifstream file(name, std::ios::binary);
    file.seekg(49);
    const int written = file.get();
    EXPECT_EQ(written, activation_of(*program).value_or(written)) << reference.name;
    seen.insert(written);
    std::filesystem::remove(name);
  }
  EXPECT_GE(seen.size(), 3u);
}

// Files written by earlier versions.
TEST(Qsf, OpensCommittedFiles) {
  const std::string data = source_dir() + "/tests/data/";
  const std::pair<const char*, const char*> files[] = {
      {"none", "llama4-chunks"}, {"lz4", "llama4-chunks"}, {"zstd", "qwen3moe"}};
  const std::vector<int32_t> tokens = {1, 17, 29, 45, 31, 8, 12, 50};
  for (const auto& [name, made_of] : files) {
    const std::vector<float> wanted = logits_of(data + "families/" + made_of + ".gguf", tokens, 0);
    ASSERT_FALSE(wanted.empty());
    EXPECT_EQ(logits_of(data + "qsf/" + name + ".qsf", tokens, 0), wanted) << name;
  }
}

TEST(Qsf, GivesEveryFamilysLogits) {
  const std::string folder = fixture_folder("families");
  if (folder.empty()) GTEST_SKIP() << "no ../shared/fixtures";
  const std::vector<std::string> runs = further_families();
  size_t n = 0;
  for (const Reference& reference : read_manifest(folder, &runs)) {
    // Encoders, and decoders of encoder-decoder models, have tests of their own.
    if (!reference.causal || reference.name.starts_with("t5") || n++ % (kSanitized ? 16 : 4) != 0)
      continue;
    expect_same(reference.path, {reference.prompt.begin(), reference.prompt.begin() + 9},
                {n % 8 == 1 ? Packing::kNone : Packing::kZstd});
  }
  EXPECT_GE(n, 11u);  // in tests/data; more in ../shared
}

}  // namespace
}  // namespace sluice::test
