// Changes metadata values of a file, as in a damaged or hostile one.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>

#include "gguf/gguf.h"

namespace sluice::test {

using MetadataChange = std::function<void(std::string* bytes, gguf::Value* value)>;

inline const MetadataChange kShorter = [](std::string* bytes, gguf::Value* value) {
  bytes->resize(bytes->size() - gguf::value_type_bytes(value->element));
  --value->count;
};
inline const MetadataChange kEmpty = [](std::string* bytes, gguf::Value* value) {
  bytes->clear();
  value->count = 0;
};
inline const MetadataChange kOfAnotherType = [](std::string*, gguf::Value* value) {
  value->element = gguf::ValueType::kBool;
};

// Changes the values of these keys. The result owns their new bytes, one string for each key found.
inline std::deque<std::string> change_values(gguf::Header* header,
                                             std::initializer_list<std::string_view> keys,
                                             const MetadataChange& change) {
  std::deque<std::string> own;
  for (gguf::KeyValue& kv : header->metadata) {
    if (std::find(keys.begin(), keys.end(), kv.key) == keys.end()) continue;
    std::string& bytes = own.emplace_back(reinterpret_cast<const char*>(kv.value.bytes.data()),
                                          kv.value.bytes.size());
    change(&bytes, &kv.value);
    kv.value.bytes = {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
  }
  return own;
}

}  // namespace sluice::test
