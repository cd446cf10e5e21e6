// What native builds take from the C library, as chat.wasm has it: JavaScript's functions, or small
// ones. musl's own would add 20 kB, most of it for floating point.
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <new>
#include <string>

#include "jinja/numbers.h"
#include "platform/calendar.h"
#include "platform/unicode_case.h"
#include "tokenizer/fold.h"
#include "tokenizer/unicode.h"

extern "C" {

// JavaScript's Number(text), which is NaN for other texts, Math.pow() and Math.exp().
double sluice_number(const char* text);
double sluice_pow(double base, double exponent);
double sluice_exp(double exponent);
// Writes tm_sec, tm_min … tm_yday of a time, in the caller's time zone.
void sluice_local_time(double seconds, int* fields);
uint32_t sluice_char_class(uint32_t code_point);
uint32_t sluice_upper_case(uint32_t code_point);
// Writes at most `room` bytes of the text in lower case, each character by itself. Returns how
// many.
uint32_t sluice_lower_case(const char* text, uint32_t bytes, char* out, uint32_t room);

double __wrap_pow(double base, double exponent);
double __wrap_pow(double base, double exponent) {
  return sluice_pow(base, exponent);
}
double __wrap_exp(double exponent);
double __wrap_exp(double exponent) {
  return sluice_exp(exponent);
}

}  // extern "C"

// Type information of libc++'s classes points to these tables of libc++abi. Nothing reads it, and
// libc++abi's own would link dynamic_cast.
extern const void* const class_type_info[] asm("_ZTVN10__cxxabiv117__class_type_infoE");
extern const void* const derived_type_info[] asm("_ZTVN10__cxxabiv120__si_class_type_infoE");
extern const void* const several_type_info[] asm("_ZTVN10__cxxabiv121__vmi_class_type_infoE");
const void* const class_type_info[3] = {};
const void* const derived_type_info[3] = {};
const void* const several_type_info[3] = {};

// The next number that is no multiple of a smaller one, as sizes of libc++'s hash tables are. Its
// own has a table of primes.
size_t next_prime(size_t from) asm("_ZNSt3__212__next_primeEm");
size_t next_prime(size_t from) {
  for (size_t divisor = 2; divisor * divisor <= from; ++divisor) {
    if (from % divisor != 0) continue;
    ++from;
    divisor = 1;
  }
  return from;
}

// libc++abi's throw, which links its exception types.
void* operator new(size_t size) {
  void* made = std::malloc(size > 0 ? size : 1);
  if (made == nullptr) std::abort();
  return made;
}
void operator delete(void* place) noexcept {
  std::free(place);
}
void operator delete(void* place, size_t) noexcept {
  std::free(place);
}

namespace sluice {

std::tm platform::local_time(std::time_t when) {
  int fields[8];
  sluice_local_time(static_cast<double>(when), fields);
  std::tm local{};
  local.tm_sec = fields[0];
  local.tm_min = fields[1];
  local.tm_hour = fields[2];
  local.tm_mday = fields[3];
  local.tm_mon = fields[4];
  local.tm_year = fields[5];
  local.tm_wday = fields[6];
  local.tm_yday = fields[7];
  return local;
}

tokenizer::CharClass tokenizer::char_class(uint32_t cp) {
  if (cp >= 0x80) return static_cast<CharClass>(sluice_char_class(cp));
  const auto c = static_cast<char>(cp);
  if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') return CharClass::kLetter;
  if (c >= '0' && c <= '9') return CharClass::kNumber;
  if (c == ' ' || (c >= '\t' && c <= '\r')) return CharClass::kSpace;
  if (c < ' ' || c == 0x7f) return CharClass::kOther;
  const bool symbol = std::string_view("$+<=>^`|~").find(c) != std::string_view::npos;
  return symbol ? CharClass::kSymbol : CharClass::kPunctuation;
}

uint32_t platform::upper_case(uint32_t code_point) {
  return sluice_upper_case(code_point);
}

bool tokenizer::fold_text(std::string_view text, bool, Accents, std::string* out) {
  constexpr size_t kMaxGrowth = 4;  // bytes that one byte can become
  out->resize(kMaxGrowth * text.size());
  out->resize(sluice_lower_case(text.data(), static_cast<uint32_t>(text.size()), out->data(),
                                static_cast<uint32_t>(out->size())));
  return true;
}

std::optional<double> jinja::read_double(std::string_view text) {
  const bool minus = text.starts_with('-');
  const std::string digits(text.substr(minus ? 1 : 0));
  double number = std::numeric_limits<double>::infinity();
  if (digits == "nan") {
    number = std::numeric_limits<double>::quiet_NaN();
  } else if (digits != "inf") {
    if (digits.empty() || digits.find_first_not_of("0123456789.eE+-") != digits.npos) return {};
    number = sluice_number(digits.c_str());
    if (!std::isfinite(number)) return {};
  }
  return minus ? -number : number;
}

}  // namespace sluice

namespace {

constexpr const char* kDays[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                 "Thursday", "Friday", "Saturday"};
constexpr const char* kMonths[] = {"January",   "February", "March",    "April",
                                   "May",       "June",     "July",     "August",
                                   "September", "October",  "November", "December"};

std::string padded(int number, size_t width, char with = '0') {
  std::string text = std::to_string(number);
  if (text.size() < width) text.insert(0, width - text.size(), with);
  return text;
}

// The week and year of ISO 8601, in which weeks begin on Monday and belong to their Thursday's
// year.
std::pair<int, int> iso_week(const std::tm& t) {
  const auto days_of = [](int year) {
    return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) ? 366 : 365;
  };
  int year = t.tm_year + 1900;
  int thursday = t.tm_yday + 3 - (t.tm_wday + 6) % 7;
  if (thursday < 0) {
    thursday += days_of(--year);
  } else if (thursday >= days_of(year)) {
    thursday -= days_of(year++);
  }
  return {thursday / 7 + 1, year};
}

std::string time_text(char letter, const std::tm& t) {
  const auto all = [&t](std::string_view letters) {
    std::string out;
    for (const char c : letters) out += c >= 'A' ? time_text(c, t) : std::string(1, c);
    return out;
  };
  const int hour = t.tm_hour % 12 == 0 ? 12 : t.tm_hour % 12;
  switch (letter) {
    case 'Y':
      return std::to_string(t.tm_year + 1900);
    case 'y':
      return padded((t.tm_year + 1900) % 100, 2);
    case 'm':
      return padded(t.tm_mon + 1, 2);
    case 'd':
      return padded(t.tm_mday, 2);
    case 'e':
      return padded(t.tm_mday, 2, ' ');
    case 'B':
      return kMonths[t.tm_mon];
    case 'b':
      return std::string(kMonths[t.tm_mon], 3);
    case 'A':
      return kDays[t.tm_wday];
    case 'a':
      return std::string(kDays[t.tm_wday], 3);
    case 'H':
      return padded(t.tm_hour, 2);
    case 'I':
      return padded(hour, 2);
    case 'p':
      return t.tm_hour < 12 ? "AM" : "PM";
    case 'M':
      return padded(t.tm_min, 2);
    case 'S':
      return padded(t.tm_sec, 2);
    case 'j':
      return padded(t.tm_yday + 1, 3);
    case 'w':
      return std::to_string(t.tm_wday);
    case 'u':
      return std::to_string(t.tm_wday == 0 ? 7 : t.tm_wday);
    case 'U':
      return padded((t.tm_yday + 7 - t.tm_wday) / 7, 2);
    case 'W':
      return padded((t.tm_yday + 7 - (t.tm_wday + 6) % 7) / 7, 2);
    case 'V':
      return padded(iso_week(t).first, 2);
    case 'G':
      return std::to_string(iso_week(t).second);
    case 'g':
      return padded(iso_week(t).second % 100, 2);
    case 'F':
      return all("Y-m-d");
    case 'T':
    case 'X':
      return all("H:M:S");
    case 'D':
    case 'x':
      return all("m/d/y");
    case 'c':
      return all("a b e H:M:S Y");
    case '%':
      return "%";
    default:
      return {};
  }
}

}  // namespace

// In the C locale. `format` is one conversion, as jinja::strftime() uses it.
extern "C" size_t strftime(char* out, size_t room, const char* format, const std::tm* time) {
  return time_text(format[1], *time).copy(out, room);
}
