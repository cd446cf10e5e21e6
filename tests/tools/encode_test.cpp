// `sluice encode`: its file, and what it refuses. The library's tests compare every family.
#include <nlohmann/json.hpp>

#include "program_util.h"

namespace sluice::tools {
namespace {

class EncodeCommand : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    std::ofstream(at("prompt")) << "a <__media__> b";
  }
  [[nodiscard]] static std::string data(const std::string& name) {
    return sluice::test::source_dir() + "/tests/data/" + name;
  }
  // With a model of 48 values; the prompt has one picture.
  [[nodiscard]] Ran encode(const std::string& projector,
                           const std::vector<std::string>& more) const {
    std::vector<std::string> all = {"encode",        model_,       "--projector", projector,
                                    "--prompt-file", at("prompt"), "--out",       at("out")};
    all.insert(all.end(), more.begin(), more.end());
    return run(all);
  }
  void expect_refused(const std::string& projector, const std::vector<std::string>& more,
                      const std::string& code, const std::string& says) const {
    const Ran ran = encode(projector, more);
    EXPECT_GT(ran.status, 0);
    EXPECT_EQ(ran.out, "");
    EXPECT_NE(ran.err.find("[" + code + "]"), std::string::npos) << ran.err;
    EXPECT_NE(ran.err.find(says), std::string::npos) << ran.err;
    EXPECT_FALSE(std::filesystem::exists(at("out")));
  }

  std::string model_ = data("families/smollm3.gguf");
};

TEST_F(EncodeCommand, WritesTheProjectorsOutput) {
  const std::string image = data("vision/wide.bmp");
  const Ran ran = encode(data("vision/llava.mmproj.gguf"), {"--image", image});
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(nlohmann::json::parse(ran.out),
            (nlohmann::json{{"tokens", 16}, {"dimensions", 48}, {"out", at("out")}}));
  EXPECT_LT(error_of(floats_of(at("out")), floats_of(data("vision/llava.one.embd.f32"))), 1e-9);
  const std::string resident = bytes_of(at("out"));
  ASSERT_EQ(encode(data("vision/llava.mmproj.gguf"),
                   {"--image", image, "--memory-budget", "200K", "--threads", "1"})
                .status,
            0);
  EXPECT_EQ(bytes_of(at("out")), resident);
}

TEST_F(EncodeCommand, WritesPicturesOneBehindAnother) {
  std::ofstream(at("prompt")) << "<__media__> and <__media__>";
  const std::vector<std::string> wide = {"--image", data("vision/wide.bmp")};
  const std::vector<std::string> small = {"--image", data("pictures/rgb.bmp")};
  const std::string projector = data("vision/qwen3vl.mmproj.gguf");
  std::vector<std::string> both = wide;
  both.insert(both.end(), small.begin(), small.end());
  EXPECT_NE(encode(projector, both).err.find("BAD_SHAPE"), std::string::npos);
  std::ofstream(at("deep.gguf")) << with_key(bytes_of(model_), "smollm3.n_deepstack_layers", 2);
  model_ = at("deep.gguf");
  ASSERT_EQ(encode(projector, both).status, 0);
  const std::string together = bytes_of(at("out"));
  std::ofstream(at("prompt")) << "<__media__>";
  std::string alone;
  for (const auto& one : {wide, small}) {
    ASSERT_EQ(encode(projector, one).status, 0);
    alone += bytes_of(at("out"));
  }
  EXPECT_GT(alone.size(), 0u);
  EXPECT_TRUE(together == alone);
}

TEST_F(EncodeCommand, RefusesByName) {
  const std::string llava = data("vision/llava.mmproj.gguf");
  const std::string image = data("vision/wide.bmp");
  expect_refused(llava, {"--audio", "a.wav"}, "NOT_SUPPORTED", "--audio");
  expect_refused(llava, {}, "INVALID_ARGUMENT", "<__media__>");
  expect_refused(llava, {"--image", at("prompt")}, "INVALID_ARGUMENT", "not a PNG");
  expect_refused(llava, {"--image", image, "--memory-budget", "50K"}, "BUDGET_TOO_SMALL",
                 "needs a memory budget of");
  expect_refused(llava, {"--image", image, "--kernels", "abacus"}, "INVALID_ARGUMENT", "abacus");
  expect_refused(data("vision/gemma3.mmproj.gguf"), {"--image", image}, "BAD_SHAPE",
                 "another model");
  expect_refused(data("families/smollm3.gguf"), {"--image", image}, "UNSUPPORTED_ARCHITECTURE",
                 "not a projector");
  // Of this projector there is only a header.
  const std::string header =
      sluice::test::source_dir() + "/tests/fuzz/corpus/picture/projector-mlp";
  expect_refused(header, {"--image", image}, "MISSING_TENSOR", "v.patch_embd.weight");
  expect_refused(at("nothing"), {"--image", image}, "NOT_FOUND", "nothing");
}

}  // namespace
}  // namespace sluice::tools
