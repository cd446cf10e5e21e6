// Builds metadata in memory instead of reading it from a GGUF file. Keys, values and names live in
// an arena that the header owns, encoded as in GGUF, so readers of a Header see no difference.
#pragma once

#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "gguf/gguf.h"

namespace sluice::gguf {

class MetadataWriter {
 public:
  explicit MetadataWriter(Header* header) : header_(header), arena_(std::make_shared<Arena>()) {
    header_->owned = arena_;
  }

  void number(std::string_view key, uint32_t v) { scalar(key, ValueType::kU32, v); }
  void number(std::string_view key, float v) { scalar(key, ValueType::kF32, v); }
  void boolean(std::string_view key, bool v) { scalar(key, ValueType::kBool, uint8_t{v}); }
  void string(std::string_view key, std::string_view v) {
    add(key, {ValueType::kString, ValueType::kString, 1, bytes_of(v)});
  }
  void floats(std::string_view key, std::span<const float> v) {
    array(key, ValueType::kF32, v.size(), {reinterpret_cast<const char*>(v.data()), v.size() * 4});
  }
  void integers(std::string_view key, std::span<const int32_t> v) {
    array(key, ValueType::kI32, v.size(), {reinterpret_cast<const char*>(v.data()), v.size() * 4});
  }
  // A byte for each.
  void booleans(std::string_view key, std::string_view v) {
    array(key, ValueType::kBool, v.size(), v);
  }
  void bytes(std::string_view key, std::string_view v) { array(key, ValueType::kU8, v.size(), v); }
  // Adds `count` strings in stored form: for each, a length of 8 bytes and the text.
  void strings(std::string_view key, uint64_t count, std::string stored) {
    Value value{ValueType::kArray, ValueType::kString, count, keep(std::move(stored))};
    add(key, value);
  }
  static void append_string(std::string* stored, std::string_view text) {
    const uint64_t length = text.size();
    char bytes[8];
    std::memcpy(bytes, &length, 8);
    stored->append(bytes, 8).append(text);
  }

  // Keeps text as long as the header lives.
  std::string_view keep_text(std::string_view text) {
    const Bytes b = bytes_of(text);
    return {reinterpret_cast<const char*>(b.data()), b.size()};
  }
  Bytes keep(std::string text) {
    arena_->blobs.push_back(std::move(text));
    const std::string& b = arena_->blobs.back();
    return {reinterpret_cast<const uint8_t*>(b.data()), b.size()};
  }

 private:
  struct Arena {
    std::deque<std::string> blobs;  // a deque: no blob ever moves
  };

  Bytes bytes_of(std::string_view text) { return keep(std::string(text)); }
  void add(std::string_view key, Value value) {
    header_->metadata.push_back({keep_text(key), value});
  }
  template <typename T>
  void scalar(std::string_view key, ValueType type, T v) {
    add(key, {type, type, 1, bytes_of({reinterpret_cast<const char*>(&v), sizeof v})});
  }
  void array(std::string_view key, ValueType element, uint64_t count, std::string_view stored) {
    add(key, {ValueType::kArray, element, count, bytes_of(stored)});
  }

  Header* header_;
  std::shared_ptr<Arena> arena_;
};

// Adds keys to existing metadata, and keeps alive what that metadata points into.
template <class Add>
void add_keys(Header* header, const Add& add) {
  const std::shared_ptr<const void> owned = header->owned;
  MetadataWriter writer(header);
  add(writer);
  header->owned =
      std::make_shared<std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>>(
          owned, header->owned);
}

}  // namespace sluice::gguf
