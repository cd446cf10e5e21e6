// The arithmetic of sizes: pure functions from a picture's size to the sizes of its inputs. All in
// single precision, because that is what decides between two sizes at a boundary in llama.cpp.
#pragma once

#include <cstdint>

namespace sluice::media {

struct Size {
  uint32_t width = 0, height = 0;
  [[nodiscard]] uint64_t pixels() const { return uint64_t{width} * height; }
};

// Whole multiples of `side` near the picture's own size, with min_pixels to max_pixels pixels. The
// longer side is cut where a thin picture would exceed the maximum.
[[nodiscard]] Size free_size(Size picture, uint32_t side, uint64_t min_pixels, uint64_t max_pixels);

// The longer side `edge`, both rounded up to multiples of `side`.
[[nodiscard]] Size longest_side_size(Size picture, uint32_t side, uint32_t edge);

// The longer side `edge`, the other truncated and made even.
[[nodiscard]] Size even_size(Size picture, uint32_t edge);

// The candidate that keeps most of the picture's pixels when it is scaled to fit; of equal ones the
// smallest; then the first.
class BestCandidate {
 public:
  explicit BestCandidate(Size picture) : picture_(picture) {}
  void offer(Size candidate);
  [[nodiscard]] Size best() const { return best_; }

 private:
  Size picture_, best_;
  uint64_t kept_ = 0, rest_ = 0;
};

// Columns and rows of 2 to 10 tiles of `tile` pixels a side, the closest in aspect.
[[nodiscard]] Size lfm2_grid(Size picture, uint32_t tile);
// Whether a picture is cut into tiles: it exceeds twice the pixels of one input.
[[nodiscard]] bool lfm2_has_tiles(Size picture, uint32_t side, uint64_t max_pixels);

// About z * z pixels in the picture's aspect; with `enlarge`, smaller pictures are enlarged.
// Rounded to multiples of `side`.
[[nodiscard]] Size minicpm_size(Size picture, uint32_t z, uint32_t side, bool enlarge);
// Columns and rows of at most 9 slices.
[[nodiscard]] Size minicpm_grid(Size picture, uint32_t z);
// The size of one slice.
[[nodiscard]] Size minicpm_slice(Size picture, Size grid, uint32_t z, uint32_t side);

}  // namespace sluice::media
