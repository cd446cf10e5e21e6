#include "media/data_url.h"

#include <algorithm>
#include <array>

namespace sluice::media {
namespace {

constexpr std::string_view kScheme = "data:", kBase64 = ";base64";
constexpr uint8_t kNone = 64, kSpace = 65;

constexpr std::array<uint8_t, 256> kValues = [] {
  std::array<uint8_t, 256> out{};
  out.fill(kNone);
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < kDigits.size(); ++i) {
    out[static_cast<uint8_t>(kDigits[i])] = static_cast<uint8_t>(i);
  }
  out['-'] = 62;
  out['_'] = 63;
  for (const char space : {' ', '\t', '\r', '\n'}) out[static_cast<uint8_t>(space)] = kSpace;
  return out;
}();

bool same_word(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return (x >= 'A' && x <= 'Z' ? x | 0x20 : x) == y; });
}

Status not_base64() {
  return error(Code::kInvalidArgument, "the data URL of a picture is not in base64");
}

}  // namespace

bool is_data_url(std::string_view url) {
  return same_word(url.substr(0, kScheme.size()), kScheme);
}

Result<std::vector<uint8_t>> read_data_url(std::string_view url, size_t max_bytes) {
  const size_t comma = url.find(',');
  if (!is_data_url(url) || comma == std::string_view::npos) return not_base64();
  const std::string_view head = url.substr(0, comma);
  if (head.size() < kBase64.size() ||
      !same_word(head.substr(head.size() - kBase64.size()), kBase64)) {
    return not_base64();
  }
  std::string_view data = url.substr(comma + 1);
  while (!data.empty() && kValues[static_cast<uint8_t>(data.back())] == kSpace) {
    data.remove_suffix(1);
  }
  for (int i = 0; i < 2 && data.ends_with('='); ++i) data.remove_suffix(1);
  const auto is_digit = [](char c) { return kValues[static_cast<uint8_t>(c)] < kNone; };
  const auto digits = static_cast<size_t>(std::count_if(data.begin(), data.end(), is_digit));
  if (digits % 4 == 1) return not_base64();
  const size_t size = digits * 3 / 4;
  if (size > max_bytes) {
    return error(Code::kInvalidArgument, "a picture has %zu bytes; the limit is %zu", size,
                 max_bytes);
  }
  std::vector<uint8_t> out;
  out.reserve(size);
  uint32_t bits = 0;
  int held = 0;
  for (const char c : data) {
    const uint8_t value = kValues[static_cast<uint8_t>(c)];
    if (value == kSpace) continue;
    if (value == kNone) return not_base64();
    bits = bits << 6 | value;
    held += 6;
    if (held < 8) continue;
    held -= 8;
    out.push_back(static_cast<uint8_t>(bits >> held));
  }
  return out;
}

}  // namespace sluice::media
