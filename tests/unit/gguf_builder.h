// A GGUF writer for tests. It builds a file in memory, field by field, so that a test can make
// valid files, and hostile ones with a wrong field. Counts are patched in at the end unless a test
// overrides them. Shares no code with the parser under test.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace sluice::test {

class GgufBuilder {
 public:
  explicit GgufBuilder(uint32_t version = 3) : version_(version) {}

  // --- metadata
  template <typename T>
  GgufBuilder& number(std::string_view key, T value) {
    begin_key(key, type_id<T>());
    put(metadata_, value);
    return *this;
  }
  GgufBuilder& string(std::string_view key, std::string_view value) {
    begin_key(key, 8);
    put_string(metadata_, value);
    return *this;
  }
  template <typename T>
  GgufBuilder& numbers(std::string_view key, const std::vector<T>& values) {
    begin_key(key, 9);
    put(metadata_, type_id<T>());
    put(metadata_, uint64_t{values.size()});
    for (const T& v : values) put(metadata_, v);
    return *this;
  }
  GgufBuilder& strings(std::string_view key, const std::vector<std::string>& values) {
    begin_key(key, 9);
    put(metadata_, uint32_t{8});
    put(metadata_, uint64_t{values.size()});
    for (const std::string& v : values) put_string(metadata_, v);
    return *this;
  }
  // A key with any type id and any value bytes.
  GgufBuilder& raw(std::string_view key, uint32_t type, const std::vector<uint8_t>& value) {
    begin_key(key, type);
    metadata_.insert(metadata_.end(), value.begin(), value.end());
    return *this;
  }
  // The alignment of the file's layout; also writes the key.
  GgufBuilder& alignment(uint32_t value) {
    alignment_ = value;
    return number("general.alignment", value);
  }

  // --- tensors. `data` is placed at the next aligned offset.
  GgufBuilder& tensor(std::string_view name, uint32_t type, const std::vector<uint64_t>& ne,
                      const std::vector<uint8_t>& data) {
    while (data_.size() % alignment_ != 0) data_.push_back(0);
    tensor_at(name, type, ne, data_.size());
    data_.insert(data_.end(), data.begin(), data.end());
    return *this;
  }
  GgufBuilder& f32(std::string_view name, const std::vector<uint64_t>& ne) {
    uint64_t n = 1;
    for (const uint64_t d : ne) n *= d;
    return tensor(name, 0, ne, std::vector<uint8_t>(static_cast<size_t>(n) * 4, 0x11));
  }
  // Only the directory entry, with any offset.
  GgufBuilder& tensor_at(std::string_view name, uint32_t type, const std::vector<uint64_t>& ne,
                         uint64_t offset) {
    put_string(infos_, name);
    put(infos_, static_cast<uint32_t>(ne.size()));
    for (const uint64_t d : ne) put(infos_, d);
    put(infos_, type);
    put(infos_, offset);
    n_tensors_++;
    return *this;
  }
  GgufBuilder& data(size_t bytes) {
    data_.resize(data_.size() + bytes);
    return *this;
  }

  GgufBuilder& claim_tensors(uint64_t n) {
    n_tensors_ = n;
    return *this;
  }
  GgufBuilder& claim_metadata(uint64_t n) {
    n_metadata_ = n;
    return *this;
  }

  [[nodiscard]] std::vector<uint8_t> header() const {
    std::vector<uint8_t> out;
    for (const char c : {'G', 'G', 'U', 'F'}) out.push_back(static_cast<uint8_t>(c));
    put(out, version_);
    put(out, n_tensors_);
    put(out, n_metadata_);
    out.insert(out.end(), metadata_.begin(), metadata_.end());
    out.insert(out.end(), infos_.begin(), infos_.end());
    return out;
  }
  [[nodiscard]] std::vector<uint8_t> build() const {
    std::vector<uint8_t> out = header();
    while (out.size() % alignment_ != 0) out.push_back(0);
    out.insert(out.end(), data_.begin(), data_.end());
    return out;
  }

  template <typename T>
  static void put(std::vector<uint8_t>& out, T value) {
    uint8_t bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof value);
    for (const uint8_t byte : bytes) out.push_back(byte);  // GCC 12 warns about insert()
  }
  static void put_string(std::vector<uint8_t>& out, std::string_view text) {
    put(out, uint64_t{text.size()});
    out.insert(out.end(), text.begin(), text.end());
  }

 private:
  template <typename T>
  static constexpr uint32_t type_id() {
    if constexpr (std::is_same_v<T, uint8_t>) return 0;
    if constexpr (std::is_same_v<T, int8_t>) return 1;
    if constexpr (std::is_same_v<T, uint16_t>) return 2;
    if constexpr (std::is_same_v<T, int16_t>) return 3;
    if constexpr (std::is_same_v<T, uint32_t>) return 4;
    if constexpr (std::is_same_v<T, int32_t>) return 5;
    if constexpr (std::is_same_v<T, float>) return 6;
    if constexpr (std::is_same_v<T, bool>) return 7;
    if constexpr (std::is_same_v<T, uint64_t>) return 10;
    if constexpr (std::is_same_v<T, int64_t>) return 11;
    if constexpr (std::is_same_v<T, double>) return 12;
  }
  void begin_key(std::string_view key, uint32_t type) {
    put_string(metadata_, key);
    put(metadata_, type);
    n_metadata_++;
  }

  uint32_t version_;
  uint32_t alignment_ = 32;
  uint64_t n_tensors_ = 0;
  uint64_t n_metadata_ = 0;
  std::vector<uint8_t> metadata_;
  std::vector<uint8_t> infos_;
  std::vector<uint8_t> data_;
};

}  // namespace sluice::test
