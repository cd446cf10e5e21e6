// Fuzzes reading Hugging Face directories. The input is four files, each after a 3-byte length:
// config.json, tokenizer.json, tokenizer_config.json, and a safetensors file.
#include <cstdlib>
#include <string>

#include "hf/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string parts[4];
  for (std::string& part : parts) {
    if (size < 3) break;
    size_t n = static_cast<size_t>(data[0]) | static_cast<size_t>(data[1]) << 8 |
               static_cast<size_t>(data[2]) << 16;
    data += 3;
    size -= 3;
    if (n > size) n = size;
    part.assign(reinterpret_cast<const char*>(data), n);
    data += n;
    size -= n;
  }
  sluice::hf::Directory directory{parts[0], parts[1], parts[2], {}, {}, {}};
  sluice::hf::SafetensorsFile file;
  const sluice::gguf::Bytes bytes(reinterpret_cast<const uint8_t*>(parts[3].data()),
                                  parts[3].size());
  const auto parsed = parse_safetensors(bytes, bytes.size(), "model.safetensors", &file);
  if (parsed.ok() && parsed->done) directory.shards.push_back(std::move(file));
  (void)sluice::hf::safetensors_shards(parts[2]);
  const auto model = describe_model(directory);
  if (!model.ok()) {
    if (model.status().message().empty()) std::abort();
    return 0;
  }
  const uint64_t end = bytes.size(), files = directory.shards.size();
  uint64_t derived = 0;
  for (const auto& run : model->derived) {
    if (run.begin < derived) std::abort();
    derived = run.begin + run.bytes;
    if (run.kind == sluice::hf::Derived::Kind::kZero || run.bytes == 0) continue;
    uint64_t last = run.chunk;  // past the chunk furthest from the first
    for (size_t i = 0; i < 3; i++) last += (run.counts[i] - 1) * run.strides[i];
    const bool scaled = run.kind == sluice::hf::Derived::Kind::kMxfp4;
    if (run.offset + last > end || (scaled && run.scales + last / 16 > end)) std::abort();
  }
  for (const auto& t : model->header.tensors) {
    const bool made = t.file == files && !model->made.empty();
    const uint64_t size = t.file < files ? end : made ? model->made.size() : derived;
    if (t.offset + t.bytes > size) std::abort();
    if (model->header.find_tensor(t.name) != &t) std::abort();
  }
  return 0;
}
