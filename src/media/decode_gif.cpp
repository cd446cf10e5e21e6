// GIF: the first frame on its canvas. What the frame leaves free or transparent is white, or with
// the reference mode as in llama.cpp's reader: black, and around the frame the background colour
// unless that is colour 0.
// Format: https://www.w3.org/Graphics/GIF/spec-gif89a.txt
#include <array>
#include <cstring>

#include "media/codecs.h"

namespace sluice::media {
namespace {

constexpr uint8_t kExtension = 0x21, kFrame = 0x2c, kGraphicControl = 0xf9;
constexpr uint32_t kNoColour = 256;

// Reads bytes in order; behind the end it yields zeros and fails.
class GifReader {
 public:
  explicit GifReader(Bytes file) : file_(file) {}
  [[nodiscard]] bool ok() const { return at_ <= file_.size(); }
  [[nodiscard]] uint64_t position() const { return at_; }
  void skip(uint64_t n) { at_ += n; }
  uint8_t byte() {
    const uint64_t at = at_++;
    return at < file_.size() ? file_[static_cast<size_t>(at)] : uint8_t{0};
  }
  uint32_t two_bytes() {
    const uint32_t low = byte();
    return low | uint32_t{byte()} << 8;
  }
  void skip_blocks() {
    while (ok()) {
      const uint8_t n = byte();
      if (n == 0) return;
      skip(n);
    }
  }

 private:
  Bytes file_;
  uint64_t at_ = 0;
};

struct Palette {
  uint64_t at = 0;  // offset of the first colour; 0: none
  uint32_t n = 0;
};

struct GifFrame {
  uint32_t screen_width = 0, screen_height = 0, background = kNoColour;
  uint32_t x = 0, y = 0, width = 0, height = 0;
  uint32_t transparent = kNoColour;
  bool interlaced = false;
  Palette global, colours;  // the frame's own colours, or the global ones
  uint64_t data = 0;        // offset of the code size
};

Palette read_gif_palette(GifReader* reader, uint8_t flags) {
  Palette out;
  if ((flags & 0x80) == 0) return out;
  out.at = reader->position();
  out.n = 2u << (flags & 7);
  reader->skip(3ull * out.n);
  return out;
}

Status read_gif(Bytes file, GifFrame* out) {
  GifReader reader(file);
  reader.skip(6);  // the signature
  out->screen_width = reader.two_bytes();
  out->screen_height = reader.two_bytes();
  const uint8_t flags = reader.byte(), background = reader.byte();
  reader.skip(1);
  out->global = read_gif_palette(&reader, flags);
  if (background > 0 && background < out->global.n) out->background = background;
  for (;;) {
    const uint8_t block = reader.byte();
    if (!reader.ok()) return damaged("GIF", "the file ends too early");
    if (block == kFrame) break;
    if (block != kExtension) return damaged("GIF", "it has no picture");
    if (reader.byte() == kGraphicControl) {
      reader.skip(1);
      const bool transparent = (reader.byte() & 1) != 0;
      reader.skip(2);
      const uint8_t index = reader.byte();
      out->transparent = transparent ? index : kNoColour;
    }
    reader.skip_blocks();
  }
  out->x = reader.two_bytes();
  out->y = reader.two_bytes();
  out->width = reader.two_bytes();
  out->height = reader.two_bytes();
  const uint8_t frame_flags = reader.byte();
  out->interlaced = (frame_flags & 0x40) != 0;
  out->colours = read_gif_palette(&reader, frame_flags);
  if (out->colours.n == 0) out->colours = out->global;
  out->data = reader.position();
  if (!reader.ok() || out->data >= file.size()) return damaged("GIF", "the file ends too early");
  if (out->colours.n == 0) return damaged("GIF", "it has no colours");
  if (out->x + out->width > out->screen_width || out->y + out->height > out->screen_height) {
    return damaged("GIF", "a frame lies outside of the picture");
  }
  return {};
}

// Codes of up to 12 bits, from blocks of up to 255 bytes.
class GifCodes {
 public:
  GifCodes(Bytes file, uint64_t at) : reader_(file) { reader_.skip(at); }
  // The next code; -1 at the end.
  int next(uint32_t bits) {
    while (held_ < bits) {
      if (left_ == 0) left_ = reader_.byte();
      if (left_ == 0 || !reader_.ok()) return -1;
      value_ |= uint32_t{reader_.byte()} << held_;
      if (!reader_.ok()) return -1;
      held_ += 8;
      --left_;
    }
    const auto code = static_cast<int>(value_ & ((1u << bits) - 1));
    value_ >>= bits;
    held_ -= bits;
    return code;
  }

 private:
  GifReader reader_;
  uint32_t value_ = 0, held_ = 0, left_ = 0;
};

// LZW: each code is an earlier string and one byte more.
class GifStrings {
 public:
  explicit GifStrings(uint32_t code_bits) : first_bits_(code_bits) { clear(); }

  void clear() {
    n_ = (1u << first_bits_) + 2;
    bits_ = first_bits_ + 1;
    previous_ = -1;
  }
  [[nodiscard]] uint32_t bits() const { return bits_; }
  [[nodiscard]] int clear_code() const { return 1 << first_bits_; }

  // Calls `each(byte)` for the string of a code. False: the code is unknown.
  template <class Each>
  [[nodiscard]] bool expand(int code, const Each& each) {
    const auto known = static_cast<int>(n_);
    if (code > known || (code == known && previous_ < 0)) return false;
    if (previous_ < 0 && code >= clear_code()) return false;
    size_t depth = 0;
    int at = code == known ? previous_ : code;  // the string that is being made
    for (; at >= clear_code(); at = before_[static_cast<size_t>(at)]) {
      stack_[depth++] = last_[static_cast<size_t>(at)];
    }
    const auto first = static_cast<uint8_t>(at);
    each(first);
    while (depth > 0) each(stack_[--depth]);
    if (code == known) each(first);
    if (previous_ >= 0 && n_ < kMaxStrings) {
      before_[n_] = static_cast<uint16_t>(previous_);
      last_[n_++] = first;
      if (n_ == 1u << bits_ && bits_ < 12) ++bits_;
    }
    previous_ = code;
    return true;
  }

 private:
  static constexpr uint32_t kMaxStrings = 4096;
  uint32_t first_bits_, bits_ = 0, n_ = 0;
  int previous_ = -1;
  std::array<uint16_t, kMaxStrings> before_{};
  std::array<uint8_t, kMaxStrings> last_{}, stack_{};
};

// The row of the picture that is stored as number i.
uint32_t interlaced_row(uint32_t i, uint32_t height) {
  constexpr uint32_t kStart[] = {0, 4, 2, 1}, kStep[] = {8, 8, 4, 2};
  for (size_t pass = 0; pass < 4; ++pass) {
    const uint32_t rows = height > kStart[pass] ? (height - kStart[pass] - 1) / kStep[pass] + 1 : 0;
    if (i < rows) return kStart[pass] + i * kStep[pass];
    i -= rows;
  }
  return height - 1;
}

Status gif_info(Bytes file, StoredInfo* out) {
  GifFrame frame;
  SLUICE_RETURN_IF_ERROR(read_gif(file, &frame));
  out->width = frame.screen_width;
  out->height = frame.screen_height;
  return {};
}

Status gif_decode(Bytes file, DecodeMode mode, Image* image) {
  GifFrame frame;
  SLUICE_RETURN_IF_ERROR(read_gif(file, &frame));
  const bool upright = mode == DecodeMode::kUpright;
  std::memset(image->row(0), upright ? 255 : 0, static_cast<size_t>(image->size()));
  if (!upright && frame.background != kNoColour) {
    const uint8_t* colour = file.data() + frame.global.at + 3ull * frame.background;
    for (uint64_t i = 0; i < image->size(); i += 3) std::memcpy(image->row(0) + i, colour, 3);
  }
  const uint32_t code_bits = file[static_cast<size_t>(frame.data)];
  if (code_bits < 1 || code_bits > 8) return damaged("GIF", "");
  GifCodes codes(file, frame.data + 1);
  GifStrings strings(code_bits);
  uint32_t x = 0, i = 0;
  bool known_colours = true;
  const auto put = [&](uint8_t index) {
    if (i == frame.height) return;
    const uint32_t row = frame.interlaced ? interlaced_row(i, frame.height) : i;
    uint8_t* to = image->row(frame.y + row) + 3ull * (frame.x + x);
    if (++x == frame.width) {
      x = 0;
      ++i;
    }
    if (index == frame.transparent) {
      std::memset(to, upright ? 255 : 0, 3);
    } else if (index < frame.colours.n) {
      std::memcpy(to, file.data() + frame.colours.at + 3ull * index, 3);
    } else {
      known_colours = false;
    }
  };
  while (i < frame.height && frame.width > 0) {
    const int code = codes.next(strings.bits());
    if (code == strings.clear_code()) {
      strings.clear();
    } else if (code < 0 || code == strings.clear_code() + 1 || !strings.expand(code, put)) {
      return damaged("GIF", "its data ends too early");
    }
  }
  return known_colours ? Status() : damaged("GIF", "a colour is not in its palette");
}

}  // namespace

const Codec kGif = {"GIF", gif_info, gif_decode};

}  // namespace sluice::media
