// Fuzzes the GGUF header parser: any bytes, any prefix length, known or unknown file size. The
// parser must return a typed error or a directory whose tensors lie inside the file.
#include <cstdlib>
#include <memory>

#include "gguf/gguf.h"

namespace {

void check(bool ok) {
  if (!ok) std::abort();
}

void use(const sluice::gguf::Header& header) {
  for (const auto& kv : header.metadata) {
    sluice::gguf::StringCursor cursor(kv.value);
    std::string_view text;
    uint64_t n = 0;
    while (cursor.next(&text)) n++;
    if (kv.value.element == sluice::gguf::ValueType::kString &&
        kv.value.type == sluice::gguf::ValueType::kArray) {
      check(n == kv.value.count);
    }
    if (kv.value.count != 0) (void)kv.value.number_at(kv.value.count - 1);
    (void)kv.value.as_u64();
    (void)kv.value.as_f64();
    (void)kv.value.as_bool();
    (void)kv.value.as_string();
  }
  for (const auto& tensor : header.tensors) check(header.find_tensor(tensor.name) == &tensor);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  // The first byte selects how much of the rest is the prefix, and whether the size is known.
  const size_t body = size - 1;
  const size_t have = (data[0] & 0x7f) == 0x7f ? body : body * (data[0] & 0x7f) / 0x7f;
  const uint64_t file_size = (data[0] & 0x80) != 0 ? body : 0;
  auto prefix = std::make_unique<uint8_t[]>(have);  // exact size: the sanitizer guards its end
  for (size_t i = 0; i < have; i++) prefix[i] = data[1 + i];
  sluice::gguf::Header header;
  const auto progress = sluice::gguf::parse_header({prefix.get(), have}, file_size, &header);
  if (!progress.ok()) {
    check(!progress.status().message().empty());
  } else if (progress->done) {
    use(header);
    for (const auto& t : header.tensors) check(file_size == 0 || t.offset + t.bytes <= file_size);
  } else {
    check(progress->need_bytes > have);
    check(file_size == 0 || progress->need_bytes <= file_size);
  }
  return 0;
}
