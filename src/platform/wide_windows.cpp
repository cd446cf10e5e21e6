#include <windows.h>

#include "platform/wide.h"

namespace sluice::platform {

std::wstring to_wide(const std::string& text) {
  const int n = static_cast<int>(text.size());
  std::wstring out(text.size(), L'\0');  // never more units than bytes
  out.resize(static_cast<size_t>(MultiByteToWideChar(CP_UTF8, 0, text.data(), n, out.data(), n)));
  return out;
}

std::string from_wide(const std::wstring& text) {
  const int n = static_cast<int>(text.size());
  std::string out(3 * text.size(), '\0');
  out.resize(static_cast<size_t>(
      WideCharToMultiByte(CP_UTF8, 0, text.data(), n, out.data(), 3 * n, nullptr, nullptr)));
  return out;
}

}  // namespace sluice::platform
