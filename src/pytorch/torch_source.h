// Presents a PyTorch checkpoint (pytorch_model.bin) as a safetensors file with the same tensors.
// The safetensors header is generated on opening, and tensor data is read in place. The other code
// only needs to know safetensors. This header is all that the rest of the program sees of PyTorch's
// formats.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "io/byte_source.h"

namespace sluice::pytorch {

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
  struct Part {  // a tensor: its offset in the safetensors data, length, and offset in the file
    uint64_t begin, bytes, offset;
  };
  explicit TorchSource(std::unique_ptr<io::ByteSource> file) : file_(std::move(file)) {}
  [[nodiscard]] Status describe(const char* name);

  std::unique_ptr<io::ByteSource> file_;
  std::string directory_;  // the generated safetensors header
  std::vector<Part> parts_;
};

using OpenFile = std::function<Result<std::unique_ptr<io::ByteSource>>(const std::string& name)>;

// Opens the file `name` of a checkpoint. If the checkpoint has PyTorch files instead of
// safetensors, they are presented as model.safetensors, its index, and the shards that the index
// names. Adds to *held the bytes that the open file takes.
[[nodiscard]] Result<std::unique_ptr<io::ByteSource>> open_checkpoint(const OpenFile& open,
                                                                      const std::string& name,
                                                                      uint64_t* held);

}  // namespace sluice::pytorch
