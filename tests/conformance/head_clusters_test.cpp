// Clustered output head: only a part of the head is multiplied. Computed logits are bit-identical
// to the full head's, the others are below the maximum, and "exact" always has the full head's
// maximum. Nothing depends on the budget, threads or other rows in the batch.
#include "approximate/head_clusters.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "../paths.h"
#include "../sanitized.h"
#include "convert/convert.h"
#include "file_sink_util.h"
#include "fixtures_util.h"
#include "gguf/head_clusters.h"
#include "metadata_change_util.h"
#include "session/option_texts.h"

namespace sluice::test {
namespace {

using Wanted = session::HeadPolicy::Kind;

const std::vector<int32_t> kSequence = {1, 17, 29, 45, 31, 8, 12, 77, 5, 9, 200, 41};

std::string sample_of(const std::string& type) {
  return source_dir() + "/examples/models/sluice-tales-" + type + ".gguf";
}

class HeadClusters : public testing::TestWithParam<const char*> {
 protected:
  ~HeadClusters() override {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  // Copies the sample model, or an earlier copy, to this test's file.
  void make(bool clusters, const char* type = "", const std::string& from = {}, bool qsf = false) {
    path_ = testing::TempDir() + "clusters-" + std::to_string(++made_) + GetParam() +
            (qsf ? ".qsf" : ".gguf");
    Result<native::ModelHeader> model =
        native::read_header(from.empty() ? sample_of(GetParam()) : from, {});
    ASSERT_TRUE(model.ok()) << model.status().message();
    const Result<convert::Source> source = convert::Source::create(model->header, model->sources);
    ASSERT_TRUE(source.ok());
    convert::Options options;
    options.cluster_head = clusters;
    options.type = type;
    options.threads = 2;
    FileSink file(path_);
    const Result<convert::Report> made =
        qsf ? convert::to_qsf(*source, options, convert::Packing::kNone, &file)
            : convert::to_gguf(*source, options, &file);
    ASSERT_TRUE(made.ok()) << made.status().message();
  }
  [[nodiscard]] session::EngineOptions options(Wanted kind, int32_t clusters = 8) const {
    session::EngineOptions o;
    o.n_ctx = 64;
    o.logits_rows = o.n_batch = 12;
    o.n_threads = 2;
    o.approximate.head.kind = kind;
    o.approximate.head.clusters = clusters;
    return o;
  }
  std::vector<float> logits(const session::EngineOptions& o, size_t step = 12,
                            session::HeadCounts* counts = nullptr) const {
    Opened opened = open_model(path_, o);
    if (opened.session == nullptr) return {};
    std::vector<float> out = all_logits(opened, kSequence, step);
    if (counts != nullptr) *counts = opened.model->engine().approximate().head;
    return out;
  }

  std::string path_;

 private:
  static int made_;
};
int HeadClusters::made_ = 0;

int64_t largest(const std::vector<float>& logits, size_t row, size_t width) {
  const float* at = logits.data() + row * width;
  return std::max_element(at, at + width) - at;
}

TEST_P(HeadClusters, EqualTheFullHeadIfNotRequested) {
  make(false);
  const std::vector<float> wanted = logits(options(Wanted::kByRatio));
  make(true);
  EXPECT_EQ(logits(options(Wanted::kByRatio)), wanted);
  EXPECT_EQ(logits(options(Wanted::kWhole)), wanted);
  session::HeadCounts counts;
  EXPECT_EQ(logits(options(Wanted::kSome, session::kMaxHeadClusters), 12, &counts), wanted);  // all
  EXPECT_EQ(counts.known, kSequence.size());
  ASSERT_FALSE(wanted.empty());
}

TEST_P(HeadClusters, ComputeTheChosenClustersAndStayBelowTheirMaximum) {
  make(true);
  const std::vector<float> whole = logits(options(Wanted::kWhole));
  ASSERT_FALSE(whole.empty());
  const size_t width = whole.size() / kSequence.size();
  for (const int32_t clusters : {1, 8, 30}) {
    SCOPED_TRACE(clusters);
    session::HeadCounts counts;
    const std::vector<float> some = logits(options(Wanted::kSome, clusters), 1, &counts);
    ASSERT_EQ(some.size(), whole.size());
    uint64_t same = 0;
    for (size_t row = 0; row < kSequence.size(); ++row) {
      const auto best = static_cast<size_t>(largest(some, row, width));
      EXPECT_EQ(some[row * width + best], whole[row * width + best]);
      for (size_t i = row * width; i < (row + 1) * width; ++i) same += some[i] == whole[i];
    }
    EXPECT_EQ(counts.rows, kSequence.size());
    EXPECT_GE(same, counts.products);
    EXPECT_GT(counts.products, 0u);
    EXPECT_LT(counts.products, counts.rows * width * 2 / 3);
  }
}

TEST_P(HeadClusters, KnowTheMaximumWithExact) {
  make(true);
  const std::vector<float> whole = logits(options(Wanted::kWhole));
  ASSERT_FALSE(whole.empty());
  const size_t width = whole.size() / kSequence.size();
  const auto right = [&](const std::vector<float>& some) {
    uint64_t n = 0;
    for (size_t row = 0; row < kSequence.size(); ++row)
      n += largest(some, row, width) == largest(whole, row, width);
    return n;
  };
  for (const int32_t clusters : {1, 8, 60}) {
    session::HeadCounts counts;
    const std::vector<float> some = logits(options(Wanted::kSome, clusters), 12, &counts);
    EXPECT_LE(counts.known, right(some)) << clusters;
  }
  session::HeadCounts counts;
  const std::vector<float> exact = logits(options(Wanted::kExact), 1, &counts);
  EXPECT_EQ(right(exact), kSequence.size());
  EXPECT_EQ(counts.known, kSequence.size());
}

TEST_P(HeadClusters, DependOnTheRowOnly) {
  make(true);
  for (const Wanted kind : {Wanted::kSome, Wanted::kExact}) {
    session::EngineOptions o = options(kind);
    const std::vector<float> wanted = logits(o, 1);
    ASSERT_FALSE(wanted.empty());
    EXPECT_EQ(logits(o, 3), wanted);
    EXPECT_EQ(logits(o, 12), wanted);
    o.n_threads = 1;
    EXPECT_EQ(logits(o, 1), wanted);
    o.n_threads = 2;
    o.logits_rows = o.n_batch = 1;
    o.memory_budget = smallest_budget(path_, o);
    const Opened opened = open_model(path_, o);
    ASSERT_TRUE(opened.model);
    EXPECT_GT(opened.model->engine().plan().weights.streamed_bytes, 0u);
    EXPECT_LE(opened.model->engine().plan().total(), o.memory_budget);
    EXPECT_EQ(logits(o, 1), wanted);
  }
}

// QSF also stores output vectors by cluster: the same logits from fewer bytes if they stream.
TEST_P(HeadClusters, AreContiguousInQsf) {
  make(true);
  const std::string plain = path_;
  std::vector<std::vector<float>> wanted;
  std::vector<session::EngineOptions> kinds = {options(Wanted::kWhole), options(Wanted::kByRatio),
                                               options(Wanted::kExact)};
  for (const int32_t n : {1, 4, 30, 255}) kinds.push_back(options(Wanted::kSome, n));
  for (const session::EngineOptions& o : kinds) wanted.push_back(logits(o, 1));
  make(true, "", {}, /*qsf=*/true);
  for (size_t i = 0; i < kinds.size(); ++i) {
    SCOPED_TRACE(i);
    session::EngineOptions o = kinds[i];
    for (const size_t step : {size_t{1}, size_t{3}, size_t{12}}) {
      EXPECT_EQ(logits(o, step), wanted[i]) << step;
    }
    o.min_batch = 12;
    const uint64_t least = smallest_budget(path_, o);
    for (const uint64_t budget : {least, least + 50000, least + 200000}) {
      for (const auto reads : {residency::DirectReads::kNone, residency::DirectReads::kAlways,
                               residency::DirectReads::kOnceLocal}) {
        o.memory_budget = budget;
        o.direct_reads = reads;
        o.n_threads = 2;
        EXPECT_EQ(logits(o, 1), wanted[i]) << budget;
        EXPECT_EQ(logits(o, 12), wanted[i]) << budget;
        o.n_threads = 1;
        EXPECT_EQ(logits(o, 3), wanted[i]) << budget;
      }
    }
  }
  std::filesystem::remove(plain);
}

TEST_P(HeadClusters, InQsfReadOnlyTheChosenClusters) {
  make(true);
  const std::string plain = path_;
  make(true, "", {}, /*qsf=*/true);
  for (const auto reads : {residency::DirectReads::kNone, residency::DirectReads::kAlways}) {
    uint64_t read[2] = {};
    for (const bool by_cluster : {false, true}) {
      session::EngineOptions o = options(Wanted::kSome, 2);
      o.logits_rows = 1;
      o.n_batch = 1;
      o.direct_reads = reads;
      const std::string& path = by_cluster ? path_ : plain;
      o.memory_budget = smallest_budget(path, o);
      Opened opened = open_model(path, o);
      ASSERT_NE(opened.session, nullptr);
      const residency::Residency& r = opened.model->engine().residency();
      EXPECT_LE(opened.model->engine().plan().total(), o.memory_budget);
      static_cast<void>(all_logits(opened, {1, 5}, 1));
      const uint64_t before = r.counts().filled_bytes;
      static_cast<void>(all_logits(opened, kSequence, 1));
      read[by_cluster] = (r.counts().filled_bytes - before) / kSequence.size();
      if (!by_cluster) continue;
      const model::Program& p = opened.model->engine().program();
      const model::Mat& head = p.mats[static_cast<size_t>(p.head)];
      EXPECT_EQ(head.name, gguf::kHeadByCluster);
      // At most two whole units per cluster.
      EXPECT_LT(read[1] + static_cast<uint64_t>(head.rows * head.row_bytes) * 3 / 4, read[0]);
    }
  }
  std::filesystem::remove(plain);
}

TEST_P(HeadClusters, ConvertFromQsfToPlainGguf) {
  make(false);
  const std::vector<float> wanted = logits(options(Wanted::kWhole));
  make(true, "", {}, /*qsf=*/true);
  const std::string first = path_;
  make(false, "", first);
  Result<native::ModelHeader> model = native::read_header(path_, {});
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(model->header.find_tensor(gguf::kHeadByCluster), nullptr);
  EXPECT_EQ(logits(options(Wanted::kWhole)), wanted);
  std::filesystem::remove(first);
}

TEST_P(HeadClusters, OfWrongShapeAreErrors) {
  make(true, "", {}, /*qsf=*/true);
  for (int change = 0; change < 3; ++change) {
    Result<native::ModelHeader> model = native::read_header(path_, {});
    ASSERT_TRUE(model.ok());
    for (gguf::Tensor& t : model->header.tensors) {
      if (t.name != gguf::kHeadByCluster) continue;
      if (change == 0) t.ne[1] -= 1;
      if (change == 1) t.ne[0] *= 2;
      if (change == 2) t.type = gguf::TensorType::kQ6_K;
    }
    for (const Wanted kind : {Wanted::kSome, Wanted::kExact}) {
      EXPECT_EQ(session::inspect(model->header, options(kind)).status().code(), Code::kBadHeader);
    }
    EXPECT_TRUE(session::inspect(model->header, options(Wanted::kWhole)).ok());
  }
}

// Another quantization type has other vectors, so old clusters are dropped.
TEST_P(HeadClusters, BelongToTheVectorsInTheFile) {
  make(true);
  const std::string first = path_;
  make(false, "", first);
  EXPECT_FALSE(logits(options(Wanted::kSome)).empty());
  std::filesystem::remove(path_);
  make(false, "q5_0", first);
  Result<native::ModelHeader> model = native::read_header(path_, {});
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(session::inspect(model->header, options(Wanted::kSome)).status().code(),
            Code::kInvalidArgument);
  std::filesystem::remove(path_);
  make(true, "q5_0", first);
  EXPECT_FALSE(logits(options(Wanted::kExact)).empty());
  std::filesystem::remove(first);
}

TEST_P(HeadClusters, WithWrongValuesAreErrors) {
  make(true);
  const auto refused = [this](std::initializer_list<std::string_view> keys,
                              const MetadataChange& change) {
    Result<native::ModelHeader> model = native::read_header(path_, {});
    const std::deque<std::string> own = change_values(&model->header, keys, change);
    const Status status = session::inspect(model->header, options(Wanted::kExact)).status();
    EXPECT_EQ(own.size(), keys.size());
    return status.code() == Code::kBadHeader;
  };
  for (const std::string_view key : {gguf::kHeadClusterOf, gguf::kHeadCentres, gguf::kHeadRadii}) {
    for (const MetadataChange& change : {kShorter, kEmpty, kOfAnotherType}) {
      EXPECT_TRUE(refused({key}, change)) << key;
    }
  }
  for (const float wrong : {NAN, INFINITY, -1.0f}) {
    EXPECT_TRUE(refused({gguf::kHeadRadii}, [wrong](std::string* bytes, gguf::Value*) {
      std::memcpy(bytes->data() + 8, &wrong, 4);
    }));
  }
  EXPECT_TRUE(refused({gguf::kHeadCentres}, [](std::string* bytes, gguf::Value*) {
    (*bytes)[0] = (*bytes)[1] = '\xff';  // a scale of NaN
  }));
  // One cluster fewer than tokens refer to.
  EXPECT_TRUE(
      refused({gguf::kHeadCentres, gguf::kHeadRadii}, [](std::string* bytes, gguf::Value* value) {
        bytes->resize(bytes->size() / 256 * 255);
        value->count = value->count / 256 * 255;
      }));
  EXPECT_TRUE(
      refused({gguf::kHeadType}, [](std::string* bytes, gguf::Value*) { (*bytes)[0] = 30; }));
  EXPECT_FALSE(refused({}, kShorter));
}

const std::vector<const char*> kTypes =
    kSanitized ? std::vector<const char*>{"Q4_0"} : std::vector<const char*>{"Q8_0", "Q4_0", "F16"};

INSTANTIATE_TEST_SUITE_P(Types, HeadClusters, testing::ValuesIn(kTypes),
                         [](const auto& one) { return std::string(one.param); });

TEST(HeadPolicy, IsANumberOrAWord) {
  EXPECT_EQ(session::parse_head_policy("")->kind, Wanted::kByRatio);
  EXPECT_EQ(session::parse_head_policy("off")->kind, Wanted::kWhole);
  EXPECT_EQ(session::parse_head_policy("exact")->kind, Wanted::kExact);
  EXPECT_EQ(session::parse_head_policy("256")->clusters, 256);
  for (const char* wrong : {"0", "257", "-1", "8x", " 8", "all", "99999999999"}) {
    EXPECT_EQ(session::parse_head_policy(wrong).status().code(), Code::kInvalidArgument) << wrong;
  }
}

}  // namespace
}  // namespace sluice::test
