// A PyTorch checkpoint (pytorch_model.bin) as the safetensors file that holds the same tensors: its
// directory is made when the file is opened, its tensors' bytes are read where they lie. So nothing
// behind it knows the difference.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "io/byte_source.h"

namespace sluice::native {

class TorchSource final : public io::ByteSource {
 public:
  // `name` is for messages. Errors: kBadHeader, kTruncated, kUnsupportedType, kBadShape, those of
  // reading.
  [[nodiscard]] static Result<std::unique_ptr<TorchSource>> open(
      std::unique_ptr<io::ByteSource> file, const char* name);

  // Bytes that it holds.
  [[nodiscard]] uint64_t memory() const {
    return directory_.capacity() + parts_.capacity() * sizeof(Part);
  }

  [[nodiscard]] uint64_t size() const override;
  [[nodiscard]] Status read(uint64_t offset, std::span<uint8_t> out) override;
  [[nodiscard]] uint64_t bytes_fetched() const override { return file_->bytes_fetched(); }
  [[nodiscard]] uint64_t bytes_from_cache() const override { return file_->bytes_from_cache(); }
  [[nodiscard]] uint64_t bytes_missing() const override { return file_->bytes_missing(); }
  void abort() override { file_->abort(); }

 private:
  struct Part {  // of what is read here: a tensor
    uint64_t begin, bytes, offset;
  };
  explicit TorchSource(std::unique_ptr<io::ByteSource> file) : file_(std::move(file)) {}
  [[nodiscard]] Status describe(const char* name);

  std::unique_ptr<io::ByteSource> file_;
  std::string directory_;  // a safetensors file's first bytes
  std::vector<Part> parts_;
};

using OpenFile = std::function<Result<std::unique_ptr<io::ByteSource>>(const std::string& name)>;

// Opens `name` of a checkpoint's directory, or what stands for it where there are PyTorch's files
// and no safetensors: model.safetensors, its index, and the shards that this index then names.
// *held grows by the bytes that this takes as long as the file is open.
[[nodiscard]] Result<std::unique_ptr<io::ByteSource>> open_checkpoint(const OpenFile& open,
                                                                      const std::string& name,
                                                                      uint64_t* held);

}  // namespace sluice::native
