#include "media/plan.h"

#include <algorithm>
#include <charconv>

#include "base/round_up.h"
#include "media/sizes.h"

namespace sluice::media {
namespace {

// Collects canvases, inputs and pieces. The first canvas is made of the picture.
class Planner {
 public:
  Planner(const Projector& projector, PicturePlan* out) : projector_(projector), out_(out) {}

  uint32_t canvas(Size size, bool stretch, bool from_picture = true) {
    out_->canvases.push_back({size.width, size.height, stretch, from_picture});
    return static_cast<uint32_t>(out_->canvases.size()) - 1;
  }
  void text(std::string text) {
    if (!text.empty()) out_->pieces.push_back({std::move(text), -1});
  }
  // An input cut from a canvas at (x, y).
  void input(uint32_t canvas, Size size, uint32_t x = 0, uint32_t y = 0) {
    EncoderInput input{
        .width = size.width, .height = size.height, .canvas = canvas, .x = x, .y = y};
    const uint32_t side = projector_.token_side();
    if (projector_.n_queries > 0) {
      input.n_tokens = projector_.n_queries;
    } else {
      input.columns = size.width / side;
      input.rows = size.height / side;
      input.n_tokens = input.columns * input.rows + projector_.family->extra_tokens;
      if (projector_.row_breaks && input.rows > 0) input.n_tokens += input.rows - 1;
    }
    out_->n_tokens += input.n_tokens;
    out_->pieces.push_back({"", static_cast<int32_t>(out_->inputs.size())});
    out_->inputs.push_back(input);
  }
  // A canvas that is one input.
  void whole(Size size, bool stretch) { input(canvas(size, stretch), size); }

 private:
  const Projector& projector_;
  PicturePlan* out_;
};

std::string numbered(const char* before, uint32_t row, uint32_t column) {
  return std::string(before) + "row_" + std::to_string(row + 1) + "_col_" +
         std::to_string(column + 1);
}

// Calls `each(column, row)` for every tile of `tile` in `all`, by rows.
template <class Each>
void for_tiles(Size all, Size tile, const Each& each) {
  for (uint32_t row = 0; row < all.height / tile.height; ++row) {
    for (uint32_t column = 0; column < all.width / tile.width; ++column) each(column, row);
  }
}

// Tiles, then the overview, with nothing between.
void plan_tiles(const Projector& projector, Size picture, Planner* to) {
  const uint32_t z = projector.image_size;
  const Size tile{z, z};
  if (picture.width > z || picture.height > z) {
    BestCandidate candidates(picture);
    for (const auto& [width, height] : projector.pinpoints) candidates.offer({width, height});
    if (projector.sizing == Sizing::kGrids) {
      for (uint32_t a = 1; a <= projector.max_tiles; ++a) {
        for (uint32_t b = 1; a * b <= projector.max_tiles; ++b) {
          if (a * b >= projector.min_tiles) candidates.offer({a * z, b * z});
        }
      }
    }
    const Size all = candidates.best();
    const uint32_t canvas = to->canvas(all, false);
    for_tiles(all, tile,
              [&](uint32_t column, uint32_t row) { to->input(canvas, tile, column * z, row * z); });
  }
  to->whole(tile, true);
}

void plan_idefics(const Projector& projector, Size picture, Planner* to) {
  const uint32_t z = projector.image_size;
  const Size first = even_size(picture, projector.longest_side);
  const Size all{static_cast<uint32_t>(round_up(first.width, z)),
                 static_cast<uint32_t>(round_up(first.height, z))};
  to->canvas(first, true);
  const uint32_t canvas = to->canvas(all, true, false);
  const Size tile{z, z};
  const uint32_t columns = all.width / z, rows = all.height / z;
  for_tiles(all, tile, [&](uint32_t column, uint32_t row) {
    to->text(numbered("<fake_token_around_image><", row, column) + ">");
    to->input(canvas, tile, column * z, row * z);
    if (column == columns - 1 && row < rows - 1) to->text("\n");
  });
  to->text("\n\n");
  to->text("<fake_token_around_image>");
  to->text("<global-img>");
  to->input(to->canvas(tile, true, false), tile);
  to->text("<fake_token_around_image>");
}

void plan_lfm2(const Projector& projector, Size picture, Planner* to) {
  const uint32_t side = projector.token_side();
  const Size single = free_size(picture, side, projector.min_pixels, projector.max_pixels);
  if (lfm2_has_tiles(picture, side, projector.max_pixels)) {
    const Size grid = lfm2_grid(picture, kLfm2Tile), tile{kLfm2Tile, kLfm2Tile};
    const Size all{grid.width * kLfm2Tile, grid.height * kLfm2Tile};
    const uint32_t canvas = to->canvas(all, false);
    for_tiles(all, tile, [&](uint32_t column, uint32_t row) {
      to->text(numbered("<|img_", row, column) + "|>");
      to->input(canvas, tile, column * kLfm2Tile, row * kLfm2Tile);
    });
    to->text("<|img_thumbnail|>");
  }
  to->whole(single, true);
}

void plan_minicpm(const Projector& projector, Size picture, Planner* to) {
  const uint32_t z = projector.image_size;
  // Version 4.6 needs whole squares of patches; without its second merge the slices are cut as for
  // pictures of any size.
  const bool resampler = projector.n_queries > 0, small_merge = !resampler && projector.merge == 2;
  const uint32_t side = resampler ? projector.patch_size : projector.token_side();
  const bool one =
      small_merge ? picture.pixels() <= uint64_t{z} * z : picture.width <= z && picture.height <= z;
  const bool nested = projector.minicpmv_version == 2;  // <slice> around all slices
  to->text("<image>");
  to->whole(one && !small_merge ? Size{z, z} : minicpm_size(picture, z, side, one), true);
  to->text("</image>");
  if (one) return;
  const Size grid = minicpm_grid(picture, z), slice = minicpm_slice(picture, grid, z, side);
  const Size all{slice.width * grid.width, slice.height * grid.height};
  const uint32_t canvas = to->canvas(all, false);
  if (nested) to->text("<slice>");
  for_tiles(all, slice, [&](uint32_t column, uint32_t row) {
    to->text(nested ? "<image>" : "<slice>");
    to->input(canvas, slice, column * slice.width, row * slice.height);
    to->text(nested ? "</image>" : "</slice>");
    if (column == grid.width - 1 && row < grid.height - 1) to->text("\n");
  });
  if (nested) to->text("</slice>");
}

void plan_sizes(const Projector& projector, Size picture, Planner* to) {
  const uint32_t z = projector.image_size, side = projector.token_side();
  switch (projector.sizing) {
    case Sizing::kFixed:
      return to->whole({z, z}, false);
    case Sizing::kFree:
      return to->whole(free_size(picture, side, projector.min_pixels, projector.max_pixels), false);
    case Sizing::kLongestSide:
      return to->whole(longest_side_size(picture, side, projector.longest_side), false);
    case Sizing::kPinpoints:
    case Sizing::kGrids:
      return plan_tiles(projector, picture, to);
    case Sizing::kIdefics:
      return plan_idefics(projector, picture, to);
    case Sizing::kLfm2:
      return plan_lfm2(projector, picture, to);
    case Sizing::kMinicpm:
      return plan_minicpm(projector, picture, to);
  }
}

bool follows_picture(const Projector& projector) {
  return projector.sizing == Sizing::kFree || projector.sizing == Sizing::kLfm2;
}

// The projector with the caller's limits.
Result<Projector> limited(const Projector& projector, const TokenLimits& limits) {
  Projector out = projector;
  if (limits.min == 0 && limits.max == 0) return out;
  if (limits.min > kMaxImageTokens || limits.max > kMaxImageTokens ||
      (limits.max > 0 && limits.min > limits.max)) {
    return error(Code::kInvalidArgument, "%u to %u image tokens are not a range within 1 to %u",
                 limits.min, limits.max, kMaxImageTokens);
  }
  if (!follows_picture(projector)) {
    return error(Code::kNotSupported,
                 "the number of image tokens of the projector type \"%s\" cannot be limited",
                 projector.family->type);
  }
  const uint64_t token = uint64_t{out.token_side()} * out.token_side();
  if (limits.min > 0) out.min_pixels = limits.min * token;
  if (limits.max > 0) out.max_pixels = limits.max * token;
  // One limit alone moves the projector's other limit.
  if (limits.max == 0) out.max_pixels = std::max(out.max_pixels, out.min_pixels);
  out.min_pixels = std::min(out.min_pixels, out.max_pixels);
  return out;
}

uint64_t bytes_to_preprocess(const Projector& projector, const PicturePlan& plan) {
  uint64_t results = 0, work = 0;
  for (const EncoderInput& input : plan.inputs) results += 3ull * input.width * input.height;
  Size from{plan.width, plan.height};
  for (const Canvas& canvas : plan.canvases) {
    if (canvas.from_picture) from = {plan.width, plan.height};
    work = std::max(work, resize_bytes(from.width, from.height, canvas.width, canvas.height,
                                       projector.family->filter) +
                              3 * from.pixels());
    from = {canvas.width, canvas.height};
    work = std::max(work, 6 * from.pixels());
  }
  return results + work;
}

}  // namespace

Result<PicturePlan> plan_image(const Projector& projector, uint32_t width, uint32_t height,
                               const TokenLimits& limits) {
  SLUICE_RETURN_IF_ERROR(check_size(width, height));
  Result<Projector> within = limited(projector, limits);
  if (!within.ok()) return within.status();
  PicturePlan plan;
  plan.width = width;
  plan.height = height;
  plan.tiled = projector.sizing != Sizing::kFixed && projector.sizing != Sizing::kFree &&
               projector.sizing != Sizing::kLongestSide;
  Planner planner(*within, &plan);
  planner.text(projector.family->before);
  plan_sizes(*within, {width, height}, &planner);
  planner.text(projector.family->after);
  for (const Canvas& canvas : plan.canvases) {
    SLUICE_RETURN_IF_ERROR(check_size(canvas.width, canvas.height, kMaxPixels, kMaxCanvasSide));
  }
  if (plan.inputs.size() > kMaxInputTiles) {
    return error(Code::kInvalidArgument,
                 "a picture of %u x %u pixels has %zu tiles; the limit is %u", width, height,
                 plan.inputs.size(), kMaxInputTiles);
  }
  for (const EncoderInput& input : plan.inputs) {
    if (input.n_tokens == 0 || input.n_tokens > kMaxImageTokens) {
      return error(Code::kInvalidArgument,
                   "a picture of %u x %u pixels has %u tokens; the limit is %u", width, height,
                   input.n_tokens, kMaxImageTokens);
    }
  }
  plan.preprocess_bytes = bytes_to_preprocess(projector, plan);
  return plan;
}

Result<uint32_t> max_input_tokens(const Projector& projector, const TokenLimits& limits) {
  Result<Projector> within = limited(projector, limits);
  if (!within.ok()) return within.status();
  if (projector.n_queries > 0) return projector.n_queries;
  const uint64_t side = projector.token_side(), z = projector.image_size;
  const uint64_t across = z / side;
  uint64_t tokens = across * across, rows = across;
  if (follows_picture(projector)) {
    tokens = rows = within->max_pixels / (side * side);  // all rows of one token
    const uint64_t tile = kLfm2Tile / side;
    if (projector.sizing == Sizing::kLfm2) tokens = std::max(tokens, tile * tile);
  } else if (projector.sizing == Sizing::kLongestSide) {
    rows = round_up(projector.longest_side, side) / side;
    tokens = rows * rows;
  } else if (projector.sizing == Sizing::kMinicpm) {
    tokens = z * z / (side * side) + z * z / side + 2;  // a line of z * z pixels is the worst
  }
  tokens += projector.family->extra_tokens + (projector.row_breaks ? rows : 0);
  return static_cast<uint32_t>(std::min<uint64_t>(tokens, kMaxImageTokens));
}

Result<TokenLimits> parse_token_limits(std::string_view text) {
  const size_t colon = text.find(':');
  const auto number = [](std::string_view part, uint32_t* out) {
    if (part.empty()) return true;
    const char* end = part.data() + part.size();
    const auto [rest, problem] = std::from_chars(part.data(), end, *out);
    return rest == end && problem == std::errc() && *out <= kMaxImageTokens;
  };
  TokenLimits limits;
  if (colon == std::string_view::npos || text.size() == 1 ||
      !number(text.substr(0, colon), &limits.min) || !number(text.substr(colon + 1), &limits.max) ||
      (limits.max > 0 && limits.min > limits.max)) {
    return error(Code::kInvalidArgument,
                 "\"%.32s\" is not a range of image tokens such as 64:1024, within 1 to %u",
                 std::string(text).c_str(), kMaxImageTokens);
  }
  return limits;
}

}  // namespace sluice::media
