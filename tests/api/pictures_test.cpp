// Pictures through sluice.h: files and pixels give the reference's tokens, a session keeps them,
// and what a model does not take is an error.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "../file_contents.h"
#include "api_util.h"

namespace sluice::test {
namespace {

using Manifest = nlohmann::json;

std::string vision_dir() {
  return shared_dir() + "/fixtures/vision";
}

// The pixels of a BMP file of 24 bits, whose rows go upwards.
std::vector<uint8_t> pixels_of(const std::vector<uint8_t>& bmp, uint32_t* width, uint32_t* height) {
  const auto number = [&](size_t at) {
    return static_cast<uint32_t>(bmp[at] | bmp[at + 1] << 8 | bmp[at + 2] << 16 |
                                 bmp[at + 3] << 24);
  };
  *width = number(18);
  *height = number(22);
  const size_t stride = (size_t{3} * *width + 3) / 4 * 4;
  std::vector<uint8_t> out;
  for (uint32_t y = *height; y-- > 0;) {
    const size_t row = number(10) + y * stride;
    for (uint32_t x = 0; x < *width; ++x) {
      for (const size_t channel : {2, 1, 0}) out.push_back(bmp[row + size_t{3} * x + channel]);
    }
  }
  return out;
}

class ApiPictures : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(vision_dir())) GTEST_SKIP() << "no " << vision_dir();
    for (const Manifest& family : Manifest::parse(file_contents(vision_dir() + "/manifest.json"))) {
      if (family["name"] == "qwen2.5vl") entry_ = family["cases"][0];
    }
    ASSERT_EQ(entry_["name"], "one");
    projector_ = vision_dir() + "/qwen2.5vl.mmproj.gguf";
    prompt_ = entry_["prompt"];
    file_ = file_contents<std::vector<uint8_t>>(vision_dir() + "/media/wide.png");
    picture_.bytes = file_.data();
    picture_.length = file_.size();
  }

  [[nodiscard]] Engine open(bool sees = true) const {
    sluice_load_options options = load_options();
    options.n_ctx = 256;
    if (sees) options.projector = projector_.c_str();
    return load(options, vision_dir() + "/qwen2.5vl.gguf");
  }

  static int take(void* user, const sluice_token_event* event) {
    static_cast<std::vector<int32_t>*>(user)->push_back(event->token);
    return 0;
  }

  sluice_generate_options options(std::vector<int32_t>* tokens) const {
    sluice_generate_options out;
    expect_ok(sluice_generate_options_default(&out, sizeof out));
    static const sluice_sampling kGreedy = [] {
      sluice_sampling sampling;
      expect_ok(sluice_sampling_default(&sampling, sizeof sampling));
      sampling.temperature = 0;
      return sampling;
    }();
    out.sampling = &kGreedy;
    out.max_tokens = 16;
    out.ignore_eos = 1;
    out.on_token = &take;
    out.token_user = tokens;
    out.pictures = &picture_;
    out.n_pictures = 1;
    return out;
  }

  Manifest entry_;
  std::string projector_, prompt_;
  std::vector<uint8_t> file_;
  sluice_picture picture_ = {};
};

TEST_F(ApiPictures, FilesAndPixelsGiveTheReferencesTokens) {
  const Engine engine = open();
  sluice_info info = {};
  info.size = sizeof info;
  expect_ok(sluice_engine_info(engine.get(), &info));
  EXPECT_EQ(info.takes_pictures, 1);
  const Session session = create(engine);
  std::vector<int32_t> tokens;
  sluice_result result = {};
  result.size = sizeof result;
  sluice_generate_options how = options(&tokens);
  expect_ok(sluice_generate(session.get(), prompt_.data(), prompt_.size(), &how, &result));
  EXPECT_EQ(tokens, entry_["greedy"].get<std::vector<int32_t>>());
  EXPECT_EQ(result.prompt_tokens, 12 + 12 + 17);
  EXPECT_EQ(result.cached_tokens, 0);
  // The session holds the picture: the same prompt computes one token.
  tokens.clear();
  expect_ok(sluice_generate(session.get(), prompt_.data(), prompt_.size(), &how, &result));
  EXPECT_EQ(tokens, entry_["greedy"].get<std::vector<int32_t>>());
  EXPECT_EQ(result.cached_tokens, result.prompt_tokens - 1);
  // The same picture as pixels, in another session.
  std::vector<int32_t> of_file, of_pixels;
  const auto bmp =
      file_contents<std::vector<uint8_t>>(source_dir() + "/tests/data/vision/wide.bmp");
  picture_ = {bmp.data(), bmp.size(), 0, 0};
  how = options(&of_file);
  const Session other = create(engine);
  expect_ok(sluice_generate(other.get(), prompt_.data(), prompt_.size(), &how, &result));
  uint32_t width = 0, height = 0;
  const std::vector<uint8_t> pixels = pixels_of(bmp, &width, &height);
  picture_ = {pixels.data(), pixels.size(), width, height};
  how = options(&of_pixels);
  expect_ok(sluice_generate(other.get(), prompt_.data(), prompt_.size(), &how, &result));
  EXPECT_EQ(result.cached_tokens, result.prompt_tokens - 1);
  EXPECT_EQ(of_file.size(), 16u);
  EXPECT_EQ(of_pixels, of_file);
}

TEST_F(ApiPictures, WhatIsNotTakenIsAnError) {
  const Engine engine = open();
  const Session session = create(engine);
  std::vector<int32_t> tokens;
  sluice_generate_options how = options(&tokens);
  const auto generate = [&](const std::string& prompt) {
    return sluice_generate(session.get(), prompt.data(), prompt.size(), &how, nullptr);
  };
  EXPECT_EQ(generate("no mark"), SLUICE_INVALID_ARGUMENT);
  EXPECT_EQ(generate("<__media__> <__media__> x"), SLUICE_INVALID_ARGUMENT);
  how.prompt_flags |= SLUICE_LITERAL_SPANS;
  EXPECT_EQ(generate("\xEF\xB7\x90<__media__>\xEF\xB7\x91 x"), SLUICE_INVALID_ARGUMENT);
  const std::vector<int32_t> ids = {1, 2};
  EXPECT_EQ(sluice_generate_tokens(session.get(), ids.data(), ids.size(), &how, nullptr),
            SLUICE_INVALID_ARGUMENT);
  const sluice_picture wrong[] = {{file_.data(), 20, 0, 0},
                                  {file_.data(), 20, 4, 4},
                                  {nullptr, 20, 0, 0},
                                  {file_.data(), file_.size(), 70000, 70000},
                                  {file_.data(), 0, 4, 0}};
  for (const sluice_picture& picture : wrong) {
    how.pictures = &picture;
    EXPECT_EQ(generate(prompt_), SLUICE_INVALID_ARGUMENT) << picture.width;
  }
  how.pictures = nullptr;
  EXPECT_EQ(generate(prompt_), SLUICE_INVALID_ARGUMENT);
  EXPECT_TRUE(tokens.empty());
  // The engine works on.
  how = options(&tokens);
  expect_ok(generate(prompt_));
  EXPECT_EQ(tokens, entry_["greedy"].get<std::vector<int32_t>>());

  const Engine blind = open(/*sees=*/false);
  const Session text = create(blind);
  EXPECT_EQ(sluice_generate(text.get(), prompt_.data(), prompt_.size(), &how, nullptr),
            SLUICE_NOT_SUPPORTED);
}

// The state of a session that saw a picture is refused under a projector with other weights.
TEST_F(ApiPictures, SavedStatesBelongToTheProjector) {
  const Engine engine = open();
  const Session session = create(engine);
  std::vector<int32_t> tokens;
  const sluice_generate_options how = options(&tokens);
  expect_ok(sluice_generate(session.get(), prompt_.data(), prompt_.size(), &how, nullptr));
  uint64_t bytes = 0;
  expect_ok(sluice_session_state_bytes(session.get(), &bytes));
  std::vector<uint8_t> state(bytes);
  expect_ok(sluice_session_save(session.get(), 0, state.data(), state.size()));
  const Session again = create(engine);
  expect_ok(sluice_session_restore(again.get(), state.data(), state.size()));
  auto other = file_contents<std::vector<uint8_t>>(projector_);
  other[other.size() - 64] ^= 1;
  projector_ = testing::TempDir() + "other-weights.mmproj.gguf";
  std::ofstream(projector_, std::ios::binary)
      .write(reinterpret_cast<const char*>(other.data()),
             static_cast<std::streamsize>(other.size()));
  const Engine changed = open();
  const Session theirs = create(changed);
  EXPECT_EQ(sluice_session_restore(theirs.get(), state.data(), state.size()), SLUICE_CORRUPT);
  EXPECT_NE(std::string(sluice_last_error()).find("projectors"), std::string::npos)
      << sluice_last_error();
  std::filesystem::remove(projector_);
}

TEST_F(ApiPictures, OfAChat) {
  const Engine engine = open();
  sluice_chat_options request;
  expect_ok(sluice_chat_options_default(&request, sizeof request));
  request.messages =
      R"([{"role":"user","content":[{"type":"text","text":"look "},{"type":"image_url",)"
      R"("image_url":{"url":"wide.png"}},{"type":"text","text":" <__media__>"}]}])";
  request.chat_template =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";
  sluice_chat* made = nullptr;
  expect_ok(sluice_chat_create(engine.get(), &request, &made));
  const Chat chat(made);
  sluice_chat_prompt prompt = {};
  prompt.size = sizeof prompt;
  expect_ok(sluice_chat_get_prompt(chat.get(), &prompt));
  ASSERT_EQ(prompt.n_pictures, 1u);
  EXPECT_STREQ(prompt.pictures[0], "wide.png");
  EXPECT_EQ(prompt.tokens, nullptr);
  std::vector<int32_t> tokens;
  sluice_generate_options how = options(&tokens);
  how.prompt_flags = prompt.prompt_flags;
  const Session session = create(engine);
  expect_ok(
      sluice_generate(session.get(), prompt.marked_text, prompt.marked_length, &how, nullptr));
  EXPECT_EQ(tokens.size(), 16u);

  const Engine blind = open(/*sees=*/false);
  EXPECT_EQ(sluice_chat_create(blind.get(), &request, &made), SLUICE_NOT_SUPPORTED);
}

}  // namespace
}  // namespace sluice::test
