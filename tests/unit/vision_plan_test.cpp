// What a picture costs, from its size alone; projector headers that are wrong; prompts.
#include <random>

#include "../extent.h"
#include "../sanitized.h"
#include "base/hash.h"
#include "gguf/metadata_writer.h"
#include "media/preprocess.h"
#include "media/prompt.h"
#include "vision_files.h"

namespace sluice::test {
namespace {

using media::PicturePlan;
using media::Projector;

// A projector's header, with the keys that every family has.
class ProjectorKeys {
 public:
  explicit ProjectorKeys(const std::string& type, uint32_t image = 448, uint32_t patch = 14) {
    text("general.architecture", "clip");
    text("clip.projector_type", type);
    writer_.boolean("clip.has_vision_encoder", true);
    number("image_size", image).number("patch_size", patch).number("embedding_length", 64);
    writer_.floats("clip.vision.image_mean", std::vector<float>{0.5f, 0.25f, 0});
    writer_.floats("clip.vision.image_std", std::vector<float>{0.5f, 0.5f, 1});
  }
  ProjectorKeys& number(const std::string& key, uint32_t value) {
    return set(key.starts_with("clip.") ? key : "clip.vision." + key,
               [&](const std::string& name) { writer_.number(name, value); });
  }
  ProjectorKeys& text(const std::string& key, const std::string& value) {
    return set(key, [&](const std::string& name) { writer_.string(name, value); });
  }
  ProjectorKeys& floats(const std::string& key, const std::vector<float>& value) {
    return set("clip.vision." + key, [&](const std::string& name) { writer_.floats(name, value); });
  }
  ProjectorKeys& integers(const std::string& key, const std::vector<int32_t>& value) {
    return set("clip.vision." + key,
               [&](const std::string& name) { writer_.integers(name, value); });
  }
  ProjectorKeys& remove(const std::string& key) {
    std::erase_if(header_->metadata, [&](const auto& each) { return each.key == key; });
    return *this;
  }
  [[nodiscard]] Result<Projector> read() const { return media::read_projector(*header_); }
  [[nodiscard]] Projector projector() const {
    auto out = read();
    EXPECT_TRUE(out.ok()) << out.status().message();
    return out.ok() ? *out : Projector();
  }

 private:
  template <class Add>
  ProjectorKeys& set(const std::string& key, const Add& add) {
    remove(key);
    add(key);
    return *this;
  }
  std::shared_ptr<gguf::Header> header_ = std::make_shared<gguf::Header>();
  gguf::MetadataWriter writer_{header_.get()};
};

std::string described(const PicturePlan& plan) {
  std::string out;
  for (const media::Piece& piece : plan.pieces) {
    if (piece.input < 0) {
      out += piece.text;
      continue;
    }
    const media::EncoderInput& input = plan.inputs[static_cast<size_t>(piece.input)];
    out += "[" + std::to_string(input.width) + "x" + std::to_string(input.height) + "=" +
           std::to_string(input.n_tokens) + "]";
  }
  return out;
}
std::string planned(const Projector& projector, uint32_t width, uint32_t height,
                    media::TokenLimits limits = {}) {
  auto plan = media::plan_image(projector, width, height, limits);
  return plan.ok() ? described(*plan) : code_name(plan.status().code());
}

TEST(VisionPlan, SizesThatFollowThePicture) {
  const Projector qwen = ProjectorKeys("qwen2.5vl_merger").projector();
  EXPECT_EQ(planned(qwen, 1280, 960), "<|vision_start|>[1288x952=1564]<|vision_end|>");
  EXPECT_EQ(planned(qwen, 8000, 6000), "<|vision_start|>[2044x1540=4015]<|vision_end|>");
  EXPECT_EQ(planned(qwen, 5, 3), "<|vision_start|>[112x84=12]<|vision_end|>");
  EXPECT_EQ(planned(qwen, 1280, 960, {0, 256}), "<|vision_start|>[504x364=234]<|vision_end|>");
  EXPECT_EQ(planned(qwen, 100, 100, {100, 0}), "<|vision_start|>[280x280=100]<|vision_end|>");
}

TEST(VisionPlan, ThinPicturesStayWithinTheMaximum) {
  const Projector qwen = ProjectorKeys("qwen3vl_merger", 768, 16).projector();
  EXPECT_EQ(planned(qwen, 65535, 1), "<|vision_start|>[65536x32=2048]<|vision_end|>");
  EXPECT_EQ(planned(qwen, 65535, 1, {0, 64}), "<|vision_start|>[2048x32=64]<|vision_end|>");
  EXPECT_EQ(planned(qwen, 1, 65535, {64, 64}), "<|vision_start|>[32x2048=64]<|vision_end|>");
  EXPECT_EQ(planned(qwen, 300, 200, {100, 100}), "<|vision_start|>[352x288=99]<|vision_end|>");
}

TEST(VisionPlan, FixedSizes) {
  EXPECT_EQ(planned(ProjectorKeys("gemma3", 896).projector(), 3000, 20),
            "<start_of_image>[896x896=256]<end_of_image>");
  EXPECT_EQ(planned(ProjectorKeys("mlp", 336).projector(), 3000, 20), "[336x336=576]");
  EXPECT_EQ(planned(ProjectorKeys("cogvlm", 490).projector(), 9, 9), "[490x490=1227]");
  EXPECT_EQ(planned(ProjectorKeys("adapter", 672).projector(), 9, 9), "[672x672=578]");
}

TEST(VisionPlan, TilesAndOverview) {
  const Projector internvl =
      ProjectorKeys("internvl").number("projector.scale_factor", 2).projector();
  EXPECT_EQ(planned(internvl, 448, 448), "<img>[448x448=256]</img>");
  EXPECT_EQ(planned(internvl, 896, 448), "<img>[448x448=256][448x448=256][448x448=256]</img>");
  const Projector llava = ProjectorKeys("mlp", 336)
                              .integers("image_grid_pinpoints", {336, 672, 672, 336, 672, 672})
                              .projector();
  EXPECT_EQ(planned(llava, 800, 300), "[336x336=576][336x336=576][336x336=576]");
}

TEST(VisionPlan, RowsAndColumnsAreNumberedFromOne) {
  const Projector idefics = ProjectorKeys("idefics3", 512, 16)
                                .number("projector.scale_factor", 4)
                                .number("preproc_image_size", 1024)
                                .projector();
  EXPECT_EQ(planned(idefics, 1000, 999),
            "<fake_token_around_image><row_1_col_1>[512x512=64]<fake_token_around_image><row_1_"
            "col_2>[512x512=64]\n<fake_token_around_image><row_2_col_1>[512x512=64]<fake_token_"
            "around_image><row_2_col_2>[512x512=64]\n\n<fake_token_around_image><global-img>["
            "512x512=64]<fake_token_around_image>");
  const Projector lfm2 =
      ProjectorKeys("lfm2", 256, 16).number("projector.scale_factor", 2).projector();
  EXPECT_EQ(planned(lfm2, 300, 300), "<|image_start|>[288x288=81]<|image_end|>");
  EXPECT_EQ(planned(lfm2, 1100, 500),
            "<|image_start|><|img_row_1_col_1|>[512x512=256]<|img_row_1_col_2|>[512x512=256]"
            "<|img_thumbnail|>[736x320=230]<|image_end|>");
}

TEST(VisionPlan, MinicpmVersionsPutOtherMarks) {
  const Projector three = ProjectorKeys("resampler").number("clip.minicpmv_version", 3).projector();
  EXPECT_EQ(planned(three, 100, 100), "<image>[448x448=64]</image>");
  EXPECT_EQ(planned(three, 900, 400),
            "<image>[672x294=64]</image><slice>[476x420=64]</slice><slice>[476x420=64]</slice>");
  const Projector two = ProjectorKeys("resampler").number("clip.minicpmv_version", 2).projector();
  EXPECT_EQ(planned(two, 900, 400),
            "<image>[672x294=96]</image><slice><image>[476x420=96]</image><image>[476x420=96]"
            "</image></slice>");
}

// Without the merge inside the encoder a picture of few pixels is one slice in its own aspect.
TEST(VisionPlan, MinicpmWithOneMerge) {
  const Projector four =
      ProjectorKeys("minicpmv4_6").number("projector.scale_factor", 4).projector();
  EXPECT_EQ(planned(four, 200, 100), "<image>[448x448=64]</image>");
  const Projector two =
      ProjectorKeys("minicpmv4_6").number("projector.scale_factor", 2).projector();
  EXPECT_EQ(planned(two, 200, 100), "<image>[644x308=253]</image>");
  EXPECT_EQ(planned(two, 600, 200), "<image>[784x252=252]</image>");
}

TEST(VisionPlan, LimitsOfFixedNumbersAreErrors) {
  const Projector gemma3 = ProjectorKeys("gemma3", 896).projector();
  auto plan = media::plan_image(gemma3, 10, 10, {16, 64});
  EXPECT_EQ(plan.status().code(), Code::kNotSupported);
  EXPECT_NE(plan.status().message().find("gemma3"), std::string::npos);
  const Projector qwen = ProjectorKeys("qwen2vl_merger").projector();
  EXPECT_EQ(planned(qwen, 10, 10, {65, 64}), "INVALID_ARGUMENT");
  EXPECT_EQ(planned(qwen, 10, 10, {0, 1u << 17}), "INVALID_ARGUMENT");
  EXPECT_EQ(planned(qwen, 0, 10), "INVALID_ARGUMENT");
  EXPECT_EQ(planned(qwen, 65536, 10), "INVALID_ARGUMENT");
}

TEST(VisionPlan, RangesAreParsed) {
  const auto parsed = [](std::string_view text) {
    auto limits = media::parse_token_limits(text);
    return limits.ok() ? std::to_string(limits->min) + "-" + std::to_string(limits->max) : "error";
  };
  EXPECT_EQ(parsed("12:30"), "12-30");
  EXPECT_EQ(parsed(":30"), "0-30");
  EXPECT_EQ(parsed("12:"), "12-0");
  EXPECT_EQ(parsed("0:30"), "0-30");
  for (const char* wrong : {"", ":", "12", "30:12", "a:b", "1:2:3", "-1:4", "1:99999999"}) {
    EXPECT_EQ(parsed(wrong), "error") << wrong;
  }
}

std::vector<Projector> all_projectors() {
  std::vector<Projector> out;
  for (const char* type :
       {"qwen2vl_merger", "qwen2.5vl_merger", "qwen2.5o",  "qwen3vl_merger", "glm4v",
        "gemma4v",        "gemma4uv",         "pixtral",   "kimivl",         "lightonocr",
        "paddleocr",      "gemma3",           "janus_pro", "adapter",        "mlp",
        "cogvlm",         "internvl",         "idefics3",  "lfm2",           "resampler",
        "minicpmv4_6"}) {
    ProjectorKeys keys(type, 448, 16);
    keys.number("projector.scale_factor", type == std::string("idefics3") ? 4 : 2);
    keys.number("preproc_image_size", 1540).number("image_min_pixels", 4000);
    out.push_back(keys.number("image_max_pixels", 2000000).projector());
  }
  out.push_back(ProjectorKeys("minicpmv4_6").number("projector.scale_factor", 4).projector());
  return out;
}

// For any picture: inputs of whole patches, tokens within the announced maximum.
TEST(VisionPlan, HoldsForRandomSizes) {
  std::mt19937 random(1);
  for (const Projector& projector : all_projectors()) {
    SCOPED_TRACE(projector.family->type);
    const auto most = media::max_input_tokens(projector);
    ASSERT_TRUE(most.ok());
    for (int i = 0; i < 300; ++i) {
      const auto side = [&random] {
        return static_cast<uint32_t>(1 + random() % (1u << random() % 17));
      };
      const uint32_t width = side(), height = side();
      auto plan = media::plan_image(projector, std::min(width, media::kMaxSide),
                                    std::min(height, media::kMaxSide));
      if (uint64_t{width} * height > media::kMaxPixels) {
        ASSERT_FALSE(plan.ok());
        continue;
      }
      ASSERT_TRUE(plan.ok()) << plan.status().message() << width << " x " << height;
      ASSERT_FALSE(plan->inputs.empty());
      uint32_t sum = 0;
      for (const media::EncoderInput& input : plan->inputs) {
        sum += input.n_tokens;
        ASSERT_LE(input.n_tokens, *most) << width << " x " << height;
        ASSERT_EQ(input.width % projector.patch_size, 0u);
        ASSERT_EQ(input.height % projector.patch_size, 0u);
        const media::Canvas& canvas = plan->canvases[input.canvas];
        ASSERT_LE(input.x + input.width, canvas.width);
        ASSERT_LE(input.y + input.height, canvas.height);
      }
      ASSERT_EQ(plan->n_tokens, sum);
    }
  }
}

TEST(VisionPlan, PreprocessMakesWhatWasPlanned) {
  for (const Projector& projector : all_projectors()) {
    SCOPED_TRACE(projector.family->type);
    for (const auto& [width, height] : {std::pair(700, 90), std::pair(1, 2), std::pair(90, 600)}) {
      if (kSanitized && !long_suite() && width == 700) continue;  // 600 upright has as many parts
      auto image =
          media::Image::create(static_cast<uint64_t>(width), static_cast<uint64_t>(height));
      ASSERT_TRUE(image.ok());
      std::memset(image->row(0), 77, image->size());
      auto plan = media::plan_image(projector, image->width, image->height);
      ASSERT_TRUE(plan.ok());
      auto inputs = media::preprocess(projector, *plan, *image);
      ASSERT_TRUE(inputs.ok()) << inputs.status().message();
      ASSERT_EQ(inputs->size(), plan->inputs.size());
      uint64_t bytes = 0;
      for (size_t i = 0; i < inputs->size(); ++i) {
        ASSERT_EQ((*inputs)[i].width, plan->inputs[i].width);
        ASSERT_EQ((*inputs)[i].height, plan->inputs[i].height);
        bytes += (*inputs)[i].size();
      }
      EXPECT_GE(plan->preprocess_bytes, bytes);
      auto other = media::Image::create(3, 3);
      EXPECT_EQ(media::preprocess(projector, *plan, *other).status().code(),
                Code::kInvalidArgument);
    }
  }
}

// The inputs of every projector, by their hash. Compilers must not fuse or reorder the arithmetic
// of sizes and weights.
TEST(VisionPlan, PixelsAreTheSameOnEveryMachine) {
  if (kSanitized) GTEST_SKIP() << "takes long, and VisionFixtures preprocesses as well";
  Hash64 hash;
  for (const auto& [width, height] : {std::pair(613u, 407u), std::pair(90u, 351u)}) {
    auto image = media::Image::create(width, height);
    ASSERT_TRUE(image.ok());
    std::mt19937 random(width);
    for (uint64_t i = 0; i < image->size(); ++i) {
      image->row(0)[i] = static_cast<uint8_t>(random());
    }
    for (const Projector& projector : all_projectors()) {
      auto plan = media::plan_image(projector, width, height);
      ASSERT_TRUE(plan.ok());
      auto inputs = media::preprocess(projector, *plan, *image);
      ASSERT_TRUE(inputs.ok());
      hash.add(described(*plan));
      for (const media::Image& input : *inputs) hash.add(std::span(input.row(0), input.size()));
    }
  }
  EXPECT_EQ(hash.value(), 11185360953850325572u);
}

TEST(VisionPlan, NormalizesWithMeanAndDeviation) {
  const Projector projector = ProjectorKeys("mlp").projector();
  auto image = media::Image::create(1, 1);
  ASSERT_TRUE(image.ok());
  image->row(0)[0] = 255;
  image->row(0)[1] = 0;
  image->row(0)[2] = 51;
  std::vector<float> values(3);
  media::normalize(projector, *image, values);
  EXPECT_EQ(values, (std::vector<float>{1, -0.5f, 51.0f / 255.0f}));
}

void expect_refused(const ProjectorKeys& keys, Code code, const std::string& word) {
  const auto read = keys.read();
  ASSERT_FALSE(read.ok()) << word;
  EXPECT_EQ(read.status().code(), code) << read.status().message();
  EXPECT_NE(read.status().message().find(word), std::string::npos) << read.status().message();
}

TEST(VisionProjector, WrongHeadersAreNamed) {
  const auto keys = [](const char* type) { return ProjectorKeys(type); };
  expect_refused(keys("qwen9vl"), Code::kUnsupportedArchitecture, "qwen9vl");
  expect_refused(keys("mlp").text("general.architecture", "llama"), Code::kUnsupportedArchitecture,
                 "clip");
  expect_refused(keys("mlp").remove("clip.has_vision_encoder"), Code::kNotSupported, "vision");
  expect_refused(keys("mlp").remove("clip.projector_type"), Code::kBadHeader, "projector_type");
  for (const char* key : {"image_size", "patch_size", "embedding_length"}) {
    expect_refused(keys("mlp").remove("clip.vision." + std::string(key)), Code::kBadHeader, key);
    expect_refused(keys("mlp").number(key, 0), Code::kBadHeader, key);
    expect_refused(keys("mlp").number(key, 1u << 31), Code::kBadHeader, key);
    expect_refused(keys("mlp").text("clip.vision." + std::string(key), "7"), Code::kBadHeader, key);
  }
  expect_refused(keys("mlp").floats("image_mean", {0, 0}), Code::kBadHeader, "image_mean");
  expect_refused(keys("mlp").floats("image_std", {1, 0, 1}), Code::kBadHeader, "image_std");
  expect_refused(keys("mlp").number("image_size", 13), Code::kBadHeader, "image_size");
  expect_refused(keys("kimivl"), Code::kBadHeader, "projector.scale_factor");
  expect_refused(keys("kimivl").number("projector.scale_factor", 65), Code::kBadHeader,
                 "projector.scale_factor");
  expect_refused(keys("paddleocr"), Code::kBadHeader, "image_max_pixels");
  expect_refused(keys("paddleocr").number("image_max_pixels", 100).number("image_min_pixels", 200),
                 Code::kBadHeader, "image_max_pixels");
  expect_refused(keys("lightonocr"), Code::kBadHeader, "preproc_image_size");
  expect_refused(keys("mlp").integers("image_grid_pinpoints", {448}), Code::kBadHeader,
                 "pinpoints");
  expect_refused(keys("mlp").integers("image_grid_pinpoints", {448, 450}), Code::kBadHeader,
                 "pinpoints");
  expect_refused(keys("mlp").integers("image_grid_pinpoints", {448, -448}), Code::kBadHeader,
                 "pinpoints");
  const auto scaled = [&](const char* type) {
    return keys(type).number("projector.scale_factor", 2);
  };
  expect_refused(scaled("internvl").number("preproc_min_tiles", 5).number("preproc_max_tiles", 4),
                 Code::kBadHeader, "preproc_max_tiles");
  expect_refused(scaled("lfm2"), Code::kBadHeader, "patch_size");  // 28 does not divide 512
  for (const uint32_t version : {1u, 7u, 100046u}) {
    expect_refused(keys("resampler").number("clip.minicpmv_version", version), Code::kBadHeader,
                   "minicpmv_version");
  }
  expect_refused(scaled("idefics3").number("preproc_image_size", 15 * 448), Code::kBadHeader,
                 "preproc_image_size");
}

TEST(VisionProjector, KeysThatAreMissingMeanTheUsual) {
  EXPECT_EQ(ProjectorKeys("gemma3").projector().merge, 4u);
  EXPECT_EQ(ProjectorKeys("gemma3").number("projector.scale_factor", 2).projector().merge, 2u);
  EXPECT_EQ(ProjectorKeys("pixtral").projector().merge, 1u);
  EXPECT_EQ(ProjectorKeys("pixtral").number("spatial_merge_size", 2).projector().merge, 2u);
  const Projector own =
      ProjectorKeys("mlp").text("clip.vision.projector_type", "gemma3").projector();
  EXPECT_STREQ(own.family->type, "gemma3");
  EXPECT_FALSE(own.has_audio);
}

TEST(VisionPrompt, MarksAndPicturesMustAgree) {
  const auto folder = std::filesystem::path(source_dir()) / "tests/data/families";
  std::unique_ptr<ParsedFile> model;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".gguf") model = parse_file(entry.path());
    if (model) break;
  }
  ASSERT_TRUE(model);
  auto tokenizer = tokenizer::Tokenizer::create(model->header);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  const Projector projector = ProjectorKeys("mlp").projector();
  const std::vector<PicturePlan> one = {*media::plan_image(projector, 5, 5)};
  const auto chunks = [&](const std::string& prompt, std::span<const PicturePlan> pictures) {
    return media::layout(prompt, projector, pictures, **tokenizer, {.mrope = true},
                         {.add_special = false});
  };
  EXPECT_EQ(chunks("no mark", one).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(chunks("<__media__>", {}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(chunks("<__media__><__media__>", one).status().code(), Code::kInvalidArgument);
  auto alone = chunks("<__media__>", one);
  ASSERT_TRUE(alone.ok());
  ASSERT_EQ(alone->size(), 1u);
  EXPECT_EQ((*alone)[0].n_tokens, 1024u);
  EXPECT_EQ((*alone)[0].n_positions, 32u);  // rows and columns of a grid of 32 x 32
  EXPECT_EQ((*alone)[0].at(33).row, 1u);
  EXPECT_EQ((*alone)[0].at(33).column, 1u);
  EXPECT_EQ((*alone)[0].at(33).time, 0u);
  EXPECT_TRUE(chunks("", {})->empty());
  // A mark that a user wrote is text.
  auto literal = media::layout("\uFDD0a <__media__>\uFDD1b<__media__>", projector, one, **tokenizer,
                               {}, {.add_special = false, .literal_spans = true});
  ASSERT_TRUE(literal.ok()) << literal.status().message();
  ASSERT_EQ(literal->size(), 2u);
  EXPECT_EQ((*tokenizer)->decode((*literal)[0].tokens), "a <__media__>b");
  EXPECT_TRUE((*literal)[1].is_image);
  // A continuation is about the text before the first picture, and has no BOS.
  const tokenizer::Tokenizer& t = **tokenizer;
  std::vector<media::Token> tail = t.encode("a", {.add_special = false});
  if (t.adds_eos()) tail.push_back(t.eos());
  for (const bool continues : {false, true}) {
    const bool bos = t.adds_bos() && !continues;
    std::vector<media::Token> front =
        t.encode("a", {.add_special = false, .continuation = continues});
    if (bos) front.insert(front.begin(), t.bos());
    const auto joined =
        media::layout("a<__media__>a", projector, one, t, {}, {.continuation = continues});
    ASSERT_TRUE(joined.ok()) << joined.status().message();
    ASSERT_EQ(joined->size(), 3u);
    EXPECT_EQ((*joined)[0].tokens, front);
    EXPECT_EQ((*joined)[2].tokens, tail);
    const auto behind =
        media::layout("<__media__>a", projector, one, t, {}, {.continuation = continues});
    ASSERT_TRUE(behind.ok()) << behind.status().message();
    EXPECT_EQ(behind->size(), bos ? 3u : 2u);
    EXPECT_EQ(behind->back().tokens, tail);
  }
}

}  // namespace
}  // namespace sluice::test
