#include "platform/process.h"

namespace sluice::platform {

std::string plain_host_name(std::string_view given) {
  std::string name;
  for (const char c : given) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '.' || c == '-';
    if (plain && name.size() < 63) name += c;
  }
  return name;
}

}  // namespace sluice::platform
