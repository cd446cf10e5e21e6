// Reads metadata values from the header's bytes, and looks up keys and tensors by name. Values stay
// as stored (little-endian, unaligned) and are converted on access, so a vocabulary of 256k entries
// costs nothing until it is used.
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "gguf/gguf.h"

namespace sluice::gguf {

static_assert(std::endian::native == std::endian::little, "GGUF values are read in place");

namespace {

template <typename T>
T load(const uint8_t* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// Calls fn with the scalar at p as its C++ type. Returns false when it is not numeric.
template <typename Fn>
bool visit_number(ValueType type, const uint8_t* p, Fn&& fn) {
  switch (type) {
    case ValueType::kU8:
      fn(load<uint8_t>(p));
      return true;
    case ValueType::kI8:
      fn(load<int8_t>(p));
      return true;
    case ValueType::kU16:
      fn(load<uint16_t>(p));
      return true;
    case ValueType::kI16:
      fn(load<int16_t>(p));
      return true;
    case ValueType::kU32:
      fn(load<uint32_t>(p));
      return true;
    case ValueType::kI32:
      fn(load<int32_t>(p));
      return true;
    case ValueType::kU64:
      fn(load<uint64_t>(p));
      return true;
    case ValueType::kI64:
      fn(load<int64_t>(p));
      return true;
    case ValueType::kF32:
      fn(load<float>(p));
      return true;
    case ValueType::kF64:
      fn(load<double>(p));
      return true;
    case ValueType::kBool:
      fn(load<uint8_t>(p) != 0);
      return true;
    case ValueType::kString:
    case ValueType::kArray:
      return false;
  }
  return false;
}

}  // namespace

uint64_t value_type_bytes(ValueType type) {
  switch (type) {
    case ValueType::kU8:
    case ValueType::kI8:
    case ValueType::kBool:
      return 1;
    case ValueType::kU16:
    case ValueType::kI16:
      return 2;
    case ValueType::kU32:
    case ValueType::kI32:
    case ValueType::kF32:
      return 4;
    case ValueType::kU64:
    case ValueType::kI64:
    case ValueType::kF64:
      return 8;
    case ValueType::kString:
    case ValueType::kArray:
      return 0;
  }
  return 0;
}

std::optional<uint64_t> Value::as_u64() const {
  std::optional<uint64_t> result;
  visit_number(type, bytes.data(), [&](auto v) {
    using T = decltype(v);
    if constexpr (std::is_integral_v<T>) {
      if constexpr (std::is_signed_v<T>) {
        if (v < 0) return;
      }
      result = static_cast<uint64_t>(v);
    }
  });
  return result;
}

std::optional<int64_t> Value::as_i64() const {
  std::optional<int64_t> result;
  visit_number(type, bytes.data(), [&](auto v) {
    using T = decltype(v);
    if constexpr (std::is_same_v<T, uint64_t>) {
      if (v > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return;
    }
    if constexpr (std::is_integral_v<T>) result = static_cast<int64_t>(v);
  });
  return result;
}

std::optional<double> Value::as_f64() const {
  std::optional<double> result;
  if (type == ValueType::kBool) return result;
  visit_number(type, bytes.data(), [&](auto v) { result = static_cast<double>(v); });
  return result;
}

std::optional<bool> Value::as_bool() const {
  if (type != ValueType::kBool) return std::nullopt;
  return bytes[0] != 0;
}

std::optional<std::string_view> Value::as_string() const {
  if (type != ValueType::kString) return std::nullopt;
  return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

double Value::number_at(uint64_t i) const {
  double result = 0;
  const uint64_t size = value_type_bytes(element);
  if (i >= count || size == 0) return result;
  visit_number(element, bytes.data() + i * size, [&](auto v) { result = static_cast<double>(v); });
  return result;
}

StringCursor::StringCursor(const Value& array) {
  if (array.type == ValueType::kArray && array.element == ValueType::kString) {
    rest_ = array.bytes;
    left_ = array.count;
  }
}

bool StringCursor::next(std::string_view* out) {
  if (left_ == 0 || rest_.size() < 8) return false;
  const auto length = load<uint64_t>(rest_.data());
  if (length > rest_.size() - 8) return false;
  *out = {reinterpret_cast<const char*>(rest_.data()) + 8, static_cast<size_t>(length)};
  rest_ = rest_.subspan(8 + static_cast<size_t>(length));
  left_--;
  return true;
}

const Value* Header::find(std::string_view key) const {
  for (const KeyValue& kv : metadata) {
    if (kv.key == key) return &kv.value;
  }
  return nullptr;
}

const Tensor* Header::find_tensor(std::string_view name) const {
  const auto it =
      std::lower_bound(by_name.begin(), by_name.end(), name,
                       [&](uint32_t i, std::string_view n) { return tensors[i].name < n; });
  return it != by_name.end() && tensors[*it].name == name ? &tensors[*it] : nullptr;
}

std::optional<uint64_t> Header::get_u64(std::string_view key) const {
  const Value* value = find(key);
  return value ? value->as_u64() : std::nullopt;
}

std::optional<double> Header::get_f64(std::string_view key) const {
  const Value* value = find(key);
  return value ? value->as_f64() : std::nullopt;
}

std::optional<bool> Header::get_bool(std::string_view key) const {
  const Value* value = find(key);
  return value ? value->as_bool() : std::nullopt;
}

std::optional<std::string_view> Header::get_string(std::string_view key) const {
  const Value* value = find(key);
  return value ? value->as_string() : std::nullopt;
}

}  // namespace sluice::gguf
