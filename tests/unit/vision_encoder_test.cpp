// Vision encoders compared with llama.cpp's embeddings, for every family of
// ../shared/fixtures/vision, and with themselves at the smallest budget and with other threads and
// kernels.
#include <cstring>
#include <nlohmann/json.hpp>

#include "media/preprocess.h"
#include "vision/encoder_file_native.h"
#include "vision_files.h"

namespace sluice::test {
namespace {

using nlohmann::json;

std::filesystem::path vision_folder() {
  return std::filesystem::path(shared_dir()) / "fixtures/vision";
}
json vision_manifest() {
  const std::vector<uint8_t> bytes = read_bytes(vision_folder() / "manifest.json");
  return json::parse(bytes.begin(), bytes.end());
}
bool has_sound(const json& entry) {
  return std::any_of(entry["media"].begin(), entry["media"].end(),
                     [](const json& media) { return media.get<std::string>().ends_with(".wav"); });
}

std::unique_ptr<vision::EncoderFile> open_encoder(const ParsedFile& file,
                                                  const vision::EncoderOptions& options,
                                                  int n_threads = 2) {
  vision::EncoderFile::Sources sources;
  sources.push_back(io::open_memory(file.bytes));
  auto opened = vision::EncoderFile::open(file.header, std::move(sources), options, n_threads);
  EXPECT_TRUE(opened.ok()) << opened.status().message();
  return opened.ok() ? std::move(*opened) : nullptr;
}

// The inputs of a case's pictures, in the order of its prompt.
std::vector<media::Image> inputs_of(const media::Projector& projector, const json& entry) {
  media::TokenLimits limits;
  if (entry.contains("limits")) {
    limits = {entry["limits"].value("min", 0u), entry["limits"].value("max", 0u)};
  }
  std::vector<media::Image> out;
  for (const json& media : entry["media"]) {
    const std::string name = media.get<std::string>();
    const std::string png = std::filesystem::path(name).filename().string() + ".png";
    auto image =
        media::decode(read_bytes(name.ends_with(".jpg") ? vision_folder() / "media/decoded" / png
                                                        : vision_folder() / name),
                      {media::DecodeMode::kReference});
    EXPECT_TRUE(image.ok()) << image.status().message();
    if (!image.ok()) return out;
    auto plan = media::plan_image(projector, image->width, image->height, limits);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    if (!plan.ok()) return out;
    auto made = media::preprocess(projector, *plan, *image);
    EXPECT_TRUE(made.ok()) << made.status().message();
    for (const media::Piece& piece : plan->pieces) {
      if (piece.input < 0) continue;
      out.push_back(std::move((*made)[static_cast<size_t>(piece.input)]));
    }
  }
  return out;
}

std::vector<float> encode_all(vision::EncoderFile& file, const std::vector<media::Image>& inputs) {
  std::vector<float> out;
  for (const media::Image& input : inputs) {
    auto tokens = file.encoder().n_tokens(input.width, input.height);
    EXPECT_TRUE(tokens.ok()) << tokens.status().message();
    if (!tokens.ok()) return out;
    std::vector<float> one(size_t{*tokens} * file.encoder().width());
    const Status status = file.encode(input, one);
    EXPECT_TRUE(status.ok()) << status.message();
    out.insert(out.end(), one.begin(), one.end());
  }
  return out;
}

double relative_error(const std::vector<float>& got, const std::vector<uint8_t>& file) {
  EXPECT_EQ(got.size() * sizeof(float), file.size());
  if (got.size() * sizeof(float) != file.size()) return 1;
  double error = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    float want = 0;
    std::memcpy(&want, file.data() + i * sizeof want, sizeof want);
    error += (got[i] - want) * static_cast<double>(got[i] - want);
    norm += static_cast<double>(want) * want;
  }
  return error / norm;
}

bool can_encode() {
  return std::filesystem::is_directory(vision_folder()) &&
         can_decode(read_bytes(vision_folder() / "media/wide.png"));
}

TEST(VisionEncoder, EveryCaseHasTheReferencesEmbeddings) {
  if (!can_encode()) GTEST_SKIP() << "../shared/fixtures/vision or a decoder is absent";
  size_t cases = 0, with_sound = 0;
  for (const json& family : vision_manifest()) {
    const auto file = parse_file(vision_folder() / family["mmproj"].get<std::string>());
    const auto encoder = open_encoder(*file, {});
    ASSERT_NE(encoder, nullptr) << family["name"];
    for (const json& entry : family["cases"]) {
      if (has_sound(entry)) {
        ++with_sound;
        continue;
      }
      SCOPED_TRACE(family["name"].get<std::string>() + " " + entry["name"].get<std::string>());
      const auto got = encode_all(*encoder, inputs_of(encoder->projector(), entry));
      const auto want = read_bytes(vision_folder() / entry["embd"].get<std::string>());
      EXPECT_LT(relative_error(got, want), 1e-9);
      ++cases;
    }
  }
  EXPECT_EQ(cases, 111u);
  EXPECT_EQ(with_sound, 3u);
}

// The smallest budget that encodes all of these inputs.
uint64_t smallest_budget(vision::Encoder& encoder, const std::vector<media::Image>& inputs) {
  uint64_t out = 0;
  for (const media::Image& input : inputs) {
    auto plan = encoder.plan_for(input.width, input.height, 0);
    EXPECT_TRUE(plan.ok());
    if (plan.ok()) out = std::max(out, plan->minimum);
  }
  return out;
}

TEST(VisionEncoder, BitsDependNeitherOnTheBudgetNorOnThreads) {
  if (!can_encode()) GTEST_SKIP() << "../shared/fixtures/vision or a decoder is absent";
  size_t streamed = 0;
  for (const json& family : vision_manifest()) {
    SCOPED_TRACE(family["name"].get<std::string>());
    const json& entry = family["cases"][0];
    if (has_sound(entry)) continue;
    const auto file = parse_file(vision_folder() / family["mmproj"].get<std::string>());
    const auto encoder = open_encoder(*file, {}, 1);
    ASSERT_NE(encoder, nullptr);
    const auto inputs = inputs_of(encoder->projector(), entry);
    const std::vector<float> want = encode_all(*encoder, inputs);
    // All at once, and twice with one encoder.
    const uint64_t least = smallest_budget(encoder->encoder(), inputs);
    const auto small = open_encoder(*file, {.memory_budget = least}, 1);
    ASSERT_NE(small, nullptr);
    for (int run = 0; run < 2; ++run) EXPECT_EQ(encode_all(*small, inputs), want);
    EXPECT_LE(small->encoder().plan().total(), least);
    streamed += small->encoder().plan().weights.n_slots > 0;
    const auto threads = open_encoder(*file, {}, 3);
    EXPECT_EQ(encode_all(*threads, inputs), want);
    const auto tight = open_encoder(*file, {.memory_budget = least - 1}, 1);
    auto refused = tight->encoder().plan_for(inputs[0].width, inputs[0].height, least - 1);
    const bool all_need_it = inputs.size() == 1;
    if (!all_need_it) continue;
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.status().code(), Code::kBudgetTooSmall);
    EXPECT_NE(refused.status().message().find(std::to_string(least)), std::string::npos);
  }
  EXPECT_EQ(streamed, 25u);
}

}  // namespace
}  // namespace sluice::test
