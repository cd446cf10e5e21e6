// Little-endian bytes, appended field by field.
#include "gguf/write.h"

#include <cstring>

namespace sluice::gguf {
namespace {

template <typename T>
void put(std::string* out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out->append(bytes, sizeof value);
}

void put_text(std::string* out, std::string_view text) {
  put<uint64_t>(out, text.size());
  out->append(text);
}

uint64_t aligned(uint64_t bytes, uint64_t to) {
  return (bytes + to - 1) / to * to;
}

}  // namespace

std::string metadata_bytes(const Header& header) {
  std::string out;
  for (const KeyValue& kv : header.metadata) {
    put_text(&out, kv.key);
    put(&out, static_cast<uint32_t>(kv.value.type));
    if (kv.value.type == ValueType::kArray) {
      put(&out, static_cast<uint32_t>(kv.value.element));
      put(&out, kv.value.count);
    } else if (kv.value.type == ValueType::kString) {
      put<uint64_t>(&out, kv.value.bytes.size());
    }
    out.append(reinterpret_cast<const char*>(kv.value.bytes.data()), kv.value.bytes.size());
  }
  return out;
}

std::string place_and_write(Header* header) {
  std::string out = "GGUF";
  put<uint32_t>(&out, 3);
  put<uint64_t>(&out, header->tensors.size());
  put<uint64_t>(&out, header->metadata.size());
  out += metadata_bytes(*header);
  uint64_t data = 0;
  for (Tensor& t : header->tensors) {
    put_text(&out, t.name);
    put(&out, t.n_dims);
    for (uint32_t d = 0; d < t.n_dims; d++) put(&out, t.ne[d]);
    put(&out, static_cast<uint32_t>(t.type));
    put(&out, data);
    t.file = 0;
    t.offset = data;
    data += aligned(t.bytes, header->alignment);
  }
  out.resize(static_cast<size_t>(aligned(out.size(), header->alignment)));
  header->data_offset = out.size();
  for (Tensor& t : header->tensors) t.offset += header->data_offset;
  header->n_files = 1;
  return out;
}

}  // namespace sluice::gguf
