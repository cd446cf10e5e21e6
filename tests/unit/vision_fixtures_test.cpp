// Pictures through decoding, preprocessing and layout, compared with llama.cpp's results for every
// family of ../shared/fixtures/vision.
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "media/preprocess.h"
#include "media/prompt.h"
#include "sha256.h"
#include "vision_files.h"

namespace sluice::test {
namespace {

using media::DecodeMode;
using media::Image;
using nlohmann::json;
using std::filesystem::path;

path fixtures() {
  return path(shared_dir()) / "fixtures/vision";
}
json read_json(const path& file) {
  const std::vector<uint8_t> bytes = read_bytes(file);
  return json::parse(bytes.begin(), bytes.end());
}

Result<Image> decode_reference(const path& file) {
  return media::decode(read_bytes(file), {DecodeMode::kReference});
}

#define SKIP_WITHOUT_FIXTURES()                                 \
  if (!std::filesystem::is_directory(fixtures())) {             \
    GTEST_SKIP() << "../shared/fixtures/vision is absent";      \
  }                                                             \
  if (!can_decode(read_bytes(fixtures() / "media/wide.png"))) { \
    GTEST_SKIP() << "this build has no libraries for pictures"; \
  }

TEST(VisionFixtures, FilesDecodeToTheReferencesPixels) {
  SKIP_WITHOUT_FIXTURES();
  const json media = read_json(fixtures() / "media.json");
  int exact = 0, near = 0;
  for (const json& each : media) {
    const std::string file = each["file"];
    if (!file.ends_with(".png") && !file.ends_with(".bmp") && !file.ends_with(".jpg")) continue;
    SCOPED_TRACE(file);
    auto image = decode_reference(fixtures() / file);
    ASSERT_TRUE(image.ok()) << image.status().message();
    ASSERT_EQ(image->width, each["width"].get<uint32_t>());
    ASSERT_EQ(image->height, each["height"].get<uint32_t>());
    const std::span<const uint8_t> bytes(image->row(0), image->size());
    if (!file.ends_with(".jpg")) {
      EXPECT_EQ(sha256(bytes), each["sha256"].get<std::string>());
      ++exact;
      continue;
    }
    auto wanted = decode_reference(fixtures() / each["decoded"].get<std::string>());
    ASSERT_TRUE(wanted.ok());
    double sum = 0;
    int largest = 0;
    for (size_t i = 0; i < bytes.size(); ++i) {
      const int difference = std::abs(bytes[i] - wanted->row(0)[i]);
      largest = std::max(largest, difference);
      sum += difference;
    }
    EXPECT_LE(largest, 3);
    EXPECT_LE(sum / static_cast<double>(bytes.size()), 0.1);
    ++near;
  }
  EXPECT_EQ(exact, 14);
  EXPECT_EQ(near, 5);
}

// One family with the files that its cases need.
class Family {
 public:
  explicit Family(const json& entry)
      : text_(parse_file(fixtures() / entry["model"].get<std::string>())),
        mmproj_(parse_file(fixtures() / entry["mmproj"].get<std::string>())),
        projector_(media::read_projector(mmproj_->header)),
        tokenizer_(tokenizer::Tokenizer::create(text_->header)) {}

  // Compares a case; returns the number of its inputs.
  size_t check(const json& entry) {
    EXPECT_TRUE(projector_.ok()) << projector_.status().message();
    EXPECT_TRUE(tokenizer_.ok()) << tokenizer_.status().message();
    if (!projector_.ok() || !tokenizer_.ok()) return 0;
    media::TokenLimits limits;
    if (entry.contains("limits")) {
      limits = {entry["limits"].value("min", 0u), entry["limits"].value("max", 0u)};
    }
    std::vector<media::PicturePlan> plans;
    std::vector<std::vector<Image>> inputs;
    for (const json& media : entry["media"]) {
      auto image = decode_reference(decoded(media));
      EXPECT_TRUE(image.ok()) << image.status().message();
      auto plan = media::plan_image(*projector_, image->width, image->height, limits);
      EXPECT_TRUE(plan.ok()) << plan.status().message();
      if (!plan.ok()) return 0;
      auto made = media::preprocess(*projector_, *plan, *image);
      EXPECT_TRUE(made.ok()) << made.status().message();
      if (!made.ok()) return 0;
      plans.push_back(std::move(*plan));
      inputs.push_back(std::move(*made));
    }
    auto chunks = media::layout(entry["prompt"].get<std::string>(), *projector_, plans,
                                **tokenizer_, media::TextModel::from(text_->header));
    EXPECT_TRUE(chunks.ok()) << chunks.status().message();
    if (!chunks.ok()) return 0;
    check_chunks(*chunks, entry["chunks"], inputs);
    return check_pixels(entry["input"], *chunks, inputs);
  }

 private:
  // JPEG files differ between decoders: their stored pixels are used.
  static path decoded(const std::string& file) {
    const path png = fixtures() / "media/decoded" / (path(file).filename().string() + ".png");
    return file.ends_with(".jpg") ? png : fixtures() / file;
  }

  static void check_chunks(const std::vector<media::Chunk>& chunks, const json& wanted,
                           const std::vector<std::vector<Image>>& inputs) {
    ASSERT_EQ(chunks.size(), wanted.size());
    for (size_t i = 0; i < chunks.size(); ++i) {
      SCOPED_TRACE("chunk " + std::to_string(i));
      const media::Chunk& chunk = chunks[i];
      const json& want = wanted[i];
      EXPECT_EQ(chunk.position, want["pos"].get<uint32_t>());
      ASSERT_EQ(chunk.is_image, want["type"] == "image");
      if (!chunk.is_image) {
        EXPECT_EQ(chunk.tokens, want["tokens"].get<std::vector<media::Token>>());
        continue;
      }
      ASSERT_EQ(chunk.n_tokens, want["n_tokens"].get<uint32_t>());
      EXPECT_EQ(chunk.n_positions, want["n_pos"].get<uint32_t>());
      EXPECT_EQ(chunk.non_causal, want["non_causal"].get<bool>());
      EXPECT_EQ(chunk.columns, want["nx"].get<uint32_t>());
      EXPECT_EQ(chunk.rows, want["ny"].get<uint32_t>());
      ASSERT_EQ(want["inputs"].size(), 1u);
      const Image& input = inputs[chunk.picture][chunk.input];
      EXPECT_EQ(input.width, want["inputs"][0]["width"].get<uint32_t>());
      EXPECT_EQ(input.height, want["inputs"][0]["height"].get<uint32_t>());
      if (!want.contains("t")) continue;
      for (uint32_t k = 0; k < chunk.n_tokens; ++k) {
        const media::Position at = chunk.at(k);
        ASSERT_EQ(at.time, want["t"][k].get<uint32_t>());
        ASSERT_EQ(at.row, want["h"][k].get<uint32_t>());
        ASSERT_EQ(at.column, want["w"][k].get<uint32_t>());
      }
    }
  }

  size_t check_pixels(const json& wanted, const std::vector<media::Chunk>& chunks,
                      const std::vector<std::vector<Image>>& inputs) {
    std::vector<uint8_t> bytes;
    std::vector<float> values;
    size_t n = 0;
    for (const media::Chunk& chunk : chunks) {
      if (!chunk.is_image) continue;
      const Image& input = inputs[chunk.picture][chunk.input];
      bytes.insert(bytes.end(), input.row(0), input.row(0) + input.size());
      std::vector<float> some(static_cast<size_t>(input.size()));
      media::normalize(*projector_, input, some);
      values.insert(values.end(), some.begin(), some.end());
      ++n;
    }
    if (wanted["dtype"] == "u8") {
      EXPECT_EQ(sha256(bytes), wanted["sha256"].get<std::string>());
      return n;
    }
    const std::vector<uint8_t> file = read_bytes(fixtures() / wanted["file"].get<std::string>());
    EXPECT_EQ(file.size(), values.size() * sizeof(float));
    double largest = 0;
    for (size_t i = 0; i < values.size() && (i + 1) * sizeof(float) <= file.size(); ++i) {
      float want = 0;
      std::memcpy(&want, file.data() + i * sizeof want, sizeof want);
      largest = std::max<double>(largest, std::fabs(want - values[i]));
    }
    EXPECT_LE(largest, 1e-6);
    return n;
  }

  std::unique_ptr<ParsedFile> text_, mmproj_;
  Result<media::Projector> projector_;
  Result<std::unique_ptr<tokenizer::Tokenizer>> tokenizer_;
};

TEST(VisionFixtures, EveryCaseHasTheReferencesInputsTokensAndPositions) {
  SKIP_WITHOUT_FIXTURES();
  size_t cases = 0, with_sound = 0, inputs = 0, families = 0;
  for (const json& entry : read_json(fixtures() / "manifest.json")) {
    Family family(entry);
    ++families;
    for (const json& each : entry["cases"]) {
      const auto sound = [](const json& media) {
        return media.get<std::string>().ends_with(".wav");
      };
      if (std::any_of(each["media"].begin(), each["media"].end(), sound)) {
        ++with_sound;
        continue;
      }
      SCOPED_TRACE(entry["name"].get<std::string>() + " " + each["name"].get<std::string>());
      inputs += family.check(each);
      ++cases;
    }
  }
  EXPECT_EQ(families, 27u);
  EXPECT_EQ(cases, 111u);
  EXPECT_EQ(with_sound, 3u);
  EXPECT_EQ(inputs, 244u);
}

}  // namespace
}  // namespace sluice::test
