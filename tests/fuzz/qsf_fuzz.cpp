// Fuzzes QSF files. Checksums are corrected first, or nothing behind them would be reached. Tensors
// of accepted input lie in the file, and each of their bytes can be read or is an error.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "native/model_file.h"
#include "qsf/crc32.h"

namespace {

using Bytes = std::vector<uint8_t>;

template <typename T>
T get(const Bytes& file, size_t at) {
  T value{};
  if (at <= file.size() && file.size() - at >= sizeof value)
    std::memcpy(&value, &file[at], sizeof value);
  return value;
}
void put(Bytes* file, size_t at, uint32_t value) {
  if (at <= file->size() && file->size() - at >= 4) std::memcpy(&(*file)[at], &value, 4);
}
std::span<const uint8_t> part(const Bytes& file, uint64_t at, uint64_t n) {
  const uint64_t from = std::min<uint64_t>(at, file.size());
  return std::span(file).subspan(from, std::min<uint64_t>(n, file.size() - from));
}

void mend(Bytes* file) {
  using sluice::qsf::crc32;
  const uint64_t index = get<uint64_t>(*file, 56), metadata = get<uint64_t>(*file, 100);
  const uint64_t layers = std::min<uint32_t>(get<uint32_t>(*file, 16), 64);
  const uint64_t n = get<uint32_t>(*file, 108), end = metadata + n;
  put(file, 92, static_cast<uint32_t>(file->size()));
  if (file->size() >= 100) put(file, 96, crc32(part(*file, 0, 96)));
  for (uint64_t i = 0; i < layers && index < file->size(); ++i) {
    const uint64_t at = index + 32 * i;
    put(file, at + 20, crc32(part(*file, get<uint64_t>(*file, at), get<uint32_t>(*file, at + 8))));
  }
  if (metadata > file->size() || end > file->size() || n < 16) return;
  const uint64_t sections = std::min<uint32_t>(get<uint32_t>(*file, end - 12), 16);
  for (uint64_t i = 0; i < sections && 16 + 24 * (i + 1) <= n; ++i) {
    const uint64_t at = end - 16 - 24 * (i + 1);
    put(file, at + 16, crc32(part(*file, get<uint64_t>(*file, at), get<uint64_t>(*file, at + 8))));
  }
  const uint32_t before = crc32(part(*file, index, layers * 32), crc32(part(*file, 100, 28)));
  put(file, end - 8, crc32(part(*file, metadata, n - 8), before));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes file(data, data + size);
  mend(&file);
  auto model = sluice::native::read_header(sluice::io::open_memory(file));
  if (!model.ok()) {
    if (model.status().message().empty()) std::abort();
    return 0;
  }
  Bytes out;
  for (const auto& tensor : model->header.tensors) {
    if (tensor.bytes > (1ull << 32)) std::abort();  // a layer's buffer
    out.resize(std::min<uint64_t>(tensor.bytes, 1 << 20));
    const auto read = model->sources[0]->read(tensor.offset, out);
    if (!read.ok() && read.message().empty()) std::abort();
  }
  return 0;
}
