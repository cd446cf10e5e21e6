// Unicode's normalization form C, which the tokenizers of many families read text in (Unicode
// standard, annex 15). Browsers and Node have it: there the engine asks JavaScript, whose tables it
// need not bring along. Natively the tables are generated from Node's, so that both agree.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::tokenizer {

// `text` (valid UTF-8) in normalization form C. False when memory is out.
[[nodiscard]] bool normalize_nfc(std::string_view text, std::string* out);

// True when every character of `text` stands below U+0300, where nothing changes.
[[nodiscard]] bool is_plainly_nfc(std::string_view text);

#ifndef __EMSCRIPTEN__
// Appends what `cp` decomposes into canonically, all levels of it.
void decompose(uint32_t cp, std::vector<uint32_t>* out);
#endif

}  // namespace sluice::tokenizer
