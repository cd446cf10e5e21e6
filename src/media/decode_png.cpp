// PNG by libpng. Its errors are long jumps, so each function that sets one up has no object with a
// destructor, and PngReader, which owns libpng's state, lives in the frame above.
#include <png.h>

#include <csetjmp>
#include <cstdio>
#include <cstring>

#include "media/codecs.h"
#include "media/exif.h"

namespace sluice::media {
namespace {

struct PngInput {
  const uint8_t* at = nullptr;
  size_t left = 0;
  char message[96] = "";
};

void png_failed(png_structp png, png_const_charp text) {
  auto* input = static_cast<PngInput*>(png_get_error_ptr(png));
  std::snprintf(input->message, sizeof input->message, "%s", text);
  png_longjmp(png, 1);
}
void png_warned(png_structp, png_const_charp) {}

void png_supply(png_structp png, png_bytep out, size_t n) {
  auto* input = static_cast<PngInput*>(png_get_io_ptr(png));
  if (n > input->left) png_error(png, "the file ends too early");
  std::memcpy(out, input->at, n);
  input->at += n;
  input->left -= n;
}

class PngReader {
 public:
  explicit PngReader(Bytes file) {
    input_.at = file.data();
    input_.left = file.size();
    png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &input_, png_failed, png_warned);
    if (png != nullptr) info = png_create_info_struct(png);
    if (info != nullptr) png_set_read_fn(png, &input_, png_supply);
  }
  ~PngReader() { png_destroy_read_struct(&png, &info, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  [[nodiscard]] bool ready() const { return info != nullptr; }
  [[nodiscard]] const char* message() const { return input_.message; }

  png_structp png = nullptr;
  png_infop info = nullptr;

 private:
  PngInput input_;
};

// The content of the first chunk `type`; empty if there is none.
Bytes find_png_chunk(Bytes file, const char* type) {
  constexpr size_t kSignature = 8, kHead = 8, kAround = 12;  // length, type and checksum
  for (size_t at = kSignature; at <= file.size() && file.size() - at >= kAround;) {
    const uint64_t n = png_get_uint_32(file.data() + at), left = file.size() - at - kAround;
    if (n > left) break;
    if (std::memcmp(file.data() + at + 4, type, 4) == 0) {
      return file.subspan(at + kHead, static_cast<size_t>(n));
    }
    at += kAround + static_cast<size_t>(n);
  }
  return {};
}

bool read_png_header(png_structp png, png_infop info) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_set_user_limits(png, kMaxSide, kMaxSide);
#ifdef PNG_HANDLE_AS_UNKNOWN_SUPPORTED
  // What does not change pixels is skipped: libpng allocates what such a chunk claims to hold.
  static constexpr png_byte kSkipped[] =
      "bKGD\0cHRM\0eXIf\0gAMA\0hIST\0iCCP\0iTXt\0oFFs\0pCAL\0pHYs\0sBIT\0sCAL\0sPLT\0sRGB\0tEXt\0"
      "tIME\0zTXt";
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, kSkipped, sizeof kSkipped / 5);
#endif
  png_read_info(png, info);
  return true;
}

bool has_alpha(png_structp png, png_infop info) {
  return (png_get_color_type(png, info) & PNG_COLOR_MASK_ALPHA) != 0 ||
         png_get_valid(png, info, PNG_INFO_tRNS) != 0;
}

// Sets up the conversion to 8-bit RGB, or RGBA with `alpha`. Returns the number of passes; 0 after
// an error.
int begin_png_rows(png_structp png, png_infop info, bool rounded, bool alpha, uint64_t row_bytes) {
  if (setjmp(png_jmpbuf(png)) != 0) return 0;
  png_set_expand(png);
  png_set_gray_to_rgb(png);
  if (rounded) {
    png_set_scale_16(png);
  } else {
    png_set_strip_16(png);
  }
  if (!alpha) png_set_strip_alpha(png);
  const int passes = png_set_interlace_handling(png);
  png_read_update_info(png, info);
  if (png_get_rowbytes(png, info) != row_bytes) png_error(png, "unexpected row size");
  return passes;
}

bool read_png_row(png_structp png, uint8_t* row) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_read_row(png, row, nullptr);
  return true;
}

bool read_png_passes(png_structp png, int passes, uint8_t* rows, uint64_t row_bytes,
                     uint32_t height) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  for (int pass = 0; pass < passes; ++pass) {
    for (uint32_t y = 0; y < height; ++y) png_read_row(png, rows + y * row_bytes, nullptr);
  }
  return true;
}

Status png_info(Bytes file, StoredInfo* out) {
  PngReader reader(file);
  if (!reader.ready()) return error(Code::kOutOfMemory, "no memory to read a PNG picture");
  if (!read_png_header(reader.png, reader.info)) return damaged("PNG", reader.message());
  out->width = png_get_image_width(reader.png, reader.info);
  out->height = png_get_image_height(reader.png, reader.info);
  const bool interlaced = png_get_interlace_type(reader.png, reader.info) != PNG_INTERLACE_NONE;
  if (interlaced && has_alpha(reader.png, reader.info)) out->bytes_per_pixel = 7;
  out->orientation = exif_orientation(find_png_chunk(file, "eXIf"));
  return {};
}

Status png_decode(Bytes file, DecodeMode mode, Image* image) {
  PngReader reader(file);
  if (!reader.ready()) return error(Code::kOutOfMemory, "no memory to read a PNG picture");
  if (!read_png_header(reader.png, reader.info)) return damaged("PNG", reader.message());
  const bool upright = mode == DecodeMode::kUpright;
  const bool alpha = upright && has_alpha(reader.png, reader.info);
  const uint64_t row_bytes = uint64_t{image->width} * (alpha ? 4 : 3);
  const int passes = begin_png_rows(reader.png, reader.info, upright, alpha, row_bytes);
  if (passes == 0) return damaged("PNG", reader.message());
  AlignedBuffer rgba;  // one row, or the whole picture if it is interlaced
  if (alpha) {
    SLUICE_RETURN_IF_ERROR(rgba.allocate(passes == 1 ? row_bytes : row_bytes * image->height));
  }
  auto* rows = alpha ? rgba.as<uint8_t>() : image->row(0);
  if (!alpha || passes > 1) {
    if (!read_png_passes(reader.png, passes, rows, row_bytes, image->height)) {
      return damaged("PNG", reader.message());
    }
    if (alpha) flatten(rows, uint64_t{image->width} * image->height, image->row(0));
    return {};
  }
  for (uint32_t y = 0; y < image->height; ++y) {
    if (!read_png_row(reader.png, rows)) return damaged("PNG", reader.message());
    flatten(rows, image->width, image->row(y));
  }
  return {};
}

}  // namespace

const Codec kPng = {"PNG", png_info, png_decode};

}  // namespace sluice::media
