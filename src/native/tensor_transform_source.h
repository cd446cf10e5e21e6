// Tensors that a checkpoint stores otherwise than GGUF does, as a file of the model: what is read
// of it is made of the checkpoint's files on the way (hf/tensor_transform.h). What that takes is
// allocated at once and told beforehand.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "base/aligned.h"
#include "hf/tensor_transform.h"
#include "io/byte_source.h"

namespace sluice::native {

class TensorTransformSource final : public io::ByteSource {
 public:
  // `runs` by address, without gaps that are read; `files` outlive the source.
  // Errors: kOutOfMemory.
  [[nodiscard]] static Result<std::unique_ptr<TensorTransformSource>> open(
      std::vector<hf::Derived> runs, std::vector<io::ByteSource*> files);
  // Bytes that it holds.
  [[nodiscard]] uint64_t memory() const { return memory_; }

  [[nodiscard]] uint64_t size() const override;
  [[nodiscard]] Status read(uint64_t offset, std::span<uint8_t> out) override;

 private:
  // Memory of one reader: a line as it is stored, its scales, and as it is made.
  struct Room {
    AlignedBuffer stored, scales, made;
    bool busy = false;
  };
  class Use;

  TensorTransformSource(std::vector<hf::Derived> runs, std::vector<io::ByteSource*> files)
      : runs_(std::move(runs)), files_(std::move(files)) {}
  [[nodiscard]] Status make_rooms();
  [[nodiscard]] Status read_line(const hf::DerivedPart& part, std::span<uint8_t> out);
  [[nodiscard]] Room& take_room();

  std::vector<hf::Derived> runs_;
  std::vector<io::ByteSource*> files_;
  std::vector<Room> rooms_;
  uint64_t memory_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace sluice::native
