// Small replacements for parts of libc (--wrap in wasm.cmake). vsnprintf supports only the formats
// of the engine's messages: %d %u %x up to 64 bits with zero padding, and %s with a precision.
// strtod calls JavaScript. libc's own versions would add 4 kB, and 11 kB more for %f (software long
// double).
#include <cmath>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>

extern "C" {

double sluice_number(const char* text);

int __wrap_vsnprintf(char* out, size_t room, const char* format, va_list args);
int __wrap_vsnprintf(char* out, size_t room, const char* format, va_list args) {
  size_t n = 0;
  const auto put = [&](char c) {
    if (n + 1 < room) out[n] = c;
    ++n;
  };
  for (; *format != 0; ++format) {
    if (*format != '%') {
      put(*format);
      continue;
    }
    size_t width = 0, most = SIZE_MAX;
    int longs = 0;
    for (++format; *format >= '0' && *format <= '9'; ++format) {
      width = 10 * width + static_cast<size_t>(*format - '0');
    }
    if (*format == '.') {
      most = 0;
      for (++format; *format >= '0' && *format <= '9'; ++format) {
        most = 10 * most + static_cast<size_t>(*format - '0');
      }
      if (*format == '*') {
        most = static_cast<size_t>(va_arg(args, int));
        ++format;
      }
    }
    for (; *format == 'l' || *format == 'z'; ++format) longs += *format == 'l' ? 1 : 0;
    const char kind = *format;
    if (kind == 's') {
      const char* text = va_arg(args, const char*);
      for (size_t i = 0; i < most && text[i] != 0; ++i) put(text[i]);
      continue;
    }
    if (kind == '%') {
      put(kind);
      continue;
    }
    uint64_t value;
    if (longs == 2) {
      value = va_arg(args, uint64_t);
    } else {
      const uint32_t word = va_arg(args, uint32_t);
      value = kind == 'd' ? static_cast<uint64_t>(static_cast<int32_t>(word)) : word;
    }
    if (kind == 'd' && static_cast<int64_t>(value) < 0) {
      put('-');
      value = 0 - value;
    }
    char digits[20];
    size_t length = 0;
    const uint32_t base = kind == 'd' || kind == 'u' ? 10 : 16;
    do {
      const char digit = static_cast<char>(value % base);
      digits[length++] =
          static_cast<char>(digit < 10 ? '0' + digit : kind - ('x' - 'a') + digit - 10);
    } while ((value /= base) > 0);
    if (most != SIZE_MAX) width = most;
    for (size_t i = length; i < width; ++i) put('0');
    while (length > 0) put(digits[--length]);
  }
  if (room > 0) out[n < room ? n : room - 1] = 0;
  return static_cast<int>(n);
}

// Discards what libraries print before they abort.
int __wrap_vfprintf(FILE* file, const char* format, va_list args);
int __wrap_vfprintf(FILE*, const char*, va_list) {
  return 0;
}

// Used only by the JSON parser, which passes exactly one number.
double __wrap_strtod(const char* text, char** end);
double __wrap_strtod(const char* text, char** end) {
  *end = const_cast<char*>(text) + std::strlen(text);
  return sluice_number(text);
}

// Argument reduction of sin() and cos() for angles of at least 2^20 pi / 2. musl's own version
// stores 2 / pi to a thousand bits; angles here are positions below 2^28. x: an angle in parts of
// 24 bits. y: the remainder. Returns the number of subtracted quarter turns modulo 4.
int __rem_pio2_large(double* x, double* y, int e0, int nx, int);
int __rem_pio2_large(double* x, double* y, int e0, int nx, int) {
  double angle = 0, unit = __builtin_bit_cast(double, static_cast<uint64_t>(1023 + e0) << 52);
  for (int i = 0; i < nx; ++i, unit *= 0x1p-24) angle += x[i] * unit;
  // pi / 2 in parts whose products with the number of quarters are exact.
  constexpr double kHigh = 0x1.921fb50000000p0, kMiddle = 0x1.110b460000000p-26,
                   kLow = 0x1.1a62633145c07p-54;
  const double quarters = std::nearbyint(angle * 0x1.45f306dc9c883p-1);
  y[0] = angle - quarters * kHigh - quarters * kMiddle - quarters * kLow;
  y[1] = 0;
  return static_cast<int>(quarters) & 3;
}

}  // extern "C"
