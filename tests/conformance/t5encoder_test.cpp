// The encoder of a T5 model alone. A file with only the fixture's encoder gives for every token
// bit-identically what the full model's decoder reads; that model's logits match the reference.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "embed_util.h"
#include "gguf/metadata_writer.h"
#include "gguf/write.h"

namespace sluice::test {
namespace {

class T5Encoder : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string folder = shared_folder("families");
    if (folder.empty()) GTEST_SKIP() << "../shared/fixtures/families is absent";
    whole_ = folder + "/" + GetParam() + ".gguf";
    std::string name = (std::filesystem::temp_directory_path() / "sluice-t5-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    scratch_ = name;
    encoder_ = scratch_ / "encoder.gguf";
    write_encoder();
  }
  void TearDown() override {
    if (!scratch_.empty()) std::filesystem::remove_all(scratch_);
  }
  // Writes the file without the decoder's tensors, with its keys under the encoder's architecture.
  void write_encoder() {
    auto from = native::read_header(whole_, {});
    ASSERT_TRUE(from.ok()) << from.status().message();
    gguf::Header to;
    gguf::MetadataWriter writer(&to);
    to.version = 3;
    to.alignment = 32;
    for (const gguf::KeyValue& kv : from->header.metadata) {
      const std::string key(kv.key);
      if (key.starts_with("t5.decoder_")) continue;
      if (key == "general.architecture") {
        writer.string(key, "t5encoder");
      } else if (key.starts_with("t5.")) {
        to.metadata.push_back({writer.keep_text("t5encoder." + key.substr(3)), kv.value});
      } else {
        to.metadata.push_back(kv);
      }
    }
    std::vector<uint64_t> offsets;
    for (const gguf::Tensor& t : from->header.tensors) {
      if (t.name.starts_with("dec.")) continue;
      offsets.push_back(t.offset);
      to.tensors.push_back(t);
    }
    std::ifstream in(whole_, std::ios::binary);
    std::string file = gguf::place_and_write(&to);
    for (size_t i = 0; i < offsets.size(); ++i) {
      const gguf::Tensor& t = to.tensors[i];
      file.resize(std::max<size_t>(file.size(), t.offset + t.bytes));
      in.seekg(static_cast<std::streamoff>(offsets[i]));
      in.read(file.data() + t.offset, static_cast<std::streamsize>(t.bytes));
    }
    std::ofstream(encoder_, std::ios::binary) << file;
  }
  static session::EngineOptions options(int threads) {
    session::EngineOptions options;
    options.n_ctx = 64;
    options.n_threads = threads;
    return options;
  }
  // What the full model's decoder reads: the encoder's rows after its final norm.
  std::vector<float> encoded(const std::vector<int32_t>& text) {
    Opened opened = open_model(whole_, options(1));
    if (opened.session == nullptr) return {};
    std::vector<float> out;
    opened.session->context().executor->observe([&](const char* name, int32_t ne0, int32_t ne1,
                                                    int32_t rows, const float* data,
                                                    int64_t stride) {
      // The decoder's final norm has the same name, but comes later.
      if (!out.empty() || std::string_view(name) != "result_norm.MUL") return;
      for (int32_t r = 0; r < rows; ++r) {
        out.insert(out.end(), data + r * stride, data + r * stride + int64_t{ne0} * ne1);
      }
    });
    std::vector<int32_t> tokens;
    for (const int32_t token : text) tokens.push_back(~token);  // a source token
    tokens.push_back(0);
    const Result<int32_t> begun = opened.session->sync(tokens);
    EXPECT_TRUE(begun.ok()) << begun.status().message();
    EXPECT_TRUE(opened.model->run(*opened.session).ok());
    return out;
  }

  std::string whole_;
  std::filesystem::path scratch_, encoder_;
};

TEST_P(T5Encoder, GivesTheRowsThatTheFullModelsDecoderReads) {
  const Texts texts = {{5, 40, 7, 99, 40, 8, 101, 3, 77, 1}, {9, 1}};
  embed::Options rows;
  rows.pooling = model::Pooling::kNone;
  rows.normalize = false;
  std::vector<float> expected;
  for (const auto& text : texts) {
    const std::vector<float> one = encoded(text);
    ASSERT_EQ(one.size(), text.size() * 32);
    expected.insert(expected.end(), one.begin(), one.end());
  }
  for (const int threads : {1, 2}) {
    Opened opened = open_model(encoder_.string(), options(threads));
    ASSERT_NE(opened.session, nullptr);
    EXPECT_EQ(embed(opened, texts, rows), expected) << threads;
  }
  session::EngineOptions small = options(1);
  small.memory_budget = smallest_budget(encoder_.string(), small);
  Opened opened = open_model(encoder_.string(), small);
  ASSERT_NE(opened.session, nullptr);
  EXPECT_EQ(embed(opened, texts, rows), expected);
}

INSTANTIATE_TEST_SUITE_P(Files, T5Encoder, testing::Values("t5", "t5-gated"), [](const auto& info) {
  return info.param == std::string("t5") ? "t5" : "gated";
});

}  // namespace
}  // namespace sluice::test
