// LoRA adapters from GGUF files, PEFT directories and URLs. Opens them, parses their headers, and
// gives the engine access to their tensor data.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "adapter/adapter.h"
#include "io/byte_source.h"

namespace sluice::native {

struct AdapterChoice {
  // GGUF file, directory, adapter_model.safetensors, an http(s) URL of these, or a hf: reference
  std::string path;
  float scale = 1;
};

class AdapterFiles {
 public:
  // Errors: the sources' and the parsers', naming the path.
  [[nodiscard]] static Result<AdapterFiles> open(std::span<const AdapterChoice> choices,
                                                 const io::OpenOptions& options);
  // For the engine. Valid as long as this object lives.
  [[nodiscard]] std::span<const adapter::Source> sources() const { return sources_; }

 private:
  struct File {
    adapter::Adapter adapter;
    std::unique_ptr<io::ByteSource> source;
  };
  [[nodiscard]] static Status open_one(const std::string& path, const io::OpenOptions& options,
                                       File* out);

  std::vector<std::unique_ptr<File>> files_;
  std::vector<adapter::Source> sources_;
};

}  // namespace sluice::native
