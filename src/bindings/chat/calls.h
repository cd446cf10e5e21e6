// What the calls of chat.wasm share: texts in its memory, and the error of the last call.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

#define SLUICE_EXPORT extern "C" __attribute__((used, visibility("default")))

namespace sluice::bindings {

// A text. From the caller: `data` is null if it is absent.
struct Bytes {
  const char* data = nullptr;
  uint32_t size = 0;

  [[nodiscard]] std::string_view view() const { return {data, data == nullptr ? 0 : size}; }
  [[nodiscard]] std::optional<std::string> optional() const {
    return data == nullptr ? std::nullopt : std::make_optional<std::string>(data, size);
  }
};

inline Bytes bytes_of(std::string_view text) {
  return {text.data(), static_cast<uint32_t>(text.size())};
}

// How a prompt is rendered.
enum RenderFlags : uint32_t {
  kAddGenerationPrompt = 1,
  kParseSpecialInContent = 2,
  kAllowMissingText = 4,
  kContinueFinalMessage = 8,
  kPictures = 16,  // the model takes pictures
};

// What error_code() and error_message() tell.
Status& last_error();

}  // namespace sluice::bindings
