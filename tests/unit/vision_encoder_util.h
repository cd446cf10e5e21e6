// Projectors and their pictures for the tests of src/vision: ../shared/fixtures/vision, or the part
// of it in tests/data.
#pragma once

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "../vision_manifest.h"
#include "media/preprocess.h"
#include "vision/encoder_file_native.h"
#include "vision_files.h"

namespace sluice::test {

inline std::filesystem::path all_vision_fixtures() {
  return std::filesystem::path(shared_dir()) / "fixtures/vision";
}
// Builds without the libraries of pictures read the part in tests/data, whose picture is a BMP.
inline bool has_all_vision_fixtures() {
  return std::filesystem::is_directory(all_vision_fixtures()) &&
         can_decode(read_bytes(all_vision_fixtures() / "media/wide.png"));
}
inline std::filesystem::path vision_folder() {
  if (has_all_vision_fixtures()) return all_vision_fixtures();
  return std::filesystem::path(source_dir()) / "tests/data/vision";
}
inline nlohmann::json vision_manifest() {
  const std::vector<uint8_t> bytes = read_bytes(vision_folder() / "manifest.json");
  return nlohmann::json::parse(bytes.begin(), bytes.end());
}

// `bytes` must outlive the result.
inline Result<std::unique_ptr<vision::EncoderFile>> try_encoder(
    const gguf::Header& header, std::span<const uint8_t> bytes,
    const vision::EncoderOptions& options = {}, int n_threads = 2) {
  vision::EncoderFile::Sources sources;
  sources.push_back(io::open_memory(bytes));
  return vision::EncoderFile::open(header, std::move(sources), options, n_threads);
}
inline std::unique_ptr<vision::EncoderFile> open_encoder(const ParsedFile& file,
                                                         const vision::EncoderOptions& options = {},
                                                         int n_threads = 2) {
  auto opened = try_encoder(file.header, file.bytes, options, n_threads);
  EXPECT_TRUE(opened.ok()) << opened.status().message();
  return opened.ok() ? std::move(*opened) : nullptr;
}

// The inputs of a case's pictures, in the order of its prompt. JPEG files differ between decoders:
// their stored pixels are used.
inline std::vector<media::Image> inputs_of(const media::Projector& projector,
                                           const nlohmann::json& entry) {
  media::TokenLimits limits;
  if (entry.contains("limits")) {
    limits = {entry["limits"].value("min", 0u), entry["limits"].value("max", 0u)};
  }
  std::vector<media::Image> out;
  for (const nlohmann::json& media : entry["media"]) {
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
    if (!made.ok()) return out;
    for (const media::Piece& piece : plan->pieces) {
      if (piece.input < 0) continue;
      out.push_back(std::move((*made)[static_cast<size_t>(piece.input)]));
    }
  }
  return out;
}

inline Status encode_one(vision::EncoderFile& file, const media::Image& input,
                         std::vector<float>* out) {
  auto tokens = file.encoder().n_tokens(input.width, input.height);
  if (!tokens.ok()) return tokens.status();
  out->resize(size_t{*tokens} * file.encoder().width());
  return file.encode(input, *out);
}
inline std::vector<float> encode_all(vision::EncoderFile& file,
                                     const std::vector<media::Image>& inputs) {
  std::vector<float> out, one;
  for (const media::Image& input : inputs) {
    const Status status = encode_one(file, input, &one);
    EXPECT_TRUE(status.ok()) << status.message();
    out.insert(out.end(), one.begin(), one.end());
  }
  return out;
}

// |a - b|^2 / |b|^2.
inline double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  if (a.size() != b.size() || a.empty()) return 1;
  double error = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    error += (a[i] - b[i]) * static_cast<double>(a[i] - b[i]);
    norm += static_cast<double>(b[i]) * b[i];
  }
  return error / norm;
}

}  // namespace sluice::test
