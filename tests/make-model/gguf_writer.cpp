// Appends values in host byte order; the machines that run this tool are little-endian.
#include "tests/make-model/gguf_writer.h"

#include <bit>

#include "base/round_up.h"

namespace sluice::make_model {
namespace {

static_assert(std::endian::native == std::endian::little);
constexpr uint32_t kGgufVersion = 3;

template <typename T>
void put(std::string* out, T value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof value);
}
void put_string(std::string* out, std::string_view text) {
  put<uint64_t>(out, text.size());
  out->append(text);
}

}  // namespace

void GgufWriter::key(std::string_view name, gguf::ValueType type) {
  put_string(&metadata_, name);
  put(&metadata_, static_cast<uint32_t>(type));
  ++n_values_;
}

void GgufWriter::array(std::string_view name, gguf::ValueType element, uint64_t count) {
  key(name, gguf::ValueType::kArray);
  put(&metadata_, static_cast<uint32_t>(element));
  put(&metadata_, count);
}

void GgufWriter::add(std::string_view name, std::string_view value) {
  key(name, gguf::ValueType::kString);
  put_string(&metadata_, value);
}
void GgufWriter::add(std::string_view name, uint32_t value) {
  key(name, gguf::ValueType::kU32);
  put(&metadata_, value);
}
void GgufWriter::add(std::string_view name, float value) {
  key(name, gguf::ValueType::kF32);
  put(&metadata_, value);
}
void GgufWriter::add(std::string_view name, bool value) {
  key(name, gguf::ValueType::kBool);
  put<uint8_t>(&metadata_, value ? 1 : 0);
}
void GgufWriter::add(std::string_view name, std::span<const std::string> values) {
  array(name, gguf::ValueType::kString, values.size());
  for (const std::string& value : values) put_string(&metadata_, value);
}
void GgufWriter::add(std::string_view name, std::span<const float> values) {
  array(name, gguf::ValueType::kF32, values.size());
  for (const float value : values) put(&metadata_, value);
}
void GgufWriter::add(std::string_view name, std::span<const int32_t> values) {
  array(name, gguf::ValueType::kI32, values.size());
  for (const int32_t value : values) put(&metadata_, value);
}

uint64_t GgufWriter::add_tensor(std::string_view name, gguf::TensorType type,
                                std::span<const uint64_t> ne, uint64_t bytes) {
  const uint64_t offset = data_bytes_;
  put_string(&directory_, name);
  put(&directory_, static_cast<uint32_t>(ne.size()));
  for (const uint64_t n : ne) put(&directory_, n);
  put(&directory_, static_cast<uint32_t>(type));
  put(&directory_, offset);
  ++n_tensors_;
  data_bytes_ += round_up(bytes, kGgufAlignment);
  return offset;
}

std::string GgufWriter::header() const {
  std::string out = "GGUF";
  put(&out, kGgufVersion);
  put(&out, n_tensors_);
  put(&out, n_values_);
  out += metadata_;
  out += directory_;
  out.resize(round_up(out.size(), kGgufAlignment), '\0');
  return out;
}

}  // namespace sluice::make_model
