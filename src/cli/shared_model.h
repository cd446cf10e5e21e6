// Lets several engines read one model, one after another, through files that are opened once.
#pragma once

#include <memory>

#include "convert/source.h"
#include "native/model_file.h"

namespace sluice::cli {

class SharedSource final : public io::ByteSource {
 public:
  explicit SharedSource(io::ByteSource* file) : file_(file) {}
  [[nodiscard]] uint64_t size() const override { return file_->size(); }
  [[nodiscard]] Status read(uint64_t offset, std::span<uint8_t> out) override {
    return file_->read(offset, out);
  }
  void will_need(uint64_t offset, uint64_t length) override { file_->will_need(offset, length); }
  [[nodiscard]] Status refresh(uint64_t offset, uint64_t length) override {
    return file_->refresh(offset, length);
  }

 private:
  io::ByteSource* file_;
};

// Another header over the open files of `model`, which must outlive it.
[[nodiscard]] inline native::ModelHeader shared(const native::ModelHeader& model) {
  native::ModelHeader out;
  out.header = model.header;
  for (const auto& file : model.sources) {
    out.sources.push_back(std::make_unique<SharedSource>(file.get()));
  }
  out.remote = model.remote;
  out.held = model.held;
  return out;
}

// The model's tensors in stored order, for conversion; row permutations are not undone.
[[nodiscard]] inline Result<convert::Source> as_stored(const native::ModelHeader& model,
                                                       gguf::Header* header) {
  *header = model.header;
  std::erase_if(header->metadata, [](const gguf::KeyValue& kv) {
    return kv.key == "sluice.rope_neox" || kv.key == "sluice.norm_offset";
  });
  return convert::Source::create(*header, model.sources);
}

}  // namespace sluice::cli
