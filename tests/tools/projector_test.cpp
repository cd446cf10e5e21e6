// `info`, `dump` and `convert` of vision projectors.
#include <map>
#include <nlohmann/json.hpp>

#include "gguf/gguf.h"
#include "program_util.h"

namespace sluice::tools {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

class ProjectorCommands : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    std::ofstream(at("prompt")) << "<__media__>";
    std::ofstream(at("deep.gguf"))
        << with_key(bytes_of(data("families/smollm3.gguf")), "smollm3.n_deepstack_layers", 2);
  }
  [[nodiscard]] static std::string data(const std::string& name) {
    return sluice::test::source_dir() + "/tests/data/" + name;
  }
  [[nodiscard]] static std::string projector(const std::string& name) {
    return data("vision/" + name + ".mmproj.gguf");
  }
  // `deep`: for a projector with two deepstack layers.
  [[nodiscard]] std::vector<float> embeddings(const std::string& file, bool deep = false) const {
    const std::string model = deep ? at("deep.gguf") : data("families/smollm3.gguf");
    const Ran ran = run({"encode", model, "--projector", file, "--prompt-file", at("prompt"),
                         "--image", data("vision/wide.bmp"), "--out", at("embeddings")});
    EXPECT_EQ(ran.status, 0) << file << ": " << ran.err;
    return floats_of(at("embeddings"));
  }
  [[nodiscard]] json info(const std::string& file) const {
    const Ran ran = run({"info", file, "--json"});
    EXPECT_EQ(ran.status, 0) << ran.err;
    return ran.status == 0 ? json::parse(ran.out) : json();
  }
  [[nodiscard]] std::map<std::string, std::string> types_of(const std::string& file) const {
    std::map<std::string, std::string> out;
    const json found = info(file);
    for (const json& tensor : found["tensors"]) out[tensor["name"]] = tensor["type"];
    return out;
  }
};

TEST_F(ProjectorCommands, InfoShowsKeysAndTensors) {
  const json found = info(projector("qwen3vl"));
  EXPECT_EQ(found["projectorType"], "qwen3vl_merger");
  EXPECT_EQ(found["layers"], 3);
  EXPECT_EQ(found["tokenSize"], 32);
  EXPECT_EQ(found["dimensions"], 3 * 48);
  EXPECT_EQ(found["tensors"].size(), 58u);
  const json first = {{"name", "v.patch_embd.weight"},
                      {"type", "F16"},
                      {"shape", {16, 16, 3, 32}},
                      {"bytes", 49152}};
  EXPECT_EQ(found["tensors"][0], first);
  const Ran text = run({"info", projector("qwen3vl")});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_NE(text.out.find("v.deepstack.2.fc1.weight"), std::string::npos) << text.out;
}

TEST_F(ProjectorCommands, DumpWritesTheEncodersTensors) {
  const std::string image = data("vision/wide.bmp");
  const Ran ran =
      run({"dump", projector("llava"), "--image", image, "--out", at("all"), "--layer", "all"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  const json summary = json::parse(ran.out);
  EXPECT_EQ(summary["tokens"], 16);
  std::ifstream index(at("all/index.txt"));
  size_t lines = 0;
  std::string line, last;
  bool has_scores = false;
  for (; std::getline(index, line); ++lines) {
    has_scores = has_scores || line.find("v.blk.0.ATTN\tATTN\t") != std::string::npos;
    last = line;
  }
  EXPECT_TRUE(has_scores);
  EXPECT_EQ(lines, summary["tensors"]);
  EXPECT_TRUE(last.ends_with("\tOUTPUT\t48 16 1 1")) << last;
  EXPECT_EQ(floats_of(at("all/" + last.substr(0, last.find('\t')) + ".f32")),
            embeddings(projector("llava")));

  ASSERT_EQ(run({"dump", projector("llava"), "--image", image, "--out", at("one")}).status, 0);
  size_t other_blocks = 0, files = 0;
  for (const auto& entry : fs::directory_iterator(at("one"))) {
    ++files;
    if (entry.path().filename().string().find("v.blk.1") != std::string::npos) ++other_blocks;
  }
  EXPECT_EQ(other_blocks, 0u);
  EXPECT_GT(files, 10u);
  EXPECT_LT(files, lines);
  const Ran refused =
      run({"dump", projector("llava"), "--image", image, "--out", at("one"), "--layer", "99"});
  EXPECT_GT(refused.status, 0);
  EXPECT_NE(refused.err.find("INVALID_ARGUMENT"), std::string::npos) << refused.err;
  EXPECT_GT(run({"dump", projector("llava"), "--out", at("one")}).status, 0);
}

// What llama-quantize keeps stays as it is. Some rows of these small files fit no block.
TEST_F(ProjectorCommands, ConvertQuantizesWhatLlamaQuantizeDoes) {
  struct Bound {
    const char* type;
    double most;
  };
  for (const std::string name : {"llava", "qwen3vl", "qwen2.5vl", "pixtral", "cogvlm"}) {
    const auto before = types_of(projector(name));
    const bool deep = name == "qwen3vl";
    const std::vector<float> want = embeddings(projector(name), deep);
    for (const Bound& bound : {Bound{"f32", 1e-12}, Bound{"bf16", 1e-4}, Bound{"q8_0", 2e-3},
                               Bound{"q4_0", 0.25}, Bound{"q4_k", 0.06}}) {
      SCOPED_TRACE(name + " " + bound.type);
      const Ran ran =
          run({"convert", projector(name), at("out.gguf"), "--force", "--type", bound.type});
      ASSERT_EQ(ran.status, 0) << ran.err;
      EXPECT_LE(error_of(embeddings(at("out.gguf"), deep), want), bound.most);
      size_t changed = 0;
      for (const auto& [tensor, type] : types_of(at("out.gguf"))) {
        const bool kept = tensor.find("_embd") != std::string::npos ||
                          tensor.find("patch_merger") != std::string::npos ||
                          before.at(tensor) == "F32";
        if (kept) {
          EXPECT_EQ(type, before.at(tensor)) << tensor;
        }
        changed += type == before.at(tensor) ? 0 : 1;
      }
      EXPECT_GE(changed, 9u);
    }
  }
}

TEST_F(ProjectorCommands, ConvertWritesTheSameFileAgain) {
  ASSERT_EQ(run({"convert", projector("gemma3"), at("out.gguf")}).status, 0);
  EXPECT_EQ(types_of(at("out.gguf")), types_of(projector("gemma3")));
  ASSERT_EQ(run({"convert", at("out.gguf"), at("again.gguf")}).status, 0);
  EXPECT_EQ(bytes_of(at("again.gguf")), bytes_of(at("out.gguf")));
  const Ran refused = run({"convert", data("families/smollm3.gguf"), at("x.gguf"), "--mmproj"});
  EXPECT_GT(refused.status, 0);
  EXPECT_NE(refused.err.find("--mmproj"), std::string::npos) << refused.err;
}

}  // namespace
}  // namespace sluice::tools
