// Pictures in `sluice run` and `sluice chat`, on models of the fixtures: the projector beside the
// model, marks in the prompt, conversations, and errors that name what is missing.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "../file_contents.h"
#include "../paths.h"
#include "program.h"

namespace sluice::tools {
namespace {

using nlohmann::json;

class PicturesTool : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = test::shared_dir() + "/fixtures/vision";
    if (!std::filesystem::exists(folder_)) GTEST_SKIP() << "no " << folder_;
    model_ = folder_ + "/qwen2.5vl.gguf";
    projector_ = folder_ + "/qwen2.5vl.mmproj.gguf";
    wide_ = folder_ + "/media/wide.png";
  }

  [[nodiscard]] json run(std::vector<std::string> more) const {
    std::vector<std::string> args = {model_, "--json", "--temp",    "0", "--ignore-eos",
                                     "-n",   "8",      "--threads", "1"};
    args.insert(args.end(), more.begin(), more.end());
    Program program(args);
    EXPECT_EQ(program.wait(), 0) << program.err();
    return json::parse(program.out(), nullptr, false);
  }
  static std::string failure(std::vector<std::string> args) {
    Program program(args);
    EXPECT_EQ(program.wait(), 1);
    return program.err();
  }

  std::string folder_, model_, projector_, wide_;
};

TEST_F(PicturesTool, RunFindsTheProjectorAndPlacesPictures) {
  const std::string prompt =
      "<|im_start|>user\nlook <__media__> what is it<|im_end|>\n<|im_start|>assistant\n";
  const json raw = run({"--raw", "-p", prompt, "--image", wide_});
  EXPECT_EQ(raw["promptTokens"], 41);
  const std::vector<std::string> named = {"--raw", "-p",       prompt,    "--image",
                                          wide_,   "--mmproj", projector_};
  EXPECT_EQ(run(named)["text"], raw["text"]);
  // A chat template gives the same prompt.
  const std::string chatml =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
      "<|im_start|>assistant{{ '\\n' }}";  // Jinja drops a newline at the end
  EXPECT_EQ(run({"-p", "look <__media__> what is it", "--image", wide_, "--chat-template",
                 chatml})["text"],
            raw["text"]);
  // Pictures without a mark come first.
  const json first = run({"--raw", "-p", "<__media__> tell me", "--image", wide_});
  EXPECT_EQ(run({"--raw", "-p", " tell me", "--image", wide_})["text"], first["text"]);
  // An address.
  EXPECT_NE(run({"-p", "x", "--image",
                 "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAA"
                 "AAAABAAEAAAIBRAA7"})["text"],
            json());
  const json two = run({"--raw", "-p", "a <__media__> b", "--image", wide_, "--image", wide_});
  EXPECT_GT(two["promptTokens"], 24);
}

TEST_F(PicturesTool, AConversationShowsPicturesWithTheNextMessage) {
  const auto talk = [&](const std::string& input) {
    Program program({model_, "--temp", "0", "--threads", "1", "-n", "4", "--ignore-eos"}, nullptr,
                    "chat");
    program.write_input(input);
    program.wait();
    return std::pair(program.out(), program.err());
  };
  const auto [out, err] = talk("/image " + wide_ + "\nlook, what is it\n/stats\nand now\n/stats\n");
  EXPECT_NE(out.find("64 x 48 pixels, 12 tokens, for the next message"), std::string::npos) << out;
  EXPECT_NE(out.find("2 messages"), std::string::npos) << out;
  EXPECT_NE(out.find("4 messages"), std::string::npos) << out;
  const auto [plain, none] = talk("look, what is it\n/stats\n");
  const auto prompt_of = [](const std::string& text) {
    return std::stoi(text.substr(text.find("last response: prompt ") + 22));
  };
  // The picture and the vectors around it.
  EXPECT_GE(prompt_of(out), prompt_of(plain) + 12) << out << plain;
  // The second turn does not read it again.
  const std::string second = out.substr(out.rfind("last response: prompt "));
  EXPECT_GT(std::stoi(second.substr(second.find("tokens, ") + 8)), prompt_of(out)) << second;

  // A picture that cannot be shown fails once, and the conversation goes on.
  const std::string cut = testing::TempDir() + "/cut.png";
  std::ofstream(cut, std::ios::binary) << test::file_contents(wide_).substr(0, 400);
  const auto [after, once] = talk("/image " + cut + "\nlook\nlook, what is it\n/stats\n");
  EXPECT_NE(once.find("damaged or incomplete"), std::string::npos) << once;
  EXPECT_NE(once.find("the next message has no picture"), std::string::npos) << once;
  EXPECT_EQ(once.find("damaged"), once.rfind("damaged")) << once;
  EXPECT_NE(after.find("2 messages"), std::string::npos) << after;
  EXPECT_EQ(prompt_of(after), prompt_of(plain));

  const auto [bad_out, bad] = talk("/image nowhere.png\n/image\n/image " + model_ + "\nlook\n");
  for (const char* why : {"nowhere.png", "/image needs a file name", "is not a PNG"}) {
    EXPECT_NE(bad.find(why), std::string::npos) << why << ": " << bad;
  }
}

// As they were shown, also if their file is overwritten, here by the conversation itself.
TEST_F(PicturesTool, AConversationKeepsThePicturesThatItHasShown) {
  const std::string shot = testing::TempDir() + "/shot.png";
  const auto talk = [&](const std::string& between) {
    std::ofstream(shot, std::ios::binary) << test::file_contents(wide_);
    Program program({model_, "--temp", "0", "--threads", "1", "-n", "4", "--ignore-eos"}, nullptr,
                    "chat");
    program.write_input("/image " + shot + "\n" + between + "look\nand now\n/image " + shot +
                        "\nand here\n");
    program.wait();
    return std::pair(program.out(), program.err());
  };
  const auto [kept, good] = talk("");
  const auto [changed, error] = talk("/save " + shot + "\n");
  EXPECT_EQ(good.find("rename it"), std::string::npos) << good;
  EXPECT_NE(error.find("rename it"), std::string::npos) << error;
  const std::string again = "64 x 48 pixels";  // is said once more where the file is the same
  EXPECT_EQ(changed.substr(0, changed.size() / 2).find(again), 0U) << changed;
  EXPECT_NE(kept.rfind(again), 0U) << kept;
  const size_t same = kept.rfind(again);
  EXPECT_EQ(changed.substr(0, same), kept.substr(0, same));
}

TEST_F(PicturesTool, ErrorsNameWhatIsMissing) {
  const std::string text = test::source_dir() + "/examples/models/sluice-tales-Q8_0.gguf";
  EXPECT_NE(failure({text, "-p", "x", "--image", wide_}).find("the model takes no pictures"),
            std::string::npos);
  EXPECT_NE(failure({model_, "-p", "x", "--image", wide_, "--projector", "off"})
                .find("the model takes no pictures"),
            std::string::npos);
  EXPECT_NE(
      failure({model_, "-p", "x", "--image", wide_, "--projector", folder_ + "/gemma3.mmproj.gguf"})
          .find("it belongs to another model"),
      std::string::npos);
  // As wide as the model's embeddings, but with layers that this model does not have.
  EXPECT_NE(failure({model_, "-p", "x", "--image", wide_, "--projector",
                     folder_ + "/qwen3vl.mmproj.gguf"})
                .find("it belongs to another model"),
            std::string::npos);
  EXPECT_NE(failure({projector_, "-p", "x"}).find("the file is a vision projector"),
            std::string::npos);
  EXPECT_NE(failure({model_, "-p", "x", "--image", "nowhere.png"}).find("nowhere.png"),
            std::string::npos);
  EXPECT_NE(failure({model_, "-p", "x", "--image", "http://127.0.0.1:1/a.png"}).find("[NETWORK]"),
            std::string::npos);
  EXPECT_NE(failure({model_, "-p", "x", "--image", model_}).find("is not a PNG"),
            std::string::npos);
  EXPECT_NE(failure({model_, "--raw", "-p", "<__media__> <__media__>", "--image", wide_})
                .find("occurs 2 times"),
            std::string::npos);
  EXPECT_NE(failure({model_, "-p", "x", "--image", wide_, "--image-tokens", "x"}).find("64:1024"),
            std::string::npos);
}

}  // namespace
}  // namespace sluice::tools
