#include <locale.h>
#include <wctype.h>
#if defined(__APPLE__)
#include <xlocale.h>
#endif

#include "platform/unicode_case.h"

namespace sluice::platform {

uint32_t upper_case(uint32_t code_point) {
  static const locale_t unicode = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  if (unicode == nullptr) return code_point;
  return static_cast<uint32_t>(towupper_l(static_cast<wint_t>(code_point), unicode));
}

}  // namespace sluice::platform
