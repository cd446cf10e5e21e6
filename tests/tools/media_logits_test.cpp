// `sluice logits --projector`: the logits of ../shared/fixtures/vision at any budget, and what it
// refuses.
#include <nlohmann/json.hpp>
#include <regex>

#include "program_util.h"

namespace sluice::tools {
namespace {

namespace fs = std::filesystem;

const std::string kVision = sluice::test::source_dir() + "/../shared/fixtures/vision/";

class MediaLogits : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    if (!fs::exists(kVision)) GTEST_SKIP() << "no ../shared/fixtures/vision";
  }
  [[nodiscard]] nlohmann::json first_case(const std::string& family) const {
    std::ifstream in(kVision + "manifest.json");
    for (const nlohmann::json& entry : nlohmann::json::parse(in)) {
      if (entry["name"] == family) return entry["cases"][0];
    }
    ADD_FAILURE() << family;
    return {};
  }
  [[nodiscard]] Ran logits(const std::string& family, std::vector<std::string> more) const {
    std::vector<std::string> all = {"logits",        kVision + family + ".gguf",
                                    "--projector",   kVision + family + ".mmproj.gguf",
                                    "--prompt-file", at("prompt"),
                                    "--out",         at("logits")};
    all.insert(all.end(), more.begin(), more.end());
    return run(all);
  }
};

TEST_F(MediaLogits, MatchTheReferenceAtAnyBudget) {
  for (const char* family : {"qwen3vl", "gemma3", "llava"}) {
    const nlohmann::json entry = first_case(family);
    std::ofstream(at("prompt")) << entry["prompt"].get<std::string>();
    const std::string image = kVision + entry["media"][0].get<std::string>();
    const Ran ran = logits(family, {"--image", image});
    ASSERT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(nlohmann::json::parse(ran.out)["tokens"], entry["n_logits"]);
    const std::vector<float> whole = floats_of(at("logits"));
    EXPECT_LE(error_of(whole, floats_of(kVision + entry["logits"].get<std::string>())), 1e-5);
    // The smallest budget that the errors name.
    std::string budget = "64k";
    for (int tries = 0; tries < 4; ++tries) {
      const Ran small = logits(family, {"--image", image, "--memory-budget", budget});
      if (small.status == 0) break;
      ASSERT_NE(small.err.find("[BUDGET_TOO_SMALL]"), std::string::npos) << small.err;
      std::smatch named;
      ASSERT_TRUE(std::regex_search(small.err, named, std::regex("(?:works is|budget of) (\\d+)")))
          << small.err;
      budget = named[1];
    }
    EXPECT_EQ(floats_of(at("logits")), whole) << family << " " << budget;
  }
}

TEST_F(MediaLogits, RefusesByName) {
  const auto refused = [&](const std::string& prompt, const std::vector<std::string>& more,
                           const std::string& says) {
    std::ofstream(at("prompt")) << prompt;
    const Ran ran = logits("llava", more);
    EXPECT_GT(ran.status, 0);
    EXPECT_NE(ran.err.find(says), std::string::npos) << ran.err;
    EXPECT_FALSE(fs::exists(at("logits")));
  };
  const std::string image = kVision + "media/wide.png";
  refused("a <__media__> b", {}, "[INVALID_ARGUMENT]");
  refused("a <__media__>", {"--image", image}, "[PROMPT_EMPTY]");
  refused("a <__media__> b", {"--image", image, "--tokens", "1"}, "not both");
  refused("a <__media__> b", {"--image", image, "--ctx", "4"}, "[PROMPT_TOO_LONG]");
  refused("a <__media__> b", {"--image", at("prompt")}, "not a PNG");
}

}  // namespace
}  // namespace sluice::tools
