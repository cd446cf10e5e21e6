// `sluice layout`: chunks as JSON, and what it refuses. The library's tests compare every family.
#include <nlohmann/json.hpp>

#include "program_util.h"

namespace sluice::tools {
namespace {

class LayoutCommand : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    std::ofstream(at("prompt")) << "a <__media__> b";
  }
  // On a model without pictures of its own, and a projector of tiles of 336 pixels.
  [[nodiscard]] Ran layout(const std::vector<std::string>& more) const {
    const std::string tests = sluice::test::source_dir() + "/tests/";
    std::vector<std::string> all = {"layout",        tests + "data/families/llama-biases.gguf",
                                    "--projector",   tests + "fuzz/corpus/picture/projector-mlp",
                                    "--prompt-file", at("prompt")};
    all.insert(all.end(), more.begin(), more.end());
    return run(all);
  }
  [[nodiscard]] static std::string picture(const std::string& name) {
    return sluice::test::source_dir() + "/tests/data/pictures/" + name;
  }
  void expect_refused(const std::vector<std::string>& more, const std::string& code,
                      const std::string& says) const {
    const Ran ran = layout(more);
    EXPECT_GT(ran.status, 0);
    EXPECT_EQ(ran.out, "");
    EXPECT_NE(ran.err.find("[" + code + "]"), std::string::npos) << ran.err;
    EXPECT_NE(ran.err.find(says), std::string::npos) << ran.err;
  }
};

TEST_F(LayoutCommand, PrintsChunks) {
  const Ran ran = layout({"--image", picture("rgb.bmp")});
  ASSERT_EQ(ran.status, 0) << ran.err;
  const nlohmann::json wanted = {
      {"chunks",
       {{{"type", "text"}, {"position", 0}, {"positions", 4}, {"tokens", {1, 259, 262, 259}}},
        {{"type", "image"}, {"position", 4}, {"positions", 576}, {"tokens", 576}},
        {{"type", "text"}, {"position", 580}, {"positions", 3}, {"tokens", {259, 259, 279}}}}}};
  EXPECT_EQ(nlohmann::json::parse(ran.out), wanted);
}

TEST_F(LayoutCommand, RefusesByName) {
  const std::string image = picture("rgb.bmp");
  expect_refused({"--audio", "a.wav"}, "NOT_SUPPORTED", "--audio");
  expect_refused({}, "INVALID_ARGUMENT", "<__media__>");
  expect_refused({"--image", image, "--image", image}, "INVALID_ARGUMENT", "2 pictures");
  expect_refused({"--image", at("nothing")}, "NOT_FOUND", "nothing");
  expect_refused({"--image", at("prompt")}, "INVALID_ARGUMENT", "not a PNG");
  expect_refused({"--image", image, "--image-tokens", "6:5"}, "INVALID_ARGUMENT", "6:5");
  expect_refused({"--image", image, "--image-tokens", "5:6"}, "NOT_SUPPORTED", "mlp");
  expect_refused({"--image", image, "--image-decode", "up"}, "INVALID_ARGUMENT", "up");
}

}  // namespace
}  // namespace sluice::tools
