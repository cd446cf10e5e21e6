// Makes tests/data/pictures: the same small picture in every format and variant that src/media
// reads. tests/unit/vision_decode_test.cpp has its formula.
//   g++ -std=c++20 tests/reference/make_pictures.cpp -o make_pictures -lpng -ljpeg -lwebp
//   ./make_pictures tests/data/pictures
// clang-format off
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <vector>
#include <jpeglib.h>
#include <png.h>
#include <webp/encode.h>
// clang-format on

namespace {

constexpr int kWidth = 21, kHeight = 13;
using Bytes = std::string;

int pixel(int x, int y, int channel) {
  const int values[] = {x * 12, y * 19, 255 - x * 6 - y * 10, x < 4 ? 0 : 15 + x * 12};
  return values[channel];
}

void save(const std::string& path, const Bytes& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
  std::printf("%s: %zu bytes\n", path.c_str(), bytes.size());
}

// --- PNG

struct Png {
  int bits = 8, type = PNG_COLOR_TYPE_RGB;
  bool interlaced = false;
  std::vector<uint8_t> row[kHeight] = {};
  Bytes exif = {};
  std::vector<png_color> palette = {};
  std::vector<png_byte> palette_alpha = {};
  const png_color_16* transparent = nullptr;
};

Bytes encode(Png* from) {
  Bytes out;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  const auto write = [](png_structp p, png_bytep data, size_t n) {
    static_cast<Bytes*>(png_get_io_ptr(p))->append(reinterpret_cast<char*>(data), n);
  };
  png_set_write_fn(png, &out, write, nullptr);
  png_set_IHDR(png, info, kWidth, kHeight, from->bits, from->type,
               from->interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (!from->palette.empty()) {
    png_set_PLTE(png, info, from->palette.data(), static_cast<int>(from->palette.size()));
  }
  if (!from->palette_alpha.empty() || from->transparent != nullptr) {
    png_set_tRNS(png, info, from->palette_alpha.data(),
                 static_cast<int>(from->palette_alpha.size()), from->transparent);
  }
  if (!from->exif.empty()) {
    png_set_eXIf_1(png, info, static_cast<png_uint_32>(from->exif.size()),
                   reinterpret_cast<png_bytep>(from->exif.data()));
  }
  png_write_info(png, info);
  png_bytep rows[kHeight];
  for (int y = 0; y < kHeight; ++y) rows[y] = from->row[y].data();
  png_write_image(png, rows);
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return out;
}

// `channels` of each pixel, with `bits` each. The low byte of 16 bits is 200: it rounds up.
Bytes png(int type, std::vector<int> channels, int bits, bool interlaced, Bytes exif = {}) {
  Png from{.bits = bits, .type = type, .interlaced = interlaced, .exif = std::move(exif)};
  for (int y = 0; y < kHeight; ++y) {
    for (int x = 0; x < kWidth; ++x) {
      for (const int channel : channels) {
        from.row[y].push_back(static_cast<uint8_t>(pixel(x, y, channel)));
        if (bits == 16) from.row[y].push_back(200);
      }
    }
  }
  return encode(&from);
}

// Greys of `bits` (1, 2, 4): the column's low bits.
Bytes small_grey(int bits) {
  Png from{.bits = bits, .type = PNG_COLOR_TYPE_GRAY};
  for (auto& row : from.row) {
    row.resize((kWidth * bits + 7) / 8);
    for (int x = 0; x < kWidth; ++x) {
      const int value = x & ((1 << bits) - 1), at = x * bits;
      row[at / 8] = static_cast<uint8_t>(row[at / 8] | value << (8 - bits - at % 8));
    }
  }
  return encode(&from);
}

// A palette of columns: colour x is that of row 0, with its alpha.
Bytes palette() {
  Png from{.type = PNG_COLOR_TYPE_PALETTE};
  for (int x = 0; x < kWidth; ++x) {
    from.palette.push_back({static_cast<png_byte>(pixel(x, 0, 0)),
                            static_cast<png_byte>(pixel(x, 0, 1)),
                            static_cast<png_byte>(pixel(x, 0, 2))});
    from.palette_alpha.push_back(static_cast<png_byte>(pixel(x, 0, 3)));
  }
  for (auto& row : from.row) {
    for (int x = 0; x < kWidth; ++x) row.push_back(static_cast<uint8_t>(x));
  }
  return encode(&from);
}

// --- JPEG

Bytes tiff(int orientation) {
  Bytes out("II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0", 18);
  out += static_cast<char>(orientation);
  return out + Bytes(7, '\0');
}

Bytes jpeg(J_COLOR_SPACE in, J_COLOR_SPACE stored, bool progressive, bool smooth, int orientation) {
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* out = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&jpeg, &out, &size);
  jpeg.image_width = kWidth;
  jpeg.image_height = kHeight;
  jpeg.input_components = in == JCS_GRAYSCALE ? 1 : in == JCS_CMYK ? 4 : 3;
  jpeg.in_color_space = in;
  jpeg_set_defaults(&jpeg);
  jpeg_set_colorspace(&jpeg, stored);
  jpeg_set_quality(&jpeg, 98, TRUE);
  if (!smooth) jpeg.comp_info[0].h_samp_factor = jpeg.comp_info[0].v_samp_factor = 1;
  if (progressive) jpeg_simple_progression(&jpeg);
  jpeg_start_compress(&jpeg, TRUE);
  if (orientation > 0) {
    const Bytes block = Bytes("Exif\0\0", 6) + tiff(orientation);
    jpeg_write_marker(&jpeg, JPEG_APP0 + 1, reinterpret_cast<const JOCTET*>(block.data()),
                      static_cast<unsigned>(block.size()));
  }
  for (int y = 0; y < kHeight; ++y) {
    std::vector<uint8_t> row;
    for (int x = 0; x < kWidth; ++x) {
      for (int c = 0; c < jpeg.input_components; ++c) {
        row.push_back(static_cast<uint8_t>(c == 3 ? 255 : pixel(x, y, c)));  // no black ink
      }
    }
    JSAMPROW rows[] = {row.data()};
    jpeg_write_scanlines(&jpeg, rows, 1);
  }
  jpeg_finish_compress(&jpeg);
  Bytes result(reinterpret_cast<char*>(out), size);
  jpeg_destroy_compress(&jpeg);
  std::free(out);
  return result;
}

// --- WebP

Bytes little(uint64_t value, int n) {
  Bytes out;
  for (int i = 0; i < n; ++i) out += static_cast<char>(value >> 8 * i);
  return out;
}
Bytes chunk(const char* id, const Bytes& payload) {
  return Bytes(id, 4) + little(payload.size(), 4) + payload + Bytes(payload.size() % 2, '\0');
}

// `width` x `height` from (x, y) on.
Bytes webp(bool lossless, bool alpha, int width = kWidth, int height = kHeight, int left = 0,
           int top = 0) {
  std::vector<uint8_t> rgba;
  for (int y = top; y < top + height; ++y) {
    for (int x = left; x < left + width; ++x) {
      for (int c = 0; c < 4; ++c) {
        rgba.push_back(static_cast<uint8_t>(c == 3 && !alpha ? 255 : pixel(x, y, c)));
      }
    }
  }
  WebPConfig config;
  (void)WebPConfigInit(&config);
  config.lossless = lossless ? 1 : 0;
  config.quality = 95;
  config.exact = 1;  // keeps the colours of transparent pixels
  WebPPicture picture;
  (void)WebPPictureInit(&picture);
  picture.use_argb = 1;
  picture.width = width;
  picture.height = height;
  WebPMemoryWriter writer;
  WebPMemoryWriterInit(&writer);
  picture.writer = WebPMemoryWrite;
  picture.custom_ptr = &writer;
  (void)WebPPictureImportRGBA(&picture, rgba.data(), 4 * width);
  (void)WebPEncode(&config, &picture);
  Bytes out(reinterpret_cast<char*>(writer.mem), writer.size);
  WebPPictureFree(&picture);
  WebPMemoryWriterClear(&writer);
  return out;
}

// Two frames; the first covers 16 x 8 pixels from (4, 2) on.
Bytes animation() {
  const auto frame = [](const Bytes& file, int x, int y, int w, int h) {
    return chunk("ANMF", little(static_cast<uint64_t>(x / 2), 3) +
                             little(static_cast<uint64_t>(y / 2), 3) +
                             little(static_cast<uint64_t>(w - 1), 3) +
                             little(static_cast<uint64_t>(h - 1), 3) + little(100, 3) +
                             little(2, 1) + file.substr(12));
  };
  const Bytes body =
      "WEBP" + chunk("VP8X", little(2, 4) + little(kWidth - 1, 3) + little(kHeight - 1, 3)) +
      chunk("ANIM", Bytes(6, '\0')) + frame(webp(true, false, 16, 8, 4, 2), 4, 2, 16, 8) +
      frame(webp(true, false), 0, 0, kWidth, kHeight);
  return chunk("RIFF", body);
}

// A lossless picture that is seen turned.
Bytes turned_webp() {
  const Bytes body = "WEBP" +
                     chunk("VP8X", little(8, 4) + little(kWidth - 1, 3) + little(kHeight - 1, 3)) +
                     webp(true, false).substr(12) + chunk("EXIF", tiff(8));
  return chunk("RIFF", body);
}

// --- BMP

Bytes bmp(int bits, bool top_down, bool masks) {
  Bytes rows, palette;
  for (int i = 0; i < kHeight; ++i) {
    const int y = top_down ? i : kHeight - 1 - i;
    Bytes row;
    for (int x = 0; x < kWidth; ++x) {
      if (bits == 8) {
        row += static_cast<char>(x);
        continue;
      }
      for (const int c : masks ? std::vector<int>{0, 1, 2, 3} : std::vector<int>{2, 1, 0}) {
        row += static_cast<char>(pixel(x, y, c));
      }
      if (bits == 32 && !masks) row += '\x07';  // not used
    }
    rows += row + Bytes((4 - row.size() % 4) % 4, '\0');
  }
  for (int x = 0; bits == 8 && x < kWidth; ++x) {
    for (const int c : {2, 1, 0}) palette += static_cast<char>(pixel(x, 0, c));
    palette += '\0';
  }
  const int header = masks ? 56 : 40;
  Bytes out = little(static_cast<uint64_t>(header), 4) + little(kWidth, 4) +
              little(static_cast<uint64_t>(top_down ? -kHeight : kHeight), 4) + little(1, 2) +
              little(static_cast<uint64_t>(bits), 2) + little(masks ? 3 : 0, 4) +
              little(rows.size(), 4) + little(2835, 4) + little(2835, 4) +
              little(palette.size() / 4, 4) + little(0, 4);
  if (masks)
    out += little(0xff, 4) + little(0xff00, 4) + little(0xff0000, 4) + little(0xff000000, 4);
  const size_t front = 14 + out.size() + palette.size();
  return "BM" + little(front + rows.size(), 4) + little(0, 4) + little(front, 4) + out + palette +
         rows;
}

// --- GIF

// LZW of `bits`, in blocks of at most 255 bytes.
Bytes gif_data(const Bytes& indices, unsigned bits) {
  const unsigned clear = 1u << bits;
  std::map<Bytes, unsigned> strings;
  unsigned width = bits + 1, next = 0, held = 0;
  uint64_t value = 0;
  Bytes packed;
  const auto write = [&](unsigned code) {
    value |= static_cast<uint64_t>(code) << held;
    for (held += width; held >= 8; held -= 8, value >>= 8) packed += static_cast<char>(value);
  };
  const auto restart = [&] {
    write(clear);
    strings.clear();
    for (unsigned i = 0; i < clear; ++i) strings[Bytes(1, static_cast<char>(i))] = i;
    width = bits + 1;
    next = clear + 2;
  };
  restart();
  Bytes string;
  for (const char index : indices) {
    if (strings.count(string + index) != 0) {
      string += index;
      continue;
    }
    write(strings[string]);
    if (next == 4096) {
      restart();
    } else {
      strings[string + index] = next;
      if (next++ == 1u << width) ++width;
    }
    string = Bytes(1, index);
  }
  write(strings[string]);
  write(clear + 1);
  if (held > 0) packed += static_cast<char>(value);
  Bytes out(1, static_cast<char>(bits));
  for (size_t at = 0; at < packed.size(); at += 255) {
    const Bytes block = packed.substr(at, 255);
    out += static_cast<char>(block.size()) + block;
  }
  return out + '\0';
}

Bytes gif_frame(int x, int y, int w, int h, bool interlaced, const Bytes& indices) {
  Bytes rows;
  if (interlaced) {
    for (const auto& [start, step] : {std::pair(0, 8), {4, 8}, {2, 4}, {1, 2}}) {
      for (int row = start; row < h; row += step) {
        rows += indices.substr(static_cast<size_t>(row * w), static_cast<size_t>(w));
      }
    }
  }
  return ',' + little(static_cast<uint64_t>(x), 2) + little(static_cast<uint64_t>(y), 2) +
         little(static_cast<uint64_t>(w), 2) + little(static_cast<uint64_t>(h), 2) +
         static_cast<char>(interlaced ? 0x40 : 0) + gif_data(interlaced ? rows : indices, 5);
}

// 70 x 70 pixels of noise in 256 colours.
Bytes full_table() {
  Bytes out = "GIF87a" + little(70, 2) + little(70, 2) + Bytes("\x87\0\0", 3);
  for (int i = 0; i < 256; ++i) out += Bytes(2, static_cast<char>(i)) + static_cast<char>(255 - i);
  Bytes indices;
  uint32_t state = 1;
  for (int i = 0; i < 70 * 70; ++i) {
    state = state * 1664525 + 1013904223;
    indices += static_cast<char>(state >> 24);
  }
  return out + ',' + little(0, 4) + little(70, 2) + little(70, 2) + '\0' + gif_data(indices, 8) +
         ';';
}

// Colour x is that of column x in row 0. `index(x, y)`: the colour of a pixel.
template <class Index>
Bytes gif_indices(int x, int y, int w, int h, const Index& index) {
  Bytes out;
  for (int row = y; row < y + h; ++row) {
    for (int column = x; column < x + w; ++column) out += static_cast<char>(index(column, row));
  }
  return out;
}
Bytes gif(uint8_t background, const Bytes& frames) {
  Bytes out = "GIF89a" + little(kWidth, 2) + little(kHeight, 2) + static_cast<char>(0x84) +
              static_cast<char>(background) + '\0';
  for (int i = 0; i < 32; ++i) {
    for (int c = 0; c < 3; ++c) out += static_cast<char>(i < kWidth ? pixel(i, 0, c) : 0);
  }
  return out + frames + ';';
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 1;
  const std::string to = std::string(argv[1]) + "/";
  constexpr int kRgb = PNG_COLOR_TYPE_RGB, kRgba = PNG_COLOR_TYPE_RGB_ALPHA,
                kGrey = PNG_COLOR_TYPE_GRAY, kGreyAlpha = PNG_COLOR_TYPE_GRAY_ALPHA;
  save(to + "rgb.png", png(kRgb, {0, 1, 2}, 8, false));
  save(to + "rgb-interlaced.png", png(kRgb, {0, 1, 2}, 8, true));
  save(to + "rgb16.png", png(kRgb, {0, 1, 2}, 16, false));
  save(to + "rgba.png", png(kRgba, {0, 1, 2, 3}, 8, false));
  save(to + "rgba-interlaced.png", png(kRgba, {0, 1, 2, 3}, 8, true));
  save(to + "grey.png", png(kGrey, {0}, 8, false));
  save(to + "grey-alpha.png", png(kGreyAlpha, {0, 3}, 8, false));
  for (const int bits : {1, 2, 4})
    save(to + "grey" + std::to_string(bits) + ".png", small_grey(bits));
  save(to + "palette-alpha.png", palette());
  save(to + "turned.png", png(kRgb, {0, 1, 2}, 8, false, tiff(6)));
  save(to + "rgb.jpg", jpeg(JCS_RGB, JCS_YCbCr, false, false, 0));
  save(to + "halved.jpg", jpeg(JCS_RGB, JCS_YCbCr, false, true, 0));
  save(to + "progressive.jpg", jpeg(JCS_RGB, JCS_YCbCr, true, false, 0));
  save(to + "grey.jpg", jpeg(JCS_GRAYSCALE, JCS_GRAYSCALE, false, true, 0));
  save(to + "cmyk.jpg", jpeg(JCS_CMYK, JCS_CMYK, false, true, 0));
  save(to + "ycck.jpg", jpeg(JCS_CMYK, JCS_YCCK, false, false, 0));
  save(to + "turned.jpg", jpeg(JCS_RGB, JCS_YCbCr, false, false, 6));
  save(to + "lossless.webp", webp(true, false));
  save(to + "lossless-alpha.webp", webp(true, true));
  save(to + "lossy.webp", webp(false, false));
  save(to + "lossy-alpha.webp", webp(false, true));
  save(to + "animation.webp", animation());
  save(to + "turned.webp", turned_webp());
  save(to + "rgb.bmp", bmp(24, false, false));
  save(to + "top-down.bmp", bmp(32, true, false));
  save(to + "masks-alpha.bmp", bmp(32, false, true));
  save(to + "palette.bmp", bmp(8, false, false));
  const auto column = [](int x, int) { return x; };
  const auto noise = [](int x, int y) { return (x * 7 + y * 13 + x * y * 5) % 21; };
  save(to + "columns.gif",
       gif(0, gif_frame(0, 0, kWidth, kHeight, false, gif_indices(0, 0, kWidth, kHeight, column))));
  save(to + "long.gif",
       gif(0, gif_frame(0, 0, kWidth, kHeight, true, gif_indices(0, 0, kWidth, kHeight, noise))));
  save(to + "full-table.gif", full_table());
  const Bytes control("!\xf9\x04\x01\0\0\x09\0", 8);
  save(to + "frame.gif",
       gif(3,
           control + gif_frame(4, 2, 16, 8, false, gif_indices(4, 2, 16, 8, column)) +
               gif_frame(0, 0, kWidth, kHeight, false, gif_indices(0, 0, kWidth, kHeight, noise))));
}
