#include "media/projector.h"

#include <cmath>
#include <string>

#include "gguf/printable.h"

namespace sluice::media {
namespace {

constexpr uint32_t kMaxImageSide = 16384, kMaxPatch = 1024, kMaxMerge = 64, kMaxWidth = 1 << 16;
constexpr uint32_t kMaxGridSide = 15;  // of square grids: 225 tiles and an overview

// Reads keys below clip.vision.; the first wrong one becomes the status.
class KeyReader {
 public:
  explicit KeyReader(const gguf::Header& header) : header_(header) {}

  // A number from `least` to `most`. `otherwise`: what a missing key means; below `least`, the key
  // must be there.
  uint32_t number(const char* name, uint32_t least, uint32_t most, uint32_t otherwise) {
    return read("clip.vision." + std::string(name), least, most, otherwise);
  }
  uint32_t read(const std::string& key, uint32_t least, uint32_t most, uint32_t otherwise) {
    const gguf::Value* value = header_.find(key);
    if (value == nullptr && otherwise >= least) return otherwise;
    const std::optional<uint64_t> found = value == nullptr ? std::nullopt : value->as_u64();
    if (!found || *found < least || *found > most) {
      fail(key, "a number from " + std::to_string(least) + " to " + std::to_string(most));
      return least;
    }
    return static_cast<uint32_t>(*found);
  }
  std::array<float, 3> colours(const char* name, bool divisor) {
    const std::string key = "clip.vision." + std::string(name);
    const gguf::Value* value = header_.find(key);
    std::array<float, 3> out{};
    for (size_t i = 0; i < 3; ++i) {
      out[i] = value == nullptr ? NAN : static_cast<float>(value->number_at(i));
      if (value == nullptr || value->count != 3 || !std::isfinite(out[i]) ||
          (divisor && out[i] <= 0)) {
        fail(key, divisor ? "three positive numbers" : "three numbers");
      }
    }
    return out;
  }
  void fail(const std::string& key, const std::string& wanted) {
    if (!status_.ok()) return;
    status_ =
        error(Code::kBadHeader, "the projector's key %s must be %s", key.c_str(), wanted.c_str());
  }
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  const gguf::Header& header_;
  Status status_;
};

Result<const Family*> read_family(const gguf::Header& header) {
  if (header.get_string("general.architecture") != std::string_view("clip")) {
    return error(Code::kUnsupportedArchitecture,
                 "the file is not a projector: its general.architecture is not clip");
  }
  if (!header.get_bool("clip.has_vision_encoder").value_or(false)) {
    return error(Code::kNotSupported, "the projector has no vision encoder");
  }
  std::optional<std::string_view> type = header.get_string("clip.vision.projector_type");
  if (!type) type = header.get_string("clip.projector_type");
  if (!type) return error(Code::kBadHeader, "the projector has no key clip.projector_type");
  const Family* family = find_family(*type);
  if (family == nullptr) {
    return error(Code::kUnsupportedArchitecture, "the projector type \"%s\" is not supported",
                 gguf::printable(*type).c_str());
  }
  return family;
}

void read_pinpoints(const gguf::Header& header, KeyReader* keys, Projector* out) {
  constexpr const char* kKey = "clip.vision.image_grid_pinpoints";
  const gguf::Value* value = header.find(kKey);
  if (value == nullptr || value->count == 0) return;
  const uint64_t n = value->count;
  if (n % 2 != 0 || n > 2 * kMaxInputTiles) return keys->fail(kKey, "pairs of sizes");
  for (uint64_t i = 0; i < n; i += 2) {
    const double width = value->number_at(i), height = value->number_at(i + 1);
    const double size = out->image_size;
    const bool whole = std::fmod(width, size) == 0 && std::fmod(height, size) == 0;
    if (!whole || width < size || height < size ||
        width / size * (height / size) >= kMaxInputTiles) {
      return keys->fail(kKey, "pairs of sizes, multiples of image_size");
    }
    out->pinpoints.emplace_back(static_cast<uint32_t>(width), static_cast<uint32_t>(height));
  }
  out->sizing = Sizing::kPinpoints;
  out->background = {};
}

// Sizes that follow the picture: limits in pixels of an input.
void read_limits(KeyReader* keys, Projector* out) {
  const Family& family = *out->family;
  const uint64_t token = uint64_t{out->token_side()} * out->token_side();
  if (family.max_tokens > 0) {
    out->min_pixels = family.min_tokens * token;
    out->max_pixels = family.max_tokens * token;
    return;
  }
  const auto most = static_cast<uint32_t>(kMaxPixels);
  out->max_pixels = keys->number("image_max_pixels", 1, most, 0);
  out->min_pixels = keys->number("image_min_pixels", 1, most, 0);
  if (out->max_pixels < out->min_pixels || out->max_pixels < token) {
    keys->fail("clip.vision.image_max_pixels", "at least image_min_pixels, and a token");
  }
}

void read_sizing(const gguf::Header& header, KeyReader* keys, Projector* out) {
  switch (out->sizing) {
    case Sizing::kFixed:
      if (std::string_view(out->family->type) == "mlp") read_pinpoints(header, keys, out);
      return;
    case Sizing::kFree:
    case Sizing::kLfm2:
      return read_limits(keys, out);
    case Sizing::kLongestSide:
    case Sizing::kIdefics:
      out->longest_side = keys->number("preproc_image_size", 1, kMaxImageSide, 0);
      if (out->sizing == Sizing::kIdefics && out->longest_side / out->image_size >= kMaxGridSide) {
        keys->fail("clip.vision.preproc_image_size", "below 15 times image_size");
      }
      return;
    case Sizing::kGrids:
      out->min_tiles = keys->number("preproc_min_tiles", 1, kMaxInputTiles - 1, 1);
      out->max_tiles = keys->number("preproc_max_tiles", 1, kMaxInputTiles - 1, 12);
      if (out->max_tiles < out->min_tiles) {
        keys->fail("clip.vision.preproc_max_tiles", "at least preproc_min_tiles");
      }
      return;
    case Sizing::kPinpoints:
    case Sizing::kMinicpm:
      return;
  }
}

// A resampler makes a fixed number of tokens of each input, which old files do not have as a key.
void read_queries(KeyReader* keys, Projector* out) {
  if (std::string_view(out->family->type) != "resampler") return;
  constexpr uint32_t kFirstVersion = 2, kLastVersion = 6, kOmniVersion = 100045;
  constexpr const char* kKey = "clip.minicpmv_version";
  const uint32_t version = keys->read(kKey, kFirstVersion, kOmniVersion, kFirstVersion);
  if (version > kLastVersion && version != kOmniVersion) keys->fail(kKey, "2 to 6, or 100045");
  out->minicpmv_version = version;
  const uint32_t usual = version == kFirstVersion ? 96 : 64;
  out->n_queries = keys->read("clip.minicpmv_query_num", 1, 4096, usual);
}

}  // namespace

Result<Projector> read_projector(const gguf::Header& header) {
  Result<const Family*> family = read_family(header);
  if (!family.ok()) return family.status();
  Projector out;
  out.family = *family;
  out.sizing = out.family->sizing;
  out.background = out.family->background;
  KeyReader keys(header);
  out.image_size = keys.number("image_size", 1, kMaxImageSide, 0);
  out.patch_size = keys.number("patch_size", 1, kMaxPatch, 0);
  out.merge = out.family->merge;
  if (out.family->merge_key[0] != '\0') {
    out.merge = keys.number(out.family->merge_key, 1, kMaxMerge, out.family->merge);
  }
  out.n_embd = keys.number("embedding_length", 1, kMaxWidth, 0);
  out.n_layers = keys.number("block_count", 0, kMaxWidth, 0);
  out.n_heads = keys.number("attention.head_count", 0, kMaxWidth, 0);
  out.projection_dim = keys.number("projection_dim", 0, kMaxWidth, 0);
  out.norm_epsilon =
      static_cast<float>(header.get_f64("clip.vision.attention.layer_norm_epsilon").value_or(1e-6));
  out.mean = keys.colours("image_mean", false);
  out.deviation = keys.colours("image_std", true);
  read_sizing(header, &keys, &out);
  read_queries(&keys, &out);
  out.row_breaks = header.find_tensor("v.token_embd.img_break") != nullptr;
  out.has_audio = header.get_bool("clip.has_audio_encoder").value_or(false);
  if (out.sizing != Sizing::kFree && out.sizing != Sizing::kMinicpm &&
      out.sizing != Sizing::kLongestSide && out.image_size < out.token_side()) {
    keys.fail("clip.vision.image_size", "at least the side of a token");
  }
  if (out.sizing == Sizing::kLfm2 && kLfm2Tile % out.token_side() != 0) {
    keys.fail("clip.vision.patch_size", "a divisor of the tiles' 512 pixels, with the scale");
  }
  if (!keys.status().ok()) return keys.status();
  return out;
}

}  // namespace sluice::media
