// Little-endian bytes, appended field by field.
#include "gguf/write.h"

#include <cstring>

#include "base/round_up.h"
#include "gguf/printable.h"

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

void put_metadata(std::string* out, const Header& header) {
  for (const KeyValue& kv : header.metadata) {
    put_text(out, kv.key);
    put(out, static_cast<uint32_t>(kv.value.type));
    if (kv.value.type == ValueType::kArray) {
      put(out, static_cast<uint32_t>(kv.value.element));
      put(out, kv.value.count);
    } else if (kv.value.type == ValueType::kString) {
      put<uint64_t>(out, kv.value.bytes.size());
    }
    out->append(reinterpret_cast<const char*>(kv.value.bytes.data()), kv.value.bytes.size());
  }
}

// Upper bounds of the fixed-size parts: of a key and its value, and of a tensor's entry.
constexpr uint64_t kKeyValueBytes = 8 + 4 + 12, kTensorBytes = 8 + 4 + 4 * 8 + 4 + 8;

// A whole header. Tensor offsets count from the start of the data, which begins at the next
// multiple of the alignment. The string is allocated once, because growing would copy a large
// vocabulary.
std::string header_bytes(const Header& header) {
  uint64_t room = 24 + header.alignment;
  for (const KeyValue& kv : header.metadata) {
    room += kKeyValueBytes + kv.key.size() + kv.value.bytes.size();
  }
  for (const Tensor& t : header.tensors) room += kTensorBytes + t.name.size();
  std::string out;
  out.reserve(static_cast<size_t>(room));
  out += "GGUF";
  put<uint32_t>(&out, 3);
  put<uint64_t>(&out, header.tensors.size());
  put<uint64_t>(&out, header.metadata.size());
  put_metadata(&out, header);
  for (const Tensor& t : header.tensors) {
    put_text(&out, t.name);
    put(&out, t.n_dims);
    for (uint32_t d = 0; d < t.n_dims; d++) put(&out, t.ne[d]);
    put(&out, static_cast<uint32_t>(t.type));
    put(&out, t.offset);
  }
  out.resize(static_cast<size_t>(round_up(out.size(), header.alignment)));
  return out;
}

}  // namespace

std::string metadata_bytes(const Header& header) {
  std::string out;
  put_metadata(&out, header);
  return out;
}

std::string place_and_write(Header* header) {
  uint64_t data = 0;
  for (Tensor& t : header->tensors) {
    t.file = 0;
    t.offset = data;
    data += round_up(t.bytes, header->alignment);
  }
  std::string out = header_bytes(*header);
  header->data_offset = out.size();
  for (Tensor& t : header->tensors) t.offset += header->data_offset;
  header->n_files = 1;
  return out;
}

Result<std::string> write_placed(Header* header) {
  static constexpr uint32_t kNone = 1;
  constexpr std::string_view kKey = "general.alignment";
  header->alignment = kNone;
  if (header->find(kKey) == nullptr) {
    const Bytes bytes{reinterpret_cast<const uint8_t*>(&kNone), sizeof kNone};
    header->metadata.push_back({kKey, {ValueType::kU32, ValueType::kU32, 1, bytes}});
  }
  for (Tensor& t : header->tensors) {
    if (t.offset >> kPlacedBits != 0) {
      return error(Code::kBadHeader, "the tensor \"%s\" has an offset that is too large",
                   printable(t.name).c_str());
    }
    t.offset |= uint64_t{t.file} << kPlacedBits;
  }
  return header_bytes(*header);
}

Status parse_placed(Bytes bytes, uint32_t n_files, Header* out) {
  const Result<ParseProgress> parsed = parse_header(bytes, 0, out);
  if (!parsed.ok()) return parsed.status();
  bool placed = parsed->done;
  for (Tensor& t : out->tensors) {
    t.offset -= out->data_offset;
    t.file = static_cast<uint32_t>(t.offset >> kPlacedBits);
    t.offset &= (uint64_t{1} << kPlacedBits) - 1;
    placed = placed && t.file < n_files;
  }
  if (!placed) return error(Code::kBadHeader, "the list of the model's files is invalid");
  out->n_files = n_files;
  return {};
}

}  // namespace sluice::gguf
