// Unicode's normalization form C, used by the tokenizers of many families (Unicode standard, annex
// 15). In browsers and Node the engine calls JavaScript for it, which saves the tables. Native
// builds use tables generated from Node's, so that both agree.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::tokenizer {

// Normalizes `text`, valid UTF-8, to form C. False when memory is out.
[[nodiscard]] bool normalize_nfc(std::string_view text, std::string* out);

// True when every character of `text` is below U+0300, where normalization changes nothing.
[[nodiscard]] bool is_plainly_nfc(std::string_view text);

#ifndef __EMSCRIPTEN__
// Appends the full canonical decomposition of `cp`.
void decompose(uint32_t cp, std::vector<uint32_t>* out);
#endif

}  // namespace sluice::tokenizer
