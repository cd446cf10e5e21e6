// Fuzzes PyTorch checkpoints: an accepted file is a safetensors directory whose every byte can be
// read. An input that is no archive is used as its data.pkl.
#include <cstdlib>
#include <vector>

#include "hf/safetensors.h"
#include "pytorch/pickle.h"
#include "pytorch/torch_source.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const gguf::Bytes bytes(data, size);
  const auto source = pytorch::TorchSource::open(io::open_memory(bytes), "pytorch_model.bin");
  if (!source.ok()) {
    if (source.status().message().empty()) std::abort();
    (void)pytorch::parse_pickle(bytes, "pytorch_model.bin");
    return 0;
  }
  // Tensors may share bytes, so a small file can describe more than fits in memory.
  if ((*source)->size() > (64u << 20)) return 0;
  std::vector<uint8_t> all((*source)->size());
  if (!(*source)->read(0, all).ok()) std::abort();
  hf::SafetensorsFile file;
  const auto parsed = hf::parse_safetensors(all, all.size(), "pytorch_model.bin", &file);
  if (!parsed.ok() || !parsed->done) std::abort();
  return 0;
}
