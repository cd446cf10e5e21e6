// JPEG by libjpeg-turbo. Its errors are long jumps, so each function that sets one up has no object
// with a destructor, and JpegReader, which owns the library's state, lives in the frame above.
// Warnings about damaged data are errors: libjpeg would go on with grey blocks.
// clang-format off
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <jpeglib.h>  // needs FILE
#include <jerror.h>   // needs jpeglib.h
// clang-format on

#include "media/codecs.h"
#include "media/exif.h"

namespace sluice::media {
namespace {

// A progressive file can have any number of scans, each of which visits every block.
constexpr uint64_t kMinScans = 16, kMaxScanPixels = 1ull << 30;

struct JpegErrors {
  jpeg_error_mgr base;  // first: libjpeg knows this part only
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX];
  bool ended;  // the file has no end mark
};

JpegErrors* errors_of(j_common_ptr jpeg) {
  return reinterpret_cast<JpegErrors*>(jpeg->err);
}

void jpeg_failed(j_common_ptr jpeg) {
  JpegErrors* errors = errors_of(jpeg);
  (*jpeg->err->format_message)(jpeg, errors->message);
  std::longjmp(errors->jump, 1);
}

void jpeg_warned(j_common_ptr jpeg, int level) {
  if (level >= 0) return;  // a trace
  switch (jpeg->err->msg_code) {
    case JWRN_JPEG_EOF:
      errors_of(jpeg)->ended = true;
      return;
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_ARITH_BAD_CODE:
    case JWRN_MUST_RESYNC:
    case JWRN_BOGUS_PROGRESSION:
      jpeg_failed(jpeg);
      return;
    default:
      return;
  }
}

void jpeg_progressed(j_common_ptr jpeg) {
  auto* reader = reinterpret_cast<j_decompress_ptr>(jpeg);
  const auto scans = static_cast<uint64_t>(reader->input_scan_number);
  const uint64_t pixels = uint64_t{reader->image_width} * reader->image_height;
  if (scans <= kMinScans || scans * pixels <= kMaxScanPixels) return;
  std::snprintf(errors_of(jpeg)->message, JMSG_LENGTH_MAX, "it has too many scans");
  std::longjmp(errors_of(jpeg)->jump, 1);
}

class JpegReader {
 public:
  JpegReader() {
    std::memset(&jpeg, 0, sizeof jpeg);
    std::memset(&errors, 0, sizeof errors);
    jpeg.err = jpeg_std_error(&errors.base);
    errors.base.error_exit = jpeg_failed;
    errors.base.emit_message = jpeg_warned;
    progress_ = {};
    progress_.progress_monitor = jpeg_progressed;
  }
  ~JpegReader() { jpeg_destroy_decompress(&jpeg); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  // Reads the header. False after an error.
  [[nodiscard]] bool begin(Bytes file) {
    if (setjmp(errors.jump) != 0) return false;
    jpeg_create_decompress(&jpeg);
    jpeg.progress = &progress_;
    jpeg_mem_src(&jpeg, file.data(), static_cast<unsigned long>(file.size()));
    jpeg_save_markers(&jpeg, JPEG_APP0 + 1, 0xffff);
    (void)jpeg_read_header(&jpeg, TRUE);
    return true;
  }
  [[nodiscard]] Status damage() const { return damaged("JPEG", errors.message); }

  jpeg_decompress_struct jpeg;
  JpegErrors errors;

 private:
  jpeg_progress_mgr progress_;
};

bool start_jpeg(JpegReader* reader, J_COLOR_SPACE space) {
  if (setjmp(reader->errors.jump) != 0) return false;
  reader->jpeg.out_color_space = space;
  reader->jpeg.dct_method = JDCT_ISLOW;
  (void)jpeg_start_decompress(&reader->jpeg);
  return true;
}

// Reads one row into `row`.
bool read_jpeg_row(JpegReader* reader, uint8_t* row) {
  if (setjmp(reader->errors.jump) != 0) return false;
  JSAMPROW rows[1] = {row};
  return jpeg_read_scanlines(&reader->jpeg, rows, 1) == 1;
}

// Without a profile: what a printer leaves of white after each ink. Adobe's files store inks
// inverted.
void cmyk_to_rgb(const uint8_t* cmyk, uint64_t n, bool inverted, uint8_t* rgb) {
  const uint32_t mask = inverted ? 0 : 255;
  for (uint64_t i = 0; i < n; ++i) {
    const uint32_t black = cmyk[4 * i + 3] ^ mask;
    for (uint64_t c = 0; c < 3; ++c) {
      rgb[3 * i + c] = static_cast<uint8_t>(((cmyk[4 * i + c] ^ mask) * black + 127) / 255);
    }
  }
}

Status jpeg_info(Bytes file, StoredInfo* out) {
  JpegReader reader;
  if (!reader.begin(file)) return reader.damage();
  out->width = reader.jpeg.image_width;
  out->height = reader.jpeg.image_height;
  // Coefficients of all components have 16 bits; blocks at the edges are whole.
  const bool whole = jpeg_has_multiple_scans(&reader.jpeg) != 0;
  out->bytes_per_pixel = whole ? 3 + 3 * static_cast<uint64_t>(reader.jpeg.num_components) : 4;
  constexpr char kExif[] = "Exif\0";  // and the string's own zero
  for (auto* marker = reader.jpeg.marker_list; marker != nullptr; marker = marker->next) {
    if (marker->data_length < sizeof kExif || std::memcmp(marker->data, kExif, sizeof kExif) != 0) {
      continue;
    }
    out->orientation =
        exif_orientation({marker->data + sizeof kExif, marker->data_length - sizeof kExif});
    break;
  }
  return {};
}

Status jpeg_decode(Bytes file, DecodeMode, Image* image) {
  JpegReader reader;
  if (!reader.begin(file)) return reader.damage();
  const int channels = reader.jpeg.num_components;
  if (channels != 1 && channels != 3 && channels != 4) {
    return error(Code::kNotSupported, "JPEG pictures of %d components are not supported", channels);
  }
  if (!start_jpeg(&reader, channels == 4 ? JCS_CMYK : JCS_RGB)) return reader.damage();
  AlignedBuffer cmyk;  // a row
  if (channels == 4) SLUICE_RETURN_IF_ERROR(cmyk.allocate(4ull * image->width));
  for (uint32_t y = 0; y < image->height; ++y) {
    uint8_t* to = channels == 4 ? cmyk.as<uint8_t>() : image->row(y);
    if (!read_jpeg_row(&reader, to)) return reader.damage();
    if (channels != 4) continue;
    cmyk_to_rgb(to, image->width, reader.jpeg.saw_Adobe_marker != 0, image->row(y));
  }
  // Without its end, a file of several scans can lack some of them.
  if (reader.errors.ended && jpeg_has_multiple_scans(&reader.jpeg) != 0) {
    return damaged("JPEG", "the file ends too early");
  }
  return {};
}

}  // namespace

const Codec kJpeg = {"JPEG", jpeg_info, jpeg_decode};

}  // namespace sluice::media
