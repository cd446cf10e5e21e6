#include <windows.h>

#include "platform/unicode_case.h"

namespace sluice::platform {

uint32_t upper_case(uint32_t code_point) {
  const bool pair = code_point >= 0x10000;
  const wchar_t high = static_cast<wchar_t>(0xd800 + ((code_point - 0x10000) >> 10));
  const wchar_t text[] = {pair ? high : static_cast<wchar_t>(code_point),
                          static_cast<wchar_t>(0xdc00 + (code_point & 0x3ff))};
  wchar_t out[2] = {};
  const int n = LCMapStringEx(LOCALE_NAME_INVARIANT, LCMAP_UPPERCASE, text, pair ? 2 : 1, out, 2,
                              nullptr, nullptr, 0);
  if (n == 1 && !pair) return out[0];
  if (n == 2 && pair) return 0x10000 + ((out[0] - 0xd800u) << 10) + (out[1] - 0xdc00u);
  return code_point;
}

}  // namespace sluice::platform
