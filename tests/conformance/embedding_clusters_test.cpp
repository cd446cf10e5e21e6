// Token embeddings stored as cluster centres and residuals. Logits are bit-identical to those of
// the combined rows for any budget, threads and passes; converting combines them again.
#include "gguf/embedding_clusters.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "../paths.h"
#include "convert/convert.h"
#include "file_sink_util.h"
#include "fixtures_util.h"
#include "metadata_change_util.h"

namespace sluice::test {
namespace {

const std::vector<int32_t> kClusterPrompt = {1, 17, 29, 45, 31, 8, 12, 77, 5, 9, 200, 41};

class EmbeddingClusters : public testing::Test {
 protected:
  ~EmbeddingClusters() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  [[nodiscard]] std::string at(const std::string& name) const { return folder_ + "/" + name; }
  static Result<convert::Report> convert(const std::string& from, const std::string& to,
                                         convert::Options options) {
    Result<native::ModelHeader> model = native::read_header(from, {});
    if (!model.ok()) return model.status();
    const Result<convert::Source> source = convert::Source::create(model->header, model->sources);
    if (!source.ok()) return source.status();
    options.threads = 2;
    FileSink file(to);
    return to.ends_with(".qsf") ? convert::to_qsf(*source, options, convert::Packing::kNone, &file)
                                : convert::to_gguf(*source, options, &file);
  }
  static session::EngineOptions options() {
    session::EngineOptions o;
    o.n_ctx = 64;
    o.logits_rows = o.n_batch = 12;
    o.n_threads = 2;
    return o;
  }
  static std::vector<float> logits(const std::string& path, const session::EngineOptions& o,
                                   size_t step = 12) {
    Opened opened = open_model(path, o);
    return opened.session == nullptr ? std::vector<float>()
                                     : all_logits(opened, kClusterPrompt, step);
  }

  const std::string sample_ = source_dir() + "/examples/models/sluice-tales-F16.gguf";
  const std::string folder_ = [] {
    std::string folder = testing::TempDir() + "embedding-" + std::to_string(getpid());
    std::filesystem::create_directories(folder);
    return folder;
  }();
};

TEST_F(EmbeddingClusters, GiveTheLogitsOfTheCombinedRows) {
  for (const char* type : {"q4_0", "q3_k", "f16"}) {
    SCOPED_TRACE(type);
    convert::Options parts;
    parts.cluster_embedding = type;
    const Result<convert::Report> made = convert(sample_, at("parts.qsf"), parts);
    ASSERT_TRUE(made.ok()) << made.status().message();
    convert::Options whole;
    whole.tensor_types = {{"token_embd", "f32"}};
    ASSERT_TRUE(convert(at("parts.qsf"), at("whole.gguf"), whole).ok());
    const std::vector<float> wanted = logits(at("whole.gguf"), options());
    ASSERT_FALSE(wanted.empty());
    for (const size_t step : {size_t{1}, size_t{5}, size_t{12}}) {
      EXPECT_EQ(logits(at("parts.qsf"), options(), step), wanted) << step;
    }
    session::EngineOptions o = options();
    o.n_threads = 1;
    EXPECT_EQ(logits(at("parts.qsf"), o), wanted);
    o.logits_rows = o.n_batch = 1;
    o.memory_budget = smallest_budget(at("parts.qsf"), o);
    const Opened opened = open_model(at("parts.qsf"), o);
    ASSERT_TRUE(opened.model);
    const session::Engine& engine = opened.model->engine();
    EXPECT_FALSE(engine.plan().weights.embedding_resident);
    EXPECT_GE(engine.plan().total(), engine.program().approximated.bytes);
    EXPECT_LE(engine.plan().total(), o.memory_budget);
    EXPECT_GE(engine.program().approximated.bytes, 2 * 272u + 1152);
    EXPECT_EQ(logits(at("parts.qsf"), o, 1), wanted);
  }
}

TEST_F(EmbeddingClusters, LoseLessThanPlainRowsOfTheType) {
  convert::Options parts, whole;
  parts.cluster_embedding = "q4_0";
  whole.tensor_types = {{"token_embd", "q4_0"}};
  const Result<convert::Report> in_parts = convert(sample_, at("parts.qsf"), parts);
  const Result<convert::Report> in_one = convert(sample_, at("whole.gguf"), whole);
  ASSERT_TRUE(in_parts.ok() && in_one.ok());
  const auto line = [](const convert::Report& report, std::string_view name) {
    for (const convert::TensorReport& t : report.tensors) {
      if (t.name == name) return t;
    }
    ADD_FAILURE() << name;
    return convert::TensorReport{};
  };
  const convert::TensorReport rest = line(*in_parts, gguf::kEmbeddingRest);
  EXPECT_LT(rest.mean_squared_error * 2, line(*in_one, "token_embd.weight").mean_squared_error);
  EXPECT_GT(rest.mean_squared_error, 0);
  EXPECT_EQ(rest.to, gguf::TensorType::kQ4_0);
  // The head must be a matrix, so it becomes one of its own, unchanged.
  EXPECT_EQ(line(*in_parts, "output.weight").to, gguf::TensorType::kF16);
}

TEST_F(EmbeddingClusters, WorkWithAClusteredHead) {
  convert::Options both;
  both.type = "q8_0";
  both.cluster_embedding = "q4_0";
  both.cluster_head = true;
  ASSERT_TRUE(convert(sample_, at("both.qsf"), both).ok());
  session::EngineOptions o = options();
  const std::vector<float> whole = logits(at("both.qsf"), o);
  o.approximate.head.kind = session::HeadPolicy::Kind::kSome;
  o.approximate.head.clusters = session::kMaxHeadClusters;
  EXPECT_EQ(logits(at("both.qsf"), o), whole);
  o.approximate.head.clusters = 4;
  EXPECT_NE(logits(at("both.qsf"), o), whole);
  ASSERT_FALSE(whole.empty());
}

TEST_F(EmbeddingClusters, OfAnEncoderNeedNoHead) {
  const std::string encoder = shared_folder("embeddings") + "/bert-cls.gguf";
  if (!std::filesystem::exists(encoder)) GTEST_SKIP() << "no ../shared/fixtures";
  convert::Options parts;
  parts.cluster_embedding = "q8_0";
  const Result<convert::Report> made = convert(encoder, at("encoder.qsf"), parts);
  ASSERT_TRUE(made.ok()) << made.status().message();
  for (const convert::TensorReport& t : made->tensors) EXPECT_NE(t.name, "output.weight");
  EXPECT_NE(open_model(at("encoder.qsf"), options()).model, nullptr);
  parts.cluster_head = true;
  EXPECT_EQ(convert(encoder, at("encoder.qsf"), parts).status().code(), Code::kInvalidArgument);
}

TEST_F(EmbeddingClusters, RequireQsfAndNoTargetSize) {
  convert::Options parts;
  parts.cluster_embedding = "q4_0";
  EXPECT_EQ(convert(sample_, at("no.gguf"), parts).status().code(), Code::kInvalidArgument);
  parts.target_bytes = 1 << 20;
  EXPECT_EQ(convert(sample_, at("no.qsf"), parts).status().code(), Code::kInvalidArgument);
  parts.target_bytes = 0;
  parts.cluster_embedding = "q4";
  EXPECT_EQ(convert(sample_, at("no.qsf"), parts).status().code(), Code::kInvalidArgument);
}

TEST_F(EmbeddingClusters, WithWrongValuesAreErrors) {
  convert::Options parts;
  parts.cluster_embedding = "q4_0";
  ASSERT_TRUE(convert(sample_, at("parts.qsf"), parts).ok());
  const auto code_of = [this](std::string_view key, const MetadataChange& change) {
    Result<native::ModelHeader> model = native::read_header(at("parts.qsf"), {});
    const std::deque<std::string> own = change_values(&model->header, {key}, change);
    EXPECT_EQ(own.size(), key.empty() ? 0u : 1u);
    const Code code = session::inspect(model->header, options()).status().code();
    EXPECT_EQ(convert::Source::create(model->header, model->sources).status().code(), code);
    return code;
  };
  for (const std::string_view key : {gguf::kEmbeddingClusterOf, gguf::kEmbeddingCentres}) {
    for (const MetadataChange& change : {kShorter, kEmpty, kOfAnotherType}) {
      EXPECT_EQ(code_of(key, change), Code::kBadHeader) << key;
    }
  }
  EXPECT_EQ(code_of(gguf::kEmbeddingClusterOf,
                    [](std::string* bytes, gguf::Value*) { bytes->back() = '\xff'; }),
            Code::kBadHeader);
  EXPECT_EQ(code_of(gguf::kEmbeddingCentres,
                    [](std::string* bytes, gguf::Value*) {
                      (*bytes)[0] = (*bytes)[1] = '\xff';  // a scale of NaN
                    }),
            Code::kBadHeader);
  EXPECT_EQ(code_of("", kShorter), Code::kOk);

  Result<native::ModelHeader> model = native::read_header(at("parts.qsf"), {});
  ASSERT_TRUE(model.ok());
  std::erase_if(model->header.tensors,
                [](const gguf::Tensor& t) { return t.name == "output.weight"; });
  ASSERT_TRUE(gguf::index_tensors(&model->header).ok());
  EXPECT_EQ(session::inspect(model->header, options()).status().code(), Code::kMissingTensor);
}

}  // namespace
}  // namespace sluice::test
